"""What the machine may do to a server with Esker: no file handles left, little memory, a second server, files cut short or
missing. What a disk may do: disk_faults_test.py.

Each must be a clear error that names the thing; the server stays up unless it cannot start at all, nothing is overwritten, and
after the cause is gone everything acknowledged is there.

    /usr/bin/pytest-3 tests/server/faults_test.py -k 'start or runs or handles or many or service or memory'     chosen cases
"""
import hashlib
import os
import resource
import shutil
import socket
import tempfile
import threading
import time

import pytest

import crash
from cases import check
from eskerlib import server
from eskerlib.client import SqlError

MIB = 1 << 20
DISK_FULL = 1021
CLEAR = (DISK_FULL, 1030, 1041, 1105, 1180, 1296, 188, 28)  # errors that say what is wrong


@pytest.fixture
def s(request, servers):
    """A server of the case's own."""
    settings = dict(server.small_settings(), esker_wal_segment_size=4 * MIB, esker_memory_limit=64 * MIB)
    return servers("faults-" + request.node.name.removeprefix("test_"), settings)


def error_of(c, sql):
    """The error's number and words; (0, '') if there was none."""
    try:
        c.query(sql)
        return 0, ""
    except SqlError as e:
        return e.errno, e.text


def files(folder):
    """Names and contents' sums of a folder's files, to see that nothing was overwritten."""
    sums = {}
    for path, _, names in os.walk(folder):
        for name in names:
            if name != "LOCK":
                with open(os.path.join(path, name), "rb") as f:
                    sums[os.path.join(path, name)] = hashlib.md5(f.read()).hexdigest()
    return sums


def refuses(s, words, what):
    """The server starts, but without Esker, and its log says why; no file of Esker's has changed."""
    folder = os.path.join(s.data, "#esker")
    before, start = files(folder), os.path.getsize(s.log)
    s.start()
    log = s.log_tail(start, 200)
    c = s.connect()
    engine = c.one("SELECT support FROM information_schema.engines WHERE engine='ESKER'")
    errno, text = error_of(c, "SELECT COUNT(*) FROM test.t")
    c.close()
    s.stop()
    said = [line for line in log.splitlines() if "Esker" in line and "ERROR" in line]
    check(engine is None and errno != 0, f"{what}: Esker does not start, its tables are errors ({errno} {text})")
    check(any(all(w in line for w in words) for line in said), f"{what}: the error log names {words}: {said[:2]}")
    check(files(folder) == before, f"{what}: nothing was overwritten")


def test_start(s, servers):
    """Files cut short or of a newer format; two servers on one folder."""
    s.create(fresh=True)
    s.start()
    c = s.connect()
    c.query("CREATE DATABASE test")
    c.query("USE test")
    c.query("CREATE TABLE test.t (a INT, b VARCHAR(100)) ENGINE=Esker")
    c.query("CREATE TABLE test.i (a INT) ENGINE=InnoDB")
    c.query("INSERT INTO test.t SELECT seq,MD5(seq) FROM seq_1_to_100000")
    c.close()
    other = servers("faults-second", dict(s.settings, esker_data_dir=os.path.join(s.data, "#esker")))
    other.create(fresh=True)
    other.start()
    o = other.connect()
    check(o.one("SELECT support FROM information_schema.engines WHERE engine='ESKER'") is None, "a second server on the folder runs without Esker")
    o.close()
    tail = other.log_tail(0, 200)
    check("in use" in tail or "lock" in tail.lower(), "its log says that the folder is in use: " + str([l for l in tail.splitlines() if "Esker" in l][:2]))
    other.stop()
    c = s.connect()
    check(c.one("SELECT COUNT(*) FROM test.t") == "100000", "the first server goes on")
    c.close()
    s.stop()
    folder = os.path.join(s.data, "#esker")
    manifest = os.path.join(folder, "MANIFEST")
    whole = open(manifest, "rb").read()
    damages = [("a truncated manifest", whole[:48]), ("an empty manifest", b""), ("a manifest with a flipped bit", whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])]
    for what, content in damages:
        with open(manifest, "wb") as f:
            f.write(content)
        refuses(s, ["MANIFEST"], what)
    os.rename(manifest, manifest + ".away")
    refuses(s, ["MANIFEST"], "a missing manifest beside runs and log")
    os.rename(manifest + ".away", manifest)
    with open(manifest, "wb") as f:
        f.write(whole)
    s.start()
    c = s.connect()
    check(c.one("SELECT COUNT(*) FROM test.t") == "100000", "with the right manifest everything is there")
    c.close()
    s.stop()
    start = os.path.getsize(s.log)
    bad = server.Server(s.name, dict(s.settings, esker_flush_log_at_trx_commit="often"))
    try:
        bad.start()
    except RuntimeError:
        pass
    check("esker" in bad.log_tail(start).lower() and "often" in bad.log_tail(start), "a wrong option value is named in the log")
    bad.stop()


