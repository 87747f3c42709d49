#!/usr/bin/python3
"""lab.py = 'make bench-lab': esker lab beside fio, pg_test_fsync, hyperfine and perf trace, where they measure the same thing.

The programs take turns, forwards and backwards, on files of the same size in one folder; a figure is the median of the rounds, a ratio
the median of those of each round, with the least and the greatest of them. What two programs measure of the very same calls (perf trace)
is from one run of the lab. Writes bench/results/NAME.json and NAME.md.

    ROUNDS=6  MIB=512 (of the files)  DIR=var/bench-lab  SYNCS=200 (of a case in a round, at least)
    ONLY=streams,barriers,hyperfine,trace  parts (all)
    NAME=      of the result files (default: 'lab' for a whole run, 'partial-lab' otherwise)
    FIO= PG_TEST_FSYNC= HYPERFINE=  the programs (Debian's packages fio, postgresql-15 and hyperfine by default; installed by root
               if missing); perf trace is used where it is there and the kernel lets it
"""
import glob
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

from frame import Results, head, usage

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ESKER = os.path.join(ROOT, "target", "release", "esker")
ROUNDS = int(os.environ.get("ROUNDS", "6"))
MIB = int(os.environ.get("MIB", "512"))
SYNCS = int(os.environ.get("SYNCS", "200"))
PARTS = ("streams", "barriers", "hyperfine", "trace")
ONLY = [part for part in os.environ.get("ONLY", "").split(",") if part] or list(PARTS)
DIR = os.path.abspath(os.environ.get("DIR", os.path.join(ROOT, "var", "bench-lab")))
BLOCK, DEPTH = 128 << 10, 4
DIRECT = ["--ioengine=io_uring", f"--iodepth={DEPTH}", "--direct=1"]
# what, the lab's row (do, way), fio's options; all with the same block, depth and file size
STREAMS = [
    ("write, page cache", ("write", "cached"), ["--rw=write", "--ioengine=psync", "--direct=0"]),
    # The lab makes the file longer ahead of what it writes; fio, unless told to, by each write.
    ("write, direct", ("write", "direct"), [*DIRECT, "--rw=write", "--fallocate=truncate"]),
    ("write, direct, fio's file grows", ("write", "direct"), [*DIRECT, "--rw=write"]),
    ("read, warm", ("read warm", "cached"), ["--rw=read", "--ioengine=psync", "--direct=0", "--invalidate=0"]),
    ("read, cold", ("read cold", "cached"), ["--rw=read", "--ioengine=psync", "--direct=0", "--invalidate=1"]),
    ("read, direct", ("read cold", "direct"), [*DIRECT, "--rw=read"]),
]
# What fio is asked for beside the lab's recycled file: its pages are in the page cache, as those of a log in use are.
KEPT = ["--invalidate=0"]
# its open_datasync goes past the page cache, the lab's O_DSYNC does not: not the same thing
PG = {"fdatasync": "fdatasync", "fsync": "fsync"}


def program(variable, name, package, places):
    """Path of a program; installs its package if it is missing."""
    for path in [os.environ.get(variable), shutil.which(name), *sorted(glob.glob(places))]:
        if path and os.path.exists(path):
            return path
    if os.geteuid() == 0 and shutil.which("apt-get"):
        # Nothing that the package brings may start by itself.
        print(f"installing {package}", file=sys.stderr)
        subprocess.run(["sh", "-c", f"apt-get -qq update; apt-get -y -qq --no-install-recommends install {package}"],
                       env=dict(os.environ, DEBIAN_FRONTEND="noninteractive", RUNLEVEL="1"), stdout=subprocess.DEVNULL, check=True)
        found = [p for p in [shutil.which(name), *sorted(glob.glob(places))] if p]
        if found:
            return found[0]
    sys.exit(f"bench-lab: {name} is missing; install Debian's package {package}, or say {variable}=")


