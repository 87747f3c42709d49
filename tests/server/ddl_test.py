"""DDL over tables with keys, cut short by kill -9: each statement has happened wholly or not at all, whatever it was doing.

The same script of statements runs once in peace, which tells what the database must look like after each of them: definitions,
rows, what each index finds, how many tables the engine has. Left out is what the server does to one partition after the other
without its DDL log, for InnoDB too (a kill in it leaves error 1932): TRUNCATE of several partitions, RENAME TABLE of a partitioned
table, ALTER by copy of one or into one, which ends in such a rename, and ALTER in place of one: recovery of the DDL log may leave
the server's own .par file under the other name (errors 1696 and 1010). Then it runs again and again over a fresh database, and is killed at
a random moment: after the restart the database looks as after what was acknowledged, or after one statement more.

    KILLS=8          kills
    SEED=            for their moments
"""
import random
import threading
import time

import crash
import indexes
from cases import SEED, check, none_of
from eskerlib import env, show
from eskerlib.client import Lost

KILLS = env.number("KILLS", 8)
COLUMNS = "id INT NOT NULL, name VARCHAR(30) CHARACTER SET utf8mb4, n INT, note TEXT"
KEYS = "PRIMARY KEY (id), KEY name (name), KEY n (n,id)"
BEFORE = [
    "CREATE DATABASE ddl", "USE ddl",
    f"CREATE TABLE p ({COLUMNS}, {KEYS}) ENGINE=Esker PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (1000), PARTITION p1 VALUES LESS THAN (2000), "
    "PARTITION p2 VALUES LESS THAN (3000), PARTITION pm VALUES LESS THAN (4500))",
    f"CREATE TABLE h ({COLUMNS}, PRIMARY KEY (id), UNIQUE KEY name (name,id), KEY n (n)) ENGINE=Esker PARTITION BY HASH (id) PARTITIONS 4",
    # In another order than those of the table with whose partition it changes places.
    f"CREATE TABLE x ({COLUMNS}, KEY n (n,id), KEY name (name), PRIMARY KEY (id)) ENGINE=Esker",
    f"CREATE TABLE t ({COLUMNS}, PRIMARY KEY (id), UNIQUE KEY name (name), KEY n (n)) ENGINE=Esker",
    *(f"INSERT INTO {t} SELECT seq, CONCAT('Name ', seq), seq%17, REPEAT(seq, 20) FROM seq_{first}_to_{last}"
      for t, first, last in (("p", 1, 4000), ("h", 1, 3000), ("x", 2100, 2400), ("t", 1, 3000))),
    "UPDATE p SET n=n+1, name=CONCAT(name,'!') WHERE id%5=0",
    "DELETE FROM t WHERE id%7=0",
]
SCRIPT = [
    "ALTER TABLE p REORGANIZE PARTITION p0,p1 INTO (PARTITION q0 VALUES LESS THAN (500), PARTITION q1 VALUES LESS THAN (1500), PARTITION q2 VALUES LESS THAN (2000))",
    "ALTER TABLE p EXCHANGE PARTITION p2 WITH TABLE x",
    "ALTER TABLE p REORGANIZE PARTITION pm INTO (PARTITION p3 VALUES LESS THAN (4000), PARTITION p4 VALUES LESS THAN (5000))",
    "ALTER TABLE p ADD PARTITION (PARTITION p5 VALUES LESS THAN (6000), PARTITION p6 VALUES LESS THAN (7000))",
    "ALTER TABLE p TRUNCATE PARTITION q1",
    "ALTER TABLE p DROP PARTITION q0,p6",
    "ALTER TABLE p REBUILD PARTITION p3,p4",
    "ALTER TABLE h COALESCE PARTITION 2",
    "ALTER TABLE h ADD PARTITION PARTITIONS 3",
    "ALTER TABLE t RENAME INDEX name TO title",
    "ALTER TABLE t ADD UNIQUE KEY un (n,id)",
    "ALTER TABLE t ALTER INDEX title IGNORED",
    "ALTER TABLE t DROP KEY title",
    "ALTER TABLE t DISABLE KEYS",
    "ALTER TABLE t ENABLE KEYS",
    "ALTER TABLE t DROP PRIMARY KEY",
    "ALTER TABLE t ADD PRIMARY KEY (name,id), ALGORITHM=COPY",
    "RENAME TABLE t TO s, x TO t",
    "ALTER TABLE s MODIFY n BIGINT, ADD COLUMN more INT DEFAULT 5, ADD KEY more (more,n)",
    "ALTER TABLE s FORCE",
    "TRUNCATE TABLE t",
    "DROP TABLE h",
    "DROP TABLE p",
]


