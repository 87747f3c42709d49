"""Statements that are interrupted: killed, out of time, or without their client, at moments spread over all the time that they take.

Whatever comes of it, the database is as before the statement or as after it, as before if the statement was refused, and each index
has what a scan has; of a transaction the statements before it stay. Nobody is left with a transaction or a lock, and nothing is left of
half an ALTER. Not here: what the server does to one table or partition after the other, and CREATE OR REPLACE, whose old table
goes first, with InnoDB too.

    MOMENTS=4        at how many moments each statement is interrupted, in each of the ways in turn
    SEED=            of the moments
    STATEMENTS=      some of them, by their names
"""
import collections
import os
import random
import re
import threading
import time

import pytest

import crash
import indexes
from cases import SEED, check, none_of
from eskerlib import env, show
from eskerlib.client import Lost, SqlError

MOMENTS = env.number("MOMENTS", 4)
ROWS = 3000
OUT_OF_TIME = "max_statement_time"
GONE = "client gone"
WAYS = ["KILL QUERY", OUT_OF_TIME, "KILL CONNECTION", "KILL HARD QUERY", GONE]
COLUMNS = "k INT NOT NULL, v VARCHAR(200) NOT NULL, u INT NOT NULL DEFAULT 0, b BLOB"
TABLES = {
    "plain": f"({COLUMNS})",
    "keyed": f"({COLUMNS}, PRIMARY KEY (k), KEY u (u), KEY v (v(20)))",
    "uniq": f"(id INT AUTO_INCREMENT PRIMARY KEY, {COLUMNS}, twice INT AS (k*2) VIRTUAL, UNIQUE KEY k (k), KEY twice (twice), KEY uv (u,v))",
    "parted": f"({COLUMNS}, PRIMARY KEY (k), KEY u (u)) PARTITION BY RANGE (k) (PARTITION a VALUES LESS THAN (800), PARTITION b VALUES LESS THAN (1600), PARTITION c VALUES LESS THAN MAXVALUE)",
    "history": f"({COLUMNS}, PRIMARY KEY (k), KEY u (u)) WITH SYSTEM VERSIONING",
    "long_key": f"({COLUMNS}, KEY k (k), UNIQUE KEY b (b))",
    "told": f"({COLUMNS}, PRIMARY KEY (k))",
}

# What it does: all or nothing by itself; the same as a part of a transaction; nothing that stays.
ALONE, WITHIN, NOTHING = "alone", "within", "nothing"
Statement = collections.namedtuple("Statement", "name tables before sql does")


def insert(table, first):
    """Of the source's rows, from a key on."""
    return f"INSERT INTO {table} (k,v,u,b) SELECT n+{first},v,n%7,CONCAT('b',n+{first},REPEAT('z',n%300)) FROM source"


