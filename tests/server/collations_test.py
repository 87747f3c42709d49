"""Every collation that keys can have: an index finds, orders and tells apart the strings as the server does without it.

    ROUNDS=1         sets of random strings for each collation
    SEED=1
    ONLY=            only collations with these words in their names
"""
import os
import random

import pytest

from cases import check
from eskerlib import env, show
from eskerlib.client import SqlError
from randomsql import text

ONLY = os.environ.get("ONLY", "")
ROUNDS, SEED = env.number("ROUNDS", 1), env.number("SEED", 1, least=0)
LETTERS = "aAbBcCzZ0 _-äÄáßsSijlLnN\u0308\u00ad\u200b\t!~"
WIDE = "€ĳłñčžČŽжЖωΩийчшабв日本語กขคअआ"
CONTRACTIONS = ["ch", "Ch", "ll", "LL", "dz", "ij", "nj", "aa", "ss", "  ", "ae", "æ", "lj", "cs", "ny", "sz"]


def strings(rng, charset_can):
    """Short ones of few letters, so that many are nearly alike."""
    letters = LETTERS + (WIDE if charset_can else "")
    for _ in range(45):
        s = "".join(rng.choice(letters) if rng.random() < 0.8 else rng.choice(CONTRACTIONS) for _ in range(rng.choice([0, 1, 2, 3, 3, 6])))
        yield s + rng.choice(["", "", " ", "  "])


def answers(c, table, column, values):
    """How strings of a column are told apart and found; `table`: its name, with a hint."""
    found = [f"SELECT COUNT(*) FROM {table} WHERE {column}={v}" for v in values]
    found += [f"SELECT COUNT(*) FROM {table} WHERE {column}<{v}" for v in values[:15]]
    return all_of(c, found + [f"SELECT COUNT(DISTINCT {column}) FROM {table}"])


def all_of(c, queries):
    """Their answers, a number each, in one call."""
    return list(c.query("SELECT " + ",".join(f"({q})" for q in queries)).rows[0])


def filled_up(c, charset, values):
    """The same of CHAR that does not pad, which the server compares once with the spaces at its end and once without: as in InnoDB's
    keys, then."""
    c.query(f"CREATE TABLE u (KEY (f)) ENGINE=InnoDB CHARACTER SET {charset} AS SELECT f FROM t")
    found = answers(c, "u FORCE INDEX (f)", "f", values)
    c.query("DROP TABLE u")
    return found


def compared_twice(c, values):
    """The same where case counts and accents do not: there InnoDB's keys tell apart what ends in unlike numbers of weights."""
    by = lambda v, sign, with_spaces: f"SELECT COUNT(*) FROM t IGNORE INDEX (v,f) WHERE f{sign}{v} AND RPAD(f,20,' '){with_spaces}RPAD({v},20,' ')"
    found = [by(v, "=", "=") for v in values] + [by(v, "<", "<=") for v in values[:15]]
    return all_of(c, found + ["SELECT COUNT(DISTINCT RPAD(f,20,' ')) FROM t"])


def is_in_order(c, column, way):
    """Does the index give strings as the server compares them? Its own sorting does not, in some collations."""
    rows = c.query(f"SELECT id FROM t FORCE INDEX ({column}) ORDER BY {column}{way}").rows
    less = [f"SELECT COUNT(*) FROM t u IGNORE INDEX (v,f) JOIN t w IGNORE INDEX (v,f) WHERE w.id={r[0]} AND u.{column}<w.{column}" for r in rows[::3]]
    less = [int(n) for n in all_of(c, less)]
    return less == sorted(less, reverse=bool(way))


def test_collations(servers):
    """All of them."""
    s = servers("collations", {"esker_memory_limit": 64 << 20})
    s.create(fresh=True)
    s.start()
    c = s.connect(timeout=600)
    c.query("CREATE DATABASE d")
    c.query("USE d")
    c.query("SET NAMES utf8mb4, sql_mode=''")
    rng, tried, refused, wrong = random.Random(SEED), 0, [], []
    for charset, collation in c.query("SELECT DISTINCT character_set_name, full_collation_name FROM information_schema.collation_character_set_applicability ORDER BY 2").rows:
        if charset in ("binary", "filename") or ONLY not in collation:
            continue
        try:
            c.query(f"CREATE TABLE t (id INT, v VARCHAR(20) COLLATE {collation}, f CHAR(20) COLLATE {collation}, KEY (v), KEY (f)) ENGINE=Esker CHARACTER SET {charset}")
        except SqlError as e:
            check("not supported yet" in str(e), f"{collation} is refused with words: {e}")
            refused.append(collation)
            continue
        for _ in range(ROUNDS):
            c.query("DELETE FROM t")
            values = [f"CONVERT({text(v)} USING {charset}) COLLATE {collation}" for v in strings(rng, charset.startswith("utf") or charset == "ucs2")]
            c.query("INSERT INTO t VALUES " + ",".join(f"({n},{v},{v})" for n, v in enumerate(values)))
            for column in "vf":
                with_key = answers(c, f"t FORCE INDEX ({column})", column, values)
                is_compared = column == "v" or "nopad" not in collation
                if is_compared:
                    without = answers(c, "t IGNORE INDEX (v,f)", column, values)
                else:
                    without = compared_twice(c, values) if "_ai_cs" in collation else filled_up(c, charset, values)
                if with_key != without:
                    wrong.append(f"{collation} {column}: {[i for i, (a, b) in enumerate(zip(with_key, without)) if a != b][:5]}")
                if is_compared and not (is_in_order(c, column, "") and is_in_order(c, column, " DESC")):
                    wrong.append(f"{collation} {column}: order")
        c.query("DROP TABLE t")
        tried += 1
    show.say(f"{tried} collations; refused: {' '.join(refused)}")
    if wrong:
        pytest.fail("\n".join(wrong[:20]), pytrace=False)
    check(ONLY or (tried > 1200 and len(refused) > 5), f"{tried} collations were tried and {len(refused)} refused")
    s.stop()
