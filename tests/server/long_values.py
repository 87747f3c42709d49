"""Random SQL over tables with long values, and the cursors of all sorts that they meet: what long_values_test.py runs.

Each table has the same columns, so that every statement fits every table, and by chance keys on prefixes of blobs, a UNIQUE over a
whole TEXT, generated columns of blobs, partitions, system versioning, CHECK constraints, triggers and views.
"""

KINDS = ("id", "k", "u", "b1", "b2", "j", "v", "w")
TEXTS = ("b1", "b2", "v")
MOST = 100000  # bytes beyond which a value does not grow by itself


class Table:
    """What is known of a table."""

    def __init__(self, rng, name):
        r = self.rng = rng
        self.name, self.keys, self.generated, self.checks, self.triggers = name, [], [], [], []
        self.versioned = r.random() < 0.2
        self.partition = r.choice(["", "", "", "HASH (id) PARTITIONS 3", "KEY (id) PARTITIONS 2",
                                   "RANGE (id) (PARTITION p0 VALUES LESS THAN (15), PARTITION p1 VALUES LESS THAN (40), PARTITION p2 VALUES LESS THAN MAXVALUE)"])
        self.long_unique = not self.partition and r.random() < 0.2
        self.period = not self.partition and not self.versioned and not self.long_unique and r.random() < 0.1
        self.id_is_unique = not self.period
        self.sequence = r.random() < 0.15

    def columns(self):
        """With their types, keys and conditions, as CREATE TABLE has them."""
        r = self.rng
        text, blob = r.choice(["MEDIUMTEXT", "LONGTEXT", "TEXT"]), r.choice(["MEDIUMBLOB", "LONGBLOB", "BLOB"])
        charset = r.choice(["", "", "", " CHARACTER SET latin1 COLLATE latin1_bin", " COLLATE utf8mb4_unicode_ci", " COLLATE utf8mb4_nopad_bin"])
        lines = ["id INT NOT NULL" if self.id_is_unique else "id INT", "k INT", "u INT", f"b1 {text}{charset}", f"b2 {blob}" + r.choice(["", "", " DEFAULT 'none'"]),
                 r.choice(["j JSON", "j LONGTEXT CHECK (json_valid(j))"]), f"v VARCHAR({r.choice([300, 700, 3000])})", "w TEXT"]
        if self.sequence:
            lines.append("sq BIGINT DEFAULT (NEXTVAL(seq))")
        if self.period:
            lines += ["ps DATE NOT NULL DEFAULT '2000-01-01'", "pe DATE NOT NULL DEFAULT '2030-01-01'", "PERIOD FOR p (ps, pe)"]
        return lines + self.made_columns() + self.key_lines()

    def made_columns(self):
        """Generated columns, and what is checked."""
        r = self.rng
        some = {"g1": "VARCHAR(12) AS (LEFT(b1,12)) VIRTUAL", "g2": "CHAR(32) AS (MD5(b2)) STORED", "g3": "MEDIUMTEXT AS (CONCAT(IFNULL(b1,''),'!')) STORED",
                "g4": "LONGTEXT AS (CONCAT_WS('-',LEFT(v,3),b1)) VIRTUAL", "g5": "INT AS (LENGTH(b2)) VIRTUAL"}
        self.generated = [g for g in some if r.random() < 0.35]
        if self.versioned:  # REPLACE puts freed memory into a stored blob of a versioned table, with every engine
            self.generated = [g for g in self.generated if g != "g3"]
        if self.partition:  # a scan in the order of a key may give another row's virtual blob, with every engine
            self.generated = [g for g in self.generated if g != "g4"]
        lines = [f"{g} {some[g]}" for g in self.generated]
        lines += [c for c in ("CHECK (LENGTH(b2)<290000)", "CHECK (b1 NOT LIKE '%bad%')", "CHECK (k<>77)") if r.random() < 0.3]
        return lines

    def key_lines(self):
        """Keys of all kinds."""
        r = self.rng
        lines = ["KEY (id)" if self.period else r.choice(["PRIMARY KEY (id)"] * 3 + ["UNIQUE KEY ui (id)"])]
        self.pk = "id" if self.period else "PRIMARY" if lines[0].startswith("PRI") else "ui"
        self.keys = [self.pk]
        keys = {"kk": "(k)", "kb1": "(b1(10))", "kb2": "(b2(30), k)", "kkb": "(k, b1(8))", "kv": "(v(20))", "kvk": "(k, v(300))", "ku": "(u)"}
        keys |= {g: f"({g}" + {"g3": "(20)", "g4": "(10)"}.get(g, "") + ")" for g in self.generated if g != "g4"}
        for name, parts in keys.items():
            if r.random() < 0.45:
                self.keys.append(name)
                unique = "UNIQUE " if name == "ku" and not self.partition and r.random() < 0.6 else ""
                lines.append(f"{unique}KEY {name} {parts}")
        if self.long_unique:
            lines.append("UNIQUE KEY lw (w)")
        return lines

    def create(self):
        """The statement."""
        columns = self.columns()
        return (f"CREATE TABLE {self.name} ({', '.join(columns)}) %OPTIONS%" + (" WITH SYSTEM VERSIONING" if self.versioned else "") +
                (f" PARTITION BY {self.partition}" if self.partition else ""))

    def shown(self, prefix=""):
        """All columns, every byte, in little."""
        p = prefix
        made = "".join(f",{p}{g}" if g in ("g1", "g2", "g5") else f",CRC32({p}{g})" for g in self.generated)
        return f"{p}id,{p}k,{p}u,LENGTH({p}b1),CRC32({p}b1),LENGTH({p}b2),CRC32({p}b2),CRC32({p}j),CRC32({p}v),CRC32({p}w){made}" + (f",{p}ps,{p}pe" if self.period else "")

    def trigger_sql(self, others):
        """Some triggers; they write only to tables behind this one, so that none comes back."""
        r, t, made = self.rng, self.name, []
        behind = r.choice(others) if others else None
        bodies = [
            ("BEFORE INSERT", "SET NEW.v=IFNULL(NEW.v,LEFT(NEW.b1,40))"),
            ("BEFORE INSERT", "IF NEW.k=13 THEN SIGNAL SQLSTATE '45000'; END IF"),
            ("BEFORE INSERT", "SET NEW.b2=IF(LENGTH(NEW.b2)<50000,CONCAT(NEW.b2,IFNULL(NEW.v,'')),NEW.b2)"),
            ("BEFORE UPDATE", "SET NEW.j=JSON_OBJECT('old',LENGTH(OLD.b1),'a',NEW.k,'c',JSON_ARRAY(1,NEW.k))"),
            ("BEFORE UPDATE", "SET NEW.b2=IF(LENGTH(OLD.b2)<50000,CONCAT(OLD.b2,'u'),NEW.b2)"),
            ("BEFORE UPDATE", "SET NEW.b1=IFNULL(NEW.b1,OLD.b1), NEW.v=IF(NEW.v IS NULL,LEFT(OLD.b1,60),NEW.v)"),
            ("BEFORE UPDATE", f"SET @q=(SELECT b1 FROM {t} WHERE id=OLD.id LIMIT 1)"),
            ("BEFORE UPDATE", "IF NEW.k=14 THEN SIGNAL SQLSTATE '45000'; END IF"),
            ("AFTER UPDATE", f"INSERT INTO log (what,id,x) VALUES ('au{t}',OLD.id,CONCAT_WS('|',LEFT(OLD.b1,3000),MD5(NEW.b1),MD5(OLD.b2),MD5(NEW.b2)))"),
            ("AFTER UPDATE", f"INSERT INTO log (what,id,x) SELECT 'as{t}',id,MD5(CONCAT_WS('|',b1,OLD.b1,NEW.b2)) FROM {t} WHERE id=NEW.id LIMIT 1"),
            ("AFTER INSERT", f"INSERT INTO log (what,id,x) VALUES ('ai{t}',NEW.id,NEW.b1)"),
            ("AFTER DELETE", f"INSERT INTO log (what,id,x) VALUES ('ad{t}',OLD.id,OLD.b2)"),
            ("BEFORE DELETE", f"INSERT INTO log (what,id,x) SELECT 'bd{t}',id,MD5(b1) FROM {t} WHERE id=OLD.id LIMIT 1"),
        ]
        if behind is not None:
            n = behind.name
            bodies += [
                ("AFTER INSERT", f"UPDATE {n} SET b2=NEW.b1,v=LEFT(NEW.v,200) WHERE id=NEW.id"),
                ("AFTER UPDATE", f"UPDATE {n} SET b1=OLD.b1,k=NEW.k WHERE id=NEW.id AND k<5"),
                ("AFTER DELETE", f"INSERT IGNORE INTO {n} (id,k,b1,b2) VALUES (OLD.id,OLD.k,OLD.b1,LEFT(OLD.b2,1000))"),
                ("BEFORE UPDATE", f"SET NEW.b2=(SELECT MAX(b1) FROM {n} WHERE id=NEW.id)"),
            ]
        if self.generated:  # the server computes them before the triggers of a deferred UPDATE of several tables, and they stay so
            bodies = [(when, body) for when, body in bodies if when != "BEFORE UPDATE" or not body.startswith("SET NEW.b")]
        for n, (when, body) in enumerate(r.sample(bodies, r.choice([0, 0, 1, 2, 4]))):
            made.append(f"CREATE TRIGGER {t}_{n} {when} ON {t} FOR EACH ROW BEGIN {body}; END")
        return made