def statements():
    """All of them."""
    dml = ["plain", "keyed", "uniq", "parted", "history", "long_key", "told"]
    keyed = ["keyed", "uniq", "parted", "history", "told"]
    merge = f"(k,v,u) SELECT n+{ROWS // 2},'met',5 FROM source"
    for_each = [
        ("insert", dml, lambda t: insert(t, 10 * ROWS)), ("replace", keyed, lambda t: f"REPLACE INTO {t} {merge}"),
        ("on duplicate key", keyed, lambda t: f"INSERT INTO {t} {merge} ON DUPLICATE KEY UPDATE u=u+7,v='dup'"),
        ("update", dml, lambda t: f"UPDATE {t} SET u=u+1,v=REPEAT('u',k%100)"), ("update of keys", ["keyed", "uniq", "parted", "told"], lambda t: f"UPDATE {t} SET k=k+{2 * ROWS} ORDER BY k DESC"),
        ("update of blobs", ["plain", "keyed", "long_key"], lambda t: f"UPDATE {t} SET b=CONCAT('x',k,REPEAT('y',2000))"), ("delete", dml, lambda t: f"DELETE FROM {t} WHERE k%10<>0"),
        ("add index", ["plain", "uniq", "parted", "history"], lambda t: f"ALTER TABLE {t} ADD INDEX x (v,u), ADD INDEX y (u,k)"), ("drop index", ["keyed", "history"], lambda t: f"ALTER TABLE {t} DROP INDEX u"),
        ("copy", ["plain", "uniq", "parted", "long_key"], lambda t: f"ALTER TABLE {t} FORCE, ALGORITHM=COPY"), ("add column", ["keyed", "parted"], lambda t: f"ALTER TABLE {t} ADD COLUMN z VARCHAR(9) NOT NULL DEFAULT 'zz' FIRST"),
    ]
    for name, tables, sql in for_each:
        for table in tables:
            yield Statement(f"{name} {table}", [table], [], sql(table), ALONE)
    both = ["BEGIN", "UPDATE keyed SET u=u+1", insert("plain", 0)]
    xa = ["XA START 'a'", *both[1:], "XA END 'a'"]
    pair = ["plain", "keyed"]
    yield from (Statement(*rest) for rest in [
        ("update of two tables", ["keyed", "uniq"], [], "UPDATE keyed JOIN uniq USING (k) SET keyed.u=4,uniq.u=4,uniq.k=uniq.k+100000", ALONE),
        ("delete from three tables", ["plain", "keyed", "uniq"], [], "DELETE plain,keyed,uniq FROM plain JOIN keyed USING (k) JOIN uniq USING (k)", ALONE),
        ("delete of many ranges", ["keyed"], ["SET eq_range_index_dive_limit=0"], f"DELETE FROM keyed WHERE u IN ({','.join(map(str, range(0, 40000, 2)))})", ALONE),
        ("create select", ["keyed"], [], "CREATE TABLE made (PRIMARY KEY (k), KEY (v)) ENGINE=%s SELECT k,v,b FROM keyed", ALONE),
        ("to another engine", ["keyed"], [], "ALTER TABLE keyed ENGINE=InnoDB", ALONE),
        ("reorganize", ["parted"], [], "ALTER TABLE parted REORGANIZE PARTITION a,b INTO (PARTITION x VALUES LESS THAN (500), PARTITION y VALUES LESS THAN (1600))", ALONE),
        ("partition by", ["keyed"], [], "ALTER TABLE keyed PARTITION BY HASH (k) PARTITIONS 3", ALONE),
        ("truncate", ["keyed"], [], "TRUNCATE TABLE keyed", ALONE),
        ("commit", pair, both, "COMMIT", ALONE),
        ("xa commit", pair, [*xa, "XA PREPARE 'a'"], "XA COMMIT 'a'", ALONE),
        ("in a transaction, insert", pair, both, insert("plain", 0), WITHIN),
        ("in a transaction, update", pair, [*both, "SAVEPOINT s"], "UPDATE keyed SET u=u+1,k=k+100000 ORDER BY k DESC", WITHIN),
        ("in a transaction, delete", pair, both, "DELETE FROM plain", WITHIN),
        ("rollback", pair, both, "ROLLBACK", NOTHING),
        ("xa prepare", pair, xa, "XA PREPARE 'a'", NOTHING),
        ("temporary table", ["keyed"], [], "CREATE TEMPORARY TABLE made (PRIMARY KEY (k), KEY (v)) ENGINE=%s SELECT k,v,b FROM keyed", NOTHING),
        ("optimize", ["keyed"], [], "OPTIMIZE TABLE keyed", NOTHING), ("check", ["uniq"], [], "CHECK TABLE uniq EXTENDED", NOTHING), ("analyze", ["keyed"], [], "ANALYZE TABLE keyed PERSISTENT FOR ALL", NOTHING),
    ])


def wait(until):
    """False if it has not come about in two minutes."""
    end = time.monotonic() + 120
    while not until():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


