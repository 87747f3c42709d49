"""How a case says what holds and what does not, and the parameters that several of them have."""
import os
import time

import pytest

from eskerlib import env, show
from eskerlib.client import Lost, SqlError

CANARY = os.environ.get("CANARY")  # commits are acknowledged before they are durable
SEED = env.number("SEED", int(time.time()) % 1000000, least=0)
CLIENTS = env.number("CLIENTS", 6)
ENGINE = env.names("CRASH_ENGINE", ["Esker"], ["Esker", "InnoDB"])[0]
BINLOGS = env.names("BINLOG", ["off", "on"], ["off", "on"])

# With CANARY=1 a test of crashes must find what is lost: passing is failing then, and so is any other error.
finds_the_canary = pytest.mark.xfail(bool(CANARY), raises=pytest.fail.Exception, reason="the canary is found", strict=True)


def check(good, what):
    """One thing that must hold."""
    show.say(("ok: " if good else "PROBLEM: ") + what)
    if not good:
        pytest.fail(what)


def attempt(c, sql):
    """How a statement ended: the error's words; '' if there was none; 'lost' if no answer came."""
    try:
        c.query(sql)
        return ""
    except SqlError as e:
        return f"{e.errno} {e.text}"
    except Lost:
        return "lost"


def none_of(problems):
    """Fails if there are any, and says the first of them."""
    if problems:
        pytest.fail("\n".join(f"PROBLEM: {p}" for p in problems[:20]) + f"\n{len(problems)} problems", pytrace=False)
