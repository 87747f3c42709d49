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

import pymysql
import pytest

from eskerlib import env, show
from eskerlib.client import Lost, SqlError, _told
from long_values import KINDS, Maker, Table

SEEDS, STEPS = env.number("SEEDS", 3), env.number("STEPS", 400)
FIRST = env.number("SEED", 1, least=0)
LOOK = bool(os.environ.get("LOOK"))
ENGINES = (os.environ.get("TWIN", "Esker"), os.environ.get("OTHER", "InnoDB"))
SETTINGS = {
    # little of everything, so that few rows reach every path
    "esker_memory_limit": 32 << 20, "esker_bulk_threshold": 16384, "esker_bulk_buffer_size": 1 << 18, "esker_wal_segment_size": 4 << 20, "esker_recovery_target_bytes": 4 << 20,
    "esker_flush_log_at_trx_commit": 0, "innodb_flush_log_at_trx_commit": 0, "innodb_buffer_pool_size": 64 << 20, "innodb_log_file_size": 128 << 20, "innodb_doublewrite": 0,
    "esker_lock_wait_timeout": 2, "innodb_lock_wait_timeout": 2, "lock_wait_timeout": 4, "default_time_zone": "+00:00", "log_bin_trust_function_creators": 1,
    "tmp_disk_table_size": 1 << 30, "optimizer_switch": "default", "innodb_print_all_deadlocks": 0, "event_scheduler": 1, "table_open_cache": 200,
}
OF_MEMORY = {1037, 1038}
SAME = {159: 1412}
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


class Mismatch(Exception):
    """The engines differ, and the tables with them."""


