"""A small MariaDB client over a unix socket, standard library only: text protocol, root without password.

It exists because tests need to know exactly what was acknowledged: query() returns only after the server's OK,
raises SqlError for an error packet and Lost when the connection broke before an answer came.
"""
import socket
import struct


class SqlError(Exception):
    """The server's error: errno, sqlstate and message."""

    def __init__(self, errno, state, text):
        super().__init__(f"ERROR {errno} ({state}): {text}")
        self.errno, self.state, self.text = errno, state, text


class Lost(Exception):
    """The connection broke; whether the last statement took effect is unknown."""


class Result:
    """Of one statement: rows (tuples of str, bytes kept out of it, or None), names, affected, insert_id, warnings."""

    def __init__(self):
        self.rows, self.names, self.affected, self.insert_id, self.warnings = [], [], 0, 0, 0


def _lenenc(data, at):
    """A length-encoded integer (None for NULL) and the position after it."""
    first = data[at]
    if first < 0xFB:
        return first, at + 1
    if first == 0xFB:
        return None, at + 1
    size = {0xFC: 2, 0xFD: 3, 0xFE: 8}[first]
    return int.from_bytes(data[at + 1:at + 1 + size], "little"), at + 1 + size


class Client:
    """One connection."""

    PROTOCOL_41, WITH_DB, SECURE, MULTI, PLUGIN_AUTH, LOCAL = 0x200, 0x8, 0x8000, 0x30000, 0x80000, 0x1

    def __init__(self, sock, user="root", db=None, timeout=None):
        try:
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.socket.settimeout(timeout)
            self.socket.connect(sock)
            self.stream = self.socket.makefile("rb", 1 << 16)
            greeting = self._read()
            if greeting[0] == 0xFF:
                raise self._error(greeting)
            at = greeting.index(0, 1) + 1
            self.id = struct.unpack_from("<I", greeting, at)[0]
            flags = self.PROTOCOL_41 | self.SECURE | self.PLUGIN_AUTH | self.MULTI | self.LOCAL
            flags |= self.WITH_DB if db else 0
            hello = struct.pack("<IIB23x", flags, 1 << 30, 45) + user.encode() + b"\0\0"
            hello += (db.encode() + b"\0" if db else b"") + b"mysql_native_password\0"
            self._write(hello, 1)
            answer = self._read()
            if answer[0] == 0xFE:  # asked for another method: the empty password's answer is empty everywhere
                self._write(b"", self.sequence + 1)
                answer = self._read()
            if answer[0] == 0xFF:
                raise self._error(answer)
        except OSError as e:
            raise Lost(str(e)) from e

    def close(self):
        """Drop the connection."""
        self.stream.close()
        self.socket.close()

    def _write(self, body, sequence):
        while True:
            part, body = body[:0xFFFFFF], body[0xFFFFFF:]
            self.socket.sendall(struct.pack("<I", len(part) | (sequence & 255) << 24) + part)
            sequence += 1
            if len(part) < 0xFFFFFF:
                return

    def _read(self):
        body = b""
        while True:
            head = self.stream.read(4)
            if head is None or len(head) < 4:
                raise Lost("the server closed the connection")
            size = int.from_bytes(head[:3], "little")
            self.sequence = head[3]
            part = self.stream.read(size)
            if len(part) < size:
                raise Lost("the server closed the connection")
            body += part
            if size < 0xFFFFFF:
                return body

    @staticmethod
    def _error(packet):
        errno = struct.unpack_from("<H", packet, 1)[0]
        text = packet[3:].decode("utf-8", "replace")
        return SqlError(errno, text[1:6], text[6:]) if text[:1] == "#" else SqlError(errno, "?", text)

    def query(self, sql):
        """Run one statement and wait for its whole answer."""
        try:
            return self._query(sql)
        except OSError as e:
            raise Lost(str(e) or type(e).__name__) from e

    def _query(self, sql):
        self._write(b"\x03" + (sql if isinstance(sql, bytes) else sql.encode()), 0)
        packet, result = self._read(), Result()
        if packet[0] == 0xFF:
            raise self._error(packet)
        if packet[0] == 0x00:
            result.affected, at = _lenenc(packet, 1)
            result.insert_id, at = _lenenc(packet, at)
            result.warnings = struct.unpack_from("<H", packet, at + 2)[0]
            return result
        if packet[0] == 0xFB:
            self._write(b"", self.sequence + 1)  # LOAD DATA LOCAL is not served
            self._read()
            raise SqlError(1148, "42000", "LOAD DATA LOCAL is not supported by this client")
        columns, _ = _lenenc(packet, 0)
        for _ in range(columns):
            packet, at = self._read(), 0
            for field in range(5):  # catalog, schema, table, original table, name
                size, at = _lenenc(packet, at)
                text, at = packet[at:at + size], at + size
            result.names.append(text.decode())
        self._read()
        while True:
            packet = self._read()
            if packet[0] == 0xFE and len(packet) < 9:
                return result
            if packet[0] == 0xFF:
                raise self._error(packet)
            row, at = [], 0
            for _ in range(columns):
                size, at = _lenenc(packet, at)
                if size is None:
                    row.append(None)
                else:
                    row.append(packet[at:at + size].decode("utf-8", "replace"))
                    at += size
            result.rows.append(tuple(row))

    def one(self, sql):
        """The first column of the first row (None if there is no row)."""
        rows = self.query(sql).rows
        return rows[0][0] if rows else None

    def row(self, sql):
        """The first row as a dict."""
        result = self.query(sql)
        return dict(zip(result.names, result.rows[0])) if result.rows else {}
