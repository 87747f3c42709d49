#!/usr/bin/env python3
"""lab.py = 'make bench-lab': esker lab beside fio and pg_test_fsync, where they measure the same thing.

The programs take turns, forwards and backwards, on files of the same size in one folder; a figure is the median of the
rounds, a ratio that of medians. Writes bench/results/lab.json and lab.md.

    ROUNDS=7  MIB=512 (of the files)  DIR=var/bench-lab  SYNCS=1000 (of a round)
    FIO= PG_TEST_FSYNC=  the programs (Debian's packages fio and postgresql-15 by default; installed by root if missing)
"""
import datetime
import glob
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ESKER = os.path.join(ROOT, "target", "release", "esker")
ROUNDS = int(os.environ.get("ROUNDS", "7"))
MIB = int(os.environ.get("MIB", "512"))
SYNCS = int(os.environ.get("SYNCS", "1000"))
DIR = os.path.abspath(os.environ.get("DIR", os.path.join(ROOT, "var", "bench-lab")))
BLOCK, DEPTH = 128 << 10, 4
# what, the lab's row (do, way), fio's options; all with the same block, depth and file size
STREAMS = [
    ("write, page cache", ("write", "cached"), ["--rw=write", "--ioengine=psync", "--direct=0"]),
    ("write, direct", ("write", "direct"), ["--rw=write", "--ioengine=io_uring", f"--iodepth={DEPTH}", "--direct=1"]),
    ("read, warm", ("read warm", "cached"), ["--rw=read", "--ioengine=psync", "--direct=0", "--invalidate=0"]),
    ("read, cold", ("read cold", "cached"), ["--rw=read", "--ioengine=psync", "--direct=0", "--invalidate=1"]),
    ("read, direct", ("read cold", "direct"), ["--rw=read", "--ioengine=io_uring", f"--iodepth={DEPTH}", "--direct=1"]),
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


def lab(*arguments):
    """Rows of a report."""
    p = subprocess.run([ESKER, "lab", *arguments, "--json", "--runs", "1", "--dir", DIR], capture_output=True, text=True, check=False)
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
               "--fallocate=none", "--output-format=json", *options]
    p = subprocess.run(command, capture_output=True, text=True, check=False)
    if p.returncode:
        sys.exit(f"bench-lab: {' '.join(command)}: {p.stderr or p.stdout}")
    return json.loads(p.stdout[p.stdout.index("{"):])["jobs"][0]


def fio_streams(binary, samples):
    """One round of fio's streams: MiB/s."""
    path = os.path.join(DIR, "fio")
    for what, _, options in STREAMS:
        if "--rw=write" in options:
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


def main():
    if not os.path.exists(ESKER):
        sys.exit("bench-lab: target/release/esker is missing; run 'make build'")
    fio_path = program("FIO", "fio", "fio", "/usr/bin/fio")
    pg_path = program("PG_TEST_FSYNC", "pg_test_fsync", "postgresql-15", "/usr/lib/postgresql/*/bin/pg_test_fsync")
    os.makedirs(DIR, exist_ok=True)
    samples, blocks = {}, MIB * (1 << 20) // BLOCK
    turns = [
        lambda: lab_streams(samples, BLOCK, blocks),
        lambda: fio_streams(fio_path, samples),
        lambda: lab_streams(samples, 103, MIB * (1 << 20) // 103, " 103"),
        lambda: lab_syncs(samples),
        lambda: pg_syncs(pg_path, samples),
        lambda: fio_syncs(fio_path, samples),
    ]
    for n in range(ROUNDS):
        for step in turns if n % 2 == 0 else reversed(turns):
            step()
        print(f"round {n + 1} of {ROUNDS}", file=sys.stderr)
    shutil.rmtree(DIR)
    write(samples)


def table(lines):
    """Markdown."""
    head, rest = lines[0], lines[1:]
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head)] + ["| " + " | ".join(line) + " |" for line in rest])


def write(samples):
    """The report."""
    middle = {k: statistics.median(v) for k, v in samples.items()}
    streams = [["stream", "esker lab MiB/s", "fio MiB/s", "ratio (at least 0.95)", "lab with 103-byte records", "ratio"]]
    for what, _, _ in STREAMS:
        ours, theirs, small = (middle[(what, who)] for who in ("lab", "fio", "lab 103"))
        streams.append([what, f"{ours:.0f}", f"{theirs:.0f}", f"{ours / theirs:.2f}", f"{small:.0f}", f"{small / theirs:.2f}"])
    syncs = [["8 KiB written and synced", "esker lab a second", "the other", "a second", "ratio (0.95 to 1.05)"]]
    for (key, who), theirs in sorted((k, v) for k, v in middle.items() if k[1] in ("pg_test_fsync", "fio") and isinstance(k[0], tuple)):
        ours = middle[(key, "lab")]
        syncs.append([f"{key[0]}, {key[1]}", f"{ours:.0f}", who, f"{theirs:.0f}", f"{ours / theirs:.3f}"])
    text = f"""# esker lab beside fio and pg_test_fsync

`make bench-lab`, {datetime.date.today()}, {ROUNDS} rounds, files of {MIB} MiB, blocks of {BLOCK >> 10} KiB, depth {DEPTH} past the page cache;
Linux {platform.release()}, {os.cpu_count()} processors. Medians; the programs take turns.

{table(streams)}

The lab's streams are of records as large as a block, which is what fio writes and reads; beside them, the same with
records of 103 bytes, each of which is copied.

{table(syncs)}
"""
    results = os.path.join(ROOT, "bench", "results")
    with open(os.path.join(results, "lab.md"), "w") as f:
        f.write(text)
    with open(os.path.join(results, "lab.json"), "w") as f:
        flat = [{"what": k[0], "who": k[1], "median": middle[k], "samples": v} for k, v in samples.items()]
        json.dump({"rounds": ROUNDS, "mib": MIB, "samples": flat}, f, indent=1)
    print(text)


if __name__ == "__main__":
    main()
