#!/usr/bin/env python3
"""mtr_suites.py: MariaDB's general test suites with Esker as the default storage engine, against InnoDB on the same server.

    mtr_suites.py [SUITE[.TEST]...]     all suites of SUITES, or these

A suite runs twice, in copies of MariaDB's tests under var/: first with InnoDB as default engine, whose answers become the
expected ones where they are not the shipped ones; then with Esker in InnoDB's place, in options, tests and results. What
answers otherwise, in more than plans and the order of rows, is a regression, unless it ends where Esker refuses something by
name, or mariadb/mysql-test/suites/differences.txt lists it with its reason. Status 1 if there is any.
"""
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LISTED = os.path.join(ROOT, "mariadb", "mysql-test", "suites", "differences.txt")
SUITES = ("engines/funcs", "engines/iuds", "handler", "parts", "versioning", "vcol", "gcol", "period", "sql_sequence")
LINE = re.compile(r"^([\w/]+)\.(\w[\w.-]*?)(?: '([^']*)')?\s+(?:w\d+ )?\[ (pass|fail|skipped|disabled) \]", re.M)
# How a test ends that asks for what Esker says that it cannot do.
REFUSED = re.compile(r"At line \d+: query '(?:(?!The result from queries).)*' failed[^\n]* (?:ER_NOT_SUPPORTED_YET \(1235\): '?Esker: |ER_ALTER_OPERATION_NOT_SUPPORTED)", re.S)
# What EXPLAIN says of plans, and an engine of OPTIMIZE.
PLANS = re.compile(rb"^(?:\d+|NULL)\t(?:SIMPLE|PRIMARY|UNION|UNION RESULT|SUBQUERY|DERIVED|MATERIALIZED|DEPENDENT \w+|UNCACHEABLE \w+|LATERAL DERIVED|UPDATE|DELETE|INSERT)\t.*\n"
                   rb"|^.*\toptimize\tnote\tTable does not support optimize, doing recreate \+ analyze instead\n", re.M)
COPIES = {"InnoDB": os.path.join(ROOT, "var", "mtr-i"), "Esker": os.path.join(ROOT, "var", "mtr-e")}
ESKER = ["--plugin-load-add=ha_esker.so", "--plugin-maturity=unknown", "--esker-wal-segment-size=4M"]
# Of a test, what names the engine; its options that Esker has, too. Other variables, tables and include files stay InnoDB's.
NAMES = ((re.compile(rb"(?<![-\w./$@])innodb(?![-\w.])(?! STATUS)", re.I), b"Esker"),
         (re.compile(rb"innodb([-_])(lock[-_]wait[-_]timeout|snapshot[-_]isolation)\b"), rb"esker\1\2"))


def folder(engine, suite):
    """Where a suite lies in the copy for an engine."""
    tests = os.path.join(COPIES[engine], "share", "mysql", "mysql-test")
    return os.path.join(tests, "main") if suite == "main" else os.path.join(tests, "suite", suite)


def files(top, *ends):
    """All files below a folder with one of these ends."""
    return [os.path.join(at, name) for at, _, names in os.walk(top) for name in names if name.endswith(ends)]


def change(path, how):
    """A file's bytes by a function of them."""
    with open(path, "rb") as f:
        old = f.read()
    new = how(old)
    if new != old:
        with open(path, "wb") as f:
            f.write(new)


def only_one_engine(text):
    """Of combinations by engine, those of InnoDB that are not versioned by transactions."""
    parts = re.split(rb"^(?=\[)", text, flags=re.M)
    if b"default-storage-engine" not in text:
        return text
    return b"".join(p for p in parts if re.search(rb"default-storage-engine=innodb", p, re.I) and not p.startswith(b"[trx_id]"))


def lay_out(engine, suite):
    """A fresh copy of the tests and of a suite, its engines cut down to this one."""
    tests = os.path.join(COPIES[engine], "share", "mysql", "mysql-test")
    shutil.rmtree(tests, ignore_errors=True)
    if os.path.exists(os.path.join(COPIES[engine], "version")):
        os.remove(os.path.join(COPIES[engine], "version"))
    subprocess.run(["scripts/mtr.sh", "lay-out"], cwd=ROOT, check=True, env=dict(os.environ, MTR_TREE=COPIES[engine], SUITES=" ".join({suite, *SUITES} - {"main"})))
    for path in files(folder(engine, suite), "combinations"):
        change(path, only_one_engine)
    # Every server says so that loads a plugin younger than itself; the driver dies of too many such lines.
    change(os.path.join(tests, "lib", "My", "Suite.pm"),
           lambda text: text.replace(b"package My::Suite;\n", b"package My::Suite;\npush @::global_suppressions, qr/Plugin 'E(sker|SKER_[A-Z_]+)' is of maturity level/;\n"))


