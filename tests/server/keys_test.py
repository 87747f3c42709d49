"""Random SQL over keys on twin tables, ENGINE=Esker and ENGINE=InnoDB: primary, unique and plain keys over random columns.

As differential_test.py, whose sessions, transactions, restarts and comparison it uses: what is written here are tables with
keys, statements that reach rows by them, and duplicates. No statement changes unique columns of several rows at once: which
row meets its duplicate first would depend on the order in which an engine visits them. Nor does a transaction write whose view is older
than what the other one committed: a row is itself in Esker, whatever its primary key becomes, and its view goes on with the old
row of a key beside the new one; InnoDB's record of a primary key is one and the same, and a row that gets another key is another.
So what such a view sees behind its own INSERT, UPDATE or DELETE differs; behind DELETE without WHERE it sees nothing in Esker, and
in InnoDB still what others had deleted. Nor may Esker's write where another ALTER has copied the table since (error 1412).
Warnings depend on the plan.

    SEEDS=12         runs, each with fresh tables
    STEPS=300        statements a run
    SEED=1           of the first run
"""
import os

import pytest

import differential_test as twins_of
from differential_test import Run, Table, run_seed
from eskerlib import env

SEEDS, STEPS = env.number("SEEDS", 12), env.number("STEPS", 300)
FIRST = env.number("SEED", 1, least=0)
# The table is given up in both engines where only one can have a key: text that is too long for a key, a column that has no order, more bytes than a key may have: each engine has its words.
NO_KEY = {1071, 1170, 1283, 1391, 1709, 4161, 1901, 1904, 1478}
twins_of.OF_THE_ENGINE |= NO_KEY
MOST_PREFIX = 120


class Key:
    """kind: PRIMARY KEY, UNIQUE KEY, KEY."""

    def __init__(self, name, kind, columns, parts):
        self.name, self.kind, self.columns, self.parts = name, kind, columns, parts

    def sql(self):
        """As CREATE has it."""
        name = "" if self.kind == "PRIMARY KEY" else f" {self.name}"
        return f"{self.kind}{name} ({','.join(self.parts)})"

    def forced(self):
        """Its name in FORCE INDEX."""
        return "PRIMARY" if self.kind == "PRIMARY KEY" else self.name


