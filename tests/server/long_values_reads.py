"""The reading steps of `long_values_test.py`: queries of all sorts over its tables."""


class Reads:
    """Steps of a run that change nothing."""

    def read_rows(self):
        t = self.any()
        what = self.rng.choice([t.shown(), "b1,b2,id", "*", "id,v,w,b1"]) if not t.versioned and not t.sequence else t.shown()
        self.main.do(f"SELECT {what} FROM {self.make.source(t)} WHERE {self.make.where(t)}")

    def read_sorted(self):
        r, t = self.rng, self.any()
        if not t.id_is_unique:
            return
        by = r.choice(["b1", "b2 DESC", "v", "k,b1 DESC", "LENGTH(b1)", "id DESC", "u", "w", "j", "LEFT(b1,20)", "k"] + t.generated)
        self.main.do(f"SELECT {r.choice(['id', 'id,MD5(b1)', 'id,b1', 'id,MD5(b2),CRC32(w),v', t.shown()])} FROM {self.make.source(t)} WHERE {self.make.where(t)} ORDER BY {by},id" +
                     r.choice(["", f" LIMIT {r.randint(0, 9)}", f" LIMIT {r.randint(1, 9)} OFFSET {r.randint(0, 9)}"]), ordered=True)

    def read_grouped(self):
        r, t, where = self.rng, self.any(), ""
        where = self.make.where(t)
        b = r.choice(["b1", "b2", "v", "j", "w"] + t.generated)
        hint = r.choice(["", "", "SQL_BIG_RESULT ", "SQL_SMALL_RESULT ", "SQL_BUFFER_RESULT "])
        self.main.do(r.choice([
            f"SELECT {hint}k,MD5(GROUP_CONCAT({b} ORDER BY id,b1,b2 SEPARATOR '|')),COUNT(*) FROM {self.make.source(t)} WHERE {where} GROUP BY k",
            f"SELECT COUNT(*),MD5(GROUP_CONCAT(MD5(x) ORDER BY 1)) FROM (SELECT {hint}DISTINCT {b} x FROM {t.name} WHERE {where}) d",
            f"SELECT {hint}MD5({b}),COUNT(*),SUM(CRC32(b2)) FROM {t.name} WHERE {where} GROUP BY {b}",
            f"SELECT {hint}k,MD5(MIN({b})),MD5(MAX({b})),SUM(LENGTH(b1)) FROM {self.make.source(t)} WHERE {where} GROUP BY k WITH ROLLUP",
            f"SELECT COUNT(DISTINCT {b},k),COUNT(DISTINCT b1),MD5(MAX({b})) FROM {t.name} WHERE {where}",
            f"SELECT MD5({b}),COUNT(*) c FROM {t.name} GROUP BY {b} HAVING c>1 ORDER BY {b} DESC LIMIT 5",
            f"SELECT k,MIN(u),MAX(u) FROM {t.name} GROUP BY k", f"SELECT DISTINCT k,LEFT(b1,8) FROM {t.name} WHERE {where}",
            f"SELECT MD5(MAX({b})),MD5(MIN({b})) FROM {t.name}", f"SELECT k,JSON_ARRAYAGG(LEFT(b1,50) ORDER BY id,b1) FROM {t.name} GROUP BY k",
            f"SELECT {hint}k,MD5(GROUP_CONCAT(b1,b2 ORDER BY b2,id,b1)) FROM {t.name} GROUP BY k,{b} ORDER BY k,{b}"]))

    def read_windows(self):
        r, t = self.rng, self.any()
        if not t.id_is_unique:
            return
        b = r.choice(["b1", "b2", "v"])
        self.main.do(r.choice([
            f"SELECT id,MD5(LAG({b}) OVER (ORDER BY id)),MD5(LEAD(b1,2) OVER (ORDER BY id DESC)) FROM {t.name}",
            f"SELECT id,MD5(FIRST_VALUE({b}) OVER (PARTITION BY k ORDER BY id)),MD5(LAST_VALUE(b1) OVER (PARTITION BY k ORDER BY b1,id)),ROW_NUMBER() OVER (ORDER BY {b},id) FROM {t.name} WHERE {self.make.where(t)}",
            f"SELECT id,RANK() OVER (PARTITION BY LEFT(b1,3) ORDER BY LEFT({b},200)),MD5(b2),COUNT(*) OVER (PARTITION BY b1) FROM {self.make.source(t)}",
            f"SELECT id,MD5(b1),MD5(NTH_VALUE({b},2) OVER (ORDER BY k,id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING)) FROM {t.name} ORDER BY {b},id LIMIT 7",
            f"SELECT * FROM (SELECT id,MD5(b1),ROW_NUMBER() OVER (PARTITION BY k ORDER BY {b},id) n FROM {t.name}) d WHERE n<3"]))

    def pair(self):
        """Two tables, as a and b, and how they meet."""
        r, t, u = self.rng, self.any(), self.any()
        on = r.choice(["a.id=b.id", "a.id=b.id", "a.k=b.k", "a.k=b.id", "a.b1=b.b1", "a.u=b.id", "a.b2=b.b2", "LEFT(a.b1,10)=b.b1", "a.v=b.v", "a.w=b.w", "a.u=b.u", "b.b1 LIKE CONCAT(LEFT(a.b1,3),'%') AND a.id<9", "a.k=b.k AND a.b1=b.b1", "a.id=b.id AND b.b1>a.v", "b.id BETWEEN a.id AND a.id+2"])
        return t, u, on

    def read_joined(self):
        r, (t, u, on) = self.rng, self.pair()
        join = r.choice(["JOIN", "JOIN", "LEFT JOIN", "STRAIGHT_JOIN", "RIGHT JOIN"])
        what = r.choice(["COUNT(*),SUM(CRC32(a.b1)),SUM(CRC32(b.b2)),SUM(a.id),SUM(b.id)", "a.id,b.id,MD5(a.b1),MD5(b.b1)", "a.id,b.id,CRC32(CONCAT_WS('|',a.b2,b.b1,a.j,b.v))", "a.k,MD5(GROUP_CONCAT(b.b1 ORDER BY a.id,b.id,b.b1)),MD5(MAX(a.b2))"])
        more = f" {r.choice(['JOIN', 'LEFT JOIN'])} {self.make.source(self.any(), 'c')} ON {r.choice(['c.id=a.id', 'c.k=b.k AND c.id<20', 'c.b1=a.b1', 'c.u=b.id'])}" if self.make.chance(0.35) else ""
        tail = " GROUP BY a.k" if "GROUP_CONCAT" in what else r.choice(["", "", " ORDER BY a.b1,b.b2 DESC,a.id"]) if "COUNT" not in what else ""
        ahead = "" if "GROUP_CONCAT" in what else r.choice(["", "", "SQL_BUFFER_RESULT "])
        self.main.do(f"SELECT {ahead}{what} FROM {self.make.source(t, 'a')} {join} {self.make.source(u, 'b')} ON {on}{more} WHERE {self.make.where(t, 'a.')}" + (f" AND ({self.make.where(u, 'b.')})" if self.make.chance(0.4) else "") + tail)

    def read_subquery(self):
        r, (t, u, on) = self.rng, self.pair()
        c = r.choice(["b1", "b1", "b2", "k", "id", "v", "u", "w"])
        inner = self.make.where(u, "b.")
        self.main.do(f"SELECT {r.choice(['a.id,MD5(a.b1)', 'COUNT(*),SUM(CRC32(a.b2))', t.shown('a.')])} FROM {self.make.source(t, 'a')} WHERE " + r.choice([
            f"a.{c} IN (SELECT b.{c} FROM {self.make.source(u, 'b')} WHERE {inner})", f"a.{c} NOT IN (SELECT b.{c} FROM {u.name} b WHERE {inner})",
            f"EXISTS (SELECT 1 FROM {self.make.source(u, 'b')} WHERE {on} AND ({inner}))", f"NOT EXISTS (SELECT 1 FROM {u.name} b WHERE {on})",
            f"a.b1 >= (SELECT MAX(b.b1) FROM {u.name} b WHERE b.k=a.k)", f"(a.k,a.b1) IN (SELECT b.k,b.b1 FROM {u.name} b WHERE {inner})", f"a.b1 = ANY (SELECT b.b2 FROM {u.name} b)", f"a.b1 > ALL (SELECT b.b1 FROM {u.name} b WHERE b.k=a.k AND b.id<>a.id)",
            f"a.{c} IN (SELECT b.{c} FROM {u.name} b JOIN {self.any().name} c ON b.k=c.k WHERE {inner})", f"a.{c} IN (SELECT MAX(b.{c}) FROM {u.name} b GROUP BY b.k)", f"CRC32(a.b1) IN (SELECT CRC32(b.b1) FROM {u.name} b WHERE {on})",
            f"(SELECT b.b1 FROM {self.make.source(u, 'b')} WHERE b.id=a.k AND b.id IS NOT NULL ORDER BY b.id LIMIT 1)=a.b1 OR {self.make.where(t, 'a.')}"]))

    def read_derived(self):
        t, u, _ = self.pair()
        self.main.do(self.rng.choice([
            f"SELECT d.k,MD5(d.m),a.id,MD5(a.b1) FROM (SELECT k,MAX(b1) m FROM {t.name} GROUP BY k) d JOIN {u.name} a ON d.k=a.k WHERE {self.make.where(u, 'a.')}",
            f"SELECT a.id,MD5(d.b1) FROM {u.name} a LEFT JOIN (SELECT * FROM {t.name} WHERE {self.make.where(t)} ) d ON d.id=a.id",
            f"WITH c AS (SELECT id,k,b1,b2 FROM {t.name} WHERE {self.make.where(t)}) SELECT x.id,y.id,CRC32(CONCAT_WS('-',x.b1,y.b2)) FROM c x JOIN c y ON x.k=y.k",
            f"SELECT d.id,CRC32(d.b1),(SELECT MD5(MAX(b2)) FROM {u.name} x WHERE x.k=d.k) FROM (SELECT id,k,b1 FROM {t.name} ORDER BY b1,id LIMIT 5) d",
            f"SELECT a.id,MD5(m) FROM {u.name} a JOIN (SELECT b1 m,COUNT(*) n FROM {t.name} GROUP BY b1) d ON d.m=a.b1 WHERE {self.make.where(u, 'a.')}",
            f"SELECT id,(SELECT CONCAT_WS('|',MD5(x.b1),MD5(a.b1)) FROM {t.name} x WHERE x.id=a.id+1 LIMIT 1) FROM {u.name} a"]) if t.id_is_unique and u.id_is_unique else "SELECT 1")

    def read_recursive(self):
        t = self.any()
        if t.id_is_unique:
            self.main.do(f"WITH RECURSIVE c AS (SELECT id,b1 x,0 n FROM {t.name} WHERE id<12 UNION {self.rng.choice(['', 'ALL'])} SELECT t.id,CONCAT_WS('-',LEFT(c.x,50000),LEFT(t.b1,200)),n+1 FROM c JOIN {t.name} t ON t.id=c.id+{self.rng.choice([1, 3])} WHERE n<4) SELECT id,n,MD5(x),LENGTH(x) FROM c")

    def read_sets(self):
        r, t, u = self.rng, self.any(), self.any()
        ops = [r.choice(["UNION", "UNION ALL", "EXCEPT", "INTERSECT"]) for _ in range(2)]
        c = r.choice(["b1", "b2", "k,b1", "b1,b2", "v"])
        self.main.do(f"SELECT {','.join(f'MD5({x})' for x in c.split(','))} FROM (SELECT {c} FROM {t.name} WHERE {self.make.where(t)} {ops[0]} SELECT {c} FROM {u.name} {ops[1]} SELECT {c} FROM {self.any().name} WHERE id<30) d")

    def read_json(self):
        t = self.any()
        self.main.do(self.rng.choice([f"SELECT t.id,x.e,x.o FROM {t.name} t, JSON_TABLE(t.j,'$.c[*]' COLUMNS (o FOR ORDINALITY, e INT PATH '$')) x WHERE {self.make.where(t, 't.')}",
                                      f"SELECT t.id,MD5(x.b) FROM {t.name} t, JSON_TABLE(t.j,'$' COLUMNS (b LONGTEXT PATH '$.b' DEFAULT 'none' ON EMPTY)) x",
                                      f"SELECT id,MD5(JSON_EXTRACT(j,'$.b')),JSON_LENGTH(j),MD5(JSON_MERGE_PATCH(j,'{{\"z\":1}}')) FROM {t.name} WHERE JSON_VALID(j)"]))

    def read_merged(self):
        r, t = self.rng, self.any()
        n, m = r.randint(1, 60), r.randint(0, 9)
        self.main.do(f"SELECT {r.choice([t.shown(), 'id,b1', 'COUNT(*),SUM(CRC32(b1))'])} FROM {t.name} WHERE " + r.choice([
            f"k={m} OR u={n}", f"k={m} OR id={n} OR v LIKE 'v%'", f"k={m} AND b1 LIKE '{r.choice('abcde')}%'", f"b1 LIKE 'a%' OR b2 LIKE 'b%'", f"(k={m} AND u>{n}) OR (id<{n} AND b1>'c')", f"k={m} AND u BETWEEN {n} AND {n + 20} AND id<50",
            f"k={m} AND v={self.make.text(False)}", f"k IN ({m},3) AND b1 BETWEEN 'a' AND 'd'", f"u<{n} AND k={m}", f"k={m} OR b1={self.make.text(False)}"]))

    def read_view(self):
        r, t = self.rng, self.any()
        self.main.do(r.choice([f"SELECT id,MD5(b1),MD5(b2) FROM vt_{t.name} WHERE {r.choice(['k=3', 'b1<b2', 'id<20', 'b1=v'])}", f"SELECT a.id,MD5(a.b1),MD5(b.b1) FROM vt_{t.name} a JOIN vm_{self.any().name} b ON a.k=b.k WHERE b.id<30",
                               f"SELECT id,MD5(b1),CRC32(w) FROM vm_{t.name} WHERE b1>'b'", f"SELECT k,MD5(MAX(b2)) FROM vm_{t.name} GROUP BY k"]))

    def read_locking(self):
        t = self.any()
        self.main.do(f"SELECT {t.shown()} FROM {self.make.source(t)} WHERE {self.make.where(t)} {self.rng.choice(['FOR UPDATE', 'LOCK IN SHARE MODE', 'FOR UPDATE SKIP LOCKED', 'LOCK IN SHARE MODE NOWAIT'])}")

    def read_history(self):
        old = [t for t in self.tables if t.versioned]
        if old:
            t = self.rng.choice(old)
            period = self.rng.choice(["ALL", f"AS OF FROM_UNIXTIME({self.clock - self.rng.randint(0, 60)})", f"BETWEEN FROM_UNIXTIME({self.clock - 50}) AND FROM_UNIXTIME({self.clock - 5})"])
            self.main.do(f"SELECT {t.shown()},UNIX_TIMESTAMP(ROW_START),UNIX_TIMESTAMP(ROW_END) FROM {t.name} FOR SYSTEM_TIME {period}" + self.rng.choice(["", f" WHERE {self.make.where(t)}"]))

    def read_const(self):
        r, t, u = self.rng, self.any(), self.any()
        n = r.randint(1, 60)
        self.main.do(r.choice([
            f"SELECT MD5(MIN(CONCAT_WS('|',LEFT(o.b1,5),a.b1))),MD5(MAX(CONCAT_WS('|',LEFT(o.b2,5),a.b2))),COUNT(*) FROM {t.name} a JOIN {self.make.source(u, 'o')} WHERE a.id={n}",
            f"SELECT MD5(MIN(CONCAT_WS('|',LEFT(o.b1,5),a.b1))),COUNT(*) FROM {t.name} a JOIN {self.make.source(u, 'o')} ON a.u={n} LEFT JOIN {self.any().name} c ON c.id={n + 1}",
            f"SELECT o.id,MD5(CONCAT_WS('|',s.b1,o.b1)) FROM single s JOIN {u.name} o", f"SELECT o.id,MD5(a.b1),MD5(b.b2) FROM {u.name} o LEFT JOIN {t.name} a ON a.id={n} LEFT JOIN {t.name} b ON b.id={n + 1}",
            f"SELECT o.id,(SELECT MD5(GROUP_CONCAT(a.b1,x.b1 ORDER BY x.id,x.b1)) FROM {t.name} a JOIN {self.any().name} x ON x.k=o.k WHERE a.id={n}) FROM {u.name} o WHERE o.id<15",
            f"SELECT o.id,MD5(e.b1),MD5(o.b1) FROM {u.name} o LEFT JOIN empty_one e ON e.id=o.id",
            f"SELECT a.id,MD5(a.b1),MD5(b.b1),MD5(c.b1) FROM {t.name} a,{t.name} b,{u.name} c WHERE a.id={n} AND b.id=a.k AND c.id=b.u"]))

    def read_function(self):
        r, t, u = self.rng, self.any(), self.any()
        self.main.do(r.choice([f"SELECT id,MD5(CONCAT_WS('|',b1,f1(id),b2)) FROM {t.name} WHERE id<25", f"SELECT id,f3(k),MD5(b1) FROM {t.name} WHERE {self.make.where(t)}",
                               f"SELECT id,MD5(f2(b1,id)),MD5(b1) FROM (SELECT id,b1 FROM {t.name} WHERE {self.make.where(t)}) d", f"SELECT a.id FROM {t.name} a WHERE f1(a.id)=a.b1", f"SELECT id,MD5(f4(b1,id)),MD5(b1),MD5(b2) FROM (SELECT id,b1,b2 FROM {t.name} WHERE {self.make.where(t)}) d", f"UPDATE {t.name} SET v=LEFT(f4(b2,id),60) WHERE id<{r.randint(1, 60)} ORDER BY id",
                               f"SELECT id,MD5(f1(k)) FROM {t.name} WHERE {self.make.where(t)} ORDER BY b1,id",
                               f"SELECT COUNT(*),SUM(f3(b.k)) FROM {t.name} a JOIN {u.name} b ON a.id=b.id WHERE a.id<20"]))