class Run:
    """A server and its tables of one engine, which are made anew when they have changed."""

    def __init__(self, s, engine):
        self.server, self.engine, self.made = s, engine, None
        self.admin, self.killer = s.connect(timeout=120), s.connect(timeout=120)
        for sql in ("DROP DATABASE IF EXISTS d", "DROP DATABASE IF EXISTS source", "CREATE DATABASE source", "USE source"):
            self.admin.query(sql)
        self.tables_before = crash.status(self.admin)["tables"]
        self.admin.query(f"CREATE TABLE source.source (n INT PRIMARY KEY, v VARCHAR(200)) ENGINE={engine} SELECT seq AS n,REPEAT(CHAR(97+seq%26),seq%150) AS v FROM seq_1_to_{ROWS}")
        self.answers, self.problems = collections.Counter(), []

    def fresh(self, tables):
        """The database with these tables, as `self.was`."""
        if self.made == tables:
            return
        for sql in ("DROP DATABASE IF EXISTS d", "CREATE DATABASE d", "USE d", "CREATE VIEW source AS SELECT * FROM source.source"):
            self.admin.query(sql)
        for table in tables:
            before, partitions = (TABLES[table].split(" PARTITION BY", 1) + [""])[:2]
            self.admin.query(f"CREATE TABLE {table} {before} ENGINE={self.engine}" + (partitions and " PARTITION BY" + partitions))
            self.admin.query(insert(table, 0))
        if "told" in tables:
            self.admin.query(f"CREATE TABLE triggered (id INT AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL, KEY k (k)) ENGINE={self.engine}")
            for event, row in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")):
                self.admin.query(f"CREATE TRIGGER t_{event} AFTER {event} ON told FOR EACH ROW INSERT INTO triggered (k) VALUES ({row}.k)")
        self.made, self.was = tables, self.looks(self.admin)

    def looks(self, connection):
        """Definitions and rows."""
        found = {}
        for table, in connection.query("SELECT table_name FROM information_schema.tables WHERE table_schema='d' AND table_type<>'VIEW'").rows:
            sums = indexes.sums(connection, "d", table, but=["id"])  # AUTO_INCREMENT goes on after what was rolled back
            if len(set(sums.values())) > 1:
                self.problems.append(f"{table}: {sums}")
            made = re.sub(r" AUTO_INCREMENT=\d+", "", connection.query(f"SHOW CREATE TABLE d.{table}").rows[0][1])
            found[table] = (made, sums[None])
        return found

    def once(self, statement, way=None, after_s=0.0):
        """Runs it and interrupts it in this way after so long: what was answered (None: done), what its transaction saw before and behind it, and how
        long it took."""
        self.fresh(statement.tables)
        c, sql = self.server.connect("d", timeout=120), statement.sql.replace("%s", self.engine)
        number = c.one("SELECT CONNECTION_ID()")
        for before in statement.before:
            c.query(before)
        saw = [self.looks(c)] if statement.does == WITHIN else []
        timer = self.interrupt(c, number, way, after_s)
        begin, answer = time.monotonic(), None
        try:
            said = c.query(sql).rows
            if any("interrupted" in str(row[-1]) for row in said):  # CHECK and its like
                answer = "row"
        except SqlError as e:
            answer = e.errno
        except Lost:
            answer = "lost"
        took_s = time.monotonic() - begin
        if timer:
            timer.cancel()
            timer.join()
        if statement.does == WITHIN and answer != "lost":
            saw += self.behind(c)
        c.close()
        self.ended(number)
        return answer, saw, took_s

    def interrupt(self, c, number, way, after_s):
        """The timer that does it, if it is not the server's."""
        if way == OUT_OF_TIME:
            c.query(f"SET max_statement_time={max(after_s, 0.0001):.6f}")
        if way in (None, OUT_OF_TIME):
            return None
        timer = threading.Timer(after_s, self.hang_up if way == GONE else self.kill, [c] if way == GONE else [f"{way} {number}"])
        timer.start()
        return timer

    def kill(self, sql):
        """By another connection, which is there already: on a busy machine a new one takes longer than a statement; it may be too late."""
        try:
            self.killer.query(sql)
        except SqlError as e:
            if e.errno != 1094:
                self.problems.append(f"{sql}: {e}")

    @staticmethod
    def hang_up(c):
        """As a client that ends in the middle of an answer."""
        try:
            c.connection._sock.shutdown(2)
        except (OSError, AttributeError):
            pass

    def behind(self, c):
        """What the transaction sees after it, unless a late interruption took that too."""
        try:
            for _ in range(20):
                try:
                    c.query("SET max_statement_time=0")
                    break
                except SqlError:
                    pass
            seen = self.looks(c)
            c.query("ROLLBACK")
            return [seen]
        except Lost:
            return []

    def ended(self, number):
        """Waits until the connection is gone and has left nothing."""
        if not wait(lambda: not self.admin.query(f"SELECT 1 FROM information_schema.processlist WHERE id={number}").rows):
            self.problems.append(f"connection {number} is still there")
        for _ in self.admin.query("XA RECOVER").rows:
            wait(lambda: self.is_done("XA ROLLBACK 'a'"))
        if not wait(lambda: not self.admin.query("SELECT 1 FROM information_schema.esker_trx UNION ALL SELECT 1 FROM information_schema.esker_locks").rows):
            self.problems.append(f"left: {self.admin.query('SELECT * FROM information_schema.esker_trx').rows}, {self.admin.query('SELECT * FROM information_schema.esker_locks').rows}")
        half = [name for name in os.listdir(os.path.join(self.server.data, "d")) if name.startswith("#sql")]
        if half:
            self.problems.append(f"left: {half}")

    def is_done(self, sql):
        """No error."""
        try:
            self.admin.query(sql)
            return True
        except SqlError:
            return False

    def look(self):
        """What is there now; if that is what was there before, it need not be made again."""
        now = self.looks(self.admin)
        if now != self.was:
            self.made = None
        return now

    def interrupted(self, statement, moments):
        """In peace, then at each moment; how often it was met."""
        answer, saw, took_s = self.once(statement)
        if answer is not None:
            self.problems.append(f"{statement.name} undisturbed: {answer}")
        done, met = self.look(), 0
        for moment, way in moments:
            answer, seen, _ = self.once(statement, way, moment * took_s)
            told = f"{statement.name}, {way} after {moment * took_s * 1000:.1f} of {took_s * 1000:.1f} ms: {answer}"
            now = self.look()
            if now not in self.allowed(statement, answer, done):
                self.problems.append(f"{told}\n  left {now}\n  was {self.was}")
            if len(seen) == 2 and seen[1] != (saw[1] if answer is None else seen[0]):
                self.problems.append(f"{told}, in its transaction\n  {seen}")
            self.answers[answer] += 1
            met += answer is not None
        said = self.admin.query("CHECK TABLE " + ",".join(f"d.{table}" for table in now) + " EXTENDED").rows
        self.problems += [f"{statement.name}: {row}" for row in said if row[3] != "OK"]
        return met

    def allowed(self, statement, answer, done):
        """What may be there after this answer. What is not DML may have been through when it was interrupted."""
        if statement.does != ALONE:
            return [self.was]
        if answer is None:
            return [done]
        is_refused = answer != "lost" and statement.sql.startswith(("INSERT", "REPLACE", "UPDATE", "DELETE"))
        return [self.was] if is_refused else [self.was, done]


