#!/usr/bin/python3
"""cost.py = 'make bench-cost': what the figures that are always on cost a statement: nanoseconds of an event of each family, times the events
of a statement by the counters themselves, in percent of the processor time that the server takes for it; and the whole, measured: a server
with the plugin as it is beside one with a plugin that is built without any figures, in turns there and back.

The nanoseconds are medians of 31 rounds, by 1 and by 2 threads at once, of crates/esker-base/examples/event_cost.rs; of what a
statement adds to its tables' figures (ESKER_TABLE_STATS) of crates/esker/examples/table_work_cost.rs, both threads on one table. The
events are those of each of TESTS, by 1 and by 2 clients: sysbench's, or 'load', an INSERT ... SELECT of SIZE rows. A counter that is raised by more
than 1 at a time is taken for as many events, so the counters' part is the most that it can be. Of tables' figures one is reckoned for
each statement, as of one that works by one index; a load works by none.

The whole is the mean, over pairs of rounds, of the processor time of a statement with figures over that without, with an interval of 95 percent
from changes of sign of whole pairs (docs/design/0011). The other plugin is built into build/without-figures (some minutes the first time), and
its server announces no statements to traces either (esker_statements=OFF). Prints tables; writes nothing.

    SIZE=100000      rows of the table
    SECONDS=10       how long each number of clients runs
    TESTS=oltp_point_select,oltp_read_write,load
    PAIRS=8          of rounds of the whole, of SECONDS/4 each; 0: none, else at least 8
"""
import itertools
import json
import math
import os
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from frame import ROOT, usage
from eskerlib import env, server, show

SIZE, SECONDS, PAIRS = env.number("SIZE", 100_000), env.number("SECONDS", 10), env.number("PAIRS", 8, least=0)
TESTS = os.environ.get("TESTS", "oltp_point_select,oltp_read_write,load").split(",")
FAMILIES = {"counter": "counters", "wait": "waits, counted and timed", "lock": "locks taken, one in 64 timed", "tables": "figures of a table"}
WITHOUT = os.path.join(env.BUILD, "without-figures")


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


def sysbench(s, test, clients, what, seconds):
    """One call of it."""
    line = ["sysbench", test, f"--mysql-socket={s.socket}", "--mysql-user=root", "--mysql-db=cost", "--mysql_storage_engine=Esker", "--tables=1",
            f"--table-size={SIZE}", f"--threads={clients}", f"--time={seconds}", "--events=0", what]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode:
        env.fail(f"{' '.join(line)}:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")


def load(s, clients, seconds):
    """Statements that make tables and fill them, one after the other, by each client."""
    end = time.monotonic() + seconds

    def fill(number):
        c = s.connect("cost")
        while time.monotonic() < end:
            c.query(f"CREATE OR REPLACE TABLE l{number} (id INT, k INT, c CHAR(120), pad CHAR(60)) ENGINE=Esker")
            c.query(f"INSERT INTO l{number} SELECT seq, seq, REPEAT('x',119), REPEAT('y',59) FROM seq_1_to_{SIZE}")
        c.close()

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(fill, range(clients)))


def work(s, test, clients, seconds):
    """So much of the test."""
    load(s, clients, seconds) if test == "load" else sysbench(s, test, clients, "run", max(1, round(seconds)))


def figures(s, c):
    """What has been counted so far, by family, and the server's processor time and statements."""
    waits = int(c.one("SELECT SUM(count) FROM information_schema.esker_waits WHERE scope='global'"))
    counters = int(c.one("SELECT SUM(value) FROM information_schema.esker_metrics WHERE unit='count' AND scope LIKE '%session%'"))
    locks = int(c.one("SELECT SUM(acquired) FROM information_schema.esker_mutexes"))
    return {"counter": counters, "wait": waits, "lock": locks, **used(s, c)}


def used(s, c):
    """The server's processor time and statements."""
    return {"cpu": s.cpu_s(), "statements": int(c.one("SELECT variable_value FROM information_schema.global_status WHERE variable_name='QUESTIONS'"))}


def measured(s, c, test, clients):
    """Events of a statement by family, and its processor time in nanoseconds."""
    work(s, test, clients, 2)
    before = figures(s, c)
    work(s, test, clients, SECONDS)
    after = figures(s, c)
    moved = {what: after[what] - before[what] for what in before}
    per = {what: moved[what] / moved["statements"] for what in ("counter", "wait", "lock")}
    return {**per, "tables": 1}, moved["cpu"] / moved["statements"] * 1e9


