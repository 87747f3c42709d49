"""What the binlog says a table must hold: its row events played back into a multiset of rows."""
import collections
import glob
import os
import re
import subprocess

EVENT = re.compile(rb"^### (INSERT INTO|UPDATE|DELETE FROM) `([^`]+)`\.`([^`]+)`")
VALUE = re.compile(rb"^###   @\d+=(.*)$")
CLEARS = re.compile(rb"^(?:TRUNCATE|DROP)\s+TABLE\s+(?:IF\s+EXISTS\s+)?(?:`?(\w+)`?\.)?`?(\w+)`?", re.I)


def _value(text):
    """A value as the client prints it: numbers bare, strings without quotes."""
    if text[:1] == b"'":
        return text[1:-1].decode("utf-8", "replace")
    return None if text == b"NULL" else text.split(b" ")[0].decode()


def replay(server, db, tables):
    """({table: Counter of rows}, problems) from all binlogs of a server, in order. Only whole, committed groups are in them."""
    have, problems = {t: collections.Counter() for t in tables}, []
    files = sorted(glob.glob(os.path.join(server.data, "binlog.[0-9]*")))
    if not files:
        return have, ["there is no binlog"]
    tool = os.path.join(server.env["ESKER_CLIENT_DIR"], "mariadb-binlog")
    run = subprocess.Popen([tool, "--no-defaults", "-v", "--base64-output=decode-rows"] + files, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    state = {"verb": None, "table": None, "old": [], "new": []}

    def finish():
        verb, table = state["verb"], state["table"]
        state["verb"] = None
        if verb is None or table not in have:
            return
        if verb != b"INSERT INTO":
            row = tuple(state["old"])
            if have[table][row] < 1:
                problems.append(f"binlog: {verb.decode()} {table}: of a row that is not there: {row}")
            else:
                have[table][row] -= 1
        if verb != b"DELETE FROM":
            have[table][tuple(state["new"])] += 1

    part = "new"
    for line in run.stdout:
        if line.startswith(b"###"):
            event = EVENT.match(line)
            if event:
                finish()
                state.update(verb=event.group(1), old=[], new=[], table=event.group(3).decode() if event.group(2).decode() == db else None)
            elif line.startswith(b"### WHERE"):
                part = "old"
            elif line.startswith(b"### SET"):
                part = "new"
            else:
                value = VALUE.match(line.rstrip(b"\n"))
                if value:
                    state[part].append(_value(value.group(1)))
        else:
            finish()
            cleared = CLEARS.match(line)
            if cleared and cleared.group(2).decode() in have:
                have[cleared.group(2).decode()].clear()
    finish()
    errors = run.stderr.read().decode("utf-8", "replace").strip()
    if run.wait():
        problems.append(f"mariadb-binlog failed: {errors[-500:]}")
    return {t: +c for t, c in have.items()}, problems


def compare(server, connection, db, tables):
    """Problems where tables and binlog disagree."""
    says, problems = replay(server, db, tables)
    for table in tables:
        rows = collections.Counter(connection.query(f"SELECT * FROM {db}.{table}").rows)
        only_table, only_binlog = rows - says[table], says[table] - rows
        if only_table or only_binlog:
            problems.append(f"{table} and the binlog disagree: {sum(only_table.values())} rows only in the table, e.g. {list(only_table)[:2]}; "
                            f"{sum(only_binlog.values())} only in the binlog, e.g. {list(only_binlog)[:2]}")
    return problems
