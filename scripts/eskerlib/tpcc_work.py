"""TPC-C's five transactions (clauses 2.4 to 2.8) in the mix of its clause 5.2.4.2, by whoever has a connection.

Each is a procedure: its statements are prepared once for each connection, and a driver in Python costs one call, not fifty. What the
specification has terminals choose, Work chooses. Differences: no keying and think times; a warehouse is chosen for each transaction,
not for each terminal, so that few terminals use all of the data; DELIVERY is done at once instead of being queued.

Every transaction that writes has a time of its own, no two are alike: it is the O_ENTRY_D of an order, the H_DATE of a payment and the
OL_DELIVERY_D of a delivery, so each can be found by what it wrote.
"""
import collections
import datetime
import time

from .client import SqlError
from .tpcc import C_CUSTOMER, C_ITEM, C_LAST_RUN, DISTRICTS, last_name, nurand

MIX = {"new_order": 10, "payment": 10, "order_status": 1, "delivery": 1, "stock_level": 1}
WRITES = ("new_order", "payment", "delivery")
RETRY = {1205, 1213, 1020}  # lock wait timeout, deadlock, row changed since the view was opened
MOST_CLIENTS = 100  # they share the microseconds of a time
GONE = 45000  # our own error: a row that DELIVERY had locked was not there

_BY_NAME = """IF name IS NOT NULL THEN
    SELECT COUNT(*) INTO n FROM customer WHERE c_w_id=cw AND c_d_id=cd AND c_last=name;
    SET n=(n-1) DIV 2;
    SELECT c_id INTO c FROM customer WHERE c_w_id=cw AND c_d_id=cd AND c_last=name ORDER BY c_first LIMIT n,1;
  END IF;"""

