"""What kill_test.py and powercut_test.py share: the server's settings, the moment of the crash, what the load must have
reached before it, and the check of what must be there afterwards. The load is load.py's."""
import time

import binlog
import claims
import indexes
import load
from cases import CLIENTS, ENGINE
from eskerlib import server
from load import ACCOUNTS, GROUP_ROWS, GROUPS, START, Model, payload, tables

# Without these the test has not seen what production sees. Names of status variables, summed over all lives of the server.
REACH = ("flushes", "merges", "checkpoints", "runs_attached", "wal_segments_recycled", "deadlocks",
         "key_flushes", "key_merges", "key_runs_attached", "versions_settled")
# With the binlog: decisions that another session had carried out before the one that made them, too.
REACH_BINLOG = ("prepares", "decisions_by_others")
LONGEST_S = 300  # of the last life, while something is not reached
SEEK_S = 20  # from then on clients seek deadlocks: two that meet are the rarer, the longer the rest of their work takes


def settings(with_binlog, canary):
    """Everything small, so that seconds of load reach what hours do elsewhere."""
    kib, mib = 1 << 10, 1 << 20
    found = dict(server.small_settings(), esker_bulk_threshold=8 * kib, esker_bulk_buffer_size=256 * kib, esker_wal_segment_size=mib,
                 esker_memory_limit=32 * mib, esker_recovery_target_seconds=1, esker_recovery_target_bytes=mib)
    if with_binlog:
        found.update(log_bin="binlog", binlog_format="ROW", sync_binlog=1, server_id=1, binlog_checksum="CRC32",
                     master_verify_checksum=True)  # or recovery believes an event with a hole in it, and what follows
    if canary:
        found.update(innodb_flush_log_at_trx_commit=0, esker_flush_log_at_trx_commit=0)
    return found


def status(connection):
    """Esker's counters by short name."""
    rows = connection.query("SHOW GLOBAL STATUS LIKE 'Esker\\_%'").rows
    return {name[len("Esker_"):].lower(): int(value) for name, value in rows if value.isdigit()}


class Reach:
    """Sums of counters, those in REACH if nothing else is said, read before each crash."""

    def __init__(self, engine, names=REACH):
        self.sums = dict.fromkeys(names, 0) if engine == "Esker" else {}

    def missing(self, now):
        """What is still nought, with what this life of the server has counted."""
        return [name for name, total in self.sums.items() if total + now.get(name, 0) == 0]

    def add(self, now):
        """The last reading of this life."""
        for name in self.sums:
            self.sums[name] += now.get(name, 0)

    def problems(self):
        """What was never reached."""
        return [f"{name} stayed 0: the test did not reach what it is for" for name in self.missing({})]

    def __str__(self):
        return ", ".join(f"{total} {name}" for name, total in self.sums.items())


class Mixed:
    """The load of load.py, as powercut_test.py takes one; tpcc_test.py has another."""

    def create(self, connection):
        """The tables, as they are before any client has written."""
        load.create(connection, ENGINE, CLIENTS)

    def writers(self, s, seed, with_binlog):
        """Clients that have not begun."""
        return load.writers(CLIENTS, s, seed, with_binlog)

    def check(self, connection, writers, moments):
        """Problems, and how many rows were looked at."""
        return check(connection, writers, moments)

    def replay(self, s):
        """What the binlog says."""
        return binlog.Replay(s, "crash", load.tables(CLIENTS))


def alive(writers):
    """Is it worth going on?"""
    return not any(w.problem for w in writers) and any(w.is_alive() for w in writers)


def have_done_all(writers):
    """Was anybody refused, and is there one of each kind that has to be?"""
    return any(w.refused for w in writers) and all(any(w.done[kind] for w in writers) for kind in writers[0].wanted)