def expect(suite, found):
    """Gives Esker's copy the answers of InnoDB, and its own name."""
    mine, theirs = folder("Esker", suite), folder("InnoDB", suite)
    for path in files(theirs, ".reject"):
        where = os.path.join(mine, os.path.relpath(path, theirs))
        shutil.copy(path, where[:-len(".reject")] + ".result")
        if os.path.exists(where[:-len(".reject")] + ".rdiff"):
            os.remove(where[:-len(".reject")] + ".rdiff")

    def renamed(text):
        for old, new in NAMES:
            text = old.sub(new, text)
        return text

    for path in files(mine, ".test", ".inc", ".result", ".rdiff", ".opt", ".cnf", "combinations"):
        if not os.path.basename(path).startswith("have_innodb"):
            change(path, renamed if not path.endswith((".opt", ".cnf", "combinations")) else
                   lambda text: NAMES[1][0].sub(NAMES[1][1], re.sub(rb"(?i)(default-storage-engine=)innodb", rb"\1Esker", text)))


def run(engine, suite, tests):
    """{(test, combination): (outcome, note)} of a suite, all or some of its tests."""
    options = [f"--default-storage-engine={engine}"] + (ESKER if engine == "Esker" else [])
    command = ["scripts/mtr.sh", "run", f"--suite={suite}", *(f"--mysqld={o}" for o in options), "--mysqld=--innodb", *(tests or ["--skip-test=^rpl_"])]
    log = os.path.join(COPIES[engine], suite.replace("/", "-") + ".log")
    with open(log, "wb") as f:
        subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT, env=dict(os.environ, MTR_TREE=COPIES[engine]))
    with open(log, errors="replace") as f:
        text = f.read()
    found, at = {}, list(LINE.finditer(text))
    for m, after in zip(at, at[1:] + [None]):
        key = (m.group(2), m.group(3) or "")
        if found.get(key, ("",))[0] != "fail":
            found[key] = (m.group(4), text[m.end():after.start() if after else len(text)])
    if not found or "Completed:" not in text:
        sys.exit(f"mtr_suites: the test driver died; the end of {os.path.relpath(log, ROOT)}:\n" + "\n".join(text.splitlines()[-15:]))
    return found


def only_plans(suite, test):
    """Does a test differ in nothing but plans and the order of rows?"""
    rejects = [p for p in files(folder("Esker", suite), ".reject") if os.path.basename(p)[:-len(".reject")].split(",")[0] == test]
    for path in rejects:
        answers = []
        for name in (path, path[:-len(".reject")] + ".result"):
            if not os.path.exists(name):
                return False
            with open(name, "rb") as f:
                answers.append(sorted(PLANS.sub(b"", f.read()).splitlines()))
        if answers[0] != answers[1]:
            return False
    return bool(rejects)


def reasons():
    """{'suite.test': why} of the list."""
    with open(LISTED) as f:
        lines = [line.strip() for line in f]
    return dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))


def main():
    asked = sys.argv[1:] or list(SUITES)
    if any(a.startswith("-") for a in asked):
        sys.exit(__doc__.strip())
    listed, worse, table = reasons(), [], []
    for suite in dict.fromkeys(a.split(".")[0] for a in asked):
        tests = [a.split(".", 1)[1] for a in asked if a.startswith(suite + ".")]
        for engine in COPIES:
            lay_out(engine, suite)
        innodb = run("InnoDB", suite, tests)
        expect(suite, innodb)
        esker = run("Esker", suite, tests)
        # What has no answer to compare with: skipped, or it failed in another way than by its answers.
        rejects = {os.path.basename(p)[:-len(".reject")].split(",")[0] for p in files(folder("InnoDB", suite), ".reject")}
        can = {k for k, (outcome, _) in innodb.items() if outcome == "pass" or (outcome == "fail" and k[0] in rejects)}
        good = {k for k in can if esker.get(k, ("missing",))[0] == "pass"}
        plans = {k for k in can - good if only_plans(suite, k[0])}
        refused = {k for k in can - good - plans if REFUSED.search(esker.get(k, ("", ""))[1])}
        other = {k for k in can - good - plans - refused if f"{suite}.{k[0]}" in listed}
        bad = sorted(can - good - plans - refused - other)
        worse += [f"{suite}.{name}{' ' + combination if combination else ''}: {esker.get((name, combination), ('missing',))[0]}" for name, combination in bad]
        table.append((suite, *map(len, (good, plans, refused, other, bad, innodb.keys() - can))))
    print(f"{'suite':16}" + "".join(f"{title:>16}" for title in ("as InnoDB", "other plans", "refused", "listed", "regressions", "not comparable")))
    for row in table:
        print(f"{row[0]:16}" + "".join(f"{n:>16}" for n in row[1:]))
    for line in worse:
        print(f"  WORSE     {line}")
    good, plans, refused, other, bad = (sum(row[i] for row in table) for i in range(1, 6))
    print(f"general suites with Esker as default: {good + plans} as InnoDB, {refused + other} listed differences, {bad} regressions")
    sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