# what: item, warehouse that supplies it and quantity of each line, '1:1:5;2:1:7'. Gives the order's number; 0: rolled back.
PROCEDURES = {
    "new_order": """(w INT, d INT, c INT, at DATETIME(6), cnt INT, is_local INT, what TEXT)
all_of_it: BEGIN
  DECLARE o, i, sw, q, have INT;
  DECLARE n INT DEFAULT 0;
  DECLARE price DECIMAL(5,2);
  DECLARE total DECIMAL(14,2) DEFAULT 0;
  DECLARE discount, wtax, dtax DECIMAL(4,4);
  DECLARE line, surname, credit, iname, idata, sdata, dist, brand VARCHAR(50);
  START TRANSACTION;
  SELECT c_discount,c_last,c_credit,w_tax INTO discount,surname,credit,wtax FROM warehouse JOIN customer ON c_w_id=w_id WHERE w_id=w AND c_d_id=d AND c_id=c;
  SELECT d_next_o_id,d_tax INTO o,dtax FROM district WHERE d_w_id=w AND d_id=d FOR UPDATE;
  UPDATE district SET d_next_o_id=o+1 WHERE d_w_id=w AND d_id=d;
  INSERT INTO orders VALUES (o,d,w,c,at,NULL,cnt,is_local);
  INSERT INTO new_order VALUES (o,d,w);
  WHILE n<cnt DO
    SET n=n+1, line=SUBSTRING_INDEX(SUBSTRING_INDEX(what,';',n),';',-1);
    SET i=SUBSTRING_INDEX(line,':',1), sw=SUBSTRING_INDEX(SUBSTRING_INDEX(line,':',2),':',-1), q=SUBSTRING_INDEX(line,':',-1), price=NULL;
    SELECT i_price,i_name,i_data INTO price,iname,idata FROM item WHERE i_id=i;
    IF price IS NULL THEN
      ROLLBACK;
      SELECT 0;
      LEAVE all_of_it;
    END IF;
    SELECT s_quantity,s_data,ELT(d,s_dist_01,s_dist_02,s_dist_03,s_dist_04,s_dist_05,s_dist_06,s_dist_07,s_dist_08,s_dist_09,s_dist_10) INTO have,sdata,dist
      FROM stock WHERE s_w_id=sw AND s_i_id=i FOR UPDATE;
    UPDATE stock SET s_quantity=IF(have-q>=10,have-q,have-q+91), s_ytd=s_ytd+q, s_order_cnt=s_order_cnt+1, s_remote_cnt=s_remote_cnt+(sw<>w) WHERE s_w_id=sw AND s_i_id=i;
    INSERT INTO order_line VALUES (o,d,w,n,i,sw,NULL,q,q*price,dist);
    SET total=total+q*price, brand=IF(idata LIKE '%ORIGINAL%' AND sdata LIKE '%ORIGINAL%','B','G');
  END WHILE;
  COMMIT;
  SELECT o,total*(1-discount)*(1+wtax+dtax);
END""",
    # name: NULL, or the customer's in c's place. Gives the customer's number.
    "payment": f"""(w INT, d INT, cw INT, cd INT, c INT, name VARCHAR(16), amount DECIMAL(6,2), at DATETIME(6))
BEGIN
  DECLARE n INT;
  DECLARE wname, dname, credit, street1, street2, city, state, zip VARCHAR(20);
  START TRANSACTION;
  UPDATE warehouse SET w_ytd=w_ytd+amount WHERE w_id=w;
  SELECT w_name,w_street_1,w_street_2,w_city,w_state,w_zip INTO wname,street1,street2,city,state,zip FROM warehouse WHERE w_id=w;
  UPDATE district SET d_ytd=d_ytd+amount WHERE d_w_id=w AND d_id=d;
  SELECT d_name,d_street_1,d_street_2,d_city,d_state,d_zip INTO dname,street1,street2,city,state,zip FROM district WHERE d_w_id=w AND d_id=d;
  {_BY_NAME}
  SELECT c_credit,c_street_1,c_street_2,c_city,c_state,c_zip INTO credit,street1,street2,city,state,zip FROM customer WHERE c_w_id=cw AND c_d_id=cd AND c_id=c FOR UPDATE;
  IF credit='BC' THEN
    UPDATE customer SET c_balance=c_balance-amount, c_ytd_payment=c_ytd_payment+amount, c_payment_cnt=c_payment_cnt+1, c_data=LEFT(CONCAT_WS(' ',c,cd,cw,d,w,amount,c_data),500)
      WHERE c_w_id=cw AND c_d_id=cd AND c_id=c;
  ELSE
    UPDATE customer SET c_balance=c_balance-amount, c_ytd_payment=c_ytd_payment+amount, c_payment_cnt=c_payment_cnt+1 WHERE c_w_id=cw AND c_d_id=cd AND c_id=c;
  END IF;
  INSERT INTO history VALUES (c,cd,cw,d,w,at,amount,CONCAT(wname,'    ',dname));
  COMMIT;
  SELECT c;
END""",
    # Gives the lines of the customer's last order, each with the number of lines that there must be.
    "order_status": f"""(cw INT, cd INT, c INT, name VARCHAR(16))
BEGIN
  DECLARE n, o, cnt INT;
  DECLARE balance DECIMAL(12,2);
  DECLARE forename, middle, surname VARCHAR(16);
  DECLARE entry DATETIME(6);
  DECLARE carrier INT;
  START TRANSACTION;
  {_BY_NAME}
  SELECT c_balance,c_first,c_middle,c_last INTO balance,forename,middle,surname FROM customer WHERE c_w_id=cw AND c_d_id=cd AND c_id=c;
  SELECT o_id,o_entry_d,o_carrier_id,o_ol_cnt INTO o,entry,carrier,cnt FROM orders WHERE o_w_id=cw AND o_d_id=cd AND o_c_id=c ORDER BY o_id DESC LIMIT 1;
  SELECT cnt,ol_i_id,ol_supply_w_id,ol_quantity,ol_amount,ol_delivery_d FROM order_line WHERE ol_w_id=cw AND ol_d_id=cd AND ol_o_id=o;
  COMMIT;
END""",
    # Gives what was delivered: '1:2101,2:2102', of each district that had something.
    "delivery": f"""(w INT, carrier INT, at DATETIME(6))
BEGIN
  DECLARE o, c INT;
  DECLARE d INT DEFAULT 1;
  DECLARE amount DECIMAL(14,2);
  DECLARE done VARCHAR(500);
  START TRANSACTION;
  WHILE d<={DISTRICTS} DO
    SET o=NULL;
    SELECT no_o_id INTO o FROM new_order WHERE no_w_id=w AND no_d_id=d ORDER BY no_o_id LIMIT 1 FOR UPDATE;
    IF o IS NOT NULL THEN
      DELETE FROM new_order WHERE no_w_id=w AND no_d_id=d AND no_o_id=o;
      IF ROW_COUNT()<>1 THEN
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO={GONE}, MESSAGE_TEXT='the new order that was locked is gone';
      END IF;
      SELECT o_c_id INTO c FROM orders WHERE o_w_id=w AND o_d_id=d AND o_id=o FOR UPDATE;
      UPDATE orders SET o_carrier_id=carrier WHERE o_w_id=w AND o_d_id=d AND o_id=o;
      UPDATE order_line SET ol_delivery_d=at WHERE ol_w_id=w AND ol_d_id=d AND ol_o_id=o;
      SELECT SUM(ol_amount) INTO amount FROM order_line WHERE ol_w_id=w AND ol_d_id=d AND ol_o_id=o;
      UPDATE customer SET c_balance=c_balance+amount, c_delivery_cnt=c_delivery_cnt+1 WHERE c_w_id=w AND c_d_id=d AND c_id=c;
      SET done=CONCAT_WS(',',done,CONCAT(d,':',o));
    END IF;
    SET d=d+1;
  END WHILE;
  COMMIT;
  SELECT done;
END""",
    # Gives how many items of the last 20 orders are low in stock.
    "stock_level": """(w INT, d INT, threshold INT)
BEGIN
  DECLARE o INT;
  START TRANSACTION;
  SELECT d_next_o_id INTO o FROM district WHERE d_w_id=w AND d_id=d;
  SELECT COUNT(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id=ol_w_id AND s_i_id=ol_i_id
    WHERE ol_w_id=w AND ol_d_id=d AND ol_o_id<o AND ol_o_id>=o-20 AND s_quantity<threshold;
  COMMIT;
END""",
}

