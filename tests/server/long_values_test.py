"""Random SQL on twin tables with long values, ENGINE=Esker and ENGINE=InnoDB: every answer must be the same.

What a row's blobs point to must live as long as the server uses the row; how long that is depends on the statement. So statements of
all sorts, routines, triggers, cursors of the server and of HANDLER, with optimizer switches and buffers of any kind. Run it with
ESKER_PLUGIN=build/strict/ha_esker.so too (see 'make strict-test'): who uses what was given back ends the server then.

InnoDB's answer is mostly right. Where MariaDB 10.11 itself gives what lies in freed memory, or another row's value, with every engine, the
statement is left out, with a comment; what is left of it depends on plans, so look at both plans before you believe either engine.

    SEEDS=3          runs, each with fresh tables
    STEPS=400        steps a run, of one to some ten statements
    LOOK=1           looks at all tables after each step
    KINDS=1          tells how often each kind of step came
    SEED=1           of the first run; what was executed is in var/long_values/SEED.sql
"""
import collections
import os
import random
import re
import struct
import threading

import pytest

from eskerlib import env, show
from eskerlib.client import Lost, SqlError
from long_values import KINDS, Maker, Table
from long_values_reads import Reads
from long_values_twins import ENGINES, Mismatch, Session
from long_values_writes import Writes

SEEDS, STEPS = env.number("SEEDS", 3), env.number("STEPS", 400)
FIRST = env.number("SEED", 1, least=0)
LOOK = bool(os.environ.get("LOOK"))
SETTINGS = {
    # little of everything, so that few rows reach every path
    "esker_memory_limit": 32 << 20, "esker_bulk_threshold": 16384, "esker_bulk_buffer_size": 1 << 18, "esker_wal_segment_size": 4 << 20, "esker_recovery_target_bytes": 4 << 20,
    "esker_flush_log_at_trx_commit": 0, "innodb_flush_log_at_trx_commit": 0, "innodb_buffer_pool_size": 64 << 20, "innodb_log_file_size": 128 << 20, "innodb_doublewrite": 0,
    "esker_lock_wait_timeout": 2, "innodb_lock_wait_timeout": 2, "lock_wait_timeout": 4, "default_time_zone": "+00:00", "log_bin_trust_function_creators": 1,
    "tmp_disk_table_size": 1 << 30, "optimizer_switch": "default", "innodb_print_all_deadlocks": 0, "event_scheduler": 1, "table_open_cache": 200,
}
SWITCHES = ("index_merge index_merge_union index_merge_sort_union index_merge_intersection index_merge_sort_intersection index_condition_pushdown derived_merge "
            "derived_with_keys firstmatch loosescan materialization in_to_exists semijoin partial_match_rowid_merge partial_match_table_scan subquery_cache mrr "
            "mrr_cost_based mrr_sort_keys outer_join_with_cache semijoin_with_cache join_cache_incremental join_cache_hashed join_cache_bka "
            "optimize_join_buffer_size table_elimination extended_keys exists_to_in orderby_uses_equalities condition_pushdown_for_derived split_materialized "
            "condition_pushdown_for_subquery rowid_filter condition_pushdown_from_having not_null_range_scan hash_join_cardinality").split()
VARIABLES = {
    "eq_range_index_dive_limit": (0, 1, 5, 200), "max_seeks_for_key": (1, 10, 4294967295), "optimizer_use_condition_selectivity": (1, 2, 3, 4, 5),
    "join_cache_level": (0, 1, 2, 3, 4, 5, 6, 7, 8), "join_buffer_size": (128, 4096, 262144), "mrr_buffer_size": (8192, 262144), "sort_buffer_size": (2097152, 33554432, 33554432),
    "tmp_memory_table_size": (0, 16384, 16777216), "max_heap_table_size": (16384, 16777216), "optimizer_search_depth": (0, 1, 62), "optimizer_prune_level": (0, 1),
    "in_predicate_conversion_threshold": (0, 2, 1000), "rowid_merge_buff_size": (0, 1024, 8388608), "sql_buffer_result": (0, 0, 0, 1), "big_tables": (0, 0, 0, 1),
    "max_length_for_sort_data": (4, 1024, 8388608), "read_rnd_buffer_size": (1, 8192, 262144), "expensive_subquery_limit": (0, 100), "optimizer_max_sel_arg_weight": (0, 32000),
    "max_sort_length": (400000,), "use_stat_tables": ("never", "preferably_for_queries"), "tmp_disk_table_size": (1 << 30,), "optimizer_selectivity_sampling_limit": (10, 100),
    "esker_read_blocks": (1, 8), "preload_buffer_size": (32768,), "range_alloc_block_size": (4096,),
}


