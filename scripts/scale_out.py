#!/usr/bin/python3
"""scale_out.py = 'make scale-out': several servers instead of one, by MariaDB's own means, over tables of Esker; docs/SCALE_OUT.md
by a script.

replicas: a primary and a semi-synchronous replica, later a second one, made by mariadb-dump while clients write; a planned
switchover; a failover after kill -9 of the primary, after which everything acknowledged must be there; the old primary comes
back as a replica. After each step all servers must have the same rows.
spider: a Spider head over two shards of Esker tables, transactions over both by XA; kill -9 of a shard, and of the head, in the
middle of commits; what is left prepared is ended as Spider's tables say, then both shards must agree, transfer by transfer.

    PARTS=replicas,spider
    SECONDS=3        of load before each step
    CLIENTS=4        that write
    ROUNDS=4         kills of a shard or the head; more while none has left anything prepared
    SEED=            for what clients do
"""
import collections
import os
import random
import subprocess
import sys
import threading
import time

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [SCRIPTS, os.path.join(SCRIPTS, "..", "tests", "server")]
import crash  # noqa: E402
import load  # noqa: E402
from eskerlib import env, replication, server, show  # noqa: E402
from eskerlib.client import Lost, SqlError  # noqa: E402

SECONDS, CLIENTS, ROUNDS = env.number("SECONDS", 3), env.number("CLIENTS", 4), env.number("ROUNDS", 4)
SEED = env.number("SEED", int(time.time()) % 1000000, least=0)
SEMI_SYNC_MS = 100_000  # so long that nothing is acknowledged without a replica
ROWS, WITHOUT_KEYS = 3000, 200  # that clients write at a time; a replica searches tables without keys from their beginning
PLUGIN = "ha_spider.so"


class Wrong(RuntimeError):
    """Something does not hold."""


def none_of(problems):
    """Fails if there are any."""
    if problems:
        raise Wrong("\n".join(f"PROBLEM: {p}" for p in problems[:20]))


# -- primary and replicas -------------------------------------------------------------------------------------------------
class Group:
    """Servers of which one is the primary, the others follow it; the clients write to it."""

    def __init__(self, servers):
        self.servers, self.primary, self.followers, self.writers, self.lives = servers, servers[0], [], [], 0

    def write(self):
        """Lets the clients begin."""
        self.lives += 1
        old, self.writers = self.writers, load.writers(CLIENTS, self.primary, SEED + self.lives, True, ROWS, WITHOUT_KEYS)
        for w, before in zip(self.writers, old):
            w.succeed(before)
        for w in self.writers:
            w.start()

    def end(self):
        """Lets them end; how much was acknowledged."""
        self.writers[0].stop_event.set()
        for w in self.writers:
            w.join(130)
        return sum(w.acknowledged for w in self.writers)

    def check(self, what):
        """All that was acknowledged is on the primary, and the same rows are everywhere."""
        p = self.primary.connect("crash")
        problems, looked = crash.check(p, self.writers, random.Random(SEED))
        at = replication.position(p)
        for s in self.followers:
            r = s.connect("crash")
            replication.catch_up(r, at)
            problems += [f"{s.name}: {d}" for d in replication.different(p, r, "crash", load.tables(CLIENTS))]
            r.close()
        p.close()
        show.say(f"{what}: {looked:,} rows, the same on {1 + len(self.followers)} servers, at {at}")
        none_of(problems)

    def follow(self, s, demote=False):
        """Makes a server follow the primary of now."""
        c = s.connect()
        replication.semi_sync(c, slave=True)
        c.query("SET GLOBAL read_only=1")
        replication.follow(c, self.primary.port, demote)
        replication.start(c)
        c.close()
        self.followers.append(s)

    def promote(self, s):
        """A replica that has applied all it got becomes the primary, those that follow go over to it."""
        c = s.connect()
        c.query("STOP SLAVE")
        c.query("RESET SLAVE ALL")
        others = [f for f in self.followers if f is not s]
        self.primary, self.followers = s, []
        for other in others:
            o = other.connect()
            o.query("STOP SLAVE")
            o.close()
            self.follow(other)
        replication.semi_sync(c, master=True)
        self.await_semi_sync()
        c.query("SET GLOBAL read_only=0")
        c.close()

    def await_semi_sync(self):
        """Until every replica answers: what is acknowledged from here on is on one of them."""
        c = self.primary.connect()
        replication.wait_for("semi-synchronous replicas", lambda: c.row("SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'")["Value"] == str(len(self.followers)))
        c.close()


