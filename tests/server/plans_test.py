"""Plans on Esker and InnoDB, side by side in one server: the same tables with the same keys and rows, the same statements;
the optimizer must choose the same kind of access, the same key and about the same number of rows, and all answers must be
alike. Where plans differ for a reason, docs/PLANS.md has it, and DIFFERENT below has the statement.

The tables are TPC-H's in small, with the keys of its specification, made by a generator of our own; the statements are
TPC-H's in their shapes, and others that go through the ways of reading by keys one by one.

    SCALE=1          multiplies the rows
    SEED=1           of the rows
    SHOW=1           prints both plans of every statement
"""
import random

from cases import check
from eskerlib import env, show

SCALE, SEED, SHOW = env.number("SCALE", 1), env.number("SEED", 1, least=0), env.number("SHOW", 0, least=0)
ENGINES = ("Esker", "InnoDB")
# An estimate of rows may be off by so much.
TIMES = 3

TABLES = {
    "region": "r_regionkey INT NOT NULL PRIMARY KEY, r_name CHAR(25) NOT NULL",
    "nation": "n_nationkey INT NOT NULL PRIMARY KEY, n_name CHAR(25) NOT NULL, n_regionkey INT NOT NULL, KEY i_n_region (n_regionkey)",
    "part": "p_partkey INT NOT NULL PRIMARY KEY, p_name VARCHAR(55) NOT NULL, p_mfgr CHAR(25) NOT NULL, p_brand CHAR(10) NOT NULL, "
            "p_type VARCHAR(25) NOT NULL, p_size INT NOT NULL, p_container CHAR(10) NOT NULL, p_retailprice DECIMAL(15,2) NOT NULL, KEY i_p_size (p_size, p_brand)",
    "supplier": "s_suppkey INT NOT NULL PRIMARY KEY, s_name CHAR(25) NOT NULL, s_nationkey INT NOT NULL, s_acctbal DECIMAL(15,2) NOT NULL, KEY i_s_nation (s_nationkey)",
    "partsupp": "ps_partkey INT NOT NULL, ps_suppkey INT NOT NULL, ps_availqty INT NOT NULL, ps_supplycost DECIMAL(15,2) NOT NULL, ps_comment VARCHAR(100) NOT NULL, "
                "PRIMARY KEY (ps_partkey, ps_suppkey), KEY i_ps_supp (ps_suppkey)",
    "customer": "c_custkey INT NOT NULL PRIMARY KEY, c_name VARCHAR(25) NOT NULL, c_nationkey INT NOT NULL, c_phone CHAR(15) NOT NULL, c_acctbal DECIMAL(15,2) NOT NULL, "
                "c_mktsegment CHAR(10) NOT NULL, c_comment VARCHAR(117) NOT NULL, KEY i_c_nation (c_nationkey), KEY i_c_acct (c_acctbal, c_mktsegment)",
    "orders": "o_orderkey INT NOT NULL PRIMARY KEY, o_custkey INT NOT NULL, o_orderstatus CHAR(1) NOT NULL, o_totalprice DECIMAL(15,2) NOT NULL, o_orderdate DATE NOT NULL, "
              "o_orderpriority CHAR(15) NOT NULL, o_comment VARCHAR(79) NOT NULL, KEY i_o_cust (o_custkey), KEY i_o_date (o_orderdate, o_orderstatus)",
    "lineitem": "l_orderkey INT NOT NULL, l_linenumber INT NOT NULL, l_partkey INT NOT NULL, l_suppkey INT NOT NULL, l_quantity DECIMAL(15,2) NOT NULL, "
                "l_extendedprice DECIMAL(15,2) NOT NULL, l_discount DECIMAL(15,2) NOT NULL, l_returnflag CHAR(1) NOT NULL, l_shipdate DATE NOT NULL, "
                "l_commitdate DATE NOT NULL, l_receiptdate DATE NOT NULL, l_shipmode CHAR(10), l_comment VARCHAR(44) NOT NULL, PRIMARY KEY (l_orderkey, l_linenumber), "
                "KEY i_l_ship (l_shipdate), KEY i_l_partsupp (l_partkey, l_suppkey), KEY i_l_supp (l_suppkey), KEY i_l_mode (l_shipmode, l_quantity)",
}
WORDS = "almond azure beige blush bisque chiffon coral cream cyan drab forest ghost green honeydew ivory khaki lace lemon linen maroon".split()
MODES = ["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"]
SEGMENTS = ["AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY"]


