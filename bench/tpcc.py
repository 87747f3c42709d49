#!/usr/bin/python3
"""tpcc.py = 'make bench-tpcc': TPC-C beside InnoDB and MyRocks, all durable with the binlog, in memory and with data four times the memory.

A server of its own for each engine, the tables loaded anew for each run. First everything fits into memory (the settings of the other
benchmarks), then each server is limited as in bench-memory, so that the rows of the beginning are four times the engine's memory. A
terminal is a process with a connection; it does the five transactions in the specification's mix, as procedures, without keying and think
times, on a warehouse that it chooses each time, and repeats what is refused (deadlock, conflict, timeout). In each round the engines take
turns; a round before them is not counted. A new order counts when its commit is acknowledged; its time is from the first try to that. In the
end of the first part the consistency conditions are checked. Writes bench/results/NAME.json and NAME.md.

    WAREHOUSES=22  SECONDS=60  CLIENTS=8  ROUNDS=3
    MEMORY=          MiB of a limited server, as in bench-memory (default: so that rows are four times the engine's share)
    LEVEL="READ COMMITTED"   isolation level of all (at REPEATABLE READ MyRocks refuses where others wait)
    ENGINES=...      some of: Esker, InnoDB, RocksDB
    ONLY=...         some of: in-memory, four-times
    NAME=            of the result files (default: 'tpcc' for a whole run, 'partial-tpcc' otherwise)
"""
import collections
import math
import multiprocessing
import os
import random
import threading
import time

from frame import SHOWN, Results, head, median, ratio, run, targets, text, turned, usage
from memory import MIB, SERVER_MIB, Side, better_of, disk
from eskerlib import env, show, tpcc, tpcc_work, workload
from eskerlib.client import Client, Lost, SqlError

KNOWN = ["Esker", "InnoDB", "RocksDB"]
PARTS = ["in-memory", "four-times"]
LEVELS = ["READ COMMITTED", "REPEATABLE READ"]
TIMES = 4
SEED = 1
DB = "tpcc"
# Durable, all of them; MyRocks finds deadlocks only when it is told to.
DURABLE = {"log_bin": "binlog", "binlog_format": "ROW", "sync_binlog": 1, "server_id": 1, "rocksdb_flush_log_at_trx_commit": 1, "rocksdb_deadlock_detect": "ON"}


# -- data -----------------------------------------------------------------------------------------------------------------
def loader(sock, scale, warehouses, answers):
    """A process: loads some warehouses; puts None, or what went wrong."""
    try:
        c = Client(sock, db=DB)
        c.query("SET SESSION sql_log_bin=0")
        for w in warehouses:
            tpcc.load_warehouse(c, scale, SEED, w)
        c.close()
        answers.put(None)
    except (SqlError, Lost) as e:
        answers.put(str(e))


def fill(side, scale):
    """The tables, made without limits; seconds and bytes on disk."""
    side.server.stop()
    side.server.create(fresh=True)
    side.start(limited=False)
    c, begin = side.server.connect(), time.monotonic()
    c.query("SET SESSION sql_log_bin=0")
    tpcc.create(c, side.name, DB)
    tpcc_work.create_procedures(c)
    tpcc.load_items(c, scale, SEED)
    answers, parts = multiprocessing.Queue(), os.cpu_count() or 1
    processes = [multiprocessing.Process(target=loader, args=(side.server.socket, scale, range(1 + n, scale.warehouses + 1, parts), answers)) for n in range(parts)]
    for p in processes:
        p.start()
    wrong = [w for w in [answers.get() for _ in processes] if w]
    for p in processes:
        p.join()
    if wrong:
        raise RuntimeError(f"{side.name}: {wrong[0]}")
    c.query(f"ANALYZE TABLE {','.join(tpcc.TABLES)}")
    took = time.monotonic() - begin
    workload.wait_idle(side.server)
    tables = list(tpcc.TABLES)
    size = sum(workload.engine_bytes(c, side.server, side.name, DB, t) for t in (tables[:1] if side.name == "Esker" else tables))
    c.close()
    show.say(f"  {side.name:8} {scale.warehouses} warehouses in {took:.1f} s, {size / MIB:,.0f} MiB on disk")
    return {"load_s": took, "disk_bytes": size}


