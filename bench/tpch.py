#!/usr/bin/python3
"""tpch.py = 'make bench-tpch': TPC-H's 22 queries, Esker beside InnoDB and MyISAM.

One private server, a database for each engine with the keys of the specification, data by the crate tpchgen-cli (installed into
a cache folder when it is not there). Every round runs each query on each engine; a round before them is not counted: it warms
caches and compares the answers. The loaded databases stay in var/tpch for the next run with the same scale. Writes
bench/results/NAME.json and NAME.md.

    SCALE=1          1 is 6,000,000 lines of orders; 0.1 and the like are fine
    ROUNDS=3
    QUERIES=...      some of q1 to q22
    ENGINES=...      some of: Esker, InnoDB, MyISAM, Aria, RocksDB
    FRESH=1          load again
    NAME=            of the result files (default: 'tpch' for a whole run, 'partial-tpch' otherwise)
"""
import os
import shutil
import subprocess
import time

from frame import SHOWN, Results, head, median, peer_settings, ratio, run, targets, text, turned, usage
from eskerlib import env, server, show, tpch, workload

KNOWN = ["Esker", "InnoDB", "MyISAM", "Aria", "RocksDB"]
DEFAULT = KNOWN[:3]
GENERATOR = "4.0.0"


def scale_of():
    """SCALE as a number."""
    words = os.environ.get("SCALE", "").strip() or "1"
    try:
        scale = float(words)
    except ValueError:
        scale = 0.0
    if not 0.001 <= scale <= 1000:
        env.fail(f"SCALE={words} is not a number from 0.001 to 1000")
    return scale


