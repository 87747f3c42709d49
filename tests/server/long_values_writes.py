"""The writing steps of `long_values_test.py`: single statements that change its tables."""
from long_values import KINDS


class Writes:
    """Steps of a run that change rows."""

    def insert(self):
        r, t = self.rng, self.any()
        verb = r.choice(["INSERT", "INSERT", "INSERT IGNORE", "REPLACE"])
        if t.long_unique and verb == "REPLACE":
            return
        rows = [self.make.row(None if self.make.chance(0.6) else 100 + self.number + n) for n in range(r.choice([1, 1, 2, 6]))]
        self.main.do(f"{verb} INTO {t.name} ({','.join(KINDS)}) VALUES {','.join(rows)}", affected=not t.versioned, words=not t.long_unique)
        self.changed(t)

    def fill_one(self):
        self.fill(self.any())

    def returning(self):
        r, t = self.rng, self.any()
        what = r.choice(["id,b1,b2", "id,MD5(b1),MD5(b2),v", "id,(SELECT COUNT(*) FROM single),b1", "b2,j,id"] + [f"id,{g}" for g in t.generated])
        if not t.id_is_unique or t.long_unique:
            return
        self.main.do(r.choice([
            f"INSERT INTO {t.name} ({','.join(KINDS)}) VALUES {self.make.row()},{self.make.row()} RETURNING {what}", f"REPLACE INTO {t.name} ({','.join(KINDS)}) VALUES {self.make.row()} RETURNING {what}",
            f"INSERT INTO {t.name} ({','.join(KINDS)}) VALUES {self.make.row()} ON DUPLICATE KEY UPDATE b1=CONCAT('d',VALUES(b1)),b2=IFNULL(VALUES(b2),b2) RETURNING {what}",
            f"DELETE FROM {t.name} WHERE {self.make.where(t)} ORDER BY id LIMIT {r.randint(1, 4)} RETURNING {what}",
            f"INSERT INTO {t.name} (id,k,b1,b2) SELECT id+{r.choice([200, 300, 5])},k,b1,b2 FROM {t.name} WHERE {self.make.where(t)} ORDER BY id RETURNING {what}",
            f"INSERT IGNORE INTO {t.name} (id,k,b1,b2,v) SELECT id+3,k,b2,b1,v FROM {self.any().name} ORDER BY id,b1 LIMIT 4 RETURNING {what}"]), affected=not t.versioned)
        self.changed(t)

    def insert_select(self):
        r, t, u = self.rng, self.any(), self.any()
        if t.sequence and not u.id_is_unique:
            return
        if self.make.chance(0.5):
            u = t
        if not u.id_is_unique:
            return
        end = "" if t.long_unique else r.choice(["", "", " ON DUPLICATE KEY UPDATE b1=VALUES(b1)", f" ON DUPLICATE KEY UPDATE b2=CONCAT(LEFT({t.name}.b2,20000),LEFT(VALUES(b1),20000)),v='dup'", f" ON DUPLICATE KEY UPDATE b2=VALUES(b1)", f" ON DUPLICATE KEY UPDATE b1=(SELECT MAX(q.b1) FROM {self.any().name} q WHERE q.id=VALUES(id))"])
        self.main.do(f"INSERT {r.choice(['', 'IGNORE '])}INTO {t.name} (id,k,b1,b2,v) SELECT x.id+{r.choice([0, 1, 5, 100, 400])},{r.choice(['x.k', 'x.k', '2'])},{r.choice(['x.b1', 'x.b2', 'CONCAT(x.v,LEFT(x.b1,50000))', 'f1(x.id)'])},x.b2,LEFT(x.v,200) FROM {self.make.source(u, 'x')} WHERE {self.make.where(u, 'x.')} ORDER BY x.id" + r.choice(["", f" LIMIT {r.randint(1, 9)}"]) + end, affected=not t.versioned)
        self.changed(t)

    def replace_select(self):
        r, t, u = self.rng, self.any(), self.any()
        if t.long_unique or not u.id_is_unique:
            return
        self.main.do(f"REPLACE INTO {t.name} ({','.join(KINDS)}) SELECT x.id+{r.choice([0, 0, 3])},x.k,x.u,x.b2,x.b1,x.j,LEFT(x.v,100),x.w FROM {u.name} x WHERE {self.make.where(u, 'x.')} ORDER BY x.id", affected=not t.versioned)
        self.changed(t)

    def duplicate(self):
        """VALUES() of a blob that is assigned before is freed memory in MariaDB 10.11, with every engine."""
        r, t = self.rng, self.any()
        if t.long_unique:
            return
        sets = r.choice(["b1=VALUES(b1)", "b2=CONCAT(LEFT(b2,30000),VALUES(b2))", "b2=VALUES(b1)", f"b1={self.make.changed()}", "k=k+1,b1=b1", "u=u+1,b2=VALUES(b1)", "id=id+70,b1=CONCAT(VALUES(v),LEFT(b1,30000))", f"b1=(SELECT q.b1 FROM {self.any().name} q WHERE q.id=VALUES(k) LIMIT 1)", "v=LEFT(VALUES(b1),100),b1=IFNULL(b1,VALUES(b1))", "b1=DEFAULT(b1),b2=DEFAULT(b2)", "j=VALUES(j),w=VALUES(w)"])
        rows = ",".join(self.make.row() for _ in range(r.choice([1, 2, 5])))
        self.main.do(f"INSERT {r.choice(['', '', 'IGNORE '])}INTO {t.name} ({','.join(KINDS)}) VALUES {rows} ON DUPLICATE KEY UPDATE {sets}", affected=not t.versioned)
        self.changed(t)

    def update(self):
        r, t = self.rng, self.any()
        if not t.id_is_unique:
            return self.main.do(f"UPDATE {t.name} SET {self.make.sets()} WHERE k={r.randint(0, 9)} ORDER BY id,b1,b2", affected=False)
        ignore = r.choice(["", "", "IGNORE "]) if not t.long_unique else ""
        self.main.do(f"UPDATE {ignore}{self.make.source(t)} SET {self.make.sets(unique=self.make.chance(0.3))} WHERE {self.make.where(t)} ORDER BY {r.choice(['id', 'id', 'id DESC'])}" + r.choice(["", "", f" LIMIT {r.randint(1, 9)}"]))
        return self.changed(t)

    def update_joined(self):
        r, t, u = self.rng, self.any(), self.any()
        if not (t.id_is_unique and u.id_is_unique):
            return
        plain = {"b1": [f"a.b1={x}" for x in ("b.b1", "b.b2", "CONCAT(LEFT(b.b1,9000),'j',LEFT(a.b1,9000))", "b.v")], "b2": ["a.b2=b.b1", "a.b2=b.j"], "v": ["a.v=LEFT(b.b1,90)"]}
        sets = ",".join(r.choice(plain[c]) for c in r.sample(list(plain), r.choice([1, 2])))
        what = r.randrange(6)
        if what <= 1:
            sql = f"UPDATE {self.make.source(t, 'a')} JOIN {self.make.source(u, 'b')} ON {r.choice(['a.k=b.id', 'a.id=b.id', 'a.u=b.id'])} SET {sets} WHERE {self.make.where(u, 'b.')}"
        elif what == 2 and t is not u:
            sql = f"UPDATE {t.name} a JOIN {u.name} b ON a.id=b.id SET {sets},b.v='both',b.b1={r.choice(['b.b2', 'CONCAT(LEFT(b.b1,9000),1)'])} WHERE {self.make.where(t, 'a.')}"
        elif what == 3:
            sql = f"UPDATE {t.name} a SET a.b1=(SELECT b.b1 FROM {u.name} b WHERE b.id=a.id+1),a.v='sub' WHERE {self.make.where(t, 'a.')} ORDER BY a.id"
        elif what == 4:
            sql = f"UPDATE {t.name} SET b1=CONCAT('in',LEFT(b1,500)) WHERE b1 IN (SELECT q.b1 FROM {u.name} q WHERE {self.make.where(u, 'q.')})"
        else:
            sql = f"UPDATE {t.name} a,(SELECT k,MAX(b1) m,MIN(b2) n FROM {u.name} GROUP BY k) d SET a.b1=d.m,a.b2=d.n WHERE a.k=d.k AND ({self.make.where(t, 'a.')})"
        self.main.do(sql)
        self.changed(t)

    def delete(self):
        r, t, u = self.rng, self.any(), self.any()
        if not t.id_is_unique:
            return
        self.main.do(r.choice([f"DELETE FROM {t.name} WHERE {self.make.where(t)} ORDER BY id LIMIT {r.randint(1, 5)}", f"DELETE FROM {t.name} WHERE b1 IN (SELECT b1 FROM {u.name} q WHERE q.id BETWEEN 10 AND 15)", f"DELETE FROM {t.name} WHERE {self.make.where(t)} ORDER BY LEFT(b1,200),id LIMIT 4"]))
        self.changed(t)

    def delete_joined(self):
        r, t, u = self.rng, self.any(), self.any()
        n = r.randint(1, 60)
        if t is u and t.versioned:  # where rows lie in their primary key, a row of which the history has come is not found again
            return
        self.main.do(r.choice([f"DELETE a FROM {t.name} a JOIN {u.name} b ON a.b1=b.b1 WHERE b.id BETWEEN {n} AND {n + 2} AND a.id>30", f"DELETE a,b FROM {t.name} a JOIN {u.name} b ON a.id=b.id WHERE a.id BETWEEN {n} AND {n + 3} AND LENGTH(b.b1)>10",
                               f"DELETE a FROM {t.name} a LEFT JOIN {u.name} b ON a.id=b.id WHERE b.id IS NULL AND a.k={n % 10}"]))
        self.changed(t)

    def through_view(self):
        r, t = self.rng, self.any()
        if not t.id_is_unique or t.long_unique:
            return
        n = r.randint(1, 60)
        self.main.do(r.choice([f"UPDATE vm_{t.name} SET {self.make.sets()} WHERE id BETWEEN {n} AND {n + 4} ORDER BY id", f"INSERT INTO vm_{t.name} ({','.join(KINDS)}) VALUES {self.make.row()}", f"DELETE FROM vm_{t.name} WHERE id={n}", f"REPLACE INTO vm_{t.name} ({','.join(KINDS)}) VALUES {self.make.row()}",
                               f"UPDATE vm_{t.name} a JOIN vt_{self.any().name} b ON a.id=b.id SET a.b1=b.b2 WHERE a.id<30"]), affected=not t.versioned)
        self.changed(t)

    def portion(self):
        some = [t for t in self.tables if t.period]
        if some:
            t, r = self.rng.choice(some), self.rng
            year = r.randint(2001, 2028)
            n = r.randint(1, 60)
            self.main.do(r.choice([f"UPDATE {t.name} FOR PORTION OF p FROM '{year}-01-01' TO '{year + 2}-01-01' SET b1=CONCAT('p',LEFT(b1,60000)) WHERE id={n}", f"DELETE FROM {t.name} FOR PORTION OF p FROM '{year}-01-01' TO '{year + 1}-01-01' WHERE id={n} OR k={n % 10}"]), affected=False)
            self.compare(t)

    def call(self):
        self.main.do(f"CALL p{self.rng.choice('1234')}({self.rng.randint(1, 50)})", affected=False)
        if self.make.chance(0.4):
            self.compare(self.any())

    def variables(self):
        r, t = self.rng, self.any()
        n = r.randint(1, 60)
        self.main.do(f"SELECT b1,b2,MD5(b1) INTO @x,@y,@z FROM {t.name} WHERE id={n} LIMIT 1" if t.id_is_unique else "SET @x='p',@y='q'", compare=False)
        if t.id_is_unique and not t.long_unique:
            self.main.do(r.choice([f"UPDATE {t.name} SET b1=@y,b2=@x WHERE id={n + 1}", f"INSERT INTO {t.name} (id,b1,b2) VALUES ({n + 2},@x,@y) ON DUPLICATE KEY UPDATE b2=@x", f"SELECT id,MD5(@v:=b1),MD5(@v) FROM {t.name} WHERE id<20", f"EXECUTE IMMEDIATE 'SELECT id,MD5(b1) FROM {t.name} WHERE b1=? OR b2=?' USING @x,@y", f"SET @x=(SELECT GROUP_CONCAT(b1 ORDER BY id) FROM {t.name} WHERE id<9)", "SELECT MD5(@x),MD5(@y),@z"]))
            self.changed(t)
