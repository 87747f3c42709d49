#!/usr/bin/python3
"""cost.py = 'make bench-cost': what the figures that are always on cost a statement: nanoseconds of an event of each family, times the events
of a statement by the counters themselves, in percent of the processor time that the server takes for it.

The nanoseconds are medians of 31 rounds, by 1 and by 2 threads at once, of crates/esker-base/examples/event_cost.rs; of what a
statement adds to its tables' figures (ESKER_TABLE_STATS) of crates/esker/examples/table_work_cost.rs, both threads on one table. The
events are those of sysbench's TEST by 1 and by 2 clients. A counter that is raised by more than 1 at a time is taken for as many
events, so the counters' part is the most that it can be. Of tables' figures one is reckoned for each statement, as of one that reads
one table by one index: a point select. Prints a table; writes nothing.

    SIZE=100000      rows of the table
    SECONDS=10       how long each number of clients runs
    TEST=oltp_point_select
"""
import json
import os
import re
import subprocess

from frame import ROOT, usage
from eskerlib import env, server, show

SIZE, SECONDS = env.number("SIZE", 100_000), env.number("SECONDS", 10)
TEST = os.environ.get("TEST", "oltp_point_select")
FAMILIES = {"counter": "counters", "wait": "waits, counted and timed", "lock": "locks taken, one in 64 timed", "tables": "figures of a table"}


def printed(*command):
    """The last line of JSON that a program prints."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    lines = re.findall(r"^\{.*\}$", done.stdout, re.M)
    if done.returncode or not lines:
        env.fail(f"{' '.join(command)}:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    return json.loads(lines[-1])


def costs():
    """Nanoseconds of an event of each family, by 1 thread and by each of 2."""
    example = ("cargo", "run", "--quiet", "--release", "-p")
    events = printed(*example, "esker-base", "--example", "event_cost", "--", "--json")
    return {**events, **printed(*example, "esker", "--features", "sim", "--example", "table_work_cost", "--", "--json")}


def sysbench(s, clients, what, seconds):
    """One call of it."""
    line = ["sysbench", TEST, f"--mysql-socket={s.socket}", "--mysql-user=root", "--mysql-db=cost", "--mysql_storage_engine=Esker", "--tables=1",
            f"--table-size={SIZE}", f"--threads={clients}", f"--time={seconds}", "--events=0", what]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode:
        env.fail(f"{' '.join(line)}:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")


def figures(s, c):
    """What has been counted so far, by family, and the server's processor time and statements."""
    waits = int(c.one("SELECT SUM(count) FROM information_schema.esker_waits WHERE scope='global'"))
    counters = int(c.one("SELECT SUM(value) FROM information_schema.esker_metrics WHERE unit='count' AND scope LIKE '%session%'"))
    locks = int(c.one("SELECT SUM(acquired) FROM information_schema.esker_mutexes"))
    statements = int(c.one("SELECT variable_value FROM information_schema.global_status WHERE variable_name='QUESTIONS'"))
    return {"counter": counters, "wait": waits, "lock": locks, "cpu": s.cpu_s(), "statements": statements}


def measured(s, c, clients):
    """Events of a statement by family, and its processor time in nanoseconds."""
    sysbench(s, clients, "run", 2)
    before = figures(s, c)
    sysbench(s, clients, "run", SECONDS)
    after = figures(s, c)
    moved = {what: after[what] - before[what] for what in before}
    per = {what: moved[what] / moved["statements"] for what in ("counter", "wait", "lock")}
    return {**per, "tables": 1}, moved["cpu"] / moved["statements"] * 1e9


def main():
    usage(__doc__)
    ns = costs()
    s = server.Server("cost", {"esker_memory_limit": 1 << 30})
    try:
        s.create(fresh=True)
        s.start()
        c = s.connect()
        c.query("CREATE DATABASE cost")
        sysbench(s, 1, "prepare", 0)
        for clients in (1, 2):
            events, cpu_ns = measured(s, c, clients)
            rows, total = [], 0
            for family, words in FAMILIES.items():
                each = ns[family][clients - 1]
                cost = each * events[family]
                total += cost
                rows.append([words, f"{each:.2f}", f"{events[family]:.2f}", f"{cost:.1f}", f"{cost / cpu_ns:.3%}"])
            rows.append(["all", "", "", f"{total:.1f}", f"{total / cpu_ns:.3%}"])
            show.say(f"{TEST}, {clients} client{'s' * (clients > 1)}: {cpu_ns / 1000:.1f} us of the server's processor time a statement")
            print(show.table(["family", "ns an event", "events", "ns a statement", "percent"], rows))
    finally:
        s.stop()
        s.remove()


if __name__ == "__main__":
    main()