def fill(c, table, rows=9000):
    """Rows enough for a run of their own; the file it lies in."""
    folder = os.path.join(c.one("SELECT @@datadir"), c.one("SELECT @@esker_data_dir"), "runs")
    before = set(os.listdir(folder))
    c.query(f"INSERT INTO {table} SELECT seq+(SELECT COALESCE(MAX(a),0) FROM {table}),MD5(seq) FROM seq_1_to_{rows}")
    fresh = sorted(name for name in set(os.listdir(folder)) - before if name.endswith(".run"))
    return os.path.join(folder, fresh[-1]) if fresh else None


def sound(c, table, rows, last=None):
    """None if the table holds that many rows, up to this one; its error, or what it holds instead."""
    try:
        got = c.row(f"SELECT COUNT(*) n,COUNT(DISTINCT a) d,MAX(a) m,SUM(LENGTH(b)=32) l FROM {table}")
    except SqlError as e:
        return e
    return None if got == dict(dict.fromkeys("ndl", str(rows)), m=str(last or rows)) else got


def others_merge(c, when):
    """A table that is hurt ends nobody's merging: the other one gets new layers until some were merged."""
    merges, end = crash.status(c)["merges"], time.monotonic() + 120
    while crash.status(c)["merges"] < merges + 3 and time.monotonic() < end:
        c.query("UPDATE b SET b=MD5(b)")
        time.sleep(0.05)
    check(crash.status(c)["merges"] >= merges + 3, f"{when}: the other table is merged: {crash.status(c)['merges'] - merges} merges")
    check(sound(c, "b", 27000) is None, f"{when}: the other table is whole after merges")


