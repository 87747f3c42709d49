#!/usr/bin/python3
"""inserts.py = 'make bench-inserts': durable inserts of 1,000 rows into a table with three secondary keys, by eight writers at once;
Esker beside InnoDB and MyRocks.

One private server. Each round makes each engine's table anew; what an engine still has to write afterwards (merges, dirty pages) is
waited for and shown. A writer is a process that has made its statements before the clock starts; the primary key is
AUTO_INCREMENT, so it may use a statement again when it is through with all. Inserts above SLOW_MS are counted, and what
PROCESSLIST, asked 20 times a second, said of them meanwhile is shown. Writes bench/results/NAME.json and NAME.md.

    ROWS=3000000     or SECONDS=3600: for so long, whatever the number of rows
    ROUNDS=3  WRITERS=8  BATCH=1000  SLOW_MS=100
    ENGINES=...      some of: Esker, InnoDB, RocksDB, Aria, MyISAM, BLACKHOLE (the SQL layer alone)
    NAME=            of the result files (default: 'inserts' for a whole run, 'partial-inserts' otherwise)
"""
import bisect
import collections
import multiprocessing
import os
import random
import threading
import time

from frame import SHOWN, Results, head, median, peer_settings, ratio, run, targets, text, turned, usage
from eskerlib import env, server, show, workload
from eskerlib.client import Client, Lost, SqlError

KNOWN = ["Esker", "InnoDB", "RocksDB", "Aria", "MyISAM", "BLACKHOLE"]
DEFAULT = KNOWN[:3]
# A writer's statements, at most: 30 MB of text.
PREPARED = 400
COLUMNS = ("id BIGINT NOT NULL AUTO_INCREMENT, at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), register INT NOT NULL, customer INT NOT NULL, product INT NOT NULL, "
           "price INT NOT NULL, note VARCHAR(60) NOT NULL, PRIMARY KEY (id), KEY (price, customer), KEY (register, price, customer), KEY (price, at, customer)")


# -- writers --------------------------------------------------------------------------------------------------------------
def statement(rng, table, batch):
    """One INSERT, as bytes."""
    some = rng.randrange
    values = ",".join(f"({some(1000)},{some(100_000)},{some(10_000)},{some(50_000)},'{some(1 << 60):x}{'.' * some(40)}')" for _ in range(batch))
    return f"INSERT INTO {table} (register, customer, product, price, note) VALUES {values}".encode()


def writer(number, sock, table, batch, count, seconds, ready, answers):
    """A process: sends (connection, processor seconds, [(begin, end)]) or what went wrong."""
    try:
        rng = random.Random(number)
        texts = [statement(rng, table, batch) for _ in range(min(count or PREPARED, PREPARED))]
        c = Client(sock, db="bench")
        connection = c.one("SELECT CONNECTION_ID()")
        c.query("SET SESSION sql_log_bin=0")
        ready.wait()
        begin, processor = time.monotonic(), time.process_time()
        times, done = [], 0
        while (time.monotonic() - begin < seconds) if seconds else done < count:
            sent = time.monotonic()
            c.query(texts[done % len(texts)])
            times.append((sent, time.monotonic()))
            done += 1
        answers.put((connection, time.process_time() - processor, times))
        c.close()
    except (SqlError, Lost) as e:
        ready.abort()
        answers.put(str(e))


class Watch:
    """What PROCESSLIST says of the connections, moment by moment."""

    def __init__(self, s):
        self.connection, self.seen, self.over = s.connect("bench"), [], threading.Event()
        self.thread = threading.Thread(target=self._look)
        self.thread.start()

    def _look(self):
        while not self.over.wait(0.05):
            now = time.monotonic()
            rows = self.connection.query("SELECT id, state FROM information_schema.processlist WHERE command='Query' AND id<>CONNECTION_ID()").rows
            self.seen.append((now, {i: state or "" for i, state in rows}))

    def stop(self):
        self.over.set()
        self.thread.join()
        self.connection.close()

    def states(self, connection, begin, end):
        """Of one connection during one insert: {state: times seen}."""
        at = bisect.bisect_left(self.seen, begin, key=lambda x: x[0])
        found = collections.Counter()
        for moment, states in self.seen[at:]:
            if moment > end:
                break
            found[states.get(connection, "between statements")] += 1
        return dict(found)


