"""A connection of PyMySQL over a unix socket, as root without password.

Tests need to know exactly what was acknowledged: query() returns only after the server's OK, raises SqlError for its
refusal, and Lost when the connection broke before an answer came. Values are text as the server sends it (bytes of
binary columns), so that they can be compared to the last digit.
"""
import collections

import pymysql

# Of one statement: rows (tuples of str, bytes or None), the columns' names, affected rows (0 of a query), the number of warnings.
Result = collections.namedtuple("Result", "rows names affected warnings")


class SqlError(Exception):
    """The server's error: its number and words."""

    def __init__(self, errno, text):
        super().__init__(f"ERROR {errno}: {text}")
        self.errno, self.text = errno, text


class Lost(Exception):
    """The connection broke; whether the last statement took effect is unknown."""


def _told(e):
    """SqlError if the server said it; numbers from 2000 to 2999 are the client's own, and InterfaceError has none."""
    errno = e.args[0] if e.args else None
    if isinstance(errno, int) and errno > 0 and not 2000 <= errno < 3000:
        return SqlError(errno, e.args[1])
    return Lost(str(e))


class Client:
    """One connection. timeout: seconds that an answer may take (None: for ever); it is Lost then."""

    def __init__(self, sock, db=None, timeout=None):
        try:
            self.connection = pymysql.connect(unix_socket=sock, user="root", database=db, charset="utf8mb4", conv={},
                                              autocommit=None, read_timeout=timeout, write_timeout=timeout)
        except pymysql.MySQLError as e:
            raise _told(e) from e

    def close(self):
        """Drop the connection."""
        if self.connection.open:
            self.connection.close()

    def query(self, sql):
        """Run one statement and wait for its whole answer."""
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(sql)
                names = [column[0] for column in cursor.description or ()]
                # PyMySQL 1.0 has no public name for the number of warnings.
                return Result(list(cursor.fetchall()), names, 0 if names else cursor.rowcount, cursor._result.warning_count)
        except pymysql.MySQLError as e:
            raise _told(e) from e

    def one(self, sql):
        """The first column of the first row (None if there is no row)."""
        rows = self.query(sql).rows
        return rows[0][0] if rows else None

    def row(self, sql):
        """The first row as a dict."""
        result = self.query(sql)
        return dict(zip(result.names, result.rows[0])) if result.rows else {}
