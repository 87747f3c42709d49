#!/usr/bin/env python3
"""test.py = 'make test': everything that must hold, from setup to power cuts; a clear summary at the end.

    scripts/test.py              all steps, 45 to 60 minutes on two cores from nothing
    scripts/test.py --soak       the long version: 10,000 seeds, 100 kills, 50 power cuts; writes build/soak.md
    scripts/test.py STEP...      only these steps (setup build clippy compile demo browser rules planted fmt exports mtr-esker mtr-engine mtr-suites differential keys isolation trace faults stopped interrupt kill ddl powercut tpcc replica scale-out cargo fuzz)

A step, or a part of one, that this machine cannot run says SKIPPED with the reason and is counted apart. With ESKER_CI=1
(.ci/run) it is a failure, unless the reason begins with 'this machine cannot'.

Logs are in build/test/STEP.log. The simulation is time-boxed by ESKER_SIM_SECONDS, or runs ESKER_SIM_SEEDS seeds.
KILLS=, CUTS=, SEED= are passed on. Rust's tests run optimized, but with assertions and overflow checks.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from eskerlib import cargo  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PYTEST = "/usr/bin/pytest-3"  # Debian's, as python3-pymysql is
NEEDED_GIB = 5  # the most that a run has in its folder at a time
LOGS = os.path.join(ROOT, "build", "test")
NEED_NO_BUILD = ("setup", "clippy", "compile", "rules", "planted", "fmt", "cargo", "fuzz")
BESIDE = ("clippy", "compile")  # compilers, as nice as can be: they take what the servers' tests leave, which wait half their time
AFTERWARDS = ("cargo", "fuzz")  # run what was compiled beside
RUNNING = set()  # processes of steps


def cargo_counts(text):
    """Passed and failed tests in cargo's output."""
    found = re.findall(r"test result: \w+\. (\d+) passed; (\d+) failed", text)
    return sum(int(a) for a, _ in found), sum(int(b) for _, b in found)


def mtr_counts(text):
    """Passed and failed tests in the driver's output."""
    return len(re.findall(r"\[ pass \]", text)), len(re.findall(r"\[ fail \]", text))


def pytest_counts(text):
    """Passed and failed cases in pytest's last line, behind which a thread that is left may still say something."""
    last = (re.findall(r"^=+ .* in \d[^\n]*=+$", text, re.M) or [""])[-1]
    count = {what: int(n) for n, what in re.findall(r"(\d+) (passed|failed|error|xfailed)", last)}
    return count.get("passed", 0) + count.get("xfailed", 0), count.get("failed", 0) + count.get("error", 0)


def fuzz_counts(text):
    """Targets that ran, and that failed."""
    return len(re.findall(r"^fuzz: \w+: ok", text, re.M)), len(re.findall(r"^fuzz: \w+: FAILED", text, re.M))


def telling(text):
    """The lines of a failed step's output that tell why: what cargo or pytest prints of each failed test, else the last ones."""
    of_pytest = re.search(r"^=+ (?:FAILURES|ERRORS) =+$.*", text, re.M | re.S)
    if of_pytest:
        lines = of_pytest.group().strip().splitlines()
        return [l for l in lines if l.startswith("E  ")][:60] + lines[:60]  # what failed first: CI keeps little
    failed = re.findall(r"^---- \S+ stdout ----\n.*?(?=^(?:---- |failures:))", text, re.M | re.S)
    failed += re.findall(r"^\S+ [^\n]*\[ fail \].*?(?=^\S+ [^\n]*\[ \w+ \]|^-{60})", text, re.M | re.S)
    lines = [line for part in failed for line in part.strip().splitlines()[:40]] or text.strip().splitlines()[-30:]
    return lines + re.findall(r"^test \S+ \.\.\. FAILED$|^error: test failed.*", text, re.M)


def ended_by_innodb(text):
    """Failed server tests in whose output InnoDB says that it has ended the server itself."""
    failed = re.findall(r"^(\S+) [^\n]*\[ fail \](.*?)(?=^\S+ [^\n]*\[ \w+ \]|^-{60})", text, re.M | re.S)
    return [name for name, output in failed if "InnoDB: Assertion failure in file ./storage/innobase/" in output]


def names(text):
    """The failed tests of a step's output, by cargo's, pytest's or mtr's name."""
    found = re.findall(r"^test (\S+) \.\.\. FAILED$|^(?:FAILED|ERROR) (\S+)|^(\S+) .*\[ fail \]", text, re.M)
    return list(dict.fromkeys(next(n for n in names if n) for names in found))


def left_out(text):
    """Reasons of what was skipped: scripts print 'SKIPPED: this machine cannot ...', or whatever else the reason is; pytest
    'SKIPPED [1] FILE:LINE: ...'."""
    return re.findall(r"\bSKIPPED(?: \[\d+\] [^:]*:\d+)?: (.*)", text) + re.findall(r"^(\S+) .*\[ skipped \]", text, re.M)


