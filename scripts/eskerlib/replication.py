"""Primary and replicas on this machine: settings, ports, who follows whom, how far a replica is, and whether two servers have
the same rows. GTIDs throughout. docs/SCALE_OUT.md has the same by hand."""
import random
import re
import socket
import time

from .client import Lost, SqlError

USER, PASSWORD = "repl", "follows"
UNLOGGED = "SET SESSION sql_log_bin=0"  # what follows belongs to this server alone
_given = set()


class Stopped(RuntimeError):
    """A replica stopped, or did not get as far as it should."""


def free_port():
    """A port that nobody listens on now. Below those that the kernel gives to who connects: while a server is down its
    replica tries to connect all the time, and would sooner or later be given its port, and keep it."""
    while True:
        port = random.randrange(23000, 32000)
        with socket.socket() as s:
            try:
                s.bind(("", port))
            except OSError:
                continue
        if port not in _given:
            _given.add(port)
            return port


def settings(server_id):
    """Of a server that can be a primary and a replica: a binlog of rows, synced with each group commit, replicated
    transactions in it too."""
    return {"server_id": server_id, "log_bin": "binlog", "binlog_format": "ROW", "sync_binlog": 1, "log_slave_updates": 1,
            "gtid_strict_mode": 1, "relay_log_recovery": 1, "relay_log": "relay", "skip_slave_start": 1,
            "slave_parallel_threads": 4, "rpl_semi_sync_master_timeout": 1000, "slave_net_timeout": 60}


def prepare(connection, position_engine="Esker"):
    """A new server: the account that replicas come by, and the table of its own position in an engine."""
    connection.query(UNLOGGED)
    connection.query(f"CREATE USER IF NOT EXISTS {USER}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'")
    connection.query(f"GRANT REPLICATION SLAVE ON *.* TO {USER}@'127.0.0.1'")
    connection.query(f"ALTER TABLE mysql.gtid_slave_pos ENGINE={position_engine}")
    connection.query("SET SESSION sql_log_bin=1")


def semi_sync(connection, master=False, slave=False):
    """Sets both roles of semi-synchronous replication; a replica's takes effect when it starts to follow."""
    connection.query(f"SET GLOBAL rpl_semi_sync_master_enabled={int(master)}")
    connection.query(f"SET GLOBAL rpl_semi_sync_slave_enabled={int(slave)}")


def follow(connection, port, demote=False):
    """Makes a server a replica of the one on that port, from its GTID position on; demote: what it wrote itself as a primary
    counts there, too. Started by start()."""
    connection.query(f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='{USER}', MASTER_PASSWORD='{PASSWORD}', "
                     f"MASTER_CONNECT_RETRY=1, MASTER_USE_GTID=slave_pos" + (", MASTER_DEMOTE_TO_SLAVE=1" if demote else ""))


def start(connection, mode="optimistic"):
    """Lets a stopped replica follow, with this kind of parallel workers."""
    connection.query("STOP SLAVE")
    connection.query(f"SET GLOBAL slave_parallel_mode='{mode}'")
    connection.query("START SLAVE")


def trouble(connection):
    """What a replica says of errors; empty if its SQL thread runs. A primary that cannot be reached is none."""
    row = connection.row("SHOW SLAVE STATUS")
    if row["Slave_SQL_Running"] == "Yes" and not row["Last_SQL_Error"]:
        return ""
    return (f"SQL thread running: {row['Slave_SQL_Running']}, error {row['Last_SQL_Errno']}: {row['Last_SQL_Error']}, "
            f"IO thread: {row['Slave_IO_Running']} {row['Last_IO_Error']}, at {row['Gtid_IO_Pos']}")


def pass_torn_end(replica):
    """Does the replica stand before a part of an event, where its primary was killed in the middle of a write to its binlog? Then it
    goes on in the next file, as somebody would do it by hand: MariaDB (10.11) leaves the part there, and sends what is behind it to
    nobody, whatever the engine. What was in it was acknowledged to nobody. True if it did."""
    row = replica.row("SHOW SLAVE STATUS")
    torn = re.search(r"truncated in the middle of event.*the last event read from '(\w+)\.(\d+)'", row["Last_IO_Error"])
    if row["Last_IO_Errno"] != "1236" or not torn:
        return False
    replica.query(f"SELECT MASTER_GTID_WAIT('{row['Gtid_IO_Pos']}', 60)")
    replica.query("STOP SLAVE")
    replica.query(f"CHANGE MASTER TO MASTER_USE_GTID=no, MASTER_LOG_FILE='{torn[1]}.{int(torn[2]) + 1:0{len(torn[2])}}', MASTER_LOG_POS=4")
    replica.query("START SLAVE")
    return True


def catch_up(replica, position, most_s=300):
    """Waits until a replica has applied this GTID position; the seconds that took."""
    begin, passed = time.monotonic(), False
    while replica.one(f"SELECT MASTER_GTID_WAIT('{position}', 1)") != "0":
        passed |= pass_torn_end(replica)
        said = trouble(replica)
        if said or time.monotonic() - begin > most_s:
            row = replica.row("SHOW SLAVE STATUS")
            raise Stopped(said or f"after {most_s} s the replica is at {replica.one('SELECT @@GLOBAL.gtid_slave_pos')}, not at {position}; "
                                  f"SQL thread: {row['Slave_SQL_Running_State']}, IO thread: {row['Slave_IO_Running']} {row['Last_IO_Error']}")
    if passed:
        replica.query("STOP SLAVE")
        replica.query("CHANGE MASTER TO MASTER_USE_GTID=slave_pos")
        replica.query("START SLAVE")
    return time.monotonic() - begin


def position(primary):
    """What has been written into its binlog."""
    return primary.one("SELECT @@GLOBAL.gtid_binlog_pos")


def different(one, other, db, tables):
    """Tables whose rows are not the same on two servers, with what differs. CHECKSUM TABLE adds up the rows' checksums, so
    their order does not matter."""
    names = ",".join(f"{db}.{t}" for t in tables)
    sums = [dict(c.query(f"CHECKSUM TABLE {names}").rows) for c in (one, other)]
    found = []
    for table in tables:
        a, b = (s.get(f"{db}.{table}") for s in sums)
        if a is None or a != b:
            rows = [c.one(f"SELECT COUNT(*) FROM {db}.{table}") for c in (one, other)]
            found.append(f"{table} is not the same on both servers: {rows[0]} rows with checksum {a}, {rows[1]} with {b}")
    return found


def wait_for(what, true, most_s=120):
    """Waits for true() of a server that may not answer yet."""
    end = time.monotonic() + most_s
    while time.monotonic() < end:
        try:
            if true():
                return
        except (Lost, SqlError):
            pass
        time.sleep(0.02)
    raise Stopped(f"after {most_s} s there is still not: {what}")
