#!/usr/bin/env python3
"""check_deps.py: who may use whom. Reads cargo's metadata and fails on an arrow that points the wrong way.

    esker-mariadb -> esker -> esker-wal -> (esker-io, esker-format),   esker-cli -> esker-lab -> esker
    esker-io -> esker-memory -> esker-base,                            esker-format, esker-trace -> nothing of ours
    esker -> esker-trace

Each crate may use what stands right of it and what that may use, never left. esker-sim may use everything below the doors and is itself for
tests only: others may have it as a dev-dependency at most. Also: only esker-io opens files, and the lab's probes, as
raw calls are what the lab measures; only esker-mariadb has a C boundary; only core.rs gives the engine's shared state
methods, what is done with it are functions of the rooms (a search of the sources, tests aside).
"""
import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ALLOWED = {"esker-base": set(), "esker-format": set(), "esker-trace": set(), "esker-memory": {"esker-base"}, "esker-io": {"esker-memory", "esker-base"}}
ALLOWED["esker-wal"] = {"esker-io", "esker-format"} | ALLOWED["esker-io"]
ALLOWED["esker"] = {"esker-wal", "esker-trace"} | ALLOWED["esker-wal"]
ALLOWED["esker-mariadb"] = ALLOWED["esker-lab"] = ALLOWED["esker-sim"] = {"esker"} | ALLOWED["esker"]
ALLOWED["esker-cli"] = {"esker-lab"} | ALLOWED["esker-lab"]
# what only one crate or module may do: (pattern, those that may, what it is)
ONLY = [
    (re.compile(r"\bstd::fs\b|\bstd::os::unix::fs\b|\bFile::(open|create)\b|\bOpenOptions\b|\blibc::(open|openat|pwrite|pread|fsync|fdatasync|unlink|rename|fallocate|ftruncate)\b"),
     {"esker-io", "esker-lab/src/probe"}, "calls the operating system for files"),
    (re.compile(r"\bimpl (crate::core::)?Core\b"), {"esker/src/core"}, "gives the shared state methods"),
    (re.compile(r'extern\s+"C"|#\[no_mangle\]|#\[unsafe\(no_mangle\)\]'), {"esker-mariadb"}, "has a C boundary"),
]


def arrows(metadata):
    """Problems in the graph of crates."""
    own = {p["name"]: p for p in metadata["packages"] if p["source"] is None and p["id"] in metadata["workspace_members"]}
    problems = []
    for name, package in sorted(own.items()):
        if name not in ALLOWED:
            problems.append(f"crate {name} is not in the rule; add it to scripts/check_deps.py and docs/ARCHITECTURE.md")
            continue
        for d in package["dependencies"]:
            target, dev = d["name"], d["kind"] == "dev"
            if target not in own or target in ALLOWED[name] or target == name:
                continue
            if target == "esker-sim" and dev:
                continue
            problems.append(f"{name} -> {target} ({d['kind'] or 'normal'}): {name} may use only {', '.join(sorted(ALLOWED[name])) or 'nothing of ours'}")
    return problems, len(own)


def sources():
    """Problems in the sources: operations that belong to one crate."""
    problems = []
    crates = os.path.join(ROOT, "crates")
    for crate in sorted(os.listdir(crates)):
        for folder, _, files in os.walk(os.path.join(crates, crate, "src")):
            for name in sorted(f for f in files if f.endswith(".rs")):
                path = os.path.join(folder, name)
                relative = os.path.relpath(path, ROOT)
                if re.search(r"(^|[/_])tests?(\.rs|/|$)", os.path.relpath(path, os.path.join(crates, crate))):
                    continue
                place = os.path.splitext(os.path.relpath(path, crates))[0] + "/"
                with open(path, encoding="utf-8") as f:
                    lines = f.read().splitlines()
                for n, line in enumerate(lines, 1):
                    if re.match(r"\s*#\[cfg\((all\()?test", line) and re.match(r"\s*(pub\S* )?mod \w+ \{", (lines + [""])[n]):
                        break  # the tests of a file stand at its end
                    code = re.sub(r"//.*", "", line)
                    for pattern, may, what in ONLY:
                        allowed = crate in ("esker-sim", "esker-cli") or any(place.startswith(m + "/") for m in may)
                        if not allowed and pattern.search(code) and "deps-ok:" not in line:
                            problems.append(f"{relative}:{n}: {what}; only {', '.join(sorted(may))} may: {line.strip()}")
    return problems


def main():
    run = subprocess.run(["cargo", "metadata", "--no-deps", "--format-version", "1", "--offline"], cwd=ROOT, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"check_deps: cargo metadata failed:\n{run.stderr}")
    problems, count = arrows(json.loads(run.stdout))
    problems += sources()
    for p in problems:
        print(f"check_deps: {p}")
    if problems:
        sys.exit(1)
    print(f"check_deps: {count} crates, every arrow points the right way")


if __name__ == "__main__":
    main()