def day(n):
    """A DATE of seven years."""
    return f"'{1992 + n // 360}-{n % 360 // 30 + 1:02}-{n % 30 % 28 + 1:02}'"


def rows_of(rng):
    """(table, rows as SQL) of each table."""
    parts, supps, custs, orders = 1000 * SCALE, 80 * SCALE, 800 * SCALE, 5000 * SCALE
    some, text = rng.randint, lambda: " ".join(rng.choice(WORDS) for _ in range(rng.randint(2, 5)))
    money = lambda most: f"{rng.randint(0, most * 100) / 100:.2f}"
    yield "region", [f"({n},'REGION {n}')" for n in range(5)]
    yield "nation", [f"({n},'NATION {n}',{n % 5})" for n in range(25)]
    yield "part", [f"({n},'{text()}','MFGR{some(1, 5)}','BRAND{some(1, 25)}','{rng.choice(WORDS)} {rng.choice(WORDS)}',{some(1, 50)},'BOX{some(1, 40)}',{money(2000)})" for n in range(1, parts + 1)]
    yield "supplier", [f"({n},'Supplier {n}',{some(0, 24)},{money(9999)})" for n in range(1, supps + 1)]
    yield "partsupp", [f"({n},{(n + i * (supps // 4)) % supps + 1},{some(1, 9999)},{money(1000)},'{text()}')" for n in range(1, parts + 1) for i in range(4)]
    yield "customer", [f"({n},'Customer {n}',{some(0, 24)},'{some(10, 34)}-{some(100, 999)}',{money(9999)},'{rng.choice(SEGMENTS)}','{text()}')" for n in range(1, custs + 1)]
    made = [(n, some(0, 2400)) for n in range(1, orders + 1)]
    yield "orders", [f"({n},{some(1, custs * 2 // 3)},'{rng.choice('FOP')}',{money(300000)},{day(d)},'{some(1, 5)}-PRIORITY','{text()}')" for n, d in made]
    lines = []
    for n, d in made:
        for line in range(1, some(3, 7) + 1):
            ship = d + some(1, 120)
            mode = f"'{rng.choice(MODES)}'" if rng.random() < 0.95 else "NULL"
            lines.append(f"({n},{line},{some(1, parts)},{some(1, supps)},{some(1, 50)},{money(90000)},0.0{some(0, 9)},'{rng.choice('ANR')}',{day(ship)},{day(ship + some(-30, 30))},{day(ship + some(1, 30))},{mode},'{text()}')")
    yield "lineitem", lines