class Run(Reads, Writes):
    """One seed."""

    def __init__(self, server, seed, steps):
        self.server, self.seed, self.steps, self.rng = server, seed, steps, random.Random(seed)
        self.log, self.counts, self.errors, self.kinds = [], collections.Counter(), collections.Counter(), collections.Counter()
        self.differences, self.wide = [], self.rng.random() < 0.4
        r, self.make, self.clock = self.rng, Maker(self.rng), 1700000000
        self.sql_mode = r.choice(["STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO", "STRICT_ALL_TABLES", "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO", ""])
        admin = server.connect()
        for n in range(2):
            admin.query(f"DROP DATABASE IF EXISTS twin_{n}")
            admin.query(f"CREATE DATABASE twin_{n} CHARACTER SET utf8mb4")
        admin.close()
        self.options = r.choice(["", "", "COMPRESSION=lz4", "COMPRESSION=none", "ROW_FORMAT=FIXED"]) if ENGINES[0] == "Esker" else ""
        self.main, self.other = Session(self, 1), Session(self, 2)
        self.handlers, self.savepoints, self.number = set(), [], 0
        self.tables = [Table(r, f"t{n}") for n in range(1, r.choice([4, 5, 6]) + 1)]

    def note(self, session, sql):
        """Into the log of what was executed."""
        self.counts["statements"] += 1
        self.log.append(f"/*{session}*/ {sql};")
        if os.environ.get("VERBOSE"):
            print(self.log[-1][:300], flush=True)

    def any(self):
        """A table."""
        return self.rng.choice(self.tables)

    # -- the beginning ------------------------------------------------------------------------------------------------
    def build(self):
        """Tables, views, routines, triggers, rows."""
        do, r = self.main.do, self.rng
        do("CREATE SEQUENCE seq")
        do("CREATE TABLE log (what VARCHAR(20), id INT, x LONGTEXT)")
        do("CREATE TABLE empty_one (id INT PRIMARY KEY, b1 TEXT)")
        do("CREATE TABLE single (id INT, b1 LONGTEXT, b2 BLOB)")
        do("INSERT INTO single VALUES (3,REPEAT(MD5(3),2000),'s')")
        for t in self.tables:
            sql = t.create()
            self.note(1, sql)
            for n, twin in enumerate(self.main.twins):
                twin.run(sql.replace("%OPTIONS%", "" if n else self.options))
            do(f"CREATE VIEW vm_{t.name} AS SELECT id,k,u,b1,b2,j,v,w FROM {t.name} WHERE k>1 OR k IS NULL WITH CHECK OPTION")
            do(f"CREATE ALGORITHM=TEMPTABLE VIEW vt_{t.name} AS SELECT id,k,b1,b2,v FROM {t.name} WHERE id<50")
        self.routines()
        for t in self.tables:
            for _ in range(2):
                self.fill(t)
        for t in self.tables if self.wide else []:
            do(f"INSERT INTO {t.name} (id,k,b1,b2,v,w) SELECT seq,20+seq%30,REPEAT(MD5(seq),seq%13),REPEAT(MD5(seq%50),seq%41),MD5(seq),IF(seq%2,seq,NULL) FROM seq_100_to_400")
        for n, t in enumerate(self.tables):
            for sql in t.trigger_sql(self.tables[n + 1:]):
                do(sql)
        if r.random() < 0.7:
            do(f"OPTIMIZE TABLE {','.join(t.name for t in self.tables)}", compare=False)

    def fill(self, t):
        """Rows, as far as they are none yet."""
        r = self.rng
        ids = r.sample(range(1, 61), 18)
        self.main.do(f"INSERT IGNORE INTO {t.name} ({','.join(KINDS)}) VALUES " + ",".join(self.make.row(i) for i in ids))

    def routines(self):
        """Procedures with cursors over tables that they change, and functions."""
        t, u, do = self.any().name, self.any().name, self.main.do
        w = self.any().name
        done = "DECLARE done INT DEFAULT 0; DECLARE i,n,e INT DEFAULT 0; DECLARE x LONGTEXT; DECLARE y LONGBLOB; DECLARE s BIGINT DEFAULT 0;"
        nothing = "DECLARE CONTINUE HANDLER FOR NOT FOUND SET done=1;"
        do(f"CREATE FUNCTION f1(i INT) RETURNS LONGTEXT READS SQL DATA RETURN (SELECT b1 FROM {w} WHERE id=i LIMIT 1)")
        do("CREATE FUNCTION f2(x LONGTEXT, i INT) RETURNS LONGTEXT MODIFIES SQL DATA BEGIN INSERT INTO log (what,id,x) VALUES ('f2',i,LEFT(x,4000)); RETURN CONCAT(LEFT(x,9000),'f'); END")
        do(f"CREATE FUNCTION f3(p INT) RETURNS BIGINT READS SQL DATA BEGIN {done} DECLARE c CURSOR FOR SELECT b1,b2 FROM {u} WHERE k=p ORDER BY id LIMIT 3; {nothing} OPEN c; l: LOOP FETCH c INTO x,y; IF done THEN LEAVE l; END IF; SET s=s+IFNULL(CRC32(x),1)+IFNULL(CRC32(y),2); END LOOP; CLOSE c; RETURN s; END")
        do("CREATE FUNCTION f4(x LONGTEXT, i INT) RETURNS LONGTEXT MODIFIES SQL DATA BEGIN INSERT INTO log (what,id,x) VALUES ('f4',i,LEFT(x,400)); SAVEPOINT a; INSERT INTO log (what,id,x) VALUES ('f5',i,x); ROLLBACK TO a; RETURN CONCAT('g',LEFT(x,900)); END")
        do(f"""CREATE PROCEDURE p1(lo INT) BEGIN {done} DECLARE c CURSOR FOR SELECT id,b1,b2 FROM {t} WHERE id>=lo ORDER BY id LIMIT 7; {nothing}
            OPEN c; l: LOOP FETCH c INTO i,x,y; IF done THEN LEAVE l; END IF; SET s=s+IFNULL(CRC32(x),1)+IFNULL(CRC32(y),2), n=n+1;
            UPDATE {t} SET b1=IF(LENGTH(x)<{60000},CONCAT(x,'+'),y), v=LEFT(x,50) WHERE id=i; IF n%3=0 THEN DELETE FROM {t} WHERE id=i+1; END IF;
            IF n%4=0 THEN INSERT IGNORE INTO {t} (id,k,b1,b2) SELECT id+1000,k,b1,y FROM {t} WHERE id=i; END IF; END LOOP; CLOSE c; SELECT s,n; END""")
        do(f"""CREATE PROCEDURE p2(lo INT) BEGIN {done} DECLARE c CURSOR FOR SELECT id,k,b1 FROM {t} WHERE id>=lo ORDER BY id LIMIT 6; {nothing}
            OPEN c; l: LOOP FETCH c INTO i,e,x; IF done THEN LEAVE l; END IF;
            BEGIN DECLARE z LONGTEXT; DECLARE d2 INT DEFAULT 0; DECLARE c2 CURSOR (p INT) FOR SELECT b1 FROM {u} WHERE k=p ORDER BY id LIMIT 3; DECLARE CONTINUE HANDLER FOR NOT FOUND SET d2=1;
            OPEN c2(e); m: LOOP FETCH c2 INTO z; IF d2 THEN LEAVE m; END IF; SET s=s+IFNULL(CRC32(CONCAT_WS('|',x,z)),3); DELETE FROM {u} WHERE id=i+2; REPLACE INTO single VALUES (i,LEFT(z,2000),x); END LOOP; CLOSE c2; END;
            END LOOP; CLOSE c; SELECT s; END""")
        do(f"""CREATE PROCEDURE p3(lo INT) BEGIN DECLARE e INT DEFAULT 0; DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET e=e+1;
            INSERT INTO {t} (id,k,b1) SELECT id+IF(id<30,2000,0),k,b1 FROM {t} WHERE id>=lo ORDER BY id; UPDATE {u} SET b1=IF(id>30,'bad',CONCAT('n',b1)) WHERE id>=lo ORDER BY id LIMIT 9;
            UPDATE {w} SET k=k DIV (id-lo), b1=b2 WHERE id BETWEEN lo-3 AND lo+3 ORDER BY id; SELECT e; END""")
        do(f"""CREATE PROCEDURE p4(lo INT) BEGIN DECLARE s BIGINT DEFAULT 0; FOR q IN (SELECT id,b1,b2,v FROM {u} WHERE id>=lo ORDER BY id LIMIT 8) DO
            UPDATE {u} SET b2=q.b1, v=LEFT(q.b1,100) WHERE id=q.id+1; SET s=s+IFNULL(CRC32(q.b1),1)+IFNULL(CRC32(q.b2),2); INSERT INTO log VALUES ('p4',q.id,LEFT(q.b1,5000)); END FOR; SELECT s; END""")

    # -- steps --------------------------------------------------------------------------------------------------------
    def go(self):
        """All steps."""
        self.build()
        ways = self.ways()
        for n in range(self.steps):
            way = self.rng.choices([w for w, _ in ways], [weight for _, weight in ways])[0]
            self.kinds[way.__name__] += 1
            try:
                way()
                if LOOK:
                    self.compare_all()
            except Mismatch as e:
                if not self.settle(way, e):
                    raise
            if n % 25 == 24:
                self.tidy()
        self.end("COMMIT")
        self.compare_all()
        self.check()

    def settle(self, way, e):
        """A difference in an answer: noted; if the tables have become different, it is the end of the run."""
        self.differences.append(f"{way.__name__}: {e}\n    after {self.log[-1][:3000]}\n    {self.explained(self.log[-1])}")
        show.say(f"DIFFERENCE seed {self.seed} statement {len(self.log)}: {self.differences[-1]}")
        for twin in self.main.twins:
            twin.run("ROLLBACK")
            twin.run("UNLOCK TABLES")
        self.main.open, self.savepoints = False, []
        try:
            self.compare_all()
        except Mismatch:
            return False
        return len(self.differences) < 8

    def explained(self, line):
        """The plans of a statement."""
        sql, out = re.sub(r"^/\*.\*/ |;$", "", line), []
        for twin in self.main.twins:
            try:
                out.append(str([row[2:10] for row in twin.run("EXPLAIN " + sql)[0][0]]))
            except (SqlError, Lost) as e:
                out.append(str(e)[:100])
        return "\n    ".join(out)

    def ways(self):
        """What a step may be, and how often."""
        return [(self.read_rows, 6), (self.read_sorted, 6), (self.read_grouped, 6), (self.read_windows, 4), (self.read_joined, 10), (self.read_subquery, 10), (self.read_derived, 5),
                (self.read_recursive, 2), (self.read_sets, 3), (self.read_json, 2), (self.read_merged, 5), (self.read_view, 3), (self.read_locking, 3), (self.read_history, 3), (self.read_const, 4), (self.read_function, 3),
                (self.insert, 8), (self.insert_select, 8), (self.replace_select, 3), (self.update, 12), (self.update_joined, 7), (self.delete, 4), (self.delete_joined, 3), (self.through_view, 3),
                (self.duplicate, 8), (self.call, 5), (self.prepared, 4), (self.binary, 6), (self.handler, 14), (self.transaction, 8), (self.savepoint, 3), (self.view_of_other, 4), (self.switch, 10),
                (self.locked, 2), (self.temporary, 2), (self.killed, 1), (self.xa, 1), (self.event, 0.3), (self.alter, 1.2), (self.maintain, 2), (self.files, 1), (self.create_select, 2), (self.portion, 2), (self.returning, 5), (self.variables, 3), (self.fill_one, 2), (self.others_write, 8), (self.exchange, 0.7)]

    def tidy(self):
        """The same sizes for ever."""
        for t in self.tables:
            self.main.do(f"DELETE FROM {t.name} WHERE id BETWEEN 63 AND 99 OR id>400 ORDER BY id", affected=False)
        self.main.do("SELECT what,id,MD5(x),COUNT(*) FROM log GROUP BY 1,2,3")
        self.main.do("DELETE FROM log")
        if not self.main.open:
            self.compare_all()

    def compare(self, t, session=None):
        """All rows of a table."""
        (session or self.main).do(f"SELECT {t.shown()} FROM {t.name}")

    def compare_all(self):
        """All tables."""
        for t in self.tables:
            self.compare(t)
        self.main.do("SELECT id,MD5(b1),MD5(b2) FROM single")

    def check(self):
        """Indexes have what the rows have."""
        for t in self.tables:
            for twin in self.main.twins[:1]:
                for row in twin.run(f"CHECK TABLE {t.name} EXTENDED")[0][0]:
                    if row[3] != "OK":
                        raise Mismatch(f"check: {row}")

    def changed(self, t):
        """After a change: sometimes look."""
        if self.make.chance(0.3):
            self.compare(t)

    # -- prepared statements, cursors, HANDLER ------------------------------------------------------------------------
    def prepared(self):
        r, t, u = self.rng, self.any(), self.any()
        sql = r.choice([f"SELECT a.id,MD5(a.b1),MD5(b.b1) FROM {t.name} a JOIN {u.name} b ON a.k=b.k WHERE a.id<? AND b.b1>?", f"SELECT id,MD5(b1) FROM {t.name} WHERE k=? OR b1=?", f"UPDATE {t.name} SET v=LEFT(b1,20) WHERE id=? AND b1<>?", f"SELECT COUNT(*),SUM(CRC32(b2)) FROM {t.name} WHERE id>? AND b1 IN (SELECT b1 FROM {u.name} WHERE b1<=?)"])
        self.number += 1
        if self.main.do(f"PREPARE s{self.number} FROM '{sql}'") is None:
            return
        for _ in range(3):
            self.main.do(f"SET @i={r.randint(1, 60)},@t={self.make.text()}")
            self.main.do(f"EXECUTE s{self.number} USING @i,@t")
            if self.make.chance(0.4):
                self.main.do(f"UPDATE {t.name} SET b1={self.make.changed()} WHERE id={r.randint(1, 60)}", affected=False)
        self.main.do(f"DEALLOCATE PREPARE s{self.number}")

    def bytes(self):
        """A parameter of any length."""
        r = self.rng
        return r.choice([None, b"", b"a", b"word3", b"x" * r.choice([10, 900, 5000, 70000]), bytes(r.choice(b"abc") for _ in range(30))])

    def binary(self):
        r, t, u = self.rng, self.any(), self.any()
        if not (t.id_is_unique and u.id_is_unique):
            return
        step, between = r.choice([0, 1, 2, 5]), None
        if step and self.make.chance(0.6):
            between = r.choice([f"UPDATE {t.name} SET b1=REVERSE(b1),v='between' WHERE id<30 ORDER BY id", f"DELETE FROM {t.name} WHERE id={r.randint(1, 60)}", f"INSERT IGNORE INTO {t.name} (id,k,b1) SELECT id+{r.choice([100, 200])},k,b1 FROM {t.name} WHERE id<5 ORDER BY id", f"SELECT SUM(CRC32(b1)) FROM {u.name}"])
        sql, kinds = r.choice([
            (f"SELECT id,b1,b2,v FROM {t.name} WHERE id<? ORDER BY id", "n"), (f"SELECT id,b1 FROM {t.name} WHERE b1>=? ORDER BY b1,id", "b"), (f"SELECT a.id,b.id bid,a.b1,b.b2 FROM {t.name} a JOIN {u.name} b ON a.k=b.k WHERE a.id<? AND b.id<20 ORDER BY a.id,b.id", "n"),
            (f"SELECT k,MAX(b1),GROUP_CONCAT(b2 ORDER BY id) FROM {t.name} GROUP BY k ORDER BY k", ""), (f"SELECT id,b1 FROM {t.name} WHERE id=?", "n"), (f"SELECT LEFT(b1,900) FROM {t.name} UNION SELECT LEFT(b1,900) FROM {u.name} WHERE k=? ORDER BY 1", "n"),
            (f"UPDATE {t.name} SET b1=?,b2=? WHERE id=?", "bbn"), (f"INSERT INTO {t.name} (id,k,b1,b2) VALUES (?,?,?,?) ON DUPLICATE KEY UPDATE b1=VALUES(b2),b2=?", "nnbbb") if not t.long_unique else ("SELECT ?", "b"), (f"INSERT IGNORE INTO {t.name} (id,b1,b2) VALUES (?,?,?) RETURNING id,b1", "nbb"),
            (f"DELETE FROM {t.name} WHERE id=? RETURNING id,b1,b2", "n"), (f"SELECT id,b1 FROM {t.name} WHERE b1=? OR k=? ORDER BY id FOR UPDATE", "bn")])
        step = 0 if sql.startswith("DELETE") else step  # of DELETE ... RETURNING the server makes no cursor: it crashes, with every engine
        batches = [[r.randint(1, 60) if kind == "n" else self.bytes() for kind in kinds] for _ in range(r.choice([1, 2, 3]))]
        self.both_binary(sql, batches, step, between)
        self.changed(t)

    def both_binary(self, sql, batches, step, between):
        """The same by the binary protocol."""
        self.counts["cursors of statements"] += 1 if step else 0
        shown = str([[v if not isinstance(v, bytes) or len(v) < 40 else f"{len(v)} bytes" for v in b] for b in batches])
        self.main.both(lambda twin: twin.prepared(sql, batches, step, between), ordered=True, note=f"-- binary, {step} rows a fetch, between: {between}, with {shown}: {sql}")

    def handler(self):
        r, t = self.rng, self.any()
        name = r.choice([f"h_{t.name}", f"g_{t.name}"])
        if name not in self.handlers:
            if self.main.do(f"HANDLER {t.name} OPEN AS {name}", compare=False) is None:
                return
            self.handlers.add(name)
        key = t.pk if self.make.chance(0.7) and t.id_is_unique else r.choice(t.keys)
        unique, n = key == t.pk and t.id_is_unique, r.randint(1, 60)
        value = {"kk": f"({n % 10})", "kkb": f"({n % 10})", "kvk": f"({n % 10})", "kb1": f"({self.make.text(False)})", "kb2": f"({self.make.text(False)})", "kv": f"({self.make.text(False)})", "g1": "('a')", "g2": "('b')", "g3": "('c')", "g5": "(32)"}.get(key, f"({n})")
        limit = r.choice(["", " LIMIT 2", " LIMIT 5", f" LIMIT 2,3"])
        where = f" WHERE {self.make.where(t)}" if self.make.chance(0.25) else ""
        how = r.choice(["FIRST", "LAST", "NEXT", "NEXT", "NEXT", "PREV", "PREV", "=" + value, ">=" + value, "<=" + value, "<" + value, ">" + value])
        by = f"`{key}` " if self.make.chance(0.85) or how not in ("FIRST", "NEXT") else ""
        self.main.do(f"HANDLER {name} READ {by}{how}{where}{limit}", compare=bool(unique and by and not t.versioned and not t.sequence), ordered=True)
        if self.make.chance(0.06) and name in self.handlers:
            self.handlers.discard(name)
            self.main.do(f"HANDLER {name} CLOSE")

    # -- transactions -------------------------------------------------------------------------------------------------
    def end(self, how):
        if self.main.open:
            self.main.do(how)
            self.main.open, self.savepoints = False, []

    def transaction(self):
        if self.main.open:
            self.end(self.rng.choice(["COMMIT", "COMMIT", "ROLLBACK"]))
            if self.make.chance(0.3):
                self.compare_all()
        else:
            self.main.do(self.rng.choice(["BEGIN", "START TRANSACTION WITH CONSISTENT SNAPSHOT", "BEGIN"]))
            self.main.open = True

    def savepoint(self):
        r = self.rng
        if not self.main.open:
            return
        if not self.savepoints or self.make.chance(0.5):
            self.savepoints.append(r.choice("xyz"))
            self.main.do(f"SAVEPOINT {self.savepoints[-1]}")
        else:
            self.main.do(f"ROLLBACK TO {r.choice(self.savepoints)}")
            self.compare(self.any())

    def view_of_other(self):
        """The other session reads with an older view, or ends it."""
        r = self.rng
        if not self.other.open:
            self.other.do("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            self.other.do("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            self.other.open = True
        for t in r.sample(self.tables, 2):
            self.other.do(r.choice([f"SELECT {t.shown()} FROM {t.name}", f"SELECT {t.shown()} FROM {self.make.source(t)} WHERE {self.make.where(t)}", f"SELECT k,MD5(GROUP_CONCAT(b1 ORDER BY id,b1)) FROM {t.name} GROUP BY k", f"SELECT a.id,b.id,MD5(a.b1) FROM {t.name} a JOIN {self.any().name} b ON a.b1=b.b1"]))
        if self.make.chance(0.3):
            self.close_other()

    def others_write(self):
        """The other session changes rows under what the first has open, which is no transaction."""
        if self.main.open or self.other.open:
            return
        self.main, self.other = self.other, self.main
        try:
            for _ in range(2):
                self.rng.choice([self.insert, self.update, self.delete, self.insert_select, self.duplicate, self.update_joined, self.replace_select])()
        finally:
            self.main, self.other = self.other, self.main

    def exchange(self):
        """A partition for a table, and made anew of itself."""
        t = self.any()
        self.quiet()
        self.number += 1
        if t.partition.startswith("RANGE"):
            self.main.do(f"CREATE TABLE x{self.number} LIKE {t.name}", compare=False)
            self.main.do(f"ALTER TABLE x{self.number} REMOVE PARTITIONING", compare=False)
            self.main.do(f"ALTER TABLE {t.name} EXCHANGE PARTITION p1 WITH TABLE x{self.number}", compare=False)
            self.main.do(f"SELECT id,MD5(b1),MD5(b2) FROM x{self.number}")
            self.main.do(f"INSERT IGNORE INTO {t.name} ({','.join(KINDS)}) SELECT {','.join(KINDS)} FROM x{self.number} ORDER BY id", affected=False)
            self.main.do(f"DROP TABLE x{self.number}")
        else:
            self.main.do(f"CREATE OR REPLACE TABLE x (KEY (b1(9))) SELECT id,k,b1,b2,v FROM {t.name}", compare=False)
            self.main.do("CREATE OR REPLACE TABLE x SELECT a.id,a.b2 b1,b.b1 b2 FROM x a JOIN x b ON a.id=b.id", compare=False)
            self.main.do("SELECT id,MD5(b1),MD5(b2) FROM x")
            self.main.do("DROP TABLE x")
        self.compare(t)

    def close_other(self):
        if self.other.open:
            self.other.do("COMMIT")
            self.other.open = False

    def quiet(self):
        """Nothing open: for what ends transactions, or changes definitions."""
        self.end(self.rng.choice(["COMMIT", "ROLLBACK"]))
        self.close_other()
        for name in sorted(self.handlers):
            self.main.do(f"HANDLER {name} CLOSE", compare=False)
        self.handlers.clear()

    def switch(self):
        """Settings of the session."""
        r = self.rng
        self.clock += r.randint(1, 5)
        flags = ",".join(f"{s}={r.choice(['on', 'off'])}" for s in r.sample(SWITCHES, r.choice([1, 3, 8, 20])))
        some = [f"{v}={r.choice(VARIABLES[v])!r}" for v in r.sample(sorted(VARIABLES), r.choice([2, 5, 9]))]
        for session in (self.main, self.other):
            for sql in [f"SET optimizer_switch='{flags}'"] + [f"SET {one}" for one in some] + [f"SET timestamp={self.clock}"]:
                session.do(sql, compare=False)
            # Of partitioned tables MariaDB loses rows so, and InnoDB does not leave that out.
            session.twins[1].run("SET optimizer_switch='mrr=off,join_cache_bka=off'")

    def locked(self):
        """Under LOCK TABLES."""
        r = self.rng
        self.quiet()
        names = ",".join(f"{t.name} WRITE,{t.name} AS a READ,{t.name} AS b READ,{t.name} AS x READ" for t in self.tables) + ",log WRITE,single WRITE"
        self.main.do(f"LOCK TABLES {names}")
        for _ in range(5):
            r.choice([self.insert, self.update, self.insert_select, self.read_joined, self.read_rows, self.duplicate, self.delete, self.read_sorted, self.call])()
        self.main.do("UNLOCK TABLES")
        self.compare_all()

    def temporary(self):
        r, t = self.rng, self.any()
        self.number += 1
        name = f"tmp{self.number}"
        self.end("COMMIT")
        self.main.do(f"CREATE TEMPORARY TABLE {name} (id INT PRIMARY KEY, b1 LONGTEXT, b2 LONGBLOB, KEY (b1(9)))")
        self.main.do(f"INSERT IGNORE INTO {name} SELECT id,b1,b2 FROM {t.name} WHERE id IS NOT NULL ORDER BY id,b1,b2")
        for _ in range(3):
            self.main.do(r.choice([f"SELECT a.id,MD5(a.b1),MD5(b.b2) FROM {name} a JOIN {t.name} b ON a.id=b.k", f"UPDATE {name} SET b1=CONCAT('t',LEFT(b1,9000)) WHERE b1 LIKE 'a%'", f"SELECT COUNT(*),SUM(CRC32(b1)) FROM {name} WHERE b1 IN (SELECT b1 FROM {self.any().name})", f"DELETE FROM {name} WHERE b1>'f' ORDER BY id LIMIT 2", f"INSERT INTO {name} SELECT id+100,b2,b1 FROM {t.name} WHERE id IS NOT NULL ORDER BY id ON DUPLICATE KEY UPDATE b1=VALUES(b2)", f"REPLACE INTO {name} VALUES ({r.randint(1, 60)},{self.make.text()},{self.make.text()}) RETURNING id,MD5(b1)"]))
        self.main.do(f"SELECT id,MD5(b1),MD5(b2) FROM {name}")
        self.main.do(f"DROP TEMPORARY TABLE {name}")

    def killed(self):
        """A statement is killed in the middle; what it did is rolled back in both."""
        r, t, u = self.rng, self.any(), self.any()
        self.end("COMMIT")
        sql = r.choice([f"UPDATE {t.name} SET b1=CONCAT(LEFT(b1,1000),SLEEP(0.002)) ORDER BY id", f"SELECT SUM(CRC32(a.b1)+SLEEP(0.001)),COUNT(*) FROM {t.name} a JOIN {u.name} b", f"DELETE FROM {t.name} WHERE SLEEP(0.002)=0", "CALL p1(1)", "CALL p2(1)"])
        self.note(1, f"-- killed: {sql}")
        for twin in self.main.twins:
            twin.run("BEGIN")
            admin = self.server.connect()
            timer = threading.Timer(r.choice([0.005, 0.02, 0.05]), lambda: self.kill(admin, twin))  # noqa: B023
            timer.start()
            try:
                twin.run(sql)
            except SqlError:
                self.counts["killed"] += 1
            timer.join()
            admin.close()
            for last in ("SELECT 1", "ROLLBACK"):
                try:
                    twin.run(last)
                except SqlError:
                    pass
            twin.run("ROLLBACK")
        self.compare_all()

    @staticmethod
    def kill(admin, twin):
        try:
            admin.query(f"KILL QUERY {twin.id}")
        except SqlError:
            pass

    def xa(self):
        r = self.rng
        self.quiet()
        self.number += 1
        xid = f"'x{self.seed}_{self.number}_%TWIN%'"
        self.main.do(f"XA START {xid}")
        for _ in range(3):
            r.choice([self.insert, self.update, self.insert_select, self.update_joined, self.duplicate, self.read_joined])()
        self.main.do(f"XA END {xid}")
        self.main.do(f"XA PREPARE {xid}")
        self.main.do(f"XA {r.choice(['COMMIT', 'ROLLBACK'])} {xid}")
        self.compare_all()

    def event(self):
        r, t = self.rng, self.any()
        if t.versioned or not t.id_is_unique or any(x.versioned for x in self.tables):
            return
        self.quiet()
        self.number += 1
        self.main.do("SET timestamp=DEFAULT")
        self.main.do(f"CREATE EVENT e{self.number} ON SCHEDULE AT CURRENT_TIMESTAMP DO BEGIN UPDATE {t.name} SET b1=CONCAT('e',LEFT(b1,9000)) WHERE id<{r.randint(1, 60)} ORDER BY id; CALL p4(5); END")
        for twin in self.main.twins:
            for _ in range(100):
                if twin.run("SELECT COUNT(*) FROM information_schema.events WHERE event_schema=DATABASE()")[0][0][0][0] == "0" and twin.run("SELECT COUNT(*) FROM information_schema.processlist WHERE db=DATABASE() AND user<>'root'")[0][0][0][0] == "0":
                    break
                twin.run("DO SLEEP(0.05)")
            twin.run("DO SLEEP(0.2)")
        self.main.do(f"SET timestamp={self.clock}")
        self.compare_all()

    # -- definitions, files -------------------------------------------------------------------------------------------
    def alter(self):
        r, t = self.rng, self.any()
        self.quiet()
        self.number += 1
        p = r.randint(1, 40)
        self.main.do(r.choice([
            f"ALTER TABLE {t.name} ADD KEY x{self.number} (b1({p}))", f"ALTER TABLE {t.name} ADD KEY x{self.number} (k,b2({p}))", f"ALTER TABLE {t.name} MODIFY b2 LONGBLOB", f"ALTER TABLE {t.name} FORCE",
            f"ALTER TABLE {t.name} ADD COLUMN y{self.number} TEXT, DROP COLUMN y{self.number - 1}", f"ALTER TABLE {t.name} ADD COLUMN y{self.number} VARCHAR(30) AS (LEFT(b2,20)) VIRTUAL, ADD KEY (y{self.number})", f"TRUNCATE TABLE {t.name}"]), compare=False)
        if r.random() < 0.6:
            self.fill(t)
        self.compare(t)
        for _ in range(4):
            r.choice([self.insert, self.read_rows, self.read_joined, self.read_merged, self.handler])()
        self.quiet()
        if r.random() < 0.8:  # a UNIQUE would make order count
            self.main.do(f"ALTER TABLE {t.name} DROP KEY IF EXISTS x{self.number}", compare=False)

    def maintain(self):
        r, t = self.rng, self.any()
        self.quiet()
        self.main.do(r.choice([f"OPTIMIZE TABLE {t.name}", f"OPTIMIZE TABLE {t.name}", f"ANALYZE TABLE {t.name}", f"ANALYZE TABLE {t.name} PERSISTENT FOR ALL", f"CHECK TABLE {t.name} EXTENDED", "FLUSH TABLES", f"CHECKSUM TABLE {t.name} EXTENDED"]), compare=False)

    def files(self):
        t = self.any()
        if t.long_unique or not t.id_is_unique:
            return
        self.number += 1
        path = os.path.join(self.server.folder, f"out{self.number}_%TWIN%")
        if self.main.do(f"SELECT id,k,b1,b2,v FROM {t.name} WHERE id<40 ORDER BY id INTO OUTFILE '{path}' CHARACTER SET utf8mb4"):
            self.main.do(f"LOAD DATA INFILE '{path}' {self.rng.choice(['REPLACE', 'IGNORE'])} INTO TABLE {t.name} CHARACTER SET utf8mb4 (id,k,b1,@b,v) SET b2=CONCAT('l',@b)", affected=False)
        self.compare(t)

    def create_select(self):
        """Into InnoDB, which tells a key of the last row when all is copied, or the own engine."""
        r, t = self.rng, self.any()
        self.quiet()
        self.number += 1
        name, engine = f"c{self.number}", r.choice(["ENGINE=InnoDB", "ENGINE=InnoDB", "", "ENGINE=Aria", "ENGINE=MyISAM"])
        key = r.choice(["", "UNIQUE KEY (b1(20))", "UNIQUE KEY (k,b1(9))", "PRIMARY KEY (id)", "KEY (b1(10))", "UNIQUE KEY (v)", "UNIQUE KEY (b1)"])
        if self.main.do(f"CREATE TABLE {name} {'(' + key + ')' if key else ''} {engine} SELECT id,k,b1,b2,v FROM {self.make.source(t)} WHERE {self.make.where(t)} ORDER BY id", compare=False, words=bool(engine)):
            self.main.do(f"SELECT id,k,MD5(b1),MD5(b2),v FROM {name}")
            self.main.do(r.choice([f"ALTER TABLE {name} ENGINE={r.choice(['InnoDB', 'Aria'])}, ADD UNIQUE KEY (b1({r.choice([3, 30])}))", f"INSERT INTO {name} SELECT id,k,b1,b2,v FROM {t.name} ORDER BY id,b1", f"UPDATE {name} SET b1=b2"]), affected=False)
            self.main.do(f"DROP TABLE {name}")


@pytest.fixture(scope="module")
def server(module_servers):
    """The server of all seeds."""
    folder = os.environ.get("FOLDER")
    s = module_servers(os.path.basename(folder or "long_values"), SETTINGS, folder=folder)
    s.create(fresh=True)
    return s


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_long_values(server, again, seed):
    """One seed."""
    again(SEED=seed, SEEDS=1, STEPS=STEPS)
    server.start()
    run = Run(server, seed, STEPS)
    problem = None
    try:
        run.go()
    except (Mismatch, Lost, SqlError, RuntimeError, struct.error) as e:
        problem = f"{type(e).__name__}: {e}\n    after" + "".join(f"\n    {line[:2500]}" for line in run.log[-3:]) + ("" if server.pid() else "\n" + server.log_tail(lines=40))
    finally:
        for session in (run.main, run.other):
            for twin in session.twins:
                twin.close()
        with open(os.path.join(server.folder, f"{seed}.sql"), "w") as f:
            f.write("\n".join(run.log) + "\n")
    status = {}
    if server.pid():
        c = server.connect()
        status = {k[6:]: v for k, v in c.query("SHOW GLOBAL STATUS LIKE 'Esker%'").rows if k in ("Esker_flushes", "Esker_key_flushes", "Esker_merges", "Esker_key_merges", "Esker_blocks_evicted", "Esker_runs_created", "Esker_rows_read", "Esker_scans")}
        c.close()
    show.say(f"seed {seed}: {dict(run.counts)}, errors {dict(run.errors)}, {status}")
    if os.environ.get("KINDS"):
        show.say(str(dict(run.kinds)))
    if problem or run.differences:
        raise pytest.fail.Exception("\n".join(run.differences + [problem or ""]), pytrace=False)


def test_stop(server):
    """The server stops in order after all of them."""
    assert server.stop()
