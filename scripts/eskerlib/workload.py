"""The main job: a table of 7 character columns (102 bytes and a flag byte), loaded with INSERT ... SELECT and scanned.

The demonstration and the benchmark share it, so that both measure the same thing.
"""
import os
import time

from .server import folder_bytes

ENGINES = ["Esker", "MyISAM", "Aria", "InnoDB", "RocksDB", "BLACKHOLE"]
SHOWN = {"RocksDB": "MyRocks"}
KINDS = ["char", "varchar"]
# Esker's variants beside its default: name in tables -> table options
ESKER_VARIANTS = {
    "Esker none": "COMPRESSION=none",
    "Esker FIXED": "ROW_FORMAT=FIXED COMPRESSION=none",
    "Esker lz4": "COMPRESSION=lz4",
    "Esker zstd": "COMPRESSION=zstd",
}
# surname, first name, street and number, city, date, country code, customer code: 102 bytes
WIDTHS = [("a", 20), ("b", 14), ("c", 28), ("d", 20), ("e", 10), ("f", 3), ("g", 7)]

SURNAMES = """Smith Johnson Williams Brown Jones Garcia Miller Davis Rodriguez Martinez Hernandez Lopez Gonzalez Wilson
Anderson Thomas Taylor Moore Jackson Martin Lee Perez Thompson White Harris Sanchez Clark Ramirez Lewis Robinson Walker
Young Allen King Wright Scott Torres Nguyen Hill Flores Green Adams Nelson Baker Hall Rivera Campbell Mitchell Carter
Roberts Virtanen Korhonen Nieminen Makinen Hansen Johansen Olsen Larsen Andersen Pedersen Nilsen Kristiansen Schmidt
Schneider Fischer Weber Meyer Wagner Becker Schulz Hoffmann Rossi Russo Ferrari Esposito Bianchi Romano Colombo Dubois
Lefebvre Moreau Laurent Simon Michel Kowalski Nowak Wisniewski Novak Svoboda Horvath Szabo Papadopoulos Yamamoto Tanaka
Watanabe Ito Kim Park Choi Chen Wang Zhang Liu Vandenberghe Featherstonehaugh""".split()
FIRST = """James Mary Robert Patricia John Jennifer Michael Linda David Elizabeth William Barbara Richard Susan Joseph
Jessica Thomas Sarah Christopher Karen Charles Lisa Daniel Nancy Matthew Betty Anthony Sandra Mark Margaret Donald Ashley
Steven Kimberly Andrew Emily Paul Donna Joshua Michelle Kenneth Carol Kevin Amanda Brian Melissa Matti Liisa Juhani Aino
Lars Ingrid Sven Astrid Giulia Luca Pierre Chloe Zofia Jan Yuki Haruto Min Wei Alexandros""".split()
STREETS = """Main Street|High Street|Church Road|Station Road|Park Avenue|Oak Street|Maple Avenue|Cedar Lane|Elm Street|Washington
Boulevard|Lake View Drive|Hill Crest|Victoria Road|Mill Lane|King Street|Queen Street|North Road|South Terrace|River Walk|Green
Lane|Bahnhofstrasse|Hauptstrasse|Gartenweg|Schulstrasse|Lindenallee|Rue de la Paix|Avenue Foch|Via Roma|Corso Italia|Calle
Mayor|Gran Via|Mannerheimintie|Aleksanterinkatu|Storgatan|Drottninggatan|Kirkegata|Nygade|Ulica Polna|Market Place|The Green""".replace("\n", " ").split("|")
CITIES = """London|Paris|Berlin|Madrid|Rome|Vienna|Prague|Warsaw|Helsinki|Stockholm|Oslo|Copenhagen|Amsterdam|Brussels|Lisbon|Dublin|Athens|
Budapest|Zurich|Hamburg|Munich|Cologne|Milan|Naples|Turin|Barcelona|Valencia|Seville|Lyon|Marseille|Toulouse|Bordeaux|Manchester|
Birmingham|Liverpool|Edinburgh|Gothenburg|Tampere|Turku|Bergen|New York|Los Angeles|Chicago|San Francisco|Tokyo|Osaka|Seoul|Singapore""".replace("\n", "").split("|")
COUNTRIES = "GBR FRA DEU ESP ITA AUT CZE POL FIN SWE NOR DNK NLD BEL PRT IRL GRC HUN CHE USA JPN KOR SGP CAN AUS".split()


def _pick(words, prime, salt):
    """SQL: one of words, by a hash of seq."""
    quoted = ",".join("'" + w.replace("'", "''") + "'" for w in words)
    return f"ELT(1 + ((seq * {prime} + {salt}) % 4294967291 >> 7) % {len(words)}, {quoted})"


