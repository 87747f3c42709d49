"""What transactions see of each other and who waits for whom: the anomalies that Hermitage names, in real sessions.

Each case is a script of statements of up to three sessions over the rows (1,10) and (2,20) of a table with a primary key. A
statement that has to wait is seen waiting in the server's own tables, not by the clock; it goes on when its turn comes again.
What every statement said, in the order of the script, is the outcome. Without snapshot isolation Esker's must be InnoDB's at READ
COMMITTED and REPEATABLE READ in the same server; with it, what PostgreSQL's snapshots are known to give, and InnoDB's too.
"""
import threading
import time

import pytest

from cases import none_of
from eskerlib.client import SqlError

LONGEST_S = 30
ENGINES = ("Esker", "InnoDB")
CHANGED, DUPLICATE, DEADLOCK = "error 1020", "error 1062", "error 1213"

ALL, ONE, TWO = "SELECT id,value FROM t ORDER BY id", "SELECT value FROM t WHERE id=1", "SELECT value FROM t WHERE id=2"


def put(row, value):
    """An UPDATE of a row."""
    return f"UPDATE t SET value={value} WHERE id={row}"


# name: the script, in which 'C' and 'R' end a session's transaction; with snapshots, what each statement says, in order.
CASES = {
    "G0 dirty writes": ([(1, put(1, 11)), (2, put(1, 12)), (1, put(2, 21)), (1, "C"), (2, put(2, 22)), (2, "C"), (3, ALL)],
                        ["1 rows", f"waits, {CHANGED}", "1 rows", "ended", "given up", "given up", "1,11 2,21"]),
    "G1a aborted reads": ([(1, put(1, 101)), (2, ALL), (1, "R"), (2, ALL), (2, "C")],
                          ["1 rows", "1,10 2,20", "ended", "1,10 2,20", "ended"]),
    "G1b intermediate reads": ([(1, put(1, 101)), (2, ALL), (1, put(1, 11)), (1, "C"), (2, ALL), (2, "C"), (3, ALL)],
                               ["1 rows", "1,10 2,20", "1 rows", "ended", "1,10 2,20", "ended", "1,11 2,20"]),
    "G1c circular flow": ([(1, put(1, 11)), (2, put(2, 22)), (1, TWO), (2, ONE), (1, "C"), (2, "C"), (3, ALL)],
                          ["1 rows", "1 rows", "20", "10", "ended", "ended", "1,11 2,22"]),
    "OTV vanishing transactions": ([(1, put(1, 11)), (1, put(2, 19)), (2, put(1, 12)), (1, "C"), (3, ONE), (2, put(2, 18)), (3, TWO), (2, "C"),
                                    (3, TWO), (3, ONE), (3, "C"), (3, ALL)],
                                   ["1 rows", "1 rows", f"waits, {CHANGED}", "ended", "10", "given up", "20", "given up", "20", "10", "ended", "1,11 2,19"]),
    "PMP predicate reads": ([(1, "SELECT * FROM t WHERE value=30"), (2, "INSERT INTO t VALUES (3,30)"), (2, "C"),
                             (1, "SELECT * FROM t WHERE value%3=0"), (1, "C")],
                            ["", "1 rows", "ended", "", "ended"]),
    "PMP predicate writes": ([(1, "UPDATE t SET value=value+10"), (2, "SELECT * FROM t WHERE value=20"), (2, "DELETE FROM t WHERE value=20"), (1, "C"),
                              (2, "SELECT * FROM t WHERE value=20"), (2, "C"), (3, ALL)],
                             ["2 rows", "2,20", f"waits, {CHANGED}", "ended", "given up", "given up", "1,20 2,30"]),
    "P4 lost update": ([(1, ONE), (2, ONE), (1, put(1, 11)), (2, put(1, 11)), (1, "C"), (2, "C"), (3, ALL)],
                       ["10", "10", "1 rows", f"waits, {CHANGED}", "ended", "given up", "1,11 2,20"]),
    "P4 lost update, added up": ([(1, ONE), (2, ONE), (1, put(1, "value+1")), (2, put(1, "value+1")), (1, "C"), (2, "C"), (3, ALL)],
                                 ["10", "10", "1 rows", f"waits, {CHANGED}", "ended", "given up", "1,11 2,20"]),
    "P4 after the other's end": ([(1, ONE), (2, put(1, 11)), (2, "C"), (1, put(1, 12)), (1, "C"), (3, ALL)],
                                 ["10", "1 rows", "ended", CHANGED, "given up", "1,11 2,20"]),
    "P4 rolled back": ([(1, ONE), (2, put(1, 11)), (1, put(1, 12)), (2, "R"), (1, "C"), (3, ALL)],
                       ["10", "1 rows", "waits, 1 rows", "ended", "ended", "1,12 2,20"]),
    "G-single read skew": ([(1, ONE), (2, ALL), (2, put(1, 12)), (2, put(2, 18)), (2, "C"), (1, TWO), (1, "C")],
                           ["10", "1,10 2,20", "1 rows", "1 rows", "ended", "20", "ended"]),
    "G-single with predicates": ([(1, "SELECT * FROM t WHERE value%5=0"), (2, "UPDATE t SET value=12 WHERE value=10"), (2, "C"),
                                  (1, "SELECT * FROM t WHERE value%3=0"), (1, "C")],
                                 ["1,10 2,20", "1 rows", "ended", "", "ended"]),
    "G-single with a write": ([(1, ONE), (2, ALL), (2, put(1, 12)), (2, put(2, 18)), (2, "C"), (1, "DELETE FROM t WHERE id=2"), (1, TWO), (1, "C"), (3, ALL)],
                              ["10", "1,10 2,20", "1 rows", "1 rows", "ended", CHANGED, "given up", "given up", "1,12 2,18"]),
    "G2-item write skew": ([(1, ALL), (2, ALL), (1, put(1, 11)), (2, put(2, 21)), (1, "C"), (2, "C"), (3, ALL)],
                           ["1,10 2,20", "1,10 2,20", "1 rows", "1 rows", "ended", "ended", "1,11 2,21"]),
    "G2-item, read with locks": ([(1, "SELECT value FROM t WHERE id=1 FOR UPDATE"), (2, "SELECT value FROM t WHERE id=1 FOR UPDATE"), (1, put(1, 11)), (1, "C"),
                                  (2, put(1, 12)), (2, "C"), (3, ALL)],
                                 ["10", f"waits, {CHANGED}", "1 rows", "ended", "given up", "given up", "1,11 2,20"]),
    "G2 anti-dependency": ([(1, "SELECT * FROM t WHERE value%3=0"), (2, "SELECT * FROM t WHERE value%3=0"), (1, "INSERT INTO t VALUES (3,30)"),
                            (2, "INSERT INTO t VALUES (4,42)"), (1, "C"), (2, "C"), (3, ALL)],
                           ["", "", "1 rows", "1 rows", "ended", "ended", "1,10 2,20 3,30 4,42"]),
    "G2 with two edges": ([(1, ALL), (2, put(2, "value+5")), (2, "C"), (3, ALL), (3, "C"), (1, put(1, 0)), (1, "C"), (3, ALL)],
                          ["1,10 2,20", "1 rows", "ended", "1,10 2,25", "ended", "1 rows", "ended", "1,0 2,25"]),
    "a deadlock": ([(1, put(1, 11)), (2, put(2, 22)), (1, put(2, 12)), (2, put(1, 21)), (1, "C"), (2, "C")], None),
    "rows that another moves behind the scan": ([(1, "UPDATE t SET value=value-1 WHERE id<=2 ORDER BY id"),
                                                 (2, "UPDATE t FORCE INDEX(value) SET id=id+10 WHERE value>=0"), (1, "C"), (2, "C"), (3, ALL)], None),
    "rows that another moves behind the scan, backward": ([(1, "UPDATE t SET value=value+1 WHERE id<=2 ORDER BY id"),
                                                           (2, "UPDATE t FORCE INDEX(value) SET id=id+10 WHERE value>=0 ORDER BY value DESC"), (1, "C"), (2, "C"),
                                                           (3, ALL)], None),
    "a row that another puts in its place": ([(1, "DELETE FROM t WHERE id=1"), (1, "INSERT INTO t VALUES (1,10)"),
                                              (2, "UPDATE t FORCE INDEX(value) SET id=id+10 WHERE value BETWEEN 5 AND 15 ORDER BY value DESC"), (1, "C"),
                                              (2, "C"), (3, ALL)], None),
    "an UPDATE of a row that another inserts": ([(1, "INSERT INTO t VALUES (3,30)"), (2, put(3, 31)), (1, "C"), (2, "C"), (3, ALL)], None),
    "an UPDATE of rows one of which another inserts": ([(1, "INSERT INTO t VALUES (3,30)"), (2, "UPDATE t SET value=value+1 WHERE id>=2 ORDER BY id"), (1, "C"),
                                                        (2, "C"), (3, ALL)], None),
    "an UPDATE that passes a locked row": ([(1, put(1, 11)), (2, "UPDATE t IGNORE INDEX(value) SET value=5 WHERE value=20"), (1, "C"), (2, "C"), (3, ALL)], None),
    "a key that another commits": ([(1, "INSERT INTO t VALUES (3,30)"), (2, "INSERT INTO t VALUES (3,31)"), (1, "C"), (2, "C"), (3, ALL)],
                                   ["1 rows", f"waits, {DUPLICATE}", "ended", "ended", "1,10 2,20 3,30"]),
    "a key that another rolls back": ([(1, "INSERT INTO t VALUES (3,30)"), (2, "INSERT INTO t VALUES (3,31)"), (1, "R"), (2, "C"), (3, ALL)],
                                      ["1 rows", "waits, 1 rows", "ended", "ended", "1,10 2,20 3,31"]),
    "a key that another gives up": ([(1, "DELETE FROM t WHERE id=2"), (2, "INSERT INTO t VALUES (2,21)"), (1, "C"), (2, "C"), (3, ALL)],
                                    ["1 rows", "waits, 1 rows", "ended", "ended", "1,10 2,21"]),
    "a key that another keeps after all": ([(1, "DELETE FROM t WHERE id=2"), (2, "INSERT INTO t VALUES (2,21)"), (1, "R"), (2, "C"), (3, ALL)],
                                           ["1 rows", f"waits, {DUPLICATE}", "ended", "ended", "1,10 2,20"]),
    "a scan and a row that comes back": ([(1, "DELETE FROM t WHERE id=1"), (2, "UPDATE t SET value=value+1"), (1, "INSERT INTO t VALUES (1,30)"), (1, "C"),
                                          (2, "C"), (3, ALL)], None),
    "a scan and all rows anew": ([(1, "DELETE FROM t"), (2, "UPDATE t SET value=value+1"), (1, "INSERT INTO t VALUES (1,11),(2,21)"), (1, "C"), (2, "C"),
                                  (3, ALL)], None),
    "a scan and a row replaced": ([(1, put(1, 11)), (2, "DELETE FROM t WHERE value+0>0"), (1, "REPLACE INTO t VALUES (2,22),(3,33)"), (1, "C"), (2, ALL), (2, "C"),
                                   (3, ALL)], None),
    "a scan and a third one's row": ([(1, put(1, 11)), (2, "UPDATE t SET value=value+100"), (3, "DELETE FROM t WHERE id=2"), (3, "INSERT INTO t VALUES (2,22)"),
                                      (3, "C"), (1, "C"), (2, "C"), (3, ALL)], None),
    "a scan with locks and a row that comes back": ([(1, "DELETE FROM t WHERE id=2"), (2, "SELECT * FROM t WHERE value+0>0 ORDER BY id FOR UPDATE"),
                                                     (1, "INSERT INTO t VALUES (2,25)"), (1, "C"), (2, "C"), (3, ALL)], None),
    "a scan and a row that stays away": ([(1, "DELETE FROM t WHERE id=1"), (2, "UPDATE t SET value=value+1"), (1, "INSERT INTO t VALUES (1,30)"), (1, "R"),
                                          (2, "C"), (3, ALL)], None),
    "a row deleted since": ([(1, ALL), (2, "DELETE FROM t WHERE id=2"), (2, "C"), (1, put(2, 21)), (1, "C"), (3, ALL)],
                            ["1,10 2,20", "1 rows", "ended", CHANGED, "given up", "1,10"]),
    "a row moved since": ([(1, ALL), (2, "UPDATE t SET id=3 WHERE id=2"), (2, "C"), (1, "DELETE FROM t WHERE id=2"), (1, "C"), (3, ALL)],
                          ["1,10 2,20", "1 rows", "ended", CHANGED, "given up", "1,10 3,20"]),
    "a row deleted while it is waited for": ([(1, ALL), (2, "DELETE FROM t WHERE id=2"), (1, "SELECT value FROM t WHERE id=2 FOR UPDATE"), (2, "C"), (1, "C"), (3, ALL)],
                                             ["1,10 2,20", "1 rows", f"waits, {CHANGED}", "ended", "given up", "1,10"]),
    "rows deleted since, of a range": ([(1, ALL), (2, "DELETE FROM t WHERE id=1"), (2, "C"), (1, "UPDATE t SET value=value+1 WHERE id>0 ORDER BY id DESC"), (1, "C"),
                                        (3, ALL)], ["1,10 2,20", "1 rows", "ended", CHANGED, "given up", "2,20"]),
    "a key that moves": ([(1, "UPDATE t SET id=3 WHERE id=2"), (2, "UPDATE t SET id=3 WHERE id=1"), (1, "C"), (2, "C"), (3, ALL)],
                         ["1 rows", f"waits, {DUPLICATE}", "ended", "ended", "1,10 3,20"]),
}