def lab(*arguments, before=(), runs=1):
    """Rows of a report."""
    p = subprocess.run([*before, ESKER, "lab", *arguments, "--json", "--runs", str(runs), "--dir", DIR], capture_output=True, text=True, check=False)
    if p.returncode not in (0, 3):
        sys.exit(f"bench-lab: esker lab {' '.join(arguments)} ended with {p.returncode}: {p.stderr}")
    return json.loads(p.stdout)["rows"]


def lab_streams(samples, record, records, suffix=""):
    """One round of the lab's streams: MiB/s."""
    rows = lab("io", "--records", str(records), "--record-bytes", str(record), "--buffer", str(BLOCK), "--depth", str(DEPTH), "--ways", "cached,direct")
    for what, (do, way), _ in STREAMS:
        row = next(r for r in rows if r["params"]["do"] == do and r["params"]["way"] == way)
        if row["status"] != "good":
            sys.exit(f"bench-lab: {what}: {row['status']}: {row['why']}")
        samples.setdefault((what, "lab" + suffix), []).append(record * records / row["metrics"]["real_s"]["median"] / (1 << 20))


def fio(binary, name, options, before=()):
    """A job of fio's; its report."""
    command = [*before, binary, f"--name={name}", f"--filename={os.path.join(DIR, 'fio')}", f"--size={MIB}m", f"--bs={BLOCK}",
               "--output-format=json", *([] if any("fallocate" in o for o in options) else ["--fallocate=none"]), *options]
    p = subprocess.run(command, capture_output=True, text=True, check=False)
    if p.returncode:
        sys.exit(f"bench-lab: {' '.join(command)}: {p.stderr or p.stdout}")
    return json.loads(p.stdout[p.stdout.index("{"):])["jobs"][0]


def fio_streams(binary, samples):
    """One round of fio's streams: MiB/s."""
    path = os.path.join(DIR, "fio")
    for what, _, options in STREAMS:
        if "--rw=write" in options:
            # What was written reaches the device, as the lab has it do: or the next one would have that to itself.
            os.sync()
            if os.path.exists(path):
                os.remove(path)
        elif what == "read, warm":
            subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True)
        else:
            os.sync()
        side = fio(binary, "stream", options)["write" if "--rw=write" in options else "read"]
        samples.setdefault((what, "fio"), []).append(side["bw_bytes"] / (1 << 20))
    os.remove(path)


def barriers_by_processor(samples):
    """One round of write and fdatasync by this program itself, pinned to each processor in turn, on a file in the page cache: us."""
    path, block, mine = os.path.join(DIR, "processors"), b"\x5a" * 8192, os.sched_getaffinity(0)
    prefill(path)
    fd, usual = os.open(path, os.O_RDWR), (os.sched_getscheduler(0), os.sched_getparam(0))
    try:
        if pinned(0)[0] == "chrt":
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
        for cpu in sorted(mine):
            os.sched_setaffinity(0, {cpu})
            took = []
            for n in range(SYNCS):
                began = time.perf_counter_ns()
                os.pwrite(fd, block, n * len(block))
                os.fdatasync(fd)
                took.append(time.perf_counter_ns() - began)
            samples.setdefault((f"processor {cpu}", "barrier"), []).append(statistics.median(took) / 1000)
    finally:
        os.sched_setaffinity(0, mine)
        os.sched_setscheduler(0, *usual)
        os.close(fd)
        os.remove(path)


def quickest(samples):
    """The processor on which a barrier has taken the shortest time."""
    of = {int(what.split()[1]): statistics.median(v) for (what, who), v in samples.items() if who == "barrier"}
    return min(of, key=of.get)


