"""What the binlog says a table must hold: its row events played back into a multiset of rows."""
import collections
import glob
import os
import re
import subprocess
import zlib

EVENT = re.compile(rb"^### (INSERT INTO|UPDATE|DELETE FROM) `([^`]+)`\.`([^`]+)`")
VALUE = re.compile(rb"^###   @\d+=(.*)$")
# The beginning of a file; an event's header, and where in it its type, length and flags are.
MAGIC_BYTES, HEADER_BYTES, TYPE_AT, LENGTH_AT, FLAGS_AT = 4, 19, 4, 9, 17
FORMAT_DESCRIPTION, IN_USE = 15, 1
CLEARS = re.compile(rb"^(?:TRUNCATE|DROP)\s+TABLE\s+(?:IF\s+EXISTS\s+)?(?:`?(\w+)`?\.)?`?(\w+)`?", re.I)


def _value(text):
    """A value as the client prints it: numbers bare, strings without quotes."""
    if text[:1] == b"'":
        return text[1:-1].decode("utf-8", "replace")
    return None if text == b"NULL" else text.split(b" ")[0].decode()


class Replay:
    """The rows that the binlog says each table of a database holds, read on with each comparison: a file is read once."""

    def __init__(self, server, db, tables):
        self.server, self.db = server, db
        self.have = {t: collections.Counter() for t in tables}
        self.read = set()

    def compare(self, connection):
        """Problems where tables and binlog disagree. Nobody writes meanwhile."""
        connection.query("FLUSH BINARY LOGS")  # everything is in files that get no more
        problems = self._read_on()
        for table, says in self.have.items():
            rows = collections.Counter(connection.query(f"SELECT * FROM {self.db}.{table}").rows)
            only_table, only_binlog = rows - says, says - rows
            if only_table or only_binlog:
                problems.append(f"{table} and the binlog disagree: {sum(only_table.values())} rows only in the table, e.g. {list(only_table)[:2]}; "
                                f"{sum(only_binlog.values())} only in the binlog, e.g. {list(only_binlog)[:2]}")
        return problems

    def _read_on(self):
        """Plays back the files that were not read yet, but for the newest; problems."""
        files = [f for f in sorted(glob.glob(os.path.join(self.server.data, "binlog.[0-9]*")))[:-1] if f not in self.read]
        if not files:
            return ["there is no new file of the binlog"]
        self.read.update(files)
        problems = _play(self.server, self.db, files, self.have)
        self.have = {t: +c for t, c in self.have.items()}
        return problems


def sound_end(path):
    """Where the last sound event of a file ends: behind what was synced a power cut may leave half an event, zeros, or a hole in an
    event, of which nobody was told. A server that recovers stops there, too (with master_verify_checksum it looks for holes), and
    goes on in the next file, with the same GTID."""
    with open(path, "rb") as f:
        file = f.read()
    at = MAGIC_BYTES
    while at + HEADER_BYTES <= len(file):
        length = int.from_bytes(file[at + LENGTH_AT:at + LENGTH_AT + 4], "little")
        if length < HEADER_BYTES or at + length > len(file) or not _is_sound(file[at:at + length]):
            break
        at += length
    return at


def _is_sound(event):
    """Whether an event is as its CRC32 says; the first of a file is summed as if the file were not in use."""
    summed = bytearray(event[:-4])
    if event[TYPE_AT] == FORMAT_DESCRIPTION:
        summed[FLAGS_AT] &= ~IN_USE
    return zlib.crc32(summed) == int.from_bytes(event[-4:], "little")


def _play(server, db, files, have):
    """Applies the groups in these files, in order, to {table: Counter of rows}; problems."""
    return [problem for path in files for problem in _play_file(server, db, path, have)]


def _play_file(server, db, path, have):
    """The same of one file, up to the last sound event. A group that a crash cut short has no COMMIT: nobody has been told of it, and
    the server ends what an engine has prepared of it with a rollback."""
    problems, group, part = [], [], "new"
    tool = os.path.join(server.env["ESKER_CLIENT_DIR"], "mariadb-binlog")
    run = subprocess.Popen([tool, "--no-defaults", "-v", "--base64-output=decode-rows", f"--stop-position={sound_end(path)}", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for line in run.stdout:
        if line.startswith(b"###"):
            event = EVENT.match(line)
            if event:
                table = event.group(3).decode() if event.group(2).decode() == db else None
                group.append({"verb": event.group(1), "table": table, "old": [], "new": []})
            elif line.startswith(b"### WHERE"):
                part = "old"
            elif line.startswith(b"### SET"):
                part = "new"
            else:
                value = VALUE.match(line.rstrip(b"\n"))
                if value:
                    group[-1][part].append(_value(value.group(1)))
        elif line.startswith((b"START TRANSACTION", b"ROLLBACK/*!*/", b"ROLLBACK /*")):
            group = []
        elif line.startswith(b"COMMIT"):
            problems += _apply(group, have)
            group = []
        else:
            cleared = CLEARS.match(line)
            if cleared and cleared.group(2).decode() in have:
                have[cleared.group(2).decode()].clear()
    errors = run.stderr.read().decode("utf-8", "replace").strip()
    if run.wait():
        problems.append(f"mariadb-binlog failed on {os.path.basename(path)} with status {run.returncode}: {errors[-500:]}")
    return problems


def _apply(group, have):
    """The row events of a committed group; problems."""
    problems = []
    for event in group:
        verb, table = event["verb"], event["table"]
        if table not in have:
            continue
        if verb != b"INSERT INTO":
            row = tuple(event["old"])
            if have[table][row] < 1:
                problems.append(f"binlog: {verb.decode()} {table}: of a row that is not there: {row}")
            else:
                have[table][row] -= 1
        if verb != b"DELETE FROM":
            have[table][tuple(event["new"])] += 1
    return problems
