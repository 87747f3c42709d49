"""Sessions append to lists and read them, and no order of transactions that their level forbids is found in what they read.

histories.py says which anomalies a history has; that it finds each of them is tested first, on histories with one planted. Then
real sessions run transactions of a few statements over a few rows that everybody wants: appends by primary key, by a secondary
index that changes with them, by INSERT ... ON DUPLICATE KEY UPDATE, of what was read (with a lock, or with a snapshot that has
to be kept), plain reads by both indexes, rollbacks to savepoints and at the end, and connections that are killed. A run ends when it has
seen enough of all that.

Parameters (environment): SEED (of the clock).
"""
import collections
import itertools
import random
import threading
import time

import pytest

from cases import SEED, check, none_of
from eskerlib import server
from eskerlib.client import Lost, SqlError
from histories import ABORTED, APPEND, COMMITTED, READ, UNKNOWN, Transaction, anomalies, components

SESSIONS, LISTS, LONGEST_S = 6, 5, 300
PER_LIST = 40  # appends, about, before another list takes its place
LEAST = {"committed": 2000, "aborted": 200, "undone": 50, "killed": 8, "conflicts": 150, "lists with 10 values": 50}
ALWAYS = {"G0", "G1a", "G1b", "G1c", "order", "lost", "own"}
# Of InnoDB's older REPEATABLE READ it is known that a transaction writes over what its view does not see.
LEVELS = {"snapshots": ("REPEATABLE READ", "ON", ALWAYS | {"G-single", "lost update"}),
          "read committed": ("READ COMMITTED", "OFF", ALWAYS),
          "repeatable read": ("REPEATABLE READ", "OFF", ALWAYS)}
CHANGED, INTERRUPTED, KILLED = 1020, 1317, 1927
CONFLICTS = {CHANGED, 1213, 1205}


def a(k, v):
    """An append."""
    return (APPEND, k, v)


def r(k, *values):
    """A read."""
    return (READ, k, values)


def history(*transactions, end):
    """Transactions as (ops), or (outcome, ops), named in order, and a last one that reads all lists."""
    named = [t if isinstance(t[0], str) else (COMMITTED, t) for t in transactions]
    return [*(Transaction(f"T{n + 1}", outcome, ops) for n, (outcome, ops) in enumerate(named)),
            Transaction("end", COMMITTED, [r(k, *values) for k, values in end.items()])]


