#!/usr/bin/python3
"""memory.py = 'make bench-memory': sysbench with four times as much data as the engines may have memory, and the bytes that
random updates write; Esker beside InnoDB and MyRocks.

A server for each engine, each alone in a memory cgroup of the same limit, page cache included: what a server reads again is in its
own memory or comes from the disk. All are up at once, one works at a time, the others stand still. Where no cgroup can be made the
engines' own limits are what there is, and files are read and written past the page cache (O_DIRECT), as far as an engine can. The
data is made without these limits and stays in var/memory-*/ for the next run with the same sizes. Writes bench/results/NAME.json
and NAME.md.

    MEMORY=512       MiB of a server; 160 of them are taken to be the server's own, the rest is the engine's
    TIMES=4          bytes of rows (188 each), in all tables, per byte of the engine's memory
    TABLES=8  THREADS=1,8,64  SECONDS=20  ROUNDS=3  TESTS=...   of sysbench, as in bench-keys
    MINUTES=30       of the updates, half of them of a column without a key, half of one with a key
    WRITERS=8        clients that update
    ENGINES=...      some of: Esker, InnoDB, RocksDB
    ONLY=...         some of: sysbench, updates
    FRESH=1          make the data again
    NAME=            of the result files (default: 'memory' for a whole run, 'partial-memory' otherwise)
"""
import math
import os
import shutil
import statistics
import time

from frame import SHOWN, Results, head, median, peer_settings, ratio, run, targets, text, turned, usage
from keys import TESTS, sysbench
from eskerlib import env, server, show, workload

KNOWN = ["Esker", "InnoDB", "RocksDB"]
PARTS = ["sysbench", "updates"]
MIB = 1 << 20
# What a server takes besides its engine's memory: its code, 64 connections, the other engines' least.
SERVER_MIB = 160
# Of a row of sysbench's tables: two INTs, CHAR(120), CHAR(60).
ROW_BYTES = 188
UPDATES = ["oltp_update_non_index", "oltp_update_index"]


# -- limits ---------------------------------------------------------------------------------------------------------------
class Group:
    """A memory cgroup, of the first kind or the second; is_there is False where none can be made."""

    def __init__(self, name, limit):
        first = os.path.isdir("/sys/fs/cgroup/memory")
        self.folder = os.path.join("/sys/fs/cgroup/memory" if first else "/sys/fs/cgroup", f"esker-bench-{os.getpid()}-{name.lower()}")
        self.why = None
        try:
            os.mkdir(self.folder)
            with open(os.path.join(self.folder, "memory.limit_in_bytes" if first else "memory.max"), "w") as f:
                f.write(str(limit))
        except OSError as e:
            self.why = e.strerror
            self.remove()

    def wrapper(self):
        """Before a command: that it runs in this group."""
        return [] if self.why else ["/bin/sh", "-c", f"echo $$ > {self.folder}/cgroup.procs && exec \"$0\" \"$@\""]

    def remove(self):
        """Once nobody is in it."""
        for _ in range(50):
            try:
                os.rmdir(self.folder)
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.1)