# -- terminals --------------------------------------------------------------------------------------------------------------
def terminal(number, sock, scale, level, seconds, seed, ready, answers):
    """A process: puts (processor seconds, seconds, {kind: [seconds of each]}, orders rolled back, times refused) or what went wrong."""
    try:
        work, c = tpcc_work.Work(scale, random.Random(seed * 1000 + number), number), Client(sock, db=DB)
        c.query(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        for _ in range(sum(tpcc_work.MIX.values())):  # all procedures are prepared then
            until_done(c, work.task())
        ready.wait()
        begin, processor, times, undone, refused = time.monotonic(), time.process_time(), collections.defaultdict(list), 0, 0
        sent = begin
        while sent - begin < seconds:
            task = work.task()
            answer, again = until_done(c, task)
            now = time.monotonic()
            refused += again
            if task.kind == "new_order" and not answer:
                undone += 1
            else:
                times[task.kind].append(now - sent)
            sent = now
        answers.put((time.process_time() - processor, sent - begin, dict(times), undone, refused))
        c.close()
    except (SqlError, Lost, tpcc_work.Wrong) as e:
        ready.abort()
        answers.put(f"terminal {number}: {e}")
    except threading.BrokenBarrierError:
        answers.put("another terminal has failed")


def until_done(connection, task):
    """The answer, and how often it was refused before."""
    answer, refused = tpcc_work.attempt(connection, task), 0
    while answer is None:
        refused += 1
        answer = tpcc_work.attempt(connection, task)
    return answer, refused


def one_round(side, scale, level, clients, seconds, seed):
    """Figures of one engine."""
    ready, answers, s = multiprocessing.Barrier(clients + 1), multiprocessing.Queue(), side.server
    processes = [multiprocessing.Process(target=terminal, args=(n, s.socket, scale, level, seconds, seed, ready, answers)) for n in range(clients)]
    read, written = disk(side)
    for p in processes:
        p.start()
    try:
        ready.wait()
    except threading.BrokenBarrierError:
        pass  # the answers say why
    cpu = s.cpu_s()
    got = [answers.get() for _ in processes]
    server_s = s.cpu_s() - cpu
    for p in processes:
        p.join()
    wrong = sorted(g for g in got if isinstance(g, str))
    if wrong:
        raise RuntimeError(f"{side.name}: {wrong[-1]}")
    read, written = (after - before for before, after in zip((read, written), disk(side)))
    longest, client_s = max(g[1] for g in got), sum(g[0] for g in got)
    by_kind = {kind: sorted(t for g in got for t in g[2].get(kind, ())) for kind in tpcc_work.MIX}
    done, orders = sum(map(len, by_kind.values())), by_kind["new_order"]
    if not orders:
        raise RuntimeError(f"{side.name}: no new order in {longest:.0f} s")
    at = lambda times, share: times[min(int(len(times) * share), len(times) - 1)] if times else 0.0
    result = {"tpm": len(orders) / longest * 60, "transactions": done / longest, "p50_s": at(orders, 0.5), "p99_s": at(orders, 0.99), "p999_s": at(orders, 0.999), "max_s": orders[-1],
              **{f"p99_{kind}_s": at(times, 0.99) for kind, times in by_kind.items()}, "refused": sum(g[4] for g in got) / done, "undone": sum(g[3] for g in got) / (done or 1),
              "read_each": read / done, "written_each": written / done, "server_each": server_s / done, "client_share": client_s / (client_s + server_s), "busy_share": (client_s + server_s) / longest / (os.cpu_count() or 1)}
    workload.wait_idle(s, longest_s=60)
    c = s.connect()
    c.query("RESET MASTER")
    c.close()
    return result


def part(sides, scale, level, clients, seconds, rounds, keep):
    """All rounds, the engines by turns."""
    samples = {}
    for number in range(rounds + 1):
        for side in turned(sides, number):
            figures = one_round(side, scale, level, clients, seconds, number + 1)
            show.say(f"  {f'round {number}' if number else 'not counted'}, {side.name:8} {figures['tpm']:9,.0f} new orders a minute, p99 {figures['p99_s'] * 1e3:.1f} ms, most {figures['max_s'] * 1e3:.0f}, "
                     f"{figures['refused']:.2%} refused, read {figures['read_each'] / 1024:.1f} KiB, written {figures['written_each'] / 1024:.1f} KiB each, clients {figures['client_share']:.0%} of the processor time")
            if number:
                samples.setdefault(side.name, []).append(figures)
        if samples:
            keep({n: {what: median([r[what] for r in found]) for what in found[0]} for n, found in samples.items()})


def hold(sides, scale):
    """{engine: problems} of the consistency conditions."""
    found = {}
    for side in sides:
        c, begin = side.server.connect(DB), time.monotonic()
        found[side.name] = tpcc.conditions(c, scale)
        c.close()
        show.say(f"  {side.name:8} conditions checked in {time.monotonic() - begin:.1f} s: {found[side.name] or 'all hold'}")
    return found


# -- report ---------------------------------------------------------------------------------------------------------------
def part_lines(by, names):
    """The table of one part."""
    value = lambda n, what: by[n][what]["median"]
    shown = [("tpm", "new orders a minute", 1, 0), ("p50_s", "a new order: median, ms", 1e3, 1), ("p99_s", "99 of 100 within, ms", 1e3, 1), ("p999_s", "999 of 1,000 within, ms", 1e3, 1),
             ("max_s", "longest (median of the rounds'), ms", 1e3, 0), ("p99_payment_s", "payment: 99 of 100 within, ms", 1e3, 1), ("p99_order_status_s", "order status, ms", 1e3, 1),
             ("p99_delivery_s", "delivery, ms", 1e3, 1), ("p99_stock_level_s", "stock level, ms", 1e3, 1), ("transactions", "transactions a second, of all kinds", 1, 0),
             ("refused", "refused and repeated, of 100 transactions", 100, 2), ("read_each", "read from disk for each, KiB", 1 / 1024, 1), ("written_each", "written for each, binlog too, KiB", 1 / 1024, 1),
             ("server_each", "processor time of the server for each, ms", 1e3, 2), ("client_share", "the clients' share of the processor time used, %", 100, 0), ("busy_share", "processors busy, %", 100, 0)]
    lines = ["| | " + " | ".join(SHOWN.get(n, n) for n in names) + " |", "|---|" + "--:|" * len(names)]
    lines += [f"| {words} | " + " | ".join(text(value(n, what) * scale, digits) for n in names) + " |" for what, words, scale, digits in shown]
    lines.append("| spread of the new orders | " + " | ".join(f"{min(by[n]['tpm']['samples']):,.0f} to {max(by[n]['tpm']['samples']):,.0f}" for n in names) + " |")
    return lines + [""]


def markdown(found):
    """The whole report."""
    scale, names, rows = found["warehouses"], found["engines"], []
    lines = [f"# TPC-C, warehouses: {scale}; {found['clients']} terminals without think times, {found['level']}", "", head(found, f"{found['rounds']} interleaved rounds of {found['seconds']} s, medians"),
             f"Every commit durable, sync_binlog=1, row format. {scale * tpcc.WAREHOUSE_BYTES / MIB:,.0f} MiB of rows in the beginning.", ""]
    if "load" in found:
        lines += ["On disk after the load, MiB: " + ", ".join(f"{SHOWN.get(n, n)} {f['disk_bytes'] / MIB:,.0f}" for n, f in found["load"].items()) + "; loaded in, s: " +
                  ", ".join(f"{SHOWN.get(n, n)} {f['load_s']:,.0f}" for n, f in found["load"].items()) + ".", ""]
    limited = (f"A server has {found['memory']} MiB, {found['memory'] - SERVER_MIB} of them the engine's. " +
               (f"No memory cgroup could be made ({found['no_cgroup']}): only the engines' own limits hold." if found.get("no_cgroup") else "A memory cgroup limits it, page cache included."))
    for name, title, words, least in (("in-memory", "In memory", "", 1.0), ("four-times", f"Data {TIMES} times the memory", limited, 2.0)):
        by = found.get(name)
        if by:
            lines += [f"## {title}", ""] + ([words, ""] if words else []) + part_lines(by, [n for n in names if n in by])
            rows.append((f"{title.lower()}: new orders a minute, to the better of InnoDB and MyRocks", "least", least, better_of({n: f["tpm"]["median"] for n, f in by.items()})))
            rates = {n: f["tpm"]["median"] for n, f in by.items()}
            lines += [f"Esker's new orders, of {SHOWN.get(n, n)}'s: {text(ratio(rates.get('Esker'), rates[n]))}." for n in rates if n != "Esker"] + [""]
    if "conditions" in found:
        broken = {n: p for n, p in found["conditions"].items() if p}
        lines += ["The consistency conditions of clause 3.3.2 hold after the first part, for all." if not broken else f"**Consistency conditions that do not hold**: {broken}", ""]
    return lines + (targets(rows) if rows else [])


def main():
    usage(__doc__)
    warehouses, seconds, clients, rounds = env.number("WAREHOUSES", 22), env.number("SECONDS", 60), env.number("CLIENTS", 8), env.number("ROUNDS", 3)
    scale = tpcc.Scale(warehouses)
    memory = env.number("MEMORY", SERVER_MIB + math.ceil(warehouses * tpcc.WAREHOUSE_BYTES / TIMES / MIB), least=SERVER_MIB + 8)
    names, parts = env.names("ENGINES", KNOWN, KNOWN), env.names("ONLY", PARTS, PARTS)
    level = os.environ.get("LEVEL", LEVELS[0]).upper()
    if level not in LEVELS:
        env.fail(f"LEVEL={level} is not one of: {', '.join(LEVELS)}")
    if clients > tpcc_work.MOST_CLIENTS:
        env.fail(f"CLIENTS={clients} are more than {tpcc_work.MOST_CLIENTS}")
    sides = [Side(n, memory * MIB, (memory - SERVER_MIB) * MIB, DURABLE, "tpcc") for n in names]
    whole = warehouses >= 22 and seconds >= 60 and rounds >= 3 and names == KNOWN and parts == PARTS and "MEMORY" not in os.environ and level == LEVELS[0]
    results = Results("tpcc", whole, markdown, {"warehouses": warehouses, "seconds": seconds, "clients": clients, "rounds": rounds, "memory": memory, "level": level, "engines": names, "settings": DURABLE})

    def body():
        results.keep("load", {side.name: fill(side, scale) for side in sides})
        if "in-memory" in parts:
            show.say("in memory")
            part(sides, scale, level, clients, seconds, rounds, lambda v: results.keep("in-memory", v))
            results.keep("conditions", hold(sides, scale))
        if "four-times" in parts:
            for side in sides:
                side.start(limited=True)
            without = [side.group.why for side in sides if side.group.why]
            if without:
                results.keep("no_cgroup", without[0])
            show.say(f"with {memory} MiB a server" + (f", no memory cgroup ({without[0]})" if without else ""))
            part(sides, scale, level, clients, seconds, rounds, lambda v: results.keep("four-times", v))
    try:
        run(body, [side.server for side in sides], results)
        for side in sides:
            side.server.remove()  # the next run loads anew
    finally:
        for side in sides:
            side.remove_group()


if __name__ == "__main__":
    main()