def start(servers, name):
    """A server with everything small."""
    s = servers(name, dict(crash.settings(False, None), innodb_flush_log_at_trx_commit=2))
    s.create(fresh=True)
    s.start()
    return s


def moments_of(rng, ways):
    """Each in another part of the time."""
    return [((i + rng.random()) / MOMENTS, next(ways)) for i in range(MOMENTS)]


def in_turn():
    """All ways, for ever."""
    while True:
        yield from WAYS


def test_interrupted(servers, again):
    """Each statement."""
    again(SEED=SEED, MOMENTS=MOMENTS)
    all_of_them = {statement.name: statement for statement in statements()}
    wanted, rng, ways = os.environ.get("STATEMENTS", ""), random.Random(SEED), in_turn()
    s = start(servers, "interrupt")
    run, met = Run(s, "Esker"), {}
    for name, statement in all_of_them.items():
        if wanted in name:
            met[name] = run.interrupted(statement, moments_of(rng, ways))
    none_of(run.problems)
    never = [name for name, times in met.items() if not times]
    show.say(f"answers: {dict(run.answers)}; never met: {never}")
    if not wanted:
        check(sum(met.values()) > len(met) * MOMENTS // 3 and len(never) < len(met) // 2, f"{sum(met.values())} interruptions, {len(met) - len(never)} of {len(met)} statements in the middle")
        check(run.answers[1317] and run.answers[1969] and run.answers["lost"], "killed, out of time and without client")
    for database in ("d", "source"):
        run.admin.query(f"DROP DATABASE {database}")
    check(crash.status(run.admin)["tables"] == run.tables_before, "the engine has the tables that it had before")
    run.admin.close()
    run.killer.close()
    assert s.stop()


def test_a_delete_killed_while_it_is_planned_is_told(servers, again):
    """The server itself answers OK, no rows, and does nothing: of InnoDB's tables as well."""
    again(SEED=SEED, MOMENTS=MOMENTS)
    s, rng = start(servers, "interrupt-planned"), random.Random(SEED)
    client, killer = s.connect("mysql"), s.connect()
    client.query("CREATE DATABASE d")
    number = client.one("SELECT CONNECTION_ID()")
    for versioned in ("", " WITH SYSTEM VERSIONING"):
        client.query(f"CREATE OR REPLACE TABLE d.t (k INT NOT NULL PRIMARY KEY, u INT NOT NULL, KEY (u)) ENGINE=Esker{versioned}")
        client.query("INSERT INTO d.t SELECT seq,seq%7 FROM seq_1_to_3000")
        answers, tries = collections.Counter(), 0
        while tries < 40 * MOMENTS or answers["told"] <= 10 * MOMENTS and tries < 400 * MOMENTS:
            answers[kill_a_delete(client, killer, number, rng.random() * 0.0008)] += 1
            tries += 1
        show.say(f"DELETE{versioned}: {dict(answers)}")
        check(answers["told"] > 10 * MOMENTS and not answers["OK, no rows"], f"of DELETE{versioned}: {dict(answers)}")
    client.close()
    killer.close()
    assert s.stop()


def kill_a_delete(client, killer, number, after_s):
    """Kills a DELETE of 2,700 of 3,000 rows after so long, and undoes it."""
    begun = threading.Event()

    def kill():
        begun.wait()
        end = time.perf_counter() + after_s
        while time.perf_counter() < end:
            pass
        killer.query(f"KILL QUERY {number}")

    thread = threading.Thread(target=kill)
    thread.start()
    client.query("BEGIN")
    begun.set()
    try:
        answer = "done" if client.query("DELETE FROM d.t WHERE k%10<>0").affected else "OK, no rows"
    except SqlError as e:
        assert e.errno == 1317, e
        answer = "told"
    thread.join()
    while True:
        try:
            client.query("ROLLBACK")
            assert client.one("SELECT COUNT(*) FROM d.t") == "3000"
            return answer
        except SqlError as e:  # it came late
            assert e.errno == 1317, e


def test_what_is_left_is_found(servers, again):
    """Tables of an engine that undoes nothing."""
    again(SEED=SEED, MOMENTS=MOMENTS)
    s = start(servers, "interrupt-canary")
    run, ways = Run(s, "Aria"), in_turn()
    statement = next(statement for statement in statements() if statement.name == "update plain")
    for _ in range(20):
        run.interrupted(statement, moments_of(random.Random(SEED), ways))
        if run.problems:
            break
    if not any("left" in problem for problem in run.problems):
        pytest.fail("what Aria leaves of an UPDATE was not found")
    run.admin.close()
    s.kill()
