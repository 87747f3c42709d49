"""A primary and a replica, both with Esker, of which one or both are killed under load; and a primary whose power is cut.

The replica has the table of its own position in Esker, a binlog of what it applies, four workers, optimistic, aggressive or
conservative, and is semi-synchronous in every other round. After each crash: what the primary acknowledged is there, its
binlog and tables agree (as in kill_test.py); of a semi-synchronous replica whose primary died, all that was acknowledged is
there, too; a replica that was killed is, before it goes on, exactly at the end of its own binlog, and that agrees with its
tables; then it catches up without an error and has the same rows. It is a failure if a counter says that the test did not
reach what it is for: transactions that were run again, group commits of several, flushes and merges on both servers, waits
for semi-synchronous replicas.

    KILLS=3          rounds: the primary is killed, the replica, both, and so on
    CUTS=1           power cuts of the primary; needs what powercut_test.py needs
    CLIENTS=6  SEED=  CRASH_ENGINE=   as in kill_test.py
"""
import os
import random
import re
import struct
import time

import pytest

import binlog
import crash
import indexes
import load
from cases import CLIENTS, ENGINE, SEED, none_of
from eskerlib import env, replication, server, show
from powercut_test import CUTS, FLUSH_US, FOLDER, disk, run, skip_unless_it_can  # noqa: F401 (disk is a fixture)

KILLS = env.number("KILLS", 3)
VICTIMS = ("primary", "replica", "both")
MODES = ("optimistic", "conservative", "aggressive")
ROWS = 5000  # at a time: runs of their own, but not more, since the binlog is played back twice
# A table without keys is searched from its beginning for each row that a replica changes: 8,000 rows at a time take minutes.
WITHOUT_KEYS = 200
OF_PRIMARY = ("grouped_commits", "rpl_semi_sync_master_yes_tx")
OF_REPLICA = ("flushes", "merges", "checkpoints", "key_flushes", "key_merges", "grouped_commits", "slave_retried_transactions")
MANY_ROWS = 100_000  # from here on tables are emptied, so that checks stay quick


class Sums(crash.Reach):
    """Counters over lives of a server that is not killed each time."""

    def __init__(self, names=crash.REACH):
        super().__init__(ENGINE, names)
        self.last = {}

    def add(self, now):
        """What it counted since the last reading. FLUSH STATUS, which the check of indexes needs, puts some to nought."""
        last = {name: before for name, before in self.last.items() if before <= now[name]}
        super().add({name: value - last.get(name, 0) for name, value in now.items()})
        self.last = now

    def begin_anew(self):
        """The server was killed: it counts from nought."""
        self.last = {}


def counters(connection):
    """Esker's and the server's own, by short name."""
    found = crash.status(connection)
    found.update((name.lower(), int(value)) for name, value in connection.query(
        "SHOW GLOBAL STATUS WHERE Variable_name IN ('Binlog_commits','Binlog_group_commits','Slave_retried_transactions','Rpl_semi_sync_master_yes_tx')").rows)
    found["grouped_commits"] = found["binlog_commits"] - found["binlog_group_commits"]
    return found


class Side:
    """One of the two: a server, what it reached, and its binlog played back."""

    def __init__(self, s, reach, logged):
        self.server, self.reach, self.logged, self.kills = s, reach, logged, 0
        self.replay = binlog.Replay(s, "crash", load.tables(CLIENTS))

    def connect(self):
        """A connection. What is done by hand on the replica, as FLUSH STATUS, must not get GTIDs of its own."""
        c = self.server.connect("crash")
        if not self.logged:
            c.query(replication.UNLOGGED)
        return c

    def read(self):
        """Reads the counters, before they are gone."""
        c = self.connect()
        self.reach.add(counters(c))
        c.close()

    def kill(self):
        """SIGKILL."""
        self.server.kill()
        self.reach.begin_anew()
        self.kills += 1

    def forget(self, connection):
        """Removes the files of the binlog that were played back."""
        connection.query(f"PURGE BINARY LOGS TO '{connection.row('SHOW MASTER STATUS')['File']}'")