# A key that others have taken from its row since the view, of a table with more columns and keys than those above.
MORE = ", note INT DEFAULT 7, other INT, KEY value (value), UNIQUE other (other)"
# The ways to read it: as it stands, by each key, with and without the row, forward and backward, a whole key, many at once, by
# places that were sorted, and the number that is kept.
LOOKS = [
    ALL, TWO, "SELECT COUNT(*) FROM t", "SELECT COUNT(*) FROM t WHERE note=7", "SELECT note FROM t WHERE id=2",
    "SELECT id,value FROM t IGNORE INDEX(PRIMARY,value,other) WHERE value+0>0 ORDER BY id+0",
    "SELECT id FROM t FORCE INDEX(PRIMARY) WHERE id BETWEEN 0 AND 9 ORDER BY id DESC", "SELECT * FROM t FORCE INDEX(PRIMARY) WHERE id>1 ORDER BY id",
    "SELECT value FROM t FORCE INDEX(value) WHERE value>=0 ORDER BY value", "SELECT * FROM t FORCE INDEX(value) WHERE value>=0 ORDER BY value DESC",
    "SELECT id,note FROM t FORCE INDEX(other) WHERE other IS NULL OR other>=0 ORDER BY id+0",
    "SET STATEMENT join_cache_level=8,optimizer_switch='mrr=on,mrr_cost_based=off' FOR SELECT t.id,t.note FROM seq_0_to_9 s JOIN t ON t.id=s.seq ORDER BY t.id+0",
    "SET STATEMENT join_cache_level=8,optimizer_switch='mrr=on,mrr_cost_based=off' FOR SELECT t.* FROM seq_0_to_99 s JOIN t FORCE INDEX(value) ON t.value=s.seq ORDER BY 1+t.id",
    "SET STATEMENT max_length_for_sort_data=4 FOR SELECT id,value,note FROM t IGNORE INDEX(PRIMARY,value,other) ORDER BY value+0",
]
LOOK = [(1, sql) for sql in LOOKS]
OPEN, DELETED, MOVED = [(1, ALL)], [(2, "DELETE FROM t WHERE id=2"), (2, "C")], [(2, "UPDATE t SET id=3 WHERE id=2"), (2, "C")]
REPLACED = [(2, "REPLACE INTO t (id,value) VALUES (2,22)"), (2, "C")]
OWN = "INSERT INTO t (id,value) VALUES (2,25)"


