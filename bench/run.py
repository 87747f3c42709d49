#!/usr/bin/python3
"""run.py = 'make bench': Esker beside MyISAM, Aria, InnoDB, MyRocks and BLACKHOLE (the SQL layer alone).

One private server, everything interleaved, medians over rounds; only ratios taken in one run count. Writes
bench/results/NAME.json, NAME.md and NAME.svg.

    ROWS=10000000  ROUNDS=5
    SLOW_ROUNDS=   rounds of all but Esker, MyISAM and BLACKHOLE (default: as ROUNDS); their ratios are far from any limit
    ENGINES=...    some of: Esker, "Esker-FIXED", "Esker-lz4", "Esker-zstd", "Esker-none", MyISAM, Aria, InnoDB, RocksDB, BLACKHOLE
    ONLY=...       some of: load (with scan and size), clients, memory, rollback, neighbours
    NAME=          of the result files (default: 'mariadb' for a whole run, 'partial' otherwise)
"""
import datetime
import json
import os
import platform
import statistics
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
sys.path.insert(0, os.path.join(ROOT, "bench"))
import report  # noqa: E402
from eskerlib import env, server, show, workload  # noqa: E402
from eskerlib.client import Lost, SqlError  # noqa: E402

VARIANTS = {"Esker-FIXED": "Esker FIXED", "Esker-lz4": "Esker lz4", "Esker-zstd": "Esker zstd", "Esker-none": "Esker none"}
KNOWN = ["Esker"] + list(VARIANTS) + ["MyISAM", "Aria", "InnoDB", "RocksDB", "BLACKHOLE"]
DEFAULT = [k for k in KNOWN if k != "Esker-lz4"]  # that is "Esker"
PARTS = ["load", "clients", "memory", "rollback", "neighbours"]
MIB = 1 << 20


def table_name(name, kind):
    """Of the table of an engine or variant."""
    return f"b_{name.lower().replace('-', '_')}_{kind}"


def fresh_table(c, name, kind):
    """An empty table; its name and engine."""
    engine, options = workload.options_of(VARIANTS.get(name, name))
    workload.create(c, table_name(name, kind), kind, engine, options)
    workload.prepare_session(c, engine)
    return table_name(name, kind), engine


def one_load(s, name, kind, rows):
    """Load, scan, size, bytes written; the table is dropped again."""
    c = s.connect("bench")
    table, engine = fresh_table(c, name, kind)
    before = workload.settled_bytes(c, s, engine, "bench", table) if engine == "Esker" else 0
    os.sync()
    workload.wait_idle(s, quiet_s=0.5)
    written = s.written_bytes()
    result = {"load_s": workload.load(c, table, kind)}
    if engine != "BLACKHOLE":
        if engine == "Esker":
            workload.wait_idle(s)
            result["written_bytes"] = s.written_bytes() - written
        workload.scan(c, table)
        result["scan_s"] = statistics.median(workload.scan(c, table) for _ in range(3))
        count = int(c.one(f"SELECT COUNT(*) FROM {table}"))
        if count != rows:
            raise RuntimeError(f"{table} has {count:,} rows after loading {rows:,}")
        result["size_bytes"] = workload.settled_bytes(c, s, engine, "bench", table) - before
    c.query(f"DROP TABLE {table}")
    c.close()
    show.say(f"  {name:12} {kind:8} load {result['load_s']:7.2f} s" + (f", scan {result['scan_s']:6.3f} s, {result['size_bytes'] / 1e6:8,.0f} MB" if "scan_s" in result else ""))
    return result


def part_load(s, names, rows, rounds, keep):
    """Rounds of loads and scans, the order turned by one each round."""
    samples = {}
    for number in range(rounds):
        show.say(f"round {number + 1} of {rounds}")
        order = names[number % len(names):] + names[:number % len(names)]
        if number >= env.number("SLOW_ROUNDS", rounds):
            order = [n for n in order if n in ("Esker", "MyISAM", "BLACKHOLE")]
        for kind in workload.KINDS:
            for name in order:
                for what, value in one_load(s, name, kind, rows).items():
                    samples.setdefault(name, {}).setdefault(kind, {}).setdefault(what, []).append(value)
        keep({n: {k: {w: {"median": statistics.median(v), "samples": v} for w, v in by.items()} for k, by in kinds.items()} for n, kinds in samples.items()})


