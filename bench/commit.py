#!/usr/bin/python3
"""commit.py = 'make bench-commit': durable commits, one row each, by many clients at once, on disks with slow flushes and on the disk as it is;
Esker beside InnoDB, MyRocks and BLACKHOLE (the binlog alone).

A disk with a slow flush is a block device of the bench's own (scripts/slowdisk.c under a loop device, which needs root and FUSE); where
it cannot be made the report says so. On each disk one private server for the binlog off and one for it on, its whole data folder on
that disk; the engines take turns in every round. Writes bench/results/NAME.json and NAME.md.

    DISKS=...        some of: 2ms-ext4, 2ms-xfs, 30ms-ext4, 30ms-xfs (time of a flush, file system), disk (as it is), tmpfs
    BINLOG=off,on  CLIENTS=1,8,64,256,512  ROUNDS=3  SECONDS=3 (of each cell)
    ENGINES=...      some of: Esker, InnoDB, RocksDB, BLACKHOLE (only with the binlog)
    DRIVER=slap      or sysbench (oltp_insert), or both: slap,sysbench
    ONLY=...         some of: rates
                     source (4 to 128 clients, a fixed number of inserts: time, log syncs, binlog bytes, groups; on 2ms-ext4 and disk)
                     counts (Esker alone: syncs of its log for each group of the binlog; on the 2ms disks)
                     unused (InnoDB alone, with Esker loaded and without; on the disk as it is, whatever DISKS says)
    PAIRS=20         ABBA pairs of `unused`
    NAME=            of the result files (default: 'commit' for a whole run, 'partial-commit' otherwise)
"""
import collections
import contextlib
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import time

from commit_report import CALLS_OF, CLIENTS, DISKS, KNOWN, OVERWRITE, esker_syncs, in_words, markdown
from frame import SHOWN, Results, median, peer_settings, ratio, run, text, turned, usage
from eskerlib import env, server, show, workload
from eskerlib.client import Lost, SqlError
from eskerlib.disk import CannotHere, Disk, clear, is_installed, needs_root, unmount
from eskerlib.disk import run as command

PARTS = ["rates", "source", "counts", "unused"]
MODES = ["off", "on"]
DRIVERS = ["slap", "sysbench"]
COUNTED = [8, 64, 256]
SOURCE_CLIENTS = [4, 8, 16, 32, 64, 128]
SOURCE_ON = ["2ms-ext4", "disk"]
FOLDER = os.path.join(env.VAR, "commit")
# A data folder as it is before the first start: made once, not on each slow disk, where it takes most of a minute.
SYSTEM = os.path.join(env.VAR, "commit-system")
GIB, BLOCK = 1 << 30, 4096
# The files that each engine syncs for commits, by what their paths end with.
LOGS = {"Esker": r"\.wal$", "InnoDB": r"/ib_logfile\d+$", "RocksDB": r"/#rocksdb/\d+\.log$", "BLACKHOLE": None, "binlog": r"/binlog\.\d+$"}
SYNCS = "fsync,fdatasync,sync_file_range,msync"
NOTE = "a row of about as many bytes as an event in a log has, which is to say a hundred or so"
INSERT = f"INSERT INTO {{table}} (a, note) VALUES (1, '{NOTE}')"
# There before the first insert that is measured: InnoDB makes a file of less than 1 MiB longer by a page at a time, with two syncs for each,
# which on a slow disk would be most of what is measured.
ROWS = 20_000


# -- disks and servers ----------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def place(name):
    """A folder on the disk of that name, empty; whatever happens it is unmounted and removed."""
    made, mount = None, os.path.join(FOLDER, "mnt")
    # Those of a run that was killed: what is mounted goes only when nobody uses it, and their clients end with them.
    for left in os.listdir(FOLDER) if os.path.isdir(FOLDER) else []:
        on_disk(left, mount).kill()
    clear(FOLDER)
    os.makedirs(FOLDER)
    try:
        if DISKS[name]:
            made = Disk(FOLDER, *DISKS[name], size=8 * GIB)
            made.build()
            made.up(fresh=True, powercut=False)
        else:
            os.makedirs(mount)
            if name == "tmpfs":
                needs_root()
                try:
                    command("mount", "-t", "tmpfs", "-o", f"size={min(8 * GIB, env.memory_bytes() // 2)}", "tmpfs", mount)
                except RuntimeError as e:
                    raise CannotHere(f"mount tmpfs ({e})") from e
        yield mount
    finally:
        if made:
            made.down()
        unmount(mount)
        clear(FOLDER)


