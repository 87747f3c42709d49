"""TPC-C: the nine tables with the keys of its specification, their first rows, and the consistency conditions of its clause 3.3.2.
The five transactions are in tpcc_work.py.

Foreign keys are left out (Esker has none). A scale may have fewer customers of a district and fewer items than the specification, so
that tests load in a moment; what follows from those numbers (first orders, sums) follows here, too. All text is latin1 of its binary
collation, the one in which MyRocks takes keys. Money is DECIMAL, so every condition is exact.
"""
import collections
import random
import string

TABLES = {
    "warehouse": "w_id INT NOT NULL, w_name VARCHAR(10) NOT NULL, w_street_1 VARCHAR(20) NOT NULL, w_street_2 VARCHAR(20) NOT NULL, w_city VARCHAR(20) NOT NULL, "
                 "w_state CHAR(2) NOT NULL, w_zip CHAR(9) NOT NULL, w_tax DECIMAL(4,4) NOT NULL, w_ytd DECIMAL(12,2) NOT NULL, PRIMARY KEY (w_id)",
    "district": "d_id INT NOT NULL, d_w_id INT NOT NULL, d_name VARCHAR(10) NOT NULL, d_street_1 VARCHAR(20) NOT NULL, d_street_2 VARCHAR(20) NOT NULL, "
                "d_city VARCHAR(20) NOT NULL, d_state CHAR(2) NOT NULL, d_zip CHAR(9) NOT NULL, d_tax DECIMAL(4,4) NOT NULL, d_ytd DECIMAL(12,2) NOT NULL, "
                "d_next_o_id INT NOT NULL, PRIMARY KEY (d_w_id,d_id)",
    "customer": "c_id INT NOT NULL, c_d_id INT NOT NULL, c_w_id INT NOT NULL, c_first VARCHAR(16) NOT NULL, c_middle CHAR(2) NOT NULL, c_last VARCHAR(16) NOT NULL, "
                "c_street_1 VARCHAR(20) NOT NULL, c_street_2 VARCHAR(20) NOT NULL, c_city VARCHAR(20) NOT NULL, c_state CHAR(2) NOT NULL, c_zip CHAR(9) NOT NULL, "
                "c_phone CHAR(16) NOT NULL, c_since DATETIME(6) NOT NULL, c_credit CHAR(2) NOT NULL, c_credit_lim DECIMAL(12,2) NOT NULL, c_discount DECIMAL(4,4) NOT NULL, "
                "c_balance DECIMAL(12,2) NOT NULL, c_ytd_payment DECIMAL(12,2) NOT NULL, c_payment_cnt INT NOT NULL, c_delivery_cnt INT NOT NULL, c_data VARCHAR(500) NOT NULL, "
                "PRIMARY KEY (c_w_id,c_d_id,c_id), KEY c_name (c_w_id,c_d_id,c_last,c_first)",
    "history": "h_c_id INT NOT NULL, h_c_d_id INT NOT NULL, h_c_w_id INT NOT NULL, h_d_id INT NOT NULL, h_w_id INT NOT NULL, h_date DATETIME(6) NOT NULL, "
               "h_amount DECIMAL(6,2) NOT NULL, h_data VARCHAR(24) NOT NULL",
    "new_order": "no_o_id INT NOT NULL, no_d_id INT NOT NULL, no_w_id INT NOT NULL, PRIMARY KEY (no_w_id,no_d_id,no_o_id)",
    "orders": "o_id INT NOT NULL, o_d_id INT NOT NULL, o_w_id INT NOT NULL, o_c_id INT NOT NULL, o_entry_d DATETIME(6) NOT NULL, o_carrier_id INT, o_ol_cnt INT NOT NULL, "
              "o_all_local INT NOT NULL, PRIMARY KEY (o_w_id,o_d_id,o_id), KEY o_customer (o_w_id,o_d_id,o_c_id,o_id)",
    "order_line": "ol_o_id INT NOT NULL, ol_d_id INT NOT NULL, ol_w_id INT NOT NULL, ol_number INT NOT NULL, ol_i_id INT NOT NULL, ol_supply_w_id INT NOT NULL, "
                  "ol_delivery_d DATETIME(6), ol_quantity INT NOT NULL, ol_amount DECIMAL(6,2) NOT NULL, ol_dist_info CHAR(24) NOT NULL, PRIMARY KEY (ol_w_id,ol_d_id,ol_o_id,ol_number)",
    "item": "i_id INT NOT NULL, i_im_id INT NOT NULL, i_name VARCHAR(24) NOT NULL, i_price DECIMAL(5,2) NOT NULL, i_data VARCHAR(50) NOT NULL, PRIMARY KEY (i_id)",
    "stock": "s_i_id INT NOT NULL, s_w_id INT NOT NULL, s_quantity INT NOT NULL, " + "".join(f"s_dist_{n:02} CHAR(24) NOT NULL, " for n in range(1, 11)) +
             "s_ytd INT NOT NULL, s_order_cnt INT NOT NULL, s_remote_cnt INT NOT NULL, s_data VARCHAR(50) NOT NULL, PRIMARY KEY (s_w_id,s_i_id)",
}
DISTRICTS = 10
# Bytes of the rows of a warehouse of full size, as clause 4.2.2 counts them.
WAREHOUSE_BYTES = 89 + 10 * 95 + 30_000 * (655 + 46 + 24) + 9_000 * 8 + 300_000 * 54 + 100_000 * 306
# The time of all that is there from the beginning; what transactions write is later.
LOADED = "2020-01-01 00:00:00.000000"
# The constants C of NURand, which the specification has drivers choose; those of names must differ by 65 to 119, but for 96 and 112.
C_LAST_LOAD, C_LAST_RUN, C_CUSTOMER, C_ITEM = 157, 223, 259, 7911
SYLLABLES = "BAR OUGHT ABLE PRI PRES ESE ANTI CALLY ATION EING".split()
ROWS_AT_ONCE = 500
POOL = 1 << 22