TPCH = {
    "q1": "SELECT l_returnflag, SUM(l_quantity), COUNT(*) FROM lineitem WHERE l_shipdate <= '1998-09-02' GROUP BY l_returnflag ORDER BY l_returnflag",
    "q2": "SELECT s_acctbal, s_name, n_name, p_partkey FROM part, supplier, partsupp, nation, region WHERE p_partkey=ps_partkey AND s_suppkey=ps_suppkey AND p_size=15 AND p_type LIKE '%coral' "
          "AND s_nationkey=n_nationkey AND n_regionkey=r_regionkey AND r_name='REGION 3' AND ps_supplycost=(SELECT MIN(ps_supplycost) FROM partsupp, supplier, nation, region "
          "WHERE p_partkey=ps_partkey AND s_suppkey=ps_suppkey AND s_nationkey=n_nationkey AND n_regionkey=r_regionkey AND r_name='REGION 3')",
    "q3": "SELECT l_orderkey, SUM(l_extendedprice*(1-l_discount)) revenue, o_orderdate FROM customer, orders, lineitem WHERE c_mktsegment='BUILDING' AND c_custkey=o_custkey AND l_orderkey=o_orderkey "
          "AND o_orderdate<'1995-03-15' AND l_shipdate>'1995-03-15' GROUP BY l_orderkey, o_orderdate ORDER BY revenue DESC, o_orderdate LIMIT 10",
    "q4": "SELECT o_orderpriority, COUNT(*) FROM orders WHERE o_orderdate>='1993-07-01' AND o_orderdate<'1993-10-01' AND EXISTS (SELECT * FROM lineitem WHERE l_orderkey=o_orderkey "
          "AND l_commitdate<l_receiptdate) GROUP BY o_orderpriority",
    "q5": "SELECT n_name, SUM(l_extendedprice*(1-l_discount)) revenue FROM customer, orders, lineitem, supplier, nation, region WHERE c_custkey=o_custkey AND l_orderkey=o_orderkey AND l_suppkey=s_suppkey "
          "AND c_nationkey=s_nationkey AND s_nationkey=n_nationkey AND n_regionkey=r_regionkey AND r_name='REGION 2' AND o_orderdate>='1994-01-01' AND o_orderdate<'1995-01-01' GROUP BY n_name ORDER BY revenue DESC",
    "q6": "SELECT SUM(l_extendedprice*l_discount) FROM lineitem WHERE l_shipdate>='1994-01-01' AND l_shipdate<'1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity<24",
    "q7": "SELECT n1.n_name, n2.n_name n, YEAR(l_shipdate) y, SUM(l_extendedprice) FROM supplier, lineitem, orders, customer, nation n1, nation n2 WHERE s_suppkey=l_suppkey AND o_orderkey=l_orderkey "
          "AND c_custkey=o_custkey AND s_nationkey=n1.n_nationkey AND c_nationkey=n2.n_nationkey AND ((n1.n_name='NATION 3' AND n2.n_name='NATION 4') OR (n1.n_name='NATION 4' AND n2.n_name='NATION 3')) "
          "AND l_shipdate BETWEEN '1995-01-01' AND '1996-12-31' GROUP BY n1.n_name, n, y",
    "q8": "SELECT YEAR(o_orderdate) y, SUM(CASE WHEN n2.n_name='NATION 8' THEN l_extendedprice ELSE 0 END) FROM part, supplier, lineitem, orders, customer, nation n1, nation n2, region WHERE p_partkey=l_partkey "
          "AND s_suppkey=l_suppkey AND l_orderkey=o_orderkey AND o_custkey=c_custkey AND c_nationkey=n1.n_nationkey AND n1.n_regionkey=r_regionkey AND r_name='REGION 3' AND s_nationkey=n2.n_nationkey "
          "AND o_orderdate BETWEEN '1995-01-01' AND '1996-12-31' AND p_type='coral lace' GROUP BY y",
    "q9": "SELECT n_name, YEAR(o_orderdate) y, SUM(l_extendedprice-ps_supplycost*l_quantity) FROM part, supplier, lineitem, partsupp, orders, nation WHERE s_suppkey=l_suppkey AND ps_suppkey=l_suppkey "
          "AND ps_partkey=l_partkey AND p_partkey=l_partkey AND o_orderkey=l_orderkey AND s_nationkey=n_nationkey AND p_name LIKE '%green%' GROUP BY n_name, y",
    "q10": "SELECT c_custkey, c_name, SUM(l_extendedprice) revenue FROM customer, orders, lineitem, nation WHERE c_custkey=o_custkey AND l_orderkey=o_orderkey AND o_orderdate>='1993-10-01' "
           "AND o_orderdate<'1994-01-01' AND l_returnflag='R' AND c_nationkey=n_nationkey GROUP BY c_custkey, c_name ORDER BY revenue DESC, c_custkey LIMIT 20",
    "q11": "SELECT ps_partkey, SUM(ps_supplycost*ps_availqty) v FROM partsupp, supplier, nation WHERE ps_suppkey=s_suppkey AND s_nationkey=n_nationkey AND n_name='NATION 7' GROUP BY ps_partkey "
           "HAVING v>(SELECT SUM(ps_supplycost*ps_availqty)*0.01 FROM partsupp, supplier, nation WHERE ps_suppkey=s_suppkey AND s_nationkey=n_nationkey AND n_name='NATION 7')",
    "q12": "SELECT l_shipmode, SUM(o_orderpriority='1-PRIORITY') FROM orders, lineitem WHERE o_orderkey=l_orderkey AND l_shipmode IN ('MAIL','SHIP') AND l_commitdate<l_receiptdate AND l_shipdate<l_commitdate "
           "AND l_receiptdate>='1994-01-01' AND l_receiptdate<'1995-01-01' GROUP BY l_shipmode",
    "q13": "SELECT c_count, COUNT(*) FROM (SELECT c_custkey, COUNT(o_orderkey) c_count FROM customer LEFT JOIN orders ON c_custkey=o_custkey AND o_comment NOT LIKE '%green%drab%' GROUP BY c_custkey) d GROUP BY c_count",
    "q14": "SELECT SUM(CASE WHEN p_type LIKE 'coral%' THEN l_extendedprice ELSE 0 END) FROM lineitem, part WHERE l_partkey=p_partkey AND l_shipdate>='1995-09-01' AND l_shipdate<'1995-10-01'",
    "q15": "SELECT s_suppkey, s_name, r.total FROM supplier, (SELECT l_suppkey k, SUM(l_extendedprice) total FROM lineitem WHERE l_shipdate>='1996-01-01' AND l_shipdate<'1996-02-01' GROUP BY l_suppkey) r WHERE s_suppkey=r.k",
    "q16": "SELECT p_brand, p_size, COUNT(DISTINCT ps_suppkey) FROM partsupp, part WHERE p_partkey=ps_partkey AND p_brand<>'BRAND5' AND p_size IN (9,14,19,23) AND ps_suppkey NOT IN "
           "(SELECT s_suppkey FROM supplier WHERE s_acctbal<100) GROUP BY p_brand, p_size",
    "q17": "SELECT SUM(l_extendedprice) FROM lineitem, part WHERE p_partkey=l_partkey AND p_brand='BRAND3' AND p_container='BOX7' AND l_quantity<(SELECT 0.5*AVG(l_quantity) FROM lineitem WHERE l_partkey=p_partkey)",
    "q18": "SELECT c_name, c_custkey, o_orderkey, SUM(l_quantity) FROM customer, orders, lineitem WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING SUM(l_quantity)>250) "
           "AND c_custkey=o_custkey AND o_orderkey=l_orderkey GROUP BY c_name, c_custkey, o_orderkey",
    "q19": "SELECT SUM(l_extendedprice) FROM lineitem, part WHERE p_partkey=l_partkey AND ((p_brand='BRAND1' AND l_quantity BETWEEN 1 AND 11 AND p_size BETWEEN 1 AND 5) OR "
           "(p_brand='BRAND2' AND l_quantity BETWEEN 10 AND 20 AND p_size BETWEEN 1 AND 10)) AND l_shipmode IN ('AIR','REG AIR')",
    "q20": "SELECT s_name FROM supplier, nation WHERE s_suppkey IN (SELECT ps_suppkey FROM partsupp WHERE ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE 'forest%') "
           "AND ps_availqty>(SELECT 0.5*SUM(l_quantity) FROM lineitem WHERE l_partkey=ps_partkey AND l_suppkey=ps_suppkey AND l_shipdate>='1994-01-01')) AND s_nationkey=n_nationkey AND n_name='NATION 3'",
    "q21": "SELECT s_name, COUNT(*) n FROM supplier, lineitem l1, orders, nation WHERE s_suppkey=l1.l_suppkey AND o_orderkey=l1.l_orderkey AND o_orderstatus='F' AND l1.l_receiptdate>l1.l_commitdate "
           "AND EXISTS (SELECT * FROM lineitem l2 WHERE l2.l_orderkey=l1.l_orderkey AND l2.l_suppkey<>l1.l_suppkey) AND NOT EXISTS (SELECT * FROM lineitem l3 WHERE l3.l_orderkey=l1.l_orderkey "
           "AND l3.l_suppkey<>l1.l_suppkey AND l3.l_receiptdate>l3.l_commitdate) AND s_nationkey=n_nationkey AND n_name='NATION 11' GROUP BY s_name ORDER BY n DESC, s_name LIMIT 100",
    "q22": "SELECT SUBSTR(c_phone,1,2) code, COUNT(*) FROM customer WHERE SUBSTR(c_phone,1,2) IN ('13','31') AND c_acctbal>(SELECT AVG(c_acctbal) FROM customer WHERE c_acctbal>0) "
           "AND NOT EXISTS (SELECT * FROM orders WHERE o_custkey=c_custkey) GROUP BY code",
}

