"""Many sessions add to few rows, in every way that loses nothing, and no addition is lost.

A row is added to by one statement, by what was read under a lock, by what a snapshot has shown where esker_snapshot_isolation=ON,
and with a second row in one transaction, in any order. What meets a conflict (1020), a deadlock (1213) or a timeout (1205) is
rolled back and tried again. Who is told that a transaction is committed notes it for each of its rows, in a table of its own that
knows no transactions; in the end each row holds what was noted, by both of its indexes. Most sessions work in a procedure, some
from outside.

    COMMITS=30000    transactions in all (10000000 in the long run)
    ENGINE=          another engine in Esker's place, to compare the rate that is printed
"""
import os
import random
import threading
import time

import pytest

from cases import SEED, check, none_of
from eskerlib import env, server
from eskerlib.client import SqlError

COMMITS = env.number("COMMITS", 30000)
ENGINE = os.environ.get("ENGINE", "Esker")
SESSIONS, OUTSIDE, ROWS = 32, 4, 16
ONE, LOCKED, SNAPSHOT, TWO = WAYS = range(4)
REFUSED = {1020: "conflicts", 1213: "deadlocks", 1205: "timeouts"}
FROM_OUTSIDE = 50  # one in so many transactions of a session's share
LEAST = {"conflicts": 20, "deadlocks": 5}
BEYOND = 3600 + COMMITS // 200  # seconds

# told: -1 and below are what was refused, by its kind.
PROCEDURE = f"""CREATE PROCEDURE app.go(way INT, commits INT)
BEGIN
  DECLARE done, k, j INT DEFAULT 0;
  DECLARE x BIGINT;
  WHILE done<commits DO
    BEGIN
      DECLARE EXIT HANDLER FOR 1020 BEGIN ROLLBACK; UPDATE told SET n=n+1 WHERE id=-1020; END;
      DECLARE EXIT HANDLER FOR 1213 BEGIN ROLLBACK; UPDATE told SET n=n+1 WHERE id=-1213; END;
      DECLARE EXIT HANDLER FOR 1205 BEGIN ROLLBACK; UPDATE told SET n=n+1 WHERE id=-1205; END;
      SET k=FLOOR(RAND()*{ROWS}), j=FLOOR(RAND()*{ROWS});
      IF way={ONE} THEN UPDATE hot SET v=v+1 WHERE id=k;
      ELSEIF way={LOCKED} THEN
        START TRANSACTION;
        SELECT v INTO x FROM hot WHERE id=k FOR UPDATE;
        UPDATE hot SET v=x+1 WHERE id=k;
        COMMIT;
      ELSEIF way={SNAPSHOT} THEN
        START TRANSACTION;
        SELECT v INTO x FROM hot WHERE id=k;
        UPDATE hot SET v=x+1 WHERE id=k;
        COMMIT;
      ELSE
        START TRANSACTION;
        UPDATE hot SET v=v+1 WHERE id=k;
        SELECT v INTO x FROM hot WHERE id=j FOR UPDATE;
        UPDATE hot SET v=x+1 WHERE id=j;
        COMMIT;
        UPDATE told SET n=n+1 WHERE id=j;
      END IF;
      UPDATE told SET n=n+1 WHERE id=k;
      SET done=done+1;
    END;
  END WHILE;
END"""