# A transaction before it is done: its kind, the statement, and what it writes where it does (else None): its time, then the rest.
Task = collections.namedtuple("Task", "kind sql at writes")


class Wrong(Exception):
    """A transaction's answer is what cannot be."""


def create_procedures(connection):
    """In the connection's database."""
    for name, body in PROCEDURES.items():
        connection.query(f"CREATE PROCEDURE {name}{body}")


class Work:
    """What one client does: chooses transactions."""

    def __init__(self, scale, rng, number):
        self.scale, self.rng, self.number, self.deck, self.last_at = scale, rng, number % MOST_CLIENTS, [], 0

    def task(self):
        """The next one: from a pack of cards, so that the mix is exact."""
        if not self.deck:
            self.deck = [kind for kind, often in MIX.items() for _ in range(often)]
            self.rng.shuffle(self.deck)
        kind = self.deck.pop()
        return getattr(self, "_" + kind)(self.rng.randint(1, self.scale.warehouses), self.rng.randint(1, DISTRICTS))

    def _time(self):
        """As text; nobody has had it before, nor has another client."""
        now = time.time_ns() // 1000 // MOST_CLIENTS
        self.last_at = max(now, self.last_at + 1)
        at = datetime.datetime.fromtimestamp(0, datetime.timezone.utc) + datetime.timedelta(microseconds=self.last_at * MOST_CLIENTS + self.number)
        return at.strftime("%Y-%m-%d %H:%M:%S.%f")

    def _customer(self):
        return nurand(self.rng, 1023, C_CUSTOMER, 1, self.scale.customers)

    def _customer_or_name(self):
        """Arguments of a procedure: six of ten by last name."""
        if self.rng.random() < 0.6:
            return f"NULL,'{last_name(nurand(self.rng, 255, C_LAST_RUN, 0, self.scale.names - 1))}'"
        return f"{self._customer()},NULL"

    def _elsewhere(self, w):
        """Another warehouse, if there is one."""
        other = self.rng.randint(1, self.scale.warehouses - 1) if self.scale.warehouses > 1 else w
        return other + (other >= w) if self.scale.warehouses > 1 else w

    def _new_order(self, w, d):
        rng, c, count = self.rng, self._customer(), self.rng.randint(5, 15)
        lines = [(nurand(rng, 8191, C_ITEM, 1, self.scale.items), self._elsewhere(w) if rng.random() < 0.01 else w, rng.randint(1, 10)) for _ in range(count)]
        if rng.random() < 0.01:  # an item that is not there: it must be rolled back
            lines[-1] = (self.scale.items + 1, *lines[-1][1:])
        what, at = ";".join(f"{i}:{s}:{q}" for i, s, q in lines), self._time()
        return Task("new_order", f"CALL new_order({w},{d},{c},'{at}',{count},{int(all(s == w for _, s, _ in lines))},'{what}')", at, (w, d, c, what))

    def _payment(self, w, d):
        cw, cd = (self._elsewhere(w), self.rng.randint(1, DISTRICTS)) if self.rng.random() < 0.15 else (w, d)
        amount, at = f"{self.rng.randint(100, 500_000) / 100:.2f}", self._time()
        return Task("payment", f"CALL payment({w},{d},{cw},{cd},{self._customer_or_name()},{amount},'{at}')", at, (w, d, cw, cd, amount))

    def _order_status(self, w, d):
        return Task("order_status", f"CALL order_status({w},{d},{self._customer_or_name()})", None, None)

    def _delivery(self, w, _d):
        at, carrier = self._time(), self.rng.randint(1, 10)
        return Task("delivery", f"CALL delivery({w},{carrier},'{at}')", at, (w, carrier))

    def _stock_level(self, w, d):
        return Task("stock_level", f"CALL stock_level({w},{d},{self.rng.randint(10, 20)})", None, None)


def attempt(connection, task):
    """Once: the answer, or None if it was refused and is to be tried again, and rolled back."""
    try:
        return answer_of(task, connection.query(task.sql).rows)
    except SqlError as e:
        if e.errno not in RETRY:
            raise
        connection.query("ROLLBACK")
        return None


def answer_of(task, rows):
    """What a transaction says: of an order its number (0: rolled back), of a payment the customer, of a delivery its orders."""
    if task.kind == "order_status":
        if not rows or {int(row[0]) for row in rows} != {len(rows)}:
            raise Wrong(f"{task.sql} gives {len(rows)} lines: {rows}")
        return len(rows)
    if task.kind == "delivery":
        return [tuple(map(int, one.split(":"))) for one in rows[0][0].split(",")] if rows[0][0] else []
    return int(rows[0][0])