# -- data -----------------------------------------------------------------------------------------------------------------
def generator():
    """The path of tpchgen-cli; installs it into the cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    root = os.path.join(cache, "esker", f"tpchgen-cli-{GENERATOR}")
    path = os.path.join(root, "bin", "tpchgen-cli")
    if not os.path.exists(path):
        show.say(f"installing tpchgen-cli {GENERATOR}, which takes some minutes")
        done = subprocess.run(["cargo", "install", "--locked", "--version", f"={GENERATOR}", "--root", root, "tpchgen-cli"], capture_output=True, text=True)
        if done.returncode:
            env.fail(f"cannot install tpchgen-cli:\n{done.stderr[-2000:]}")
    return path


def make_files(scale):
    """A folder with a file of each table."""
    program, folder = generator(), os.path.join(env.VAR, "tpch-files")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    done = subprocess.run([program, "tbl", "--scale-factor", f"{scale:g}", "--output-dir", folder], capture_output=True, text=True)
    missing = [t for t in tpch.TABLES if not os.path.exists(os.path.join(folder, f"{t}.tbl"))]
    if done.returncode or missing:
        raise RuntimeError(f"tpchgen-cli made no {', '.join(missing)}:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
    return folder


def database(name):
    return f"tpch_{name.lower()}"


def state():
    """What a database must say of itself to be used again."""
    return f"{GENERATOR} {sorted(tpch.TABLES.items())!r}"


def is_loaded(c, name, scale):
    """By a table that is written last."""
    if c.one(f"SELECT COUNT(*) FROM information_schema.tables WHERE table_schema='{database(name)}' AND table_name='loaded'") != "1":
        return False
    return c.query(f"SELECT scale, MD5(state) FROM {database(name)}.loaded").rows == [(f"{scale:g}", c.one(f"SELECT MD5({c.connection.escape(state())})"))]


def load(s, c, names, scale):
    """Seconds and bytes of each engine, whose databases are made anew: LOAD DATA of one table after the other."""
    show.say(f"making TPC-H's tables, scale {scale:g}")
    folder = make_files(scale)
    found = {name: {"load_s": 0.0, "size_bytes": 0} for name in names}
    for name in names:
        c.query(f"DROP DATABASE IF EXISTS {database(name)}")
        c.query(f"CREATE DATABASE {database(name)} CHARACTER SET latin1 COLLATE latin1_swedish_ci")
    for name in names:
        workload.wait_idle(s, quiet_s=0.5)
        before = workload.settled_bytes(c, s, name, database(name), "") if name == "Esker" else 0
        c.query(f"USE {database(name)}")
        for table, columns in tpch.TABLES.items():
            c.query(f"CREATE TABLE {table} ({columns}) ENGINE={name} CHARSET=latin1")
            begin = time.monotonic()
            c.query(f"LOAD DATA INFILE '{os.path.join(folder, table)}.tbl' INTO TABLE {table} CHARACTER SET latin1 FIELDS TERMINATED BY '|' LINES TERMINATED BY '|\\n'")
            found[name]["load_s"] += time.monotonic() - begin
            c.query(f"ANALYZE TABLE {table}")
        workload.wait_idle(s)
        if name == "Esker":
            found[name]["size_bytes"] = workload.settled_bytes(c, s, name, database(name), "") - before
        else:
            found[name]["size_bytes"] = sum(workload.engine_bytes(c, s, name, database(name), t) for t in tpch.TABLES)
        c.query(f"CREATE TABLE loaded (scale TEXT, state TEXT, load_s DOUBLE, size_bytes BIGINT) ENGINE={name}")
        c.query(f"INSERT INTO loaded VALUES ('{scale:g}', {c.connection.escape(state())}, {found[name]['load_s']}, {found[name]['size_bytes']})")
        show.say(f"  {name:8} loaded in {found[name]['load_s']:.1f} s, {found[name]['size_bytes'] / 1e6:,.0f} MB")
    shutil.rmtree(folder)


def fill(s, c, names, scale):
    """All databases are there; what their loading took, then or now."""
    fresh = env.number("FRESH", 0, least=0)
    missing = [name for name in names if fresh or not is_loaded(c, name, scale)]
    if missing:
        load(s, c, missing, scale)
    found = {}
    for name in names:
        row = c.row(f"SELECT load_s, size_bytes FROM {database(name)}.loaded")
        found[name] = {"load_s": float(row["load_s"]), "size_bytes": int(row["size_bytes"])}
    return found


# -- queries --------------------------------------------------------------------------------------------------------------
def plan(c, sql):
    """EXPLAIN's lines: table, access, key, rows, words; those of the optimizer's own subqueries too."""
    return [[str(v) for v in (row[2], row[3], row[5], row[8], row[9])] for row in c.query("EXPLAIN " + sql).rows]


def way(lines):
    """What makes two plans the same."""
    return [line[:3] for line in lines]


def once(c, name, sql):
    """Seconds, and the answer."""
    c.query(f"USE {database(name)}")
    begin = time.monotonic()
    rows = c.query(sql).rows
    return time.monotonic() - begin, sorted(map(str, rows))


def measure(c, names, chosen, rounds, keep):
    """All queries in all rounds."""
    found = {}
    for number in range(rounds + 1):
        show.say("warming up and comparing answers" if number == 0 else f"round {number} of {rounds}")
        for query, sql in chosen.items():
            answers = {}
            for name in turned(names, number):
                took, answers[name] = once(c, name, sql)
                cell = found.setdefault(query, {}).setdefault(name, {"samples": [], "cold_s": took})
                if number == 0:
                    cell["plan"] = plan(c, sql)
                else:
                    cell["samples"].append(took)
                show.progress(f"  {query:3} {name:8} {took:7.3f} s")
            if any(a != answers[names[0]] for a in answers.values()):
                raise RuntimeError(f"{query}: the engines' answers differ: " + "; ".join(f"{n}: {a[:3]}" for n, a in answers.items()))
            found[query]["rows"] = len(answers[names[0]])
        show.end_progress()
        if number:
            keep({q: {n: {**cell, **median(cell["samples"])} if n != "rows" else cell for n, cell in cells.items()} for q, cells in found.items()})


# -- report ---------------------------------------------------------------------------------------------------------------
def markdown(found):
    """The whole report."""
    names, cells = found["engines"], found.get("queries", {})
    lines = [f"# TPC-H, scale {found['scale']:g}: Esker beside the others", "", head(found, f"{found['rounds']} interleaved rounds after one to warm up, medians"),
             f"Data by tpchgen-cli {found['generator']}, keys of the specification, CHARSET=latin1, ANALYZE TABLE after LOAD DATA; the answers of all engines are the same. Not a TPC result.", ""]
    if "load" in found:
        lines += ["| | " + " | ".join(SHOWN.get(n, n) for n in names) + " |", "|---|" + "--:|" * len(names),
                  "| LOAD DATA, s | " + " | ".join(f"{found['load'][n]['load_s']:,.1f}" for n in names) + " |",
                  "| size, MB | " + " | ".join(f"{found['load'][n]['size_bytes'] / 1e6:,.0f}" for n in names) + " |", ""]
    if not cells:
        return lines
    peers = [n for n in names if n != "Esker"]
    own = "Esker" in names
    lines += ["| query | " + " | ".join(f"{SHOWN.get(n, n)} s" for n in names) + "".join(f" | of {SHOWN.get(n, n)}'s" for n in peers if own) + " | plan | met |",
              "|---|" + "--:|" * (len(names) + (len(peers) if own else 0)) + "---|---|"]
    sums, met = {n: 0.0 for n in names}, 0
    for query, by in cells.items():
        took = {n: by[n]["median"] for n in names}
        for n in names:
            sums[n] += took[n]
        of = {n: ratio(took.get("Esker"), took[n]) for n in peers}
        is_met = None if not of.get("InnoDB") else of["InnoDB"] <= 1
        met += bool(is_met)
        same = "-" if "InnoDB" not in by or not own else "InnoDB's" if way(by["Esker"]["plan"]) == way(by["InnoDB"]["plan"]) else "other"
        lines.append(f"| {query} | " + " | ".join(text(took[n], 3) for n in names) + "".join(f" | {text(of[n])}" for n in peers if own) +
                     f" | {same} | {'-' if is_met is None else 'yes' if is_met else '**no**'} |")
    lines.append("| sum | " + " | ".join(text(sums[n], 2) for n in names) + "".join(f" | {text(ratio(sums['Esker'], sums[n]))}" for n in peers if own) + " | | |")
    lines.append("")
    if own:
        whole = len(cells) == 22
        rows = [("sum, of InnoDB's time", "most", 1.0, ratio(sums["Esker"], sums.get("InnoDB"))),
                ("queries that take at most InnoDB's time", "least", 18, met if whole and "InnoDB" in names else None),
                ("sum, of MyISAM's time", "most", 1.0, ratio(sums["Esker"], sums.get("MyISAM")))]
        lines += targets(rows)
        if not whole:
            lines += ["", f"Only {len(cells)} of the 22 queries: {met} take at most InnoDB's time."]
    different = [q for q, by in cells.items() if own and "InnoDB" in by and way(by["Esker"]["plan"]) != way(by["InnoDB"]["plan"])]
    if different:
        lines += ["", "## Plans other than InnoDB's", ""]
        for query in different:
            lines += [f"- {query}: " + "; ".join(f"{n}: " + ", ".join(" ".join(w for w in line[:3] if w != "None") for line in cells[query][n]["plan"]) for n in ("Esker", "InnoDB"))]
    return lines


def main():
    usage(__doc__)
    scale, rounds = scale_of(), env.number("ROUNDS", 3)
    names, everything = env.names("ENGINES", DEFAULT, KNOWN), tpch.queries(scale)
    wanted = env.names("QUERIES", list(everything), list(everything))
    chosen = {q: sql for q, sql in everything.items() if q in wanted}
    settings = peer_settings()
    results = Results("tpch", scale == 1 and set(DEFAULT) <= set(names) and len(chosen) == 22, markdown,
                      {"scale": scale, "rounds": rounds, "engines": names, "generator": GENERATOR, "settings": settings})
    s = server.Server("tpch", settings, {"Esker", *names})

    def body():
        s.stop()
        s.start()
        c = s.connect()
        results.keep("load", fill(s, c, names, scale))
        measure(c, names, chosen, rounds, lambda v: results.keep("queries", v))
        c.close()
    run(body, [s], results)


if __name__ == "__main__":
    main()