def group():
    """Three servers, alike but for their numbers; the first two are up."""
    made = []
    for number in (1, 2, 3):
        settings = {**crash.settings(True, None), **replication.settings(number), "rpl_semi_sync_master_timeout": SEMI_SYNC_MS,
                    "rpl_semi_sync_master_wait_point": "AFTER_SYNC"}
        made.append(server.Server(f"scale-{number}", settings, port=replication.free_port()))
    return made


def begin(servers):
    """Primary and one replica."""
    g = Group(servers)
    for s in servers[:2]:
        s.create(fresh=True)
        s.start()
        c = s.connect()
        replication.prepare(c)
        c.close()
    c = g.primary.connect()
    load.create(c, "Esker", CLIENTS)
    g.follow(servers[1])
    replication.semi_sync(c, master=True)  # not before: each commit would wait for a replica that is still to come
    c.close()
    g.await_semi_sync()
    g.write()
    load.wait_seconds(g.writers, SECONDS)
    done = g.end()
    g.check(f"two servers, {done} units of work acknowledged")
    return g


def copy(source, s):
    """A new server with the rows of another one and the GTID position they are at: mariadb-dump, while clients write there."""
    tools = source.env["ESKER_CLIENT_DIR"]
    dump = [os.path.join(tools, "mariadb-dump"), "--no-defaults", "-uroot", f"--socket={source.socket}", "--single-transaction",
            "--master-data=1", "--gtid", "--databases", "crash"]
    fill = [os.path.join(tools, "mariadb"), "--no-defaults", "-uroot", f"--socket={s.socket}", "--init-command=SET SESSION sql_log_bin=0"]
    out = subprocess.Popen(dump, stdout=subprocess.PIPE)
    done = subprocess.run(fill, stdin=out.stdout)
    if out.wait() or done.returncode:
        raise Wrong("the dump, or its import, failed")


def add_replica(g, s):
    """A third server, while clients write."""
    s.create(fresh=True)
    s.start()
    c = s.connect()
    replication.prepare(c)
    c.close()
    g.write()
    load.wait_seconds(g.writers, SECONDS / 2)
    begin_s = time.monotonic()
    copy(g.primary, s)
    took = time.monotonic() - begin_s
    g.follow(s)
    load.wait_seconds(g.writers, SECONDS / 2)
    g.end()
    g.check(f"a third server, by a dump of {took:.1f} s while clients wrote")


def switch_over(g):
    """Planned: the first replica becomes the primary, the old primary a replica."""
    old, new = g.primary, g.followers[0]
    g.write()
    load.wait_seconds(g.writers, SECONDS)
    begin_s = time.monotonic()
    g.end()
    c = old.connect()
    c.query("SET GLOBAL read_only=1")
    at = replication.position(c)
    replication.semi_sync(c, slave=True)
    c.close()
    c = new.connect()
    replication.catch_up(c, at)
    c.close()
    g.promote(new)
    g.follow(old, demote=True)
    g.await_semi_sync()
    show.say(f"switchover to {new.name} in {time.monotonic() - begin_s:.1f} s")
    g.write()
    load.wait_seconds(g.writers, SECONDS)
    g.end()
    g.check("after the switchover")


def most_advanced(g):
    """The replica that got most, once it has applied all of it."""
    got = []
    for s in g.followers:
        c = s.connect()
        c.query("STOP SLAVE IO_THREAD")
        position = c.row("SHOW SLAVE STATUS")["Gtid_IO_Pos"]
        replication.catch_up(c, position)
        got.append((int(position.rsplit("-", 1)[1]), s))
        c.close()
    return max(got, key=lambda pair: pair[0])[1]


