"""What there is to see of the engine, asked when that is not easy: INFORMATION_SCHEMA's tables and SHOW ENGINE."""
import os
import re
import shutil
import signal
import subprocess
import threading
import time

import pytest

from cases import check
from eskerlib import env, server, show
from eskerlib.client import Lost, SqlError
from eskerlib.disk import CannotHere, Disk, run

TABLES = ("trx", "locks", "lock_waits", "metrics", "files", "memory", "waits", "wait_hist", "table_stats", "mutexes", "mutex_stacks")


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
    came, end = 0, time.monotonic() + 600
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


def serves(s, c):
    """The server answers statements and connections of all kinds, and has not died meanwhile."""
    pid = s.pid()
    for sql in ("SELECT 1", "DO SLEEP(0)", "CREATE DATABASE IF NOT EXISTS test", "CREATE OR REPLACE TABLE test.u (a INT) ENGINE=MyISAM",
                "SHOW PLUGINS", "SHOW GLOBAL STATUS"):
        c.query(sql)
    s.connect("test").close()
    return pid is not None and s.pid() == pid


def test_alone(s):
    """Each of the plugins is there without the engine: what it shows is nothing, and the server goes on."""
    s.engines = set()
    s.create(fresh=True)
    s.start()
    c = s.connect()
    # A session of before, which knows nothing of the engine's variables yet.
    c.query("INSTALL PLUGIN esker SONAME 'ha_esker'")
    setter = threading.Thread(target=c.query, args=("SET GLOBAL esker_trace=OFF",), daemon=True)
    setter.start()
    setter.join(60)
    check(not setter.is_alive() and serves(s, c), "a global variable can be set at once")
    c.query("UNINSTALL PLUGIN esker")
    for name in ("esker_statements", *(f"esker_{table}" for table in TABLES)):
        c.query(f"INSTALL PLUGIN {name} SONAME 'ha_esker'")
        check(serves(s, c), f"the server goes on with {name} alone")
        if name != "esker_statements":
            c.query(f"SELECT * FROM information_schema.{name}")
        c.query(f"UNINSTALL PLUGIN {name}")
    check(error_of(c, "INSTALL SONAME 'ha_esker'") == 0, "the engine is installed")
    c.query("CREATE TABLE test.t (a INT PRIMARY KEY) ENGINE=Esker")
    c.close()


def test_other_version(s, monkeypatch, tmp_path):
    """The server was upgraded, the plugin was not: it is refused, and the server goes on without it."""
    major, minor, patch = map(int, s.env["ESKER_MARIADB_VERSION"].split("."))
    here = (major * 10000 + minor * 100 + patch) << 8
    with open(env.PLUGIN, "rb") as f:
        plugin = f.read()
    # What the engine and the tables of INFORMATION_SCHEMA say they were built for; the audit plugin's interface is older. Looked for
    # among variables alone: code may have any four bytes.
    wanted = here.to_bytes(4, "little")
    sections = subprocess.run(["readelf", "-SW", env.PLUGIN], capture_output=True, text=True, check=True).stdout
    at, size = (int(n, 16) for n in re.search(r" \.data +PROGBITS +\w+ (\w+) (\w+)", sections).groups())
    variables = plugin[at:at + size]
    check(variables.count(wanted) == 2, f"the plugin names its server's version twice: {variables.count(wanted)}")
    other = tmp_path / "ha_esker.so"
    other.write_bytes(plugin[:at] + variables.replace(wanted, (here - (1 << 8)).to_bytes(4, "little")) + plugin[at + size:])
    monkeypatch.setattr(env, "PLUGIN", str(other))
    s.create(fresh=True)
    s.start()
    c = s.connect()
    came = c.one("SELECT GROUP_CONCAT(plugin_name) FROM information_schema.plugins WHERE plugin_name LIKE 'esker%'")
    check(came == "ESKER_STATEMENTS", f"of the plugins these were taken: {came}")
    check(serves(s, c), "the server goes on")
    check(error_of(c, "CREATE TABLE test.t (a INT) ENGINE=Esker") == 1286, "there is no such engine")
    c.close()