class Pair:
    """Primary and replica, set up."""

    def __init__(self, primary, replica):
        self.primary, self.replica = Side(primary, Sums(OF_PRIMARY), True), Side(replica, Sums(OF_REPLICA), False)
        self.reach, self.lag = Sums(), 0.0
        for side in (self.primary, self.replica):
            side.server.create()
            side.server.start()
            c = side.server.connect()
            replication.prepare(c, ENGINE)
            c.close()
        c = self.primary.server.connect()
        load.create(c, ENGINE, CLIENTS)
        at = replication.position(c)
        c.close()
        c = self.replica.server.connect()
        replication.follow(c, primary.port)
        replication.start(c)
        replication.catch_up(c, at)
        c.close()

    def begin(self, number, victim, moments):
        """How the replica follows in this round; the words for it, and whether what is acknowledged is there, too."""
        mode, semi = moments.choice(MODES) if number > 1 else MODES[0], number % 2 == 1
        p, r = self.primary.connect(), self.replica.connect()
        replication.semi_sync(p, master=semi)
        # Where only the primary dies, no wait for the replica may end before it has answered.
        p.query(f"SET GLOBAL rpl_semi_sync_master_timeout={100_000 if victim == 'primary' else 500}")
        replication.semi_sync(r, slave=semi)
        replication.start(r, mode)
        if semi:
            replication.wait_for("a semi-synchronous replica", lambda: p.row("SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'")["Value"] == "1")
        p.close()
        r.close()
        if mode != "conservative":
            self.conflict()
        return mode + (", semi-synchronous" if semi else ""), semi and victim == "primary"

    def bring_back(self, moments, problems):
        """Starts a replica that was killed. Before it goes on, position, binlog and tables agree."""
        took = crash.restart(self.replica.server, moments)
        c = self.replica.connect()
        at, written = c.one("SELECT @@GLOBAL.gtid_slave_pos"), replication.position(c)
        if at != written:
            problems.append(f"the replica's position is {at}, the end of its binlog {written}")
        problems += [f"replica: {p}" for p in self.replica.replay.compare(c)]
        self.replica.forget(c)
        c.close()
        return took

    def conflict(self):
        """Three transactions that the primary made one after the other, of which the replica's workers have to run one again:
        the first is held up, the second has a row by then that the first wants. Together they change nothing."""
        p, r, holder = self.primary.connect(), self.replica.connect(), self.replica.connect()
        replication.catch_up(r, replication.position(p))
        holder.query("BEGIN")
        holder.query("SELECT balance FROM accounts WHERE id=1 FOR UPDATE")
        for sql in ("BEGIN", "UPDATE accounts SET balance=balance-1 WHERE id=1", "UPDATE accounts SET balance=balance-1 WHERE id=2", "COMMIT",
                    "UPDATE accounts SET balance=balance+1 WHERE id=2", "UPDATE accounts SET balance=balance+1 WHERE id=1"):
            p.query(sql)
        waiting = "SELECT COUNT(*)>0 FROM information_schema.processlist WHERE state LIKE 'Waiting for prior transaction to commit%'"
        replication.wait_for("a worker that waits for the one ahead", lambda: r.one(waiting) == "1")
        holder.query("ROLLBACK")
        replication.catch_up(r, replication.position(p))
        for c in (p, r, holder):
            c.close()

    def fall_behind(self, moments):
        """Lets the replica gather some work, which its workers then do with all the more of it at a time."""
        c = self.replica.connect()
        c.query("STOP SLAVE SQL_THREAD")
        time.sleep(moments.uniform(0.2, 1.5))
        c.query("START SLAVE SQL_THREAD")
        c.close()

    def has_all(self, writers, moments, problems):
        """While the primary is gone: whatever it acknowledged is on the semi-synchronous replica."""
        c = self.replica.connect()
        try:
            replication.catch_up(c, c.row("SHOW SLAVE STATUS")["Gtid_IO_Pos"])
        except replication.Stopped as e:
            problems.append(f"the replica stopped: {e}")
            return
        told = [(w.model, w.perhaps) for w in writers]
        problems += [f"not on the semi-synchronous replica: {p}" for p in crash.check(c, writers, moments)[0]]
        for w, before in zip(writers, told):
            w.model, w.perhaps = before
        c.close()

    def compare(self, problems):
        """The replica catches up and has the primary's rows, by every index."""
        p, r = self.primary.connect(), self.replica.connect()
        try:
            self.lag += replication.catch_up(r, replication.position(p))
            self.replica.read()
        except replication.Stopped as e:
            problems.append(f"the replica stopped: {e}")
            return
        tables = load.tables(CLIENTS)
        problems += replication.different(p, r, "crash", tables)
        for table in tables:
            problems += [f"replica: {said}" for said in indexes.check(r, "crash", table)]
        p.close()
        r.close()

    def empty(self, writers):
        """Begins anew. The replica has to have this before the next crash: MariaDB writes the position of a DDL statement after
        the statement, so that one which was cut between the two would be repeated."""
        p, r = self.primary.connect(), self.replica.connect()
        load.empty(p, writers)
        replication.catch_up(r, replication.position(p))
        p.close()
        r.close()

    def problems(self):
        """What was not reached."""
        return (self.reach.problems() + [f"primary: {p}" for p in self.primary.reach.problems()]
                + [f"replica: {p}" for p in self.replica.reach.problems()])

    def __str__(self):
        return (f"primary: {self.primary.kills} kills, {self.reach}, {self.primary.reach}; replica: {self.replica.kills} kills, "
                f"{self.replica.reach}, {self.lag:.1f} s of catching up")


