"""A server whose Esker can write no more, while the binary log asks whether all is durable.

RESET MASTER waits for that answer and holds up every commit of the server; a shutdown closes the binary log as if recovery
needed nothing of it. In both cases the server must end by itself within a bounded time, say why, and the next start must have
every acknowledged row. Binlog rotation and other engines go on until then.
"""
import os
import threading
import time

import pytest

from cases import attempt, check
from eskerlib import server

MIB = 1 << 20
GONE_WITHIN_S = 120  # Esker waits for ten seconds; the server then writes down where it was
STEP = 100  # rows of an insert


def stop_writing(s, c):
    """Makes the next manifest impossible and writes until Esker has stopped; how many rows were acknowledged."""
    os.mkdir(os.path.join(s.data, "#esker", "MANIFEST.new"))
    rows, why = 0, ""
    deadline = time.monotonic() + 300
    while not why and time.monotonic() < deadline:
        why = attempt(c, f"INSERT INTO test.t SELECT {rows}+seq,REPEAT(MD5(seq),100) FROM seq_1_to_{STEP}")
        rows += 0 if why else STEP
    check("stopped" in why or "restart" in why, f"writing stops with a clear error after {rows} rows: {why[:150]}")
    return rows


def mend(s):
    """The folder as it was."""
    os.rmdir(os.path.join(s.data, "#esker", "MANIFEST.new"))


def reset_master(c):
    """The client waits, or is cut off."""
    threading.Thread(target=attempt, args=(c, "RESET MASTER"), daemon=True).start()


def shutdown(c):
    """By statement."""
    attempt(c, "SHUTDOWN")


@pytest.mark.parametrize("end", [reset_master, shutdown])
def test_stopped_log(servers, end):
    """One life: create, stop writing, `end` it, restart, count."""
    settings = dict(server.small_settings(), esker_wal_segment_size=MIB, esker_memory_limit=32 * MIB, esker_recovery_target_seconds=1,
                    log_bin="binlog", server_id=1)
    s = servers(f"stopped-{end.__name__}", settings)
    s.create(fresh=True)
    s.start()
    c = s.connect(timeout=120)
    c.query("CREATE DATABASE test")
    c.query("USE test")
    c.query("CREATE TABLE test.t (a INT, b TEXT) ENGINE=Esker")
    c.query("CREATE TABLE test.i (a INT) ENGINE=InnoDB")
    c.query("CREATE TABLE test.x (a INT, b INT, KEY a (a), UNIQUE b (b)) ENGINE=Esker")
    c.query("CREATE TABLE test.p (a INT, b INT, UNIQUE b (b), KEY a (a)) ENGINE=Esker PARTITION BY RANGE (b) (PARTITION p0 VALUES LESS THAN (100))")
    c.query("INSERT INTO test.x VALUES (1,10),(2,20)")
    c.query("ALTER TABLE test.p EXCHANGE PARTITION p0 WITH TABLE test.x")
    c.query("CREATE TABLE test.d (a INT) ENGINE=Esker")
    for xid, row in (("d", 1), ("r", 2)):
        prepared = s.connect("test")
        for sql in (f"XA START '{xid}'", f"INSERT INTO d VALUES ({row})", f"XA END '{xid}'", f"XA PREPARE '{xid}'"):
            prepared.query(sql)
        prepared.close()
    rows = stop_writing(s, c)
    for sql in ("XA COMMIT 'd'", "XA ROLLBACK 'r'", "XA ROLLBACK 'r'"):
        decided = attempt(c, sql)
        check(decided.startswith("1") and "stopped" in decided, f"{sql}: a decision that cannot become durable is an error ({decided[:150]})")
    check(attempt(c, "INSERT INTO test.i VALUES (1)") == "", "other engines go on")
    check(attempt(c, "FLUSH BINARY LOGS") == "", "the binary log can be rotated")
    check(attempt(c, "INSERT INTO test.i VALUES (2)") == "", "and commits go on after it")
    check(attempt(c, "SELECT COUNT(*) FROM test.t") == "", "reads go on")
    found = c.query("SELECT a FROM test.p FORCE INDEX (b) WHERE b=20 UNION ALL SELECT COUNT(*) FROM test.x").rows
    check([row[0] for row in found] == ["2", "0"], f"of tables that nobody has opened since their keys got another order, too ({found})")
    start, pid = os.path.getsize(s.log), s.pid()
    begin = time.monotonic()
    end(c)
    gone = s._wait_gone(pid, GONE_WITHIN_S)
    check(gone, f"the server is gone after {time.monotonic() - begin:.0f} s")
    said = [line for line in s.log_tail(start, 400).splitlines() if "Esker" in line and "ERROR" in line]
    check(any("recover" in line for line in said), f"the error log says why and what comes next: {said[:2]}")
    s.kill()
    mend(s)
    s.start()
    c = s.connect(timeout=120)
    got = c.one(f"SELECT COUNT(*) FROM test.t WHERE b=REPEAT(MD5((a-1)%{STEP}+1),100)")
    check(got == str(rows), f"after the restart all {rows} acknowledged rows are there ({got})")
    check(c.one("SELECT COUNT(*) FROM test.i") == "2", "and those of the other engine")
    decided = [attempt(c, "XA COMMIT 'd'"), attempt(c, "XA ROLLBACK 'r'"), c.one("SELECT GROUP_CONCAT(a) FROM test.d")]
    check(decided == ["", "", "1"], f"what was not decided is there to be ({decided})")
    said = [row[-1] for row in c.query("CHECK TABLE test.p, test.x EXTENDED").rows]
    check(said == ["OK", "OK"] and c.one("SELECT b FROM test.p FORCE INDEX (a) WHERE a=2") == "20", f"both tables have their keys ({said})")
    check(attempt(c, "INSERT INTO test.t VALUES (0,'')") == "", "rows go in again")
    check(attempt(c, "RESET MASTER") == "", "RESET MASTER works again")
    c.close()
    check(s.stop(), "and the shutdown is orderly")