def contention(c):
    """Esker's contended lock operations, by the lock's name."""
    return {name: int(n) for name, n in c.query("SELECT name, contended FROM information_schema.esker_mutexes").rows}


def part_clients(s, names, rows, rounds):
    """One scan alone, then eight at once, of the VARCHAR table and of one with a BLOB column."""
    found = {}
    c = s.connect("bench")
    for name in [n for n in names if n in ("Esker", "MyISAM", "InnoDB")]:
        table, engine = fresh_table(c, name, "varchar")
        workload.load(c, table, "varchar")
        blob = table_name(name, "blob")
        c.query(f"DROP TABLE IF EXISTS {blob}")
        c.query(f"CREATE TABLE {blob} ({workload.columns('varchar')}, note BLOB) ENGINE={engine} CHARSET=latin1")
        c.query(f"INSERT INTO {blob} SELECT *, REPEAT(MD5(g), 8) FROM src_varchar LIMIT {max(rows // 10, 1000)}")
        for kind, t, sql in (("varchar", table, f"SELECT COUNT(*) FROM {table} WHERE f='zzz'"), ("blob", blob, f"SELECT COUNT(*) FROM {blob} WHERE note='zzz'")):
            c.query(sql)
            alone, together, contended = [], [], {}
            for _ in range(rounds):
                begin = time.monotonic()
                c.query(sql)
                alone.append(time.monotonic() - begin)
                took, found_now = scans_at_once(s, t, sql, 8, (lambda: contention(c)) if name == "Esker" else dict)
                together.append(took)
                for site, n in found_now.items():
                    contended[site] = contended.get(site, 0) + n
            one, eight = statistics.median(alone), statistics.median(together)
            found.setdefault(name, {})[kind] = {
                "alone_s": one, "eight_s": eight, "speedup": 8 * one / eight, "cores": os.cpu_count(),
                "contention": contended,
            }
            show.say(f"  {name:8} {kind:8} one scan {one:.3f} s, eight at once {eight:.3f} s: {8 * one / eight:.2f} times the work per second, {os.cpu_count()} cores")
            c.query(f"DROP TABLE {t}")
    c.close()
    return found


def scans_at_once(s, table, sql, clients, count):
    """Wall seconds for the same scan in several connections that have the table open, and what `count` grew by."""
    connections, barrier = [s.connect("bench") for _ in range(clients)], threading.Barrier(clients + 1)
    problems = []
    for x in connections:
        x.query(f"SELECT 1 FROM {table} LIMIT 1")
    before = count()

    def work(connection):
        barrier.wait()
        try:
            connection.query(sql)
        except (SqlError, Lost) as e:
            problems.append(e)
    threads = [threading.Thread(target=work, args=(x,)) for x in connections]
    for t in threads:
        t.start()
    barrier.wait()
    begin = time.monotonic()
    for t in threads:
        t.join()
    took = time.monotonic() - begin
    grown = {site: n - before.get(site, 0) for site, n in count().items()}
    for x in connections:
        x.close()
    if problems:
        raise problems[0]
    return took, grown


