#!/usr/bin/python3
"""keys.py = 'make bench-keys': tables with keys, Esker beside MyISAM, Aria, InnoDB and MyRocks.

One private server, everything interleaved, medians over rounds; only ratios taken in one run count. Writes
bench/results/NAME.json and NAME.md.

    ROWS=10000000  ROUNDS=3       of the loads: a primary key and three secondary keys, unsorted input
    TABLES=8 SIZE=250000          sysbench's tables and their rows
    THREADS=1,8,64 SECONDS=20     sysbench's clients, and how long each cell runs in each round
    TESTS=...                     some of sysbench's oltp_*
    ENGINES=...                   some of: Esker, MyISAM, Aria, InnoDB, RocksDB
    ONLY=...                      some of: load, change, sysbench (change: UPDATE and DELETE of a tenth of the rows)
    NAME=                         of the result files (default: 'keys' for a whole run, 'partial-keys' otherwise)
"""
import datetime
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
sys.path.insert(0, os.path.join(ROOT, "bench"))
from eskerlib import env, server, show, workload  # noqa: E402
from eskerlib.client import Lost, SqlError  # noqa: E402
from run import machine  # noqa: E402

KNOWN = ["Esker", "MyISAM", "Aria", "InnoDB", "RocksDB"]
PARTS = ["load", "change", "sysbench"]
TESTS = ["oltp_point_select", "oltp_read_only", "oltp_read_write", "oltp_update_index", "oltp_update_non_index", "oltp_insert", "oltp_delete"]
# Of them, those that only read.
READING = TESTS[:2]
KEYED = "id BIGINT NOT NULL, a INT, b BIGINT, c VARCHAR(20), pad VARCHAR(60), PRIMARY KEY(id), KEY(a), KEY(b), KEY(c)"
MIB = 1 << 20


