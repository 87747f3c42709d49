"""TPC-C through kill -9 and power cuts: after each crash its consistency conditions hold, and nothing that was acknowledged is missing.

Terminals do the five transactions of the specification (scripts/eskerlib/tpcc_work.py) without think times, at READ COMMITTED and
REPEATABLE READ, with snapshot isolation too; refused ones (1213, 1020, 1205) are tried again. Each keeps a ledger of the orders,
payments and deliveries that it was told are committed, with all they wrote; after the crash the tables hold just these and whole, and of
what was under way all or nothing. The twelve conditions of clause 3.3.2 are checked, two more of the same kind, every table and
index; with the binlog on, the tables must equal what it says. Crash, settings and moments are those of kill_test.py and
powercut_test.py, the server's settings small: it is a failure if nothing was flushed, merged or checkpointed, of rows or of keys, if one
of the transactions was never committed, nothing was refused, or nothing committed with the binlog.

    KILLS=2          kills per setting of the binlog
    CUTS=1           power cuts; the binlog is on at the first and then by turns
    CLIENTS=6  SEED=  CRASH_ENGINE=  BINLOG=off,on  FLUSH_US=  CANARY=1   as in kill_test.py and powercut_test.py
"""
import collections
import random
import threading

import pytest

import binlog
import crash
import indexes
from cases import BINLOGS, CANARY, CLIENTS, ENGINE, SEED, finds_the_canary, none_of
from eskerlib import env, server, show, tpcc, tpcc_work
from eskerlib.client import Lost, SqlError
from kill_test import one_life
from powercut_test import CUTS, FLUSH_US, disk, one_cut  # noqa: F401: a fixture

KILLS = env.number("KILLS", 2)
DB = "tpcc"
SCALE = tpcc.Scale(2, **tpcc.SMALL)
REACH = ("flushes", "merges", "checkpoints", "key_flushes", "key_merges")
LEVELS = [("READ COMMITTED", "OFF"), ("REPEATABLE READ", "OFF"), ("REPEATABLE READ", "ON")]  # with esker_snapshot_isolation
MOST_ORDERS = 8000  # then the tables are made anew, so that the check stays quick