OWN = {
    "point": "SELECT * FROM orders WHERE o_orderkey=77",
    "point of two parts": "SELECT * FROM lineitem WHERE l_orderkey=77 AND l_linenumber=1",
    "first part": "SELECT * FROM lineitem WHERE l_orderkey=77",
    "ref": "SELECT * FROM orders WHERE o_custkey=33",
    "ref or null": "SELECT l_orderkey, l_linenumber, l_comment FROM lineitem WHERE (l_shipmode='AIR' OR l_shipmode IS NULL) AND l_quantity=3",
    "NULL": "SELECT COUNT(*), MAX(l_comment) FROM lineitem WHERE l_shipmode IS NULL AND l_quantity<10",
    "range": "SELECT * FROM orders WHERE o_orderdate BETWEEN '1994-03-01' AND '1994-03-12'",
    "range of the primary key": "SELECT * FROM orders WHERE o_orderkey BETWEEN 100 AND 130",
    "long range of the primary key": "SELECT COUNT(*), MAX(o_comment) FROM orders WHERE o_orderkey BETWEEN 100 AND 1500",
    "too long a range": "SELECT COUNT(*), MAX(o_comment) FROM orders WHERE o_orderdate>'1993-01-01'",
    "two ranges": "SELECT * FROM orders WHERE o_orderdate='1993-02-03' OR o_orderdate BETWEEN '1995-05-05' AND '1995-05-08'",
    "IN": "SELECT * FROM orders WHERE o_custkey IN (3,33,77,121)",
    "IN of the primary key": "SELECT * FROM customer WHERE c_custkey IN (3,33,77,121)",
    "IN of two parts": "SELECT COUNT(*), MAX(p_name) FROM part WHERE p_size IN (3,7) AND p_brand IN ('BRAND1','BRAND2')",
    "condition on an index": "SELECT * FROM orders WHERE o_orderdate BETWEEN '1994-03-01' AND '1994-04-12' AND o_orderstatus='F'",
    "condition on an index, backward": "SELECT * FROM orders WHERE o_orderdate BETWEEN '1994-03-01' AND '1994-04-12' AND o_orderstatus='F' ORDER BY o_orderdate DESC, o_orderstatus DESC LIMIT 7",
    "condition on a ref": "SELECT * FROM lineitem WHERE l_shipmode='MAIL' AND l_quantity%7=3 AND l_quantity<9",
    "LIKE": "SELECT COUNT(*), MAX(l_comment) FROM lineitem WHERE l_shipmode LIKE 'RA%' AND l_quantity<3",
    "order, limit": "SELECT o_orderdate, o_orderstatus, o_comment FROM orders ORDER BY o_orderdate, o_orderstatus LIMIT 5",
    "order, limit, backward": "SELECT o_orderdate, o_orderstatus FROM orders ORDER BY o_orderdate DESC, o_orderstatus DESC LIMIT 5",
    "order by the primary key": "SELECT * FROM orders ORDER BY o_orderkey LIMIT 10",
    "order by the primary key, backward": "SELECT * FROM orders ORDER BY o_orderkey DESC LIMIT 10",
    "order of a range": "SELECT * FROM orders WHERE o_orderkey>4000 ORDER BY o_orderkey LIMIT 3",
    "order of a ref": "SELECT l_quantity, l_comment FROM lineitem WHERE l_shipmode='RAIL' ORDER BY l_quantity DESC LIMIT 4",
    "least and greatest": "SELECT MIN(o_orderdate), MAX(o_orderdate) FROM orders",
    "greatest of a ref": "SELECT MAX(l_quantity) FROM lineitem WHERE l_shipmode='SHIP'",
    "loose index scan": "SELECT l_shipmode, MIN(l_quantity), MAX(l_quantity) FROM lineitem GROUP BY l_shipmode",
    "loose index scan, distinct": "SELECT DISTINCT p_size FROM part",
    "group by an index": "SELECT o_custkey, COUNT(*) FROM orders GROUP BY o_custkey ORDER BY o_custkey LIMIT 10",
    "group by a key's first part": "SELECT l_orderkey, SUM(l_quantity) FROM lineitem GROUP BY l_orderkey ORDER BY l_orderkey LIMIT 5",
    "covering": "SELECT o_orderdate, o_orderstatus FROM orders WHERE o_orderdate BETWEEN '1994-03-01' AND '1996-03-12'",
    "covering, all": "SELECT COUNT(*), SUM(p_size) FROM part",
    "count": "SELECT COUNT(*) FROM customer WHERE c_acctbal>5000",
    "union of indexes": "SELECT COUNT(*), MAX(l_comment) FROM lineitem WHERE l_suppkey=33 OR l_partkey=77",
    "union of sorted indexes": "SELECT COUNT(*), MAX(l_comment) FROM lineitem WHERE l_partkey BETWEEN 5 AND 6 OR l_shipdate BETWEEN '1998-01-01' AND '1998-01-02'",
    "intersection": "SELECT COUNT(*), MAX(l_comment) FROM lineitem WHERE l_suppkey=3 AND l_shipdate='1995-03-04'",
    "join by ref": "SELECT COUNT(*), MAX(o_comment) FROM customer, orders WHERE c_custkey=o_custkey AND c_acctbal BETWEEN 5000 AND 5100",
    "join by eq_ref": "SELECT COUNT(*), MAX(c_comment) FROM orders, customer WHERE c_custkey=o_custkey AND o_orderdate BETWEEN '1994-03-01' AND '1994-03-12'",
    "join, two parts": "SELECT COUNT(*), MAX(ps_comment) FROM lineitem, partsupp WHERE ps_partkey=l_partkey AND ps_suppkey=l_suppkey AND l_orderkey<40",
    "left join": "SELECT COUNT(o_orderkey), COUNT(*) FROM customer LEFT JOIN orders ON o_custkey=c_custkey AND o_orderdate>'1997-01-01' WHERE c_nationkey=3",
    "semi-join": "SELECT COUNT(*), MAX(c_comment) FROM customer WHERE c_custkey IN (SELECT o_custkey FROM orders WHERE o_orderdate BETWEEN '1994-03-01' AND '1994-03-02')",
    "EXISTS": "SELECT COUNT(*) FROM customer WHERE c_nationkey=7 AND EXISTS (SELECT 1 FROM orders WHERE o_custkey=c_custkey AND o_orderstatus='P')",
    "NOT IN": "SELECT COUNT(*) FROM supplier WHERE s_suppkey NOT IN (SELECT l_suppkey FROM lineitem WHERE l_shipdate='1995-03-04')",
    "row id filter": "SELECT COUNT(*), MAX(l_comment), MAX(o_comment) FROM orders, lineitem WHERE l_orderkey=o_orderkey AND l_shipdate BETWEEN '1994-03-01' AND '1994-03-12' AND o_orderdate BETWEEN '1994-01-01' AND '1994-03-12'",
    "row id filter, two tables": "SELECT COUNT(*), MAX(l_comment) FROM part, lineitem WHERE l_partkey=p_partkey AND p_size=7 AND l_shipdate BETWEEN '1994-03-01' AND '1994-03-20'",
    "derived": "SELECT COUNT(*), SUM(m) FROM (SELECT o_custkey, MAX(o_totalprice) m FROM orders GROUP BY o_custkey) d JOIN customer ON c_custkey=o_custkey WHERE c_nationkey=9",
}
MRR = "SET optimizer_switch='mrr=on,mrr_sort_keys=on,join_cache_bka=on', join_cache_level=8"
# By name: with many ranges at once.
SWEPT = ["range", "two ranges", "IN", "IN of two parts", "condition on an index", "join by ref", "join by eq_ref", "join, two parts", "left join", "order of a range"]

