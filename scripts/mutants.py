#!/usr/bin/env python3
"""mutants.py: the test of the tests. Plants the faults of scripts/mutants/*.toml, one at a time, in a copy of the tree, and
runs the suites that 'make test' runs for Rust: a fault that no suite notices has survived.

    scripts/mutants.py                 all of them (hours)
    ONLY=wal-durable-early,io          those whose name, or whose file in scripts/mutants/, is in the list
    MINUTES=10                         of each suite; one that is not done by then is HUNG, which is not killed: a test must
                                       fail by itself
    ESKER_SIM_SECONDS=90               as in 'make test'
    JOBS=2                             as many faults at a time, each in a copy of its own
    DRY=1                              only look whether every fault can still be planted

Owns build/mutants/: the copies, their target folders, a log for each fault, and table.md for docs/TESTING.md. An entry names
a crate, a text that stands in its sources exactly once, and what takes its place; where that text is not found, the entry
is an error, since the fault must be planted anew at the same rule.
"""
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from eskerlib import cargo, env, show  # noqa: E402

HERE = os.path.join(env.ROOT, "scripts", "mutants")
FOLDER = os.path.join(env.BUILD, "mutants")
# A fault can be seen by its crate's own suite and by those behind it, which use it. The last two stand alone.
SUITES = ["esker-base", "esker-format", "esker-io", "esker-wal", "esker", "esker-mariadb", "esker-sim", "esker-trace", "esker-lab"]


class Mutant:
    """One entry: name, number in the first list (0: added since), crate, fault (words), search, replace, equivalent (words: why
    nothing can notice it)."""

    def __init__(self, entry, group):
        self.name, self.number, self.crate, self.fault = entry["name"], entry.get("number", 0), entry["crate"], entry["fault"]
        self.changes = [(c["search"], c["replace"]) for c in entry.get("change", [entry])]
        self.equivalent, self.group = entry.get("equivalent", ""), group
        self.places, self.why_not = [], ""

    def find(self, root):
        """Looks for the places to change; false, with the reason, where one is not there exactly once."""
        sources = glob.glob(os.path.join(root, "crates", self.crate, "src", "**", "*.rs"), recursive=True)
        texts = {path: open(path, encoding="utf-8").read() for path in sources}
        self.places = []
        for search, replace in self.changes:
            found = [path for path, text in texts.items() for _ in range(text.count(search))]
            if len(found) != 1:
                self.why_not = f"its text is {len(found)} times in {self.crate}: {search.strip().splitlines()[0].strip()[:70]}"
                return False
            self.places.append((os.path.relpath(found[0], root), search, replace))
        return True

    def where(self):
        return ", ".join(sorted({path.removeprefix("crates/").replace("/src/", "/") for path, _, _ in self.places})) or self.crate


def entries():
    """Every entry of the list."""
    found = []
    for path in sorted(glob.glob(os.path.join(HERE, "*.toml"))):
        with open(path, "rb") as f:
            found += [Mutant(e, os.path.splitext(os.path.basename(path))[0]) for e in tomllib.load(f)["mutant"]]
    names = [m.name for m in found]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        env.fail(f"two faults have the same name: {twice}")
    return found


