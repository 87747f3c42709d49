"""Clients that write while the server is killed, and the check of what must be there afterwards.

Each client owns a model of its own rows. A statement (or a transaction) that was acknowledged is in the model; the one
that was under way when the connection broke is remembered as 'perhaps': afterwards it must be there wholly or not at
all. A table of accounts, between which all clients move money, must keep its sum.
"""
import hashlib
import random
import threading
import time

from .client import Lost, SqlError

ACCOUNTS, START = 40, 1000
RETRY = {1205, 1213, 1020}  # lock wait timeout, deadlock, row changed since the view was opened


def payload(client, batch, k, version=0):
    """What a row must hold: derived from its place, so that any mix-up shows."""
    return hashlib.md5(f"{client}/{batch}/{k}/{version}".encode()).hexdigest()


def create(connection, engine, db="crash"):
    """The tables."""
    connection.query(f"CREATE DATABASE IF NOT EXISTS {db}")
    connection.query(f"USE {db}")
    for table in ("rows_", "bulk", "accounts"):
        connection.query(f"DROP TABLE IF EXISTS {db}.{table}")
    connection.query(f"CREATE TABLE {db}.rows_ (client INT, batch INT, k INT, n INT, version INT, body CHAR(32)) ENGINE={engine} CHARSET=latin1")
    connection.query(f"CREATE TABLE {db}.bulk (client INT, batch INT, k INT, n INT, body CHAR(32)) ENGINE={engine} CHARSET=latin1")
    connection.query(f"CREATE TABLE {db}.accounts (id INT, balance INT) ENGINE={engine}")
    connection.query(f"INSERT INTO {db}.accounts SELECT seq, {START} FROM seq_1_to_{ACCOUNTS}")


class Writer(threading.Thread):
    """One client. model: {batch: (rows, version)} of rows_, bulk: {batch: rows}; perhaps: the model if the last one counts."""

    def __init__(self, number, server, stop, seed, bulk_rows, db="crash", kinds=None):
        super().__init__(daemon=True)
        self.number, self.server, self.stop_event, self.db = number, server, stop, db
        self.random = random.Random(seed * 1000 + number)
        self.model, self.bulk = {}, {}
        self.perhaps = None  # (model, bulk) if what was under way took effect
        self.next_batch, self.bulk_rows = 1, bulk_rows
        self.acknowledged, self.retries, self.problem = 0, 0, None
        self.kinds = kinds or ["single"] * 4 + ["multi"] * 3 + ["update", "delete", "transaction", "savepoint", "transfer", "transfer", "bulk", "undo"]

    def run(self):
        while not self.stop_event.is_set():
            try:
                connection = self.server.connect(self.db, timeout=120)
            except (Lost, SqlError):
                return
            try:
                while not self.stop_event.is_set():
                    self.step(connection)
            except Lost:
                return
            except SqlError as e:
                if e.errno in (1053, 1317, 1927):  # shutting down
                    return
                self.problem = f"client {self.number}: {e}"
                return
            finally:
                connection.close()

    def insert_sql(self, batch, n):
        """One INSERT of n rows."""
        values = ",".join(f"({self.number},{batch},{k},{n},0,'{payload(self.number, batch, k)}')" for k in range(n))
        return f"INSERT INTO rows_ VALUES {values}"

    def step(self, connection):
        """One unit of work: its statements are run, then acknowledged in the model."""
        kind, batch = self.random.choice(self.kinds), self.next_batch
        model, bulk, statements, transaction = dict(self.model), dict(self.bulk), [], False
        existing = sorted(model) if model else []
        if kind in ("update", "delete") and not existing:
            kind = "multi"
        if kind == "single":
            statements, model[batch] = [self.insert_sql(batch, 1)], (1, 0)
        elif kind == "multi":
            n = self.random.randint(2, 60)
            statements, model[batch] = [self.insert_sql(batch, n)], (n, 0)
        elif kind == "update":
            target = self.random.choice(existing)
            n, version = model[target]
            statements, model[target] = [self.update_sql(target, version + 1)], (n, version + 1)
        elif kind == "delete":
            target = self.random.choice(existing)
            statements = [f"DELETE FROM rows_ WHERE client={self.number} AND batch={target}"]
            del model[target]
        elif kind in ("transaction", "savepoint"):
            transaction, statements = True, []
            for i in range(self.random.randint(2, 5)):
                n = self.random.randint(1, 20)
                statements.append(self.insert_sql(batch + i, n))
                model[batch + i] = (n, 0)
            self.next_batch += 5
            if existing:
                target = self.random.choice(existing)
                n, version = model[target]
                statements.append(self.update_sql(target, version + 1))
                model[target] = (n, version + 1)
            if kind == "savepoint":
                statements += ["SAVEPOINT here", self.insert_sql(batch + 6, 7), f"DELETE FROM rows_ WHERE client={self.number}", "ROLLBACK TO SAVEPOINT here"]
                self.next_batch += 2
        elif kind == "transfer":
            a, b, amount = self.random.randint(1, ACCOUNTS), self.random.randint(1, ACCOUNTS), self.random.randint(1, 50)
            transaction = True
            statements = [f"UPDATE accounts SET balance=balance-{amount} WHERE id={a}", f"UPDATE accounts SET balance=balance+{amount} WHERE id={b}"]
        elif kind == "undo":
            connection.query("BEGIN")
            connection.query(self.insert_sql(batch, 30))
            connection.query("ROLLBACK")
            self.next_batch += 1
            return
        else:
            n = self.bulk_rows
            statements = [f"INSERT INTO bulk SELECT {self.number},{batch},seq,{n},MD5(CONCAT('{self.number}/{batch}/',seq)) FROM seq_1_to_{n}"]
            bulk[batch] = n
        self.next_batch += 1
        while True:
            self.perhaps = (model, bulk)
            try:
                if transaction:
                    connection.query("BEGIN")
                for sql in statements:
                    connection.query(sql)
                if transaction:
                    connection.query("COMMIT")
                break
            except SqlError as e:
                if e.errno not in RETRY:
                    raise
                self.perhaps = None
                connection.query("ROLLBACK")
                self.retries += 1
                if self.stop_event.is_set():
                    return
        self.model, self.bulk, self.perhaps = model, bulk, None
        self.acknowledged += 1

    def update_sql(self, batch, version):
        """Every row of a batch to a new version, computed by the server."""
        return (f"UPDATE rows_ SET version={version}, body=MD5(CONCAT(client,'/',batch,'/',k,'/',{version})) "
                f"WHERE client={self.number} AND batch={batch}")