def clients(pair, seed, old):
    """Writers of a new life, which go on where those before them ended."""
    writers = load.writers(CLIENTS, pair.primary.server, seed, True, ROWS, WITHOUT_KEYS)
    for w, before in zip(writers, old):
        w.succeed(before)
    return writers


def end(writers):
    """Lets them end, and waits for it."""
    writers[0].stop_event.set()
    for w in writers:
        w.join(130)


def crash_one(pair, victim, both_have_all, writers, moments, last, problems):
    """Load, a kill, and all who write have ended; the words that describe it. Whoever was killed is up again."""
    for w in writers:
        w.start()
    if moments.random() < 0.5:
        pair.fall_behind(moments)
    c = pair.primary.connect()
    when = crash.until_the_moment(c, writers, pair.reach, moments, 0.3, 3.0, last)
    c.close()
    for side in (pair.primary, pair.replica):
        side.read()
    killed = [side for name, side in (("primary", pair.primary), ("replica", pair.replica)) if victim in (name, "both")]
    moments.shuffle(killed)
    for side in killed:
        side.kill()
    if victim == "replica":
        took = pair.bring_back(moments, problems)
        c = pair.replica.connect()
        replication.start(c, moments.choice(MODES))
        c.close()
        load.wait_seconds(writers, moments.uniform(0.1, 1.0))
        end(writers)
        return f"after {when}, restart {took:.2f} s, with the load going on"
    end(writers)
    if both_have_all:
        pair.has_all(writers, moments, problems)
    pair.reach.begin_anew()
    took = crash.restart(pair.primary.server, moments)
    if victim == "both":
        took += pair.bring_back(moments, problems)
        c = pair.replica.connect()
        replication.start(c, moments.choice(MODES))
        c.close()
    return f"after {when}, restart {took:.2f} s"


def look(pair, writers, moments, problems):
    """Everything that must hold once nobody writes; how many rows were looked at."""
    c = pair.primary.connect()
    found, looked = crash.check(c, writers, moments)
    problems += found or pair.primary.replay.compare(c)
    pair.compare(problems)
    if not problems:
        pair.primary.forget(c)
    c.close()
    return looked


def settings(number):
    """Of crash.py and of replication."""
    return dict(crash.settings(True, None), **replication.settings(number))


def test_kill(servers, again):
    """All kills, of the primary, the replica and both by turns."""
    again(SEED=SEED, KILLS=KILLS, CLIENTS=CLIENTS, CRASH_ENGINE=ENGINE)
    made = [servers(f"replica-{name}", settings(n), [ENGINE], port=replication.free_port()) for n, name in ((1, "primary"), (2, "replica"))]
    for s in made:
        s.create(fresh=True)
    pair, moments, writers, total = Pair(*made), random.Random(SEED), [], 0
    for number in range(1, KILLS + 1):
        victim, problems = VICTIMS[(number - 1) % 3], []
        how, both_have_all = pair.begin(number, victim, moments)
        writers = clients(pair, SEED + number, writers)
        said = crash_one(pair, victim, both_have_all, writers, moments, number == KILLS, problems)
        looked = look(pair, writers, moments, problems)
        total += sum(w.acknowledged for w in writers)
        show.say(f"{ENGINE}, {how}, kill {number} of {KILLS}, {victim}, {said}: {sum(w.acknowledged for w in writers)} acknowledged, "
                 f"{looked:,} rows looked at" + ("" if not problems else f", {len(problems)} PROBLEMS"))
        none_of(problems)
        if looked > MANY_ROWS:
            pair.empty(writers)
    show.say(f"reached: {pair}")
    problems = pair.problems() + [f"the {s.name} did not stop in order after the test" for s in reversed(made) if not s.stop()]
    none_of(problems + ([] if total else ["nothing was acknowledged, the test proved nothing"]))


