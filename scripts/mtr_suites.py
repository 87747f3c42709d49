#!/usr/bin/env python3
"""mtr_suites.py: MariaDB's general test suites with Esker as the default storage engine, against InnoDB on the same server.

    mtr_suites.py [SUITE[.TEST|:K/N]...]     all suites of SUITES, or these; of a suite the Kth of N shares, its first test and
                                             every Nth after it (main:1/4: main is large)
    mtr_suites.py --write-baseline SUITE...  runs these with InnoDB and keeps how they ended

A suite runs twice, in copies of MariaDB's tests under var/: first with InnoDB as default engine, whose answers become the
expected ones where they are not the shipped ones; then with Esker in InnoDB's place, in options, tests and results. What
answers otherwise, in more than plans and the order of rows, is a regression, unless it ends where Esker refuses something by
name, or mariadb/mysql-test/suites/differences.txt lists it with its reason. Status 1 if there is any. Of suites in which InnoDB of
this version gives the shipped answers wherever it gives any, mariadb/mysql-test/suites/innodb-VERSION.txt has how their tests ended:
InnoDB runs them again only where Esker answers otherwise.
"""
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from eskerlib import env  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LISTED = os.path.join(ROOT, "mariadb", "mysql-test", "suites", "differences.txt")
SUITES = ("engines/funcs", "engines/iuds", "handler", "parts", "versioning", "vcol", "gcol", "period", "sql_sequence", "binlog", "rpl", "main")
# Their rows are what the binlog gets of Esker in any format but STATEMENT: so must InnoDB's be, to be compared.
LOGGED = ("binlog", "rpl")
LARGE = (*LOGGED, "main")
LINE = re.compile(r"^([\w/]+)\.(\w[\w.-]*?)(?: '([^']*)')?\s+(?:w\d+ )?\[ (pass|fail|skipped|disabled) \]", re.M)
# How a test ends that asks for what Esker says that it cannot do: by its own words, the server's for what an engine lacks, or
# statements in the binlog.
REFUSED = re.compile(r"At line \d+: query '(?:(?!The result from queries).)*' (?:failed|succeeded)[^\n]* (?:ER_NOT_SUPPORTED_YET \(1235\): '?Esker[ :]|ER_ALTER_OPERATION_NOT_SUPPORTED"
                     r"|ER_TABLE_CANT_HANDLE_(?:FT|SPKEYS) \(|ER_BINLOG_STMT_MODE_AND_ROW_ENGINE \()", re.S)
# What tells of plans: EXPLAIN, in each of its forms, the optimizer's trace, what the counters of reads say; and OPTIMIZE, of the engine.
PLANS = re.compile(rb"^(?:\d+|NULL)\t(?:SIMPLE|PRIMARY|(?:UNION|EXCEPT|INTERSECT|UNIT)(?: RESULT)?|SUBQUERY|DERIVED|MATERIALIZED|(?:DEPENDENT|UNCACHEABLE|RECURSIVE) \w+|LATERAL DERIVED|UPDATE|DELETE|INSERT)\t.*\n"
                   rb"|^(?:.*\t)?\{\n(?:.*\n)*?\}.*\n|^(?:.*\t)?\[\n(?:.*\n)*?\].*\n|^Note\t1003\t.*\n"
                   rb"|^(?:select_type|partitions|type|possible_keys|key|key_len|ref|rows|r_rows|filtered|r_filtered|Extra)\t.*\n(?!\d+\t)"
                   rb"|^(?:H(?:andler|ANDLER)_\w+|Last_query_cost|Rows_\w+|Created_tmp\w+|Sort_\w+|Select_\w+)\t.*\n"
                   rb"|^.*\toptimize\tnote\tTable does not support optimize.*\n", re.M)
# That a FOREIGN KEY clause is not kept is said in a warning; a test may have all else as it was.
FOREIGN = re.compile(rb"^(?:Warning\t1478\tEsker: FOREIGN KEY .*|Warnings:)\n", re.M)
BASELINE = os.path.join(ROOT, "mariadb", "mysql-test", "suites", "innodb-%s.txt")
COPIES = {"InnoDB": os.path.join(ROOT, "var", "mtr-i"), "Esker": os.path.join(ROOT, "var", "mtr-e")}
ESKER = ["--plugin-load-add=ha_esker.so", "--plugin-maturity=unknown", "--esker-wal-segment-size=4M"]
# Of a test, what names the engine; its options that Esker has, too; tables that the server names after it. Other variables, tables and include files stay InnoDB's.
NAMES = ((re.compile(rb"(?<![-\w./$@])innodb(?![-\w.])(?! STATUS)", re.I), b"Esker"),
         (re.compile(rb"innodb([-_])(lock[-_]wait[-_]timeout|snapshot[-_]isolation)\b"), rb"esker\1\2"),
         (re.compile(rb"(?<=gtid_slave_pos_)InnoDB\b"), b"Esker"), (re.compile(rb"(?<=gtid_slave_pos_)innodb\b"), b"esker"))