class Scale(collections.namedtuple("Scale", "warehouses customers items", defaults=(3000, 100_000))):
    """How much there is: warehouses, customers of each district (each has one order in the beginning), items."""

    @property
    def delivered(self):
        """Of the first orders of a district, those that are delivered."""
        return self.customers * 7 // 10

    @property
    def names(self):
        """Last names: the first customers have one each."""
        return min(self.customers, 1000)


SMALL = {"customers": 60, "items": 400}


# -- values ---------------------------------------------------------------------------------------------------------------
def nurand(rng, a, c, least, most):
    """Clause 2.1.6: not uniform."""
    return ((rng.randint(0, a) | rng.randint(least, most)) + c) % (most - least + 1) + least


def last_name(number):
    """Clause 4.3.2.3: three syllables."""
    return "".join(SYLLABLES[number // place % 10] for place in (100, 10, 1))


class Text:
    """Random strings: pieces of a long one, which costs less than letter by letter. It is so long that a block of rows has no piece
    twice: an engine that compresses must not gain by it."""

    def __init__(self, rng):
        self.rng = rng
        self.letters, self.digits = (self._long(of) for of in (string.ascii_letters + string.digits, string.digits))

    def _long(self, of):
        return self.rng.randbytes(POOL).translate(bytes(ord(of[n % len(of)]) for n in range(256))).decode()

    def _at(self):
        return int(self.rng.random() * (POOL - 500))

    def some(self, least, most):
        """Letters and digits."""
        size, at = least + int(self.rng.random() * (most - least + 1)), self._at()
        return self.letters[at:at + size]

    def number(self, size):
        """Digits."""
        at = self._at()
        return self.digits[at:at + size]

    def data(self):
        """26 to 50 letters; one in ten holds ORIGINAL."""
        text = self.some(26, 50)
        if self.rng.random() >= 0.1:
            return text
        at = self.rng.randint(0, len(text) - 8)
        return text[:at] + "ORIGINAL" + text[at + 8:]

    def address(self):
        """Two streets, a city, a state, a zip code, as values of an INSERT."""
        return f"'{self.some(10, 20)}','{self.some(10, 20)}','{self.some(10, 20)}','{self.some(2, 2)}','{self.number(4)}11111'"


# -- first rows (clause 4.3.3.1) ----------------------------------------------------------------------------------------------
def _items(scale, rng, text):
    for i in range(1, scale.items + 1):
        yield f"({i},{rng.randint(1, 10_000)},'{text.some(14, 24)}',{rng.randint(100, 10_000) / 100:.2f},'{text.data()}')"


def _stock(scale, rng, text, w):
    for i in range(1, scale.items + 1):
        districts = ",".join(f"'{text.some(24, 24)}'" for _ in range(DISTRICTS))
        yield f"({i},{w},{rng.randint(10, 100)},{districts},0,0,0,'{text.data()}')"


def _customers(scale, rng, text, w, d):
    for c in range(1, scale.customers + 1):
        name = last_name(c - 1 if c <= scale.names else nurand(rng, 255, C_LAST_LOAD, 0, 999))
        yield (f"({c},{d},{w},'{text.some(8, 16)}','OE','{name}',{text.address()},'{text.number(16)}','{LOADED}','{'BC' if rng.random() < 0.1 else 'GC'}',50000,"
               f"{rng.randint(0, 5000) / 10000:.4f},-10,10,1,0,'{text.some(300, 500)}')")


def _history(scale, text, w, d):
    for c in range(1, scale.customers + 1):
        yield f"({c},{d},{w},{d},{w},'{LOADED}',10,'{text.some(12, 24)}')"


def _orders(scale, rng, w, d, counts):
    customers = list(range(1, scale.customers + 1))
    rng.shuffle(customers)
    for o, c in enumerate(customers, 1):
        yield f"({o},{d},{w},{c},'{LOADED}',{rng.randint(1, 10) if o <= scale.delivered else 'NULL'},{counts[o - 1]},1)"


def _lines(scale, rng, text, w, d, counts):
    for o, count in enumerate(counts, 1):
        done = o <= scale.delivered
        when = f"'{LOADED}'" if done else "NULL"
        for n in range(1, count + 1):
            amount = "0" if done else f"{rng.randint(1, 999_999) / 100:.2f}"
            yield f"({o},{d},{w},{n},{rng.randint(1, scale.items)},{w},{when},5,{amount},'{text.some(24, 24)}')"


def _put(connection, table, rows):
    """In statements of some hundred rows."""
    some = []
    for row in rows:
        some.append(row)
        if len(some) == ROWS_AT_ONCE:
            connection.query(f"INSERT INTO {table} VALUES {','.join(some)}")
            some = []
    if some:
        connection.query(f"INSERT INTO {table} VALUES {','.join(some)}")


def create(connection, engine, db):
    """A database with the tables, empty; the connection's default from then on."""
    connection.query(f"DROP DATABASE IF EXISTS {db}")
    connection.query(f"CREATE DATABASE {db} CHARACTER SET latin1 COLLATE latin1_bin")
    connection.query(f"USE {db}")
    for table, columns in TABLES.items():
        connection.query(f"CREATE TABLE {table} ({columns}) ENGINE={engine}")


def load_items(connection, scale, seed):
    """What belongs to no warehouse."""
    rng = random.Random(seed)
    _put(connection, "item", _items(scale, rng, Text(rng)))


def load_warehouse(connection, scale, seed, w):
    """A warehouse with all that belongs to it, each table in the order of its primary key."""
    rng = random.Random(seed * 10_000 + w)
    text, tax = Text(rng), lambda: f"{rng.randint(0, 2000) / 10000:.4f}"
    paid = 10 * scale.customers  # every customer has paid 10
    _put(connection, "warehouse", [f"({w},'{text.some(6, 10)}',{text.address()},{tax()},{DISTRICTS * paid})"])
    _put(connection, "stock", _stock(scale, rng, text, w))
    for d in range(1, DISTRICTS + 1):
        _put(connection, "district", [f"({d},{w},'{text.some(6, 10)}',{text.address()},{tax()},{paid},{scale.customers + 1})"])
        _put(connection, "customer", _customers(scale, rng, text, w, d))
        _put(connection, "history", _history(scale, text, w, d))
        counts = [rng.randint(5, 15) for _ in range(scale.customers)]
        _put(connection, "orders", _orders(scale, rng, w, d, counts))
        _put(connection, "order_line", _lines(scale, rng, text, w, d, counts))
        _put(connection, "new_order", (f"({o},{d},{w})" for o in range(scale.delivered + 1, scale.customers + 1)))


def load(connection, scale, seed):
    """Everything, by one connection."""
    load_items(connection, scale, seed)
    for w in range(1, scale.warehouses + 1):
        load_warehouse(connection, scale, seed, w)


# -- consistency conditions -------------------------------------------------------------------------------------------------
_DISTRICT_OF = {"orders": "o_w_id=d_w_id AND o_d_id=d_id", "new_order": "no_w_id=d_w_id AND no_d_id=d_id", "order_line": "ol_w_id=d_w_id AND ol_d_id=d_id",
                "history": "h_w_id=d_w_id AND h_d_id=d_id", "customer": "c_w_id=d_w_id AND c_d_id=d_id"}
_LINES_OF_ORDER = "ol_w_id=o_w_id AND ol_d_id=o_d_id AND ol_o_id=o_id"
_NEW_OF_ORDER = "no_w_id=o_w_id AND no_d_id=o_d_id AND no_o_id=o_id"
_DELIVERED = (f"(SELECT o_w_id,o_d_id,o_c_id,SUM(ol_amount) AS due FROM orders JOIN order_line ON {_LINES_OF_ORDER} WHERE ol_delivery_d IS NOT NULL "
              "GROUP BY o_w_id,o_d_id,o_c_id) AS delivered ON o_w_id=c_w_id AND o_d_id=c_d_id AND o_c_id=c_id")
_PAID = ("(SELECT h_c_w_id,h_c_d_id,h_c_id,SUM(h_amount) AS amount,COUNT(*) AS times FROM history GROUP BY h_c_w_id,h_c_d_id,h_c_id) AS paid "
         "ON h_c_w_id=c_w_id AND h_c_d_id=c_d_id AND h_c_id=c_id")


def _of_district(what, table):
    """A subquery over the rows of a district."""
    return f"(SELECT {what} FROM {table} WHERE {_DISTRICT_OF[table]})"


# Of each: its words, and a query that gives what is wrong. 1 to 12 are clause 3.3.2's (11 with the deliveries since, of which the
# specification's numbers are before the first); two more are ours: what else a transaction changes.
_CONDITIONS = {
    "1": ("W_YTD = sum(D_YTD)", "SELECT w_id,w_ytd,SUM(d_ytd) AS s FROM warehouse LEFT JOIN district ON d_w_id=w_id GROUP BY w_id,w_ytd HAVING NOT w_ytd<=>s"),
    "2": ("D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)",
          f"SELECT d_w_id,d_id,d_next_o_id-1 AS newest,{_of_district('MAX(o_id)', 'orders')} AS o,{_of_district('MAX(no_o_id)', 'new_order')} AS n "
          "FROM district HAVING NOT newest<=>o OR newest<>n"),
    "3": ("max(NO_O_ID) - min(NO_O_ID) + 1 = rows of NEW-ORDER",
          "SELECT no_w_id,no_d_id,MAX(no_o_id)-MIN(no_o_id)+1 AS span,COUNT(*) AS n FROM new_order GROUP BY no_w_id,no_d_id HAVING span<>n"),
    "4": ("sum(O_OL_CNT) = rows of ORDER-LINE",
          f"SELECT d_w_id,d_id,{_of_district('SUM(o_ol_cnt)', 'orders')} AS told,{_of_district('COUNT(*)', 'order_line')} AS n FROM district HAVING NOT told<=>n"),
    "5": ("O_CARRIER_ID is null just where NEW-ORDER has the order",
          f"SELECT o_w_id,o_d_id,o_id,o_carrier_id,no_o_id FROM orders LEFT JOIN new_order ON {_NEW_OF_ORDER} WHERE (o_carrier_id IS NULL)<>(no_o_id IS NOT NULL) "
          f"UNION ALL SELECT no_w_id,no_d_id,no_o_id,NULL,NULL FROM new_order LEFT JOIN orders ON {_NEW_OF_ORDER} WHERE o_id IS NULL"),
    "6": ("O_OL_CNT = rows of ORDER-LINE of the order",
          f"SELECT o_w_id,o_d_id,o_id,o_ol_cnt,COUNT(ol_number) AS n FROM orders LEFT JOIN order_line ON {_LINES_OF_ORDER} GROUP BY o_w_id,o_d_id,o_id,o_ol_cnt HAVING n<>o_ol_cnt"),
    "7": ("OL_DELIVERY_D is null just where O_CARRIER_ID is",
          f"SELECT ol_w_id,ol_d_id,ol_o_id,ol_number,ol_delivery_d,o_carrier_id FROM order_line LEFT JOIN orders ON {_LINES_OF_ORDER} "
          "WHERE o_id IS NULL OR (ol_delivery_d IS NULL)<>(o_carrier_id IS NULL)"),
    "8": ("W_YTD = sum(H_AMOUNT)", "SELECT w_id,w_ytd,(SELECT SUM(h_amount) FROM history WHERE h_w_id=w_id) AS s FROM warehouse HAVING NOT w_ytd<=>s"),
    "9": ("D_YTD = sum(H_AMOUNT)", f"SELECT d_w_id,d_id,d_ytd,{_of_district('SUM(h_amount)', 'history')} AS s FROM district HAVING NOT d_ytd<=>s"),
    "10": ("C_BALANCE = sum(OL_AMOUNT) of what was delivered - sum(H_AMOUNT)",
           f"SELECT c_w_id,c_d_id,c_id,c_balance,due,amount FROM customer LEFT JOIN {_DELIVERED} LEFT JOIN {_PAID} WHERE NOT c_balance<=>IFNULL(due,0)-IFNULL(amount,0)"),
    "11": ("orders - new orders = those delivered in the beginning + sum(C_DELIVERY_CNT)",
           f"SELECT d_w_id,d_id,{_of_district('COUNT(*)', 'orders')}-{_of_district('COUNT(*)', 'new_order')} AS n,:delivered+{_of_district('SUM(c_delivery_cnt)', 'customer')} AS told "
           "FROM district HAVING NOT n<=>told"),
    "12": ("C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT) of what was delivered",
           f"SELECT c_w_id,c_d_id,c_id,c_balance,c_ytd_payment,due FROM customer LEFT JOIN {_DELIVERED} WHERE NOT c_balance+c_ytd_payment<=>IFNULL(due,0)"),
    "stock": ("S_YTD, S_ORDER_CNT and S_REMOTE_CNT are those of the order lines since the beginning",
              "SELECT s_w_id,s_i_id,s_ytd,s_order_cnt,s_remote_cnt,ytd,times,away FROM stock LEFT JOIN (SELECT ol_supply_w_id,ol_i_id,SUM(ol_quantity) AS ytd,COUNT(*) AS times,"
              "SUM(ol_supply_w_id<>ol_w_id) AS away FROM order_line WHERE ol_o_id>:customers GROUP BY ol_supply_w_id,ol_i_id) AS sold ON ol_supply_w_id=s_w_id AND ol_i_id=s_i_id "
              "WHERE (s_ytd,s_order_cnt,s_remote_cnt)<>(IFNULL(ytd,0),IFNULL(times,0),IFNULL(away,0))"),
    "payments": ("C_PAYMENT_CNT and C_YTD_PAYMENT are those of HISTORY",
                 f"SELECT c_w_id,c_d_id,c_id,c_payment_cnt,c_ytd_payment,times,amount FROM customer LEFT JOIN {_PAID} WHERE NOT c_payment_cnt<=>times OR NOT c_ytd_payment<=>amount"),
}


def conditions(connection, scale):
    """Problems: each names the condition that does not hold, and some of the rows. Nobody writes meanwhile."""
    problems = []
    for name, (words, sql) in _CONDITIONS.items():
        rows = connection.query(sql.replace(":delivered", str(scale.delivered)).replace(":customers", str(scale.customers))).rows
        if rows:
            problems.append(f"condition {name} ({words}) does not hold in {len(rows)} places, e.g. {rows[:3]}")
    sizes = {"warehouse": scale.warehouses, "district": scale.warehouses * DISTRICTS, "customer": scale.warehouses * DISTRICTS * scale.customers,
             "item": scale.items, "stock": scale.warehouses * scale.items}
    for table, size in sizes.items():
        got = int(connection.one(f"SELECT COUNT(*) FROM {table}"))
        if got != size:
            problems.append(f"{table} has {got} rows, must have {size}")
    return problems