def until_the_moment(connection, writers, reach, moments, least_s, most_s, last):
    """Lets them write up to the moment of the crash, and says what it was: some time, or just after something in the
    background was done. The last life goes on until everything was reached, and the writers have done all that they must."""
    what = moments.choice(["time", "time", "flushes", "merges", "merges", "checkpoints", "runs_attached"])
    pause_s, begin = moments.choice([0.0, moments.uniform(0, 0.02)]), time.monotonic()
    least_s = moments.uniform(least_s, most_s)
    most_s = least_s + (0 if what == "time" or not reach.sums else 2)
    before, now, seek = None, {}, last
    while alive(writers):
        now = status(connection) if reach.sums else {}
        age = time.monotonic() - begin
        if seek and age > SEEK_S and "deadlocks" in reach.missing(now):
            seek = False
            for w in writers:
                w.seek_deadlocks()
        if last and age < LONGEST_S and (reach.missing(now) or not have_done_all(writers)):
            before = None
        elif age >= least_s:
            before = now.get(what) if before is None else before
            if age >= most_s or now.get(what) != before:
                break
        time.sleep(0.002 if before is not None else 0.02)
    time.sleep(pause_s if what != "time" else 0)
    reach.add(now)
    return f"{time.monotonic() - begin:.2f} s" + ("" if what == "time" else f", after one of {what}")


def restart(s, moments):
    """Starts a server that was killed; the seconds that took. Now and then it is killed during recovery first, or once more
    just after it."""
    if moments.random() < 0.2:
        try:
            s.start(wait_s=moments.uniform(0.05, 0.4))
        except RuntimeError:
            pass
        s.kill()
    begin = time.monotonic()
    s.start()
    took = time.monotonic() - begin
    if moments.random() < 0.2:  # what recovery made must survive, too: what is prepared, and what it wrote
        time.sleep(moments.uniform(0, 0.5))
        s.kill()
        s.start()
    return took


# -- what must be there ---------------------------------------------------------------------------------------------------
def listed(connection):
    """Names of the XA transactions that are prepared; they may be any bytes, ours are letters."""
    return {row[3].decode() for row in connection.query("XA RECOVER").rows}


def decide(connection, writers, moments):
    """Ends the XA transactions that were left prepared; problems where one is missing or not known."""
    prepared_now, problems = listed(connection), []
    for w in writers:
        prepared, w.prepared = w.prepared, None
        if prepared is None:
            continue
        if prepared.xid in prepared_now:
            prepared_now.remove(prepared.xid)
            verb = moments.choice(["COMMIT", "ROLLBACK"])
            connection.query(f"XA {verb} '{prepared.xid}'")
            if verb == "COMMIT":
                w.model = prepared.after
        elif prepared.said == "prepared":
            problems.append(f"client {w.number}: XA transaction {prepared.xid} was prepared and is gone")
        elif prepared.said == "commit":
            w.model = prepared.after  # prepared was acknowledged, so only its commit can have ended it
    return problems + [f"XA transaction {xid} is prepared and nobody began it, or it was ended" for xid in prepared_now]


def check(connection, writers, moments, db="crash"):
    """Problems found (an empty list is what must come out), and how many rows were looked at."""
    problems = decide(connection, writers, moments)
    found = {w.number: Model() for w in writers}
    looked = _rows(connection, db, found, problems) + sum(_bulk(connection, db, w.number, found[w.number], problems) for w in writers)
    amounts = {}
    for client, seq, account, group, amount in connection.query(f"SELECT client,seq,account,grp,amount FROM {db}.ledger").rows:
        entries, key = found.setdefault(int(client), Model()).ledger, ("account", int(account)) if account != "0" else ("group", int(group))
        if int(seq) in entries:
            problems.append(f"ledger: client {client} entry {seq} is there twice")
        entries[int(seq)] = (int(account), int(group), int(amount))
        amounts[key] = amounts.get(key, 0) + int(amount)
        looked += 1
    looked += _common(connection, db, amounts, problems) + claims.read(connection, db, found, Model, problems)
    for table in tables(len(writers)):
        problems += indexes.check(connection, db, table)
    for w in writers:
        if w.problem:
            problems.append(w.problem)
        got = found.pop(w.number)
        if got != w.model and got != w.perhaps:
            problems += list(_differences(w, got))
        w.model, w.perhaps = got, None  # go on from what is there
    problems += [f"there are rows of client {number}, whom nobody knows" for number in found]
    return problems, looked