class Terminal(threading.Thread):
    """One client. told: {kind: {time: (what it writes, the answer)}} of what was acknowledged; perhaps: the task whose outcome is open."""

    wanted = tpcc_work.MIX  # each kind of transaction, however short the last life would be

    def __init__(self, number, srv, stop, seed):
        super().__init__(daemon=True)
        self.number, self.server, self.stop_event = number, srv, stop
        self.random = random.Random(seed * 1000 + number)
        self.work = tpcc_work.Work(SCALE, self.random, number)
        self.told, self.perhaps, self.problem = {kind: {} for kind in tpcc_work.WRITES}, None, None
        self.acknowledged, self.refused, self.done = 0, 0, collections.Counter()

    def run(self):
        connection = None
        try:
            while not self.stop_event.is_set():
                connection = self.server.connect(DB, timeout=120)
                level, snapshot = self.random.choice(LEVELS)
                connection.query(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
                if ENGINE == "Esker":
                    connection.query(f"SET esker_snapshot_isolation={snapshot}")
                for _ in range(200):
                    if self.stop_event.is_set():
                        return
                    self.step(connection)
                connection.close()
        except Lost:
            return
        except (SqlError, tpcc_work.Wrong) as e:
            if not isinstance(e, SqlError) or e.errno not in (1053, 1317, 1927):  # shutting down
                self.problem = f"client {self.number}: {e}"
        finally:
            if connection:
                connection.close()

    def step(self, connection):
        """One transaction, repeated until it is acknowledged."""
        task, answer = self.work.task(), None
        while answer is None:
            self.perhaps = task
            answer = tpcc_work.attempt(connection, task)
            if answer is None:
                self.perhaps, self.refused = None, self.refused + 1
                if self.stop_event.is_set():
                    return
        if task.writes and answer:  # an order of an item that is not there, and a delivery of nothing, leave nothing
            self.told[task.kind][task.at] = (task.writes, answer)
        self.perhaps = None
        self.done[task.kind] += 1
        self.acknowledged += 1


def written(connection):
    """As a terminal's `told`: what the tables hold of all that was written since they were loaded."""
    found, since = {kind: {} for kind in tpcc_work.WRITES}, f">'{tpcc.LOADED}'"
    lines = "GROUP_CONCAT(CONCAT_WS(':',ol_i_id,ol_supply_w_id,ol_quantity) ORDER BY ol_number SEPARATOR ';')"
    for at, w, d, c, o, what in connection.query(
            f"SELECT o_entry_d,o_w_id,o_d_id,o_c_id,o_id,{lines} FROM orders LEFT JOIN order_line ON ol_w_id=o_w_id AND ol_d_id=o_d_id AND ol_o_id=o_id "
            f"WHERE o_entry_d{since} GROUP BY o_w_id,o_d_id,o_id").rows:
        keep(found["new_order"], at, ((int(w), int(d), int(c), what), int(o)))
    for at, w, d, cw, cd, amount, c in connection.query(f"SELECT h_date,h_w_id,h_d_id,h_c_w_id,h_c_d_id,h_amount,h_c_id FROM history WHERE h_date{since}").rows:
        keep(found["payment"], at, ((int(w), int(d), int(cw), int(cd), amount), int(c)))
    for at, w, carrier, orders in connection.query(
            f"SELECT at,o_w_id,o_carrier_id,GROUP_CONCAT(CONCAT_WS(':',o_d_id,o_id) ORDER BY o_d_id,o_id) FROM "
            f"(SELECT DISTINCT ol_delivery_d AS at,o_w_id,o_d_id,o_id,o_carrier_id FROM order_line JOIN orders ON o_w_id=ol_w_id AND o_d_id=ol_d_id AND o_id=ol_o_id "
            f"WHERE ol_delivery_d{since}) AS done GROUP BY at,o_w_id,o_carrier_id").rows:
        keep(found["delivery"], at, ((int(w), int(carrier)), [tuple(map(int, one.split(":"))) for one in orders.split(",")]))
    return found


def keep(found, at, what):
    """Two of one time are not taken for one."""
    found[at if at not in found else f"{at}, again"] = what


def compare(found, terminals):
    """Problems where the tables hold other things than the terminals were told, but for what was under way; what that became is told then."""
    problems, perhaps = [], {t.perhaps.at: t for t in terminals if t.perhaps}
    for kind, have in found.items():
        told = {at: what for t in terminals for at, what in t.told[kind].items()}
        lost = [(at, told[at]) for at in told if at not in have]
        other = [(at, told[at], have[at]) for at in told if at in have and told[at] != have[at]]
        extra = []
        for at in have.keys() - told.keys():
            owner = perhaps.get(at)
            if owner and owner.perhaps.kind == kind and owner.perhaps.writes == have[at][0]:
                owner.told[kind][at] = have[at]
            else:
                extra.append((at, have[at]))
        for words, some in (("is missing", lost), ("is there and was not acknowledged", extra), ("is not as acknowledged", other)):
            if some:
                problems.append(f"{kind}: {len(some)} of {len(told)}: {words}, e.g. {some[:3]}")
    for t in terminals:
        t.perhaps = None
    return problems


class Load:
    """TPC-C in crash.Mixed's place; with what all its terminals have done."""

    def __init__(self):
        self.done, self.refused, self.with_binlog = collections.Counter(), 0, 0
        self.is_counted = False

    def create(self, connection):
        """The tables with their first rows."""
        tpcc.create(connection, ENGINE, DB)
        tpcc_work.create_procedures(connection)
        tpcc.load(connection, SCALE, SEED)

    def writers(self, s, seed, with_binlog):
        """Terminals that have not begun."""
        self.is_counted, stop = with_binlog, threading.Event()
        return [Terminal(n, s, stop, seed) for n in range(1, CLIENTS + 1)]

    def check(self, connection, writers, _moments):
        """Problems, and how many rows were looked at."""
        connection.query(f"USE {DB}")
        problems = [t.problem for t in writers if t.problem]
        problems += compare(written(connection), writers) + tpcc.conditions(connection, SCALE)
        for table in tpcc.TABLES:
            problems += indexes.check(connection, DB, table)
        for t in writers:
            self.done.update(t.done)
            self.refused += t.refused
            self.with_binlog += t.acknowledged * self.is_counted
        return problems, sum(int(connection.one(f"SELECT COUNT(*) FROM {table}")) for table in tpcc.TABLES)

    def replay(self, s):
        """What the binlog says."""
        return binlog.Replay(s, DB, tpcc.TABLES)

    def problems(self, reach, with_binlog):
        """What was never reached."""
        missing = [f"no {kind} was committed" for kind in tpcc_work.MIX if not self.done[kind]]
        if not self.refused:
            missing.append("nothing was refused: no deadlock and no conflict")
        if with_binlog and not self.with_binlog:
            missing.append("nothing was committed with the binlog")
        return reach.problems() + missing

    def __str__(self):
        return ", ".join([f"{n} {kind}" for kind, n in sorted(self.done.items())] + [f"{self.refused} refused", f"{self.with_binlog} with the binlog"])


@finds_the_canary
@pytest.mark.parametrize("setting", BINLOGS)
def test_kill(servers, again, setting):
    """All kills with the binlog on or off."""
    again(SEED=SEED, KILLS=KILLS, BINLOG=setting, CLIENTS=CLIENTS, CRASH_ENGINE=ENGINE)
    with_binlog, work = setting == "on", Load()
    s = servers(f"tpcc-{setting}", crash.settings(with_binlog, CANARY), [ENGINE])
    s.create(fresh=True)
    s.start()
    c = s.connect()
    work.create(c)
    c.close()
    replay, moments, reach, writers = work.replay(s), random.Random(SEED), crash.Reach(ENGINE, REACH), []
    for number in range(1, KILLS + 1):
        before = {t.number: t.told for t in writers}
        writers = work.writers(s, SEED + number, with_binlog)
        for t in writers:
            t.told = before.get(t.number, t.told)
        said = one_life(s, writers, reach, moments, "last" if number == KILLS else "")
        c = s.connect()
        problems, looked = work.check(c, writers, moments)
        if with_binlog and not problems:
            problems += replay.compare(c)
        show.say(f"{ENGINE}, binlog {setting}, kill {number} of {KILLS} {said}, {looked:,} rows looked at" + ("" if not problems else f", {len(problems)} PROBLEMS"))
        none_of(problems)
        if sum(len(t.told["new_order"]) for t in writers) > MOST_ORDERS:
            if with_binlog:
                c.query("RESET MASTER")
                replay = work.replay(s)
            work.create(c)
            writers = []
        c.close()
    show.say(f"reached: {reach}; {work}")
    none_of(work.problems(reach, with_binlog) + ([] if s.stop() else ["the server did not stop in order after the test"]))


@finds_the_canary
def test_power_cut(disk, again):  # noqa: F811: the fixture
    """All cuts, with and without the binlog by turns."""
    again(SEED=SEED, CUTS=CUTS, BINLOG=",".join(BINLOGS), CLIENTS=CLIENTS, CRASH_ENGINE=ENGINE, FLUSH_US=FLUSH_US)
    work, reach, turns = Load(), crash.Reach(ENGINE, REACH), BINLOGS[::-1]
    for number in range(CUTS):
        one_cut(disk, turns[number % len(turns)], SEED + 2 * number, reach, number == CUTS - 1, work)
    show.say(f"reached: {reach}; {work}")
    none_of(work.problems(reach, "on" in turns))


# -- the test of the test -----------------------------------------------------------------------------------------------------
# Of each condition: a statement that breaks it.
PLANTED = {
    "1": "UPDATE district SET d_ytd=d_ytd+0.01 WHERE d_w_id=2 AND d_id=3",
    "2": "UPDATE district SET d_next_o_id=d_next_o_id+1 WHERE d_w_id=1 AND d_id=10",
    "3": "DELETE FROM new_order WHERE no_w_id=1 AND no_d_id=4 AND no_o_id=50",
    "4": "DELETE FROM order_line WHERE ol_w_id=1 AND ol_d_id=4 AND ol_o_id=7 AND ol_number=2",
    "5": "UPDATE orders SET o_carrier_id=NULL WHERE o_w_id=2 AND o_d_id=1 AND o_id=3",
    "6": "UPDATE orders SET o_ol_cnt=o_ol_cnt+1 WHERE o_w_id=2 AND o_d_id=1 AND o_id=3",
    "7": "UPDATE order_line SET ol_delivery_d=NULL WHERE ol_w_id=2 AND ol_d_id=1 AND ol_o_id=3 AND ol_number=1",
    "8": "UPDATE warehouse SET w_ytd=w_ytd-1 WHERE w_id=1",
    "9": "UPDATE history SET h_amount=h_amount+1 WHERE h_w_id=1 AND h_d_id=2 AND h_c_id=5 LIMIT 1",
    "10": "UPDATE customer SET c_balance=c_balance+1 WHERE c_w_id=1 AND c_d_id=2 AND c_id=5",
    "11": "UPDATE customer SET c_delivery_cnt=c_delivery_cnt+1 WHERE c_w_id=1 AND c_d_id=2 AND c_id=5",
    "12": "UPDATE customer SET c_ytd_payment=c_ytd_payment+1 WHERE c_w_id=2 AND c_d_id=9 AND c_id=60",
    "stock": "UPDATE stock SET s_ytd=s_ytd+1 WHERE s_w_id=2 AND s_i_id=400",
    "payments": "UPDATE customer SET c_payment_cnt=c_payment_cnt+1 WHERE c_w_id=1 AND c_d_id=2 AND c_id=5",
}
# Of each kind of transaction: a statement after which one that was acknowledged is gone; :at is its time.
FORGOTTEN = {
    "new_order": "DELETE FROM orders WHERE o_entry_d=':at'",
    "payment": "DELETE FROM history WHERE h_date=':at'",
    "delivery": "UPDATE order_line SET ol_delivery_d=NULL WHERE ol_delivery_d=':at'",
}


def test_what_is_wrong_is_found(servers, again):
    """Each condition names itself when it is broken; the ledger misses what is gone, and knows what is not its own."""
    again(SEED=SEED, CRASH_ENGINE=ENGINE)
    s, work = servers("tpcc-planted", server.small_settings(), [ENGINE]), Load()
    s.create(fresh=True)
    s.start()
    c = s.connect()
    work.create(c)
    t = work.writers(s, SEED, False)[0]
    for _ in range(60):
        t.step(c)
    problems, _ = work.check(c, [t], None)
    none_of(problems)
    for name, sql in PLANTED.items():
        c.query("BEGIN")
        changed, said = c.query(sql).affected, tpcc.conditions(c, SCALE)
        c.query("ROLLBACK")
        if changed != 1 or not any(p.startswith(f"condition {name} ") for p in said):
            problems.append(f"{sql} changes {changed} rows, and the conditions say {said}")
    for kind, sql in FORGOTTEN.items():
        at = list(t.told[kind])[-1]
        c.query("BEGIN")
        c.query(sql.replace(":at", at))
        said = compare(written(c), [t])
        c.query("ROLLBACK")
        one = t.told[kind].pop(at)
        also = compare(written(c), [t])
        t.told[kind][at] = one
        if not any("is missing" in p and p.startswith(kind) for p in said) or not any("was not acknowledged" in p and p.startswith(kind) for p in also):
            problems.append(f"{kind}: of what is gone is said {said}, of what nobody was told {also}")
    none_of(problems + tpcc.conditions(c, SCALE) + compare(written(c), [t]))
    c.close()