# -- loads ----------------------------------------------------------------------------------------------------------------
def fill_sources(c, rows):
    """Two tables with different keys in no order: the second goes into a table that has the first."""
    for part in (0, 1):
        table = f"src_keyed_{part}"
        if c.one(f"SELECT COUNT(*) FROM information_schema.tables WHERE table_schema='bench' AND table_name='{table}'") != "0":
            if int(c.one(f"SELECT COUNT(*) FROM {table}")) == rows:
                continue
        c.query(f"DROP TABLE IF EXISTS {table}")
        c.query(f"CREATE TABLE {table} (id BIGINT, a INT, b BIGINT, c VARCHAR(20), pad VARCHAR(60)) ENGINE=MyISAM CHARSET=latin1")
        step = max(rows // 10, 1)
        for start in range(1, rows + 1, step):
            end = min(start + step - 1, rows)
            # Multiplied by an odd number modulo 2^32: each value once, in no order.
            c.query(f"INSERT INTO {table} SELECT ((2*seq+{part}) * 2654435761) & 4294967295, (seq * 40503) % 1000003, (seq * 2246822519) & 4294967295,"
                    f" LPAD(CONV((seq * 3559788179) & 4294967295, 10, 36), 10, 'x'), CONCAT('row ', seq, REPEAT('.', seq % 40)) FROM seq_{start}_to_{end}")
            show.progress(f"making the source: {part * rows + end:,} of {2 * rows:,} rows")
    show.end_progress()


def one_load(s, name, rows):
    """Both loads of one engine; the table is dropped again."""
    c = s.connect("bench")
    workload.prepare_session(c, name)
    table = f"k_{name.lower()}"
    c.query(f"DROP TABLE IF EXISTS {table}")
    c.query(f"CREATE TABLE {table} ({KEYED}) ENGINE={name} CHARSET=latin1")
    before = workload.settled_bytes(c, s, name, "bench", table) if name == "Esker" else 0
    result = {}
    os.sync()
    workload.wait_idle(s, quiet_s=0.5)
    written, anon = s.written_bytes(), s.status_kb("RssAnon")
    s.reset_peak()
    for part, what in ((0, "empty_s"), (1, "full_s")):
        begin = time.monotonic()
        c.query(f"INSERT INTO {table} SELECT * FROM src_keyed_{part}")
        result[what] = time.monotonic() - begin
        result[f"growth_{what[:-2]}_bytes"] = s.status_kb("RssAnon") - anon
    workload.wait_idle(s)
    result["written_bytes"] = s.written_bytes() - written
    if int(c.one(f"SELECT COUNT(*) FROM {table} IGNORE INDEX (PRIMARY, a, b, c)")) != 2 * rows:
        raise RuntimeError(f"{table} has not {2 * rows:,} rows")
    result["size_bytes"] = workload.settled_bytes(c, s, name, "bench", table) - before
    for what, sql in (("scan_up_s", f"SELECT SUM(b) FROM (SELECT b FROM {table} FORCE INDEX (PRIMARY) ORDER BY id LIMIT {rows // 5}) x"),
                      ("scan_down_s", f"SELECT SUM(b) FROM (SELECT b FROM {table} FORCE INDEX (PRIMARY) ORDER BY id DESC LIMIT {rows // 5}) x"),
                      ("covering_s", f"SELECT COUNT(DISTINCT a) FROM {table} FORCE INDEX (a)")):
        took = []
        for _ in range(3):
            begin = time.monotonic()
            c.query(sql)
            took.append(time.monotonic() - begin)
        result[what] = min(took)
    c.query(f"DROP TABLE {table}")
    c.close()
    show.say(f"  {name:8} empty {result['empty_s']:7.2f} s, full {result['full_s']:7.2f} s, {result['size_bytes'] / 1e6:,.0f} MB, by key up {result['scan_up_s']:.2f} s, down {result['scan_down_s']:.2f} s")
    return result


def part_load(s, names, rows, rounds, keep):
    """Rounds of loads, the order turned by one each round."""
    samples = {}
    for number in range(rounds):
        show.say(f"round {number + 1} of {rounds}")
        for name in names[number % len(names):] + names[:number % len(names)]:
            for what, value in one_load(s, name, rows).items():
                samples.setdefault(name, {}).setdefault(what, []).append(value)
        keep({n: {w: {"median": statistics.median(v), "samples": v} for w, v in by.items()} for n, by in samples.items()})


# -- changes --------------------------------------------------------------------------------------------------------------
TENTH = (1 << 32) // 10
# Ids are spread evenly over 32 bits: each range is another tenth of them. `picks` has a tenth in no order.
CHANGES = [
    ("update_range_s", "UPDATE, a range, no key", f"UPDATE {{table}} SET pad=REVERSE(pad) WHERE id BETWEEN 0 AND {TENTH}"),
    ("update_key_range_s", "UPDATE, a range, of a key", f"UPDATE {{table}} SET b=b+1 WHERE id BETWEEN {TENTH + 1} AND {2 * TENTH}"),
    ("update_s", "UPDATE, one by one, no key", "UPDATE {table} JOIN picks USING (id) SET pad=REVERSE(pad)"),
    ("update_key_s", "UPDATE, one by one, of a key", "UPDATE {table} JOIN picks USING (id) SET b=b+1"),
    ("delete_s", "DELETE, one by one", "DELETE {table} FROM {table} JOIN picks USING (id)"),
    ("delete_range_s", "DELETE, a range", f"DELETE FROM {{table}} WHERE id BETWEEN {2 * TENTH + 1} AND {3 * TENTH}"),
]


# In which order the rows of the table came: an engine whose table lies by its primary key, as InnoDB's, has them together either way.
ORDERS = [("", "in no order", ""), ("sorted_", "in the order of the primary key", " ORDER BY id")]


def one_change(s, name, rows, order):
    """All changes of one engine, each a durable statement; the number of rows that each changed too."""
    c = s.connect("bench")
    workload.prepare_session(c, name)
    table = f"k_{name.lower()}"
    c.query(f"DROP TABLE IF EXISTS {table}")
    c.query(f"CREATE TABLE {table} ({KEYED}) ENGINE={name} CHARSET=latin1")
    prefix, came, by = order
    c.query(f"INSERT INTO {table} SELECT * FROM src_keyed_0{by}")
    c.query(f"ANALYZE TABLE {table}")
    result, changed = {}, []
    for what, _, sql in CHANGES:
        workload.wait_idle(s)
        begin = time.monotonic()
        changed.append(c.query(sql.format(table=table)).affected)
        result[prefix + what] = time.monotonic() - begin
        if not 0.05 * rows < changed[-1] < 0.15 * rows:
            raise RuntimeError(f"{what[:-2]} changed {changed[-1]:,} of {rows:,} rows, not a tenth")
    if int(c.one(f"SELECT COUNT(*) FROM {table} IGNORE INDEX (PRIMARY, a, b, c)")) != rows - changed[-1] - changed[-2]:
        raise RuntimeError(f"{table} has not {rows - changed[-1] - changed[-2]:,} rows after DELETE")
    c.query(f"DROP TABLE {table}")
    c.close()
    show.say(f"  {name:8} rows {came}: " + ", ".join(f"{what[len(prefix):-2]} {took:.2f} s" for what, took in result.items()))
    return result, changed


def part_change(s, names, rows, rounds, keep):
    """Rounds of changes, the order turned by one each round."""
    c = s.connect("bench")
    c.query("DROP TABLE IF EXISTS picks")
    c.query("CREATE TABLE picks (id BIGINT NOT NULL) ENGINE=MyISAM SELECT id FROM src_keyed_0 WHERE id % 20 = 4")
    c.close()
    samples, changes = {}, {}
    for number in range(rounds):
        show.say(f"round {number + 1} of {rounds}")
        for name in names[number % len(names):] + names[:number % len(names)]:
            changes[name] = []
            for order in ORDERS:
                result, changed = one_change(s, name, rows, order)
                changes[name] += changed
                for what, value in result.items():
                    samples.setdefault(name, {}).setdefault(what, []).append(value)
        if any(n != changes[names[0]] for n in changes.values()):
            raise RuntimeError(f"the engines changed different numbers of rows: {changes}")
        keep({n: {w: {"median": statistics.median(v), "samples": v} for w, v in by.items()} for n, by in samples.items()})


# -- sysbench -------------------------------------------------------------------------------------------------------------
def sysbench(s, name, test, threads, seconds, what, tables, size, more=()):
    """One call of sysbench; for 'run' its transactions, how many a second, and the 95th percentile in milliseconds."""
    line = ["sysbench", test, f"--mysql-socket={s.socket}", "--mysql-user=root", f"--mysql-db=sb_{name.lower()}", f"--mysql_storage_engine={name}",
            f"--tables={tables}", f"--table-size={size}", f"--threads={threads}", f"--time={seconds}", "--report-interval=0",
            "--mysql-ignore-errors=1213,1020,1205,1180", *more, what]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(line)}:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    if what != "run":
        return {}
    rate = re.search(r"transactions:\s+(\d+)\s+\(([\d.]+) per sec", done.stdout)
    p95 = re.search(r"95th percentile:\s+([\d.]+)", done.stdout)
    return {"done": int(rate.group(1)), "rate": float(rate.group(2)), "p95_ms": float(p95.group(1))}


