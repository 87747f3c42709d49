"""Each index of a table against its rows, through SQL: what a scan gives is what each index gives, over its whole range; and what a
unique one finds, row by row."""
import collections

SOME = 2000  # rows that are looked up one by one
BYTES = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}


def _least(data_type, column_type, precision, scale):
    """A bound that all values of a column have, and that it can hold itself: else there is no range, and no index is read."""
    if data_type in BYTES:
        return "0" if "unsigned" in column_type else str(-(1 << (8 * BYTES[data_type] - 1)))
    if data_type == "decimal":
        whole, places = int(precision) - int(scale), int(scale)
        return "0" if "unsigned" in column_type else f"-{'9' * whole or '0'}.{'9' * places or '0'}"
    return "-1e30" if data_type in ("float", "double") else "''"


def _keys(connection, db, table):
    """{index: (unique, columns)} and {column: its least value} of a table."""
    keys = collections.OrderedDict()
    for name, not_unique, column in connection.query(
            f"SELECT index_name,non_unique,column_name FROM information_schema.statistics WHERE table_schema='{db}' AND table_name='{table}' AND ignored='NO' "
            f"ORDER BY index_name,seq_in_index").rows:
        keys.setdefault(name, (not_unique == "0", []))[1].append(column)
    columns = connection.query(f"SELECT column_name,data_type,column_type,numeric_precision,numeric_scale FROM information_schema.columns "
                               f"WHERE table_schema='{db}' AND table_name='{table}' ORDER BY ordinal_position").rows
    return keys, {name: _least(*kind) for name, *kind in columns}


def _by_index(connection, sql, problems):
    """The first row of a query, which must read by an index and nothing else."""
    connection.query("FLUSH STATUS")
    row = connection.query(sql).rows[0]
    handler = dict(connection.query("SHOW SESSION STATUS LIKE 'Handler\\_read\\_%'").rows)
    if int(row[0]) and not int(handler["Handler_read_key"]):
        problems.append(f"no index was used by {sql}")
    return row, int(handler["Handler_read_rnd_next"])


def sums(connection, db, table, but=()):
    """Rows and a sum of them, but for some columns: as a scan gives them (None), and as each index does."""
    keys, columns = _keys(connection, db, table)
    row = "CONCAT_WS('/'," + ",".join(f"IFNULL({c},'')" for c in columns if c not in but) + ")"
    ways = {None: f"IGNORE INDEX ({','.join(keys)})" if keys else "", **{name: f"FORCE INDEX ({name}) WHERE {parts[0]}>={columns[parts[0]]}" for name, (_, parts) in keys.items()}}
    return {name: connection.query(f"SELECT COUNT(*),SUM(CRC32({row})) FROM {db}.{table} {way}").rows[0] for name, way in ways.items()}


def check(connection, db, table):
    """Problems of one table."""
    problems, (keys, columns) = [], _keys(connection, db, table)
    said = connection.query(f"CHECK TABLE {db}.{table} EXTENDED").rows
    if [row[3] for row in said] != ["OK"]:
        problems.append(f"CHECK TABLE {table}: {said}")
    if not keys:
        return problems
    row_of = "CONCAT_WS('/'," + ",".join("{0}." + c for c in columns) + ")"
    sums = f"COUNT(*),SUM(CRC32({row_of.format('t')}))"
    no_index = f"IGNORE INDEX ({','.join(keys)})"
    scanned = connection.query(f"SELECT {sums} FROM {db}.{table} t {no_index}").rows[0]
    for name, (unique, parts) in keys.items():
        found, scans = _by_index(connection, f"SELECT {sums} FROM {db}.{table} t FORCE INDEX ({name}) WHERE {parts[0]}>={columns[parts[0]]}", problems)
        if found != scanned or scans:
            problems.append(f"{table}: a scan gives {scanned}, index {name} {found} (rows and a sum), {scans} of them by a scan")
        if unique:
            equal = " AND ".join(f"t.{c}=d.{c}" for c in parts)
            some = f"(SELECT * FROM {db}.{table} {no_index} LIMIT {SOME})"
            wanted = connection.one(f"SELECT COUNT(*) FROM {some} d")
            found, _ = _by_index(connection, f"SELECT COUNT(*) FROM {some} d STRAIGHT_JOIN {db}.{table} t FORCE INDEX ({name}) ON {equal} "
                                             f"AND {row_of.format('t')}={row_of.format('d')}", problems)
            if found[0] != wanted:
                problems.append(f"{table}: of {wanted} rows index {name} finds {found[0]} one by one")
    return problems