# A test of a large suite that has none of these, in the files that it sources neither, has no table of the default engine; it is left out.
TABLES = re.compile(rb"\b(?:create|alter)\s+(?:or\s+replace\s+)?(?:temporary\s+)?(?:table|sequence|(?:unique\s+)?index)\b|MYSQL_CLIENT_TEST|\bengine\b", re.I)
STATEMENTS = re.compile(rb"have_binlog_format_statement")
SOURCED = re.compile(rb"^\s*(?:--\s*)?source\s+([\w./-]+)", re.M)


def folder(engine, suite):
    """Where a suite lies in the copy for an engine."""
    tests = os.path.join(COPIES[engine], "share", "mysql", "mysql-test")
    return os.path.join(tests, "main") if suite == "main" else os.path.join(tests, "suite", suite)


def files(top, *ends):
    """All files below a folder with one of these ends."""
    return [os.path.join(at, name) for at, _, names in os.walk(top) for name in names if name.endswith(ends)]


def has(what, path, tests, known):
    """Does a file of a test, or what it sources, have what is looked for? `tests` is where MariaDB's tests lie."""
    if path not in known:
        known[path] = False  # until it is known: of files that source each other
        with open(path, "rb") as f:
            text = f.read()
        sourced = [os.path.join(at, name.decode()) for name in SOURCED.findall(text) for at in (tests, os.path.dirname(path))]
        known[path] = bool(what.search(text)) or any(has(what, p, tests, known) for p in sourced if os.path.isfile(p))
    return known[path]


def worth_running(suite):
    """What of a large suite is worth its time: tests with tables that are not disabled, nor want statements in the binlog."""
    top = folder("InnoDB", suite)
    disabled = set()
    for path in files(top, "disabled.def"):
        with open(path) as f:
            disabled |= {line.split(":")[0].strip() for line in f if not line.startswith("#")}
    found = {os.path.basename(path)[:-len(".test")]: path for path in files(top, ".test") if os.path.basename(os.path.dirname(path)) != "include"}
    tests, tables, statements = os.path.join(COPIES["InnoDB"], "share", "mysql", "mysql-test"), {}, {}
    return [name for name, path in sorted(found.items())
            if name not in disabled and has(TABLES, path, tests, tables) and not has(STATEMENTS, path, tests, statements)]


def change(path, how):
    """A file's bytes by a function of them."""
    with open(path, "rb") as f:
        old = f.read()
    new = how(old)
    if new != old:
        with open(path, "wb") as f:
            f.write(new)


def only_one(text):
    """Of combinations by engine, those of InnoDB that are not versioned by transactions; by the binlog's format, rows."""
    parts = re.split(rb"^(?=\[)", text, flags=re.M)
    if b"[stmt]" in text and b"[row]" in text:
        return b"".join(p for p in parts if p.startswith(b"[row]"))
    if b"default-storage-engine" not in text:
        return text
    return b"".join(p for p in parts if re.search(rb"default-storage-engine=innodb", p, re.I) and not p.startswith(b"[trx_id]"))


def copy_tests(engine, asked):
    """A fresh copy of the tests, of all suites and of those that are asked for: they read each other's files."""
    tests = os.path.join(COPIES[engine], "share", "mysql", "mysql-test")
    shutil.rmtree(tests, ignore_errors=True)
    if os.path.exists(os.path.join(COPIES[engine], "version")):
        os.remove(os.path.join(COPIES[engine], "version"))
    subprocess.run(["scripts/mtr.sh", "lay-out"], cwd=ROOT, check=True, env=dict(os.environ, MTR_TREE=COPIES[engine], SUITES=" ".join({*SUITES, *asked} - {"main"})))
    # Every server says so that loads a plugin younger than itself (the driver dies of too many such lines), or has a format and no binlog.
    change(os.path.join(tests, "lib", "My", "Suite.pm"),
           lambda text: text.replace(b"package My::Suite;\n", b"package My::Suite;\npush @::global_suppressions, qr/Plugin 'E(sker|SKER_[A-Z_]+)' is of maturity level|use --log-bin to make --binlog-format work/;\n"))