def engine_counts(text):
    """Of the comparison with the baseline."""
    m = re.search(r"(\d+) as InnoDB, \d+ listed differences, (\d+) regressions", text)
    return (int(m.group(1)), int(m.group(2))) if m else (0, 1)


def steps(soak):
    """(name, what, command, minutes, environment, counter) of every step. The minutes end what hangs: a machine that is three times
    slower than two cores of today, or busy, has time."""
    seeds = {"ESKER_SIM_SEEDS": "10000", "ESKER_RANDOM_SEEDS": "1000"} if soak else {"ESKER_SIM_SECONDS": os.environ.get("ESKER_SIM_SECONDS", "90")}
    kills = {"KILLS": "50"} if soak else {"KILLS": os.environ.get("KILLS", "3")}
    cuts = {"CUTS": "50"} if soak else {"CUTS": os.environ.get("CUTS", "1")}
    crashes = {"KILLS": "50", "CUTS": "50"} if soak else {"KILLS": os.environ.get("KILLS", "2"), "CUTS": os.environ.get("CUTS", "1")}
    alike = {"SEEDS": "200"} if soak else {"SEEDS": os.environ.get("SEEDS", "6"), "SEED": os.environ.get("SEED", "106")}
    keyed = {"SEEDS": "700"} if soak else {"SEEDS": os.environ.get("SEEDS", "12"), "SEED": os.environ.get("SEED", "1")}
    hot = {"COMMITS": "10000000"} if soak else {"COMMITS": os.environ.get("COMMITS", "30000")}
    many = {"PREPARED_ROWS": "10000000"} if soak else {}
    long = 24 * 60 if soak else 0
    return [
        ("setup", "packages, headers, toolchain", ["scripts/setup.sh"], 30, {"FOR_TESTS": "1"}, None),
        ("build", "the plugin and the command", ["make", "--no-print-directory", "build"], 45, {}, None),
        ("clippy", "clippy, warnings are errors", ["cargo", "clippy", "--workspace", "--all-targets", *cargo.PROFILE, "--", "-D", "warnings"], 60, {}, None),
        ("compile", "Rust's tests and the fuzz targets, compiled", ["sh", "-c", "scripts/cargo_tests.py build && scripts/fuzz.sh build"], long or 75, {}, None),
        ("demo", "'make run' with few rows", ["scripts/demo.py"], 15, {"ROWS": "50000", "KEEP": "0"}, None),
        ("browser", "the lab's pages in headless Chromium", [PYTEST, "tests/server/browser_test.py"], 30, {}, pytest_counts),
        ("rules", "who may use whom", ["scripts/check_deps.py"], 5, {}, None),
        ("planted", "every fault of 'make mutants' can still be planted", ["scripts/mutants.py"], 5, {"DRY": "1"}, None),
        ("fmt", "formatting", ["cargo", "fmt", "--all", "--check", "--", "--color", "never"], 5, {}, None),
        ("exports", "the plugin exports only what MariaDB asks for", ["scripts/check_exports.sh"], 5, {}, None),
        ("mtr-esker", "server tests of our own", ["scripts/mtr.sh", "esker"], 45, {}, mtr_counts),
        ("mtr-engine", "MariaDB's storage_engine suite against the InnoDB baseline", ["scripts/mtr.sh", "storage_engine"], 30, {}, engine_counts),
        ("mtr-suites", "some of MariaDB's general suites with Esker as the default engine, against InnoDB", ["scripts/mtr_suites.py", "engines/funcs", "engines/iuds", "handler"], 60, {}, engine_counts),
        ("differential", "random SQL on Esker and InnoDB, all answers alike", [PYTEST, "tests/server/differential_test.py"], long or 30, alike, pytest_counts),
        ("keys", "random SQL over keys on Esker and InnoDB, all answers alike; keys of every collation, and those that the server checks; plans", [PYTEST, *[f"tests/server/{t}_test.py" for t in ("keys", "checked_keys", "collations", "plans")]], long or 45, keyed, pytest_counts),
        ("isolation", "anomalies by name on Esker and InnoDB, without and with snapshot isolation; histories of appends, searched for them; no addition to hot rows is lost", [PYTEST, "tests/server/isolation_test.py", "tests/server/append_test.py", "tests/server/hot_rows_test.py"], long or 30, hot, pytest_counts),
        ("trace", "session traces on disks with slow reads, against what the disk says of them", [PYTEST, "tests/server/trace_test.py"], 20, {}, pytest_counts),
        ("faults", "full and read-only disks, runs cut short or missing, no file handles, two servers; what there is to see meanwhile", [PYTEST, *[f"tests/server/{t}_test.py" for t in ("faults", "disk_faults", "visible")]], 45, {}, pytest_counts),
        ("stopped", "a log that cannot become durable, while the binary log waits; prepared transactions of many rows over restarts", [PYTEST, "tests/server/stopped_log_test.py", "tests/server/prepared_test.py"], long or 20, many, pytest_counts),
        ("interrupt", "statements that are killed, out of time, or without their client: all or nothing, nobody left", [PYTEST, "tests/server/interrupt_test.py"], long or 30, {"MOMENTS": "20"} if soak else {}, pytest_counts),
        ("kill", "kill -9 under load, checked row by row; the check of indexes by itself", [PYTEST, "tests/server/indexes_test.py", "tests/server/kill_test.py"], long or 30, kills, pytest_counts),
        ("ddl", "kill -9 in the middle of DDL over keys and partitions", [PYTEST, "tests/server/ddl_test.py"], long or 30, {"KILLS": "100"} if soak else {"KILLS": "8"}, pytest_counts),
        ("powercut", "a disk without power, checked row by row", [PYTEST, "tests/server/powercut_test.py"], long or 30, cuts, pytest_counts),
        ("tpcc", "TPC-C through kill -9 and power cuts, its consistency conditions checked", [PYTEST, "tests/server/tpcc_test.py"], long or 30, crashes, pytest_counts),
        ("replica", "kill -9 of a primary, its replica, both, and a power cut of the primary: both have the same rows", [PYTEST, "tests/server/replica_test.py"], long or 30, {**cuts, "KILLS": "100"} if soak else {**cuts, **kills, "CLIENTS": os.environ.get("CLIENTS", "4")}, pytest_counts),
        ("scale-out", "three servers: a dump while clients write, switchover, failover; Spider over two shards, killed in the middle of commits", ["scripts/scale_out.py"], 30, {"SECONDS": "2"}, None),
        ("cargo", "unit, property, model, simulation tests", ["scripts/cargo_tests.py"], long or 75, seeds, cargo_counts),
        ("fuzz", "fuzz targets under libFuzzer, a short run", ["scripts/fuzz.sh"], long or 20, {"FUZZ_SECONDS": "600"} if soak else {}, fuzz_counts),
    ]