def fail_over(g):
    """kill -9 of the primary; the replica that has most takes over; what was acknowledged is there; the old primary comes back."""
    old = g.primary
    g.write()
    load.wait_seconds(g.writers, SECONDS)
    old.kill()
    done = g.end()
    begin_s = time.monotonic()
    g.promote(most_advanced(g))
    show.say(f"{old.name} killed with {done} units of work acknowledged, {g.primary.name} is the primary after {time.monotonic() - begin_s:.1f} s")
    g.check("after the failover, all that was acknowledged")
    g.write()
    load.wait_seconds(g.writers, SECONDS / 2)
    come_back(g, old)
    load.wait_seconds(g.writers, SECONDS / 2)
    g.end()
    g.check(f"{old.name} is back as a replica")


def come_back(g, old):
    """The old primary as a replica. What was in its binlog, but committed nowhere, is rolled back and cut off at this start."""
    settings, old.settings = old.settings, {**old.settings, "init_rpl_role": "SLAVE", "rpl_semi_sync_slave_enabled": 1, "read_only": 1}
    start_of_log = os.path.getsize(old.log)
    old.start()
    old.settings = settings
    with open(old.log, errors="replace") as f:
        f.seek(start_of_log)
        cut = [line.split("] ", 1)[-1].strip() for line in f if "runcat" in line]
    for line in cut:
        show.say(f"{old.name}: {line}")
    g.follow(old, demote=True)


def replicas():
    """The first part."""
    servers = group()
    try:
        g = begin(servers)
        add_replica(g, servers[2])
        switch_over(g)
        fail_over(g)
    finally:
        for s in servers:
            s.stop()
    return servers


# -- Spider ---------------------------------------------------------------------------------------------------------------
ACCOUNTS, START = 100, 1000
TABLES = {"accounts": "id INT PRIMARY KEY, balance INT NOT NULL", "transfers": "id BIGINT PRIMARY KEY, source INT, target INT, amount INT"}


class Teller(threading.Thread):
    """A client of the head: transfers between accounts of any shard, each with a line that says so. sure: what was
    acknowledged; perhaps: what ended with an error at its COMMIT."""

    def __init__(self, number, head, stop, seed):
        super().__init__(daemon=True)
        self.number, self.head, self.stop_event, self.random = number, head, stop, random.Random(seed * 100 + number)
        self.sure, self.perhaps, self.errors, self.next = set(), set(), collections.Counter(), 1

    def run(self):
        while not self.stop_event.is_set():
            try:
                c = self.head.connect("app", timeout=60)
                try:
                    while not self.stop_event.is_set():
                        self.transfer(c)
                finally:
                    c.close()
            except (SqlError, Lost) as e:
                self.errors[getattr(e, "errno", "lost")] += 1
                self.stop_event.wait(0.05)

    def transfer(self, c):
        """One. In the order of the accounts, so that nobody waits in a circle over two shards, which no shard sees."""
        a, b = self.random.sample(range(1, ACCOUNTS + 1), 2)
        amount, line = self.random.randint(1, 20), self.number * 1_000_000 + self.next
        self.next += 1
        c.query("BEGIN")
        for account, change in sorted(((a, -amount), (b, amount))):
            c.query(f"UPDATE accounts SET balance=balance+({change}) WHERE id={account}")
        c.query(f"INSERT INTO transfers VALUES ({line},{a},{b},{amount})")
        self.perhaps.add(line)
        c.query("COMMIT")
        self.perhaps.discard(line)
        self.sure.add(line)


def sharded():
    """A head and two shards. Spider tells the members of an XA transaction apart by host alone, so each shard needs an address of
    its own: two at 127.0.0.1 with different ports get 'This xid member already exists'."""
    shards = [server.Server(f"shard-{n}", {**server.small_settings(), "server_id": 10 + n, "bind_address": f"127.0.0.{n}", "esker_lock_wait_timeout": 10},
                            port=replication.free_port()) for n in (1, 2)]
    head = server.Server("spider-head", {**server.small_settings(), "server_id": 10, "spider_internal_xa": 1, "spider_internal_xa_id_type": 1,
                                         "spider_remote_sql_log_off": 0}, ["SPIDER"])
    return head, shards


