"""Random SQL on twin tables, ENGINE=Esker and ENGINE=InnoDB, in one private server.

Two connections with transactions, savepoints and both isolation levels, DML and DDL of every form on random columns, with
restarts and kills in between. After each statement rows, affected rows, error and warnings must be the same for both.

    SEEDS=4          runs, each with fresh tables
    STEPS=400        statements a run
    SEED=            of the first run; a mismatch prints it, and what was executed is in var/differential/SEED.sql
    VERBOSE=1        prints every statement
"""
import os
import random

import pytest

import randomsql
from cases import SEED
from eskerlib import env, show
from eskerlib.client import Lost, SqlError

SEEDS, STEPS = env.number("SEEDS", 4), env.number("STEPS", 400)
FIRST = env.number("SEED", SEED * 1000, least=0)
ENGINES = (os.environ.get("TWIN", "Esker"), "InnoDB")
SETTINGS = {
    # little of everything, so that few rows reach every path
    "esker_memory_limit": 64 << 20, "esker_bulk_threshold": 8192, "esker_bulk_buffer_size": 1 << 18, "esker_wal_segment_size": 1 << 22,
    "esker_flush_log_at_trx_commit": 2, "innodb_flush_log_at_trx_commit": 2, "innodb_buffer_pool_size": 64 << 20, "innodb_log_file_size": 64 << 20, "innodb_doublewrite": 0,
    "esker_lock_wait_timeout": 2, "innodb_lock_wait_timeout": 2, "lock_wait_timeout": 2, "max_sort_length": 1 << 20, "default_time_zone": "+00:00",
}
SAME = {159: 1412}  # InnoDB's words for 'table definition has changed'
# A row's width limits, and what makes a geometry, are the engine's own: the table is given up in both.
OF_THE_ENGINE = {1118, 1031, 1005, 139, 1416}


class Mismatch(Exception):
    """The engines differ."""


class Table:
    """What is known of a table: its columns, id first."""

    def __init__(self, name, columns, temporary=None):
        self.name, self.columns, self.temporary = name, columns, temporary

    def all(self):
        """Columns that it has besides id."""
        return self.columns

    def written(self):
        """Columns that can be given values."""
        return [c for c in self.columns if not c.generated]

    def select(self):
        """All columns, every byte."""
        return ",".join(["id"] + [c.shown() for c in self.columns])

    def order(self):
        """By all columns."""
        return ",".join(["id"] + [c.order() for c in self.columns])


class Session:
    """One connection of the test: a connection of the server for each engine."""

    def __init__(self, run, number):
        self.run, self.number, self.twins = run, number, []
        self.open, self.wrote, self.repeatable, self.viewed, self.stale, self.touched, self.savepoints = False, False, True, False, False, set(), []
        for n, engine in enumerate(ENGINES):
            c = run.server.connect(f"twin_{n}", timeout=120)
            c.query(f"SET default_storage_engine={engine}, alter_algorithm='COPY', timestamp=1700000000, sql_mode='{run.sql_mode}'")
            c.query("SET NAMES utf8mb4")
            c.query(f"SET SESSION TRANSACTION ISOLATION LEVEL {'REPEATABLE READ' if self.repeatable else 'READ COMMITTED'}")
            self.twins.append(c)

    def execute(self, sql, compare=True, ordered=False):
        """Runs it in both; what both answered (None: both failed)."""
        run, answers = self.run, []
        run.note(self.number, sql)
        for engine, c in zip(ENGINES, self.twins):
            text = sql.replace("{options}", run.options if engine == "Esker" else "")
            try:
                r = c.query(text)
                rows = r.rows if ordered else sorted(r.rows, key=str)
                answers.append((0, r.affected, r.warnings, rows))
            except SqlError as e:
                answers.append((SAME.get(e.errno, e.errno), e.text, 0, []))
        ours, theirs = answers
        if ours[0] != theirs[0] and OF_THE_ENGINE & {ours[0], theirs[0]}:
            raise Given(sql)
        if ours[0] != theirs[0]:
            raise Mismatch(f"error {ours[:2]} and {theirs[:2]}")
        if ours[0]:
            return None
        if compare and ours[1] != theirs[1]:
            raise Mismatch(f"affected rows {ours[1]} and {theirs[1]}")
        if compare and ours[3] != theirs[3]:
            only = [r for r in ours[3] if r not in theirs[3]][:3], [r for r in theirs[3] if r not in ours[3]][:3]
            raise Mismatch(f"{len(ours[3])} and {len(theirs[3])} rows; only in {ENGINES[0]}: {str(only[0])[:1500]}; only in {ENGINES[1]}: {str(only[1])[:1500]}")
        if compare and run.counts_warnings and ours[2] != theirs[2]:
            raise Mismatch(f"{ours[2]} and {theirs[2]} warnings")
        return ours