def part_memory(s, names, rows):
    """Growth of the server's memory during a load, and 10 s after DROP; a server of its own each time."""
    found = {}
    for name in [n for n in names if n in ("Esker", "MyISAM", "InnoDB")]:
        for kind in workload.KINDS:
            s.stop()
            s.start()
            c = s.connect("bench")
            table, engine = fresh_table(c, name, kind)
            workload.scan(c, f"src_{kind}")
            c.query(f"INSERT INTO {table} SELECT * FROM src_{kind} LIMIT 100")
            fresh_table(c, name, kind)
            time.sleep(1)
            start, start_anon = s.status_kb("VmRSS"), s.status_kb("RssAnon")
            s.reset_peak()
            peak_anon, stop = [start_anon], threading.Event()

            def sample():
                while not stop.wait(0.05):
                    peak_anon.append(s.status_kb("RssAnon"))
            t = threading.Thread(target=sample)
            t.start()
            workload.load(c, table, kind)
            workload.wait_idle(s)
            stop.set()
            t.join()
            peak = s.status_kb("VmHWM")
            c.query(f"DROP TABLE {table}")
            time.sleep(10)
            end = s.status_kb("VmRSS")
            c.close()
            found.setdefault(name, {})[kind] = {"start_bytes": start, "growth_bytes": peak - start, "growth_anon_bytes": max(peak_anon) - start_anon, "after_drop_bytes": end - start}
            show.say(f"  {name:8} {kind:8} grew by {(peak - start) / MIB:.0f} MiB at most (anonymous memory {(max(peak_anon) - start_anon) / MIB:.0f}), "
                     f"10 s after DROP {(end - start) / MIB:+.0f} MiB from {start / MIB:.0f}")
    return found


def part_rollback(s, rounds):
    """ROLLBACK of the whole insert; restart after SIGKILL in its middle and at its end."""
    name, found = "Esker", {"rollback_s": [], "restart_mid_s": [], "restart_end_s": []}
    # Other engines' crash recovery from what was measured before is not what this is about.
    s.stop()
    s.start()
    for number in range(rounds):
        c = s.connect("bench")
        table, _ = fresh_table(c, name, "char")
        c.query("BEGIN")
        took = workload.load(c, table, "char")
        begin = time.monotonic()
        c.query("ROLLBACK")
        found["rollback_s"].append(time.monotonic() - begin)
        left = c.one(f"SELECT COUNT(*) FROM {table}")
        if left != "0":
            raise RuntimeError(f"{left} rows are there after ROLLBACK")
        c.close()
        for where in ("mid", "end"):
            c = s.connect("bench")
            c.query("BEGIN")
            if where == "mid":
                def work(connection=c):
                    try:
                        workload.load(connection, table, "char")
                    except (Lost, SqlError):
                        pass
                t = threading.Thread(target=work)
                t.start()
                time.sleep(took * 0.6)
                s.kill()
                t.join()
            else:
                workload.load(c, table, "char")
                s.kill()
            begin = time.monotonic()
            s.start()
            found[f"restart_{where}_s"].append(time.monotonic() - begin)
            c = s.connect("bench")
            left = c.one(f"SELECT COUNT(*) FROM {table}")
            c.close()
            if left != "0":
                raise RuntimeError(f"{left} rows of an insert that never committed are there after the restart")
        show.say(f"  round {number + 1}: ROLLBACK {found['rollback_s'][-1] * 1000:.1f} ms, restart {found['restart_mid_s'][-1]:.2f} s after a kill in the middle, "
                 f"{found['restart_end_s'][-1]:.2f} s after a kill at the end")
    c = s.connect("bench")
    c.query(f"DROP TABLE IF EXISTS {table}")
    c.close()
    return {k: {"median": statistics.median(v), "samples": v} for k, v in found.items()}


