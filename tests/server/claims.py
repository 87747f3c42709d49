"""Names that all clients want: a table with a primary key, a unique key over text in the default collation and a plain key.

A client claims names, spells them in other ways that the collation takes for the same, renames, renumbers, replaces and gives
back those it has. Whoever claims one that is taken is refused (1062) and gives up the whole transaction. So what a client
has is a function of what it was told, and no name is ever there twice.
"""
from eskerlib.client import SqlError

DUPLICATE = 1062
COLUMNS = ("id INT NOT NULL, client INT, name VARCHAR(40) CHARACTER SET utf8mb4, hits INT, "
           "PRIMARY KEY (id), UNIQUE KEY name (name), KEY client (client, hits)")
NAMES = 60
KINDS = {"claim": 4, "renumber": 2, "rename": 2, "replace": 2, "again": 2, "swap": 2, "give_back": 1}


def same(name):
    """What all spellings of a name have in common."""
    return name.rstrip(" ").lower().replace("é", "e")


class Claims:
    """What a Writer does with the table; model.claims is {name: (id, hits)}."""

    def spelled(self, name):
        """A name as the default collation takes it for the same."""
        letters = [self.random.choice("eEéÉ") if c == "e" else self.random.choice([c, c.upper()]) for c in name]
        return "".join(letters) + " " * self.random.choice([0, 0, 1, 3])

    def any_name(self):
        """A name, taken or not."""
        return f"ele-{self.random.randint(1, NAMES)}"

    def claim_id(self, at=0):
        """An id that nobody else uses, nor this client before."""
        return (self.next_batch * 8 + at) * 100 + self.number

    def claim_sql(self, model, names, verb="INSERT"):
        """One statement that claims names."""
        rows = []
        for at, name in enumerate(names):
            model.claims[name] = (self.claim_id(at), 0)
            rows.append(f"({self.claim_id(at)},{self.number},'{self.spelled(name)}',0)")
        return f"{verb} INTO claims VALUES {','.join(rows)}"

    def claim(self, model):
        names = {self.any_name() for _ in range(self.random.choice([1, 1, 3, 8]))} - set(model.claims)
        return [self.claim_sql(model, sorted(names))] if names else self.give_back(model)

    def renumber(self, model):
        """The row of a name gets another primary key."""
        name = self.some(model.claims)
        if name is None:
            return self.claim(model)
        model.claims[name] = (self.claim_id(), model.claims[name][1] + 1)
        return [f"UPDATE claims SET id={self.claim_id()}, hits=hits+1 WHERE name='{self.spelled(name)}'"]

    def rename(self, model):
        """The row of an id gets another name, or the same in another spelling."""
        old = self.some(model.claims)
        if old is None:
            return self.claim(model)
        new = self.random.choice([old, self.any_name()])
        if new != old and new in model.claims:
            return self.swap(model)
        row = model.claims.pop(old)
        model.claims[new] = row
        return [f"UPDATE claims SET name='{self.spelled(new)}' WHERE id={row[0]}"]

    def replace(self, model):
        """One row takes the place of one or two: one has its id, one its name."""
        if len(model.claims) < 2:
            return self.claim(model)
        one, two = self.random.choice(list(model.claims)), self.random.choice(list(model.claims))
        row = model.claims.pop(one)
        model.claims[two] = (row[0], 7)
        return [f"REPLACE INTO claims VALUES ({row[0]},{self.number},'{self.spelled(two)}',7)"]

    def again(self, model):
        """Claims what it has: ON DUPLICATE KEY UPDATE, and INSERT IGNORE, which changes nothing."""
        name = self.some(model.claims)
        if name is None:
            return self.claim(model)
        row, spelled = model.claims[name], self.spelled(name)
        model.claims[name] = (self.claim_id(), row[1] + 1)
        return ["BEGIN", f"INSERT IGNORE INTO claims VALUES ({self.claim_id(1)},{self.number},'{spelled}',0)",
                f"INSERT INTO claims VALUES ({self.claim_id()},{self.number},'{spelled}',0) ON DUPLICATE KEY UPDATE id=VALUES(id), hits=hits+1",
                "COMMIT"]

    def swap(self, model):
        """Two rows exchange their names, in several steps and once for nothing."""
        if len(model.claims) < 2:
            return self.claim(model)
        one, two = self.random.sample(list(model.claims), 2)
        a, b = model.claims[one][0], model.claims[two][0]
        rest = f"rest-{self.claim_id()}"
        steps = [f"UPDATE claims SET name='{rest}' WHERE id={a}", f"UPDATE claims SET name='{self.spelled(one)}' WHERE id={b}",
                 f"UPDATE claims SET name='{self.spelled(two)}' WHERE id={a}"]
        model.claims[one], model.claims[two] = model.claims[two], model.claims[one]
        return ["BEGIN", "SAVEPOINT here", *steps, f"DELETE FROM claims WHERE id IN ({a},{b})", "ROLLBACK TO SAVEPOINT here", *steps, "COMMIT"]

    def give_back(self, model):
        """Deletes by the plain key."""
        hits = self.random.choice([0, 0, 1, 7])
        for name in [name for name, row in model.claims.items() if row[1] == hits]:
            del model.claims[name]
        return [f"DELETE FROM claims WHERE client={self.number} AND hits={hits}"]


def read(connection, db, found, new_model, problems):
    """Fills the models in `found` with what a scan gives; how many rows that was. Names that are taken are refused, all others are
    free: no entry is left of what was given back or never committed."""
    taken = set()
    rows = connection.query(f"SELECT id,client,name,hits FROM {db}.claims IGNORE INDEX (PRIMARY,name,client)").rows
    for row_id, client, name, hits in rows:
        if same(name) in taken:
            problems.append(f"claims: '{name}' is there twice")
        taken.add(same(name))
        found.setdefault(int(client), new_model()).claims[same(name)] = (int(row_id), int(hits))
    free = [name for name in (f"ele-{n}" for n in range(1, NAMES + 1)) if name not in taken]
    connection.query("BEGIN")
    for names, wanted in ((free, len(free)), (sorted(taken), 0)):
        values = ",".join(f"({-1 - at - wanted * 1000},0,'{name.upper()}',0)" for at, name in enumerate(names))
        try:
            got = connection.query(f"INSERT IGNORE INTO {db}.claims VALUES {values}").affected if names else 0
        except SqlError as e:
            problems.append(f"claims: {e}")
            continue
        if got != wanted:
            problems.append(f"claims: of {len(names)} names {got} could be claimed, must be {wanted}")
    connection.query("ROLLBACK")
    return len(rows)