def lay_out(engine, suite):
    """Cuts the engines of a suite, in a copy where it has not run, down to this one."""
    tests = os.path.join(COPIES[engine], "share", "mysql", "mysql-test")
    for path in files(folder(engine, suite), "combinations") + (files(os.path.join(tests, "include"), "combinations") if suite in LOGGED else []):
        change(path, only_one)
    if suite in LOGGED:
        change(os.path.join(tests, "include", "default_mysqld.cnf"), lambda text: text.replace(b"[mysqld]\n", b"[mysqld]\nbinlog-format=row\n", 1))
    for path in files(folder(engine, suite), ".opt"):
        change(path, lambda text: re.sub(rb"(?i)--default-storage-engine=myisam\b", b"", text))


def lay_out_once(engine, suite, suites, laid):
    """The same, in a copy that fits: what a suite changes is its own, but for those of the binlog. `laid`: {engine: suite laid out last}."""
    last = laid.get(engine)
    if last == suite:
        return
    if last is None or last in LOGGED or suite in LOGGED:
        copy_tests(engine, suites)
    lay_out(engine, suite)
    laid[engine] = suite


def renamed(text):
    """A text that has Esker's name in InnoDB's place."""
    for old, new in NAMES:
        text = old.sub(new, text)
    return text


def expect(suite):
    """Gives Esker's copy the answers of InnoDB, and its own name."""
    mine, theirs = folder("Esker", suite), folder("InnoDB", suite)
    for path in files(theirs, ".reject"):
        where = os.path.join(mine, os.path.relpath(path, theirs))
        shutil.copy(path, where[:-len(".reject")] + ".result")
        if os.path.exists(where[:-len(".reject")] + ".rdiff"):
            os.remove(where[:-len(".reject")] + ".rdiff")

    common = files(os.path.join(COPIES["Esker"], "share", "mysql", "mysql-test", "include"), ".test", ".inc") if suite in LOGGED else []
    common = [path for path in common if re.match("rpl_|binlog_", os.path.basename(path))]
    for path in files(mine, ".test", ".inc", ".result", ".rdiff", ".opt", ".cnf", "combinations") + common:
        if not os.path.basename(path).startswith("have_innodb"):
            change(path, renamed if not path.endswith((".opt", ".cnf", "combinations")) else
                   lambda text: NAMES[1][0].sub(NAMES[1][1], re.sub(rb"(?i)(default-storage-engine=)innodb", rb"\1Esker", text)))


def run(engine, suite, tests):
    """{(test, combination): (outcome, note)} of a suite, all or some of its tests."""
    options = [f"--default-storage-engine={engine}"] + (ESKER if engine == "Esker" else [])
    command = ["scripts/mtr.sh", "run", f"--suite={suite}", *(f"--mysqld={o}" for o in options), "--mysqld=--innodb"]
    command += ["--suite-timeout=600"] if suite in LARGE else []
    log = os.path.join(COPIES[engine], suite.replace("/", "-") + ".log")
    found, left = {}, list(tests)
    for _ in range(3):
        # Those of engines/funcs that begin so are the tests of rpl once more, by its files, which is a suite of its own here.
        with open(log, "wb") as f:
            subprocess.run(command + (left or ["--skip-test=^rpl_"]), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT, env=dict(os.environ, MTR_TREE=COPIES[engine]))
        with open(log, errors="replace") as f:
            text = f.read()
        at = list(LINE.finditer(text))
        for m, after in zip(at, at[1:] + [None]):
            key = (m.group(2), m.group(3) or "")
            if found.get(key, ("",))[0] != "fail":
                found[key] = (m.group(4), text[m.end():after.start() if after else len(text)])
        if at and "Completed:" in text:
            return found
        # The driver dies now and then in the middle of many tests: those that it has not come to are given to another one.
        left = [name for name in left if name not in {name for name, _ in found}]
        if not left:
            break
    sys.exit(f"mtr_suites: the test driver died; the end of {os.path.relpath(log, ROOT)}:\n" + "\n".join(text.splitlines()[-15:]))


def only_plans(suite, test):
    """Does a test differ in nothing but plans and the order of rows?"""
    rejects = [p for p in files(folder("Esker", suite), ".reject") if os.path.basename(p)[:-len(".reject")].split(",")[0] == test]
    for path in rejects:
        answers, wanted = [], path[:-len(".reject")] + ".result"
        if os.path.exists(wanted + "~"):
            wanted += "~"  # the driver's, of a result and what a combination has otherwise
        for name in (path, wanted):
            if not os.path.exists(name):
                return False
            with open(name, "rb") as f:
                answers.append(sorted(renamed(FOREIGN.sub(b"", PLANS.sub(b"", f.read()))).splitlines()))
        if answers[0] != answers[1]:
            return False
    return bool(rejects)