def taken(since, *statements):
    """What the view shows after each of these, once they are undone, and once they are done again."""
    did = [step for sql in statements for step in [(1, sql), *LOOK]]
    undone = [(1, "ROLLBACK TO a"), *LOOK]
    return [*OPEN, *since, *LOOK, (1, "SAVEPOINT a"), *did, *undone, *[(1, sql) for sql in statements], *LOOK, (1, "C"), *LOOK, (3, ALL)]


TAKEN = {
    "a deleted row's key, inserted": taken(DELETED, OWN),
    "a deleted row's key, its value too": taken(DELETED, "INSERT INTO t (id,value) VALUES (2,20)"),
    "a deleted row's key, inserted and deleted": taken(DELETED, OWN, "DELETE FROM t WHERE id=2", OWN),
    "a deleted row's key, given to another row": taken(DELETED, "UPDATE t SET id=2 WHERE id=1"),
    "a deleted row's key, replaced": taken(DELETED, "REPLACE INTO t (id,value) VALUES (2,25),(1,11)"),
    "a deleted row's key, on duplicate": taken(DELETED, OWN + " ON DUPLICATE KEY UPDATE value=value+1", OWN + " ON DUPLICATE KEY UPDATE value=value+1"),
    "a deleted row's key, one of many": taken(DELETED, "INSERT INTO t (id,value) VALUES (3,30),(2,25),(4,40)"),
    "a deleted row's key, of a statement that fails": taken(DELETED, "INSERT INTO t (id,value) VALUES (2,25),(1,1)"),
    "a deleted row's key, from a table": taken(DELETED, "INSERT INTO t (id,value) SELECT seq,seq*10+3 FROM seq_2_to_5"),
    "a key of all rows deleted": taken([(2, "DELETE FROM t"), (2, "C")], OWN, "INSERT INTO t (id,value) VALUES (1,15)"),
    "a moved row's key, inserted": taken(MOVED, OWN, "UPDATE t SET value=33 WHERE id=3"),
    "a moved row's key, given back": taken(MOVED, "UPDATE t SET id=2 WHERE id=3"),
    "a moved row's key, and the row deleted": taken(MOVED, OWN, "DELETE FROM t WHERE id=3"),
    "a replaced row's key, updated": taken(REPLACED, "UPDATE t SET value=26 WHERE id=2"),
    "a replaced row's key, deleted": taken(REPLACED, "DELETE FROM t WHERE id=2"),
    "a replaced row's key, deleted and inserted": taken(REPLACED, "DELETE FROM t WHERE id=2", OWN),
    "a replaced row's key, moved": taken(REPLACED, "UPDATE t SET id=5 WHERE id=2"),
    "a replaced row's key, replaced": taken(REPLACED, "REPLACE INTO t (id,value) VALUES (2,25)"),
}


