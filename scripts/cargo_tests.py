#!/usr/bin/env python3
"""cargo_tests.py: Rust's tests of the whole workspace. cargo runs one test program after the other, and many of them wait
most of their time, for disks or for one long test: here as many run at a time as there are processors.

    scripts/cargo_tests.py          compiles what is to be compiled, runs all programs, then the examples in the documentation
    scripts/cargo_tests.py build    only compiles

Each program's output comes whole when it has ended. Exit code 1 when one of them failed.
"""
import concurrent.futures
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from eskerlib import cargo  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TESTS = ["cargo", "test", "--workspace", *cargo.PROFILE]


def programs():
    """(path, its package's folder) of each test program, compiled. Large ones come first: they are most of the work."""
    told = subprocess.run([*TESTS, "--no-run", "--message-format", "json-render-diagnostics"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if told.returncode:
        sys.exit(1)
    artifacts = [m for m in map(json.loads, told.stdout.splitlines()) if m["reason"] == "compiler-artifact"]
    found = {(m["executable"], os.path.dirname(m["manifest_path"])) for m in artifacts if m["executable"] and m["profile"]["test"]}
    return sorted(found, key=lambda f: -os.path.getsize(f[0]))


def run(program):
    """Whether a program's tests passed; its output is printed."""
    path, folder = program
    done = subprocess.run([path], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(os.environ, CARGO_MANIFEST_DIR=folder))
    failed = f"error: test failed: {path} ended with {done.returncode}\n" if done.returncode else ""
    sys.stdout.buffer.write(f"     Running {os.path.relpath(path, ROOT)}\n".encode() + done.stdout + failed.encode())
    sys.stdout.flush()
    return not done.returncode


def main():
    only_build = sys.argv[1:] == ["build"]
    if sys.argv[1:] and not only_build:
        print(__doc__.strip())
        sys.exit(0 if sys.argv[1] in ("-h", "--help") else 2)
    to_run = programs()
    print(f"{len(to_run)} test programs are compiled", flush=True)
    if only_build:
        return
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        passed = list(pool.map(run, to_run))
    examples = subprocess.run([*TESTS, "--doc", "--no-fail-fast"], cwd=ROOT).returncode
    sys.exit(1 if examples or not all(passed) else 0)


if __name__ == "__main__":
    main()
