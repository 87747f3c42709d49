"""The real server on a disk whose power is cut, checked row by row afterwards.

The disk is scripts/slowdisk.c (FUSE) under a loop device with ext4, XFS or btrfs: on a cut, every 4 KiB block that was
written but not flushed is kept or lost at random. Needs root, /dev/fuse and loop devices; says SKIPPED, with the reason, on a
machine without. Load, settings and check are those of kill_test.py, also what must have been reached.

    CUTS=1           power cuts on each file system
    FILESYSTEMS=ext4,xfs,btrfs   which
    CLIENTS=6  SEED=  CRASH_ENGINE=  BINLOG=off,on   as in kill_test.py; BINLOG alternates from cut to cut
    FLUSH_US=300     microseconds that each flush of the disk takes
    CANARY=1         let commits be acknowledged before they are durable: the test must find what is lost
"""
import os
import random
import shutil
import threading
import time

import pytest

import crash
from cases import BINLOGS, CANARY, CLIENTS, ENGINE, SEED, attempt, finds_the_canary, none_of
from eskerlib import env, server, show
from eskerlib.disk import MAKE, CannotHere, Disk, run

FOLDER = os.path.join(env.VAR, "power")
CUTS = env.number("CUTS", 1)
FILESYSTEMS = env.names("FILESYSTEMS", MAKE, MAKE)
FLUSH_US = env.number("FLUSH_US", 300, least=0)


def skip_unless_it_can(do):
    """What this machine cannot do is skipped; what is only not installed is a failure."""
    try:
        do()
    except CannotHere as e:
        pytest.skip(str(e))


def one_cut(disk, setting, seed, reach, last, work):
    """A new file system, a server on it, a cut, a check. work: the load, as crash.Mixed is one."""
    with_binlog = setting == "on"
    settings = crash.settings(with_binlog, CANARY)
    settings.update(innodb_flush_method="fsync", innodb_use_native_aio=0, aria_checkpoint_interval=0)
    skip_unless_it_can(lambda: disk.up(fresh=True, seed=seed))
    s = server.Server("power", settings, [ENGINE], folder=FOLDER)
    s.data = os.path.join(disk.mount, "data")
    moments = random.Random(seed)
    try:
        s.create()
        s.start()
        c = s.connect()
        work.create(c)
        run("sync", "-f", disk.mount)
        writers = work.writers(s, seed, with_binlog)
        for w in writers:
            w.start()
        when = crash.until_the_moment(c, writers, reach, moments, 1.0, 5.0, last)
        early = [w.problem for w in writers if w.problem]
        # From the cut on the disk answers no flush, so nothing more can be acknowledged.
        lost = disk.cut()
        time.sleep(0.2)
        s.kill()
        c.close()
        writers[0].stop_event.set()
        for w in writers:
            w.join(130)
            if w.problem:  # the dead disk's errors reach clients before the kill does: the outcome is open, as after a lost connection
                w.problem = None
        disk.down()
        disk.up(seed=seed + 1)
        begin = time.monotonic()
        s.start()
        restart = time.monotonic() - begin
        c = s.connect()
        problems, looked = work.check(c, writers, moments)
        problems += early
        if with_binlog and not problems:
            problems += work.replay(s).compare(c)
        c.close()
        done = sum(w.acknowledged for w in writers)
        show.say(f"{ENGINE} on {disk.filesystem}, binlog {setting}, power cut after {when} ({lost}): {done} acknowledged, "
                 f"{looked:,} rows looked at, restart {restart:.2f} s" + ("" if not problems else f", {len(problems)} PROBLEMS"))
        none_of(problems + ([] if done else ["nothing was acknowledged, the test proved nothing"]))
        s.stop()
    finally:
        s.kill()
        disk.down()


