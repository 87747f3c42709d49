"""The build's environment (build/env.sh, written by setup.sh), folders, and parameters given as NAME=value."""
import os
import shlex
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VAR = os.path.join(ROOT, "var")
BUILD = os.path.join(ROOT, "build")
PLUGIN = os.environ.get("ESKER_PLUGIN", os.path.join(BUILD, "ha_esker.so"))


def fail(message):
    """A clear message and exit status 1."""
    print(f"{os.path.basename(sys.argv[0])}: {message}", file=sys.stderr)
    sys.exit(1)


def load():
    """build/env.sh as a dict."""
    path = os.path.join(BUILD, "env.sh")
    if not os.path.exists(path):
        fail("build/env.sh is missing; run 'make setup' first")
    found = {}
    with open(path) as f:
        for line in f:
            if not line.startswith("#") and "=" in line:
                name, value = line.rstrip("\n").split("=", 1)
                words = shlex.split(value)
                found[name] = words[0] if words else ""
    return found


def number(name, default, least=1):
    """A whole number from the environment; '2_000_000', '2,000,000', '200k' and '2M' are understood."""
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    digits, factor = text.replace("_", "").replace(",", ""), 1
    if digits[-1:] in "kKmM":
        factor = 1000 if digits[-1] in "kK" else 1000000
        digits = digits[:-1]
    if not digits.isdigit() or int(digits) * factor < least:
        fail(f"{name}={text} is not a whole number of at least {least} (examples: {default}, 200k, 2M)")
    return int(digits) * factor


def names(name, default, known):
    """A list of names from the environment, separated by commas or spaces, in any case."""
    text = os.environ.get(name, "").replace(",", " ").split()
    if not text:
        return list(default)
    by_lower = {k.lower(): k for k in known}
    for word in text:
        if word.lower() not in by_lower:
            fail(f"{name}: '{word}' is unknown; known are {', '.join(known)}")
    return [by_lower[w.lower()] for w in text]


def memory_bytes():
    """The machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
