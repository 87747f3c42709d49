#!/usr/bin/python3
"""lab.py = 'make bench-lab': esker lab beside fio, pg_test_fsync, hyperfine and perf trace, where they measure the same thing.

The programs take turns, forwards and backwards, on files of the same size in one folder; a figure is the median of the rounds, a ratio
the median of those of each round, with the least and the greatest of them. What two programs measure of the very same calls (perf trace)
is from one run of the lab. Writes bench/results/NAME.json and NAME.md.

    ROUNDS=6  MIB=512 (of the files)  DIR=var/bench-lab  SYNCS=200 (of a case in a round, at least)
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

from frame import Results, head, usage

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ESKER = os.path.join(ROOT, "target", "release", "esker")
ROUNDS = int(os.environ.get("ROUNDS", "6"))
MIB = int(os.environ.get("MIB", "512"))
SYNCS = int(os.environ.get("SYNCS", "200"))
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


def lab(*arguments, before=()):
    """Rows of a report."""
    p = subprocess.run([*before, ESKER, "lab", *arguments, "--json", "--runs", "1", "--dir", DIR], capture_output=True, text=True, check=False)
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


def fio(binary, name, options):
    """A job of fio's; its report."""
    command = [binary, f"--name={name}", f"--filename={os.path.join(DIR, 'fio')}", f"--size={MIB}m", f"--bs={BLOCK}",
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


def lab_syncs(samples):
    """One round of the lab's barriers: a second."""
    for row in lab("sync", "--sizes", "8K", "--count", str(SYNCS), "--rates", "0"):
        key = (row["params"]["file"], row["params"]["barrier"])
        if row["status"] == "good":
            samples.setdefault((key, "lab"), []).append(row["metrics"]["per_second"]["median"])


def pg_syncs(binary, samples):
    """One round of pg_test_fsync: a second."""
    path = os.path.join(DIR, "pg_test_fsync")
    text = subprocess.run([binary, "-s", "1", "-f", path], capture_output=True, text=True, check=True).stdout
    one = text[text.index("one 8kB write"):text.index("two 8kB writes")]
    for ours, theirs in PG.items():
        m = re.search(rf"^\s*{theirs}\s+([0-9.]+) ops/sec", one, re.M)
        if m:
            samples.setdefault((("one place", ours), "pg_test_fsync"), []).append(float(m.group(1)))


def fio_syncs(binary, samples):
    """One round of fio's barriers on a file that is there: a second."""
    path = os.path.join(DIR, "fio")
    # Ten times over the file: its clock counts milliseconds.
    size = ["--bs=8k", f"--size={8 * SYNCS}k", "--ioengine=psync", "--rw=write", "--overwrite=1", "--loops=10"]
    for ours, option in (("fdatasync", "--fdatasync=1"), ("fsync", "--fsync=1")):
        side = fio(binary, "sync", [*size, option])["write"]
        samples.setdefault((("recycled", ours), "fio"), []).append(side["iops"])
    os.remove(path)


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
    turns = [
        lambda: lab_streams(samples, BLOCK, blocks),
        lambda: fio_streams(fio_path, samples),
        lambda: lab_streams(samples, 103, MIB * (1 << 20) // 103, " 103"),
        lambda: lab_syncs(samples),
        lambda: pg_syncs(pg_path, samples),
        lambda: fio_syncs(fio_path, samples),
        lambda: hyperfine_read(hyperfine_path, samples),
    ]
    whole = ROUNDS >= 6 and MIB == 512 and SYNCS >= 200
    results = Results("lab", whole, markdown, {"rounds": ROUNDS, "mib": MIB, "syncs": SYNCS})
    try:
        traced = True
        for n in range(ROUNDS):
            for step in turns if n % 2 == 0 else reversed(turns):
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
             "A ratio is the lab's figure over the other program's: median of the rounds' ratios, in brackets the least and the greatest of them.", "",
             "## Streams of blocks", ""]
    rows = [["stream", "esker lab, MiB/s", "fio, MiB/s", "ratio", "lab with records of 103 bytes, MiB/s", "ratio"]]
    for what, _, _ in STREAMS:
        ours, theirs, small = (of[(what, who)] for who in ("lab", "fio", "lab 103"))
        rows.append([what, *(f"{statistics.median(v):.0f}" for v in (ours, theirs)), ratio(ours, theirs), f"{statistics.median(small):.0f}", ratio(small, theirs)])
    lines += table(rows)
    lines += ["- *write, direct*: the lab makes the file longer ahead of what it writes, 64 MiB at a time, and so does fio with `--fallocate=truncate`. "
              "As it comes fio makes the file longer by each write, for which ext4 lets only one write at a time in: that is the row below.",
              "- *read, warm* is a copy in memory: it tells of processor caches. fio reads into one buffer for all of the file, and so does the lab.",
              "- Records of 103 bytes are copied one by one, which is what the lab asks about; where the storage is slower than that, it does not show.", "",
              "## Durable writes of 8 KiB", ""]
    rows = [["file, barrier", "esker lab, a second", "the other", "a second", "ratio"]]
    for (key, who), theirs in sorted((k, v) for k, v in of.items() if k[1] in ("pg_test_fsync", "fio") and isinstance(k[0], tuple)):
        ours = of[(key, "lab")]
        rows.append([f"{key[0]}, {key[1]}", f"{statistics.median(ours):.0f}", who, f"{statistics.median(theirs):.0f}", ratio(ours, theirs)])
    lines += table(rows)
    lines += ["- *one place*: the same 8 KiB again and again, as pg_test_fsync does for a second. *recycled*: one after the other through a file that is full, as fio does with `--overwrite=1`.",
              "- pg_test_fsync's `open_datasync` goes past the page cache, the lab's O_DSYNC does not: these are not compared.", "",
              "## A whole program, timed by hyperfine", ""]
    rows = [["", "esker lab, MiB/s", "dd under hyperfine, MiB/s", "ratio"]]
    ours, theirs = of[("file in memory", "lab")], of[("file in memory", "hyperfine")]
    rows.append(["file in memory, a block a call", f"{statistics.median(ours):.0f}", f"{statistics.median(theirs):.0f}", ratio(ours, theirs)])
    lines += table(rows)
    lines += ["- hyperfine times the process from its start to its end: about a millisecond of starting and ending is in dd's figure, and the calls that write to /dev/null. The lab's clock runs around the reads alone, "
              "and it adds up the bytes of each record, which dd does not look at.", "",
              "## The very same calls, seen by perf trace", ""]
    traced = [what for what, who in of if who == "perf"]
    if not traced:
        return lines + ["perf trace is not there, or was refused."]
    rows = [["", "calls: lab", "calls: perf", "us each: lab", "us each: perf", "ratio", "difference, us"]]
    for what in traced:
        rows.append([what, f"{middle[(what, 'lab calls')]:.0f}", f"{middle[(what, 'perf calls')]:.0f}", f"{middle[(what, 'lab')]:.1f}", f"{middle[(what, 'perf')]:.1f}",
                     ratio(of[(what, "lab")], of[(what, "perf")]), f"{statistics.median(a - b for a, b in zip(of[(what, 'lab')], of[(what, 'perf')])):.1f}"])
    lines += table(rows)
    lines += ["- Both columns are of one run: perf's are times between a call's begin and end in the kernel, the lab's from before to after it in the program. What perf does itself at a call's begin and end is in the lab's alone: the difference, about the same for a short call and a long one.",
              "- A file that is read is read twice more: before the clock, so that it is in memory, and afterwards, to hold its bytes against what the measured reads gave. perf counts those, too."]
    return lines


if __name__ == "__main__":
    main()