def check(connection, writers, db="crash"):
    """Problems found (an empty list is what must come out), and how many rows were looked at."""
    problems = []
    have, looked = {}, 0
    for client, batch, k, n, version, body in connection.query(f"SELECT client,batch,k,n,version,body FROM {db}.rows_").rows:
        looked += 1
        client, batch, k, n, version = int(client), int(batch), int(k), int(n), int(version)
        if body != payload(client, batch, k, version):
            problems.append(f"rows_: client {client} batch {batch} row {k} version {version} holds foreign bytes '{body}'")
        have.setdefault(client, {}).setdefault(batch, []).append((k, n, version))
    found = {}
    for client, batches in have.items():
        found[client] = {}
        for batch, rows in batches.items():
            n, version = rows[0][1], rows[0][2]
            if sorted(r[0] for r in rows) != list(range(n)) or any(r[1:] != (n, version) for r in rows):
                problems.append(f"rows_: client {client} batch {batch}: half a statement: {len(rows)} of {n} rows, versions {sorted({r[2] for r in rows})}")
            found[client][batch] = (n, version)
    bulk = {}
    for client, batch, count, n, low, high, sound in connection.query(
            f"SELECT client,batch,COUNT(*),MAX(n),MIN(k),MAX(k),SUM(body=CONVERT(MD5(CONCAT(client,'/',batch,'/',k)) USING latin1)) FROM {db}.bulk GROUP BY client,batch").rows:
        looked += int(count)
        if not int(count) == int(n) == int(sound) == int(high) or low != "1":
            problems.append(f"bulk: client {client} batch {batch}: {count} of {n} rows, {sound} of them sound")
        bulk.setdefault(int(client), {})[int(batch)] = int(n)
    for w in writers:
        if w.problem:
            problems.append(w.problem)
        states = [(w.model, w.bulk)] + ([w.perhaps] if w.perhaps else [])
        got = (found.get(w.number, {}), bulk.get(w.number, {}))
        if got in states:
            w.model, w.bulk, w.perhaps = got[0], got[1], None
            continue
        for name, now, was in (("rows_", got[0], w.model), ("bulk", got[1], w.bulk)):
            lost = [b for b in was if b not in now]
            extra = [b for b in now if b not in was]
            other = [b for b in was if b in now and was[b] != now[b]]
            if lost or extra or other:
                problems.append(f"{name}: client {w.number}: acknowledged but not as it was: missing batches {lost[:8]}, unexpected {extra[:8]}, "
                                f"changed {[(b, was[b], now[b]) for b in other[:8]]}" + (" (with one statement under way)" if w.perhaps else ""))
        w.model, w.bulk, w.perhaps = got[0], got[1], None  # go on from what is there
    count, total = connection.query(f"SELECT COUNT(*), SUM(balance) FROM {db}.accounts").rows[0]
    if (int(count), int(total or 0)) != (ACCOUNTS, ACCOUNTS * START):
        problems.append(f"accounts: {count} rows with the sum {total}, must be {ACCOUNTS} with {ACCOUNTS * START}")
    return problems, looked


def wait_seconds(writers, seconds):
    """Let them write; ends early when one has a problem."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not any(w.problem for w in writers) and any(w.is_alive() for w in writers):
        time.sleep(0.02)