def test_runs(s):
    """A run cut short, one that is gone: an error for those rows, and for nobody else."""
    s.settings = crash.settings(False, None)
    s.create(fresh=True)
    s.start()
    c = s.connect()
    c.query("CREATE DATABASE test")
    c.query("USE test")
    for table in ("a", "b"):
        c.query(f"CREATE TABLE {table} (a INT, b CHAR(32)) ENGINE=Esker CHARSET=latin1")
    runs = [fill(c, "a") for _ in range(3)]
    for _ in range(3):
        fill(c, "b")
    check(None not in runs and len(set(runs)) == 3, "three loads are three runs")
    c.close()
    s.stop()
    cut, gone = runs[1], runs[2]
    whole = open(cut, "rb").read()
    with open(cut, "r+b") as f:
        f.truncate(len(whole) // 2)
    os.rename(gone, gone + ".away")
    for life in ("after a start", "after kill -9 and a start"):
        start = os.path.getsize(s.log)
        s.start()
        c = s.connect("test")
        found = sound(c, "a", 27000)
        check(isinstance(found, SqlError) and found.errno in CLEAR, f"{life}: a run cut short and one missing: an error of their table: {str(found)[:200]}")
        try:
            first = [int(r[0]) for r in c.query("SELECT a FROM a LIMIT 1000").rows]
        except SqlError as e:
            first = str(e)
        check(first == list(range(1, 1001)), f"{life}: the table's other rows are read ({str(first)[:80]})")
        check(sound(c, "b", 27000) is None, f"{life}: the other table is whole")
        others_merge(c, life)
        log = s.log_tail(start, 100000)
        for path in (cut, gone):
            lines = [line for line in log.splitlines() if os.path.basename(path) in line]
            check(0 < len(lines) <= 30, f"{life}: the error log names {os.path.basename(path)}, and not again and again: {len(lines)} lines")
        c.close()
        s.kill()
    with open(cut, "wb") as f:
        f.write(whole)
    os.rename(gone + ".away", gone)
    s.start()
    c = s.connect("test")
    check(sound(c, "a", 27000) is None, f"with the files back every row is there ({sound(c, 'a', 27000)})")
    c.close()
    s.stop()
    s.start()
    c = s.connect("test")
    c.query("CHECK TABLE a QUICK")  # reads the ends of the files: an opening reads nothing of them
    with open(cut, "r+b") as f:  # under the running server, which has looked at the file's ends only
        f.truncate(len(whole) // 2)
    deleted = c.query("DELETE FROM a LIMIT 12000").affected  # rows before the cut: a merge of the hurt run is due
    check(deleted == 12000, f"cut in the middle of life: {deleted} rows before the cut are deleted")
    found = sound(c, "a", 15000, 27000)
    check(isinstance(found, SqlError) and found.errno in CLEAR, f"cut in the middle of life: an error of their table: {str(found)[:200]}")
    others_merge(c, "cut in the middle of life")
    with open(cut, "wb") as f:
        f.write(whole)
    c.close()
    s.kill()
    s.start()
    c = s.connect("test")
    check(sound(c, "a", 15000, 27000) is None, f"with the file back every row is there ({sound(c, 'a', 15000, 27000)})")
    c.close()
    s.stop()


def make_many(s, tables, rows):
    """That many tables with a run each; a connection."""
    s.settings = dict(crash.settings(False, None), max_connections=10, table_open_cache=10, table_definition_cache=400)
    s.create(fresh=True)
    s.start()
    c = s.connect()
    c.query("CREATE DATABASE test")
    c.query("USE test")
    for n in range(tables):
        c.query(f"CREATE TABLE t{n} (a INT, b CHAR(32)) ENGINE=Esker CHARSET=latin1")
        fill(c, f"t{n}", rows)
    return c


def trouble(c, tables, rows):
    """Of many tables: those that are neither whole nor a clear error; those that are an error."""
    found = {n: sound(c, f"t{n}", rows) for n in range(tables)}
    wrong = {n: str(f) for n, f in found.items() if f is not None and not (isinstance(f, SqlError) and f.errno in CLEAR)}
    return wrong, {n: str(f) for n, f in found.items() if f is not None and n not in wrong}


def handles(s):
    """Those in use, and the most there may be."""
    return len(os.listdir(f"/proc/{s.pid()}/fd")), resource.prlimit(s.pid(), resource.RLIMIT_NOFILE)[0]


def limit_handles(s, count):
    resource.prlimit(s.pid(), resource.RLIMIT_NOFILE, (count, resource.prlimit(s.pid(), resource.RLIMIT_NOFILE)[1]))


def test_handles(s):
    """No handle is left, for files of the log, for runs, for folders; then there are some again."""
    tables, rows, written, refused, words = 10, 9000, 1, 0, set()
    c = make_many(s, tables, rows)
    c.query("CREATE TABLE small (a INT, b CHAR(32)) ENGINE=Esker CHARSET=latin1")
    c.query("INSERT INTO small VALUES (1,MD5(1))")  # the server's own files are open from now on
    usual = handles(s)[1]
    # Numbers that are free below others count, too.
    used = {int(n) for n in os.listdir(f"/proc/{s.pid()}/fd")}
    limit_handles(s, min(set(range(len(used) + 1)) - used))
    start = os.path.getsize(s.log)
    for n in range(400):  # enough for flushes, manifests and segments of the log
        values = ",".join(f"({written + i + 1},MD5({n}))" for i in range(200))
        errno, text = error_of(c, f"INSERT INTO small VALUES {values}")
        written, refused = written + (0 if errno else 200), refused + (errno != 0)
        words.add((errno, text[:120]) if errno else (0, ""))
    check(all(errno == 0 or errno in CLEAR for errno, _ in words), f"no handle left: {written} rows went in, {refused} statements met clear errors: {sorted(words)[:3]}")
    check("Too many open files" in s.log_tail(start, 100000), "no handle left: somebody wanted one, the error log says so")
    wrong, _ = trouble(c, tables, rows)
    check(not wrong, f"no handle left: reads are right, or errors: {list(wrong.items())[:3]}")
    limit_handles(s, usual)
    wrong, errors = trouble(c, tables, rows)
    check(not wrong and not errors, f"with handles again every table is read: {list(wrong.items())[:3]} {list(errors.items())[:3]}")
    errno, text = error_of(c, f"INSERT INTO small VALUES ({written + 1},MD5(1))")
    written += errno == 0
    check(errno == 0, f"and rows go in: {errno} {text[:200]}")
    c.close()
    s.kill()
    s.start()
    c = s.connect("test")
    check(sound(c, "small", written) is None, f"after kill -9 every acknowledged row is there ({sound(c, 'small', written)})")
    c.close()
    s.stop()


def test_many(s):
    """More runs than file handles: the server starts, and every table is read."""
    tables, rows = 120, 9000
    make_many(s, tables, rows).close()
    s.kill()
    s.start(wrapper=("sh", "-c", 'ulimit -n 130; exec "$@"', "sh"))
    c = s.connect("test")
    used, most = handles(s)
    check(most == 130, f"{used} of {most} handles are in use after a start with {tables} runs")
    wrong, errors = trouble(c, tables, rows)
    check(not wrong and not errors, f"more runs than handles: every table is read: {list(wrong.items())[:3]} {list(errors.items())[:3]}")
    c.close()
    s.stop()


def test_service(s):
    """Whoever has started the server, and ends what takes too long, is told that recovery goes on."""
    s.create(fresh=True)
    s.start()
    c = s.connect()
    c.query("CREATE DATABASE test")
    c.query("CREATE TABLE test.t (a INT PRIMARY KEY, b CHAR(100)) ENGINE=Esker")
    c.query("INSERT INTO test.t SELECT seq,seq FROM test.seq_1_to_1000")
    s.kill()
    c.close()
    heard, folder = [], tempfile.mkdtemp(prefix="esker-")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        path = os.path.join(folder, "notify")
        manager.bind(path)
        manager.settimeout(300)

        def listen():
            while "READY=1" not in heard:
                heard.extend(manager.recv(4096).decode().splitlines())
        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        s.start(wrapper=("env", f"NOTIFY_SOCKET={path}"))
        listener.join(60)
    shutil.rmtree(folder)
    for said in ("EXTEND_TIMEOUT_USEC=30000000", "STATUS=Esker: recovery, 0%"):
        check(said in heard, f"the service manager hears {said}: {heard}")
    c = s.connect()
    check(c.one("SELECT COUNT(*) FROM test.t") == "1000", "the rows are there")
    c.close()


def limit_memory(s, more):
    """What the server may have of address space beyond what it has; None: as much as it likes."""
    with open(f"/proc/{s.pid()}/status") as f:
        has = next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmSize"))
    resource.prlimit(s.pid(), resource.RLIMIT_AS, (resource.RLIM_INFINITY if more is None else has + more, resource.RLIM_INFINITY))


def test_memory(s):
    """No memory is left for long rows, wherever they are written, read or copied; then there is some again."""
    s.settings = dict(s.settings, max_allowed_packet=256 * MIB)
    s.create(fresh=True)
    s.start()
    c, server_id = s.connect(), s.pid()
    c.query("CREATE DATABASE test")
    c.query("USE test")
    c.query("CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT, n INT, KEY (v(40)), KEY (n)) ENGINE=Esker CHARSET=latin1")
    value, rows, told, wrong = {n: f"REPEAT(RANDOM_BYTES(512),{n * 2048})" for n in (8, 20, 40)}, {}, {}, []
    limits = [2, 5, 10, 24, 45, 70, 100, 140, 190, 250] * 2

    def of_engine():
        return sum(len(sqls) for (errno, _), sqls in told.items() if errno == 1296)

    for turn, more in enumerate(limits * 4):
        if turn >= len(limits) and of_engine() > 2:  # who is refused, the server or Esker, hangs on what the allocator has left over
            break
        size, key = (8, 20, 40)[turn % 3], turn // 2
        statements = [
            (f"REPLACE INTO t VALUES ({key},{value[size]},{size})", {key: size}),
            (f"UPDATE t SET v={value[8]},n=8 WHERE id={key}", {key: 8}),
            ("SELECT SUM(CRC32(v)) FROM t", {}),
            ("SELECT id FROM t ORDER BY v LIMIT 2", {}),
            ("ALTER TABLE t FORCE, ALGORITHM=COPY" if turn % 2 else "ALTER TABLE t DROP KEY v, ADD KEY v (v(50))", {}),
            (f"DELETE FROM t WHERE id<{key - 2}", {}),
        ]
        for sql, becomes in statements:
            limit_memory(s, more * MIB)
            errno, text = error_of(c, sql)
            limit_memory(s, None)
            told.setdefault((errno, text[:60] if errno == 1296 else ""), []).append(sql[:20])
            if errno == 0:
                rows.update(becomes if sql.startswith("REPLACE") or key in rows else {})
                rows = {id: size for id, size in rows.items() if not sql.startswith("DELETE") or id >= key - 2}
            found = {int(id): int(size) for id, size in c.query("SELECT id,LENGTH(v) DIV 1048576 FROM t").rows}
            if found != rows:
                wrong.append(f"{sql[:40]} with {more} MiB: {found}, not {rows}")
                rows = found
    check(not wrong, f"no memory left: rows are as they were, or as they are to be: {wrong[:3]}")
    check(s.pid() == server_id, "no memory left: the server goes on")
    check(of_engine() > 2 and len(told[0, ""]) > 20, f"no memory left: Esker refused {of_engine()} statements, {len(told[0, ''])} were carried out")
    check(all(errno in (0, 5, 1037, 1038, 1041, 1296) for errno, _ in told), f"no memory left: clear errors: {sorted(told)}")
    check([row[3] for row in c.query("CHECK TABLE t EXTENDED").rows] == ["OK"], "no memory left: the table is sound")
    c.close()
    s.stop()