def run(name, command, minutes, environment):
    """(status, output) of a step; status is 'ok', 'failed', 'skipped' or 'out of time'."""
    path = os.path.join(LOGS, name + ".log")
    once = {"CARGO_INCREMENTAL": "0"} if os.environ.get("ESKER_CI") else {}  # what only a next build would read
    with open(path, "wb") as log:
        p = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=dict(os.environ, **once, **environment), start_new_session=True)
        RUNNING.add(p)
        try:
            code = p.wait(minutes * 60)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGTERM)
            try:
                p.wait(60)  # servers and disks are being put away
            except subprocess.TimeoutExpired:
                os.killpg(p.pid, signal.SIGKILL)
                p.wait()
            code = -1
        RUNNING.discard(p)
    with open(path, errors="replace") as f:
        text = f.read()
    return {0: "ok", 77: "skipped", -1: "out of time"}.get(code, "failed"), text


def put_away(name):
    """Removes what a step that went well leaves behind and no other step reads: gigabytes of servers' data and objects."""
    left = {"cargo": ["target/checked"], "fuzz": ["fuzz/target"], "mtr-esker": ["var/mtr/v"], "mtr-engine": ["var/mtr/v"], "mtr-suites": ["var/mtr-e/v", "var/mtr-i/v"]}
    for path in left.get(name, []) if os.environ.get("ESKER_CI") else []:
        shutil.rmtree(os.path.join(ROOT, path), ignore_errors=True)


def counted(status, text, counter):
    """(passed, failed, reasons of what was skipped) of a step."""
    out = left_out(text)
    if status == "skipped":
        good, bad = 0, 0 if out else 1
    elif counter:
        good, bad = counter(text)
        bad = bad or int(status != "ok" or not good)  # no test ran, or it fell over
    else:
        good, bad = (1, 0) if status == "ok" else (0, 1)
    if os.environ.get("ESKER_CI"):
        bad += sum(not reason.startswith("this machine cannot") for reason in out)
    return good, bad, out


