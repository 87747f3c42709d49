"""What the benchmarks of single matters share: their results' files, and a run that ends in order."""
import datetime
import json
import os
import statistics
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
sys.path.insert(0, os.path.join(ROOT, "bench"))
from eskerlib import env, server  # noqa: E402
from eskerlib.client import Lost, SqlError  # noqa: E402
from run import machine  # noqa: E402

SHOWN = {"RocksDB": "MyRocks"}


class Results:
    """bench/results/NAME.json and NAME.md, written anew whenever something is added."""

    def __init__(self, name, whole, markdown, facts):
        """whole: this run has the default's size, so it may be called `name`. markdown: of the dict, the report's lines."""
        self.path = os.path.join(ROOT, "bench", "results", os.environ.get("NAME") or (name if whole else f"partial-{name}"))
        self.markdown = markdown
        self.found = {**facts, "date": datetime.date.today().isoformat(), "machine": machine(), "mariadb": env.load()["ESKER_MARIADB_VERSION"]}

    def keep(self, key, value):
        """Add it, and write both files."""
        self.found[key] = value
        with open(self.path + ".json", "w") as f:
            json.dump(self.found, f, indent=1)
            f.write("\n")
        with open(self.path + ".md", "w") as f:
            f.write("\n".join(self.markdown(self.found) + [f"\nNote: {note}" for note in self.found.get("notes", [])]) + "\n")

    def show(self):
        """The report, to the terminal."""
        print()
        print(open(self.path + ".md").read())
        print(f"written: {os.path.relpath(self.path, ROOT)}.json, .md")


def usage(doc):
    """Parameters come from the environment: arguments ask for help."""
    if len(sys.argv) > 1:
        print(doc.strip())
        sys.exit(0 if sys.argv[1] in ("-h", "--help") else 2)


def run(body, servers, results):
    """Run it; whatever happens the servers are stopped."""
    try:
        body()
    except (RuntimeError, SqlError, Lost) as e:
        env.fail(f"{e}\n" + "\n".join(s.log_tail() for s in servers if s.pid()))
    finally:
        for s in servers:
            s.stop()
    results.show()


def peer_settings():
    """As bench-keys has them: durable commits for all alike, binlog off."""
    return {**server.measured_settings(), "max_connections": 300, "innodb_flush_log_at_trx_commit": 1}


def median(samples):
    """With what it is the median of."""
    return {"median": statistics.median(samples), "samples": samples}


def head(found, rounds):
    """The report's line on where and when."""
    m = found["machine"]
    return f"MariaDB {found['mariadb']}, {m['cores']} cores ({m['cpu']}), {m['memory_gib']} GiB, Linux {m['kernel']}; {rounds}; {found['date']}."


def turned(names, number):
    """The order of the engines in a round."""
    return names[number % len(names):] + names[:number % len(names)]


def ratio(a, b):
    """Or None."""
    return a / b if a is not None and b else None


def text(value, digits=2):
    """Or a dash."""
    return "-" if value is None else f"{value:,.{digits}f}"


def targets(rows):
    """Lines of a table; rows: (what, 'most' or 'least', limit, measured or None)."""
    lines = ["## Targets", "", "| what | target | measured | met |", "|---|---:|---:|---|"]
    for what, kind, limit, value in rows:
        met = None if value is None else value <= limit if kind == "most" else value >= limit
        digits = 0 if isinstance(limit, int) else 2
        lines.append(f"| {what} | {'≤' if kind == 'most' else '≥'} {limit:,.{digits}f} | {text(value, digits)} | {'-' if met is None else 'yes' if met else '**no**'} |")
    return lines