def set_up(head, shards):
    """Tables on the shards, and Spider's over them."""
    for s in (*shards, head):
        s.create(fresh=True)
        s.start()
    for s in shards:
        c = s.connect()
        c.query("CREATE USER spider@'127.0.0.%' IDENTIFIED BY 'shards'")
        c.query("GRANT ALL ON app.* TO spider@'127.0.0.%'")
        c.query("CREATE DATABASE app")
        for table, columns in TABLES.items():
            c.query(f"CREATE TABLE app.{table} ({columns}) ENGINE=Esker")
        c.close()
    c = head.connect()
    for n, s in enumerate(shards, 1):
        c.query(f"CREATE SERVER shard{n} FOREIGN DATA WRAPPER mysql OPTIONS (HOST '{s.settings['bind_address']}', PORT {s.port}, "
                "DATABASE 'app', USER 'spider', PASSWORD 'shards')")
    c.query("CREATE DATABASE app")
    for table, columns in TABLES.items():
        parts = ", ".join(f"PARTITION p{n} COMMENT='srv \"shard{n}\"'" for n in (1, 2))
        c.query(f"CREATE TABLE app.{table} ({columns}) ENGINE=Spider COMMENT='wrapper \"mysql\", table \"{table}\"' "
                f"PARTITION BY KEY (id) PARTITIONS 2 ({parts})")
    c.query("USE app")
    c.query(f"INSERT INTO accounts SELECT seq, {START} FROM seq_1_to_{ACCOUNTS}")
    c.close()


def prepared(c):
    """What a shard has prepared and nobody has ended: (format, gtrid and bqual, the lengths)."""
    return [(int(form), bytes(data), int(g), int(b)) for form, g, b, data in c.query("XA RECOVER").rows]


def disconnect(c):
    """Ends the head's connections to a shard, those too that it makes meanwhile: Spider may keep one of a session that is gone,
    and what is prepared can be ended by others only when its own connection is."""
    def are_gone():
        there = c.query("SELECT id FROM information_schema.processlist WHERE user='spider'").rows
        for number, in there:
            c.query(f"KILL {number}")  # of one that is gone meanwhile an error, and asked again
        return not there

    replication.wait_for("the head's connections to be gone", are_gone)


def settle(head, shards):
    """Ends what is prepared on shards as the head has decided: committed if its line in mysql.spider_xa says COMMIT, else rolled
    back; then the lines go. Nobody writes by the head meanwhile. {what was done: how often}"""
    h, done = head.connect(), {"commit": 0, "rollback": 0}
    status = {(int(form), bytes(data).rstrip(b"\0")): said for form, data, said in h.query("SELECT format_id, data, status FROM mysql.spider_xa").rows}
    for s in shards:
        c = s.connect()
        disconnect(c)
        for form, data, gtrid, _ in prepared(c):
            verb = "COMMIT" if status.get((form, data)) == "COMMIT" else "ROLLBACK"
            c.query(f"XA {verb} X'{data[:gtrid].hex()}',X'{data[gtrid:].hex()}',{form}")
            done[verb.lower()] += 1
        c.close()
    for table in ("spider_xa_member", "spider_xa", "spider_xa_failed_log"):
        h.query(f"DELETE FROM mysql.{table}")
    h.close()
    return done, sorted(status.values())


def agree(shards, tellers):
    """Problems where the shards do not hold whole transfers, all that were acknowledged, and none that was not sent."""
    balances, lines = {}, {}
    for s in shards:
        c = s.connect("app")
        balances.update((int(i), int(b)) for i, b in c.query("SELECT id, balance FROM accounts").rows)
        lines.update((int(row[0]), tuple(map(int, row[1:]))) for row in c.query("SELECT * FROM transfers").rows)
        said = c.query("CHECK TABLE accounts, transfers EXTENDED").rows
        c.close()
        if [row[3] for row in said] != ["OK", "OK"]:
            return [f"{s.name}: {said}"]
    sure, perhaps = set().union(*(t.sure for t in tellers)), set().union(*(t.perhaps for t in tellers))
    problems = [f"transfer {line} was acknowledged and is not there" for line in sorted(sure - set(lines))]
    problems += [f"transfer {line} is there and nobody has committed it" for line in sorted(set(lines) - sure - perhaps)]
    wanted = dict.fromkeys(range(1, ACCOUNTS + 1), START)
    for a, b, amount in lines.values():
        wanted[a] -= amount
        wanted[b] += amount
    return problems + [f"account {i} holds {balances.get(i)}, the transfers say {wanted[i]}" for i in wanted if balances.get(i) != wanted[i]]


