#!/usr/bin/python3
"""buffer.py = 'make bench-buffer': the sweep of buffer sizes of 'esker lab buffer', through the real server: INSERT ... SELECT of the
same rows, with each engine's own buffer from small to large.

    Esker          esker_bulk_buffer_size, 256 KiB to 256 MiB; ROW_FORMAT=FIXED and as it is by default
    MyISAM         its write cache; fixed and dynamic rows. An INSERT ... SELECT gives it what read_buffer_size was when the server was
                   started, whatever the session says now, so there is a server for each size
    Aria dynamic   the same write cache, as large as the session's read_buffer_size (ROW_FORMAT=DYNAMIC)
    Aria page      its page cache (aria_pagecache_buffer_size), a server for each size

read_buffer_size is the buffer that the source is read with, too.

Every round takes the sizes in another order and makes each table anew; write calls are the server's (syscw of /proc), counted from
the statement's beginning to its end: Esker's large writes are not among them where they go through io_uring. Bytes at the disk are what
it was asked to write until nothing was left. The rows are counted afterwards,
and their sum is held against the source's. Writes bench/results/NAME.json and NAME.md.

    ROWS=2000000  ROUNDS=5
    ENGINES=...      some of: Esker, MyISAM, Aria
    SIZES=...        only these, with K or M: 128K,1M
    NAME=            of the result files (default: 'buffer' for a whole run, 'partial-buffer' otherwise)
"""
import os
import statistics
import time

from frame import Results, head, median, run, text, usage
from eskerlib import env, server, show, workload

KIB, MIB = 1 << 10, 1 << 20
KNOWN = ["Esker", "MyISAM", "Aria"]
# name: engine, table options, kind of the source's columns, the variable, sizes, needs a new server
WAYS = {
    "Esker": ("Esker", "", "varchar", "GLOBAL esker_bulk_buffer_size", (256 * KIB, 256 * MIB), False),
    "Esker FIXED": ("Esker", "ROW_FORMAT=FIXED COMPRESSION=none", "char", "GLOBAL esker_bulk_buffer_size", (256 * KIB, 256 * MIB), False),
    "MyISAM fixed": ("MyISAM", "ROW_FORMAT=FIXED", "char", "read_buffer_size", (8 * KIB, 32 * MIB), True),
    "MyISAM dynamic": ("MyISAM", "ROW_FORMAT=DYNAMIC", "varchar", "read_buffer_size", (8 * KIB, 32 * MIB), True),
    "Aria dynamic": ("Aria", "ROW_FORMAT=DYNAMIC TRANSACTIONAL=0", "varchar", "SESSION read_buffer_size", (8 * KIB, 32 * MIB), False),
    "Aria page": ("Aria", "ROW_FORMAT=PAGE TRANSACTIONAL=0", "varchar", "aria_pagecache_buffer_size", (MIB, 256 * MIB), True),
}


def sizes(least, most):
    """From the one to the other, four times as much each; or those that were asked for, as far as they lie between."""
    asked = os.environ.get("SIZES", "").replace(",", " ").split()
    if asked:
        unit = {"K": KIB, "M": MIB}
        try:
            found = [int(word[:-1]) * unit[word[-1].upper()] for word in asked]
        except (KeyError, ValueError):
            env.fail(f"SIZES={os.environ['SIZES']}: sizes are whole numbers that end in K or M")
        return [size for size in found if least <= size <= most]
    found = []
    while least <= most:
        found.append(least)
        least *= 4
    return found


def size_text(size):
    """As people write it."""
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def checksum(c, table):
    """What does not depend on the order of rows or the engine."""
    return tuple(c.row(f"SELECT COUNT(*), SUM(CRC32(CONCAT_WS('|', a, b, c, d, e, f, g))) FROM {table}").values())


def one(s, c, name, size, want):
    """Figures of one statement."""
    engine, options, kind, variable, _, anew = WAYS[name]
    if not anew:
        c.query(f"SET {variable}={size}")
    workload.create(c, "copied", kind, engine, options)
    workload.prepare_session(c, engine)
    workload.wait_idle(s, quiet_s=0.3)
    before, cpu, written, begin = s.io(), s.cpu_s(), s.written_bytes(), time.monotonic()
    c.query(f"INSERT INTO copied SELECT * FROM src_{kind}")
    took = time.monotonic() - begin
    after, cpu_after = s.io(), s.cpu_s()
    found = checksum(c, "copied")
    if found != want[kind]:
        raise RuntimeError(f"{name}, {size_text(size)}: {found} after the insert, the source has {want[kind]}")
    result = {"rate": int(found[0]) / took, "wall_s": took, "server_s": cpu_after - cpu, "write_calls": after["syscw"] - before["syscw"],
              "write_call_bytes": after["wchar"] - before["wchar"], "written_bytes": s.written_bytes() - written}
    c.query("DROP TABLE copied")
    show.say(f"  {name:14} {size_text(size):>8} {result['rate']:11,.0f} rows a second, {result['server_s']:.2f} s of processor time, {result['write_calls']:,} write calls")
    return result


