"""Random columns, values and statements for the differential test: everything that a seed decides.

A Table here is what the test knows of a table of the server: its columns. All text is the same for every engine, except
for "{options}", which stands for the table options of the engine.
"""

LATIN = "abcXYZ 019_-.%'\\äöüßé"
WIDE = LATIN + "€Ωж日本語"
CHARSETS = {"latin1": LATIN, "utf8mb3": WIDE, "utf8mb4": WIDE + "😀𝄞", "ucs2": WIDE, "utf16": WIDE + "😀", "utf32": WIDE + "😀", "ascii": "abcXYZ 019",
            "cp1251": "abcж 1", "sjis": "abc日本語 "}
COLLATIONS = {"latin1": ["latin1_swedish_ci", "latin1_bin"], "utf8mb4": ["utf8mb4_general_ci", "utf8mb4_bin", "utf8mb4_unicode_ci", "utf8mb4_nopad_bin"],
              "ucs2": ["ucs2_general_ci", "ucs2_bin"], "utf32": ["utf32_general_ci", "utf32_unicode_ci"]}
INTS = {"TINYINT": 8, "SMALLINT": 16, "MEDIUMINT": 24, "INT": 32, "BIGINT": 64}
SIZES = {"TINY": 255, "": 65535, "MEDIUM": 1 << 24, "LONG": 1 << 32}
TEMPORAL = ["DATE", "TIME", "TIME(1)", "TIME(3)", "TIME(6)", "DATETIME", "DATETIME(2)", "DATETIME(4)", "DATETIME(6)", "TIMESTAMP", "TIMESTAMP(3)", "TIMESTAMP(6)", "YEAR"]


def text(value):
    """A string literal."""
    return "_utf8mb4'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


class Column:
    """kind: number, float, bit, temporal, string, binary, geometry, inet, uuid, json, enum, set."""

    def __init__(self, name, type_, kind, limit=0, chars=LATIN, members=()):
        self.name, self.type, self.kind, self.limit, self.chars, self.members = name, type_, kind, limit, chars, members
        self.nullable, self.default, self.generated, self.rest = True, None, None, ""

    def sql(self):
        """As CREATE and ALTER have it."""
        if self.generated:
            return f"{self.name} {self.type} AS ({self.generated[0]}) {self.generated[1]}"
        null = "NULL" if self.nullable else "NOT NULL"
        return f"{self.name} {self.type} {null}" + (f" DEFAULT {self.default}" if self.default is not None else "") + self.rest

    def shown(self):
        """In a select list, so that every byte is seen."""
        return f"HEX({self.name})" if self.kind in ("bit", "string", "binary", "geometry", "json", "enum", "set") else self.name

    def order(self):
        """Tells apart what a collation or a rounded text does not."""
        if self.kind in ("number", "float", "enum", "set"):
            return f"{self.name}+0,MD5({self.name})"
        return f"MD5({self.name})"


