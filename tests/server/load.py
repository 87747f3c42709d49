"""Clients that write while the server is killed, each with a model of what it was told.

A unit of work is a list of statements that take effect wholly or not at all. When it was acknowledged, its outcome is the
model; the one that was under way when the connection broke is remembered as 'perhaps'. Everybody has rows of his own in
rows_, and a table for bulk work, bulk_1 and so on, so that nobody waits there; accounts and common belong to all, and every
change of theirs stands in the ledger, written by the same transaction, so that each account and each row of common can be
computed from it. claims is everybody's too, see claims.py. All tables have keys but every other client's own.
"""
import hashlib
import random
import threading
import time

import claims
from eskerlib.client import Lost, SqlError

ACCOUNTS, START = 24, 1000
GROUPS, GROUP_ROWS = 12, 1500
COLUMNS = {"rows_": "client INT, batch INT, k INT, n INT, version INT, body CHAR(32), PRIMARY KEY (client,batch,k), UNIQUE KEY body (body), KEY version (version,n)",
           "accounts": "id INT, balance INT, PRIMARY KEY (id), KEY balance (balance)",
           "common": "grp INT, k INT, hits INT, body CHAR(32), PRIMARY KEY (grp,k), UNIQUE KEY body (body), KEY hits (hits)",
           "ledger": "client INT, seq INT, account INT, grp INT, amount INT, PRIMARY KEY (client,seq), KEY account (account,amount)",
           "claims": claims.COLUMNS}
BULK_COLUMNS = "batch INT, k INT, version INT, body CHAR(32)"
BULK_KEYS = ", PRIMARY KEY (batch,k), UNIQUE KEY body (body), KEY version (version)"
RETRY = {1205, 1213, 1020}  # lock wait timeout, deadlock, row changed since the view was opened
# What a client does, and how often.
KINDS = {"single": 4, "multi": 4, "update": 2, "delete": 2, "transaction": 2, "savepoint": 2, "undo": 1, "slow": 1,
         "transfer": 8, "touch": 2, "renew": 1, "look": 1,
         **claims.KINDS,
         "bulk": 2, "bulk_update": 1, "bulk_delete": 1, "bulk_savepoint": 1, "churn": 3, "xa": 2}
# Now and then all of them do little else than this: what it takes to bring some faults to light must happen often enough.
THEMES = ((), (), tuple(claims.KINDS), ("churn", "churn", "churn", "transfer", "multi"), ("single", "multi", "update", "delete", "transaction"))


def payload(client, batch, k, version=0):
    """What a row must hold: derived from its place, so that any mix-up shows."""
    return hashlib.md5(f"{client}/{batch}/{k}/{version}".encode()).hexdigest()


def tables(clients):
    """Names and columns."""
    return dict(COLUMNS, **{f"bulk_{n}": BULK_COLUMNS + BULK_KEYS * (n % 2) for n in range(1, clients + 1)})


def create(connection, engine, clients, db="crash"):
    """The tables, as they are before any client has written."""
    connection.query(f"CREATE DATABASE IF NOT EXISTS {db}")
    connection.query(f"USE {db}")
    for table, columns in tables(clients).items():
        connection.query(f"DROP TABLE IF EXISTS {db}.{table}")
        connection.query(f"CREATE TABLE {db}.{table} ({columns}) ENGINE={engine} CHARSET=latin1")
    fill_common(connection, db)


def fill_common(connection, db="crash"):
    """The first rows of what belongs to all clients."""
    connection.query(f"INSERT INTO {db}.accounts SELECT seq, {START} FROM seq_1_to_{ACCOUNTS}")
    for group in range(1, GROUPS + 1):
        connection.query(f"INSERT INTO {db}.common {_group_rows(group, 0)}")


def empty(connection, writers, db="crash"):
    """Begin anew with tables and models, so that the check stays quick."""
    for table in tables(len(writers)):
        connection.query(f"TRUNCATE TABLE {db}.{table}")
    fill_common(connection, db)
    for w in writers:
        w.model = Model()


def _group_rows(group, hits):
    return f"SELECT {group},seq,{hits},MD5(CONCAT('{group}/',seq,'/{hits}')) FROM seq_1_to_{GROUP_ROWS}"


class Model:
    """What one client's rows are: {batch: (rows, version)} of rows_ and of its bulk table; its entries in the ledger; its claims."""

    def __init__(self, rows=(), bulk=(), ledger=(), claims=()):
        self.rows, self.bulk, self.ledger, self.claims = dict(rows), dict(bulk), dict(ledger), dict(claims)

    def copy(self):
        return Model(**vars(self))

    def __eq__(self, other):
        return isinstance(other, Model) and vars(self) == vars(other)