# Why, as docs/PLANS.md has it. Of some it depends on the rows.
SECONDARY, CLUSTERED, NEAR = "InnoDB's secondary keys contain the primary key", "InnoDB's rows lie in their primary key", "costs are near each other"
DIFFERENT = {
    "q3": SECONDARY, "q5": SECONDARY, "q7": SECONDARY, "q10": SECONDARY, "q19": SECONDARY, "NOT IN": SECONDARY,
    "q18": CLUSTERED,
    "q12": NEAR,
}


class Line:
    """A line of EXPLAIN."""

    def __init__(self, row):
        _, _, self.table, self.type, _, self.key, _, _, self.rows, self.extra = row

    def way(self):
        """What must be alike."""
        return self.table, self.type, self.key

    def is_near(self, other):
        """About the same number of rows."""
        a, b = (int(r.rows.split()[0].split("|")[0]) if r.rows else 0 for r in (self, other))
        return max(a, b) <= TIMES * min(a, b) + 10

    def __str__(self):
        return f"{self.table} {self.type} {self.key} {self.rows} {self.extra}"


def plan(c, sql):
    """Lines of EXPLAIN."""
    return [Line(row) for row in c.query("EXPLAIN " + sql).rows]


def fill(c):
    """A database for each engine, with the same in it."""
    for engine in ENGINES:
        c.query(f"CREATE DATABASE {engine}")
        for table, columns in TABLES.items():
            c.query(f"CREATE TABLE {engine}.{table} ({columns}) ENGINE={engine} CHARSET=latin1")
    for table, rows in rows_of(random.Random(SEED)):
        for at in range(0, len(rows), 500):
            for engine in ENGINES:
                c.query(f"INSERT INTO {engine}.{table} VALUES {','.join(rows[at:at + 500])}")
    for engine in ENGINES:
        for table in TABLES:
            c.query(f"ANALYZE TABLE {engine}.{table}")


