#!/usr/bin/python3
"""stopped_log_test.py: a server whose Esker can write no more, while the binary log asks whether all is durable.

RESET MASTER waits for that answer and holds up every commit of the server; a shutdown closes the binary log as if recovery
needed nothing of it. In both cases the server must end by itself within a bounded time, say why, and the next start must have
every acknowledged row. Binlog rotation and other engines go on until then.
"""
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
from eskerlib import server, show  # noqa: E402
from eskerlib.client import Lost, SqlError  # noqa: E402

MIB = 1 << 20
GONE_WITHIN_S = 60
STEP = 100  # rows of an insert
problems = []


def check(good, what):
    """One thing that must hold."""
    show.say(("ok: " if good else "PROBLEM: ") + what)
    if not good:
        problems.append(what)


def attempt(c, sql):
    """The error's words; '' if there was none; 'lost' if no answer came."""
    try:
        c.query(sql)
        return ""
    except SqlError as e:
        return f"{e.errno} {e.text}"
    except Lost:
        return "lost"


def stop_writing(s, c):
    """Makes the next manifest impossible and writes until Esker has stopped; how many rows were acknowledged."""
    os.mkdir(os.path.join(s.data, "#esker", "MANIFEST.new"))
    rows, why = 0, ""
    deadline = time.monotonic() + 120
    while not why and time.monotonic() < deadline:
        why = attempt(c, f"INSERT INTO test.t SELECT {rows}+seq,REPEAT(MD5(seq),100) FROM seq_1_to_{STEP}")
        rows += 0 if why else STEP
    check("stopped" in why or "restart" in why, f"writing stops with a clear error after {rows} rows: {why[:150]}")
    return rows


def mend(s):
    """The folder as it was."""
    os.rmdir(os.path.join(s.data, "#esker", "MANIFEST.new"))


def case(s, what, end):
    """One life: create, stop writing, `end` it, restart, count."""
    s.create(fresh=True)
    s.start()
    c = s.connect(timeout=120)
    c.query("CREATE DATABASE test")
    c.query("USE test")
    c.query("CREATE TABLE test.t (a INT, b TEXT) ENGINE=Esker")
    c.query("CREATE TABLE test.i (a INT) ENGINE=InnoDB")
    rows = stop_writing(s, c)
    check(attempt(c, "INSERT INTO test.i VALUES (1)") == "", f"{what}: other engines go on")
    check(attempt(c, "FLUSH BINARY LOGS") == "", f"{what}: the binary log can be rotated")
    check(attempt(c, "INSERT INTO test.i VALUES (2)") == "", f"{what}: and commits go on after it")
    check(attempt(c, "SELECT COUNT(*) FROM test.t") == "", f"{what}: reads go on")
    start, pid = os.path.getsize(s.log), s.pid()
    begin = time.monotonic()
    end(s, c)
    gone = s._wait_gone(pid, GONE_WITHIN_S)
    check(gone, f"{what}: the server is gone after {time.monotonic() - begin:.0f} s")
    said = [line for line in s.log_tail(start, 400).splitlines() if "Esker" in line and "ERROR" in line]
    check(any("recover" in line for line in said), f"{what}: the error log says why and what comes next: {said[:2]}")
    s.kill()
    mend(s)
    s.start()
    c = s.connect(timeout=120)
    got = c.one(f"SELECT COUNT(*) FROM test.t WHERE b=REPEAT(MD5((a-1)%{STEP}+1),100)")
    check(got == str(rows), f"{what}: after the restart all {rows} acknowledged rows are there ({got})")
    check(c.one("SELECT COUNT(*) FROM test.i") == "2", f"{what}: and those of the other engine")
    check(attempt(c, "INSERT INTO test.t VALUES (0,'')") == "", f"{what}: rows go in again")
    check(attempt(c, "RESET MASTER") == "", f"{what}: RESET MASTER works again")
    c.close()
    check(s.stop(), f"{what}: and the shutdown is orderly")


def reset_master(_s, c):
    """The client waits, or is cut off."""
    threading.Thread(target=attempt, args=(c, "RESET MASTER"), daemon=True).start()


def shutdown(_s, c):
    """By statement."""
    attempt(c, "SHUTDOWN")


def main():
    if len(sys.argv) > 1:
        print(__doc__.strip())
        sys.exit(0 if sys.argv[1] in ("-h", "--help") else 2)
    settings = dict(server.small_settings(), esker_wal_segment_size=MIB, esker_memory_limit=32 * MIB, esker_recovery_target_seconds=1,
                    log_bin="binlog", server_id=1)
    s = server.Server("stopped", settings, ["ESKER"])
    try:
        case(s, "RESET MASTER", reset_master)
        case(s, "SHUTDOWN", shutdown)
    except (RuntimeError, SqlError, Lost) as e:
        problems.append(str(e))
        print(f"PROBLEM: {type(e).__name__}: {e}\n{s.log_tail()}")
        s.kill()
    if not problems:
        s.remove()
    print(f"stopped log: {'the server ended by itself each time, nothing was lost' if not problems else str(len(problems)) + ' problems'}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