class Copy:
    """A copy of the tree, with a target folder of its own."""

    def __init__(self, number):
        suffix = f"-{number}" if number else ""
        self.tree, self.target = os.path.join(FOLDER, "tree" + suffix), os.path.join(FOLDER, "target" + suffix)

    def renew(self):
        """The sources as they are now, also what is not committed, without anything that was built."""
        files = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=env.ROOT, capture_output=True, check=True)
        wanted = {name for name in files.stdout.decode().split("\0") if name and os.path.isfile(os.path.join(env.ROOT, name))}
        for folder, _, names in os.walk(self.tree, topdown=False):
            for name in names:
                path = os.path.join(folder, name)
                if os.path.relpath(path, self.tree) not in wanted:
                    os.unlink(path)
            if not os.listdir(folder):
                os.rmdir(folder)  # that of a crate which is gone would be taken for a member
        os.makedirs(self.tree, exist_ok=True)
        for name in wanted:
            source, target = os.path.join(env.ROOT, name), os.path.join(self.tree, name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if not os.path.exists(target) or open(source, "rb").read() != open(target, "rb").read():
                shutil.copyfile(source, target)

    def run(self, command, seconds, log):
        """(exit status, or None if it was not done by then; seconds) of a command in the copy; all that it began is ended."""
        environment = dict(os.environ, CARGO_TARGET_DIR=self.target, CARGO_TERM_COLOR="never")
        environment.setdefault("ESKER_SIM_SECONDS", "90")
        begin = time.monotonic()
        p = subprocess.Popen(command, cwd=self.tree, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True)
        try:
            code = p.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            try:
                os.killpg(p.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            p.wait()
        return code, time.monotonic() - begin

    def judge(self, name, crate, seconds):
        """(outcome, words) of the copy as it stands now, with a fault in that crate: 'killed', 'survived', 'HUNG' or 'ERROR'."""
        path = os.path.join(FOLDER, name + ".log")
        with open(path, "w+", encoding="utf-8", errors="replace") as log:
            for suite in SUITES[SUITES.index(crate):]:
                if self.run(["cargo", "test", "--no-run", "-p", suite, *cargo.PROFILE], 3600, log)[0] != 0:
                    return "ERROR", f"{suite} does not compile"
                start = log.seek(0, os.SEEK_END)
                code, took = self.run(["cargo", "test", "-p", suite, *cargo.PROFILE], seconds, log)
                log.seek(start)
                text = log.read()
                running = re.findall(r"Running (?:unittests )?(\S+)", text)[-1:]
                if code is None:
                    return "HUNG", f"{suite}, {running[0] if running else '?'}: not done after {took:.0f} s"
                if code:
                    failed = re.findall(r"^    (\S+)$", text.rsplit("failures:", 1)[-1], re.M) or running
                    return "killed", f"{suite}: {', '.join(failed[:2])}" + (f" and {len(failed) - 2} more" if len(failed) > 2 else "")
        return "survived", ""

    def judge_planted(self, mutant, seconds):
        """As `judge`, with a fault planted meanwhile."""
        before = {path: open(os.path.join(self.tree, path), encoding="utf-8").read() for path, _, _ in mutant.places}
        after = dict(before)
        for path, search, replace in mutant.places:
            after[path] = after[path].replace(search, replace)
        self.write(after)
        try:
            outcome, words = self.judge(mutant.name, mutant.crate, seconds)
        finally:
            self.write(before)
        if outcome == "survived" and mutant.equivalent:
            return "equivalent", mutant.equivalent
        if outcome == "killed" and mutant.equivalent:
            return outcome, words + " (was thought equivalent)"
        return outcome, words

    def write(self, texts):
        for path, text in texts.items():
            with open(os.path.join(self.tree, path), "w", encoding="utf-8") as f:
                f.write(text)


def judge_all(mutants, copies, seconds):
    """[(mutant, outcome, words)] in the order of the list, each copy taking the next one when it is free."""
    outcomes, rest, lock = {}, list(mutants), threading.Lock()

    def work(copy):
        while True:
            with lock:
                if not rest:
                    return
                m = rest.pop(0)
            outcome, words = copy.judge_planted(m, seconds)
            with lock:
                outcomes[m.name] = (outcome, words)
                show.say(f"{outcome:10} {m.name}: {m.fault}" + (f" ({words})" if words else ""))

    threads = [threading.Thread(target=work, args=(copy,)) for copy in copies]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return [(m, *outcomes[m.name]) for m in mutants]


def table(done):
    """For docs/TESTING.md."""
    lines = ["| fault | where | outcome |", "|---|---|---|"]
    for m, outcome, words in done:
        lines.append(f"| {m.fault} | `{m.where()}` | {outcome}{': ' + words if words else ''} |")
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) > 1:
        print(__doc__.strip())
        sys.exit(0 if sys.argv[1] in ("-h", "--help") else 2)
    every = entries()
    only = os.environ.get("ONLY", "").replace(",", " ").split()
    unknown = [word for word in only if word not in {m.name for m in every} | {m.group for m in every}]
    if unknown:
        env.fail(f"ONLY: there is no fault or file of that name: {unknown}")
    chosen = [m for m in every if not only or m.name in only or m.group in only]
    strange = [m.name for m in every if m.crate not in SUITES]
    if strange:
        env.fail(f"no suite is run for the crate of {strange}")
    lost = [m for m in chosen if not m.find(env.ROOT)]
    for m in lost:
        print(f"ERROR {m.name}: {m.why_not}", flush=True)
    if os.environ.get("DRY"):
        print(f"mutants: {len(chosen) - len(lost)} of {len(chosen)} can be planted")
        sys.exit(1 if lost else 0)
    copies = [Copy(n) for n in range(env.number("JOBS", 1))]
    for copy in copies:
        copy.renew()
    seconds = env.number("MINUTES", 10) * 60
    outcome, words = copies[0].judge("none", SUITES[0], seconds)
    if outcome != "survived":
        env.fail(f"without any fault the suites do not pass ({outcome} {words}): see build/mutants/none.log")
    show.say("the suites pass without a fault")
    done = [(m, "ERROR", m.why_not) for m in lost] + judge_all([m for m in chosen if m not in lost], copies, seconds)
    with open(os.path.join(FOLDER, "table.md"), "w", encoding="utf-8") as f:
        f.write(table(done))
    counts = {o: sum(d[1] == o for d in done) for o in ("killed", "survived", "HUNG", "equivalent", "ERROR")}
    print("mutants: " + ", ".join(f"{n} {o}" for o, n in counts.items()) + "; table in build/mutants/table.md")
    sys.exit(1 if counts["survived"] or counts["HUNG"] or counts["ERROR"] else 0)


if __name__ == "__main__":
    main()