# name: the history, and what is to be found in it.
PLANTED = {
    "nothing": (history(end={}), set()),
    "one after the other": (history([a("x", 1), r("x", 1)], [r("x", 1), a("x", 2), a("x", 3)], [r("x", 1, 2, 3)], end={"x": (1, 2, 3)}), set()),
    "a snapshot": (history([r("x"), r("y"), r("x")], [a("x", 1), a("y", 2)], end={"x": (1,), "y": (2,)}), set()),
    "write skew": (history([r("x"), a("y", 1)], [r("y"), a("x", 2)], end={"x": (2,), "y": (1,)}), set()),
    "rolled back": (history((ABORTED, [a("x", 1), r("x", 1)]), [r("x"), a("x", 2)], end={"x": (2,)}), set()),
    "unknown, committed": (history((UNKNOWN, [a("x", 1)]), [r("x", 1)], end={"x": (1,)}), set()),
    "unknown, rolled back": (history((UNKNOWN, [a("x", 1)]), [r("x")], end={"x": ()}), set()),
    "unknown, half": (history((UNKNOWN, [a("x", 1), a("y", 2)]), [r("x", 1)], end={"x": (1,), "y": ()}), {"lost"}),
    "G0": (history([a("x", 1), a("y", 2)], [a("x", 3), a("y", 4)], end={"x": (1, 3), "y": (4, 2)}), {"G0", "G1c"}),
    "G0 of three": (history([a("x", 1), a("y", 2)], [a("y", 3), a("z", 4)], [a("z", 5), a("x", 6)],
                            end={"x": (6, 1), "y": (2, 3), "z": (4, 5)}), {"G0", "G1c"}),
    "G1a": (history((ABORTED, [a("x", 1)]), [r("x", 1)], end={"x": ()}), {"G1a"}),
    "G1b": (history([a("x", 1), a("x", 2)], [r("x", 1)], end={"x": (1, 2)}), {"G1b", "G-single"}),
    "G1c": (history([a("x", 1), r("y", 2)], [a("y", 2), r("x", 1)], end={"x": (1,), "y": (2,)}), {"G1c"}),
    "G-single": (history([r("x"), r("y", 2)], [a("x", 1), a("y", 2)], end={"x": (1,), "y": (2,)}), {"G-single"}),
    "G-single, not repeatable": (history([r("x"), r("x", 1)], [a("x", 1)], end={"x": (1,)}), {"G-single"}),
    "lost update": (history([r("x"), a("x", 1)], [r("x"), a("x", 2)], end={"x": (1, 2)}), {"G-single", "lost update"}),
    "lost": (history([a("x", 1)], [r("x"), a("x", 2)], end={"x": (2,)}), {"lost"}),
    "order": (history([r("x", 1), a("y", 3)], [a("x", 1)], [a("x", 2)], end={"x": (2, 1), "y": (3,)}), {"order", "G-single"}),
    "twice": (history([a("x", 1)], end={"x": (1, 1)}), {"order"}),
    "own": (history([a("x", 1), r("x")], end={"x": (1,)}), {"own"}),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted(name):
    """What was planted is found, and nothing else."""
    transactions, wanted = PLANTED[name]
    found = anomalies(transactions)
    assert set(found) == wanted, found


def test_components():
    """As a closure of all ways says, for random graphs."""
    rng = random.Random(1)
    for _ in range(300):
        n = rng.randint(1, 9)
        edges = {i: {j for j in range(n) if i != j and rng.random() < 0.2} for i in range(n)}
        reach = {i: {i} for i in range(n)}
        for _ in range(n):
            for i in range(n):
                reach[i] |= {k for j in reach[i] for k in edges[j]}
        wanted = {frozenset(j for j in range(n) if j in reach[i] and i in reach[j]) for i in range(n)}
        assert {frozenset(c) for c in components(edges)} == {c for c in wanted if len(c) > 1}


class Run:
    """Sessions at one level, until enough was seen."""

    def __init__(self, s, level, snapshots):
        self.server, self.level, self.snapshots = s, level, snapshots
        self.transactions, self.counts, self.appended = [], collections.Counter(), itertools.count(1)
        self.last, self.errors, self.over, self.connections = 0, [], False, {}

    def lists(self):
        """Those that are appended to now."""
        first = self.last // (PER_LIST * LISTS) * LISTS
        return range(first, first + LISTS)

    def enough(self):
        """Of everything but what is counted at the end."""
        return all(self.counts[what] >= least for what, least in LEAST.items() if "lists" not in what) and self.last > PER_LIST * LISTS * 6


class Worker(threading.Thread):
    """One session."""

    def __init__(self, run, number):
        super().__init__(daemon=True)
        self.of, self.number, self.rng, self.connection = run, number, random.Random(SEED * 1000 + number), None
        self.ops, self.undone = [], []

    def open(self):
        """A connection, anew when it was killed."""
        self.connection = self.of.server.connect("app", timeout=LONGEST_S)
        for sql in (f"SET SESSION TRANSACTION ISOLATION LEVEL {self.of.level}", f"SET esker_snapshot_isolation={self.of.snapshots}"):
            self.connection.query(sql)
        self.of.connections[self.number] = self.connection.one("SELECT CONNECTION_ID()")

    def _where(self, k):
        return self.rng.choice([f"t WHERE k={k}", f"t FORCE INDEX (s) WHERE s={k + 1000}"])

    def _set(self, k, value):
        """An UPDATE by one of the indexes; how many rows there were."""
        return self.connection.query(f"UPDATE {self._where(k).replace(' WHERE', f' SET n=n+1,v={value} WHERE')}").affected

    def read(self, k, lock=""):
        """What the list has."""
        rows = self.connection.query(f"SELECT v FROM {self._where(k)}{lock}").rows
        values = tuple(map(int, rows[0][0].split(","))) if rows else ()
        # There are no gap locks: a row that is not there is not locked, and opens no view.
        if values or not lock:
            self.ops.append((READ, k, values))
        return values

    def append(self, k):
        """In one of the ways in which the level loses nothing."""
        value = self.of.last = next(self.of.appended)
        self.ops.append((APPEND, k, value))
        put = f"INSERT INTO t VALUES ({k},{k + 1000},1,'{value}') ON DUPLICATE KEY UPDATE n=n+1,v=CONCAT(v,',{value}')"
        how = self.rng.choice(["added", "put", "read first"])
        if how == "read first":
            said = self.ops.pop()
            values = self.read(k, "" if self.of.snapshots == "ON" and self.rng.random() < 0.5 else self.rng.choice([" FOR UPDATE", " LOCK IN SHARE MODE"]))
            self.ops.append(said)
            if values and self._set(k, "'" + ",".join(map(str, (*values, value))) + "'"):
                return
        elif how == "added" and self._set(k, f"CONCAT(v,',{value}')"):
            return
        self.connection.query(put)

    def step(self):
        """A statement or two."""
        k = self.rng.choice(self.of.lists())
        if self.rng.random() < 0.4:
            self.read(k)
        else:
            self.append(k)

    def transact(self):
        """One transaction; its outcome."""
        self.ops, self.undone = [], []
        ending = False
        try:
            self.connection.query("BEGIN")
            for _ in range(self.rng.randint(1, 4)):
                self.step()
            if self.rng.random() < 0.1:
                self.connection.query("SAVEPOINT p")
                before = len(self.ops)
                self.step()
                self.connection.query("ROLLBACK TO p")
                self.undone = [op for op in self.ops[before:] if op[0] == APPEND]
                self.ops = self.ops[:before]
                self.step()
            if self.rng.random() < 0.1:
                self.connection.query("ROLLBACK")
                return ABORTED
            ending = True
            self.connection.query("COMMIT")
            return COMMITTED
        except (Lost, SqlError) as e:
            # Who is killed is mostly cut off; but the server notes the kill first, and a statement may find that and say so before it is.
            if isinstance(e, Lost) or e.errno == KILLED:
                self.of.counts["killed"] += 1
                self.open()
                return UNKNOWN if ending else ABORTED
            if e.errno not in CONFLICTS | {INTERRUPTED}:
                raise
            self.of.counts["conflicts" if e.errno in CONFLICTS else "interrupted"] += 1
            outcome = UNKNOWN if ending else ABORTED
            try:
                self.connection.query("ROLLBACK")
            except (Lost, SqlError):
                self.open()
            return outcome

    def run(self):
        """Until all have seen enough."""
        try:
            self.open()
            for n in itertools.count():
                if self.of.over:
                    break
                outcome = self.transact()
                self.of.counts[outcome] += 1
                self.of.transactions.append(Transaction(f"{self.number}.{n}", outcome, self.ops))
                if self.undone:
                    self.of.counts["undone"] += 1
                    self.of.transactions.append(Transaction(f"{self.number}.{n} undone", ABORTED, self.undone))
        except Exception as e:  # whatever it is, the case must fail of it
            self.of.errors.append(f"session {self.number}: {e!r}")


def play(s, control, level, snapshots):
    """A history of real sessions, with what was counted."""
    control.query("CREATE OR REPLACE TABLE app.t (k INT PRIMARY KEY, s INT, n INT, v TEXT, KEY s (s,n)) ENGINE=Esker")
    run = Run(s, level, snapshots)
    workers = [Worker(run, n) for n in range(SESSIONS)]
    for w in workers:
        w.start()
    rng, until = random.Random(SEED), time.monotonic() + LONGEST_S
    while not run.enough() and not run.errors and time.monotonic() < until:
        time.sleep(0.1)
        if rng.random() < 0.6:
            try:
                control.query(f"KILL {rng.choice(['CONNECTION', 'CONNECTION', 'QUERY'])} {rng.choice(list(run.connections.values()) or [0])}")
            except SqlError:
                pass  # it has gone
    run.over = True
    for w in workers:
        w.join(LONGEST_S)
    check(not run.errors and not any(w.is_alive() for w in workers), f"all sessions end well: {run.errors}")
    for name, index in (("end", "PRIMARY"), ("end by s", "s")):
        lists = {int(k): tuple(map(int, v.split(","))) for k, v in control.query(f"SELECT k,v FROM app.t FORCE INDEX ({index}) WHERE k>=0 AND s>0").rows}
        run.transactions.append(Transaction(name, COMMITTED, [(READ, k, lists.get(k, ())) for k in range(run.lists()[-1] + 1)]))
        run.counts["lists with 10 values"] = sum(len(values) >= 10 for values in lists.values())
    return run


@pytest.fixture(scope="module")
def app(module_servers):
    """A server, and a connection that looks on."""
    s = module_servers("append", {**server.small_settings(), "esker_lock_wait_timeout": 10})
    s.create(fresh=True)
    s.start()
    c = s.connect(timeout=LONGEST_S)
    c.query("CREATE DATABASE app")
    yield s, c
    c.close()


@pytest.mark.parametrize("name", LEVELS)
def test_append(app, again, name):
    """What the level forbids is not found."""
    s, control = app
    level, snapshots, forbidden = LEVELS[name]
    again(SEED=SEED)
    run = play(s, control, level, snapshots)
    seen = {what: run.counts[what] for what in LEAST}
    none_of([f"too few {what}: {seen[what]} of {least}" for what, least in LEAST.items() if seen[what] < least])
    found = anomalies(run.transactions)
    print(f"{name}: {dict(run.counts)}; found {({what: len(words) for what, words in found.items()})}", flush=True)
    allowed = {"G-single", "lost update"} - forbidden
    check(allowed <= set(found), f"what the level allows happens, so what it forbids would be seen: {sorted(allowed)}")
    none_of([f"{what}: {words[0]} and {len(words) - 1} more" for what, words in found.items() if what in forbidden])