def part_neighbours(s, rows, rounds):
    """The same work of other engines in a server with Esker loaded and in one without: seconds, and processor seconds."""
    found = {}
    for number in range(rounds):
        # There and back, so that what drifts meets both alike.
        for where in ("with", "without") if number % 2 == 0 else ("without", "with"):
            s.stop()
            (s.engines.add if where == "with" else s.engines.discard)("ESKER")
            s.start()
            c = s.connect("bench")
            workload.scan(c, "src_char")
            for name, limit in (("MyISAM", rows), ("InnoDB", max(rows // 10, 1000))):
                table, _ = fresh_table(c, name, "char")
                before, begin = s.cpu_s(), time.monotonic()
                c.query(f"INSERT INTO {table} SELECT * FROM src_char LIMIT {limit}")
                for _ in range(3):
                    workload.scan(c, table)
                figures = found.setdefault(name, {}).setdefault(where, {"wall_s": [], "cpu_s": []})
                figures["wall_s"].append(time.monotonic() - begin)
                figures["cpu_s"].append(s.cpu_s() - before)
                c.query(f"DROP TABLE {table}")
            c.close()
    s.stop()
    s.engines.add("ESKER")
    s.start()
    for name, both in found.items():
        for what in ("wall_s", "cpu_s"):
            # The fastest of each: a busy host only adds, and by far more than what is looked for.
            both[f"{what}_ratio"] = min(both["with"][what]) / min(both["without"][what])
        show.say(f"  {name:8} with Esker loaded: {both['wall_s_ratio']:.3f} of the time without it, {both['cpu_s_ratio']:.3f} of the processor time")
    return found


def machine():
    """What this ran on, without names."""
    model = ""
    try:
        with open("/proc/cpuinfo") as f:
            model = next((l.split(":", 1)[1].strip() for l in f if l.startswith("model name")), "")
    except OSError:
        pass
    return {"cpu": model or platform.machine(), "cores": os.cpu_count(), "memory_gib": round(env.memory_bytes() / (1 << 30)),
            "kernel": platform.release().split("-")[0], "system": "Linux"}


def main():
    if len(sys.argv) > 1:
        print(__doc__.strip())
        sys.exit(0 if sys.argv[1] in ("-h", "--help") else 2)
    rows, rounds = env.number("ROWS", 10_000_000, least=1000), env.number("ROUNDS", 5)
    names, parts = env.names("ENGINES", DEFAULT, KNOWN), env.names("ONLY", PARTS, PARTS)
    whole = rows == 10_000_000 and rounds >= 5 and set(DEFAULT) <= set(names) and parts == PARTS
    name = os.environ.get("NAME") or ("mariadb" if whole else "partial")
    if "Esker" not in names and "rollback" in parts:
        show.say("SKIPPED: rollback is measured for Esker, which is not among ENGINES")
        parts = [p for p in parts if p != "rollback"]
    folder = os.path.join(ROOT, "bench", "results")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)

    engines = {workload.options_of(VARIANTS.get(n, n))[0] for n in names} | {"RocksDB"}
    s = server.Server("bench", server.measured_settings(), engines)
    results = {"rows": rows, "rounds": rounds, "slow_rounds": env.number("SLOW_ROUNDS", rounds), "date": datetime.date.today().isoformat(), "machine": machine(),
               "mariadb": s.env["ESKER_MARIADB_VERSION"], "settings": s.settings}

    def keep(key, value):
        results[key] = value
        with open(path + ".json", "w") as f:
            json.dump(results, f, indent=1)
            f.write("\n")
        report.write(results, path)
    try:
        s.stop()
        s.start()
        c = s.connect()
        c.query("CREATE DATABASE IF NOT EXISTS bench")
        c.query("USE bench")
        for (old,) in c.query("SELECT table_name FROM information_schema.tables WHERE table_schema='bench' AND table_name LIKE 'b\\_%'").rows:
            c.query(f"DROP TABLE {old}")
        workload.fill_source(c, rows, show.progress)
        show.end_progress()
        for kind in workload.KINDS:
            workload.scan(c, f"src_{kind}")
        c.close()
        if "load" in parts:
            part_load(s, names, rows, rounds, lambda v: keep("load", v))
        if "clients" in parts:
            show.say("eight clients scan one table at once")
            keep("clients", part_clients(s, names, rows, rounds))
        if "memory" in parts:
            show.say("memory during a load and after DROP")
            keep("memory", part_memory(s, names, rows))
        if "rollback" in parts:
            show.say("ROLLBACK of the insert, and restart after SIGKILL during it")
            keep("rollback", part_rollback(s, min(rounds, 3)))
        if "neighbours" in parts:
            show.say("other engines with Esker loaded and without")
            keep("neighbours", part_neighbours(s, rows, rounds))
    except (RuntimeError, SqlError, Lost) as e:
        env.fail(f"{e}\n{s.log_tail()}")
    finally:
        s.stop()
    print()
    print(open(path + ".md").read())
    print(f"written: {os.path.relpath(path, ROOT)}.json, .md, .svg")


if __name__ == "__main__":
    main()
