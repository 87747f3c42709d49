"""Two connections to twins of a database, and what both answer, held against each other."""
import os
import struct

import pymysql

from eskerlib.client import SqlError, _told

ENGINES = (os.environ.get("TWIN", "Esker"), os.environ.get("OTHER", "InnoDB"))
OF_MEMORY = {1037, 1038}
SAME = {159: 1412}



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