@pytest.fixture
def disk(request):
    """A disk, without its power at the end; its files are kept if the case failed. A case may name its file system."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    made, failed_before = Disk(FOLDER, FLUSH_US, getattr(request, "param", "ext4")), request.session.testsfailed
    try:
        skip_unless_it_can(made.build)
        yield made
    finally:
        made.down()
        if request.session.testsfailed == failed_before:
            shutil.rmtree(FOLDER, ignore_errors=True)
        else:
            print(f"\nfiles kept in {os.path.relpath(FOLDER, env.ROOT)}/", flush=True)


@finds_the_canary
@pytest.mark.parametrize("disk", FILESYSTEMS, indirect=True)
def test_power_cut(disk, again):
    """All cuts, without and with the binlog by turns; the next file system begins with the other."""
    first = FILESYSTEMS.index(disk.filesystem) % len(BINLOGS)
    turns = BINLOGS[first:] + BINLOGS[:first]
    again(SEED=SEED, CUTS=CUTS, FILESYSTEMS=disk.filesystem, BINLOG=",".join(turns), CLIENTS=CLIENTS, CRASH_ENGINE=ENGINE, FLUSH_US=FLUSH_US)
    reach = crash.Reach(ENGINE, crash.REACH + (crash.REACH_BINLOG if "on" in turns[:CUTS] else ()))
    for number in range(CUTS):
        one_cut(disk, turns[number % len(turns)], SEED + 2 * number, reach, number == CUTS - 1, crash.Mixed())
    show.say(f"reached: {reach}")
    none_of(reach.problems())


@pytest.mark.parametrize("end", ["SHUTDOWN", "RESET MASTER"])
def test_log_fails(disk, again, end):
    """The disk of Esker's log answers with errors, under load, while the binlog and InnoDB have a sound one: nothing is acknowledged
    after it, other engines and reads go on, and the server ends within bounds. After a restart binlog and tables agree."""
    again(SEED=SEED, CLIENTS=CLIENTS)
    skip_unless_it_can(lambda: disk.up(fresh=True, seed=SEED))
    s = server.Server("power", dict(crash.settings(True, False), esker_data_dir=os.path.join(disk.mount, "esker")), [ENGINE], folder=FOLDER)
    work, moments = crash.Mixed(), random.Random(SEED)
    try:
        s.create()
        s.start()
        c = s.connect(timeout=120)
        work.create(c)
        c.query("CREATE DATABASE other")
        c.query("CREATE TABLE other.i (a INT) ENGINE=InnoDB")
        c.query("CREATE TABLE other.e (a INT) ENGINE=Esker")
        c.query("INSERT INTO other.e VALUES (1)")
        writers = work.writers(s, SEED, True)
        for w in writers:
            w.start()
        time.sleep(moments.uniform(1, 3))
        early = [w.problem for w in writers if w.problem]
        lost = disk.cut()
        for w in writers:
            w.join(60)
        ended = [w.problem for w in writers]
        assert all(ended), f"clients go on, or hang, though nothing can be durable: {ended}"
        first = [w.acknowledged for w in writers]
        said = attempt(c, "INSERT INTO other.e VALUES (2)")
        assert said not in ("", "lost"), said
        answers = [attempt(c, sql) for sql in ("INSERT INTO other.i VALUES (1)", "FLUSH BINARY LOGS", "INSERT INTO other.i VALUES (2)", "SELECT * FROM other.e")]
        assert answers == [""] * 4, f"other engines, rotation and reads go on: {answers}"
        start, pid = os.path.getsize(s.log), s.pid()
        if end == "SHUTDOWN":
            attempt(c, end)
        else:
            threading.Thread(target=attempt, args=(c, end), daemon=True).start()
        assert s._wait_gone(pid, 120), f"the server hangs in {end}: {s.log_tail(start, 20)}"
        for w in writers:
            w.problem = None  # what was under way is open, as after a lost connection
        disk.down()
        disk.up(seed=SEED + 1)
        s.start()
        c = s.connect(timeout=120)
        problems, looked = work.check(c, writers, moments)
        if not problems and end == "SHUTDOWN":  # the other may have removed it
            problems = work.replay(s).compare(c)
        problems += early
        check = c.row("SELECT (SELECT COUNT(*) FROM other.i) i, (SELECT COUNT(*) FROM other.e) e")
        show.say(f"Esker's disk failed under load ({lost}), then {end}: {sum(first)} acknowledged, {looked:,} rows looked at, the clients were told: {ended[0][:150]}")
        none_of(problems + ([] if sum(first) else ["nothing was acknowledged, the test proved nothing"]) + ([] if check == {"i": "2", "e": "1"} else [str(check)]))
        c.close()
        s.stop()
    finally:
        s.kill()
        disk.down()
