#!/usr/bin/python3
"""kill_test.py: kill -9 of the real server under load, checked row by row after each restart.

Several clients write single rows, many rows, INSERT ... SELECT, bulk updates and deletes of their own and of each other's
rows, transactions over several tables, savepoints, rollbacks, XA; after each SIGKILL the server starts again and everything
acknowledged must be there, nothing by half. It runs with the binlog off and on; with it, the tables must also equal what the
binlog says. The settings are small, and it is a failure if no memtable was flushed, nothing merged, no manifest written, no
run attached, no segment of the log recycled, or no deadlock found (crash.py).

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

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import binlog  # noqa: E402
import crash  # noqa: E402
import load  # noqa: E402
from eskerlib import env, server, show  # noqa: E402
from eskerlib.client import Lost, SqlError  # noqa: E402


def one_life(s, writers, reach, moments, life):
    """A crash after some load, and the restart; the words that describe it. life: 'last' or ''."""
    for w in writers:
        w.start()
    c = s.connect()
    when = crash.until_the_moment(c, writers, reach, moments, 0.3, 3.0, life == "last")
    s.kill()
    c.close()
    writers[0].stop_event.set()
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
    if moments.random() < 0.2:  # what recovery made must survive, too: what is prepared, and what it wrote
        time.sleep(moments.uniform(0, 0.5))
        s.kill()
        s.start()
    return f"after {when}: {sum(w.acknowledged for w in writers)} acknowledged, restart {restart:.2f} s"


def one_setting(engine, with_binlog, kills, clients, seed):
    """All kills with the binlog on or off; the number of problems."""
    name = "kill-binlog" if with_binlog else "kill"
    s = server.Server(name, crash.settings(with_binlog, os.environ.get("CANARY")), [engine])
    s.create(fresh=True)
    s.start()
    c = s.connect()
    load.create(c, engine, clients)
    c.close()
    replay = binlog.Replay(s, "crash", load.tables(clients))
    moments, reach, total, problems, writers = random.Random(seed), crash.Reach(engine), 0, [], []
    for number in range(1, kills + 1):
        stop, old = threading.Event(), {w.number: w for w in writers}
        writers = [load.Writer(n, s, stop, seed + number, 8000 if with_binlog else 20000, crash.left_out(with_binlog)) for n in range(1, clients + 1)]
        for w in writers:
            if w.number in old:
                w.succeed(old[w.number])
        said = one_life(s, writers, reach, moments, "last" if number == kills else "")
        c = s.connect("crash")
        problems, looked = crash.check(c, writers, moments)
        if with_binlog and not problems:
            problems += replay.compare(c)
        total += sum(w.acknowledged for w in writers)
        show.say(f"{engine}, binlog {'on' if with_binlog else 'off'}, kill {number} of {kills} {said}, {looked:,} rows looked at"
                 + ("" if not problems else f", {len(problems)} PROBLEMS"))
        if problems:
            break
        if number % 10 == 0 or looked > 600_000:
            if with_binlog:
                c.query("RESET MASTER")
                replay = binlog.Replay(s, "crash", load.tables(clients))
            load.empty(c, writers)
        c.close()
    if not problems:
        show.say(f"reached: {reach}")
        problems += reach.problems()
    if not s.stop():
        problems.append("the server did not stop in order after the test")
    if total == 0:
        problems.append("nothing was acknowledged, the test proved nothing")
    for p in problems[:20]:
        print(f"  PROBLEM: {p}", flush=True)
    if problems:
        print(f"  files kept in {os.path.relpath(s.folder, env.ROOT)}/; again with: SEED={seed} tests/server/kill_test.py", flush=True)
    else:
        s.remove()
    return len(problems)


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
