#!/usr/bin/env python3
"""kill_test.py: kill -9 of the real server under load, checked row by row after each restart.

Several clients write single rows, many rows, INSERT ... SELECT, UPDATE, DELETE, transactions, savepoints, rollbacks;
after each SIGKILL the server starts again and everything acknowledged must be there, nothing by half. It runs with the
binlog off and on; with it, the tables must also equal what the binlog says.

    KILLS=3          kills per setting of the binlog
    CLIENTS=6        clients
    SEED=            for the clients' choices and the moment of each kill
    CRASH_ENGINE=    Esker (default) or InnoDB, which checks the test itself
    BINLOG=off,on    which settings
    CANARY=1         let commits be acknowledged before they are durable: the test must find what is lost
"""
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from eskerlib import binlog, crash, env, server, show  # noqa: E402
from eskerlib.client import Lost, SqlError  # noqa: E402


def one_setting(engine, with_binlog, kills, clients, seed):
    """All kills with the binlog on or off; the number of problems."""
    settings = server.small_settings()
    if with_binlog:
        settings.update(log_bin="binlog", binlog_format="ROW", sync_binlog=1, server_id=1)
    if os.environ.get("CANARY"):
        settings.update(innodb_flush_log_at_trx_commit=0, esker_flush_log_at_trx_commit=0)
    name = "kill-binlog" if with_binlog else "kill"
    s = server.Server(name, settings, [engine])
    s.create(fresh=True)
    s.start()
    c = s.connect()
    crash.create(c, engine)
    c.close()
    moments, total, bad, writers = random.Random(seed), 0, 0, []
    for number in range(1, kills + 1):
        stop = threading.Event()
        old = {w.number: w for w in writers}
        writers = []
        for n in range(1, clients + 1):
            w = crash.Writer(n, s, stop, seed + number, 4000 if with_binlog else 20000)
            if n in old:
                w.model, w.bulk, w.next_batch = old[n].model, old[n].bulk, old[n].next_batch
            writers.append(w)
        for w in writers:
            w.start()
        seconds = moments.uniform(0.3, 3.0)
        crash.wait_seconds(writers, seconds)
        s.kill()
        stop.set()
        for w in writers:
            w.join(130)
        if moments.random() < 0.2:  # and once more, during recovery
            try:
                s.start(wait_s=moments.uniform(0.05, 0.4))
            except RuntimeError:
                pass
            s.kill()
        begin = time.monotonic()
        s.start()
        restart = time.monotonic() - begin
        c = s.connect("crash")
        problems, looked = crash.check(c, writers)
        if with_binlog and not problems:
            problems += binlog.compare(s, c, "crash", ["rows_", "bulk", "accounts"])
        done = sum(w.acknowledged for w in writers)
        total += done
        show.say(f"{engine}, binlog {'on' if with_binlog else 'off'}, kill {number} of {kills} after {seconds:.2f} s: {done} acknowledged, "
                 f"{looked:,} rows looked at, restart {restart:.2f} s" + ("" if not problems else f", {len(problems)} PROBLEMS"))
        for p in problems[:20]:
            print(f"  PROBLEM: {p}", flush=True)
        bad += len(problems)
        if number % 10 == 0 or looked > 400_000:  # keep the tables small, so that the check stays quick
            if with_binlog:
                c.query("RESET MASTER")
            for table in ("rows_", "bulk", "accounts"):
                c.query(f"TRUNCATE TABLE {table}")
            c.query(f"INSERT INTO accounts SELECT seq, {crash.START} FROM seq_1_to_{crash.ACCOUNTS}")
            for w in writers:
                w.model, w.bulk = {}, {}
        c.close()
        if problems:
            print(f"  files kept in {os.path.relpath(s.folder, env.ROOT)}/; again with: SEED={seed} scripts/kill_test.py", flush=True)
            break
    orderly = s.stop()
    if not orderly:
        print("  PROBLEM: the server did not stop in order after the test", flush=True)
        bad += 1
    if not bad:
        s.remove()
    if total == 0:
        print("  PROBLEM: nothing was acknowledged, the test proved nothing", flush=True)
        bad += 1
    return bad


def main():
    if len(sys.argv) > 1:
        print(__doc__.strip())
        sys.exit(0 if sys.argv[1] in ("-h", "--help") else 2)
    engine = env.names("CRASH_ENGINE", ["Esker"], ["Esker", "InnoDB"])[0]
    kills, clients = env.number("KILLS", 3), env.number("CLIENTS", 6)
    seed = env.number("SEED", int(time.time()) % 1000000, least=0)
    bad = 0
    for setting in env.names("BINLOG", ["off", "on"], ["off", "on"]):
        try:
            bad += one_setting(engine, setting == "on", kills, clients, seed)
        except (RuntimeError, SqlError, Lost) as e:
            print(f"  PROBLEM: {e}")
            bad += 1
    if os.environ.get("CANARY"):
        print(f"kill -9 canary: {'found' if bad else 'NOT FOUND'}")
        sys.exit(0 if bad else 1)
    print(f"kill -9: {'everything acknowledged was there' if not bad else f'{bad} problems'} (seed {seed})")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