def part_sysbench(s, names, rounds, keep):
    """Each test at each number of threads, the engines one after the other in every round."""
    tables, size, seconds = env.number("TABLES", 8), env.number("SIZE", 250_000), env.number("SECONDS", 20)
    threads = [int(t) for t in os.environ.get("THREADS", "1,8,64").split(",")]
    tests = env.names("TESTS", TESTS, TESTS)
    c = s.connect()
    for name in names:
        c.query(f"DROP DATABASE IF EXISTS sb_{name.lower()}")
        c.query(f"CREATE DATABASE sb_{name.lower()}")
        begin = time.monotonic()
        sysbench(s, name, TESTS[0], 1, 0, "prepare", tables, size)
        show.say(f"  {name:8} prepared {tables} tables of {size:,} rows in {time.monotonic() - begin:.1f} s")
    workload.wait_idle(s)
    samples = {}
    for number in range(rounds):
        for test in tests:
            for n in threads:
                for name in names[number % len(names):] + names[:number % len(names)]:
                    figures = sysbench(s, name, test, n, seconds, "run", tables, size)
                    for what, value in figures.items():
                        samples.setdefault(test, {}).setdefault(str(n), {}).setdefault(name, {}).setdefault(what, []).append(value)
                    show.say(f"  round {number + 1}, {test:22} {n:3} threads {name:8} {figures['rate']:10.0f} a second, p95 {figures['p95_ms']:.2f} ms")
        keep({t: {n: {e: {w: {"median": statistics.median(v), "samples": v} for w, v in by.items()} for e, by in engines.items()} for n, engines in cells.items()} for t, cells in samples.items()})
    for name in names:
        c.query(f"DROP DATABASE sb_{name.lower()}")
    c.close()