def looks(connection):
    """What the database is; problems of its indexes."""
    found, problems = {"tables of the engine": connection.query("SHOW GLOBAL STATUS LIKE 'Esker_tables'").rows}, []
    for table, in connection.query("SELECT table_name FROM information_schema.tables WHERE table_schema='ddl'").rows:
        columns = connection.query(f"SELECT * FROM ddl.{table} LIMIT 0").names
        row = "CONCAT_WS('/'," + ",".join(f"IFNULL({c},'')" for c in columns) + ")"
        found[table] = (connection.query(f"SHOW CREATE TABLE ddl.{table}").rows, connection.query(f"SELECT COUNT(*),SUM(CRC32({row})) FROM ddl.{table}").rows)
        problems += indexes.check(connection, "ddl", table)
    return found, problems


def fresh(connection):
    """The database before the script."""
    connection.query("DROP DATABASE IF EXISTS ddl")
    for sql in BEFORE:
        connection.query(sql)


class Runner(threading.Thread):
    """Runs the script until the server is gone. done: statements that were acknowledged."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.connection, self.done = server.connect("ddl", timeout=120), 0

    def run(self):
        try:
            for sql in SCRIPT:
                self.connection.query(sql)
                self.done += 1
        except Lost:
            pass


def test_ddl(servers, again):
    """All kills."""
    again(SEED=SEED, KILLS=KILLS)
    s = servers("ddl", crash.settings(False, None))
    s.create(fresh=True)
    s.start()
    c = s.connect()
    fresh(c)
    wanted, problems = [], []
    took_s = []
    for sql in [None, *SCRIPT]:
        begin = time.monotonic()
        if sql:
            c.query(sql)
        took_s.append(time.monotonic() - begin)
        found, some = looks(c)
        wanted.append(found)
        problems += [f"after {sql}: {p}" for p in some]
    none_of(problems)
    built = int(c.query("SHOW GLOBAL STATUS LIKE 'Esker_indexes_built'").rows[0][1])
    check(built > 0, "an index is built beside its table, not by a copy")
    c.query("USE ddl")
    moments, happened = random.Random(SEED), 0
    for kill in range(1, KILLS + 1):
        fresh(c)
        runner, victim = Runner(s), moments.randrange(len(SCRIPT))
        runner.start()
        while runner.done < victim and runner.is_alive():
            time.sleep(0.001)
        time.sleep(moments.uniform(0, took_s[victim + 1]))
        s.kill()
        runner.join(60)
        c.close()
        if moments.random() < 0.3:  # and once more, during recovery
            try:
                s.start(wait_s=moments.uniform(0.05, 0.4))
            except RuntimeError:
                pass
            s.kill()
        s.start()
        c = s.connect("ddl")
        # Partitions of a table that is gone for the server go with the next DROP of that name.
        there = {name for name, in c.query("SHOW TABLES").rows}
        for table in {"p", "h", "x", "t"} - there:
            c.query(f"DROP TABLE IF EXISTS {table}")
        found, problems = looks(c)
        at = runner.done
        after = found == wanted[min(at + 1, len(SCRIPT))]
        show.say(f"kill {kill} of {KILLS} after {at} of {len(SCRIPT)} statements, the next one {'is there' if after and at < len(SCRIPT) else 'is not'}")
        if not after and found != wanted[at]:
            near = wanted[at]
            problems.append(f"after {at} statements, in: {SCRIPT[min(at, len(SCRIPT) - 1)]}:\n" + "\n".join(
                f"  {name}: {found.get(name)}, must be {near.get(name)}" for name in sorted({*found, *near}) if found.get(name) != near.get(name)))
        none_of(problems)
        happened += after
    show.say(f"{happened} of {KILLS} statements that were not acknowledged have happened")
    c.close()
    assert s.stop()