class Generator:
    """The seed's choices. rng is the only source of chance."""

    def __init__(self, rng):
        self.rng, self.names = rng, 0
        # InnoDB gives a column that is NULL the bytes of its default, and then takes NULL set to NULL for a change when the
        # table has an ON UPDATE column: so either ON UPDATE or defaults of columns that can be NULL.
        self.on_update = rng.random() < 0.3

    def fresh(self, letter):
        """A name that was not used before."""
        self.names += 1
        return f"{letter}{self.names}"

    # -- columns ------------------------------------------------------------------------------------------------------
    def plain_column(self, name):
        """A column of any type."""
        r = self.rng
        what = r.randrange(16)
        if what <= 2:
            base = r.choice(list(INTS))
            unsigned = r.random() < 0.4
            return Column(name, base + (" UNSIGNED" if unsigned else "") + (" ZEROFILL" if r.random() < 0.1 else ""), "number", INTS[base])
        if what == 3:
            digits = r.choice([1, 5, 9, 10, 18, 30, 65])
            return Column(name, f"DECIMAL({digits},{r.randint(0, min(digits, 30))})" + (" UNSIGNED" if r.random() < 0.2 else ""), "number", 32)
        if what == 4:
            return Column(name, r.choice(["FLOAT", "DOUBLE", "DOUBLE UNSIGNED", "FLOAT(7,2)"]), "float")
        if what == 5:
            bits = r.choice([1, 3, 8, 9, 31, 64])
            return Column(name, f"BIT({bits})", "bit", bits)
        if what in (6, 7):
            return Column(name, r.choice(TEMPORAL), "temporal")
        if what == 8:
            n = r.choice([2, 9, 300])
            members = [f"m{i}" for i in range(n)] if r.random() < 0.7 or n > 64 else [f"m{i}" for i in range(n - 1)] + [""]
            if r.random() < 0.5:
                return Column(name, "ENUM(" + ",".join(f"'{m}'" for m in members) + ")", "enum", members=members)
            members = [f"s{i}" for i in range(min(n, r.choice([3, 9, 33, 64])))]
            return Column(name, "SET(" + ",".join(f"'{m}'" for m in members) + ")", "set", members=members)
        if what in (9, 10):
            charset = r.choice(list(CHARSETS))
            n = r.choice([0, 1, 2, 10, 40, 100, 255])
            varying = r.random() < 0.6
            if varying and r.random() < 0.3:
                n = r.choice([256, 1000, 3000])
            type_ = f"{'VARCHAR' if varying else 'CHAR'}({n})" + (" COMPRESSED" if varying and n > 40 and charset not in ("ucs2", "utf16", "utf32") and r.random() < 0.2 else "")
            collate = f" COLLATE {r.choice(COLLATIONS[charset])}" if charset in COLLATIONS and r.random() < 0.5 else ""
            return Column(name, f"{type_} CHARACTER SET {charset}{collate}", "string", n, CHARSETS[charset])
        if what == 11:
            n = r.choice([1, 7, 16, 255, 300])
            return Column(name, f"VARBINARY({n})" if n > 255 or r.random() < 0.5 else f"BINARY({n})", "binary", n)
        if what == 12:
            charset, size = r.choice(list(CHARSETS)), r.choice(list(SIZES))
            return Column(name, f"{size}TEXT" + (" COMPRESSED" if size and charset not in ("ucs2", "utf16", "utf32") and r.random() < 0.2 else "") + f" CHARACTER SET {charset}", "string", SIZES[size], CHARSETS[charset])
        if what == 13:
            size = r.choice(list(SIZES))
            return Column(name, f"{size}BLOB" + (" COMPRESSED" if r.random() < 0.15 else ""), "binary", SIZES[size])
        if what == 14:
            return r.choice([Column(name, "INET6", "inet"), Column(name, "UUID", "uuid"), Column(name, "INET4", "inet4")])
        return r.choice([Column(name, "JSON", "json"), Column(name, r.choice(["GEOMETRY", "POINT", "LINESTRING"]), "geometry")])

    def column(self, others=()):
        """Any column, with NOT NULL, a default, or generated from others."""
        r, column = self.rng, self.plain_column(self.fresh("c"))
        base = [c for c in others if not c.generated and c.kind not in ("geometry", "json")]
        if base and r.random() < 0.2:
            a, b = r.choice(base), r.choice(base)
            column = Column(column.name, "VARCHAR(80) CHARACTER SET utf8mb4", "string", 80)
            expression = r.choice([f"LEFT(CONCAT_WS(':',HEX({a.name}),HEX({b.name})),80)", f"MD5({a.name})", f"LENGTH({a.name})", f"COALESCE(LENGTH({a.name}),-1)+COALESCE(LENGTH({b.name}),-1)"])
            column.generated = (expression, r.choice(["VIRTUAL", "STORED"]))
            return column
        column.nullable = r.random() < 0.7
        may_default = not self.on_update or not column.nullable
        if may_default and r.random() < 0.3 and column.kind != "geometry":
            column.default = self.value(column, plain=True)
            if column.default == "NULL":
                column.default = None
            elif column.kind in ("string", "binary", "json", "bit", "uuid", "inet", "inet4"):
                column.default = f"({column.default})"
        if column.type.startswith("TIMESTAMP") or column.type.startswith("DATETIME"):
            if may_default and r.random() < 0.4:
                digits = column.type.partition("(")[2].rstrip(")")
                now = f"CURRENT_TIMESTAMP({digits})" if digits else "CURRENT_TIMESTAMP"
                column.default, column.rest = now, f" ON UPDATE {now}" if self.on_update and r.random() < 0.6 else ""
        if r.random() < 0.05:
            column.rest += f" CHECK ({column.name} IS NULL OR LENGTH({column.name})<>3)"
        if r.random() < 0.05 and column.nullable:
            column.rest = " INVISIBLE" + column.rest
        return column

    # -- values -------------------------------------------------------------------------------------------------------
    def string_of(self, column):
        """Of all lengths up to what fits, and one more."""
        r = self.rng
        n = r.choice([0, 1, 2, r.randint(0, 12), r.randint(0, 60), min(column.limit, 100), min(column.limit, 3000), min(column.limit + 1, 300)])
        if r.random() < 0.9:
            n = min(n, column.limit)
        if n > 40:
            return f"REPEAT({text(r.choice(column.chars))},{n})"
        s = "".join(r.choice(column.chars) for _ in range(n))
        return text(s if r.random() < 0.8 else s[:-2] + "  "[:max(0, n)])

    def value(self, column, plain=False):
        """A literal for it; sometimes one that does not fit."""
        r, kind = self.rng, column.kind
        if column.nullable and not plain and r.random() < 0.15:
            return "NULL"
        if not plain and r.random() < 0.01:
            return r.choice(["NULL", "'nonsense'", "-1", "1e300", "REPEAT('w',70000)", "DEFAULT"])
        if kind == "number":
            if "DECIMAL" in column.type:
                return r.choice(["0", "1", "0.5", "0.000001", "9", "1.25", str(r.randint(0, 9))])
            top = (1 << column.limit) - 1 if "UNSIGNED" in column.type or "ZEROFILL" in column.type else (1 << (column.limit - 1)) - 1
            low = 0 if "UNSIGNED" in column.type or "ZEROFILL" in column.type else -top - 1
            return str(r.choice([0, 1, low, top, r.randint(low, top), r.randint(0, 100)]))
        if kind == "float":
            return r.choice(["0", "1.5", "0.1", "1e10", "3.25e5", str(r.randint(0, 1000)), "12345.678"])
        if kind == "bit":
            return str(r.randint(0, (1 << column.limit) - 1))
        if kind == "temporal":
            return self.temporal(column.type)
        if kind == "enum":
            return text(r.choice(column.members))
        if kind == "set":
            return text(",".join(sorted(set(r.choice(column.members) for _ in range(r.randint(0, 4))))))
        if kind == "string":
            return self.string_of(column)
        if kind == "binary":
            n = min(column.limit, r.choice([0, 1, 5, 16, 40, 255, 300, 4000, 70000 if column.limit > 70000 else 9]))
            if n > 40:
                return f"REPEAT(X'{r.randrange(256):02X}',{n})"
            return "X'" + "".join(f"{r.choice([0, 0, 32, 65, 255, r.randrange(256)]):02X}" for _ in range(n)) + "'"
        if kind == "inet":
            return r.choice(["'::'", "'2001:db8::ff00:42:8329'", f"'::{r.randrange(65536):x}'"])
        if kind == "inet4":
            return f"'{r.randrange(256)}.0.{r.randrange(256)}.1'"
        if kind == "uuid":
            return f"'{r.getrandbits(32):08x}-{r.getrandbits(16):04x}-1234-a234-{r.getrandbits(48):012x}'"
        if kind == "json":
            return r.choice(["'{}'", "'[]'", "'{\"k\": [1, 2, null]}'", "CONCAT('[\"',REPEAT('j'," + str(r.choice([1, 300, 20000])) + "),'\"]')"])
        point = f"POINT({r.randint(-9, 9)} {r.randint(-9, 9)})"
        line = f"LINESTRING({','.join(f'{r.randint(-9, 9)} {r.randint(-9, 9)}' for _ in range(r.choice([2, 3, 40])))})"
        return f"ST_GeomFromText('{line if column.type == 'LINESTRING' or (column.type == 'GEOMETRY' and r.random() < 0.5) else point}')"

    def temporal(self, type_):
        """A date, time or year literal with a fraction."""
        r = self.rng
        time = f"{r.randrange(24):02}:{r.randrange(60):02}:{r.randrange(60):02}.{r.randrange(1000000):06}"
        date = f"{r.choice([1000, 1970, 1999, 2024, 9999])}-{r.randint(1, 12):02}-{r.randint(1, 28):02}"
        if type_ == "YEAR":
            return str(r.choice([1901, 2155, 2000, 0, 1999]))
        if type_.startswith("TIMESTAMP"):
            return f"'{r.choice([1971, 2001, 2037])}-{r.randint(1, 12):02}-{r.randint(1, 28):02} {time}'"
        if type_.startswith("TIME"):
            return r.choice([f"'{time}'", "'-838:59:59'", "'838:59:59'", f"'-{time}'"])
        return f"'{date}'" if type_ == "DATE" else f"'{date} {time}'"

    def from_seq(self, column):
        """An expression of seq, for many different rows in one statement."""
        r, kind = self.rng, column.kind
        if kind in ("string", "binary"):
            top = min(column.limit, r.choice([3, 20, 100, 255]))
            return r.choice([f"LEFT(MD5(seq),{top})", f"REPEAT({text('q') if kind == 'string' else chr(39) + 'q' + chr(39)},seq%{top + 1})", self.value(column)])
        if kind in ("number", "float", "bit") and "DECIMAL" not in column.type:
            return r.choice([f"seq%{2 if kind == 'bit' else 100}", self.value(column)])
        if kind in ("enum", "set"):
            return f"1+seq%{min(3, len(column.members))}"
        return f"IF(seq%{r.randint(2, 9)},{self.value(column)},{self.value(column)})"

    # -- parts of statements ------------------------------------------------------------------------------------------
    def predicate(self, columns, prefix=""):
        """A WHERE that is true for some rows."""
        r = self.rng
        n = r.randint(0, 400)
        simple = r.choice([f"{prefix}id={n}", f"{prefix}id<{n}", f"{prefix}id>={n}", f"{prefix}id%{r.randint(2, 7)}={r.randint(0, 2)}", f"{prefix}id BETWEEN {n} AND {n + 30}"])
        usable = [c for c in columns if c.kind not in ("geometry", "json")]
        if not usable or r.random() < 0.5:
            return simple
        c = r.choice(usable)
        other = r.choice([f"{prefix}{c.name} IS NULL", f"{prefix}{c.name} IS NOT NULL", f"{prefix}{c.name}={self.value(c, plain=True)}", f"{prefix}{c.name}<={self.value(c, plain=True)}", f"LENGTH({prefix}{c.name})>{r.randint(0, 9)}"])
        return r.choice([other, f"{simple} AND {other}", f"{simple} OR {other}"])