def prefill(path, kib=8 * 10 * SYNCS):
    """A file that is full and durable, and in the page cache, written as the lab does: in pieces of 64 KiB."""
    with open(path, "wb", buffering=0) as f:
        for _ in range(max(1, kib // 64)):
            f.write(b"\xa5" * (64 << 10))
        os.fsync(f.fileno())


def pinned(cpu):
    """What to run a program by: on one processor, and, where that is allowed, before all that others have to do there."""
    first = ["chrt", "--fifo", "10"]
    allowed = shutil.which("chrt") and subprocess.run([*first, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0
    return [*(first if allowed else []), "taskset", "-c", str(cpu)]


def lab_syncs(samples, cpu):
    """One round of the lab's barriers: a second, the median of four runs, as one takes a tenth of pg_test_fsync's second. The rows are
    in another order each time: none has always the same one before it."""
    n = len(samples.get((("one place", "fdatasync"), "lab"), []))
    for row in lab("sync", "--sizes", "8K", "--count", str(SYNCS), "--rates", "0", "--seed", str(n + 1), before=pinned(cpu), runs=4):
        key = (row["params"]["file"], row["params"]["barrier"])
        if row["status"] == "good":
            samples.setdefault((key, "lab"), []).append(row["metrics"]["per_second"]["median"])


def pg_syncs(binary, samples, cpu):
    """One round of pg_test_fsync: a second. Once on a file whose pages came as the lab's, 64 KiB at a time: it writes over what is
    there; and, as it comes, on the one that it makes by a single write of 16 MiB."""
    path = os.path.join(DIR, "pg_test_fsync")
    for who in ("pg_test_fsync", "pg_test_fsync as it comes"):
        if who == "pg_test_fsync":
            prefill(path, 16 << 10)
        text = subprocess.run([*pinned(cpu), binary, "-s", "1", "-f", path], capture_output=True, text=True, check=True).stdout
        one = text[text.index("one 8kB write"):text.index("two 8kB writes")]
        for ours, theirs in PG.items():
            m = re.search(rf"^\s*{theirs}\s+([0-9.]+) ops/sec", one, re.M)
            if m:
                samples.setdefault((("one place", ours), who), []).append(float(m.group(1)))


def fio_syncs(binary, samples, cpu):
    """One round of fio's barriers on a file that is there: a second. Once through a file as the lab's; and, as it comes, ten times over
    a small one (its clock counts milliseconds), whose pages it drops before each time."""
    path = os.path.join(DIR, "fio")
    plain = ["--bs=8k", "--ioengine=psync", "--rw=write", "--overwrite=1"]
    for who, size in (("fio", [f"--size={8 * 10 * SYNCS}k", *KEPT]), ("fio as it comes", [f"--size={8 * SYNCS}k", "--loops=10"])):
        for ours, option in (("fdatasync", "--fdatasync=1"), ("fsync", "--fsync=1")):
            rates = []
            for _ in range(5):  # each as short as a run of the lab's: the disk may be busy with something else in one
                if who == "fio":
                    prefill(path)
                rates.append(fio(binary, "sync", [*plain, *size, option], pinned(cpu))["write"]["iops"])
                os.remove(path)
            samples.setdefault((("recycled", ours), who), []).append(statistics.median(rates))


def hyperfine_read(binary, samples):
    """One round of dd, timed by hyperfine, and of the lab's reader with the same calls on the same file, in memory: MiB/s."""
    path, report = os.path.join(DIR, "read"), os.path.join(DIR, "hyperfine.json")
    if not os.path.exists(path):
        subprocess.run(["dd", "if=/dev/urandom", f"of={path}", "bs=1M", f"count={MIB}", "status=none"], check=True)
    subprocess.run([binary, "-N", "--style=none", "--warmup=1", "--runs=5", f"--export-json={report}", f"dd if={path} of=/dev/null bs={BLOCK} status=none"],
                   stdout=subprocess.DEVNULL, check=True)
    with open(report) as f:
        samples.setdefault(("file in memory", "hyperfine"), []).append(MIB / json.load(f)["results"][0]["median"])
    row = read_in_memory(path)[0]
    samples.setdefault(("file in memory", "lab"), []).append(MIB / row["metrics"]["real_s"]["median"])


def read_in_memory(path, before=()):
    """The lab's rows of a read of a block a call."""
    return lab("io", "--only", "read", "--ways", "plain", "--cache", "warm", "--record-bytes", str(BLOCK), "--file", path, before=before)


def perf_trace(samples):
    """The lab's own figure of calls, and perf's of the same calls in the same run: how many, and microseconds each. False: it is refused."""
    trace = os.path.join(DIR, "trace")
    for what, call, rows in [
        ("a block read from memory", "pread64", lambda before: read_in_memory(os.path.join(DIR, "read"), before)),
        ("8 KiB written durably (RWF_DSYNC)", "pwritev2", lambda before: lab("sync", "--sizes", "8K", "--count", str(SYNCS), "--min-time", "0", "--rates", "0", before=before)),
    ]:
        try:
            rows = rows(["perf", "trace", "-s", "-e", call, "-o", trace])
        except (OSError, SystemExit):
            return False
        with open(trace) as f:
            found = re.search(rf"^ *{call} +(\d+) +\d+ +([0-9.]+)", f.read(), re.M)
        if not found:
            return False
        if call == "pwritev2":
            rows = [r for r in rows if r["params"]["barrier"] == "RWF_DSYNC"]
            calls = sum(r["times"]["count"] for r in rows)
            ours = sum(r["times"]["count"] * r["times"]["mean"] for r in rows) / calls / 1000
        else:
            calls, ours = sum(r["counts"]["calls"] for r in rows), statistics.mean(r["metrics"]["ns"]["median"] for r in rows) / 1000
        # It sees those that lie outside the measured time, too: the file is read once before, and checked once after.
        samples.setdefault((what, "perf calls"), []).append(int(found[1]))
        samples.setdefault((what, "lab calls"), []).append(calls)
        samples.setdefault((what, "perf"), []).append(float(found[2]) / int(found[1]) * 1000)
        samples.setdefault((what, "lab"), []).append(ours)
    return True


def main():
    usage(__doc__)
    if not os.path.exists(ESKER):
        sys.exit("bench-lab: target/release/esker is missing; run 'make build'")
    fio_path = program("FIO", "fio", "fio", "/usr/bin/fio")
    pg_path = program("PG_TEST_FSYNC", "pg_test_fsync", "postgresql-15", "/usr/lib/postgresql/*/bin/pg_test_fsync")
    hyperfine_path = program("HYPERFINE", "hyperfine", "hyperfine", "/usr/bin/hyperfine")
    os.makedirs(DIR, exist_ok=True)
    samples, blocks = {}, MIB * (1 << 20) // BLOCK
    unknown = [part for part in ONLY if part not in PARTS]
    if unknown:
        sys.exit(f"bench-lab: ONLY takes {', '.join(PARTS)}, not {', '.join(unknown)}")
    if "barriers" in ONLY:
        barriers_by_processor(samples)
        cpu = quickest(samples)
    turns = {
        "streams": [lambda: lab_streams(samples, BLOCK, blocks), lambda: fio_streams(fio_path, samples), lambda: lab_streams(samples, 103, MIB * (1 << 20) // 103, " 103")],
        "barriers": [lambda: pg_syncs(pg_path, samples, cpu), lambda: lab_syncs(samples, cpu), lambda: fio_syncs(fio_path, samples, cpu),
                     lambda: barriers_by_processor(samples)],
        "hyperfine": [lambda: hyperfine_read(hyperfine_path, samples)],
        "trace": [],
    }
    steps = [step for part in PARTS if part in ONLY for step in turns[part]]
    whole = ROUNDS >= 6 and MIB == 512 and SYNCS >= 200 and len(ONLY) == len(PARTS)
    results = Results("lab", whole, markdown, {"rounds": ROUNDS, "mib": MIB, "syncs": SYNCS})
    if "barriers" in ONLY:
        results.found["processor"] = cpu
    try:
        traced = "trace" in ONLY and "hyperfine" in ONLY  # which makes the file that is read
        for n in range(ROUNDS):
            for step in steps if n % 2 == 0 else reversed(steps):
                step()
            traced = traced and perf_trace(samples)
            print(f"round {n + 1} of {ROUNDS}", file=sys.stderr)
            results.found["rounds"] = n + 1
            results.keep("samples", [{"what": k[0], "who": k[1], "median": statistics.median(v), "samples": v} for k, v in samples.items()])
    finally:
        shutil.rmtree(DIR)
    results.show()


def table(lines):
    """Markdown."""
    first, rest = lines[0], lines[1:]
    return ["| " + " | ".join(first) + " |", "|" + "|".join(["---"] + ["---:"] * (len(first) - 1)) + "|"] + ["| " + " | ".join(line) + " |" for line in rest] + [""]


def ratio(ours, theirs):
    """Median of those of the rounds, and how far they lie apart."""
    each = [a / b for a, b in zip(ours, theirs)]
    return f"{statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f})"


def markdown(found):
    """The whole report."""
    of = {(tuple(s["what"]) if isinstance(s["what"], list) else s["what"], s["who"]): s["samples"] for s in found.get("samples", [])}
    middle = {k: statistics.median(v) for k, v in of.items()}
    facts = f"{found['rounds']} rounds in turns, medians; files of {found['mib']} MiB, blocks of {BLOCK >> 10} KiB, {DEPTH} under way past the page cache"
    lines = ["# esker lab beside fio, pg_test_fsync, hyperfine and perf trace", "", head(found, facts).split(", ", 1)[1], "",
             "A ratio is the lab's figure over the other program's: median of the rounds' ratios, in brackets the least and the greatest of them.", ""]
    return lines + streams(of) + barriers(of, found.get("processor")) + hyperfine(of) + traces(of, middle)


def streams(of):
    """Of blocks."""
    if ("read, warm", "lab") not in of:
        return []
    rows = [["stream", "esker lab, MiB/s", "fio, MiB/s", "ratio", "lab with records of 103 bytes, MiB/s", "ratio"]]
    for what, _, _ in STREAMS:
        ours, theirs, small = (of[(what, who)] for who in ("lab", "fio", "lab 103"))
        rows.append([what, *(f"{statistics.median(v):.0f}" for v in (ours, theirs)), ratio(ours, theirs), f"{statistics.median(small):.0f}", ratio(small, theirs)])
    return ["## Streams of blocks", "", *table(rows),
            "- *write, direct*: the lab makes the file longer ahead of what it writes, 64 MiB at a time, and so does fio with `--fallocate=truncate`. "
            "As it comes fio makes the file longer by each write, for which ext4 lets only one write at a time in: that is the row below.",
            "- *read, warm* is a copy in memory: it tells of processor caches. fio reads into one buffer for all of the file, and so does the lab.",
            "- Records of 103 bytes are copied one by one, which is what the lab asks about; where the storage is slower than that, it does not show.", ""]


def barriers(of, cpu):
    """Of durable writes."""
    if cpu is None:
        return []
    rows = [["file, barrier", "esker lab, a second", "the other", "a second", "ratio"]]
    for (key, who), theirs in sorted((k, v) for k, v in of.items() if isinstance(k[0], tuple) and k[1] != "lab"):
        ours = of[(key, "lab")]
        rows.append([f"{key[0]}, {key[1]}", f"{statistics.median(ours):.0f}", who, f"{statistics.median(theirs):.0f}", ratio(ours, theirs)])
    each = ", ".join(f"{statistics.median(v):.0f} us on {what}" for (what, who), v in sorted(of.items(), key=str) if who == "barrier")
    return ["## Durable writes of 8 KiB", "", *table(rows),
            f"- All are pinned to processor {cpu}, where a write with fdatasync took the shortest time: {each} (medians, by a loop of this script's own). The processor that answers the device's "
            "interrupts has a barrier back without waking another one; where the kernel puts a thread is not for the lab to say, and can be more than any other difference here.",
            "- Where it is allowed they run before all others there (`chrt --fifo`): what others have to do on that processor is not in the way of a program that has just been woken by the device.",
            "- Both calls of a barrier, 1 us of the program's own from one to the next, and two switches away from it (one for the write, one for the flush) are the same in the lab and in "
            "pg_test_fsync, each in one thread (perf's sched_switch and system calls). The lab's figure is the median of four runs of a tenth of a second, with its rows in another order in each round; "
            "theirs is of a second.",
            "- *pg_test_fsync* writes over a file that came in pieces of 64 KiB, as the lab's; *as it comes* it makes one by a single write of 16 MiB.",
            "- *one place*: the same 8 KiB again and again, as pg_test_fsync does for a second. *recycled*: one after the other through a file that is full, and whose pages are in "
            "the page cache: as a log's segment that is used again finds itself. fio does the same with `--overwrite=1 --invalidate=0` on such a file.",
            "- *fio as it comes* goes ten times over a small file and drops its pages from the page cache before each time (`--invalidate=1`): each write is to a page just freed and taken again. On a virtual "
            "disk the device itself then has the write back some us earlier (between the request's issue and the flush's, by the kernel's tracepoints); through a large file, "
            "once, pages that were dropped cost more than those that were kept. A log does not come by its pages so: the row is here to tell what made the difference, not as a measure.",
            "- What is filled by writes of 1 MiB lies in larger folios, and each write of 8 KiB to it costs some 3 us more (kept 64 KiB beside kept 1 MiB); the lab and the engine fill their "
            "files in pieces of 64 KiB, which cost no more than pieces of 8.",
            "- pg_test_fsync's `open_datasync` goes past the page cache, the lab's O_DSYNC does not: these are not compared.", ""]


def hyperfine(of):
    """Of a whole program."""
    if ("file in memory", "lab") not in of:
        return []
    rows = [["", "esker lab, MiB/s", "dd under hyperfine, MiB/s", "ratio"]]
    ours, theirs = of[("file in memory", "lab")], of[("file in memory", "hyperfine")]
    rows.append(["file in memory, a block a call", f"{statistics.median(ours):.0f}", f"{statistics.median(theirs):.0f}", ratio(ours, theirs)])
    return ["## A whole program, timed by hyperfine", "", *table(rows),
            "- hyperfine times the process from its start to its end: about a millisecond of starting and ending is in dd's figure, and the calls that write to /dev/null. The lab's clock runs around the reads alone, "
            "and it adds up the bytes of each record, which dd does not look at.", ""]


def traces(of, middle):
    """Of the very same calls."""
    lines, traced = ["## The very same calls, seen by perf trace", ""], [what for what, who in of if who == "perf"]
    if not traced:
        return lines + ["perf trace is not there, was refused, or not asked for."]
    rows = [["", "calls: lab", "calls: perf", "us each: lab", "us each: perf", "ratio", "difference, us"]]
    for what in traced:
        rows.append([what, f"{middle[(what, 'lab calls')]:.0f}", f"{middle[(what, 'perf calls')]:.0f}", f"{middle[(what, 'lab')]:.1f}", f"{middle[(what, 'perf')]:.1f}",
                     ratio(of[(what, "lab")], of[(what, "perf")]), f"{statistics.median(a - b for a, b in zip(of[(what, 'lab')], of[(what, 'perf')])):.1f}"])
    return lines + table(rows) + [
        "- Both columns are of one run: perf's are times between a call's begin and end in the kernel, the lab's from before to after it in the program. What perf does itself at a call's begin and end is in the lab's alone: the difference, about the same for a short call and a long one.",
        "- A file that is read is read twice more: before the clock, so that it is in memory, and afterwards, to hold its bytes against what the measured reads gave. perf counts those, too."]


if __name__ == "__main__":
    main()