class Twin:
    """One engine's connection: answers are lists of results, each (rows, affected)."""

    def __init__(self, server, number):
        self.server, self.number = server, number
        self.connection = pymysql.connect(unix_socket=server.socket, user="root", database=f"twin_{number}", charset="utf8mb4", conv={}, autocommit=None, read_timeout=100)
        self.id = self.connection.thread_id()

    def close(self):
        """Drop the connection."""
        if self.connection.open:
            self.connection.close()

    def run(self, sql):
        """All results of a statement."""
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(sql.replace("%TWIN%", str(self.number)))
                results = [self._result(cursor, sql)]
                while cursor.nextset():
                    results.append(self._result(cursor, sql))
                return results
        except pymysql.MySQLError as e:
            raise _told(e) from e

    @staticmethod
    def _result(cursor, sql):
        """Rows, and affected rows, with the number of warnings where the plan has no say in it."""
        rows, changed = list(cursor.fetchall()), 0 if cursor.description else cursor.rowcount
        warned = cursor._result.warning_count if sql.startswith(("INSERT", "REPLACE")) and " VALUES (" in sql and "SELECT" not in sql else 0
        return (rows, (changed, warned) if warned else changed)

    def prepared(self, sql, batches, step, between=None):
        """COM_STMT_PREPARE, then for each list of parameters COM_STMT_EXECUTE with a cursor (step rows a fetch; 0: without): packets as they are."""
        c, out = self.connection, []
        try:
            c._execute_command(0x16, sql)
            head = c._read_packet().get_all_data()
            number, columns, parameters = struct.unpack_from("<IHH", head, 1)
            for many in (parameters, columns):
                for _ in range(many + 1 if many else 0):
                    c._read_packet()
            try:
                for values in batches:
                    out.append(self._execute(number, values, step, between))
            finally:
                if c.open:
                    c._execute_command(0x19, struct.pack("<I", number))
            return [(out, 0)]
        except pymysql.MySQLError as e:
            raise _told(e) from e

    def _execute(self, number, values, step, between):
        c = self.connection
        long_ones = [n for n, v in enumerate(values) if isinstance(v, bytes) and len(v) > 1000]
        for n in long_ones:
            for piece in range(0, len(values[n]), 40000):
                c._execute_command(0x18, struct.pack("<IH", number, n) + values[n][piece:piece + 40000])
        body = struct.pack("<IBI", number, 1 if step else 0, 1)
        if values:
            nulls, types, data = bytearray((len(values) + 7) // 8), b"", b""
            for n, v in enumerate(values):
                if v is None:
                    nulls[n // 8] |= 1 << n % 8
                    types += b"\x06\x00"
                elif isinstance(v, int):
                    types += b"\x08\x00"
                    data += struct.pack("<q", v)
                else:
                    types += b"\xfc\x00"
                    data += b"" if n in long_ones else b"\xfd" + len(v).to_bytes(3, "little") + v
            body += bytes(nulls) + b"\x01" + types + data
        c._execute_command(0x17, body)
        first = c._read_packet().get_all_data()
        if first[0] == 0:
            return first[:2]
        for _ in range(first[0]):
            c._read_packet()
        status = struct.unpack_from("<H", c._read_packet().get_all_data(), 3)[0]
        rows = []
        if not status & 0x40:  # no cursor
            self._rows(rows)
            return rows
        done = False
        while not done:
            if between:
                self.connection._next_seq_id = 0
                try:
                    self.run(between)
                except SqlError:
                    pass
            c._execute_command(0x1c, struct.pack("<II", number, step))
            done = self._rows(rows) & 0x80
        return rows

    def _rows(self, rows):
        """Until EOF; its status."""
        while True:
            data = self.connection._read_packet().get_all_data()
            if data[0] == 0xFE and len(data) < 9:
                return struct.unpack_from("<H", data, 3)[0]
            rows.append(data)


class Session:
    """A connection for each engine."""

    def __init__(self, run, name):
        self.run, self.name = run, name
        self.twins = [Twin(run.server, n) for n in range(2)]
        self.open = False
        for engine, twin in zip(ENGINES, self.twins):
            twin.run(f"SET default_storage_engine={engine}, alter_algorithm='DEFAULT', group_concat_max_len=100000000, sql_mode='{run.sql_mode}', max_recursive_iterations=20, timestamp=1700000000, max_sort_length=400000, sort_buffer_size=33554432")
            twin.run("SET SESSION TRANSACTION ISOLATION LEVEL " + ("REPEATABLE READ" if run.rng.random() < 0.5 else "READ COMMITTED") if name else "SELECT 1")
        self.twins[1].run("SET SESSION TRANSACTION ISOLATION LEVEL " + self.twins[0].run("SELECT REPLACE(@@tx_isolation,'-',' ')")[0][0][0][0])

    def both(self, what, compare=True, ordered=False, note="", affected=True, words=False):
        """Calls what(twin) for both and holds the answers, and perhaps the words of errors, against each other; what both gave, or None after an error."""
        run, answers = self.run, []
        run.note(self.name, note)
        for twin in self.twins:
            try:
                answers.append((0, [(r if ordered else sorted(r, key=repr), n if affected else 0) for r, n in what(twin)]))
            except SqlError as e:
                answers.append((SAME.get(e.errno, e.errno), e.text))
        ours, theirs = answers
        if OF_MEMORY & {ours[0], theirs[0]} and ours[0] != theirs[0]:  # the plan's needs
            run.counts["without memory"] += 1
            return None
        if ours[0] != theirs[0]:
            raise Mismatch(f"error {ours[:2] if ours[0] else 0} and {theirs[:2] if theirs[0] else 0}")
        if ours[0] and words and ours[1] != theirs[1].replace("twin_1", "twin_0"):
            raise Mismatch(f"words {ours[1]} and {theirs[1]}")
        run.counts["errors alike" if ours[0] else "answers"] += 1
        if ours[0]:
            run.errors[ours[0]] += 1
            return None
        if compare and ours[1] != theirs[1]:
            raise Mismatch(difference(ours[1], theirs[1]))
        return ours[1]

    def do(self, sql, **how):
        """One statement."""
        return self.both(lambda twin: twin.run(sql), note=sql, **how)


def difference(ours, theirs):
    """In words."""
    for (a, m), (b, n) in zip(ours, theirs):
        if m != n:
            return f"affected rows {m} and {n}"
        if a != b:
            only = [x for x in a if x not in b][:2], [x for x in b if x not in a][:2]
            return f"{len(a)} and {len(b)} rows; only in {ENGINES[0]}: {str(only[0])[:800]}; only in {ENGINES[1]}: {str(only[1])[:800]}"
    return f"{len(ours)} and {len(theirs)} results"


class Run:
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

    # -- reading ------------------------------------------------------------------------------------------------------
    def read_rows(self):
        t = self.any()
        what = self.rng.choice([t.shown(), "b1,b2,id", "*", "id,v,w,b1"]) if not t.versioned and not t.sequence else t.shown()
        self.main.do(f"SELECT {what} FROM {self.make.source(t)} WHERE {self.make.where(t)}")

    def read_sorted(self):
        r, t = self.rng, self.any()
        if not t.id_is_unique:
            return
        by = r.choice(["b1", "b2 DESC", "v", "k,b1 DESC", "LENGTH(b1)", "id DESC", "u", "w", "j", "LEFT(b1,20)", "k"] + t.generated)
        self.main.do(f"SELECT {r.choice(['id', 'id,MD5(b1)', 'id,b1', 'id,MD5(b2),CRC32(w),v', t.shown()])} FROM {self.make.source(t)} WHERE {self.make.where(t)} ORDER BY {by},id" +
                     r.choice(["", f" LIMIT {r.randint(0, 9)}", f" LIMIT {r.randint(1, 9)} OFFSET {r.randint(0, 9)}"]), ordered=True)

    def read_grouped(self):
        r, t, where = self.rng, self.any(), ""
        where = self.make.where(t)
        b = r.choice(["b1", "b2", "v", "j", "w"] + t.generated)
        hint = r.choice(["", "", "SQL_BIG_RESULT ", "SQL_SMALL_RESULT ", "SQL_BUFFER_RESULT "])
        self.main.do(r.choice([
            f"SELECT {hint}k,MD5(GROUP_CONCAT({b} ORDER BY id,b1,b2 SEPARATOR '|')),COUNT(*) FROM {self.make.source(t)} WHERE {where} GROUP BY k",
            f"SELECT COUNT(*),MD5(GROUP_CONCAT(MD5(x) ORDER BY 1)) FROM (SELECT {hint}DISTINCT {b} x FROM {t.name} WHERE {where}) d",
            f"SELECT {hint}MD5({b}),COUNT(*),SUM(CRC32(b2)) FROM {t.name} WHERE {where} GROUP BY {b}",
            f"SELECT {hint}k,MD5(MIN({b})),MD5(MAX({b})),SUM(LENGTH(b1)) FROM {self.make.source(t)} WHERE {where} GROUP BY k WITH ROLLUP",
            f"SELECT COUNT(DISTINCT {b},k),COUNT(DISTINCT b1),MD5(MAX({b})) FROM {t.name} WHERE {where}",
            f"SELECT MD5({b}),COUNT(*) c FROM {t.name} GROUP BY {b} HAVING c>1 ORDER BY {b} DESC LIMIT 5",
            f"SELECT k,MIN(u),MAX(u) FROM {t.name} GROUP BY k", f"SELECT DISTINCT k,LEFT(b1,8) FROM {t.name} WHERE {where}",
            f"SELECT MD5(MAX({b})),MD5(MIN({b})) FROM {t.name}", f"SELECT k,JSON_ARRAYAGG(LEFT(b1,50) ORDER BY id,b1) FROM {t.name} GROUP BY k",
            f"SELECT {hint}k,MD5(GROUP_CONCAT(b1,b2 ORDER BY b2,id,b1)) FROM {t.name} GROUP BY k,{b} ORDER BY k,{b}"]))

    def read_windows(self):
        r, t = self.rng, self.any()
        if not t.id_is_unique:
            return
        b = r.choice(["b1", "b2", "v"])
        self.main.do(r.choice([
            f"SELECT id,MD5(LAG({b}) OVER (ORDER BY id)),MD5(LEAD(b1,2) OVER (ORDER BY id DESC)) FROM {t.name}",
            f"SELECT id,MD5(FIRST_VALUE({b}) OVER (PARTITION BY k ORDER BY id)),MD5(LAST_VALUE(b1) OVER (PARTITION BY k ORDER BY b1,id)),ROW_NUMBER() OVER (ORDER BY {b},id) FROM {t.name} WHERE {self.make.where(t)}",
            f"SELECT id,RANK() OVER (PARTITION BY LEFT(b1,3) ORDER BY LEFT({b},200)),MD5(b2),COUNT(*) OVER (PARTITION BY b1) FROM {self.make.source(t)}",
            f"SELECT id,MD5(b1),MD5(NTH_VALUE({b},2) OVER (ORDER BY k,id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING)) FROM {t.name} ORDER BY {b},id LIMIT 7",
            f"SELECT * FROM (SELECT id,MD5(b1),ROW_NUMBER() OVER (PARTITION BY k ORDER BY {b},id) n FROM {t.name}) d WHERE n<3"]))

    def pair(self):
        """Two tables, as a and b, and how they meet."""
        r, t, u = self.rng, self.any(), self.any()
        on = r.choice(["a.id=b.id", "a.id=b.id", "a.k=b.k", "a.k=b.id", "a.b1=b.b1", "a.u=b.id", "a.b2=b.b2", "LEFT(a.b1,10)=b.b1", "a.v=b.v", "a.w=b.w", "a.u=b.u", "b.b1 LIKE CONCAT(LEFT(a.b1,3),'%') AND a.id<9", "a.k=b.k AND a.b1=b.b1", "a.id=b.id AND b.b1>a.v", "b.id BETWEEN a.id AND a.id+2"])
        return t, u, on

    def read_joined(self):
        r, (t, u, on) = self.rng, self.pair()
        join = r.choice(["JOIN", "JOIN", "LEFT JOIN", "STRAIGHT_JOIN", "RIGHT JOIN"])
        what = r.choice(["COUNT(*),SUM(CRC32(a.b1)),SUM(CRC32(b.b2)),SUM(a.id),SUM(b.id)", "a.id,b.id,MD5(a.b1),MD5(b.b1)", "a.id,b.id,CRC32(CONCAT_WS('|',a.b2,b.b1,a.j,b.v))", "a.k,MD5(GROUP_CONCAT(b.b1 ORDER BY a.id,b.id,b.b1)),MD5(MAX(a.b2))"])
        more = f" {r.choice(['JOIN', 'LEFT JOIN'])} {self.make.source(self.any(), 'c')} ON {r.choice(['c.id=a.id', 'c.k=b.k AND c.id<20', 'c.b1=a.b1', 'c.u=b.id'])}" if self.make.chance(0.35) else ""
        tail = " GROUP BY a.k" if "GROUP_CONCAT" in what else r.choice(["", "", " ORDER BY a.b1,b.b2 DESC,a.id"]) if "COUNT" not in what else ""
        ahead = "" if "GROUP_CONCAT" in what else r.choice(["", "", "SQL_BUFFER_RESULT "])
        self.main.do(f"SELECT {ahead}{what} FROM {self.make.source(t, 'a')} {join} {self.make.source(u, 'b')} ON {on}{more} WHERE {self.make.where(t, 'a.')}" + (f" AND ({self.make.where(u, 'b.')})" if self.make.chance(0.4) else "") + tail)

    def read_subquery(self):
        r, (t, u, on) = self.rng, self.pair()
        c = r.choice(["b1", "b1", "b2", "k", "id", "v", "u", "w"])
        inner = self.make.where(u, "b.")
        self.main.do(f"SELECT {r.choice(['a.id,MD5(a.b1)', 'COUNT(*),SUM(CRC32(a.b2))', t.shown('a.')])} FROM {self.make.source(t, 'a')} WHERE " + r.choice([
            f"a.{c} IN (SELECT b.{c} FROM {self.make.source(u, 'b')} WHERE {inner})", f"a.{c} NOT IN (SELECT b.{c} FROM {u.name} b WHERE {inner})",
            f"EXISTS (SELECT 1 FROM {self.make.source(u, 'b')} WHERE {on} AND ({inner}))", f"NOT EXISTS (SELECT 1 FROM {u.name} b WHERE {on})",
            f"a.b1 >= (SELECT MAX(b.b1) FROM {u.name} b WHERE b.k=a.k)", f"(a.k,a.b1) IN (SELECT b.k,b.b1 FROM {u.name} b WHERE {inner})", f"a.b1 = ANY (SELECT b.b2 FROM {u.name} b)", f"a.b1 > ALL (SELECT b.b1 FROM {u.name} b WHERE b.k=a.k AND b.id<>a.id)",
            f"a.{c} IN (SELECT b.{c} FROM {u.name} b JOIN {self.any().name} c ON b.k=c.k WHERE {inner})", f"a.{c} IN (SELECT MAX(b.{c}) FROM {u.name} b GROUP BY b.k)", f"CRC32(a.b1) IN (SELECT CRC32(b.b1) FROM {u.name} b WHERE {on})",
            f"(SELECT b.b1 FROM {self.make.source(u, 'b')} WHERE b.id=a.k AND b.id IS NOT NULL ORDER BY b.id LIMIT 1)=a.b1 OR {self.make.where(t, 'a.')}"]))

    def read_derived(self):
        t, u, _ = self.pair()
        self.main.do(self.rng.choice([
            f"SELECT d.k,MD5(d.m),a.id,MD5(a.b1) FROM (SELECT k,MAX(b1) m FROM {t.name} GROUP BY k) d JOIN {u.name} a ON d.k=a.k WHERE {self.make.where(u, 'a.')}",
            f"SELECT a.id,MD5(d.b1) FROM {u.name} a LEFT JOIN (SELECT * FROM {t.name} WHERE {self.make.where(t)} ) d ON d.id=a.id",
            f"WITH c AS (SELECT id,k,b1,b2 FROM {t.name} WHERE {self.make.where(t)}) SELECT x.id,y.id,CRC32(CONCAT_WS('-',x.b1,y.b2)) FROM c x JOIN c y ON x.k=y.k",
            f"SELECT d.id,CRC32(d.b1),(SELECT MD5(MAX(b2)) FROM {u.name} x WHERE x.k=d.k) FROM (SELECT id,k,b1 FROM {t.name} ORDER BY b1,id LIMIT 5) d",
            f"SELECT a.id,MD5(m) FROM {u.name} a JOIN (SELECT b1 m,COUNT(*) n FROM {t.name} GROUP BY b1) d ON d.m=a.b1 WHERE {self.make.where(u, 'a.')}",
            f"SELECT id,(SELECT CONCAT_WS('|',MD5(x.b1),MD5(a.b1)) FROM {t.name} x WHERE x.id=a.id+1 LIMIT 1) FROM {u.name} a"]) if t.id_is_unique and u.id_is_unique else "SELECT 1")

    def read_recursive(self):
        t = self.any()
        if t.id_is_unique:
            self.main.do(f"WITH RECURSIVE c AS (SELECT id,b1 x,0 n FROM {t.name} WHERE id<12 UNION {self.rng.choice(['', 'ALL'])} SELECT t.id,CONCAT_WS('-',LEFT(c.x,50000),LEFT(t.b1,200)),n+1 FROM c JOIN {t.name} t ON t.id=c.id+{self.rng.choice([1, 3])} WHERE n<4) SELECT id,n,MD5(x),LENGTH(x) FROM c")

    def read_sets(self):
        r, t, u = self.rng, self.any(), self.any()
        ops = [r.choice(["UNION", "UNION ALL", "EXCEPT", "INTERSECT"]) for _ in range(2)]
        c = r.choice(["b1", "b2", "k,b1", "b1,b2", "v"])
        self.main.do(f"SELECT {','.join(f'MD5({x})' for x in c.split(','))} FROM (SELECT {c} FROM {t.name} WHERE {self.make.where(t)} {ops[0]} SELECT {c} FROM {u.name} {ops[1]} SELECT {c} FROM {self.any().name} WHERE id<30) d")

    def read_json(self):
        t = self.any()
        self.main.do(self.rng.choice([f"SELECT t.id,x.e,x.o FROM {t.name} t, JSON_TABLE(t.j,'$.c[*]' COLUMNS (o FOR ORDINALITY, e INT PATH '$')) x WHERE {self.make.where(t, 't.')}",
                                      f"SELECT t.id,MD5(x.b) FROM {t.name} t, JSON_TABLE(t.j,'$' COLUMNS (b LONGTEXT PATH '$.b' DEFAULT 'none' ON EMPTY)) x",
                                      f"SELECT id,MD5(JSON_EXTRACT(j,'$.b')),JSON_LENGTH(j),MD5(JSON_MERGE_PATCH(j,'{{\"z\":1}}')) FROM {t.name} WHERE JSON_VALID(j)"]))

    def read_merged(self):
        r, t = self.rng, self.any()
        n, m = r.randint(1, 60), r.randint(0, 9)
        self.main.do(f"SELECT {r.choice([t.shown(), 'id,b1', 'COUNT(*),SUM(CRC32(b1))'])} FROM {t.name} WHERE " + r.choice([
            f"k={m} OR u={n}", f"k={m} OR id={n} OR v LIKE 'v%'", f"k={m} AND b1 LIKE '{r.choice('abcde')}%'", f"b1 LIKE 'a%' OR b2 LIKE 'b%'", f"(k={m} AND u>{n}) OR (id<{n} AND b1>'c')", f"k={m} AND u BETWEEN {n} AND {n + 20} AND id<50",
            f"k={m} AND v={self.make.text(False)}", f"k IN ({m},3) AND b1 BETWEEN 'a' AND 'd'", f"u<{n} AND k={m}", f"k={m} OR b1={self.make.text(False)}"]))

    def read_view(self):
        r, t = self.rng, self.any()
        self.main.do(r.choice([f"SELECT id,MD5(b1),MD5(b2) FROM vt_{t.name} WHERE {r.choice(['k=3', 'b1<b2', 'id<20', 'b1=v'])}", f"SELECT a.id,MD5(a.b1),MD5(b.b1) FROM vt_{t.name} a JOIN vm_{self.any().name} b ON a.k=b.k WHERE b.id<30",
                               f"SELECT id,MD5(b1),CRC32(w) FROM vm_{t.name} WHERE b1>'b'", f"SELECT k,MD5(MAX(b2)) FROM vm_{t.name} GROUP BY k"]))

    def read_locking(self):
        t = self.any()
        self.main.do(f"SELECT {t.shown()} FROM {self.make.source(t)} WHERE {self.make.where(t)} {self.rng.choice(['FOR UPDATE', 'LOCK IN SHARE MODE', 'FOR UPDATE SKIP LOCKED', 'LOCK IN SHARE MODE NOWAIT'])}")

    def read_history(self):
        old = [t for t in self.tables if t.versioned]
        if old:
            t = self.rng.choice(old)
            period = self.rng.choice(["ALL", f"AS OF FROM_UNIXTIME({self.clock - self.rng.randint(0, 60)})", f"BETWEEN FROM_UNIXTIME({self.clock - 50}) AND FROM_UNIXTIME({self.clock - 5})"])
            self.main.do(f"SELECT {t.shown()},UNIX_TIMESTAMP(ROW_START),UNIX_TIMESTAMP(ROW_END) FROM {t.name} FOR SYSTEM_TIME {period}" + self.rng.choice(["", f" WHERE {self.make.where(t)}"]))

    def read_const(self):
        r, t, u = self.rng, self.any(), self.any()
        n = r.randint(1, 60)
        self.main.do(r.choice([
            f"SELECT MD5(MIN(CONCAT_WS('|',LEFT(o.b1,5),a.b1))),MD5(MAX(CONCAT_WS('|',LEFT(o.b2,5),a.b2))),COUNT(*) FROM {t.name} a JOIN {self.make.source(u, 'o')} WHERE a.id={n}",
            f"SELECT MD5(MIN(CONCAT_WS('|',LEFT(o.b1,5),a.b1))),COUNT(*) FROM {t.name} a JOIN {self.make.source(u, 'o')} ON a.u={n} LEFT JOIN {self.any().name} c ON c.id={n + 1}",
            f"SELECT o.id,MD5(CONCAT_WS('|',s.b1,o.b1)) FROM single s JOIN {u.name} o", f"SELECT o.id,MD5(a.b1),MD5(b.b2) FROM {u.name} o LEFT JOIN {t.name} a ON a.id={n} LEFT JOIN {t.name} b ON b.id={n + 1}",
            f"SELECT o.id,(SELECT MD5(GROUP_CONCAT(a.b1,x.b1 ORDER BY x.id,x.b1)) FROM {t.name} a JOIN {self.any().name} x ON x.k=o.k WHERE a.id={n}) FROM {u.name} o WHERE o.id<15",
            f"SELECT o.id,MD5(e.b1),MD5(o.b1) FROM {u.name} o LEFT JOIN empty_one e ON e.id=o.id",
            f"SELECT a.id,MD5(a.b1),MD5(b.b1),MD5(c.b1) FROM {t.name} a,{t.name} b,{u.name} c WHERE a.id={n} AND b.id=a.k AND c.id=b.u"]))

    def read_function(self):
        r, t, u = self.rng, self.any(), self.any()
        self.main.do(r.choice([f"SELECT id,MD5(CONCAT_WS('|',b1,f1(id),b2)) FROM {t.name} WHERE id<25", f"SELECT id,f3(k),MD5(b1) FROM {t.name} WHERE {self.make.where(t)}",
                               f"SELECT id,MD5(f2(b1,id)),MD5(b1) FROM (SELECT id,b1 FROM {t.name} WHERE {self.make.where(t)}) d", f"SELECT a.id FROM {t.name} a WHERE f1(a.id)=a.b1", f"SELECT id,MD5(f4(b1,id)),MD5(b1),MD5(b2) FROM (SELECT id,b1,b2 FROM {t.name} WHERE {self.make.where(t)}) d", f"UPDATE {t.name} SET v=LEFT(f4(b2,id),60) WHERE id<{r.randint(1, 60)} ORDER BY id",
                               f"SELECT id,MD5(f1(k)) FROM {t.name} WHERE {self.make.where(t)} ORDER BY b1,id",
                               f"SELECT COUNT(*),SUM(f3(b.k)) FROM {t.name} a JOIN {u.name} b ON a.id=b.id WHERE a.id<20"]))

    # -- writing ------------------------------------------------------------------------------------------------------
    def insert(self):
        r, t = self.rng, self.any()
        verb = r.choice(["INSERT", "INSERT", "INSERT IGNORE", "REPLACE"])
        if t.long_unique and verb == "REPLACE":
            return
        rows = [self.make.row(None if self.make.chance(0.6) else 100 + self.number + n) for n in range(r.choice([1, 1, 2, 6]))]
        self.main.do(f"{verb} INTO {t.name} ({','.join(KINDS)}) VALUES {','.join(rows)}", affected=not t.versioned, words=not t.long_unique)
        self.changed(t)

    def fill_one(self):
        self.fill(self.any())

    def returning(self):
        r, t = self.rng, self.any()
        what = r.choice(["id,b1,b2", "id,MD5(b1),MD5(b2),v", "id,(SELECT COUNT(*) FROM single),b1", "b2,j,id"] + [f"id,{g}" for g in t.generated])
        if not t.id_is_unique or t.long_unique:
            return
        self.main.do(r.choice([
            f"INSERT INTO {t.name} ({','.join(KINDS)}) VALUES {self.make.row()},{self.make.row()} RETURNING {what}", f"REPLACE INTO {t.name} ({','.join(KINDS)}) VALUES {self.make.row()} RETURNING {what}",
            f"INSERT INTO {t.name} ({','.join(KINDS)}) VALUES {self.make.row()} ON DUPLICATE KEY UPDATE b1=CONCAT('d',VALUES(b1)),b2=IFNULL(VALUES(b2),b2) RETURNING {what}",
            f"DELETE FROM {t.name} WHERE {self.make.where(t)} ORDER BY id LIMIT {r.randint(1, 4)} RETURNING {what}",
            f"INSERT INTO {t.name} (id,k,b1,b2) SELECT id+{r.choice([200, 300, 5])},k,b1,b2 FROM {t.name} WHERE {self.make.where(t)} ORDER BY id RETURNING {what}",
            f"INSERT IGNORE INTO {t.name} (id,k,b1,b2,v) SELECT id+3,k,b2,b1,v FROM {self.any().name} ORDER BY id,b1 LIMIT 4 RETURNING {what}"]), affected=not t.versioned)
        self.changed(t)

    def insert_select(self):
        r, t, u = self.rng, self.any(), self.any()
        if t.sequence and not u.id_is_unique:
            return
        if self.make.chance(0.5):
            u = t
        if not u.id_is_unique:
            return
        end = "" if t.long_unique else r.choice(["", "", " ON DUPLICATE KEY UPDATE b1=VALUES(b1)", f" ON DUPLICATE KEY UPDATE b2=CONCAT(LEFT({t.name}.b2,20000),LEFT(VALUES(b1),20000)),v='dup'", f" ON DUPLICATE KEY UPDATE b2=VALUES(b1)", f" ON DUPLICATE KEY UPDATE b1=(SELECT MAX(q.b1) FROM {self.any().name} q WHERE q.id=VALUES(id))"])
        self.main.do(f"INSERT {r.choice(['', 'IGNORE '])}INTO {t.name} (id,k,b1,b2,v) SELECT x.id+{r.choice([0, 1, 5, 100, 400])},{r.choice(['x.k', 'x.k', '2'])},{r.choice(['x.b1', 'x.b2', 'CONCAT(x.v,LEFT(x.b1,50000))', 'f1(x.id)'])},x.b2,LEFT(x.v,200) FROM {self.make.source(u, 'x')} WHERE {self.make.where(u, 'x.')} ORDER BY x.id" + r.choice(["", f" LIMIT {r.randint(1, 9)}"]) + end, affected=not t.versioned)
        self.changed(t)

    def replace_select(self):
        r, t, u = self.rng, self.any(), self.any()
        if t.long_unique or not u.id_is_unique:
            return
        self.main.do(f"REPLACE INTO {t.name} ({','.join(KINDS)}) SELECT x.id+{r.choice([0, 0, 3])},x.k,x.u,x.b2,x.b1,x.j,LEFT(x.v,100),x.w FROM {u.name} x WHERE {self.make.where(u, 'x.')} ORDER BY x.id", affected=not t.versioned)
        self.changed(t)

    def duplicate(self):
        """VALUES() of a blob that is assigned before is freed memory in MariaDB 10.11, with every engine."""
        r, t = self.rng, self.any()
        if t.long_unique:
            return
        sets = r.choice(["b1=VALUES(b1)", "b2=CONCAT(LEFT(b2,30000),VALUES(b2))", "b2=VALUES(b1)", f"b1={self.make.changed()}", "k=k+1,b1=b1", "u=u+1,b2=VALUES(b1)", "id=id+70,b1=CONCAT(VALUES(v),LEFT(b1,30000))", f"b1=(SELECT q.b1 FROM {self.any().name} q WHERE q.id=VALUES(k) LIMIT 1)", "v=LEFT(VALUES(b1),100),b1=IFNULL(b1,VALUES(b1))", "b1=DEFAULT(b1),b2=DEFAULT(b2)", "j=VALUES(j),w=VALUES(w)"])
        rows = ",".join(self.make.row() for _ in range(r.choice([1, 2, 5])))
        self.main.do(f"INSERT {r.choice(['', '', 'IGNORE '])}INTO {t.name} ({','.join(KINDS)}) VALUES {rows} ON DUPLICATE KEY UPDATE {sets}", affected=not t.versioned)
        self.changed(t)

    def update(self):
        r, t = self.rng, self.any()
        if not t.id_is_unique:
            return self.main.do(f"UPDATE {t.name} SET {self.make.sets()} WHERE k={r.randint(0, 9)} ORDER BY id,b1,b2", affected=False)
        ignore = r.choice(["", "", "IGNORE "]) if not t.long_unique else ""
        self.main.do(f"UPDATE {ignore}{self.make.source(t)} SET {self.make.sets(unique=self.make.chance(0.3))} WHERE {self.make.where(t)} ORDER BY {r.choice(['id', 'id', 'id DESC'])}" + r.choice(["", "", f" LIMIT {r.randint(1, 9)}"]))
        return self.changed(t)

    def update_joined(self):
        r, t, u = self.rng, self.any(), self.any()
        if not (t.id_is_unique and u.id_is_unique):
            return
        plain = {"b1": [f"a.b1={x}" for x in ("b.b1", "b.b2", "CONCAT(LEFT(b.b1,9000),'j',LEFT(a.b1,9000))", "b.v")], "b2": ["a.b2=b.b1", "a.b2=b.j"], "v": ["a.v=LEFT(b.b1,90)"]}
        sets = ",".join(r.choice(plain[c]) for c in r.sample(list(plain), r.choice([1, 2])))
        what = r.randrange(6)
        if what <= 1:
            sql = f"UPDATE {self.make.source(t, 'a')} JOIN {self.make.source(u, 'b')} ON {r.choice(['a.k=b.id', 'a.id=b.id', 'a.u=b.id'])} SET {sets} WHERE {self.make.where(u, 'b.')}"
        elif what == 2 and t is not u:
            sql = f"UPDATE {t.name} a JOIN {u.name} b ON a.id=b.id SET {sets},b.v='both',b.b1={r.choice(['b.b2', 'CONCAT(LEFT(b.b1,9000),1)'])} WHERE {self.make.where(t, 'a.')}"
        elif what == 3:
            sql = f"UPDATE {t.name} a SET a.b1=(SELECT b.b1 FROM {u.name} b WHERE b.id=a.id+1),a.v='sub' WHERE {self.make.where(t, 'a.')} ORDER BY a.id"
        elif what == 4:
            sql = f"UPDATE {t.name} SET b1=CONCAT('in',LEFT(b1,500)) WHERE b1 IN (SELECT q.b1 FROM {u.name} q WHERE {self.make.where(u, 'q.')})"
        else:
            sql = f"UPDATE {t.name} a,(SELECT k,MAX(b1) m,MIN(b2) n FROM {u.name} GROUP BY k) d SET a.b1=d.m,a.b2=d.n WHERE a.k=d.k AND ({self.make.where(t, 'a.')})"
        self.main.do(sql)
        self.changed(t)

    def delete(self):
        r, t, u = self.rng, self.any(), self.any()
        if not t.id_is_unique:
            return
        self.main.do(r.choice([f"DELETE FROM {t.name} WHERE {self.make.where(t)} ORDER BY id LIMIT {r.randint(1, 5)}", f"DELETE FROM {t.name} WHERE b1 IN (SELECT b1 FROM {u.name} q WHERE q.id BETWEEN 10 AND 15)", f"DELETE FROM {t.name} WHERE {self.make.where(t)} ORDER BY LEFT(b1,200),id LIMIT 4"]))
        self.changed(t)

    def delete_joined(self):
        r, t, u = self.rng, self.any(), self.any()
        n = r.randint(1, 60)
        if t is u and t.versioned:  # where rows lie in their primary key, a row of which the history has come is not found again
            return
        self.main.do(r.choice([f"DELETE a FROM {t.name} a JOIN {u.name} b ON a.b1=b.b1 WHERE b.id BETWEEN {n} AND {n + 2} AND a.id>30", f"DELETE a,b FROM {t.name} a JOIN {u.name} b ON a.id=b.id WHERE a.id BETWEEN {n} AND {n + 3} AND LENGTH(b.b1)>10",
                               f"DELETE a FROM {t.name} a LEFT JOIN {u.name} b ON a.id=b.id WHERE b.id IS NULL AND a.k={n % 10}"]))
        self.changed(t)

    def through_view(self):
        r, t = self.rng, self.any()
        if not t.id_is_unique or t.long_unique:
            return
        n = r.randint(1, 60)
        self.main.do(r.choice([f"UPDATE vm_{t.name} SET {self.make.sets()} WHERE id BETWEEN {n} AND {n + 4} ORDER BY id", f"INSERT INTO vm_{t.name} ({','.join(KINDS)}) VALUES {self.make.row()}", f"DELETE FROM vm_{t.name} WHERE id={n}", f"REPLACE INTO vm_{t.name} ({','.join(KINDS)}) VALUES {self.make.row()}",
                               f"UPDATE vm_{t.name} a JOIN vt_{self.any().name} b ON a.id=b.id SET a.b1=b.b2 WHERE a.id<30"]), affected=not t.versioned)
        self.changed(t)

    def portion(self):
        some = [t for t in self.tables if t.period]
        if some:
            t, r = self.rng.choice(some), self.rng
            year = r.randint(2001, 2028)
            n = r.randint(1, 60)
            self.main.do(r.choice([f"UPDATE {t.name} FOR PORTION OF p FROM '{year}-01-01' TO '{year + 2}-01-01' SET b1=CONCAT('p',LEFT(b1,60000)) WHERE id={n}", f"DELETE FROM {t.name} FOR PORTION OF p FROM '{year}-01-01' TO '{year + 1}-01-01' WHERE id={n} OR k={n % 10}"]), affected=False)
            self.compare(t)

    def call(self):
        self.main.do(f"CALL p{self.rng.choice('1234')}({self.rng.randint(1, 50)})", affected=False)
        if self.make.chance(0.4):
            self.compare(self.any())

    def variables(self):
        r, t = self.rng, self.any()
        n = r.randint(1, 60)
        self.main.do(f"SELECT b1,b2,MD5(b1) INTO @x,@y,@z FROM {t.name} WHERE id={n} LIMIT 1" if t.id_is_unique else "SET @x='p',@y='q'", compare=False)
        if t.id_is_unique and not t.long_unique:
            self.main.do(r.choice([f"UPDATE {t.name} SET b1=@y,b2=@x WHERE id={n + 1}", f"INSERT INTO {t.name} (id,b1,b2) VALUES ({n + 2},@x,@y) ON DUPLICATE KEY UPDATE b2=@x", f"SELECT id,MD5(@v:=b1),MD5(@v) FROM {t.name} WHERE id<20", f"EXECUTE IMMEDIATE 'SELECT id,MD5(b1) FROM {t.name} WHERE b1=? OR b2=?' USING @x,@y", f"SET @x=(SELECT GROUP_CONCAT(b1 ORDER BY id) FROM {t.name} WHERE id<9)", "SELECT MD5(@x),MD5(@y),@z"]))
            self.changed(t)

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