# -- a round --------------------------------------------------------------------------------------------------------------
def one_round(s, name, rows, seconds, writers, batch, slow_s):
    """Figures of one engine; its table is dropped again."""
    c = s.connect("bench")
    table = f"i_{name.lower()}"
    c.query(f"DROP TABLE IF EXISTS {table}")
    c.query(f"CREATE TABLE {table} ({COLUMNS}) ENGINE={name} CHARSET=latin1")
    os.sync()
    workload.wait_idle(s, quiet_s=0.5)
    ready, answers = multiprocessing.Barrier(writers + 1), multiprocessing.Queue()
    counts = [(rows // batch + writers - 1 - n) // writers for n in range(writers)]
    processes = [multiprocessing.Process(target=writer, args=(n, s.socket, table, batch, counts[n], seconds, ready, answers)) for n in range(writers)]
    for p in processes:
        p.start()
    try:
        ready.wait()
    except threading.BrokenBarrierError:
        pass  # the answers say why
    before, written, watch = s.cpu_s(), s.written_bytes(), Watch(s)
    got = [answers.get() for _ in processes]
    watch.stop()
    server_s, written_then = s.cpu_s() - before, s.written_bytes() - written
    for p in processes:
        p.join()
    wrong = [g for g in got if isinstance(g, str)]
    if wrong:
        raise RuntimeError(f"{name}: {wrong[0]}")
    begin, end = min(t[0][0] for _, _, t in got if t), max(t[-1][1] for _, _, t in got if t)
    settled = time.monotonic()
    is_idle = workload.wait_idle(s, longest_s=120)
    settle_s = time.monotonic() - settled
    took = sorted(b - a for _, _, times in got for a, b in times)
    inserted, there = len(took) * batch, int(c.one(f"SELECT COUNT(*) FROM {table} IGNORE INDEX (price, register, price_2)"))
    if inserted != there and name != "BLACKHOLE":
        raise RuntimeError(f"{table} has {there:,} rows after {inserted:,} were inserted")
    at = lambda share: took[min(int(len(took) * share), len(took) - 1)]
    slow = [{"at_s": a - begin, "took_s": b - a, "states": watch.states(connection, a, b)} for connection, _, times in got for a, b in times if b - a > slow_s]
    client_s = sum(processor for _, processor, _ in got)
    c.query(f"DROP TABLE {table}")
    c.close()
    result = {"rate": inserted / (end - begin), "rows": inserted, "wall_s": end - begin, "p50_s": at(0.5), "p99_s": at(0.99), "p999_s": at(0.999), "max_s": took[-1], "slow": slow,
              "client_share": client_s / (client_s + server_s), "busy_share": (client_s + server_s) / (end - begin) / (os.cpu_count() or 1),
              "written_bytes": written_then, "written_settled_bytes": s.written_bytes() - written, "settle_s": settle_s, "settled": is_idle}
    show.say(f"  {name:8} {result['rate']:9,.0f} rows a second, p50 {at(0.5) * 1e3:.1f} ms, p99 {at(0.99) * 1e3:.1f}, p99.9 {at(0.999) * 1e3:.1f}, most {took[-1] * 1e3:.0f}, "
             f"{len(slow)} above {slow_s * 1e3:.0f} ms; then {settle_s:.1f} s to settle; clients {result['client_share']:.0%} of the processor time")
    return result


def gather(samples):
    """Medians of all figures; slow inserts of all rounds."""
    found = {what: median([r[what] for r in samples]) for what in samples[0] if what not in ("slow", "settled")}
    found["slow"] = [{"round": n + 1, **one} for n, r in enumerate(samples) for one in r["slow"]]
    found["settled"] = all(r["settled"] for r in samples)
    return found


# -- report ---------------------------------------------------------------------------------------------------------------
def markdown(found):
    """The whole report."""
    by, names = found.get("inserts", {}), [n for n in found["engines"] if n in found.get("inserts", {})]
    size = f"{found['seconds']:,} s" if found["seconds"] else f"{found['rows']:,} rows"
    lines = [f"# {size} of durable inserts of {found['batch']:,} rows, {found['writers']} writers, three secondary keys", "", head(found, f"{found['rounds']} interleaved rounds, medians"), ""]
    if not names:
        return lines
    value = lambda n, what: by[n][what]["median"]
    shown = [("rate", "rows a second", 1, 0), ("p50_s", "an insert: median, ms", 1e3, 1), ("p99_s", "99 of 100 within, ms", 1e3, 1), ("p999_s", "999 of 1,000 within, ms", 1e3, 1),
             ("max_s", "longest (median of the rounds'), ms", 1e3, 0), ("written_bytes", "written meanwhile, MB", 1e-6, 0), ("settle_s", "then until nothing is written, s", 1, 1),
             ("written_settled_bytes", "written in all, MB", 1e-6, 0), ("client_share", "the clients' share of the processor time used", 100, 0), ("busy_share", "processors busy, %", 100, 0)]
    lines += ["| | " + " | ".join(SHOWN.get(n, n) for n in names) + " |", "|---|" + "--:|" * len(names)]
    for what, words, scale, digits in shown:
        words = words + ", %" if what == "client_share" else words
        lines.append(f"| {words} | " + " | ".join(text(value(n, what) * scale, digits) for n in names) + " |")
    lines.append(f"| inserts above {found['slow_ms']} ms, all rounds | " + " | ".join(f"{len(by[n]['slow'])}" for n in names) + " |")
    lines.append("| spread of the rate | " + " | ".join(f"{min(by[n]['rate']['samples']):,.0f} to {max(by[n]['rate']['samples']):,.0f}" for n in names) + " |")
    lines.append("")
    late = [n for n in names if not by[n]["settled"]]
    if late:
        lines += [f"Still writing after 120 s: {', '.join(late)}.", ""]
    own, peers = by.get("Esker"), [value(n, "rate") for n in names if n in ("InnoDB", "RocksDB")]
    if own:
        innodb = by.get("InnoDB")
        lines += targets([("times the better's rate, of InnoDB and MyRocks", "least", 3.0, ratio(value("Esker", "rate"), max(peers)) if peers else None),
                          ("99 of 100 within, of InnoDB's", "most", 0.2, ratio(value("Esker", "p99_s"), innodb and innodb["p99_s"]["median"])),
                          (f"inserts above {found['slow_ms']} ms", "most", 0, len(own["slow"]))])
    for name in names:
        seen = collections.Counter()
        for one in by[name]["slow"]:
            seen.update(one["states"])
        if seen:
            lines += ["", f"{SHOWN.get(name, name)}'s slow inserts were seen in: " + ", ".join(f"'{state}' {n} times" for state, n in seen.most_common(8)) + "."]
    return lines


def main():
    usage(__doc__)
    batch, writers, rounds = env.number("BATCH", 1000), env.number("WRITERS", 8), env.number("ROUNDS", 3)
    rows, seconds, slow_ms = env.number("ROWS", 3_000_000, least=1000), env.number("SECONDS", 0, least=0), env.number("SLOW_MS", 100)
    names = env.names("ENGINES", DEFAULT, KNOWN)
    if rows // batch < writers:
        env.fail(f"ROWS={rows} in batches of {batch} are too few for {writers} writers")
    settings = peer_settings()
    results = Results("inserts", rows == 3_000_000 and not seconds and batch == 1000 and writers == 8 and set(DEFAULT) <= set(names), markdown,
                      {"rows": rows, "seconds": seconds, "rounds": rounds, "batch": batch, "writers": writers, "slow_ms": slow_ms, "engines": names, "settings": settings})
    s = server.Server("bench", settings, {"Esker", *names})

    def body():
        s.stop()
        s.start()
        c = s.connect()
        c.query("CREATE DATABASE IF NOT EXISTS bench")
        c.close()
        samples = {}
        for number in range(rounds):
            show.say(f"round {number + 1} of {rounds}")
            for name in turned(names, number):
                samples.setdefault(name, []).append(one_round(s, name, rows, seconds, writers, batch, slow_ms / 1000))
            results.keep("inserts", {n: gather(found) for n, found in samples.items()})
    run(body, [s], results)


if __name__ == "__main__":
    main()
