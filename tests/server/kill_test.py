"""kill -9 of the real server under load, checked row by row after each restart.

Several clients write single rows, many rows, INSERT ... SELECT, bulk updates and deletes of their own and of each other's
rows, transactions over several tables, savepoints, rollbacks, XA, of tables with primary, unique and plain keys, and without;
after each SIGKILL the server starts again and everything acknowledged must be there, by a scan and by each index, nothing by
half. It runs with the binlog off and on; with it, the tables must also equal what the
binlog says. The settings are small, and it is a failure if no memtable was flushed, nothing merged, no manifest written, no
run attached, no segment of the log recycled, or no deadlock found (crash.py).

    KILLS=3          kills per setting of the binlog
    CLIENTS=6        clients
    SEED=            for the clients' choices and the moment of each kill
    CRASH_ENGINE=    Esker (default) or InnoDB, which checks the test itself
    BINLOG=off,on    which settings
    CANARY=1         let commits be acknowledged before they are durable: the test must find what is lost
"""
import random

import pytest

import binlog
import crash
import load
from cases import BINLOGS, CANARY, CLIENTS, ENGINE, SEED, finds_the_canary, none_of
from eskerlib import env, show

KILLS = env.number("KILLS", 3)


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
    restart = crash.restart(s, moments)
    return f"after {when}: {sum(w.acknowledged for w in writers)} acknowledged, restart {restart:.2f} s"


@finds_the_canary
@pytest.mark.parametrize("setting", BINLOGS)
def test_kill(servers, again, setting):
    """All kills with the binlog on or off."""
    again(SEED=SEED, KILLS=KILLS, BINLOG=setting, CLIENTS=CLIENTS, CRASH_ENGINE=ENGINE)
    with_binlog = setting == "on"
    s = servers("kill-binlog" if with_binlog else "kill", crash.settings(with_binlog, CANARY), [ENGINE])
    s.create(fresh=True)
    s.start()
    c = s.connect()
    load.create(c, ENGINE, CLIENTS)
    c.close()
    replay = binlog.Replay(s, "crash", load.tables(CLIENTS))
    names = crash.REACH + (crash.REACH_BINLOG if with_binlog else ())
    moments, reach, total, refused, writers = random.Random(SEED), crash.Reach(ENGINE, names), 0, 0, []
    for number in range(1, KILLS + 1):
        old = {w.number: w for w in writers}
        writers = load.writers(CLIENTS, s, SEED + number, with_binlog)
        for w in writers:
            if w.number in old:
                w.succeed(old[w.number])
        said = one_life(s, writers, reach, moments, "last" if number == KILLS else "")
        c = s.connect("crash")
        problems, looked = crash.check(c, writers, moments)
        if with_binlog and not problems:
            problems += replay.compare(c)
        total += sum(w.acknowledged for w in writers)
        refused += sum(w.refused for w in writers)
        show.say(f"{ENGINE}, binlog {setting}, kill {number} of {KILLS} {said}, {looked:,} rows looked at"
                 + ("" if not problems else f", {len(problems)} PROBLEMS"))
        none_of(problems)
        if number % 10 == 0 or looked > 600_000:
            if with_binlog:
                c.query("RESET MASTER")
                replay = binlog.Replay(s, "crash", load.tables(CLIENTS))
            load.empty(c, writers)
        c.close()
    show.say(f"reached: {reach}, {refused} names refused")
    problems = reach.problems()
    if not refused:
        problems.append("no claim of a name was refused, the test proved nothing of unique keys")
    if not s.stop():
        problems.append("the server did not stop in order after the test")
    if total == 0:
        problems.append("nothing was acknowledged, the test proved nothing")
    none_of(problems)