# -- report ---------------------------------------------------------------------------------------------------------------
def ratio(a, b):
    return f"{a / b:.2f}" if a is not None and b else "-"


def markdown(results):
    """The whole report."""
    m = results["machine"]
    lines = ["# Tables with keys: Esker beside the others", "",
             f"MariaDB {results['mariadb']}, {m['cores']} cores ({m['cpu']}), {m['memory_gib']} GiB, Linux {m['kernel']}; {results['rounds']} interleaved rounds, medians; {results['date']}.", ""]
    loads = results.get("load", {})
    if loads:
        shown = [("empty_s", "load into an empty table, s"), ("full_s", "as many more, s"), ("scan_up_s", "a tenth by primary key, rising, s"), ("scan_down_s", "falling, s"),
                 ("covering_s", "covering, s"), ("size_bytes", "size, MB"), ("written_bytes", "written, MB"), ("growth_empty_bytes", "memory grew by, MiB")]
        lines += [f"## Loads: {results['rows']:,} rows, primary key and three keys, unsorted", "", "| | " + " | ".join(loads) + " |", "|---|" + "--:|" * len(loads)]
        for what, words in shown:
            scale = 1 if what.endswith("_s") else MIB if what.startswith("growth") else 1e6
            lines.append(f"| {words} | " + " | ".join(f"{by[what]['median'] / scale:,.2f}" if scale == 1 else f"{by[what]['median'] / scale:,.0f}" for by in loads.values()) + " |")
        lines.append("")
        esker = loads.get("Esker")
        if esker:
            lines += ["| Esker's time of | " + " | ".join(n for n in loads if n != "Esker") + " |", "|---|" + "--:|" * (len(loads) - 1)]
            for what in ("empty_s", "full_s", "scan_up_s", "scan_down_s", "covering_s"):
                lines.append(f"| {dict(shown)[what]} | " + " | ".join(ratio(esker[what]["median"], by[what]["median"]) for n, by in loads.items() if n != "Esker") + " |")
            lines.append("")
    changes = results.get("change", {})
    if changes:
        lines += [f"## Changes: a tenth of {results['rows']:,} rows by primary key, three keys besides", "",
                  "A range, and one by one by a join with a table of ids in no order; a statement each, durable. Target: at most InnoDB's time."]
        for prefix, came, _ in ORDERS:
            lines += ["", f"Rows that came {came}:", "",
                      "| s | " + " | ".join(changes) + " | of InnoDB's | met |", "|---|" + "--:|" * (len(changes) + 1) + "---|"]
            for what, words, _ in CHANGES:
                took = {n: by[prefix + what]["median"] for n, by in changes.items()}
                own, peer = took.get("Esker"), took.get("InnoDB")
                lines.append(f"| {words} | " + " | ".join(f"{t:.2f}" for t in took.values()) + f" | {ratio(own, peer)} | {'-' if not own or not peer else 'yes' if own <= peer else '**no**'} |")
        lines.append("")
    cells = results.get("sysbench", {})
    if cells:
        lines += ["## sysbench: transactions a second", "", "| test | threads | " + " | ".join(results["engines"]["sysbench"]) + " | Esker to InnoDB | Esker to the better | spread of Esker's |", "|---|--:|" + "--:|" * (len(results["engines"]["sysbench"]) + 3)]
        product = []
        for test, by_threads in cells.items():
            for n, engines in by_threads.items():
                rates = {e: by["rate"]["median"] for e, by in engines.items()}
                own, peers = rates.get("Esker"), [r for e, r in rates.items() if e != "Esker"]
                if own and rates.get("InnoDB"):
                    product.append(own / rates["InnoDB"])
                spread = engines.get("Esker", {}).get("rate", {}).get("samples", [0])
                lines.append(f"| {test} | {n} | " + " | ".join(f"{rates.get(e, 0):,.0f}" for e in results["engines"]["sysbench"]) +
                             f" | {ratio(own, rates.get('InnoDB'))} | {ratio(own, max(peers) if peers else None)} | {min(spread):,.0f} to {max(spread):,.0f} |")
        if product:
            lines += ["", f"Geometric mean of Esker to InnoDB: {statistics.geometric_mean(product):.2f}."]
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) > 1:
        print(__doc__.strip())
        sys.exit(0 if sys.argv[1] in ("-h", "--help") else 2)
    rows, rounds = env.number("ROWS", 10_000_000, least=1000), env.number("ROUNDS", 3)
    names, parts = env.names("ENGINES", KNOWN, KNOWN), env.names("ONLY", PARTS, PARTS)
    if "sysbench" in parts and not shutil.which("sysbench"):
        env.fail("sysbench is not installed: 'apt-get install sysbench', or ONLY=load,change")
    whole = names == KNOWN and parts == PARTS and rows == 10_000_000
    path = os.path.join(ROOT, "bench", "results", os.environ.get("NAME") or ("keys" if whole else "partial-keys"))
    settings = {**server.measured_settings(), "max_connections": 300, "innodb_flush_log_at_trx_commit": 1}
    s = server.Server("bench", settings, set(names) | {"RocksDB"})
    transactional = [n for n in names if n in ("Esker", "InnoDB", "RocksDB")]
    results = {"rows": rows, "rounds": rounds, "date": datetime.date.today().isoformat(), "machine": machine(), "mariadb": s.env["ESKER_MARIADB_VERSION"],
               "settings": settings, "engines": {"load": names, "change": names, "sysbench": transactional}}

    def keep(key, value):
        results[key] = value
        with open(path + ".json", "w") as f:
            json.dump(results, f, indent=1)
            f.write("\n")
        with open(path + ".md", "w") as f:
            f.write(markdown(results))
    try:
        s.stop()
        s.start()
        c = s.connect()
        c.query("CREATE DATABASE IF NOT EXISTS bench")
        c.query("USE bench")
        if "load" in parts or "change" in parts:
            fill_sources(c, rows)
        if "load" in parts:
            part_load(s, names, rows, rounds, lambda v: keep("load", v))
        if "change" in parts:
            part_change(s, names, rows, rounds, lambda v: keep("change", v))
        if "sysbench" in parts:
            part_sysbench(s, transactional, rounds, lambda v: keep("sysbench", v))
        c.close()
    except (RuntimeError, SqlError, Lost) as e:
        env.fail(f"{e}\n{s.log_tail()}")
    finally:
        s.stop()
    print()
    print(open(path + ".md").read())
    print(f"written: {os.path.relpath(path, ROOT)}.json, .md")


if __name__ == "__main__":
    main()