def one_kill(head, shards, tellers, moments, number):
    """Transfers, kill -9, restart; nobody writes afterwards. Who was killed."""
    victim = head if number % ROUNDS == ROUNDS - 1 else shards[number % 2]
    for t in tellers:
        t.start()
    time.sleep(moments.uniform(0.5, 2.0))
    victim.kill()
    tellers[0].stop_event.set()
    for t in tellers:
        t.join(130)
    victim.start()
    return victim


def tell(victim, tellers, lines, done):
    """A line about one kill."""
    errors = collections.Counter()
    for t in tellers:
        errors.update(t.errors)
    show.say(f"{victim.name} killed: {sum(len(t.sure) for t in tellers)} transfers acknowledged, {sum(len(t.perhaps) for t in tellers)} unknown, "
             f"errors {dict(errors)}; mysql.spider_xa had {lines}; prepared on shards: {done['commit']} committed, {done['rollback']} rolled back")


def spider():
    """The second part."""
    head, shards = sharded()
    sums, all_tellers, moments = {"commit": 0, "rollback": 0}, [], random.Random(SEED)
    try:
        set_up(head, shards)
        for number in range(4 * ROUNDS):
            if number >= ROUNDS and sum(sums.values()):
                break
            stop = threading.Event()
            tellers = [Teller(number * 100 + n, head, stop, SEED + number) for n in range(1, 2 * CLIENTS + 1)]
            victim = one_kill(head, shards, tellers, moments, number)
            all_tellers += tellers
            done, lines = settle(head, shards)
            for verb, count in done.items():
                sums[verb] += count
            tell(victim, tellers, lines, done)
            none_of(agree(shards, all_tellers))
        by_head(head, all_tellers)
        show.say(f"both shards agree; in all {sums['commit']} transactions were committed and {sums['rollback']} rolled back after kills")
        if not sum(sums.values()):
            raise Wrong("no kill left anything prepared: the test did not reach what it is for (other SEED=, more ROUNDS=)")
    finally:
        for s in (head, *shards):
            s.stop()
    return [head, *shards]


def by_head(head, tellers):
    """The head reads what the shards hold."""
    c = head.connect("app")
    total, lines = int(c.one("SELECT SUM(balance) FROM accounts")), int(c.one("SELECT COUNT(*) FROM transfers"))
    c.close()
    if total != ACCOUNTS * START or lines < sum(len(t.sure) for t in tellers):
        raise Wrong(f"by the head the balances are {total}, must be {ACCOUNTS * START}; {lines} transfers")


def have_spider():
    """Is the plugin there?"""
    return os.path.exists(os.path.join(env.load().get("ESKER_PLUGIN_DIR", ""), PLUGIN))


def main():
    if len(sys.argv) > 1:
        print(__doc__.strip())
        sys.exit(0 if sys.argv[1] in ("-h", "--help") else 2)
    parts = env.names("PARTS", ["replicas", "spider"], ["replicas", "spider"])
    show.say(f"again with: SEED={SEED} PARTS={','.join(parts)} SECONDS={SECONDS} CLIENTS={CLIENTS} ROUNDS={ROUNDS} scripts/scale_out.py")
    used = []
    try:
        if "replicas" in parts:
            used += replicas()
        if "spider" in parts and have_spider():
            used += spider()
        elif "spider" in parts:
            show.say(f"SKIPPED: {PLUGIN} is not installed (Debian's mariadb-plugin-spider; 'FOR_TESTS=1 make setup' installs it)")
    except (RuntimeError, SqlError, Lost) as e:
        env.fail(f"{e}\nagain with SEED={SEED}; files are kept in var/")
    for s in used:
        s.remove()


if __name__ == "__main__":
    main()