def percent(times, base):
    """Of the base's time, round by round."""
    each = sorted(100 * t / b for t, b in zip(times, base))
    middle = f"{statistics.median(each):.1f}"
    one_sided = len(each) > 4 and (each[0] > 100 or each[-1] < 100)
    return f"{f'**{middle}**' if one_sided else middle} ({each[0]:.0f} to {each[-1]:.0f})"


def markdown(found):
    """The whole report."""
    lines = [f"# Buffer sizes through the server: INSERT ... SELECT of {found['rows']:,} rows", "", head(found, f"{found['rounds']} rounds, medians"), "",
             "Percent is of the time with the size that the engine has by default, or the one next to it: median of the rounds, each held against the "
             "same round of that size, in brackets the least and the greatest. **Bold** is where all rounds lie on one side of 100: of five rounds that is "
             "so of one row in sixteen by chance alone. What is not bold is no difference that so few rounds show.", "",
             "Write calls are the server's own, and bytes a call what they were given. Esker's large writes go through io_uring and are none of them, nor is "
             "what the kernel writes back later; *at the disk* has everything, once nothing was left to write. MyISAM and Aria write 16 KiB at a time where "
             "they are given 8.", ""]
    usual = {"esker_bulk_buffer_size": 4 * MIB, "read_buffer_size": 128 * KIB, "aria_pagecache_buffer_size": 128 * MIB}
    for name, by in found.get("buffer", {}).items():
        variable = WAYS[name][3].rsplit(" ", 1)[-1]
        base = min(by, key=lambda size: abs(int(size).bit_length() - usual[variable].bit_length()))
        lines += [f"## {name} (`{variable}`)", "", "| buffer | rows a second | time, % | time, s | processor, s | write calls | bytes a call | at the disk, MB |", "|---:|---:|---:|---|---:|---:|---:|---:|"]
        for size, figures in by.items():
            m = {what: figures[what]["median"] for what in figures}
            times = figures["wall_s"]["samples"]
            lines.append(f"| {size_text(int(size))} | {text(m['rate'], 0)} | {'100' if size == base else percent(times, by[base]['wall_s']['samples'])} | "
                         f"{min(times):.2f} to {max(times):.2f} | {text(m['server_s'])} | "
                         f"{text(m['write_calls'], 0)} | {text(m['write_call_bytes'] / max(m['write_calls'], 1), 0)} | {text(m['written_bytes'] / 1e6, 0)} |")
        lines.append("")
    return lines


def main():
    usage(__doc__)
    rows, rounds = env.number("ROWS", 2_000_000, least=1000), env.number("ROUNDS", 5)
    engines = env.names("ENGINES", KNOWN, KNOWN)
    names = [n for n in WAYS if WAYS[n][0] in engines]
    plan = {n: sizes(*WAYS[n][4]) for n in names}
    settings = {**server.measured_settings(), "aria_pagecache_buffer_size": 128 * MIB}
    whole = rows == 2_000_000 and rounds >= 5 and engines == KNOWN and not os.environ.get("SIZES")
    results = Results("buffer", whole, markdown, {"rows": rows, "rounds": rounds, "engines": engines, "settings": settings})
    s = server.Server("bench-buffer", settings, {"Esker"})

    def connect():
        c = s.connect()
        c.query("CREATE DATABASE IF NOT EXISTS bench")
        c.close()
        return s.connect("bench")

    def started(changed):
        """A connection to a server with these settings, which is started anew if it has others."""
        if s.pid() and s.settings == {**settings, **changed}:
            return connect()
        s.stop()
        s.settings = {**settings, **changed}
        s.start()
        return connect()

    def body():
        s.stop()
        c = started({})
        workload.fill_source(c, rows, show.say)
        want = {kind: checksum(c, f"src_{kind}") for kind in workload.KINDS}
        samples = {n: {size: [] for size in plan[n]} for n in names}
        for number in range(rounds):
            show.say(f"round {number + 1} of {rounds}")
            cases = [(n, size) for n in names for size in plan[n]]
            turn = number * len(cases) // rounds
            cases = cases[turn:] + cases[:turn]
            # There and back, as the lab does.
            for name, size in cases if number % 2 == 0 else reversed(cases):
                c.close()
                c = started({WAYS[name][3]: size} if WAYS[name][5] else {})
                samples[name][size].append(one(s, c, name, size, want))
            gathered = {n: {size: {what: median([r[what] for r in found]) for what in found[0]} for size, found in by.items()} for n, by in samples.items()}
            results.keep("buffer", gathered)
        c.close()
    run(body, [s], results)


if __name__ == "__main__":
    main()