def is_waiting(control, engine, connection_id):
    """Does a connection wait for a lock of an engine? innodb_trx would tell, but for a tenth of a second what was true before."""
    if engine == "Esker":
        return control.one(f"SELECT COUNT(*) FROM information_schema.esker_lock_waits WHERE waiting_connection={connection_id}") != "0"
    # The latest deadlock is told before the first of them: who waited then may do something else now.
    transactions = control.query("SHOW ENGINE INNODB STATUS").rows[0][2].split("---TRANSACTION")[1:]
    return any(f"thread id {connection_id}," in t and "LOCK WAIT" in t for t in transactions)


class Session:
    """A connection, and the statement that it may be waiting with."""

    def __init__(self, server, engine, control, level, snapshots):
        self.connection, self.control, self.engine = server.connect("iso"), control, engine
        for sql in (f"SET SESSION TRANSACTION ISOLATION LEVEL {level}", f"SET esker_snapshot_isolation={snapshots}", f"SET innodb_snapshot_isolation={snapshots}"):
            self.connection.query(sql)
        self.id = self.connection.one("SELECT CONNECTION_ID()")
        self.thread = self.said = None
        self.over = False  # an error has ended its transaction

    def begin(self, opens_view):
        """A transaction, with a view from its beginning or not."""
        self.over = False
        self.connection.query("BEGIN")
        if opens_view:
            self.connection.query("SELECT COUNT(*) FROM t")

    def _run(self, sql):
        try:
            done = self.connection.query({"C": "COMMIT", "R": "ROLLBACK"}.get(sql, sql))
            self.said = "ended" if sql in "CR" else " ".join(",".join(v or "NULL" for v in row) for row in done.rows) if done.names else f"{done.affected} rows"
        except SqlError as e:
            self.said, self.over = f"error {e.errno}", e.errno in (1020, 1205, 1213)

    def say(self, sql):
        """True if the statement has to wait."""
        if self.over:
            self.said = "given up"
            return False
        self.said, self.thread = None, threading.Thread(target=self._run, args=(sql,), daemon=True)
        self.thread.start()
        end = time.monotonic() + LONGEST_S
        while self.thread.is_alive() and time.monotonic() < end:
            self.thread.join(0.002)
            if is_waiting(self.control, self.engine, self.id) and self.thread.is_alive():
                return True
        return self.thread.is_alive()

    def answer(self):
        """What the last statement said; it does not wait any longer than others make it."""
        if self.thread:
            self.thread.join(LONGEST_S)
        return "no answer" if self.said is None else self.said