class Given(Exception):
    """The engines' limits differ here: not a mismatch, but the tables are no twins any more."""


class Run:
    """One seed."""

    def __init__(self, srv, seed, steps):
        self.server, self.seed, self.steps, self.rng = srv, seed, steps, random.Random(seed)
        self.make = randomsql.Generator(self.rng)
        self.tables, self.log, self.next_id, self.executed, self.counts_warnings = [], [], 1, 0, True
        r = self.rng
        self.options = r.choice(["", "ROW_FORMAT=DYNAMIC", "COMPRESSION=lz4", "COMPRESSION=zstd", "ROW_FORMAT=FIXED", "ROW_FORMAT=FIXED COMPRESSION=lz4"])
        self.sql_mode = r.choice(["STRICT_TRANS_TABLES", "STRICT_ALL_TABLES,NO_ZERO_DATE", "", "PAD_CHAR_TO_FULL_LENGTH"])
        admin = srv.connect()
        for n in range(len(ENGINES)):
            admin.query(f"DROP DATABASE IF EXISTS twin_{n}")
            admin.query(f"CREATE DATABASE twin_{n} CHARACTER SET utf8mb4")
        admin.close()
        self.sessions = [Session(self, 0), Session(self, 1)]

    def note(self, number, sql):
        """Into the log of what was executed."""
        self.executed += 1
        self.log.append(f"/*{number}*/ {sql};")
        if os.environ.get("VERBOSE"):
            print(self.log[-1][:300], flush=True)

    # -- choosing -----------------------------------------------------------------------------------------------------
    def go(self):
        """All steps."""
        for _ in range(3):
            self.create(self.sessions[0])
        for _ in range(self.steps):
            s = self.rng.choice(self.sessions)
            try:
                self.step(s)
            except Given as e:
                self.give_up(s, str(e))
        for s in self.sessions:
            self.end(s, "COMMIT")
        for t in self.tables:
            self.compare(self.sessions[0], t)

    def close(self):
        """Drops the connections: what they have open must hold up no other run."""
        for s in self.sessions:
            for c in s.twins:
                c.close()

    def give_up(self, s, sql):
        """Both databases go on without the tables of a statement that only one engine can do."""
        for one in self.sessions:
            self.end(one, "ROLLBACK")
        for t in [t for t in self.tables if t.name in sql]:
            for c in s.twins:
                c.query(f"DROP TABLE IF EXISTS {t.name}")
            self.tables.remove(t)

    def other(self, s):
        """The other session."""
        return self.sessions[1 - s.number]

    def table(self, s, touch=True):
        """A table that s may use."""
        usable = [t for t in self.tables if t.temporary in (None, s.number)]
        if not usable:
            return None
        t = self.rng.choice(usable)
        if touch and s.open:
            s.touched.add(t.name)
        return t

    def step(self, s):
        """One statement, or a few that belong together."""
        r = self.rng
        p = r.random()
        if p < 0.10:
            self.begin(s)
        elif p < 0.18:
            self.end(s, r.choice(["COMMIT", "COMMIT", "ROLLBACK"]))
        elif p < 0.24 and s.open:
            self.savepoint(s)
        elif p < 0.30:
            self.ddl(s)
        elif p < 0.306:
            self.restart()
        elif p < 0.50:
            self.read(s)
        else:
            self.write(s)

    def begin(self, s):
        """A transaction, at either level."""
        if s.open:
            return
        s.repeatable = self.rng.random() < 0.6
        s.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {'REPEATABLE READ' if s.repeatable else 'READ COMMITTED'}")
        s.open, s.wrote, s.viewed, s.stale, s.savepoints = True, False, False, False, []
        s.touched = set()
        if s.repeatable and self.rng.random() < 0.4:
            s.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            s.viewed = True
        else:
            s.execute("BEGIN")

    def end(self, s, how):
        """COMMIT or ROLLBACK."""
        if not s.open:
            return
        s.execute(how)
        if s.wrote and self.other(s).open:
            self.other(s).stale = True
        s.open = s.wrote = s.stale = s.viewed = False
        s.touched, s.savepoints = set(), []

    def savepoint(self, s):
        """Set, go back, release; names may be gone."""
        r = self.rng
        names = s.savepoints + ["nobody"]
        what = r.randrange(5)
        if what <= 1:
            name = r.choice(["s1", "s2", "s3", "s4"])
            s.execute(f"SAVEPOINT {name}")
            s.savepoints.append(name)
        elif what <= 3:
            s.execute(f"ROLLBACK TO {r.choice(names[-2:])}")
        else:
            s.execute(f"RELEASE SAVEPOINT {r.choice(names)}")

    def restart(self):
        """The server goes, in order or not, and comes back."""
        for s in self.sessions:
            self.end(s, "COMMIT")
        kill = self.rng.random() < 0.6
        self.note(9, "-- kill -9 and restart" if kill else "-- restart")
        self.server.kill() if kill else self.server.stop()
        self.server.start()
        self.tables = [t for t in self.tables if t.temporary is None]
        self.sessions = [Session(self, 0), Session(self, 1)]
        for t in self.tables:
            self.compare(self.sessions[0], t)

    # -- reading ------------------------------------------------------------------------------------------------------
    def compare(self, s, t):
        """All rows, every byte."""
        s.execute(f"SELECT {t.select()} FROM {t.name}")

    def may_write(self, s):
        """Only one session has locks at a time: whom the engines let wait for whom differs."""
        return not self.other(s).wrote

    def read(self, s):
        """A query of any kind."""
        r, t = self.rng, self.table(s)
        if t is None:
            return
        where = self.make.predicate(t.columns)
        some = ",".join(c.shown() for c in r.sample(t.columns, r.randint(0, len(t.columns)))) or "1"
        what = r.randrange(10)
        if what <= 2:
            self.compare(s, t)
        elif what == 3:
            s.execute(f"SELECT COUNT(*) FROM {t.name}" + r.choice(["", f" WHERE {where}"]))
        elif what == 4:
            s.execute(f"SELECT {some} FROM {t.name} WHERE {where}")
        elif what == 5:
            s.execute(f"SELECT {t.select()} FROM {t.name} WHERE {where} ORDER BY {t.order()} LIMIT {r.randint(0, 20)}", ordered=True)
        elif what == 6:
            u = self.table(s)
            s.execute(f"SELECT COUNT(*),SUM(a.id),SUM(b.id) FROM {t.name} a {r.choice(['JOIN', 'LEFT JOIN'])} {u.name} b ON a.id=b.id WHERE {self.make.predicate(t.columns, 'a.')}")
        elif what == 7 and self.may_write(s) and s.open:
            s.wrote = True
            s.execute(f"SELECT {t.select()} FROM {t.name} WHERE {where} {r.choice(['FOR UPDATE', 'LOCK IN SHARE MODE', 'FOR UPDATE NOWAIT', 'FOR UPDATE SKIP LOCKED'])}")
            return  # a locking read opens no view
        elif what == 8:
            s.execute(f"SELECT id%5,COUNT(*),MIN(id),MAX(id) FROM {t.name} GROUP BY 1")
        else:
            s.execute(f"SELECT DISTINCT {some} FROM {t.name} WHERE id IN (SELECT id FROM {t.name} WHERE {where})")
        s.viewed = s.viewed or s.open  # at least one row was looked at, or the table is empty: see source()

    # -- writing ------------------------------------------------------------------------------------------------------
    def source(self, s):
        """May s read another table within a write? Esker reads it through the view, InnoDB at REPEATABLE READ the latest."""
        return not (s.open and s.repeatable and (s.stale or self.other(s).open or not s.viewed)) or not s.open

    def row(self, columns):
        """VALUES of one row."""
        self.next_id += 1
        return f"({self.next_id}" + "".join("," + self.make.value(c) for c in columns) + ")"

    def write(self, s):
        """One DML statement."""
        if not self.may_write(s):
            return
        r, t = self.rng, self.table(s)
        if t is None:
            return
        if s.open:
            s.wrote = True
        columns = t.written()
        names = ",".join(["id"] + [c.name for c in columns])
        where = self.make.predicate(t.columns)
        what = r.randrange(22)
        if what <= 3:
            some = [c for c in columns if r.random() < 0.8]
            verb = r.choice(["INSERT", "INSERT", "INSERT IGNORE", "REPLACE"])
            rows = ",".join(self.row(some) for _ in range(r.choice([1, 1, 2, 5, 30])))
            s.execute(f"{verb} INTO {t.name} ({','.join(['id'] + [c.name for c in some])}) VALUES {rows}" + (" RETURNING *" if r.random() < 0.1 and not any(c.kind in ('binary', 'bit', 'geometry') for c in t.columns) else ""))
        elif what == 4 and columns:
            self.next_id += 1
            s.execute(f"INSERT INTO {t.name} SET id={self.next_id}" + "".join(f",{c.name}={self.make.value(c)}" for c in r.sample(columns, r.randint(0, len(columns)))))
        elif what == 5:
            s.execute(f"INSERT INTO {t.name} ({names}) VALUES {self.row(columns)} ON DUPLICATE KEY UPDATE id=id+1")
        elif what <= 9:
            n = r.choice([3, 20, 100, 100, 1000])
            expressions = "".join("," + self.make.from_seq(c) for c in columns)
            s.execute(f"INSERT {r.choice(['', '', 'IGNORE '])}INTO {t.name} ({names}) SELECT seq+{r.randint(0, 300)}{expressions} FROM mysql.numbers WHERE seq<={n}")
        elif what == 10 and self.source(s):
            s.execute(f"INSERT INTO {t.name} ({names}) SELECT {names} FROM {t.name} WHERE {where} LIMIT 0")
            s.execute(f"INSERT INTO {t.name} ({names}) SELECT id+500{''.join(',' + c.name for c in columns)} FROM {t.name} WHERE id%3=1 AND {where}")
        elif what <= 14 and columns:
            sets = ",".join(f"{c.name}={self.make.value(c)}" for c in r.sample(columns, r.randint(1, min(3, len(columns)))))
            sets += r.choice(["", ",id=id+1", ",id=id"])
            s.execute(f"UPDATE {r.choice(['', '', 'IGNORE '])}{t.name} SET {sets}" + r.choice([f" WHERE {where}", f" WHERE {where}", "", f" ORDER BY {t.order()} LIMIT {r.randint(0, 9)}", f" WHERE {where} ORDER BY {t.order()} LIMIT {r.randint(1, 9)}"]))
        elif what == 15:
            s.execute(f"DELETE FROM {t.name} WHERE {where}" + r.choice(["", f" ORDER BY {t.order()} LIMIT {r.randint(1, 9)}", " RETURNING id"]))
        elif what == 16 and r.random() < 0.5:
            rows = r.choice(["", "", " WHERE id%10<>0", " WHERE 1"])
            if s.open and s.repeatable and rows in ("", " WHERE 1"):
                rows = " WHERE id+0=id"  # of all rows at once: the own view has none of others' any more, see README's limits
            s.execute(f"DELETE FROM {t.name}" + rows)
        elif what in (17, 18):
            u = self.table(s)
            if u is None or not self.source(s) or u is t:
                return
            if r.random() < 0.5 and t.written() and u.written():
                a, b = r.choice(t.written()), r.choice(u.written())
                s.execute(f"UPDATE {t.name} a JOIN {u.name} b ON a.id=b.id SET a.{a.name}={self.make.value(a)}, b.{b.name}={self.make.value(b)} WHERE {self.make.predicate(t.columns, 'a.')}")
            else:
                s.execute(f"DELETE {r.choice(['a', 'a,b'])} FROM {t.name} a JOIN {u.name} b ON a.id=b.id WHERE {self.make.predicate(t.columns, 'a.')}")
        elif what == 19 and self.source(s):
            s.execute(f"DELETE FROM {t.name} WHERE id IN (SELECT id FROM (SELECT id FROM {t.name} WHERE {where}) x) AND id%2=0")
        elif what == 20 and columns:
            c = r.choice(columns)
            s.execute(f"UPDATE {t.name} SET {c.name}={c.name} WHERE {where}")
        else:
            s.execute(f"UPDATE {t.name} SET id=id+{r.randint(1, 3)} WHERE {where}")
        if r.random() < 0.25 and (not s.open or s.viewed or not s.repeatable):
            self.compare(s, t)
        if not s.open and self.other(s).open:
            self.other(s).stale = True

    # -- definitions --------------------------------------------------------------------------------------------------
    def create(self, s, temporary=False):
        """A new table."""
        r, columns = self.rng, []
        for _ in range(r.choice([0, 1, 3, 6, 9, 14])):
            columns.append(self.make.column(columns))
        name = self.make.fresh("t")
        body = ",".join(["id INT"] + [c.sql() for c in columns])
        partitions = r.choice([" PARTITION BY HASH (id) PARTITIONS 3"] + [""] * 7) if not temporary and not any(c.kind == "geometry" for c in columns) else ""
        if s.execute(f"CREATE {'TEMPORARY ' if temporary else ''}TABLE {name} ({body}) {{options}}{partitions}", compare=False):
            self.tables.append(Table(name, columns, s.number if temporary else None))

    def ddl(self, s):
        """One DDL statement, if nobody is in its way."""
        r, o = self.rng, self.other(s)
        if r.random() < 0.15:
            self.create(s, temporary=True)  # does not commit
            return
        self.end(s, "COMMIT")
        if len(self.tables) < 3:
            self.create(s)
            return
        t = self.table(s, touch=False)
        if t is None or t.name in o.touched:
            return
        o.stale = o.stale or o.open
        columns, name, what = list(t.columns), t.name, r.randrange(16)
        done = lambda sql: s.execute(sql, compare=False)  # noqa: E731
        if what <= 2:
            c = self.make.column(columns)
            if done(f"ALTER TABLE {name} ADD COLUMN {c.sql()}" + r.choice(["", " FIRST", " AFTER id"])):
                t.columns = columns + [c]
        elif what == 3 and columns:
            c = r.choice(columns)
            if done(f"ALTER TABLE {name} DROP COLUMN {c.name}"):
                t.columns = [x for x in columns if x is not c]
        elif what <= 5 and columns:
            old = r.choice(columns)
            new = self.make.column([])
            new.name = old.name if r.random() < 0.6 else new.name
            if "CHECK" in new.rest or old.generated:
                return
            if done(f"ALTER {r.choice(['', 'IGNORE '])}TABLE {name} CHANGE {old.name} {new.sql()}"):
                t.columns = [new if c is old else c for c in columns]
        elif what == 6:
            new = self.make.fresh("t")
            if done(f"{'ALTER TABLE ' + name + ' RENAME TO' if t.temporary is not None else 'RENAME TABLE ' + name + ' TO'} {new}"):
                t.name = new
        elif what <= 8:
            done(f"TRUNCATE TABLE {name}")
        elif what == 9:
            new = self.make.fresh("t")
            if t.temporary is None and done(f"CREATE TABLE {new} LIKE {name}"):
                self.tables.append(Table(new, columns))
                done(f"INSERT INTO {new} (id) SELECT id FROM {name}")
        elif what <= 11:
            new, kept = self.make.fresh("t"), [randomsql.Column(c.name, c.type, c.kind, c.limit, c.chars, c.members) for c in columns]
            if done(f"CREATE {r.choice(['', 'OR REPLACE '])}TABLE {new} {{options}} AS SELECT {','.join(['id'] + [c.name for c in columns])} FROM {name}" + r.choice(["", f" WHERE {self.make.predicate(columns)}"])):
                self.tables.append(Table(new, kept))
        elif what == 12:
            done(r.choice([f"ALTER TABLE {name} FORCE", f"ALTER TABLE {name} COMMENT='x'", f"FLUSH TABLES {name}", f"CHECK TABLE {name} EXTENDED", f"ANALYZE TABLE {name}", f"OPTIMIZE TABLE {name}"]))
        elif what == 13 and t.temporary is None:
            s.execute(f"CHECKSUM TABLE {name} EXTENDED", compare=False)
            sums = [c.query(f"CHECKSUM TABLE {name} EXTENDED").rows[0][1] for c in s.twins]
            if sums[0] != sums[1] and "ROW_FORMAT" not in self.options and not any(c.generated for c in columns):  # NULL bits: one reserved, or not computed
                raise Mismatch(f"checksums {sums}")
        elif what == 14 and len(self.tables) > 4:
            done(f"DROP {'TEMPORARY ' if t.temporary is not None else ''}TABLE {name}")
            self.tables.remove(t)
            return
        else:
            done("FLUSH TABLES" if not o.open else f"ALTER TABLE {name} ENGINE_ATTRIBUTE_IS_NO_OPTION=1 +")
        if r.random() < 0.5:
            self.compare(s, t)