def reasons():
    """{'suite.test': why} of the list."""
    with open(LISTED) as f:
        lines = [line.strip() for line in f]
    return dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))


def baseline():
    """{suite: {(test, combination): (outcome, "")}} of this server's version, as it was kept."""
    path, found = BASELINE % env.load()["ESKER_MARIADB_VERSION"], {}
    if os.path.exists(path):
        with open(path) as f:
            for suite, name, combination, outcome in (line.rstrip("\n").split("\t") for line in f if not line.startswith("#")):
                found.setdefault(suite, {})[(name, combination)] = (outcome, "")
    return found


def write_baseline(suites):
    """Runs suites with InnoDB and keeps how they ended, beside those that are kept already."""
    kept = baseline()
    copy_tests("InnoDB", suites)
    for suite in suites:
        lay_out("InnoDB", suite)
        kept[suite] = run("InnoDB", suite, [])
        if files(folder("InnoDB", suite), ".reject"):
            sys.exit(f"mtr_suites: InnoDB does not give the shipped answers in {suite}: there is nothing to keep")
    with open(BASELINE % env.load()["ESKER_MARIADB_VERSION"], "w") as f:
        f.write("# How InnoDB ended each test of these suites, with the shipped answers: suite, test, combination, outcome. scripts/mtr_suites.py --write-baseline\n")
        f.writelines("\t".join((suite, *key, outcome)) + "\n" for suite in sorted(kept) for key, (outcome, _) in sorted(kept[suite].items()))


def unsteady(suite, bad):
    """Of tests whose answers were otherwise, those that InnoDB itself answers otherwise now: no measure."""
    theirs = folder("InnoDB", suite)
    for path in files(theirs, ".reject"):
        os.replace(path, path[:-len(".reject")] + ".result")
        if os.path.exists(path[:-len(".reject")] + ".rdiff"):
            os.remove(path[:-len(".reject")] + ".rdiff")
    again = run("InnoDB", suite, sorted({name for name, _ in bad}))
    return {key for key in bad if again.get(key, ("missing",))[0] != "pass"}


def main():
    if sys.argv[1:2] == ["--write-baseline"] and sys.argv[2:]:
        return write_baseline(sys.argv[2:])
    asked = sys.argv[1:] or list(SUITES)
    if any(a.startswith("-") for a in asked):
        sys.exit(__doc__.strip())
    listed, worse, table, known, laid = reasons(), [], [], baseline(), {}
    suites = list(dict.fromkeys(re.split("[.:]", a)[0] for a in asked))
    for suite in suites:
        tests = [a.split(".", 1)[1] for a in asked if a.startswith(suite + ".")]
        lay_out_once("Esker", suite, suites, laid)
        share = re.search(rf"(?:^| ){suite}:(\d+)/(\d+)", " ".join(asked))
        if not tests and (share or suite in LARGE):
            first, step = map(int, share.groups()) if share else (1, 1)
            lay_out_once("InnoDB", suite, suites, laid)
            tests = worth_running(suite)[first - 1::step]
        innodb = {key: how for key, how in known.get(suite, {}).items() if not tests or key[0] in tests}
        if innodb and "InnoDB" not in laid:
            shutil.rmtree(folder("InnoDB", suite), ignore_errors=True)  # an older run's answers
        if not innodb:
            lay_out_once("InnoDB", suite, suites, laid)
            innodb = run("InnoDB", suite, tests)
        expect(suite)
        esker = run("Esker", suite, tests)
        # What has no answer to compare with: skipped, or it failed in another way than by its answers.
        rejects = {os.path.basename(p)[:-len(".reject")].split(",")[0] for p in files(folder("InnoDB", suite), ".reject")}
        can = {k for k, (outcome, _) in innodb.items() if outcome == "pass" or (outcome == "fail" and k[0] in rejects)}
        good = {k for k in can if esker.get(k, ("missing",))[0] == "pass"}
        plans = {k for k in can - good if only_plans(suite, k[0])}
        refused = {k for k in can - good - plans if REFUSED.search(esker.get(k, ("", ""))[1])}
        other = {k for k in can - good - plans - refused if f"{suite}.{k[0]}" in listed}
        bad = can - good - plans - refused - other
        if bad:
            lay_out_once("InnoDB", suite, suites, laid)
            shaky = unsteady(suite, bad)
            bad, can = sorted(bad - shaky), can - shaky
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