def play(server, engine, control, script, level, snapshots, keys):
    """What each statement says, in the order of the script."""
    control.query(f"CREATE OR REPLACE TABLE iso.t (id INT PRIMARY KEY, value INT{keys}) ENGINE={engine}")
    control.query("INSERT INTO iso.t (id,value) VALUES (1,10),(2,20)")
    sessions = {n: Session(server, engine, control, level, snapshots) for n in sorted({n for n, _ in script})}
    said, waits = [""] * len(script), {}
    # Who only looks afterwards has no view from before.
    first = {n: next(sql for m, sql in script if m == n) for n in sessions}
    for n, s in sessions.items():
        if (n, first[n]) != script[-1]:
            s.begin(snapshots == "ON")

    def settle(n):
        if n in waits:
            answer = sessions[n].answer()
            said[waits.pop(n)] = answer if answer == DEADLOCK else f"waits, {answer}"  # its wait is short, and may be seen or not

    for at, (n, sql) in enumerate(script):
        if (n, sql) == script[-1]:
            for m in list(waits):
                settle(m)
        settle(n)
        if sessions[n].say(sql):
            waits[n] = at
        else:
            said[at] = sessions[n].answer()
    for n in list(waits):
        settle(n)
    for s in sessions.values():
        s.connection.close()
    return said