def reckoned(s, c, ns, test, clients):
    """Nanoseconds of an event times events of a statement, as a table."""
    events, cpu_ns = measured(s, c, test, clients)
    rows, total = [], 0
    for family, words in FAMILIES.items():
        each = ns[family][clients - 1]
        cost = each * events[family]
        total += cost
        rows.append([words, f"{each:.2f}", f"{events[family]:.2f}", f"{cost:.1f}", f"{cost / cpu_ns:.3%}"])
    rows.append(["all", "", "", f"{total:.1f}", f"{total / cpu_ns:.3%}"])
    show.say(f"{test}, {clients} client{'s' * (clients > 1)}: {cpu_ns / 1000:.1f} us of the server's processor time a statement")
    print(show.table(["family", "ns an event", "events", "ns a statement", "percent"], rows))


def plugin_without():
    """Builds it."""
    environment = dict(os.environ, RUSTFLAGS="--cfg esker_without_figures", CARGO_TARGET_DIR=WITHOUT)
    subprocess.run(["cargo", "build", "--quiet", "--release", "-p", "esker-mariadb"], cwd=ROOT, env=environment, check=True)
    path = os.path.join(WITHOUT, "ha_esker_without.so")
    subprocess.run([os.path.join(ROOT, "scripts", "build-plugin.sh")], env=dict(environment, OUT=path), stdout=subprocess.DEVNULL, check=True)
    return path


def interval(logs):
    """Mean of logarithms, and half the width of its interval: what changes of sign of the differences from it give in 95 of 100."""
    n, mean = len(logs), sum(logs) / len(logs)

    def studentised(values):
        m = sum(values) / n
        return abs(m) / max(1e-12, math.sqrt(sum((v - m) ** 2 for v in values) / (n - 1) / n))

    signs = itertools.islice(itertools.product((1, -1), repeat=n), 1 << 15)
    bound = sorted(studentised([s * (v - mean) for s, v in zip(sign, logs)]) for sign in signs)
    error = math.sqrt(sum((v - mean) ** 2 for v in logs) / (n - 1) / n)
    return mean, bound[math.ceil(len(bound) * 0.95) - 1] * error


def whole(both, test, clients):
    """Pairs of rounds there and back; percent that the figures cost, and the interval."""
    each = [[], []]
    for s, c in both:
        work(s, test, clients, 1)
    for pair in range(PAIRS):
        for order in ((0, 1), (1, 0)) if pair % 2 == 0 else ((1, 0), (0, 1)):
            for which in order:
                s, c = both[which]
                before = used(s, c)
                work(s, test, clients, SECONDS / 4)
                after = used(s, c)
                each[which].append((after["cpu"] - before["cpu"]) / (after["statements"] - before["statements"]))
    logs = [sum(math.log(a / b) for a, b in zip(each[0][n:n + 2], each[1][n:n + 2])) / 2 for n in range(0, 2 * PAIRS, 2)]
    mean, half = interval(logs)
    percent = [(math.exp(v) - 1) * 100 for v in (mean, mean - half, mean + half)]
    return [test, str(clients), f"{1e6 * sum(each[0]) / len(each[0]):.1f}", f"{percent[0]:+.2f}", f"{percent[1]:+.2f} to {percent[2]:+.2f}"]


def main():
    usage(__doc__)
    if 0 < PAIRS < 8:
        env.fail("PAIRS must be 0, or at least 8: of fewer nothing can be told")
    ns = costs()
    plugins = [env.PLUGIN] + ([plugin_without()] if PAIRS else [])
    servers = [server.Server("cost", {"esker_memory_limit": 1 << 30}), server.Server("cost-without", {"esker_memory_limit": 1 << 30, "esker_statements": "OFF"})]
    try:
        both = []
        for s, plugin in zip(servers, plugins):
            env.PLUGIN = plugin
            s.create(fresh=True)
            s.start()
            both.append((s, s.connect()))
            both[-1][1].query("CREATE DATABASE cost")
            sysbench(s, "oltp_point_select", 1, "prepare", 0)
        s, c = both[0]
        for test, clients in itertools.product(TESTS, (1, 2)):
            reckoned(s, c, ns, test, clients)
        if PAIRS:
            rows = [whole(both, test, clients) for test, clients in itertools.product(TESTS, (1, 2))]
            show.say(f"the whole, measured: {PAIRS} pairs of rounds, with all figures over without any")
            print(show.table(["test", "clients", "us a statement", "percent", "interval of 95 percent"], rows))
    finally:
        for s in servers:
            s.stop()
            s.remove()


if __name__ == "__main__":
    main()