class Tally:
    """What the steps have come to; those beside the others tell theirs from a thread of their own."""

    def __init__(self):
        self.passed, self.skipped, self.failed, self.lines, self.broken, self.last = 0, 0, 0, [], set(), []
        self.lock = threading.Lock()

    def step(self, name, what, command, minutes, environment, counter):
        """Runs one step, unless what it needs is broken, and tells how it went."""
        first = next((b for b in ("setup", "build") if b in self.broken and name != b and name not in NEED_NO_BUILD), None)
        if first:
            with self.lock:
                self.failed += 1
                self.tell(f"  FAILED   {name:12} not run: {first} failed")
            return
        print(f"  ...      {name:12} {what}", flush=True)
        start = time.monotonic()
        status, text = run(name, ["nice", "-n", "19", *command] if name in BESIDE else command, minutes, environment)
        again = ended_by_innodb(text) if name == "mtr-esker" and status == "failed" else []
        if again and set(again) == set(names(text)):
            # As when it cannot recover what another engine's crash test left: no fault of ours, and rare.
            print(f"           InnoDB has ended the server in {', '.join(again)}; once more", flush=True)
            status, more = run(name + "-again", [*command, *again], minutes, environment)
            text = re.sub(r"^(\S+ [^\n]*)\[ fail \]", r"\1[ InnoDB ]", text, flags=re.M) + more
        with self.lock:
            self.count(name, what, status, text, counter, time.monotonic() - start)

    def count(self, name, what, status, text, counter, took):
        good, bad, out = counted(status, text, counter)
        if bad and status in ("ok", "skipped"):
            status = "failed"
        elif out and status == "ok":
            status = "in part"
        self.passed, self.skipped, self.failed = self.passed + good, self.skipped + len(out), self.failed + bad
        note = f"{good} passed" + (f", {bad} failed" if bad else "") + "".join(f"; skipped: {reason}" for reason in out)
        self.tell(f"  {'ok      ' if status == 'ok' else status.upper().ljust(8)} {name:12} {what}: {note} ({took:.0f} s)")
        if status == "ok" and not bad:
            put_away(name)
        if status in ("failed", "out of time"):
            self.broken.add(name)
            print(f"           {shutil.disk_usage(ROOT).free / 2**30:.1f} GiB of disk are free")
            print("".join(f"           | {l}\n" for l in telling(text)) + f"           whole log: build/test/{name}.log", flush=True)
            self.last += [f"  {name}: {', '.join(names(text)) or status}", *(f"    | {l}" for l in telling(text)[:12])]

    def tell(self, line):
        self.lines.append(line)
        print(line, flush=True)


def run_all(chosen):
    """The tally of the chosen steps: those of BESIDE run while the others, which mostly wait, do."""
    tally = Tally()
    beside = threading.Thread(target=lambda: [tally.step(*s) for s in chosen if s[0] in BESIDE], daemon=True)
    try:
        for s in chosen:
            if s[0] not in ("setup", "build") and not beside.ident:
                beside.start()
            if s[0] in AFTERWARDS:
                beside.join()
            if s[0] not in BESIDE:
                tally.step(*s)
        if beside.ident:
            beside.join()
    except KeyboardInterrupt:
        for p in list(RUNNING):
            os.killpg(p.pid, signal.SIGTERM)
        raise
    if len(tally.lines) != len(chosen):
        tally.failed += 1
        tally.tell("  FAILED   a step ended without a word: see above")
    return tally


def main():
    args = sys.argv[1:]
    soak = "--soak" in args
    only = [a for a in args if a != "--soak"]
    every = steps(soak)
    known = [s[0] for s in every]
    if any(a not in known for a in only):
        print(__doc__.strip())
        sys.exit(0 if only[0] in ("-h", "--help") else 2)
    os.makedirs(LOGS, exist_ok=True)
    begin = time.monotonic()
    free = shutil.disk_usage(ROOT).free / 2**30
    if free < NEEDED_GIB and not only:
        print(f"  {free:.1f} GiB are free below {ROOT}; all steps need about {NEEDED_GIB}: a step that ends with 'No space left on device' is no fault of Esker's", flush=True)
    tally = run_all([s for s in every if not only or s[0] in only])
    minutes = (time.monotonic() - begin) / 60
    summary = "\n".join(tally.lines)
    if not only:
        print("\nSummary\n" + summary)
    if soak:
        with open(os.path.join(ROOT, "build", "soak.md"), "w") as f:
            f.write(f"`make soak`, {time.strftime('%Y-%m-%d')}, {minutes:.0f} minutes: 10,000 seeds, 100 kills and 50 power cuts, and as many of TPC-C\n\n```\n{summary}\n\n{tally.passed} passed, {tally.skipped} skipped, {tally.failed} failed\n```\n")
        print("\nwritten: build/soak.md")
    if shutil.which("make") and os.path.exists(os.path.join(ROOT, "build", "env.sh")) and not only:
        subprocess.run(["scripts/server.py", "stop", "demo-test"], cwd=ROOT, capture_output=True)  # the other tests stop their own
    if tally.last and not only:  # once more, where a record that keeps only the end has them
        print("\nFailed\n" + "\n".join(tally.last))
    print(f"\n{minutes:.1f} minutes\n{tally.passed} passed, {tally.skipped} skipped, {tally.failed} failed")
    sys.exit(1 if tally.failed else 0)


if __name__ == "__main__":
    main()