@pytest.fixture(scope="module")
def iso(module_servers):
    """A server with both engines, and a connection that looks on."""
    s = module_servers("isolation", {"innodb_lock_wait_timeout": LONGEST_S, "esker_lock_wait_timeout": LONGEST_S}, ["ESKER"])
    s.create(fresh=True)
    s.start()
    c = s.connect()
    c.query("CREATE DATABASE iso")
    yield s, c
    c.close()


def differences(script, names, outcomes):
    """Statements that did not say the same."""
    a, b = outcomes
    return [f"session {n}: {sql}: {names[0]} '{x}', {names[1]} '{y}'" for (n, sql), x, y in zip(script, a, b) if x != y]


@pytest.mark.parametrize("keys", ["", ", KEY value (value)"], ids=["primary", "value"])
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("name", CASES)
def test_as_innodb(iso, name, level, keys):
    """Without snapshot isolation."""
    server, control = iso
    script = CASES[name][0]
    outcomes = [play(server, engine, control, script, level, "OFF", keys) for engine in ENGINES]
    none_of(differences(script, ENGINES, outcomes))


@pytest.mark.parametrize("keys", ["", ", KEY value (value)"], ids=["primary", "value"])
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[1]])
def test_snapshots(iso, name, keys):
    """With snapshot isolation: as is known of PostgreSQL."""
    server, control = iso
    script, wanted = CASES[name]
    outcomes = [wanted, play(server, "Esker", control, script, "REPEATABLE READ", "ON", keys)]
    none_of(differences(script, ["known", "Esker"], outcomes))


@pytest.mark.parametrize("columns", ["t TEXT, UNIQUE (t)", "t TEXT, s DATE DEFAULT '2020-01-01', e DATE DEFAULT '2021-01-01', PERIOD FOR p (s,e), UNIQUE (value, p WITHOUT OVERLAPS)"], ids=["long", "periods"])
def test_whether_a_key_is_free_is_no_read_of_the_view(iso, columns):
    """What the server asks for its own UNIQUE keys, with snapshot isolation: a key that another has given up is free."""
    server, control = iso
    control.query(f"CREATE OR REPLACE TABLE iso.t (id INT PRIMARY KEY, value INT, {columns}) ENGINE=Esker")
    control.query("INSERT INTO iso.t (id,value,t) VALUES (1,10,'x'),(2,20,'y'),(3,30,'z')")
    a, b = (server.connect("iso") for _ in range(2))
    for sql in ("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SET esker_snapshot_isolation=ON", "BEGIN", "SELECT COUNT(*) FROM t"):
        a.query(sql)
    b.query("DELETE FROM t WHERE id=2")
    if "PERIOD" in columns:
        a.query("INSERT INTO t (id,value,t,s,e) VALUES (5,10,'a','2022-01-01','2023-01-01'), (6,20,'y','2020-01-01','2021-01-01')")
    else:
        a.query("INSERT INTO t (id,value,t) VALUES (5,20,'y')")
    a.query("COMMIT")
    assert [row[-1] for row in control.query("CHECK TABLE iso.t EXTENDED").rows] == ["OK"]
    a.close()
    b.close()


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("name", TAKEN)
def test_one_row_of_a_key(iso, name, level):
    """A view shows one row of a primary key, by every way of reading: the own one, if there is one."""
    server, control = iso
    script = TAKEN[name]
    outcomes = [play(server, engine, control, script, level, "OFF", MORE) for engine in ENGINES]
    none_of(differences(script, ENGINES, outcomes))