class KeyRun(Run):
    """One seed."""

    def __init__(self, srv, seed, steps):
        super().__init__(srv, seed, steps)
        self.made, self.counts_warnings = 0, False
        for s in self.sessions:
            self.switch_on(s)

    def switch_on(self, s):
        """What a session needs."""
        for c in s.twins:
            c.query("SET optimizer_use_condition_selectivity=1")

    def restart(self):
        super().restart()
        for s in self.sessions:
            self.switch_on(s)

    # -- tables -------------------------------------------------------------------------------------------------------
    def key_of(self, kind, columns, name):
        """A key over some of the columns; with prefixes where there must be, or may be."""
        r, parts, used = self.rng, [], []
        for c in r.sample(columns, min(len(columns), r.choice([1, 1, 1, 2, 3]))):
            length = ""
            if c.kind in ("string", "binary") and ("TEXT" in c.type or "BLOB" in c.type or c.limit > MOST_PREFIX or r.random() < 0.2):
                if c.limit == 0:
                    continue
                length = f"({r.randint(1, min(c.limit, MOST_PREFIX))})"
            parts.append(c.name + length + r.choice(["", "", " DESC"]))
            used.append(c)
        return Key(name, kind, used, parts) if parts else None

    def create(self, s, temporary=False):
        r, columns = self.rng, []
        for _ in range(r.choice([1, 2, 4, 6])):
            c = self.make.column(columns)
            if c.kind not in ("geometry", "json") and "COMPRESSED" not in c.type:
                columns.append(c)
        keys = [Key("PRIMARY", "PRIMARY KEY", [], [r.choice(["id", "id", "id DESC"])])] if r.random() < 0.6 else []
        if not keys and r.random() < 0.5:
            keys.append(Key("u0", "UNIQUE KEY", [], ["id"]))
        for n in range(r.choice([0, 1, 2, 3])):
            key = self.key_of(r.choice(["UNIQUE KEY", "KEY", "KEY"]), columns, f"k{n}") if columns else None
            keys += [key] if key else []
        self.made += len(keys)
        name = self.make.fresh("t")
        body = ",".join(["id INT NOT NULL"] + [c.sql() for c in columns] + [k.sql() for k in keys])
        if s.execute(f"CREATE {'TEMPORARY ' if temporary else ''}TABLE {name} ({body}) {{options}}", compare=False):
            table = Table(name, columns, s.number if temporary else None)
            table.keys = keys
            self.tables.append(table)

    def unique(self, t):
        """Columns of unique keys, and those of which columns in them are made."""
        keyed = [c for k in t.keys if k.kind != "KEY" for c in k.columns]
        return {c.name for c in keyed} | {c.name for c in t.columns for g in keyed if g.generated and c.name in g.generated[0]}

    # -- reading ------------------------------------------------------------------------------------------------------
    def weighed(self, c):
        """A column so that what a collation takes for equal looks equal."""
        if c.kind == "string":
            return f"HEX(WEIGHT_STRING({c.name} AS CHAR({max(1, min(c.limit, 30))})))"
        return c.shown()

    def condition(self, c):
        """One that a key can answer."""
        r, value = self.rng, lambda: self.make.value(c, plain=True)
        return r.choice([
            f"{c.name}={value()}", f"{c.name}={value()}", f"{c.name}<=>{self.make.value(c)}", f"{c.name}>{value()}", f"{c.name}<={value()}",
            f"{c.name} BETWEEN {value()} AND {value()}", f"{c.name} IN ({value()},{value()},{value()})", f"{c.name} IS NULL", f"{c.name} IS NOT NULL",
            f"{c.name}<>{value()}", f"{c.name} LIKE CONCAT(LEFT({value()},1),'%')" if c.kind == "string" else f"{c.name}<{value()}"])

    def by_id(self):
        """A condition on id."""
        r = self.rng
        n = r.randint(0, 80)
        return r.choice([f"id={n}", f"id={n}", f"id<{n}", f"id>={n}", f"id BETWEEN {n} AND {n + 9}", f"id IN ({n},{n + 1},{n + 7})", f"id<>{n}"])

    def where(self, t):
        """A condition on some key, and perhaps more."""
        r = self.rng
        key = r.choice(t.keys) if t.keys else None
        columns = key.columns if key and key.columns else []
        some = [self.condition(c) for c in columns if r.random() < 0.8] or [self.by_id()]
        if r.random() < 0.3:
            some.append(self.make.predicate(t.columns))
        return r.choice([" AND ", " AND ", " OR "]).join(f"({one})" for one in some)

    def from_(self, t):
        """The table, with a key that must be used or not."""
        r = self.rng
        if not t.keys or r.random() < 0.4:
            return t.name
        return f"{t.name} {r.choice(['FORCE', 'FORCE', 'IGNORE'])} INDEX ({r.choice(t.keys).forced()})"

    def read(self, s):
        r, t = self.rng, self.table(s)
        if t is None:
            return
        where, from_, what = self.where(t), self.from_(t), r.randrange(12)
        c = r.choice(t.columns) if t.columns else None
        if what == 0:
            self.compare(s, t)
        elif what == 1:
            s.execute(f"SELECT COUNT(*),SUM(id) FROM {from_} WHERE {where}")
        elif what == 2:
            s.execute(f"SELECT {t.select()} FROM {from_} WHERE {where}")
        elif what == 3:
            way = r.choice(["", " DESC"])
            s.execute(f"SELECT id FROM {from_} WHERE {where} ORDER BY id{way}" + r.choice(["", f" LIMIT {r.randint(1, 9)}"]), ordered=bool(self.id_is_unique(t)))
        elif what in (4, 5) and c:
            s.execute(f"SELECT {self.weighed(c)} FROM {from_} WHERE {where} ORDER BY {c.name}{r.choice(['', ' DESC'])}", ordered=c.kind not in ("float", "bit"))
        elif what == 6 and c and c.kind not in ("enum", "set", "bit"):
            weigh = self.weighed(c).replace(c.name, "m", 1) if c.kind == "string" else ("HEX(m)" if c.kind == "binary" else "m")
            s.execute(f"SELECT {weigh} FROM (SELECT {r.choice(['MIN', 'MAX'])}({c.name}) m FROM {from_} WHERE {where}) x")
        elif what == 7 and c:
            s.execute(f"SELECT COUNT(*) FROM (SELECT DISTINCT {c.name} FROM {from_}) x")
        elif what == 8 and c:
            s.execute(f"SELECT COUNT(*),SUM(id) FROM {from_} GROUP BY {c.name}")
        elif what == 9:
            u = self.table(s)
            on = "a.id=b.id"
            if c and not c.generated and r.random() < 0.5 and u is t:
                on = f"a.{c.name}=b.{c.name}"
            s.execute(f"SELECT COUNT(*),SUM(a.id),SUM(b.id) FROM {t.name} a {r.choice(['JOIN', 'LEFT JOIN'])} {u.name} b ON {on}")
        elif what == 10 and self.may_write(s) and s.open:
            s.wrote = True
            s.execute(f"SELECT {t.select()} FROM {from_} WHERE {where} {r.choice(['FOR UPDATE', 'LOCK IN SHARE MODE', 'FOR UPDATE NOWAIT', 'FOR UPDATE SKIP LOCKED'])}")
            return  # a locking read opens no view
        else:
            s.execute(f"SELECT COUNT(*) FROM {t.name} WHERE id IN (SELECT id FROM {t.name} WHERE {where})")
        s.viewed = s.viewed or s.open

    def id_is_unique(self, t):
        """Has id a unique key of its own?"""
        return any(k.kind != "KEY" and not k.columns for k in t.keys)

    # -- writing ------------------------------------------------------------------------------------------------------
    def row(self, columns):
        self.next_id = self.rng.randint(0, 90)
        return f"({self.next_id}" + "".join("," + self.make.value(c) for c in columns) + ")"

    def write(self, s):
        if not self.may_write(s):
            return
        r, t = self.rng, self.table(s)
        if t is None:
            return
        if s.open and s.repeatable and s.viewed and s.stale:
            return
        if s.open:
            s.wrote = True
        columns, unique = t.written(), self.unique(t)
        plain = [c for c in columns if c.name not in unique]
        names, where, from_, what = ",".join(["id"] + [c.name for c in columns]), self.where(t), self.from_(t), r.randrange(18)
        if what <= 4:
            some = [c for c in columns if r.random() < 0.9]
            verb = r.choice(["INSERT", "INSERT", "INSERT", "INSERT IGNORE", "REPLACE"])
            rows = ",".join(self.row(some) for _ in range(r.choice([1, 1, 2, 5, 30])))
            s.execute(f"{verb} INTO {t.name} ({','.join(['id'] + [c.name for c in some])}) VALUES {rows}")
        elif what <= 6:
            change = ["id=id+100"] + [f"{c.name}={self.make.value(c)}" for c in r.sample(columns, min(2, len(columns)))]
            s.execute(f"INSERT INTO {t.name} ({names}) VALUES {self.row(columns)} ON DUPLICATE KEY UPDATE {','.join(r.sample(change, r.randint(1, len(change))))}")
        elif what <= 9:
            n, first = r.choice([3, 20, 100, 1000]), r.choice([0, 50, 1000, 5000])
            expressions = "".join("," + self.make.from_seq(c) for c in columns)
            s.execute(f"{r.choice(['INSERT', 'INSERT IGNORE', 'REPLACE'])} INTO {t.name} ({names}) SELECT seq+{first}{expressions} FROM mysql.numbers WHERE seq<={n} ORDER BY seq")
        elif what <= 12 and plain:
            sets = ",".join(f"{c.name}={self.make.value(c)}" for c in r.sample(plain, r.randint(1, min(3, len(plain)))))
            s.execute(f"UPDATE {r.choice(['', '', 'IGNORE '])}{from_} SET {sets} WHERE {where}")
        elif what == 13 and columns and self.id_is_unique(t):
            c = r.choice(columns)
            s.execute(f"UPDATE {r.choice(['', 'IGNORE '])}{t.name} SET {c.name}={self.make.value(c)}{r.choice(['', ',id=id+7', ',id=id'])} WHERE id={r.randint(0, 90)}")
        elif what == 14 and self.id_is_unique(t) and t.temporary is None:
            # InnoDB 10.11 loses rows of a temporary table whose primary key changes in all of them: of 1,103 it gave 25.
            s.execute(f"UPDATE {t.name} SET id=id+{r.randint(1, 9)} WHERE {where} ORDER BY id DESC")
        elif what == 15:
            s.execute(f"DELETE FROM {t.name} WHERE {where}" + (f" ORDER BY id LIMIT {r.randint(1, 9)}" if self.id_is_unique(t) and r.random() < 0.4 else ""))
        elif what == 16 and r.random() < 0.3:
            s.execute(r.choice([f"DELETE FROM {t.name}", f"DELETE FROM {t.name} WHERE id%10<>0"]))
        else:
            s.execute(f"DELETE FROM {t.name} WHERE {self.by_id()}")
        if r.random() < 0.25 and (not s.open or s.viewed or not s.repeatable):
            self.compare(s, t)
        if not s.open and self.other(s).open:
            self.other(s).stale = True

    def end(self, s, how):
        """As ever; but InnoDB 10.11 may lose rows of a temporary table by a ROLLBACK: of two that were there before it gave none."""
        undone = s.open and how == "ROLLBACK"
        super().end(s, how)
        for t in [t for t in self.tables if undone and t.temporary == s.number]:
            s.execute(f"DROP TEMPORARY TABLE {t.name}", compare=False)
            self.tables.remove(t)

    # -- definitions --------------------------------------------------------------------------------------------------
    def ddl(self, s):
        r, o = self.rng, self.other(s)
        if r.random() < 0.1:
            self.create(s, temporary=True)  # does not commit
            return
        self.end(s, "COMMIT")
        if len(self.tables) < 3:
            self.create(s)
            return
        t = self.table(s, touch=False)
        if t is None or t.name in o.touched:
            return
        o.stale = o.stale or o.open
        what = r.randrange(8)
        if what <= 1 and t.columns:
            key = self.key_of(r.choice(["UNIQUE KEY", "KEY", "KEY"]), t.columns, self.make.fresh("k"))
            if key and s.execute(f"ALTER TABLE {t.name} ADD {key.sql()}", compare=False):
                t.keys = t.keys + [key]
        elif what == 2 and t.keys:
            key = r.choice(t.keys)
            if s.execute(f"ALTER TABLE {t.name} DROP {'PRIMARY KEY' if key.kind == 'PRIMARY KEY' else 'KEY ' + key.name}", compare=False):
                t.keys = [k for k in t.keys if k is not key]
        elif what == 3:
            s.execute(f"TRUNCATE TABLE {t.name}", compare=False)
        elif what == 4:
            # InnoDB's OPTIMIZE makes the table anew, which older views then cannot read.
            ways = [f"ALTER TABLE {t.name} FORCE", f"CHECK TABLE {t.name} EXTENDED", f"ANALYZE TABLE {t.name}"] + ([] if o.open else [f"OPTIMIZE TABLE {t.name}"])
            s.execute(r.choice(ways), compare=False)
        elif what == 5 and len(self.tables) > 4:
            s.execute(f"DROP {'TEMPORARY ' if t.temporary is not None else ''}TABLE {t.name}", compare=False)
            self.tables.remove(t)
            return
        self.compare(s, t)


@pytest.fixture(scope="module")
def twins(module_servers):
    """The server of all seeds."""
    settings = {**twins_of.SETTINGS, "sort_buffer_size": 16 << 20} if "Esker" in twins_of.ENGINES else twins_of.SETTINGS
    s = module_servers("keys", settings, folder=os.environ.get("FOLDER"))
    s.create(fresh=True)
    return s


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_keys(twins, again, seed):
    """One seed."""
    assert run_seed(KeyRun, twins, again, seed, STEPS).made, "no keys"


def test_stop(twins):
    """The server stops in order after all of them."""
    assert twins.stop()
