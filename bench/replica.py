#!/usr/bin/python3
"""replica.py = 'make bench-replica': what a replica does with a table that has no key at all.

A primary and a replica; a table of ROWS rows without keys, in each engine, and the same with a primary key. While the replica
does not apply, the primary changes CHANGES of the rows by one UPDATE, later deletes as many by one DELETE; then the time is taken
until the replica has applied that, and the processor time of its server. Rows are found by a scan from the table's beginning for each changed row, where there is no key.
Writes bench/results/NAME.json and NAME.md.

    ROWS=100000  CHANGES=10000
    ENGINES=...      Esker, InnoDB
    NAME=            of the result files (default: 'replica' for a whole run, 'partial-replica' otherwise)
"""
import time

from frame import Results, head, run, usage
from eskerlib import env, replication, server, show

KNOWN = ["Esker", "InnoDB"]
ROWS, CHANGES = env.number("ROWS", 100_000), env.number("CHANGES", 10_000)
KEYS = {"no key": "", "primary key": ", PRIMARY KEY (id)"}
WORK = {"UPDATE": "UPDATE {table} SET n=n+1 WHERE id%{every}=0", "DELETE": "DELETE FROM {table} WHERE id%{every}=1"}


def pair():
    """Primary and replica, connected; not applying."""
    made = []
    for number, name in ((1, "bench-primary"), (2, "bench-replica")):
        s = server.Server(name, {**server.small_settings(), **replication.settings(number), "slave_parallel_threads": 0},
                          port=replication.free_port())
        s.create(fresh=True)
        made.append(s)
    return made


def timed(primary, replica, replica_server, sql):
    """Seconds on the primary, seconds until the replica has applied it, and processor seconds of its server."""
    replica.query("STOP SLAVE SQL_THREAD")
    begin = time.monotonic()
    primary.query(sql)
    took = time.monotonic() - begin
    at = replication.position(primary)
    replication.wait_for("the replica has received it", lambda: replica.row("SHOW SLAVE STATUS")["Gtid_IO_Pos"] == at)
    time.sleep(0.5)
    begin, processor = time.monotonic(), replica_server.cpu_s()
    replica.query("START SLAVE SQL_THREAD")
    replication.catch_up(replica, at, 3600)
    return took, time.monotonic() - begin, replica_server.cpu_s() - processor


def measure(primary, replica, replica_server, engine, key):
    """One table's seconds, by kind of work."""
    table = f"{engine.lower()}_{key.replace(' ', '_')}"
    primary.query(f"CREATE TABLE {table} (id INT NOT NULL, n INT, note VARCHAR(60){KEYS[key]}) ENGINE={engine}")
    primary.query(f"INSERT INTO {table} SELECT seq, 0, CONCAT('a row of a table ', MD5(seq)) FROM seq_1_to_{ROWS}")
    replication.catch_up(replica, replication.position(primary))
    found = {}
    for name, sql in WORK.items():
        found[name] = timed(primary, replica, replica_server, sql.format(table=table, every=ROWS // CHANGES))
        show.say(f"{engine}, {key}: {name} of {CHANGES:,} rows: primary {found[name][0]:.2f} s, "
                 f"replica {found[name][1]:.2f} s, {found[name][2]:.2f} s of a processor")
    different = replication.different(primary, replica, "bench", [table])
    if different:
        raise RuntimeError("; ".join(different))
    return found


def markdown(found):
    """The report's lines."""
    rows = []
    for what, by_work in found["seconds"].items():
        for name, (primary, replica, processor) in by_work.items():
            rows.append(f"| {what} | {name} | {primary:.2f} | {replica:.2f} | {processor:.2f} | {found['changes'] / replica:,.0f} |")
    return ["# What a replica does with a table that has no key", "",
            head(found, f"{found['changes']:,} of {found['rows']:,} rows changed by one statement"), "",
            "| table | statement | primary, s | replica, s | its processor, s | rows a second |", "|---|---|---:|---:|---:|---:|", *rows]


def main():
    usage(__doc__)
    engines, servers = env.names("ENGINES", KNOWN, KNOWN), pair()
    results = Results("replica", (ROWS, CHANGES) == (100_000, 10_000) and engines == KNOWN, markdown,
                      {"rows": ROWS, "changes": CHANGES, "seconds": {}})

    def body():
        for s in servers:
            s.start()
            c = s.connect()
            replication.prepare(c)
            c.close()
        primary, replica = (s.connect() for s in servers)
        primary.query("CREATE DATABASE bench")
        replication.follow(replica, servers[0].port)
        replication.start(replica)
        primary.query("USE bench")
        for key in reversed(KEYS):
            for engine in engines:
                results.found["seconds"][f"{engine}, {key}"] = measure(primary, replica, servers[1], engine, key)
                results.keep("seconds", results.found["seconds"])

    run(body, servers, results)


if __name__ == "__main__":
    main()