class Prepared:
    """An XA transaction: its model if it is committed, and the last that its client said ('prepare', 'commit', 'rollback')
    or knows ('prepared')."""

    def __init__(self, xid, after):
        self.xid, self.after, self.said = xid, after, "prepare"


class Writer(claims.Claims, threading.Thread):
    """One client. model: what was acknowledged; perhaps: the model if what was under way took effect; prepared: the same
    for an XA transaction."""

    wanted = ()  # no kind of work has to be there: what it must have reached are counters of the server, and a name that is refused

    def __init__(self, number, server, stop, seed, bulk_rows, without=(), db="crash"):  # the same seed for all of one life
        super().__init__(daemon=True)
        self.number, self.server, self.stop_event, self.db = number, server, stop, db
        self.own = f"bulk_{number}"
        self.random = random.Random(seed * 1000 + number)
        self.model, self.perhaps, self.prepared = Model(), None, None
        self.next_batch, self.bulk_rows = 1, bulk_rows
        self.acknowledged, self.retries, self.refused, self.problem, self.level = 0, 0, 0, None, None
        self.kinds = [kind for kind, often in KINDS.items() for _ in range(often) if kind not in without]
        self.kinds += random.Random(seed).choice(THEMES) * 12

    def seek_deadlocks(self):
        """From now on it does little else than what waits in circles."""
        self.kinds = self.kinds + ["transfer"] * 300

    def succeed(self, old):
        """Go on where a client of an earlier life ended."""
        self.model, self.next_batch = old.model, old.next_batch

    def run(self):
        while not self.stop_event.is_set():
            connection = None
            try:
                connection = self.server.connect(self.db, timeout=120)
                self.level = self.random.choice(["READ COMMITTED", "REPEATABLE READ"])
                connection.query(f"SET SESSION TRANSACTION ISOLATION LEVEL {self.level}")
                for _ in range(200):
                    if self.stop_event.is_set():
                        return
                    self.step(connection)
            except Lost:
                return
            except SqlError as e:
                if e.errno not in (1053, 1317, 1927):  # shutting down
                    self.problem = f"client {self.number}: {e}"
                return
            except Wrong as e:
                self.problem = f"client {self.number}: {e}"
                return
            finally:
                if connection:
                    connection.close()

    # -- units of work ------------------------------------------------------------------------------------------------
    def step(self, connection):
        """One unit of work, repeated until it is acknowledged."""
        kind = self.random.choice(self.kinds)
        if kind == "look":
            return self.look(connection)
        if kind == "xa":
            return self.xa(connection)
        model = self.model.copy()
        statements = getattr(self, kind)(model)
        self.next_batch += 1
        while True:
            self.perhaps = None if kind == "undo" else model
            try:
                for sql in statements:
                    self.say(connection, sql)
                break
            except SqlError as e:
                refused = e.errno == claims.DUPLICATE and kind in claims.KINDS
                if e.errno not in RETRY and not refused:
                    raise
                self.perhaps = None
                connection.query("ROLLBACK")
                self.retries += not refused
                self.refused += refused
                if refused or self.stop_event.is_set():
                    return
        self.model, self.perhaps = model if kind != "undo" else self.model, None
        self.acknowledged += kind != "undo"

    def say(self, connection, sql):
        """A statement; a number is a pause in seconds, a function makes the statement from what it reads first."""
        if isinstance(sql, float):
            self.stop_event.wait(sql)
        else:
            connection.query(sql(connection) if callable(sql) else sql)

    def insert_sql(self, batch, n, first=0):
        """One INSERT of n rows into rows_."""
        values = ",".join(f"({self.number},{batch},{k},{n},0,'{payload(self.number, batch, k)}')" for k in range(first, n))
        return f"INSERT INTO rows_ VALUES {values}"

    def new_rows(self, model, batch, n):
        model.rows[batch] = (n, 0)
        return self.insert_sql(batch, n)

    def new_version(self, table, batches, batch):
        """Every row of a batch to a new version, computed by the server."""
        n, version = batches[batch][0], batches[batch][1] + 1
        batches[batch] = (n, version)
        mine = f"client={self.number} AND " if table == "rows_" else ""
        return (f"UPDATE {table} SET version={version}, body=MD5(CONCAT('{self.number}/',batch,'/',k,'/',{version})) "
                f"WHERE {mine}batch={batch}")

    def bulk_sql(self, batch, first, last):
        """One INSERT of rows first to last into the bulk table."""
        return (f"INSERT INTO {self.own} SELECT {batch},seq,0,MD5(CONCAT('{self.number}/{batch}/',seq,'/0')) "
                f"FROM seq_{first}_to_{last}")

    def some(self, batches):
        return self.random.choice(list(batches)) if batches else None

    def single(self, model):
        return [self.new_rows(model, self.next_batch, 1)]

    def multi(self, model):
        return [self.new_rows(model, self.next_batch, self.random.randint(2, 60))]

    def update(self, model):
        target = self.some(model.rows)
        return [self.new_version("rows_", model.rows, target)] if target else self.multi(model)

    def delete(self, model):
        """A few batches, or the older half of them."""
        target = self.some(model.rows)
        if target is None:
            return self.multi(model)
        first = 0 if len(model.rows) > 40 and self.random.random() < 0.3 else target
        for batch in [b for b in model.rows if first <= b <= target]:
            del model.rows[batch]
        return [f"DELETE FROM rows_ WHERE client={self.number} AND batch BETWEEN {first} AND {target}"]

    def transaction(self, model):
        statements, target = ["BEGIN"], self.some(model.rows)
        for _ in range(self.random.randint(2, 5)):
            statements.append(self.new_rows(model, self.next_batch, self.random.randint(1, 20)))
            self.next_batch += 1
        if target:
            statements.append(self.new_version("rows_", model.rows, target))
        return statements + ["COMMIT"]

    def slow(self, model):
        """Open over whatever goes on in the background."""
        statements = self.transaction(model)
        for at in range(len(statements) - 1, 0, -1):
            statements.insert(at, self.random.uniform(0.0, 0.1))
        return statements

    def savepoint(self, model):
        statements = self.transaction(model)[:-1]
        statements += ["SAVEPOINT here", self.insert_sql(self.next_batch, 7), f"DELETE FROM rows_ WHERE client={self.number}",
                       "ROLLBACK TO SAVEPOINT here"]
        self.next_batch += 1
        return statements + [self.new_rows(model, self.next_batch, 3), "COMMIT"]

    def undo(self, _model):
        return ["BEGIN", self.insert_sql(self.next_batch, 30), self.bulk_sql(self.next_batch, 1, self.bulk_rows // 4),
                f"UPDATE {self.own} SET version=version+1", "ROLLBACK"]

    def entry(self, model, account, group, amount):
        """A line of the ledger."""
        seq = len(model.ledger) + 1
        model.ledger[seq] = (account, group, amount)
        return f"INSERT INTO ledger VALUES ({self.number},{seq},{account},{group},{amount})"

    def transfer(self, model):
        """Money from one account to another: two tables, rows of everybody, circles of waits."""
        hot = self.random.random() < 0.5
        a, b = self.random.sample(range(1, (2 if hot else ACCOUNTS) + 1), 2)
        amount, between = self.random.randint(1, 50), [self.random.uniform(0.0, 0.1)] if hot else []
        entries = [self.entry(model, a, 0, -amount), self.entry(model, b, 0, amount)]
        return ["BEGIN", f"UPDATE accounts SET balance=balance-{amount} WHERE id={a}", entries[0], *between,
                f"UPDATE accounts SET balance=balance+{amount} WHERE id={b}", entries[1], "COMMIT"]

    def touch(self, model):
        """Update of every row of one or two groups, whoever wrote them. The account of that number is the group's lock."""
        statements = ["BEGIN"]
        for group in self.random.sample(range(1, GROUPS + 1), self.random.randint(1, 2)):
            amount = self.random.randint(1, 9)
            statements += [f"SELECT balance FROM accounts WHERE id={group} FOR UPDATE",
                           f"UPDATE common SET hits=hits+{amount}, body=MD5(CONCAT(grp,'/',k,'/',hits)) WHERE grp={group}",
                           self.entry(model, 0, group, amount)]
        return statements + ["COMMIT"]

    def renew(self, model):
        """A group's rows are deleted and made anew."""
        group, amount = self.random.randint(1, GROUPS), self.random.randint(1, 9)
        hits = []

        def read(connection):
            hits.append(int(connection.one(f"SELECT MAX(hits) FROM common WHERE grp={group} FOR UPDATE") or -1))
            return f"DELETE FROM common WHERE grp={group}"

        return ["BEGIN", f"SELECT balance FROM accounts WHERE id={group} FOR UPDATE", read,
                lambda _: f"INSERT INTO common {_group_rows(group, hits[-1] + amount)}", self.entry(model, 0, group, amount), "COMMIT"]

    def bulk(self, model):
        if len(model.bulk) > 3:
            return self.bulk_delete(model)
        model.bulk[self.next_batch] = (self.bulk_rows, 0)
        return [self.bulk_sql(self.next_batch, 1, self.bulk_rows)]

    def bulk_update(self, model):
        target = self.some(model.bulk)
        return [self.new_version(self.own, model.bulk, target)] if target else self.bulk(model)

    def bulk_delete(self, model):
        target = self.some(model.bulk)
        if target is None:
            return self.bulk(model)
        del model.bulk[target]
        return [f"DELETE FROM {self.own} WHERE batch={target}"]

    def bulk_savepoint(self, model):
        """Small, large and back to the savepoint, small again."""
        few, batch = self.random.randint(1, 200), self.next_batch
        model.bulk[batch] = (few + 5, 0)
        return ["BEGIN", self.bulk_sql(batch, 1, few), "SAVEPOINT here", self.bulk_sql(batch, few + 1, self.bulk_rows // 2),
                f"DELETE FROM {self.own}", "ROLLBACK TO SAVEPOINT here", self.bulk_sql(batch, few + 1, few + 5), "COMMIT"]

    def churn(self, model):
        """Small inserts, a large one, and all of them deleted by the transaction that wrote them; a few stay or none."""
        batch, few, stay = self.next_batch, self.random.randint(20, 200), self.random.choice([0, 0, 1, 10])
        if stay:
            model.bulk[batch] = (stay, 0)
        step = self.random.randint(5, 40)
        small = [self.bulk_sql(batch, k, min(k + step - 1, few)) for k in range(1, few + 1, step)]
        return ["BEGIN", *small, self.bulk_sql(batch, few + 1, self.bulk_rows),
                f"DELETE FROM {self.own} WHERE batch={batch} AND k>{stay}", "COMMIT"]

    def xa(self, connection):
        """A transaction in two phases; what was prepared must be there after a crash, ready for either end."""
        after, batch = self.model.copy(), self.next_batch
        few, many = self.random.randint(1, 60), self.random.choice([0, self.bulk_rows // 4])
        after.bulk[batch] = (few + many // 2, 0)
        work = [self.bulk_sql(batch, 1, few)]
        if many:
            work += [self.bulk_sql(batch, few + 1, few + many), f"DELETE FROM {self.own} WHERE batch={batch} AND k>{few + many // 2}"]
        name = self.any_name()
        if name not in after.claims:
            work.append(self.claim_sql(after, [name]))
        self.next_batch += 1
        xid = f"'{self.number}-{batch}'"
        connection.query(f"XA START {xid}")
        try:
            for sql in work:
                connection.query(sql)
            connection.query(f"XA END {xid}")
        except SqlError as e:
            if e.errno not in {claims.DUPLICATE, *RETRY}:
                raise
            self.retries += 1
            return self.give_up(connection, xid)
        prepared = self.prepared = Prepared(xid.strip("'"), after)
        connection.query(f"XA PREPARE {xid}")
        prepared.said = "prepared"
        self.stop_event.wait(self.random.choice([0, 0, 0.05]))
        prepared.said = "commit" if self.random.random() < 0.7 else "rollback"
        connection.query(f"XA {prepared.said.upper()} {xid}")
        if prepared.said == "commit":
            self.model = after
        self.prepared = None
        self.acknowledged += 1

    def give_up(self, connection, xid):
        """Ends an XA transaction that the server has rolled back, or not yet."""
        for verb in ("END", "ROLLBACK"):
            try:
                connection.query(f"XA {verb} {xid}")
            except SqlError as e:
                if e.errno not in (1397, 1399, 1402, 1614):  # not known any more, not in this state, rolled back
                    raise

    def look(self, connection):
        """A view sees whole transactions only."""
        # Where MyRocks is loaded, it refuses a snapshot at any other level.
        connection.query("START TRANSACTION WITH CONSISTENT SNAPSHOT" if self.level == "REPEATABLE READ" else "BEGIN")
        total = connection.query("SELECT COUNT(*), SUM(balance) FROM accounts").rows[0]
        if tuple(map(int, total)) != (ACCOUNTS, ACCOUNTS * START):
            raise Wrong(f"a view sees {total[0]} accounts with the sum {total[1]}, must be {ACCOUNTS} with {ACCOUNTS * START}")
        for group, rows, least, most in connection.query("SELECT grp, COUNT(*), MIN(hits), MAX(hits) FROM common GROUP BY grp").rows:
            if int(rows) != GROUP_ROWS or least != most:
                raise Wrong(f"a view sees {rows} of {GROUP_ROWS} rows of group {group}, hits from {least} to {most}")
        connection.query("COMMIT")


class Wrong(Exception):
    """A client read what cannot be."""


def writers(clients, server, seed, with_binlog, rows=None, without_keys=None):
    """That many of them with one stop event. With the binlog they write less at a time, and leave out XA: the server itself
    does not keep an engine's XA PREPARE and the binlog's together over a crash. rows, without_keys: how much they write at a
    time, and into tables without keys, if not the usual."""
    stop, rows = threading.Event(), rows or (8000 if with_binlog else 20000)
    return [Writer(n, server, stop, seed, rows if n % 2 else without_keys or rows, ("xa",) if with_binlog else ()) for n in range(1, clients + 1)]


def wait_seconds(writers, seconds):
    """Let them write; ends early when one has a problem."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not any(w.problem for w in writers) and any(w.is_alive() for w in writers):
        time.sleep(0.02)
