"""The check of indexes by itself: values below nought, of each kind of number, are in every index and must not be missed; a row that an
index does not give must be."""
import indexes
from eskerlib import server

COLUMNS = {"t": "TINYINT", "s": "SMALLINT", "m": "MEDIUMINT", "i": "INT", "b": "BIGINT", "u": "INT UNSIGNED", "d": "DECIMAL(6,2)", "f": "DOUBLE", "c": "VARCHAR(20)"}
ROWS = ("1,-128,-32768,-8388608,-2147483648,-9223372036854775808,0,-9999.99,-1e20,''", "2,-1,-1,-1,-1,-1,1,-0.01,-0.5,'-'", "3,1,1,1,1,1,4294967295,9999.99,1e20,'z'")


def test_values_below_nought(servers):
    """No problem where there is none; one where the rows of a scan are not those of an index, which a column of NULLs stands for."""
    s = servers("indexes", server.small_settings())
    s.create(fresh=True)
    s.start()
    c = s.connect()
    c.query("CREATE DATABASE below")
    columns = ",".join(f"{name} {kind}, KEY {name}_ ({name})" for name, kind in COLUMNS.items())
    c.query(f"CREATE TABLE below.numbers (id INT PRIMARY KEY, {columns}) ENGINE=Esker")
    for row in ROWS:
        c.query(f"INSERT INTO below.numbers VALUES ({row})")
    assert indexes.check(c, "below", "numbers") == []
    c.query("INSERT INTO below.numbers (id) VALUES (4)")  # in no range that has a bound
    assert len(indexes.check(c, "below", "numbers")) == len(COLUMNS)
