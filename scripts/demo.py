#!/usr/bin/python3
"""demo.py = 'make run': Esker's main job on real input.

Loads a table of 103-byte records into Esker, MyISAM, Aria, InnoDB and MyRocks, scans it, prints seconds, ratios to
MyISAM and sizes; then several clients write, the server is killed with SIGKILL, starts again, and every acknowledged
row must be there and no half statement. The server keeps running afterwards.

    ROWS=2000000     rows of the table
    ENGINES=...      some of Esker, MyISAM, Aria, InnoDB, RocksDB (= MyRocks)
    CRASH_ENGINE=    engine of the second part (default: Esker if it is among ENGINES)
    KEEP=0           in a server of its own (var/demo-test/), which is removed at the end; for 'make test'
"""
import os
import random
import statistics
import sys
import threading
import time

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [SCRIPTS, os.path.join(SCRIPTS, "..", "tests", "server")]
import crash  # noqa: E402
import load  # noqa: E402
from eskerlib import env, server, show, workload  # noqa: E402
from eskerlib.client import SqlError  # noqa: E402

DEFAULT = ["Esker", "MyISAM", "Aria", "InnoDB", "RocksDB"]


def measure(s, c, engine, kind, rows):
    """Seconds to load and to scan, and bytes."""
    table = f"t_{engine.lower()}_{kind}"
    shown = workload.SHOWN.get(engine, engine)
    workload.create(c, table, kind, engine)
    workload.prepare_session(c, engine)
    before = workload.settled_bytes(c, s, engine, "demo", table) if engine == "Esker" else 0
    os.sync()
    show.progress(f"{shown}, {kind.upper()} columns: loading {rows:,} rows")
    loaded = workload.load(c, table, kind)
    show.progress(f"{shown}, {kind.upper()} columns: loaded in {loaded:.2f} s, scanning")
    workload.scan(c, table)
    scanned = statistics.median(workload.scan(c, table) for _ in range(3))
    count = int(c.one(f"SELECT COUNT(*) FROM {table}"))
    if count != rows:
        raise RuntimeError(f"{table} has {count:,} rows after loading {rows:,}")
    size = workload.settled_bytes(c, s, engine, "demo", table) - before
    show.progress(f"{shown}, {kind.upper()} columns: load {loaded:.2f} s, scan {scanned:.3f} s, {size / 1e6:,.0f} MB")
    show.end_progress()
    return {"load": loaded, "scan": scanned, "size": size}


def race(s, engines, rows):
    """First part: the table of seconds."""
    c = s.connect()
    c.query("CREATE DATABASE IF NOT EXISTS demo")
    c.query("USE demo")
    for (old,) in c.query("SELECT table_name FROM information_schema.tables WHERE table_schema='demo' AND table_name LIKE 't\\_%'").rows:
        c.query(f"DROP TABLE demo.{old}")
    workload.fill_source(c, rows, show.progress)
    show.end_progress()
    for kind in workload.KINDS:
        workload.scan(c, f"src_{kind}")  # the source is warm for everyone
    results, lines = {}, []
    for engine in engines:
        for kind in workload.KINDS:
            results[engine, kind] = measure(s, c, engine, kind, rows)
    for engine in engines:
        line = [workload.SHOWN.get(engine, engine)]
        for kind in workload.KINDS:
            r, base = results[engine, kind], results.get(("MyISAM", kind))
            for what in ("load", "scan"):
                line += [f"{r[what]:.2f}" if what == "load" else f"{r[what]:.3f}", f"{r[what] / base[what]:.2f}x" if base else "-"]
            line.append(f"{r['size'] / 1e6:,.0f}")
        lines.append(line)
    c.close()
    head = ["engine", "CHAR: load s", "/MyISAM", "scan s", "/MyISAM", "MB", "VARCHAR: load s", "/MyISAM", "scan s", "/MyISAM", "MB"]
    print(f"\n{rows:,} rows of 103 bytes; load = INSERT ... SELECT from a MyISAM table, scan = COUNT(*) with a condition that no row meets\n")
    print(show.table(head, lines) + "\n", flush=True)


def survive(s, engine, seconds=4.0, clients=6):
    """Second part: SIGKILL while clients write."""
    c = s.connect()
    for xid in crash.listed(c):  # of a demonstration that was interrupted
        c.query(f"XA ROLLBACK '{xid}'")
    load.create(c, engine, clients)
    c.close()
    stop, seed = threading.Event(), int(time.time())
    writers = [load.Writer(n, s, stop, seed, 50000) for n in range(1, clients + 1)]
    show.say(f"{clients} clients write into {engine}: single rows, many rows, INSERT ... SELECT, UPDATE, DELETE, transactions")
    for w in writers:
        w.start()
    load.wait_seconds(writers, seconds)
    show.say(f"SIGKILL to the server (pid {s.pid()}) in the middle of it")
    s.kill()
    stop.set()
    for w in writers:
        w.join(130)
    begin = time.monotonic()
    s.start()
    show.say(f"restarted and answering after {time.monotonic() - begin:.2f} s")
    c = s.connect("crash")
    problems, looked = crash.check(c, writers, random.Random(seed))
    c.close()
    acknowledged = sum(w.acknowledged for w in writers)
    for p in problems[:20]:
        print(f"  PROBLEM: {p}")
    if problems:
        print(f"\n{len(problems)} problems after the kill (seed {seed})")
        return False
    show.say(f"{acknowledged:,} acknowledged statements and transactions: all there; {looked:,} rows looked at, each byte right, no half statement")
    return True


def main():
    if len(sys.argv) > 1:
        print(__doc__.strip())
        sys.exit(0 if sys.argv[1] in ("-h", "--help") else 2)
    rows = env.number("ROWS", 2_000_000, least=1000)
    engines = env.names("ENGINES", DEFAULT, DEFAULT)
    chosen = env.names("CRASH_ENGINE", ["Esker"] if "Esker" in engines else [e for e in engines if e == "InnoDB"], ["Esker", "InnoDB"])
    keep = env.number("KEEP", 1, least=0)
    s = server.Server("run" if keep else "demo-test", server.measured_settings(), engines + chosen + ["RocksDB"])
    show.say(f"starting a private MariaDB (unix socket only, data in {os.path.relpath(s.folder, env.ROOT)}/)")
    try:
        s.stop()
        if not keep:
            s.create(fresh=True)
        s.start()
        c = s.connect()
        present = {r[0].upper() for r in c.query("SHOW ENGINES").rows if r[1] in ("YES", "DEFAULT")}
        c.close()
        for engine in list(engines):
            if engine.upper() not in present:
                show.say(f"SKIPPED: this machine cannot run {workload.SHOWN.get(engine, engine)}: it is not in this server")
                engines.remove(engine)
                if engine == "Esker":
                    env.fail("the server did not load Esker:\n" + s.log_tail())
        race(s, engines, rows)
        good = True
        if chosen:
            good = survive(s, chosen[0])
        else:
            show.say("SKIPPED: the part with SIGKILL needs Esker or InnoDB among ENGINES")
    except (RuntimeError, SqlError) as e:
        if not keep:
            s.stop()
        env.fail(str(e))
    if not keep:
        good = s.stop() and good
        if good:
            s.remove()
        else:
            print(f"  files kept in {os.path.relpath(s.folder, env.ROOT)}/")
        sys.exit(0 if good else 1)
    print(f"\nThe server is running (pid {s.pid()}). Connect:  mariadb --no-defaults -u root -S {s.socket} demo")
    print("Stop it:  make stop")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