def numbers(srv):
    """A source of rows that neither engine holds."""
    c = srv.connect("mysql")
    c.query("CREATE TABLE IF NOT EXISTS numbers (seq INT) ENGINE=Aria")
    if c.one("SELECT COUNT(*) FROM numbers") == "0":
        c.query("INSERT INTO numbers VALUES " + ",".join(f"({n})" for n in range(1, 1001)))
    c.close()


@pytest.fixture(scope="module")
def twins(module_servers):
    """The server of all seeds."""
    s = module_servers("differential", SETTINGS, folder=os.environ.get("FOLDER"))
    s.create(fresh=True)
    return s


def run_seed(kind, twins, again, seed, steps):
    """One seed of a kind of Run; it, when all answers were alike."""
    again(SEED=seed, SEEDS=1, STEPS=steps)
    twins.start()
    numbers(twins)
    run = kind(twins, seed, steps)
    try:
        run.go()
    except (Mismatch, Lost, SqlError, RuntimeError) as e:
        after = "".join(f"\n    {line[:2000]}" for line in run.log[-8:])
        raise pytest.fail.Exception(f"MISMATCH: {e}\n  after:{after}", pytrace=False) from None
    finally:
        run.close()
        with open(os.path.join(twins.folder, f"{seed}.sql"), "w") as f:
            f.write("\n".join(run.log) + "\n")
    show.say(f"seed {seed}: {run.executed} statements, {len(run.tables)} tables")
    return run


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_differential(twins, again, seed):
    """One seed."""
    run_seed(Run, twins, again, seed, STEPS)


def test_stop(twins):
    """The server stops in order after all of them."""
    assert twins.stop()