@pytest.fixture
def disk():
    """A block device of our own, with a file system on it."""
    made = Disk(os.path.join(env.VAR, "visible-disk"), 100, size=1 << 30)
    os.makedirs(made.folder, exist_ok=True)
    try:
        made.build()
        made.up(fresh=True, powercut=False)
        yield made
    except CannotHere as e:
        pytest.skip(str(e))
    finally:
        made.down()


def until_they_hang(watcher, c):
    """Until nobody has gone on for a second."""
    before, now = None, c.query("SHOW GLOBAL STATUS LIKE 'Questions'").rows
    while before is None or int(now[0][1]) > int(before[0][1]) + 1:  # the question itself
        before = now
        watcher.wait(1)
        now = c.query("SHOW GLOBAL STATUS LIKE 'Questions'").rows


def waiting(c):
    """What sessions do whose statements take a second or more."""
    # Not INFORMATION_SCHEMA.PROCESSLIST: it has a BLOB, and would be a table on disk.
    return [state or "" for *_, command, waited, state, _, _ in c.query("SHOW PROCESSLIST").rows if command == "Query" and int(waited) > 0]


def test_stuck(disk, s):  # the server goes before its disk
    """Data and temporary files lie on a device that answers nothing any more: whoever asks what there is to see has an answer."""
    s.data, done = os.path.join(disk.mount, "data"), threading.Event()
    s.settings["tmpdir"] = disk.mount
    s.create(fresh=True)
    s.start()
    c = s.connect()
    c.query("CREATE DATABASE test")
    c.query("CREATE TABLE test.t (a INT PRIMARY KEY, b CHAR(100), KEY (b)) ENGINE=Esker")
    c.query("CREATE TABLE test.u (a INT PRIMARY KEY, b INT) ENGINE=Esker")
    c.query("INSERT INTO test.u VALUES (1,1)")
    c.query("CREATE TABLE test.v LIKE test.u")
    work = {
        "commits": ["UPDATE test.u SET b=b+1"], "waits for its row": ["UPDATE test.u SET b=b-1"],
        "creates": ["CREATE OR REPLACE TABLE test.c (a INT) ENGINE=Esker"],
        "loads": ["USE test", "INSERT INTO t SELECT seq+@@rand_seed1+UUID_SHORT()%1000000000,MD5(seq) FROM seq_1_to_50000 ON DUPLICATE KEY UPDATE b=1"],
        "alters": ["ALTER TABLE test.v ADD KEY k(b)", "ALTER TABLE test.v DROP KEY k"],
        "optimizes": ["OPTIMIZE TABLE test.t"],
        "drops": ["CREATE TABLE test.d (a INT) ENGINE=Esker", "TRUNCATE test.d", "DROP TABLE test.d"],
        "prepares": ["XA START 'x'", "INSERT IGNORE INTO test.v VALUES (UUID_SHORT()%1000000,1)", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'"],
    }

    def go(statements):
        worker = s.connect()
        try:
            while not done.is_set():
                for sql in statements:
                    error_of(worker, sql)
        except Lost:
            pass

    threads = [threading.Thread(target=go, args=(statements,), daemon=True) for statements in work.values()]
    for t in threads:
        t.start()
    time.sleep(3)
    # No write begins any more, not even of what the device would have been asked for later; then no read ends.
    run("fsfreeze", "-f", disk.mount)
    os.kill(disk.process.pid, signal.SIGSTOP)
    try:
        until_they_hang(done, c)
        # Of a machine that is busy it may have been a slow second.
        busy, end = waiting(c), time.monotonic() + 120
        while len(busy) < 4 and time.monotonic() < end:
            done.wait(0.1)
            busy = waiting(c)
        # So long that it is no answer at all.
        reader, answers = s.connect(timeout=60), {}
        for name in TABLES:
            for sql in (f"SELECT * FROM information_schema.esker_{name}", f"SELECT * FROM information_schema.esker_{name} ORDER BY 1,2"):
                answers[name] = len(reader.query(sql).rows)
        for sql in ("SHOW ENGINE ESKER STATUS", "SHOW ENGINE ESKER MUTEX", "SHOW GLOBAL STATUS LIKE 'esker%'", "FLUSH ESKER_WAITS"):
            reader.query(sql)
        reader.close()
        check(len(busy) >= 4, f"{len(busy)} sessions wait for the device: {sorted(busy)}")
        check(all(answers[name] for name in TABLES if name not in ("locks", "lock_waits", "mutex_stacks")), f"each table answers: {answers}")
    finally:
        os.kill(disk.process.pid, signal.SIGCONT)
        run("fsfreeze", "-u", disk.mount)
    done.set()
    for t in threads:
        t.join(60)
    c.close()
    s.stop()


def test_states(disk, servers):
    """The process list says what a session waits for, while the device answers nothing: the log for a commit, a read."""
    s = servers("visible-states", dict(server.small_settings(), esker_data_dir=os.path.join(disk.mount, "esker"), esker_memory_limit=64 << 20))
    s.create(fresh=True)
    s.start()
    c = s.connect()
    for sql in ("CREATE DATABASE test", "USE test", "CREATE TABLE test.t (a INT PRIMARY KEY, b BLOB) ENGINE=Esker COMPRESSION=none",
                "INSERT INTO test.t SELECT seq,RANDOM_BYTES(1000) FROM seq_1_to_20000", "CREATE TABLE test.u (a INT PRIMARY KEY, b INT) ENGINE=Esker",
                "INSERT INTO test.u VALUES (1,0)", "OPTIMIZE TABLE test.t"):
        c.query(sql)
    c.close()
    s.stop()
    # Mounted anew, it has nothing in memory.
    disk.down()
    disk.up(powercut=False)
    s.start()
    c = s.connect()
    # Whatever opening the tables reads.
    for sql in ("SELECT COUNT(*) FROM test.t WHERE a=1", "UPDATE test.u SET b=b+1"):
        c.query(sql)
    work = {"Esker: log sync": "UPDATE test.u SET b=b+1", "Esker: reading": "SELECT SUM(LENGTH(b)) FROM test.t"}
    workers, answers = [s.connect("test") for _ in work], {}

    def go(worker, state, sql):
        answers[state] = worker.query(sql).rows

    threads = [threading.Thread(target=go, args=(worker, *of), daemon=True) for worker, of in zip(workers, work.items())]
    os.kill(disk.process.pid, signal.SIGSTOP)
    try:
        for t in threads:
            t.start()
        seen, end = {}, time.monotonic() + 120
        while len(seen) < len(work) and time.monotonic() < end:
            for *_, state, sql, _ in c.query("SHOW FULL PROCESSLIST").rows:
                if (state or "").startswith("Esker: ") and work.get(state) == sql:
                    seen[state] = sql
            time.sleep(0.01)
    finally:
        os.kill(disk.process.pid, signal.SIGCONT)
    for t in threads:
        t.join(120)
    check(sorted(seen) == sorted(work), f"each state is that of its statement: {seen}")
    check(answers.get("Esker: reading") == [("20000000",)],
          f"each statement comes to its end once the device answers: {answers}")
    after = [state for *_, state, _, _ in c.query("SHOW FULL PROCESSLIST").rows if (state or "").startswith("Esker")]
    check(not after and len(answers) == len(work), f"and waits no more: {after}")
    s.stop()


def sysbench(s, *more):
    """oltp_read_write on two tables of Esker's."""
    line = ["sysbench", "oltp_read_write", f"--mysql-socket={s.socket}", "--mysql-user=root", "--mysql-db=test", "--mysql_storage_engine=Esker",
            "--tables=2", "--table-size=20000", *more]
    done = subprocess.run(line, capture_output=True, text=True)
    check(done.returncode == 0, f"sysbench {more[-1]} ends well{': ' + (done.stdout + done.stderr)[-500:] if done.returncode else ''}")
    return done.stdout


def test_sysbench(s):
    """Under sysbench all there is to see is read in a loop, locks timed and sampled: every transaction comes to its end, and what
    was told of the work adds up when it is over."""
    if not shutil.which("sysbench"):
        raise RuntimeError("sysbench is not installed; run 'FOR_TESTS=1 make setup'")
    s.create(fresh=True)
    s.start()
    c = s.connect()
    c.query("CREATE DATABASE test")
    sysbench(s, "--threads=2", "prepare")
    asked = [f"SELECT * FROM information_schema.esker_{name}" for name in TABLES] + ["SHOW ENGINE ESKER STATUS", "SHOW ENGINE ESKER MUTEX", "SHOW GLOBAL STATUS LIKE 'esker%'"]
    rows, longest, problems, done = dict.fromkeys(asked, 0), dict.fromkeys(asked, 0.0), [], threading.Event()

    def ask():
        reader = s.connect()
        try:
            while not done.is_set():
                for sql in asked:
                    began = time.monotonic()
                    rows[sql] += len(reader.query(sql).rows)
                    longest[sql] = max(longest[sql], time.monotonic() - began)
        except (Lost, SqlError) as e:
            problems.append(str(e))

    c.query("SET GLOBAL esker_profile_locks=ON")
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    before = figures(c)
    transactions = 4000
    said = sysbench(s, "--threads=4", "--time=0", f"--events={transactions}", "run")
    done.set()
    thread.join(60)
    c.query("SET GLOBAL esker_profile_locks=OFF")
    # A manifest that is written in the background may wait for the log between two questions.
    after, end = figures(c), time.monotonic() + 60
    while after["waits"] != after["wait_hist"] and time.monotonic() < end:
        after = figures(c)
    counted = int(said.split("transactions:")[1].split()[0])
    moved = {name: after[name] - before[name] for name in after}
    check(counted == transactions and not problems, f"{counted} transactions, of which nobody failed: {problems[:2]}")
    empty = [sql for sql in asked if not rows[sql] and "lock_waits" not in sql and "mutex_stacks" not in sql]
    check(not empty, f"each had rows to tell of: {sum(rows.values())} in all, {empty} had none")
    show.say("longest answers: " + ", ".join(f"{sql.rsplit('esker', 1)[-1].strip('_ ') or sql} {s * 1000:.0f} ms" for sql, s in sorted(longest.items(), key=lambda x: -x[1])[:4]))
    # Each transaction of it: 10 rows by the primary key, four ranges of 100, 2 updates, a delete and an insert.
    check(moved["changed"] >= 4 * transactions and moved["changed"] == moved["changed_by_table"],
          f"rows changed by the counters {moved['changed']}, by ESKER_TABLE_STATS {moved['changed_by_table']}")
    check(moved["read"] >= 410 * transactions and moved["read"] == moved["read_by_table"],
          f"rows read by the counters {moved['read']}, by ESKER_TABLE_STATS {moved['read_by_table']}")
    check(after["waits"] == after["wait_hist"], f"waits {after['waits']}, by their distributions {after['wait_hist']}")
    check(moved["commits"] >= transactions, f"{moved['commits']} commits")


def figures(c):
    """What has been done so far, told in two ways. Nobody else is at work."""
    status = dict(c.query("SHOW GLOBAL STATUS LIKE 'esker%'").rows)
    changed, read = c.query("SELECT SUM(rows_changed), SUM(rows_read) FROM information_schema.esker_table_stats").rows[0]
    waits = c.one("SELECT SUM(count) FROM information_schema.esker_waits WHERE scope='global' AND name='log file sync'")
    hist = c.one("SELECT SUM(count) FROM information_schema.esker_wait_hist WHERE name='log file sync'")
    return {"changed": sum(int(status[f"Esker_rows_{how}"]) for how in ("inserted", "updated", "deleted")), "changed_by_table": int(changed),
            "read": int(status["Esker_rows_read"]), "read_by_table": int(read), "waits": int(waits), "wait_hist": int(hist), "commits": int(status["Esker_commits"])}