def compare(c, name, sql):
    """How the plans of a statement differ, in words; its answers must not."""
    plans, answers = [], []
    for engine in ENGINES:
        c.query(f"USE {engine}")
        plans.append(plan(c, sql))
        answers.append(sorted(map(str, c.query(sql).rows)))
    if SHOW:
        for engine, lines in zip(ENGINES, plans):
            print(f"{name} {engine}:", *(f"\n    {line}" for line in lines))
    check(answers[0] == answers[1], f"{name}: the same answers")
    ways = [[line.way() for line in lines] for lines in plans]
    if ways[0] != ways[1]:
        return f"{name}: " + "; ".join(f"{e}: {', '.join(map(str, lines))}" for e, lines in zip(ENGINES, plans))
    far = [f"{a} | {b}" for a, b in zip(*plans) if not a.is_near(b)]
    return f"{name}: rows: {'; '.join(far)}" if far else None


def test_plans(servers):
    """All statements."""
    s = servers("plans", {"innodb_stats_auto_recalc": "OFF", "innodb_stats_persistent_sample_pages": 1000})
    s.create(fresh=True)
    s.start()
    c = s.connect(timeout=600)
    c.query("SET NAMES latin1")
    fill(c)
    found = {}
    for where in ("memory", "runs"):
        for name, sql in {**TPCH, **OWN}.items():
            found[name, where] = compare(c, f"{name}, {where}", sql)
        c.query(MRR)
        for name in SWEPT:
            found[f"{name}, swept", where] = compare(c, f"{name}, swept, {where}", OWN[name])
        c.query("SET optimizer_switch=default, join_cache_level=default")
        for table in TABLES:
            c.query(f"OPTIMIZE TABLE Esker.{table}")
            c.query(f"ANALYZE TABLE Esker.{table}")
    different = {name for (name, _), how in found.items() if how}
    for how in filter(None, found.values()):
        print(how)
    check(different <= DIFFERENT.keys(), f"plans are InnoDB's: {sorted(different - DIFFERENT.keys())}")
    show.say(f"{len(found)} plans, {sum(map(bool, found.values()))} of them others than InnoDB's, as documented")