def settings(mode):
    """Durable commits for all. The logs are so large that no run fills one, and no larger: on tmpfs InnoDB's takes memory."""
    found = {**peer_settings(), "max_connections": max(CLIENTS) + 50, "back_log": 2048, "thread_cache_size": max(CLIENTS), "innodb_log_file_size": GIB,
             "rocksdb_flush_log_at_trx_commit": 1, "esker_flush_log_at_trx_commit": 1, "sync_binlog": 1, "log_warnings": 1}
    # Rows, as Esker always has them: all engines then put the same bytes into the binlog.
    return {**found, "log_bin": "binlog", "binlog_format": "ROW", "server_id": 1} if mode == "on" else found


def on_disk(name, mount, *more):
    """A server whose data folder is on that disk, all else of it beside."""
    s = server.Server(f"commit-{name}", *more, folder=os.path.join(FOLDER, name))
    s.data = os.path.join(mount, name)
    return s


@contextlib.contextmanager
def running(name, mode, engines, mount, wrapper=(), keep=False):
    """A server whose data folder is on that disk, started; stopped afterwards. keep: with what an earlier one of that name left."""
    s = on_disk(name, mount, settings(mode), engines)
    empty = server.Server(s.name, folder=SYSTEM)
    empty.create()
    try:
        if not keep:
            shutil.copytree(empty.data, s.data)
        s.start(wrapper=wrapper)
        yield s
    except (RuntimeError, SqlError, Lost) as e:
        raise RuntimeError(f"{e}\n{s.log_tail()}") from e
    finally:
        s.stop()


# -- load -----------------------------------------------------------------------------------------------------------------
def fresh_table(s, c, driver, name):
    """A table of the engine for that driver, with ROWS in it; its name."""
    c.query(f"DROP DATABASE IF EXISTS d_{name.lower()}")
    c.query(f"CREATE DATABASE d_{name.lower()}")
    if driver == "sysbench":
        command(*sysbench(s, name), "prepare")
        table = f"d_{name.lower()}.sbtest1"
    else:
        table = f"d_{name.lower()}.c"
        c.query(f"CREATE TABLE {table} (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, a INT NOT NULL, note VARCHAR(120) NOT NULL) ENGINE={name} CHARSET=latin1")
        c.query("SET SESSION sql_log_bin=0")
        c.query(f"INSERT INTO {table} (a, note) SELECT 1, '{NOTE}' FROM d_{name.lower()}.seq_1_to_{ROWS}")
    workload.wait_idle(s, longest_s=10, quiet_s=0.3)
    return table


def sysbench(s, name):
    """Its command line but for what to do."""
    return ["sysbench", "oltp_insert", f"--mysql-socket={s.socket}", "--mysql-user=root", f"--mysql-db=d_{name.lower()}", f"--mysql_storage_engine={name}", "--tables=1", f"--table-size={ROWS}"]


def slap(s, name, clients, number):
    """Its command line."""
    return [os.path.join(s.env["ESKER_CLIENT_DIR"], "mariadb-slap"), "--no-defaults", f"--socket={s.socket}", "--user=root", f"--create-schema=d_{name.lower()}", "--no-drop",
            f"--concurrency={clients}", f"--number-of-queries={number}", f"--query={INSERT.format(table='c')}", "--csv"]


def endless(s, driver, name, clients):
    """The command of a load that goes on until it is killed."""
    if driver == "slap":
        return slap(s, name, clients, 1_000_000_000)
    return [*sysbench(s, name), f"--threads={clients}", "--time=0", "--events=0", "run"]


def status(c, pattern):
    """Global status variables: {name: number}."""
    return {n: int(v) for n, v in c.query(f"SHOW GLOBAL STATUS WHERE Variable_name REGEXP '{pattern}'").rows if v and v.isdigit()}