def settings(name, budget, in_group=True):
    """One engine has the budget, the others the least they take; budget None: as much as other benchmarks give, to make the data."""
    if budget is None:
        return peer_settings()
    small = {"innodb_buffer_pool_size": 8 * MIB, "innodb_log_file_size": 64 * MIB, "key_buffer_size": MIB, "aria_pagecache_buffer_size": MIB, "max_connections": 300,
             "innodb_flush_log_at_trx_commit": 1, "performance_schema": "OFF", "table_open_cache": 400}
    own = {
        "Esker": {"esker_memory_limit": budget},
        # Its pool takes a tenth more for itself than it is told. A log as the others': a checkpoint age that takes all of memory.
        "InnoDB": {"innodb_buffer_pool_size": budget * 9 // 10, "innodb_log_file_size": max(budget, 64 * MIB), "innodb_flush_method": "O_DIRECT"},
        # Memtables beside the cache; what is left is the page cache's, which MyRocks reads through, unless no cgroup bounds it.
        "RocksDB": {"rocksdb_block_cache_size": budget // 2, "rocksdb_db_write_buffer_size": budget // 4,
                    **({} if in_group else {"rocksdb_use_direct_reads": "ON", "rocksdb_use_direct_io_for_flush_and_compaction": "ON"})},
    }
    return {**small, **own[name]}


def drop_cached(folder):
    """Takes the files below out of the page cache: pages that came there while no limit held would be nobody's in the group."""
    for path in (os.path.join(at, name) for at, _, names in os.walk(folder) for name in names):
        with open(path, "rb") as f:
            os.fsync(f.fileno())
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Side:
    """An engine, its server and its group. more: settings beside those of the memory; bench: whose servers they are."""

    def __init__(self, name, limit, budget, more=None, bench="memory"):
        self.name, self.limit, self.budget, self.more, self.group = name, limit, budget, more or {}, None
        self.server = server.Server(f"{bench}-{name.lower()}", {}, {name})

    def start(self, limited):
        self.server.stop()
        if limited and self.group is None:
            self.group = Group(self.name, self.limit)
        self.server.settings = {**settings(self.name, self.budget if limited else None, limited and not self.group.why), **self.more}
        if limited:
            drop_cached(self.server.data)
        self.server.start(wrapper=self.group.wrapper() if limited else ())

    def remove_group(self):
        if self.group and not self.group.why:
            self.group.remove()


# -- data -----------------------------------------------------------------------------------------------------------------
def fill(side, tables, size):
    """sysbench's tables, made without limits; bytes on disk."""
    side.start(limited=False)
    c, db, want = side.server.connect(), f"sb_{side.name.lower()}", f"{tables} tables of {size}"
    is_there = c.one(f"SELECT COUNT(*) FROM information_schema.tables WHERE table_schema='{db}' AND table_name='made'") == "1"
    if env.number("FRESH", 0, least=0) or not is_there or c.one(f"SELECT what FROM {db}.made") != want:
        c.query(f"DROP DATABASE IF EXISTS {db}")
        c.query(f"CREATE DATABASE {db}")
        begin = time.monotonic()
        sysbench(side.server, side.name, TESTS[0], min(tables, os.cpu_count() or 1), 0, "prepare", tables, size)
        workload.wait_idle(side.server)
        c.query(f"CREATE TABLE {db}.made (what TEXT) ENGINE={side.name}")
        c.query(f"INSERT INTO {db}.made VALUES ('{want}')")
        show.say(f"  {side.name:8} {tables} tables of {size:,} rows in {time.monotonic() - begin:.1f} s")
    workload.wait_idle(side.server)
    total = sum(workload.engine_bytes(c, side.server, side.name, db, f"sbtest{n + 1}") for n in range(1 if side.name == "Esker" else tables))
    c.close()
    side.start(limited=True)
    return total


def touch(side, tables):
    """Reads all once, so that memory is full of something."""
    c = side.server.connect(f"sb_{side.name.lower()}")
    for n in range(tables):
        c.one(f"SELECT SUM(LENGTH(pad)) FROM sbtest{n + 1}")
    c.close()


# -- parts ----------------------------------------------------------------------------------------------------------------
def disk(side):
    """Bytes that the server has read, and its disk written, so far."""
    return side.server.io()["read_bytes"], side.server.written_bytes()


def part_sysbench(sides, tables, size, rounds, keep):
    """Each test at each number of threads, the engines one after the other in every round."""
    seconds, threads, tests = env.number("SECONDS", 20), [int(t) for t in os.environ.get("THREADS", "1,8,64").split(",")], env.names("TESTS", TESTS, TESTS)
    samples = {}
    for number in range(rounds):
        for test in tests:
            for n in threads:
                for side in turned(sides, number):
                    workload.wait_idle(side.server, longest_s=30)
                    read, written = disk(side)
                    figures = sysbench(side.server, side.name, test, n, seconds, "run", tables, size)
                    done = max(figures["rate"] * seconds, 1)
                    figures["read_each"], figures["written_each"] = ((b - a) / done for a, b in zip((read, written), disk(side)))
                    for what, value in figures.items():
                        samples.setdefault(test, {}).setdefault(str(n), {}).setdefault(side.name, {}).setdefault(what, []).append(value)
                    show.say(f"  round {number + 1}, {test:22} {n:3} threads {side.name:8} {figures['rate']:10.0f} a second, p95 {figures['p95_ms']:.2f} ms, "
                             f"read {figures['read_each'] / 1024:.1f} KiB, written {figures['written_each'] / 1024:.1f} KiB each")
            keep({t: {n: {e: {w: median(v) for w, v in by.items()} for e, by in engines.items()} for n, engines in cells.items()} for t, cells in samples.items()})


def part_updates(sides, tables, size, seconds, writers, keep):
    """Uniform random updates, one engine after the other; what they wrote meanwhile, and until nothing is written any more."""
    found = {}
    for test in UPDATES:
        for side in sides:
            workload.wait_idle(side.server, longest_s=60)
            _, before = disk(side)
            figures = sysbench(side.server, side.name, test, writers, max(seconds // 2, 1), "run", tables, size, ("--rand-type=uniform",))
            _, meanwhile = disk(side)
            is_idle = workload.wait_idle(side.server, longest_s=120)
            _, after = disk(side)
            volume = figures["done"] * ROW_BYTES
            found.setdefault(test, {})[side.name] = {**figures, "volume_bytes": volume, "written_bytes": meanwhile - before, "written_settled_bytes": after - before, "settled": is_idle}
            show.say(f"  {test:22} {side.name:8} {figures['rate']:8.0f} a second, {(meanwhile - before) / volume:.1f} bytes written a byte, {(after - before) / volume:.1f} when settled")
            keep(found)


# -- report ---------------------------------------------------------------------------------------------------------------
def better_of(rates):
    """Esker's rate to the better of the others'."""
    peers = [r for n, r in rates.items() if n != "Esker"]
    return ratio(rates.get("Esker"), max(peers)) if peers else None


def update_lines(found, names):
    """The table of bytes written, and Esker's bytes a byte of InnoDB's."""
    updates, sums = found["updates"], {}
    lines = [f"## Bytes written per byte of updates: {found['minutes']} minutes, {found['writers']} clients, uniform", "",
             f"A byte of updates is one of the {ROW_BYTES} that a row has. Written is what the disk was told to write; the other servers stand still. Settled: with what was written after the last update, until nothing was written for a second (120 s at most).", "",
             "| | | " + " | ".join(SHOWN.get(n, n) for n in names) + " |", "|---|---|" + "--:|" * len(names)]
    for test, by in updates.items():
        for words, figure in (("updates a second", lambda x: text(x["rate"], 0)), ("written per byte", lambda x: text(x["written_bytes"] / x["volume_bytes"], 1)),
                              ("settled", lambda x: text(x["written_settled_bytes"] / x["volume_bytes"], 1) + ("" if x["settled"] else " (still writing)"))):
            lines.append(f"| {test} | {words} | " + " | ".join(figure(by[n]) if n in by else "-" for n in names) + " |")
        for name, one in by.items():
            written, volume = sums.get(name, (0, 0))
            sums[name] = written + one["written_settled_bytes"], volume + one["volume_bytes"]
    amplification = {n: w / v for n, (w, v) in sums.items()}
    return lines + [""], ratio(amplification.get("Esker"), amplification.get("InnoDB"))


def markdown(found):
    """The whole report."""
    names, rows = found["engines"], []
    lines = [f"# Data {found['times']} times the engines' memory", "", head(found, f"{found['rounds']} interleaved rounds, medians"),
             f"{found['tables']} tables of {found['size']:,} rows, {found['tables'] * found['size'] * ROW_BYTES / MIB:,.0f} MiB of rows. A server of its own for each engine, "
             f"with {found['memory']} MiB, {found['memory'] - SERVER_MIB} of them the engine's. " +
             ("A memory cgroup limits each server, page cache included." if not found.get("no_cgroup") else
              f"No memory cgroup could be made ({found['no_cgroup']}): only the engines' own limits hold, InnoDB and MyRocks read and write past the page cache, Esker as its own settings say."), ""]
    if "disk" in found:
        lines += ["On disk, MiB: " + ", ".join(f"{SHOWN.get(n, n)} {b / MIB:,.0f}" for n, b in found["disk"].items()) + ".", ""]
    cells = found.get("sysbench", {})
    if cells:
        lines += ["## sysbench: transactions a second", "", "| test | threads | " + " | ".join(SHOWN.get(n, n) for n in names) + " | to InnoDB | to the better | KiB read each: " +
                  " | ".join(SHOWN.get(n, n) for n in names) + " |", "|---|--:|" + "--:|" * (2 * len(names) + 2)]
        ratios = []
        for test, by_threads in cells.items():
            for n, by in by_threads.items():
                rates = {e: x["rate"]["median"] for e, x in by.items()}
                ratios.append(better_of(rates))
                lines.append(f"| {test} | {n} | " + " | ".join(text(rates.get(e), 0) for e in names) + f" | {text(ratio(rates.get('Esker'), rates.get('InnoDB')))} | {text(ratios[-1])} | " +
                             " | ".join(text(by[e]["read_each"]["median"] / 1024 if e in by else None, 1) for e in names) + " |")
        ratios = [r for r in ratios if r]
        rows.append(("sysbench, to the better of InnoDB and MyRocks, geometric mean", "least", 1.0, statistics.geometric_mean(ratios) if ratios else None))
        lines.append("")
    if found.get("updates"):
        more, of = update_lines(found, names)
        lines += more
        rows.append(("bytes written per byte of updates, of InnoDB's", "most", 1 / 3, of))
    return lines + (targets(rows) if rows else [])


def main():
    usage(__doc__)
    if not shutil.which("sysbench"):
        env.fail("sysbench is not installed: 'apt-get install sysbench'")
    memory, times, tables = env.number("MEMORY", 512, least=SERVER_MIB + 64), env.number("TIMES", 4), env.number("TABLES", 8)
    rounds, minutes, writers = env.number("ROUNDS", 3), env.number("MINUTES", 30), env.number("WRITERS", 8)
    names, parts = env.names("ENGINES", KNOWN, KNOWN), env.names("ONLY", PARTS, PARTS)
    budget = (memory - SERVER_MIB) * MIB
    size = math.ceil(times * budget / ROW_BYTES / tables)
    whole = memory >= 512 and times == 4 and names == KNOWN and parts == PARTS and rounds >= 3 and minutes >= 30
    sides = [Side(n, memory * MIB, budget) for n in names]
    results = Results("memory", whole, markdown, {"memory": memory, "times": times, "tables": tables, "size": size, "rounds": rounds, "minutes": minutes, "writers": writers,
                                                  "engines": names, "settings": {n: settings(n, budget) for n in names}})

    def body():
        results.keep("disk", {side.name: fill(side, tables, size) for side in sides})
        without = [side.group.why for side in sides if side.group.why]
        if without:
            results.keep("no_cgroup", without[0])
            show.say(f"no memory cgroup ({without[0]}): the engines' own limits are what there is")
        for side in sides:
            touch(side, tables)
        if "sysbench" in parts:
            part_sysbench(sides, tables, size, rounds, lambda v: results.keep("sysbench", v))
        if "updates" in parts:
            part_updates(sides, tables, size, minutes * 60, writers, lambda v: results.keep("updates", v))
    try:
        run(body, [side.server for side in sides], results)
    finally:
        for side in sides:
            side.remove_group()


if __name__ == "__main__":
    main()