def _rows(connection, db, found, problems):
    looked, have = 0, {}
    for client, batch, k, n, version, body in connection.query(f"SELECT client,batch,k,n,version,body FROM {db}.rows_").rows:
        looked += 1
        client, batch, k, n, version = int(client), int(batch), int(k), int(n), int(version)
        if body != payload(client, batch, k, version):
            problems.append(f"rows_: client {client} batch {batch} row {k} version {version} holds foreign bytes '{body}'")
        have.setdefault((client, batch), []).append((k, n, version))
    for (client, batch), rows in have.items():
        n, version = rows[0][1], rows[0][2]
        if sorted(r[0] for r in rows) != list(range(n)) or any(r[1:] != (n, version) for r in rows):
            problems.append(f"rows_: client {client} batch {batch}: half a statement: {len(rows)} of {n} rows, versions {sorted({r[2] for r in rows})}")
        found.setdefault(client, Model()).rows[batch] = (n, version)
    return looked


def _bulk(connection, db, client, found, problems):
    looked = 0
    sound = f"body=CONVERT(MD5(CONCAT('{client}/',batch,'/',k,'/',version)) USING latin1)"
    for row in connection.query(f"SELECT batch,COUNT(*),COUNT(DISTINCT k),MIN(k),MAX(k),MIN(version),MAX(version),SUM({sound}) "
                                f"FROM {db}.bulk_{client} GROUP BY batch").rows:
        batch, count, different, low, high, old, new, good = map(int, row)
        looked += count
        if not count == different == high == good or low != 1 or old != new:
            problems.append(f"bulk_{client}: batch {batch}: {count} rows from {low} to {high}, {different} of them different, "
                            f"{good} sound, versions {old} to {new}")
        found.bulk[batch] = (count, new)
    return looked


def _common(connection, db, amounts, problems):
    """accounts and common, each row as the ledger says."""
    rows = connection.query(f"SELECT id,balance FROM {db}.accounts").rows
    balances = {int(i): int(b) for i, b in rows}
    if len(rows) != len(balances):
        problems.append(f"accounts: {len(rows)} rows with {len(balances)} ids")
    wanted = {i: START + amounts.get(("account", i), 0) for i in range(1, ACCOUNTS + 1)}
    for i in sorted(set(balances) | set(wanted)):
        if balances.get(i) != wanted.get(i):
            problems.append(f"accounts: account {i} holds {balances.get(i)}, the ledger says {wanted.get(i)}")
    looked, groups = len(rows), set()
    for row in connection.query(f"SELECT grp,COUNT(*),COUNT(DISTINCT k),MIN(k),MAX(k),MIN(hits),MAX(hits),"
                                f"SUM(body=CONVERT(MD5(CONCAT(grp,'/',k,'/',hits)) USING latin1)) FROM {db}.common GROUP BY grp").rows:
        group, count, different, low, high, least, most, good = map(int, row)
        looked, hits = looked + count, amounts.get(("group", group), 0)
        groups.add(group)
        if (count, different, low, high, good) != (GROUP_ROWS, GROUP_ROWS, 1, GROUP_ROWS, GROUP_ROWS) or not least == most == hits:
            problems.append(f"common: group {group}: {count} rows from {low} to {high}, {different} of them different, {good} sound, "
                            f"hits from {least} to {most}, the ledger says {hits}")
    problems += [f"common: group {group} is gone" for group in range(1, GROUPS + 1) if group not in groups]
    return looked


def _differences(w, got):
    """Where neither the model nor what was under way is what was found."""
    under_way = "" if w.perhaps is None else " (with something under way)"
    for name, now, was in (("rows_", got.rows, w.model.rows), ("bulk", got.bulk, w.model.bulk), ("ledger", got.ledger, w.model.ledger), ("claims", got.claims, w.model.claims)):
        lost = [b for b in was if b not in now]
        extra = [b for b in now if b not in was]
        other = [(b, was[b], now[b]) for b in was if b in now and was[b] != now[b]]
        if lost or extra or other:
            yield (f"{name}: client {w.number}: not as acknowledged: missing {lost[:8]}, unexpected {[(b, now[b]) for b in extra[:8]]}, "
                   f"changed {other[:8]}{under_way}")