def counters(c):
    """What is read before and after a stretch of work."""
    return status(c, "^(Com_insert|Threads_connected|Binlog_commits|Binlog_group_commits|Binlog_bytes_written|Rocksdb_wal_synced|Esker_.*)$")


def inserts(c):
    """(moment, inserts begun so far, clients connected)."""
    begin = time.monotonic()
    found = status(c, "^(Com_insert|Threads_connected)$")
    return (begin + time.monotonic()) / 2, found["Com_insert"], found["Threads_connected"]


def grown(after, before):
    """Of each counter."""
    return {n: v - before.get(n, 0) for n, v in after.items()}


def at_full_load(c, process, clients, before):
    """Wait until all clients are connected and have inserted."""
    end = time.monotonic() + 120
    while True:
        _, done, connected = inserts(c)
        if connected >= clients + 1 and done - before >= 2 * clients:
            return
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"{process.args[0]} with {clients} clients did not get to work: {process.stderr.read().decode()[-1000:] if process.poll() is not None else 'no time left'}")
        time.sleep(0.02)


def measure(s, c, driver, name, clients, seconds):
    """Inserts a second, and what the counters grew by.

    The load has no end: it is killed. Were it a number of inserts, it would be shared out evenly among the clients, and its time would
    have hundreds of connections being made in it and the last clients' end alone, which are no commits' cost. So the time is between two
    readings of Com_insert (which counts with BLACKHOLE, too) while all clients are at work, and the rows are counted afterwards."""
    table = fresh_table(s, c, driver, name)
    _, at_first, _ = inserts(c)
    had = int(c.one(f"SELECT COUNT(*) FROM {table}"))
    process = subprocess.Popen(endless(s, driver, name, clients), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
    try:
        at_full_load(c, process, clients, at_first)
        time.sleep(0.2)
        before, (begin, first, _) = counters(c), inserts(c)
        time.sleep(seconds)
        (end, last, connected), after = inserts(c), counters(c)
        if process.poll() is not None or connected < clients + 1:
            raise RuntimeError(f"{process.args[0]} ended by itself: {process.stderr.read().decode()[-1000:]}")
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    alone(c)
    there, sent = int(c.one(f"SELECT COUNT(*) FROM {table}")) - had, inserts(c)[1] - at_first
    if name != "BLACKHOLE" and not sent - clients <= there <= sent:
        raise RuntimeError(f"{table} has {there:,} rows more after {sent:,} inserts by {clients} clients")
    return {"rate": (last - first) / (end - begin), "counters": grown(after, before)}


def alone(c):
    """Wait until the clients that were killed are gone from the server, too."""
    end = time.monotonic() + 60
    while inserts(c)[2] > 1:
        if time.monotonic() > end:
            raise RuntimeError("connections of clients that are gone stay")
        time.sleep(0.02)


def overwrite(folder, seconds):
    """What the disk gives: 4 KiB in a file that is there, and fdatasync, how often a second."""
    path, block = os.path.join(folder, "overwrite"), os.urandom(BLOCK)
    with open(path, "wb") as f:
        f.write(bytes(256 * BLOCK))
        os.fsync(f.fileno())
    fd = os.open(path, os.O_RDWR)
    try:
        done, begin = 0, time.monotonic()
        while time.monotonic() - begin < seconds:
            os.pwrite(fd, block, done % 256 * BLOCK)
            os.fdatasync(fd)
            done += 1
        return done / (time.monotonic() - begin)
    finally:
        os.close(fd)
        os.unlink(path)


# -- rates ----------------------------------------------------------------------------------------------------------------
def in_mode(names, mode):
    """Without the binlog BLACKHOLE keeps nothing."""
    return [n for n in names if mode == "on" or n != "BLACKHOLE"]


def part_rates(s, disk, mode, drivers, names, clients, rounds, seconds, keep):
    """Each number of clients in each round, the engines by turns; the disk's own rate beside one client."""
    c, samples = s.connect(), {}
    for number in range(rounds):
        if mode == "on":
            c.query("RESET MASTER")
        for driver in drivers:
            for n in clients:
                turns = in_mode(names, mode) + ([OVERWRITE] if n == 1 and disk != "tmpfs" else [])
                for name in turned(turns, number):
                    rate = overwrite(os.path.dirname(s.data), seconds) if name == OVERWRITE else measure(s, c, driver, name, n, seconds)["rate"]
                    samples.setdefault(driver, {}).setdefault(str(n), {}).setdefault(name, []).append(rate)
                    show.say(f"  {disk}, binlog {mode}, round {number + 1}, {driver}, {n:3} clients, {SHOWN.get(name, name):9} {rate:9,.0f} a second")
        keep({d: {n: {name: median(rates) for name, rates in by.items()} for n, by in cells.items()} for d, cells in samples.items()})
    c.close()


# -- the source's tables --------------------------------------------------------------------------------------------------
def fixed(s, c, name, clients, number):
    """A number of inserts by mariadb-slap: (seconds, counters)."""
    fresh_table(s, c, "slap", name)
    before = counters(c)
    took = float(command(*slap(s, name, clients, number)).splitlines()[-1].split(",")[2])
    alone(c)
    return took, grown(counters(c), before)


def own_syncs(name, mode, found):
    """(asked for, done) of the engine's log, as far as it says so."""
    if name == "Esker":
        return found.get("Esker_wal_sync_requests"), esker_syncs(found)
    if name == "RocksDB":
        return None, found.get("Rocksdb_wal_synced")
    return None, None


def part_source(s, disk, mode, names, seconds):
    """Rows of the tables, without what is counted from outside."""
    c, rows = s.connect(), []
    for clients in SOURCE_CLIENTS:
        for name in in_mode(names, mode):
            number = max(int(measure(s, c, "slap", name, clients, min(seconds, 1))["rate"] * seconds) // clients, 1) * clients
            took, found = fixed(s, c, name, clients, number)
            asked, done = own_syncs(name, mode, found)
            rows.append({"engine": name, "clients": clients, "queries": number, "took_s": took, "rate": number / took, "syncs_asked": asked, "syncs_done": done,
                         "binlog_bytes": found.get("Binlog_bytes_written"), "commits": found.get("Binlog_commits"), "groups": found.get("Binlog_group_commits"),
                         "engine_groups": found.get("Esker_commit_groups") if name == "Esker" else None})
            show.say(f"  {disk}, binlog {mode}, {clients:3} clients, {SHOWN.get(name, name):9} {number:7,} inserts in {took:.2f} s")
    c.close()
    return rows


def trace_command(path):
    """Before the server's command: strace as its grandchild, which writes each sync with the file's path."""
    return ["strace", "-D", "-f", "--seccomp-bpf", "-ttt", "-y", "-e", f"trace={SYNCS}", "-o", path]


def count_syncs(path, begin, end, name):
    """Syncs in that stretch of time, by what the files are: log, binlog, other."""
    found = collections.Counter(log=0, binlog=0, other=0)
    with open(path, errors="replace") as f:
        for line in f:
            m = re.match(r"\d+ +(\d+\.\d+) \w+\((?:\d+<([^>]*)>)?", line)
            if m and begin <= float(m.group(1)) <= end:
                file = m.group(2) or ""
                kind = next((k for k, p in (("log", LOGS[name]), ("binlog", LOGS["binlog"])) if p and re.search(p, file)), "other")
                found[kind] += 1
    return dict(found)


def part_outside(mount, disk, mode, names, rows):
    """Rounds of their own, half as long, in which the server's syncs are counted by file: slower, so nothing else is read here."""
    path = os.path.join(FOLDER, "strace.txt")
    with running("source", mode, names | {"Esker"}, mount, trace_command(path), keep=True) as s:
        c = s.connect()
        for row in rows:
            number = max(row["queries"] // 2 // row["clients"], 1) * row["clients"]
            fresh_table(s, c, "slap", row["engine"])
            begin, before = time.time(), counters(c)
            command(*slap(s, row["engine"], row["clients"], number))
            row["outside"] = {"queries": number, "groups": grown(counters(c), before).get("Binlog_group_commits"), **count_syncs(path, begin, time.time(), row["engine"])}
            alone(c)
        c.close()
    show.say(f"  {disk}, binlog {mode}: syncs counted from outside")


# -- counts ---------------------------------------------------------------------------------------------------------------
def part_counts(s, disk, clients, seconds):
    """Esker alone, with the binlog: {clients: what its counters and the binlog's grew by}."""
    c, found = s.connect(), {}
    for n in clients:
        one = measure(s, c, "slap", "Esker", n, seconds)
        found[str(n)] = one
        syncs, groups = esker_syncs(one["counters"]), one["counters"]["Binlog_group_commits"]
        show.say(f"  {disk}, {n:3} clients: {one['rate']:,.0f} commits a second, {groups:,} groups of the binlog, {syncs:,} syncs of Esker's log, {text(ratio(syncs, groups), 3)} a group")
    c.close()
    return found


# -- Esker loaded and unused ----------------------------------------------------------------------------------------------
def interval(logs):
    """Mean of logarithms and half the width of its 95 percent interval (Student's t, by its expansion around the normal's 1.96)."""
    v, z = len(logs) - 1, 1.959964
    t = z + (z ** 3 + z) / (4 * v) + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * v * v)
    return statistics.mean(logs), t * statistics.stdev(logs) / math.sqrt(len(logs))


def system_calls(s):
    """Of the connection's own thread and of the whole server, for a fixed number of InnoDB inserts by one connection."""
    control, worker, path = s.connect(), s.connect(), os.path.join(s.folder, "calls.txt")
    fresh_table(s, control, "slap", "InnoDB")
    sql = INSERT.format(table="d_innodb.c")
    thread = worker.one("SELECT TID FROM information_schema.processlist WHERE ID=CONNECTION_ID()")
    for _ in range(200):
        worker.query(sql)
    tracer = subprocess.Popen(["strace", "-f", "-o", path, "-p", str(s.pid())], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
    try:
        said = tracer.stderr.readline()
        if b"attached" not in said:
            raise CannotHere(f"trace system calls ({said.decode().strip()})")
        time.sleep(0.5)
        for _ in range(CALLS_OF):
            worker.query(sql)
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.stderr.close()
        tracer.wait()
    control.close()
    worker.close()
    own, whole = collections.Counter(), collections.Counter()
    with open(path, errors="replace") as f:
        for line in f:
            m = re.match(r"(\d+) +(\w+)\(", line)
            # Whether a statement is there already when its thread looks, or must be waited for, is the client's and the scheduler's doing.
            if m and " = -1 EAGAIN" not in line:
                whole[m.group(2)] += 1
                own[m.group(2)] += m.group(1) == thread
    return {"thread": dict(own), "server": dict(whole)}


def part_unused(mount, mode, pairs, clients, seconds):
    """InnoDB in a server with Esker loaded and in one without, by turns A B B A; the idle one has nothing to do."""
    with running("loaded", mode, {"Esker"}, mount) as a, running("without", mode, {"InnoDB"}, mount) as b:
        sides, logs = [(s, s.connect()) for s in (a, b)], []
        for number in range(pairs):
            rates = [measure(*sides[i], "slap", "InnoDB", clients, seconds)["rate"] for i in (0, 1, 1, 0)]
            logs.append(math.log((rates[0] + rates[3]) / (rates[1] + rates[2])))
            show.say(f"  binlog {mode}, pair {number + 1}: with Esker loaded {math.exp(logs[-1]):.3f} times the rate of the server without ({rates[0] + rates[3]:,.0f} to {rates[1] + rates[2]:,.0f})")
        found = {"ratios": [math.exp(x) for x in logs], "calls_of": CALLS_OF}
        if len(logs) > 1:
            mean, half = interval(logs)
            found.update(ratio=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half))
        for _, c in sides:
            c.close()
        if is_installed("strace"):
            found["calls"] = {"loaded": system_calls(a), "without": system_calls(b)}
        return found


# -- main -----------------------------------------------------------------------------------------------------------------
def parts_on(disk, a):
    """Of the parts asked for, those that this disk is for. a: the run's parameters."""
    fits = {"rates": True, "source": disk in SOURCE_ON, "counts": disk.startswith("2ms") and "on" in a["modes"]}
    return [part for part, it_does in fits.items() if it_does and part in a["parts"]]


def one_disk(mount, disk, a, keep):
    """All parts that this disk is for."""
    parts = parts_on(disk, a)
    for mode in a["modes"]:
        if "rates" in parts:
            with running("rates", mode, {"Esker", *a["engines"]}, mount) as s:
                part_rates(s, disk, mode, a["drivers"], a["engines"], a["clients"], a["rounds"], a["seconds"], lambda v: keep("rates", disk, mode, v))
        if "counts" in parts and mode == "on":
            with running("counts", mode, {"Esker"}, mount) as s:
                keep("counts", disk, part_counts(s, disk, [n for n in a["clients"] if n in COUNTED] or COUNTED, a["seconds"]))
        if "source" in parts:
            with running("source", mode, {"Esker", *a["engines"]}, mount) as s:
                rows = part_source(s, disk, mode, a["engines"], a["seconds"])
            keep("source", disk, mode, rows)
            if is_installed("strace"):
                part_outside(mount, disk, mode, set(a["engines"]), rows)
                keep("source", disk, mode, rows)
        for name in ("rates", "counts", "source"):
            shutil.rmtree(os.path.join(mount, name), ignore_errors=True)


def parameters():
    """From the environment; 'whole' if it is all there is."""
    a = {"disks": env.names("DISKS", DISKS, DISKS), "modes": env.names("BINLOG", MODES, MODES), "engines": env.names("ENGINES", KNOWN, KNOWN), "drivers": env.names("DRIVER", DRIVERS[:1], DRIVERS),
         "parts": env.names("ONLY", PARTS, PARTS), "rounds": env.number("ROUNDS", 3), "seconds": env.number("SECONDS", 3), "pairs": env.number("PAIRS", 20)}
    words = os.environ.get("CLIENTS", "").replace(",", " ").split() or [str(n) for n in CLIENTS]
    if not all(w.isdigit() and 0 < int(w) <= max(CLIENTS) for w in words):
        env.fail(f"CLIENTS={os.environ['CLIENTS']}: numbers of 1 to {max(CLIENTS)}, separated by commas")
    a["clients"] = [int(w) for w in words]
    a["whole"] = all(set(every) <= set(a[what]) for what, every in (("disks", DISKS), ("modes", MODES), ("engines", KNOWN), ("parts", PARTS), ("clients", CLIENTS))) \
        and a["rounds"] >= 3 and a["seconds"] >= 3 and a["pairs"] >= 20
    return a


def main():
    usage(__doc__)
    a = parameters()
    if "sysbench" in a["drivers"] and not is_installed("sysbench"):
        env.fail("sysbench is not installed: 'apt-get install sysbench', or DRIVER=slap")
    # 'make stop' and a time limit's SIGTERM: what is mounted must go then, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results = Results("commit", a["whole"], markdown, {**a, "settings": {mode: settings(mode) for mode in a["modes"]}, "skipped": {}})

    def keep(part, *keys_and_value):
        """results[part][key]...[key] = value."""
        *keys, last, value = keys_and_value
        inner = whole = results.found.setdefault(part, {})
        for key in keys:
            inner = inner.setdefault(key, {})
        inner[last] = value
        results.keep(part, whole)

    def skip(what, why):
        show.say(f"SKIPPED {what}: {why}")
        keep("skipped", what, str(why))

    def body():
        results.keep("skipped", {})
        if not is_installed("strace"):
            skip("syncs and system calls counted from outside", "strace is not installed")
        for disk in [d for d in a["disks"] if parts_on(d, a)]:
            show.say(in_words(disk))
            try:
                with place(disk) as mount:
                    one_disk(mount, disk, a, keep)
            except CannotHere as e:
                skip(disk, e)
        if "unused" in a["parts"]:
            with place("disk") as mount:
                for mode in a["modes"]:
                    keep("unused", mode, part_unused(mount, mode, a["pairs"], 8, a["seconds"]))
                    for name in ("loaded", "without"):
                        shutil.rmtree(os.path.join(mount, name), ignore_errors=True)
    shutil.rmtree(SYSTEM, ignore_errors=True)
    try:
        run(body, [], results)
    finally:
        shutil.rmtree(SYSTEM, ignore_errors=True)


if __name__ == "__main__":
    main()
