"""What there is to see of the engine, asked when that is not easy: INFORMATION_SCHEMA's tables and SHOW ENGINE."""
import threading
import time

import pytest

from cases import check
from eskerlib import server
from eskerlib.client import Lost, SqlError

TABLES = ("trx", "locks", "lock_waits", "metrics", "files", "memory", "waits", "wait_hist")


@pytest.fixture
def s(request, servers):
    """A server of the case's own."""
    return servers("visible-" + request.node.name.removeprefix("test_"), server.small_settings())


def error_of(c, sql):
    """The error's number; 0 if there was none."""
    try:
        c.query(sql)
        return 0
    except SqlError as e:
        return e.errno


def test_plugin(s):
    """The engine comes and goes while sessions ask what there is to see: its tables of INFORMATION_SCHEMA are plugins of their own."""
    rounds, answers, problems, done = 40, [0] * 5, [], threading.Event()
    s.create(fresh=True)
    s.start()
    c = s.connect()
    c.query("CREATE DATABASE test")
    for n in range(200):  # so that an answer takes a while
        c.query(f"CREATE TABLE test.t{n} (a INT PRIMARY KEY) ENGINE=Esker")

    def ask(number):
        """All five together are on each of the tables."""
        reader = s.connect()
        try:
            while not done.is_set():
                for table in TABLES[number:] + TABLES[:number]:
                    reader.query(f"SELECT * FROM information_schema.esker_{table}")
                    answers[number] += 1
        except (Lost, SqlError) as e:
            problems.append(str(e))

    threads = [threading.Thread(target=ask, args=(n,), daemon=True) for n in range(5)]
    for t in threads:
        t.start()
    came, end = 0, time.monotonic() + 120
    try:
        while came < rounds and time.monotonic() < end:
            c.query("FLUSH TABLES")
            # Refused as long as somebody holds it up: it goes with the last of them, and comes again after that.
            error_of(c, "UNINSTALL PLUGIN esker")
            came += error_of(c, "INSTALL PLUGIN esker SONAME 'ha_esker'") == 0
    except Lost as e:
        problems.append(str(e))
    done.set()
    for t in threads:
        t.join(60)
    check(not problems and came == rounds, f"the engine came and went {came} times while sessions asked: {answers} answers, problems {problems[:2]}")
    check(min(answers) > 20, f"each of them was asked: {answers}")
    c.close()


def test_install(s):
    """INSTALL PLUGIN recovers for a while, in which others name the engine already."""
    s.create(fresh=True)
    s.start()
    c = s.connect()
    c.query("CREATE DATABASE test")
    c.query("USE test")
    c.query("CREATE TABLE t (a INT PRIMARY KEY, b CHAR(100)) ENGINE=Esker")
    for n in range(100):  # small ones, which go through the log
        c.query(f"INSERT INTO t SELECT {n}*1000+seq,seq FROM seq_1_to_1000")
    c.close()
    s.kill()
    s.engines = set()
    s.start()
    done, heard = threading.Event(), {0: 0, 1286: 0}

    def ask():
        asker = s.connect()
        while not done.is_set():
            errno = error_of(asker, "SHOW ENGINE ESKER STATUS")
            heard[errno] = heard.get(errno, 0) + 1

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(3)]
    for t in threads:
        t.start()
    c = s.connect()
    began = sum(heard.values())
    check(error_of(c, "INSTALL SONAME 'ha_esker'") == 0, "the engine is installed")
    asked = sum(heard.values()) - began
    end = time.monotonic() + 60
    while not heard[0] and time.monotonic() < end:
        time.sleep(0.01)
    done.set()
    for t in threads:
        t.join(60)
    check(asked > 20 and heard[0] > 0 and len(heard) == 2, f"meanwhile {asked} asked for it; then it answers: {heard}")
    check(c.one("SELECT COUNT(*) FROM test.t") == "100000", "the rows are there")
    c.close()
