"""Threads write few values under keys that the server checks by reading what it has written, UNIQUE over TEXT and WITHOUT
OVERLAPS: at no isolation level do two rows come to be the same, or overlap.

    THREADS=5
    TRANSACTIONS=400 of each thread
    RACES=1000       of all threads for the same rows
    ROUNDS=2
    SEED=
"""
import collections
import random
import threading

import pytest

from cases import SEED, check
from eskerlib import env
from eskerlib.client import SqlError

THREADS, TRANSACTIONS, ROUNDS = env.number("THREADS", 5), env.number("TRANSACTIONS", 400), env.number("ROUNDS", 2)
RACES = env.number("RACES", 1000)
LEVELS = ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ"]
# A duplicate; a deadlock; the wait was too long; changed since it was read.
EXPECTED = {1062, 1213, 1205, 1020}


def text(rng):
    """Few, of which some are equal and look different."""
    return f"'{rng.choice('abcdefABCDEF') * rng.choice([1, 1, 3])}{rng.choice(['', '', ' '])}'"


def period(rng):
    """Of some days."""
    first = rng.randint(1, 25)
    return f"'2000-01-{first:02}','2000-01-{first + rng.randint(1, 3):02}'"


def statement(rng):
    """One of either table."""
    n = rng.randint(1, 3)
    return rng.choice([
        f"{rng.choice(['INSERT', 'INSERT', 'INSERT IGNORE', 'REPLACE'])} INTO texts (a,n) VALUES ({text(rng)},{n})",
        f"INSERT INTO texts (a,n) VALUES ({text(rng)},{n}) ON DUPLICATE KEY UPDATE n=n+1",
        f"UPDATE texts SET a={text(rng)} WHERE n={n} ORDER BY id LIMIT 1",
        f"DELETE FROM texts WHERE a={text(rng)}",
        f"{rng.choice(['INSERT', 'INSERT IGNORE'])} INTO periods VALUES ({n},{period(rng)})",
        f"INSERT INTO periods VALUES ({n},{period(rng)}),({n + 1},{period(rng)})",
        f"UPDATE periods SET n={n} WHERE n={rng.randint(1, 3)} LIMIT 1",
        f"DELETE FROM periods FOR PORTION OF p FROM '2000-01-{rng.randint(1, 20)}' TO '2000-01-{rng.randint(21, 28)}' WHERE n={n}"])


def work(srv, seed, seen, failed):
    """One thread."""
    try:
        rng, c = random.Random(seed), srv.connect("d")
        c.query("SET esker_lock_wait_timeout=3")
        for _ in range(TRANSACTIONS):
            c.query(f"SET SESSION TRANSACTION ISOLATION LEVEL {rng.choice(LEVELS)}")
            c.query(f"SET esker_snapshot_isolation={rng.random() < 0.2:d}")
            c.query("BEGIN")
            for _ in range(rng.choice([1, 1, 2, 4])):
                if rng.random() < 0.3:
                    c.query("SELECT COUNT(*) FROM texts")
                try:
                    c.query(statement(rng))
                    seen["done"] += 1
                except SqlError as e:
                    seen[e.errno] += 1
                    if e.errno not in EXPECTED:
                        raise
                    if e.errno != 1062:
                        break
            c.query(rng.choice(["COMMIT", "COMMIT", "ROLLBACK"]))
    except Exception as e:
        failed.append(e)


def race(srv, number, start, seen, failed):
    """One of several who write the same at the same moment, again and again."""
    try:
        c = srv.connect("d")
        for n in range(RACES):
            start.wait(60)
            for sql in (f"INSERT INTO texts (a) VALUES ('race {n}')",
                        f"INSERT INTO periods VALUES ({n},'2000-01-0{1 + number}','2000-01-{10 - number}')"):
                try:
                    c.query(sql)
                    seen["won"] += 1
                except SqlError as e:
                    seen[e.errno] += 1
                    if e.errno not in EXPECTED:
                        raise
    except Exception as e:
        failed.append(e)
        start.abort()


def join(threads):
    """Runs them all."""
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def look(c):
    """What must hold, whatever was written."""
    for what, twice in (("a text", "SELECT a.a FROM texts a JOIN texts b USE INDEX () ON a.id<b.id AND a.a=b.a"),
                        ("a day", "SELECT a.n,a.f,a.t,b.f,b.t FROM periods a JOIN periods b USE INDEX () ON a.n=b.n AND a.f<b.t AND b.f<a.t AND (a.f<>b.f OR a.t<>b.t)"),
                        ("a period", "SELECT n,f,t FROM periods USE INDEX () GROUP BY n,f,t HAVING COUNT(*)>1")):
        rows = c.query(twice).rows
        check(not rows, f"SEED={SEED}: no two rows have {what} in common {rows[:1]}")
    for table in ("texts", "periods"):
        check(c.query(f"CHECK TABLE {table} EXTENDED").rows[-1][-1] == "OK", f"{table} is whole")
    check(int(c.one("SELECT COUNT(*) FROM texts")) + int(c.one("SELECT COUNT(*) FROM periods")) > 5, "rows are there")


@pytest.fixture
def prepared(servers):
    """A server, a connection."""
    s = servers("checkedkeys", {"esker_memory_limit": 64 << 20})
    s.create(fresh=True)
    s.start()
    c = s.connect(timeout=600)
    c.query("CREATE DATABASE d")
    c.query("USE d")
    c.query("CREATE TABLE texts (id INT AUTO_INCREMENT PRIMARY KEY, a TEXT, n INT, UNIQUE (a)) ENGINE=Esker CHARACTER SET latin1")
    c.query("CREATE TABLE periods (n INT, f DATE, t DATE, PERIOD FOR p (f,t), UNIQUE (n, p WITHOUT OVERLAPS)) ENGINE=Esker")
    yield s, c
    s.stop()


def test_races(prepared):
    """Of several who write the same at once, one comes first, or they fall to a deadlock."""
    s, c = prepared
    seen, failed, start = collections.Counter(), [], threading.Barrier(THREADS)
    join([threading.Thread(target=race, args=(s, t, start, seen, failed)) for t in range(THREADS)])
    check(not failed, f"no thread met anything unforeseen {failed[:1]}")
    look(c)
    check(seen["won"] > RACES and seen[1062] > RACES, f"they met each other: {dict(seen)}")


def test_checked_keys(prepared):
    """Anything, at all levels at once."""
    s, c = prepared
    seen, failed = collections.Counter(), []
    for n in range(ROUNDS):
        join([threading.Thread(target=work, args=(s, f"{SEED} {n} {t}", seen, failed)) for t in range(THREADS)])
        check(not failed, f"SEED={SEED}: no thread met anything unforeseen {failed[:1]}")
        look(c)
    check(seen["done"] > 100 and seen[1062] > 50 and seen[1213] > 0, f"SEED={SEED}: they met each other: {dict(seen)}")