class Maker:
    """Makes pieces of SQL."""

    def __init__(self, rng):
        self.rng = rng

    def chance(self, p):
        """True so often."""
        return self.rng.random() < p

    def text(self, null=True):
        """A value of any length."""
        r = self.rng
        p, n = r.random(), r.randint(1, 9)
        if p < 0.07 and null:
            return "NULL"
        if p < 0.13:
            return "''"
        if p < 0.45:
            return r.choice([f"REPEAT('{r.choice('abcde')}',{n})", f"'word{n}'", f"MD5({n})", "'a漢b'" if self.chance(0.2) else f"'x{n}'", "'bad'" if self.chance(0.1) else "'good'"])
        if p < 0.68:
            return f"REPEAT(MD5({n}),{r.choice([5, 20, 20, 60])})"
        if p < 0.85:
            return f"REPEAT(MD5({n}),{r.choice([260, 512, 700])})"
        if p < 0.95:
            return f"REPEAT(MD5({n}),{r.choice([2040, 2200])})"
        return f"REPEAT(MD5({n}),{r.choice([5000, 9300])})"

    def short(self):
        """For VARCHAR."""
        r = self.rng
        return r.choice(["NULL", "''", f"'v{r.randint(1, 9)}'", f"REPEAT(MD5({r.randint(1, 5)}),{r.choice([1, 5, 9])})"])

    def json(self):
        """A document."""
        r = self.rng
        return r.choice(["NULL", f"JSON_OBJECT('a',{r.randint(0, 9)},'b',REPEAT('y',{r.choice([0, 10, 3000, 90000])}),'c',JSON_ARRAY(1,{r.randint(0, 5)}))", "JSON_ARRAY(1,2,3)", "'{\"a\": 1' " if self.chance(0.1) else "'{}'"])

    def row(self, some_id=None):
        """Values of KINDS."""
        r = self.rng
        number = some_id if some_id is not None else r.randint(1, 60)
        k = r.choice([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, "NULL"]) if not self.chance(0.03) else r.choice([13, 14, 77])
        u = r.choice([number, number, number, r.randint(1, 70), "NULL"])
        w = r.choice(["NULL", f"'w{number}'", f"CONCAT(REPEAT('w',{r.choice([10, 4000])}),{r.choice([number, number, 1])})"])
        return f"({number},{k},{u},{self.text()},{self.text()},{self.json()},{self.short()},{w})"

    def changed(self, a="", null=True):
        """A text made of a row's columns."""
        r = self.rng
        return r.choice([
            self.text(null), self.text(null), f"IF(LENGTH({a}b1)<{MOST},CONCAT({a}b1,'+'),'cut')", f"LEFT({a}b1,LENGTH({a}b1) DIV 2)", f"REVERSE({a}b1)",
            f"IFNULL({a}b1,{a}v)", f"REPLACE(LEFT({a}b1,9000),'a','bb')", f"RPAD({a}v,70000,'q')", f"CONCAT_WS('/',{a}v,LEFT({a}b1,20))", f"LOWER({a}b1)",
            f"IF(LENGTH({a}b1)<{MOST // 2},CONCAT({a}b1,{a}b1),MD5({a}b1))", f"{a}b1", f"f1({a}id)", f"TRIM(BOTH 'a' FROM {a}b1)"])

    def sets(self, a="", unique=False):
        """Assignments; of unique columns only where they are wanted."""
        r = self.rng
        some = [f"{a}b1={self.changed(a)}", f"{a}b2={self.changed(a)}", f"{a}v=LEFT({self.changed(a)},200)", f"{a}j={self.json()}", f"{a}k={r.choice(['0', '3', '9', a + 'k+1', '77', '14'] if self.chance(0.2) else ['1', '2', '5', a + 'k'])}",
                f"{a}b2={a}b1", f"{a}b1=CONCAT('m',MD5({a}b2))", f"{a}j=JSON_SET({a}j,'$.a',{r.randint(0, 9)})", f"{a}k={a}k DIV ({a}id-{r.randint(1, 60)})" if self.chance(0.2) else f"{a}v=REVERSE({a}v)"]
        if unique:
            some += [f"{a}u={a}u+1", f"{a}id={a}id+100", f"{a}u={r.randint(1, 70)}", f"{a}w=CONCAT({a}w,'x')", f"{a}w=NULL", f"{a}w='same'"]
        return ",".join(r.sample(some, r.choice([1, 1, 2, 3])))

    def where(self, t, a=""):
        """A condition on some of the columns."""
        r = self.rng
        n, m = r.randint(1, 60), r.randint(0, 9)
        few = ",".join(str(r.randint(1, 60)) for _ in range(r.choice([2, 5, 12])))
        ones = [
            f"{a}id={n}", f"{a}id<{n}", f"{a}id>={n}", f"{a}id BETWEEN {n} AND {n + 12}", f"{a}id IN ({few})", f"{a}k={m}", f"{a}k={m}", f"{a}k IN ({m},{(m + 3) % 10},9)", f"{a}k>{m}", f"{a}k BETWEEN 2 AND {m}",
            f"{a}b1 LIKE '{r.choice('abcde')}%'", f"{a}b1={self.text(False)}", f"{a}b1>{self.text(False)}", f"LEFT({a}b1,4)='word'", f"{a}b2={self.text(False)}", f"{a}b2 IN ({self.text(False)},{self.text(False)},'a')", f"LENGTH({a}b1)>{r.choice([0, 3, 3000])}", f"{a}v LIKE 'v%'", f"{a}v={self.text(False)}",
            f"JSON_VALUE({a}j,'$.a')={m}", f"{a}b1 IS NULL", f"{a}u={n}", f"{a}u BETWEEN {n} AND {n + 9}", f"{a}w='w{n}'", f"{a}w LIKE 'www%'", f"{a}k IS NULL", f"{a}b1 BETWEEN 'a' AND 'c'", f"{a}b2<'5'", "1"]
        ones += [{"g1": f"{a}g1 LIKE 'a%'", "g2": f"{a}g2=MD5({self.text(False)})", "g3": f"{a}g3>'c'", "g4": f"{a}g4 LIKE 'v%'", "g5": f"{a}g5>{r.choice([0, 30, 9000])}"}[g] for g in t.generated]
        some = [f"({one})" for one in r.sample(ones, r.choice([1, 1, 2, 3]))]
        return r.choice([" AND ", " AND ", " OR "]).join(some)

    def source(self, t, alias=""):
        """The table, perhaps with a hint of keys."""
        r = self.rng
        if self.chance(0.6):
            return f"{t.name} {alias}"
        return f"{t.name} {alias} {r.choice(['FORCE', 'USE', 'IGNORE'])} INDEX ({','.join(r.sample(t.keys, min(len(t.keys), r.choice([1, 1, 2]))))})"
