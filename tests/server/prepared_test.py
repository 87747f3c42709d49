"""A prepared XA transaction of very many rows, over a kill of the server: the restart reads little for it, whatever it has done, and
its rows and keys are locked until it is decided.

    PREPARED_ROWS=200000     rows that it inserts, updates and deletes, by turns
"""
import time

from cases import check
from eskerlib import env, server, show
from eskerlib.client import SqlError

ROWS = env.number("PREPARED_ROWS", 200_000, least=1000)
MIB = 1 << 20
# What a restart replays of the log, at most: a transaction's runs are named there, not their rows.
MOST_REPLAYED = 4 * MIB
STEPS = [
    ("insert", f"INSERT INTO t SELECT seq,seq%1000003,CONCAT('row ',seq) FROM seq_1_to_{ROWS}", f"INSERT INTO t VALUES ({ROWS // 2},1,'')", ROWS),
    ("update", "UPDATE t SET a=a+1", f"UPDATE t SET b='' WHERE id={ROWS // 2}", ROWS),
    ("delete", "DELETE FROM t WHERE id>0", f"UPDATE t SET b='' WHERE id={ROWS // 2}", 0),
]


def is_refused(c, sql):
    """Does it wait for a lock until its time is over?"""
    try:
        c.query(sql)
        return False
    except SqlError as e:
        return e.errno == 1205


def test_prepared_over_a_restart(servers):
    """By turns: done, prepared, killed, looked at, decided, killed."""
    s = servers("prepared", server.measured_settings())
    s.create(fresh=True)
    s.start()
    c = s.connect(timeout=1800)
    c.query("CREATE DATABASE test")
    c.query("CREATE TABLE test.t (id BIGINT PRIMARY KEY, a INT, b VARCHAR(40), KEY (a)) ENGINE=Esker CHARSET=latin1")
    for what, sql, other, rows in STEPS:
        c = s.connect("test", timeout=1800)
        for text in ("XA START 'x'", sql, "XA END 'x'", "XA PREPARE 'x'"):
            c.query(text)
        s.kill()
        begin = time.monotonic()
        s.start()
        took = time.monotonic() - begin
        c = s.connect("test", timeout=1800)
        replayed = int(c.one("SELECT VARIABLE_VALUE FROM information_schema.global_status WHERE VARIABLE_NAME='Esker_recovery_bytes'"))
        show.say(f"{what} of {ROWS:,} rows prepared: the restart took {took:.2f} s and read {replayed:,} bytes of log")
        check(len(c.query("XA RECOVER").rows) == 1 and replayed <= MOST_REPLAYED, f"{what}: it is there, and little was read")
        c.query("SET esker_lock_wait_timeout=1")
        check(is_refused(c, other), f"{what}: its rows and keys are locked")
        c.query("XA COMMIT 'x'")
        check(c.one("SELECT COUNT(*) FROM t") == str(rows) and not c.query("XA RECOVER").rows, f"{what}: decided, and it shows")
        s.kill()
        s.start()
        c = s.connect("test", timeout=1800)
        check(c.one("SELECT COUNT(*) FROM t") == str(rows), f"{what}: for good")
    check([row[-1] for row in c.query("CHECK TABLE t EXTENDED").rows] == ["OK"], "rows and keys agree")
    c.close()
    s.stop()
