#!/usr/bin/env python3
"""mtr_compare.py: the outcome of MariaDB's storage_engine suite against the InnoDB baseline.

    mtr_compare.py LOG VARDIR                            compare a run for Esker; status 1 if anything got worse
    mtr_compare.py --write-baseline LOG VARDIR VERSION   write the baseline from a run with InnoDB

The shipped results are stale on current servers (InnoDB itself differs in half of them), so the baseline keeps, for
each test, what InnoDB did on this server version: 'pass' (shipped result), 'recorded' (differs; InnoDB's own output
lies in baseline/results/ and is what Esker is compared with), 'skip' or 'fail' (nothing to compare).
Differences that remain, each with its reason, are in mariadb/mysql-test/storage_engine/differences.txt.
"""
import os
import re
import shutil
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TESTS = os.path.join(ROOT, "mariadb", "mysql-test")
SUITE = os.path.join(ROOT, "var", "mtr", "share", "mysql", "mysql-test", "suite", "storage_engine")
LINE = re.compile(r"^storage_engine(?:/(\w+))?-esker\.(\w+)(?: '[^']*')?\s+(?:w\d+ )?\[ (pass|fail|skipped|disabled) \]\s*(.*)$")


def outcomes(log):
    """{test: (outcome, note)}; a test that failed once counts as failed."""
    found = {}
    with open(log, errors="replace") as f:
        for line in f:
            m = LINE.match(line)
            if m:
                name = (m.group(1) + "/" if m.group(1) else "") + m.group(2)
                if found.get(name, ("",))[0] != "fail":
                    found[name] = (m.group(3), m.group(4).strip())
    if not found:
        sys.exit(f"mtr_compare: no test ran; see {os.path.relpath(log, ROOT)}:\n" + "".join(open(log, errors="replace").readlines()[-15:]))
    return found


def write_baseline(log, version):
    """From a run with InnoDB."""
    folder = os.path.join(TESTS, "baseline")
    shutil.rmtree(os.path.join(folder, "results"), ignore_errors=True)
    lines, count = [], {}
    for name, (outcome, note) in sorted(outcomes(log).items()):
        what = {"pass": "pass", "skipped": "skip", "disabled": "skip"}.get(outcome, "fail")
        reject = os.path.join(SUITE, name + ".reject")
        if what == "fail" and os.path.exists(reject) and ROOT.encode() not in open(reject, "rb").read():
            what = "recorded"
            target = os.path.join(folder, "results", name + ".result")
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(reject, target)
        count[what] = count.get(what, 0) + 1
        lines.append(f"{name} {what}" + (f" # {note}" if what == "skip" and note else ""))
    with open(os.path.join(folder, f"innodb-{version}.txt"), "w") as f:
        f.write(f"# storage_engine suite, InnoDB, MariaDB {version}; written by 'scripts/mtr.sh baseline'\n")
        f.write("\n".join(lines) + "\n")
    print("baseline:", ", ".join(f"{n} {k}" for k, n in sorted(count.items())))


def read_list(path, separator):
    """Lines 'name<separator>text' without comments, as a dict."""
    found = {}
    if os.path.exists(path):
        with open(path) as f:
            for line in f:
                line = line.split("#")[0].strip() if separator == " " else line.strip()
                if line and not line.startswith("#"):
                    name, _, text = line.partition(separator)
                    found[name.strip()] = text.strip()
    return found


def compare(log):
    """Of a run for Esker."""
    folder = os.path.join(TESTS, "baseline")
    files = sorted(f for f in os.listdir(folder) if f.startswith("innodb-"))
    if not files:
        sys.exit("mtr_compare: there is no baseline; run 'scripts/mtr.sh baseline'")
    baseline = read_list(os.path.join(folder, files[-1]), " ")
    known = read_list(os.path.join(TESTS, "storage_engine", "differences.txt"), ":")
    worse, listed, better, same = [], [], [], 0
    found = outcomes(log)
    finished = any(line.startswith("Completed:") for line in open(log, errors="replace"))
    for name, was in sorted(baseline.items()):
        outcome, note = found.get(name, ("missing", "did not run"))
        good = outcome == "pass" or (outcome in ("skipped", "disabled") and was == "skip")
        if good or was == "fail":
            same += 1
            if outcome == "pass" and name in known:
                better.append(name)
        elif name in known:
            listed.append((name, outcome))
        else:
            worse.append((name, outcome, note))
    print(f"  listed    {' '.join(name for name, _ in listed)} (reasons: storage_engine/differences.txt)")
    for name in better:
        print(f"  note      {name} passed this time (listed in differences.txt)")
    for name, outcome, note in worse:
        print(f"  WORSE     {name}: {outcome} {note}")
    print(f"storage_engine suite against {files[-1]}: {same} as InnoDB, {len(listed)} listed differences, {len(worse)} regressions")
    if not finished:
        print(f"the test driver died before its end; the last of {os.path.relpath(log, ROOT)}:\n" + "".join(open(log, errors="replace").readlines()[-15:]))
    if worse:
        print(f"see {os.path.relpath(log, ROOT)}")
    return 0 if finished and not worse else 1


def main():
    args = sys.argv[1:]
    if args[:1] == ["--write-baseline"] and len(args) == 4:
        write_baseline(args[1], args[3])
    elif len(args) == 2:
        sys.exit(compare(args[0]))
    else:
        sys.exit(__doc__.strip())


if __name__ == "__main__":
    main()