def tear(data):
    """Puts all but the end of the last binlog's last event behind it, as a kill in the middle of the write does. Of less than an event's
    head MariaDB says nothing."""
    last = max(name for name in os.listdir(data) if re.fullmatch(r"binlog\.\d+", name))
    with open(os.path.join(data, last), "r+b") as f:
        events, at = f.read(), 4
        while at < len(events):
            event, at = events[at:], at + struct.unpack_from("<I", events, at + 9)[0]
        f.write(event[:-5])


def test_torn_binlog(servers):
    """A kill may tear an event of the primary's binlog; the replica goes on behind it and has all that was acknowledged."""
    primary, replica = (servers(f"replica-torn-{n}", settings(n), [ENGINE], port=replication.free_port()) for n in (1, 2))
    for s in (primary, replica):
        s.create(fresh=True)
    pair = Pair(primary, replica)
    c, r = primary.connect("crash"), replica.connect()
    r.query("STOP SLAVE")  # one that had all of the torn file would be sent the next file at once
    c.query("UPDATE accounts SET balance=balance+1 WHERE id=1")
    c.close()
    primary.kill()
    tear(primary.data)
    primary.start()
    replication.start(r)
    p = primary.connect("crash")
    p.query("UPDATE accounts SET balance=balance+1 WHERE id=2")
    replication.wait_for("a replica before a torn event", lambda: r.row("SHOW SLAVE STATUS")["Last_IO_Errno"] == "1236")
    replication.catch_up(r, replication.position(p))
    p.query("UPDATE accounts SET balance=balance-1 WHERE id IN (1, 2)")
    problems = []
    pair.compare(problems)
    none_of(problems + [said for said in [replication.trouble(r)] if said])


def cut(pair, writers, moments, power, seed):
    """Load on a primary whose power goes, and is back; what the disk lost."""
    for w in writers:
        w.start()
    c = pair.primary.connect()
    crash.until_the_moment(c, writers, pair.reach, moments, 1.0, 4.0, False)
    early = [w.problem for w in writers if w.problem]
    lost = power.cut()  # from here on no flush is answered: nothing more is acknowledged, nor sent to the replica
    time.sleep(0.2)
    pair.primary.kill()
    c.close()
    end(writers)
    for w in writers:
        w.problem = None  # errors of the dead disk
    power.down()
    power.up(seed=seed + 1)
    pair.primary.server.start()
    return early, lost


@pytest.mark.parametrize("number", range(CUTS))
def test_power_cut(servers, disk, again, number):  # noqa: F811
    """The primary on a disk without power; the replica stays up, and has nothing that the primary lost."""
    seed = SEED + number
    again(SEED=seed, CUTS=1, CLIENTS=CLIENTS, CRASH_ENGINE=ENGINE, FLUSH_US=FLUSH_US)
    skip_unless_it_can(lambda: disk.up(fresh=True, seed=seed))
    on_disk = dict(settings(1), innodb_flush_method="fsync", innodb_use_native_aio=0, aria_checkpoint_interval=0)
    primary = server.Server("power", on_disk, [ENGINE], folder=FOLDER, port=replication.free_port())
    primary.data = os.path.join(disk.mount, "data")
    replica = servers("replica-of-power", settings(2), [ENGINE], port=replication.free_port())
    replica.create(fresh=True)
    try:
        pair, moments = Pair(primary, replica), random.Random(seed)
        run("sync", "-f", disk.mount)
        (how, _), writers = pair.begin(seed, "", moments), clients(pair, seed, [])
        problems, lost = cut(pair, writers, moments, disk, seed)
        looked, done = look(pair, writers, moments, problems), sum(w.acknowledged for w in writers)
        show.say(f"{ENGINE}, {how}, power cut ({lost}): {done} acknowledged, {looked:,} rows looked at; {pair.reach}"
                 + ("" if not problems else f", {len(problems)} PROBLEMS"))
        none_of(problems + ([] if done else ["nothing was acknowledged, the test proved nothing"]))
    finally:
        primary.kill()
        disk.down()