class Session(threading.Thread):
    """One of them, with a share of the transactions."""

    def __init__(self, srv, number, commits):
        super().__init__(daemon=True)
        self.server, self.number, self.commits = srv, number, commits
        self.way, self.told, self.error = WAYS[number % len(WAYS)], {}, None
        self.random = random.Random(SEED * 1000 + number)

    def run(self):
        """All of its share."""
        try:
            self.connection = self.server.connect("app", timeout=BEYOND)
            if ENGINE == "Esker":
                self.connection.query(f"SET esker_snapshot_isolation={'ON' if self.way == SNAPSHOT else 'OFF'}")
            self.connection.query("CREATE TEMPORARY TABLE told (id INT PRIMARY KEY, n BIGINT NOT NULL) ENGINE=MEMORY")
            ids = [*range(ROWS), *(-errno for errno in REFUSED)]
            self.connection.query(f"INSERT INTO told VALUES {','.join(f'({n},0)' for n in ids)}")
            outside = self.commits // FROM_OUTSIDE if self.number < OUTSIDE * len(WAYS) else 0
            told = self.go(outside)
            self.connection.query(f"CALL go({self.way},{self.commits - outside})")
            for n, count in self.connection.query("SELECT id,n FROM told").rows:
                told[int(n)] = told.get(int(n), 0) + int(count)
            self.told = told
            self.connection.close()
        except Exception as e:  # whatever it is, the case must fail of it
            self.error = f"session {self.number}: {e!r}"

    def go(self, commits):
        """As the procedure, a statement at a time; what it was told."""
        told, done = {}, 0
        while done < commits:
            rows = [self.random.randrange(ROWS) for _ in range(2 if self.way == TWO else 1)]
            try:
                if self.way == ONE:
                    self.connection.query(f"UPDATE hot SET v=v+1 WHERE id={rows[0]}")
                else:
                    self.transaction(rows)
            except SqlError as e:
                if e.errno not in REFUSED:
                    raise
                self.connection.query("ROLLBACK")
                rows = [-e.errno]
            for k in rows:
                told[k] = told.get(k, 0) + 1
            done += rows[0] >= 0
        return told

    def transaction(self, rows):
        """BEGIN to COMMIT."""
        self.connection.query("BEGIN")
        for k in rows:
            v = self.connection.one(f"SELECT v FROM hot WHERE id={k}{'' if self.way == SNAPSHOT else ' FOR UPDATE'}")
            self.connection.query(f"UPDATE hot SET v={int(v) + 1} WHERE id={k}")
        self.connection.query("COMMIT")


@pytest.fixture(scope="module")
def app(module_servers):
    """A server with the rows, and a connection that looks on."""
    settings = {**server.small_settings(), "max_connections": SESSIONS + 20, "esker_flush_log_at_trx_commit": 2, "innodb_flush_log_at_trx_commit": 2}
    s = module_servers("hot", settings)
    s.create(fresh=True)
    s.start()
    c = s.connect(timeout=BEYOND)
    c.query("CREATE DATABASE app")
    c.query(f"CREATE TABLE app.hot (id INT PRIMARY KEY, v BIGINT NOT NULL, KEY (v)) ENGINE={ENGINE}")
    c.query("INSERT INTO app.hot VALUES " + ",".join(f"({k},0)" for k in range(ROWS)))
    c.query(PROCEDURE)
    yield s, c
    c.close()


def test_hot_rows(app, again):
    """No addition is lost."""
    s, control = app
    again(SEED=SEED, COMMITS=COMMITS)
    sessions = [Session(s, n, COMMITS // SESSIONS) for n in range(SESSIONS)]
    started = time.monotonic()
    for one in sessions:
        one.start()
    for one in sessions:
        one.join(BEYOND)
    took = time.monotonic() - started
    none_of([one.error for one in sessions if one.error] + [f"session {one.number} hangs" for one in sessions if one.is_alive()])
    told = {}
    for one in sessions:
        for k, n in one.told.items():
            told[k] = told.get(k, 0) + n
    seen = {what: told.get(-errno, 0) for errno, what in REFUSED.items()}
    counters = {name: int(n) for name, n in control.query("SHOW GLOBAL STATUS WHERE variable_name IN ('Esker_lock_waits','Esker_deadlocks')").rows}
    print(f"{COMMITS} commits in {took:.1f} s; {seen}, {counters}", flush=True)
    for index in ("PRIMARY", "v"):
        rows = {int(k): int(v) for k, v in control.query(f"SELECT id,v FROM app.hot FORCE INDEX ({index}) WHERE id>=0 AND v>=0").rows}
        wrong = [f"row {k} holds {rows.get(k)} by {index}, of {told.get(k, 0)} that were acknowledged" for k in range(ROWS) if rows.get(k) != told.get(k, 0)]
        none_of(wrong + ([f"rows {sorted(rows)} by {index}"] if len(rows) != ROWS else []))
    check(sum(n for k, n in told.items() if k >= 0) >= COMMITS // SESSIONS * SESSIONS, "all sessions have done their share")
    check(control.query("CHECK TABLE app.hot EXTENDED").rows[0][3] == "OK", "the table is sound")
    if ENGINE == "Esker":
        few = [f"too few {what}: {seen[what]} of {least}" for what, least in LEAST.items() if seen[what] < least]
        none_of(few + [f"no {name}" for name, n in counters.items() if not n] + (["no counters"] if len(counters) < 2 else []))