def columns(kind):
    """The column list of CREATE TABLE."""
    return ", ".join(f"{name} {kind.upper()}({width})" for name, width in WIDTHS)


def create(client, table, kind, engine, options=""):
    """A new, empty table (latin1: one byte a character)."""
    client.query(f"DROP TABLE IF EXISTS {table}")
    client.query(f"CREATE TABLE {table} ({columns(kind)}) ENGINE={engine} {options} CHARSET=latin1")


def fill_source(client, rows, say):
    """src_char and src_varchar in MyISAM with that many rows; kept from an earlier run when they have the right size."""
    values = ", ".join([
        _pick(SURNAMES, 2654435761, 11), _pick(FIRST, 2246822519, 23),
        f"CONCAT({_pick(STREETS, 3266489917, 5)}, ' ', 1 + (seq * 668265263 % 4294967291 >> 9) % 250)", _pick(CITIES, 374761393, 7),
        "DATE_ADD('1955-01-01', INTERVAL (seq * 1274126177 % 4294967291 >> 5) % 25000 DAY)", _pick(COUNTRIES, 2869860233, 3),
        "LPAD(CONV((seq * 3559788179 % 4294967291) % 78364164096, 10, 36), 7, '0')",
    ])
    for kind in KINDS:
        table = f"src_{kind}"
        try:
            if int(client.one(f"SELECT COUNT(*) FROM {table}")) == rows:
                continue
        except Exception:  # not there yet, or of an interrupted run
            pass
        create(client, table, kind, "MyISAM")
        start, step = 1, max(rows // 10, 1)
        while start <= rows:
            end = min(start + step - 1, rows)
            source = f"SELECT {values} FROM seq_{start}_to_{end}" if kind == "char" else \
                f"SELECT * FROM src_char LIMIT {start - 1}, {end - start + 1}"
            client.query(f"INSERT INTO {table} {source}")
            say(f"making the source ({kind.upper()} columns): {end:,} of {rows:,} rows")
            start = end + 1


def options_of(name):
    """(engine, table options) of a name in tables."""
    return ("Esker", ESKER_VARIANTS[name]) if name in ESKER_VARIANTS else (name, "")


def prepare_session(client, engine):
    """What an engine needs to take a large statement at all."""
    client.query("SET SESSION sql_log_bin=0")
    if engine == "RocksDB":
        client.query("SET SESSION rocksdb_commit_in_the_middle=1")


def load(client, table, kind):
    """Seconds for INSERT ... SELECT of the whole source."""
    begin = time.monotonic()
    client.query(f"INSERT INTO {table} SELECT * FROM src_{kind}")
    return time.monotonic() - begin


def scan(client, table):
    """Seconds for a scan that looks at every row and finds none."""
    begin = time.monotonic()
    found = client.one(f"SELECT COUNT(*) FROM {table} WHERE f='zzz'")
    if found != "0":
        raise RuntimeError(f"{table}: the scan found {found} rows, there are none")
    return time.monotonic() - begin


def esker_folder(client, server):
    """Where Esker keeps its files."""
    return os.path.join(server.data, client.one("SELECT @@esker_data_dir"))


def engine_bytes(client, server, engine, db, table):
    """Bytes on disk of a table (of the whole engine for Esker: call it before and after)."""
    base = os.path.join(server.data, db, table)
    endings = {"MyISAM": (".MYD", ".MYI"), "Aria": (".MAD", ".MAI"), "InnoDB": (".ibd",)}
    if engine in endings:
        return sum(os.path.getsize(base + e) for e in endings[engine] if os.path.exists(base + e))
    if engine == "RocksDB":
        client.query("SET GLOBAL rocksdb_force_flush_memtable_now=1")
        return int(client.one(f"SELECT data_length + index_length FROM information_schema.tables WHERE table_schema='{db}' AND table_name='{table}'") or 0)
    if engine == "Esker":
        return folder_bytes(esker_folder(client, server), lambda p: p.endswith(".run"))
    return 0


def settled_bytes(client, server, engine, db, table, longest_s=20.0):
    """engine_bytes once it stands still: files of dropped tables go in the background."""
    end, last = time.monotonic() + longest_s, -1
    while True:
        now = engine_bytes(client, server, engine, db, table)
        if now == last or engine != "Esker" or time.monotonic() > end:
            return now
        last = now
        time.sleep(0.3)


def wait_idle(server, client=None, longest_s=60.0, quiet_s=1.0):
    """Wait until the server has written nothing for a while: background work is done."""
    end, last, since = time.monotonic() + longest_s, -1, time.monotonic()
    while time.monotonic() < end:
        now = server.io()["write_bytes"]
        if now != last:
            last, since = now, time.monotonic()
        elif time.monotonic() - since >= quiet_s:
            return True
        time.sleep(0.1)
    return False
