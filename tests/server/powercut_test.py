"""The real server on a disk whose power is cut, checked row by row afterwards.

The disk is slowdisk.c (FUSE) under a loop device with ext4: on a cut, every 4 KiB block that was written
but not flushed is kept or lost at random. Needs root, /dev/fuse and loop devices; says SKIPPED, with the reason, on a
machine without. Load, settings and check are those of kill_test.py, also what must have been reached.

    CUTS=1           power cuts
    CLIENTS=6  SEED=  CRASH_ENGINE=  BINLOG=off,on   as in kill_test.py; BINLOG alternates from cut to cut
    FLUSH_US=300     microseconds that each flush of the disk takes
    CANARY=1         let commits be acknowledged before they are durable: the test must find what is lost
"""
import os
import random
import shutil
import signal
import subprocess
import time

import pytest

import crash
from cases import BINLOGS, CANARY, CLIENTS, ENGINE, SEED, finds_the_canary, none_of
from eskerlib import env, server, show

FOLDER = os.path.join(env.VAR, "power")
SIZE = 3 << 30
CUTS = env.number("CUTS", 1)
FLUSH_US = env.number("FLUSH_US", 300, least=0)


def cannot(why):
    """What this machine cannot do is skipped; what is only not installed is a failure."""
    pytest.skip(f"this machine cannot {why}")


def run(*command, check=True):
    """A command; its output as text."""
    done = subprocess.run(command, capture_output=True, text=True)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


class Disk:
    """Image file, slowdisk over it, loop device over that, ext4 on it."""

    def __init__(self, flush_us):
        self.flush_us = flush_us
        self.image, self.fuse, self.mount = (os.path.join(FOLDER, n) for n in ("image", "fuse", "mnt"))
        self.tool = os.path.join(env.BUILD, "slowdisk")
        self.process = self.loop = None

    def build(self):
        """Compile the tool and make an empty file system."""
        for need, why in (("/dev/fuse", "use FUSE: there is no /dev/fuse"), ("/dev/loop-control", "make loop devices")):
            if not os.path.exists(need):
                cannot(why)
        if os.getuid() != 0:
            cannot("mount: that needs root")
        for tool in ("cc", "pkg-config", "losetup", "mkfs.ext4", "fusermount3"):
            if not shutil.which(tool) and not os.path.exists(f"/sbin/{tool}"):
                raise RuntimeError(f"{tool} is not installed; run 'make setup'")
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "slowdisk.c")
        try:
            flags = run("pkg-config", "fuse3", "--cflags", "--libs").split()
        except RuntimeError as e:
            raise RuntimeError("libfuse3-dev is not installed; run 'make setup'") from e
        run("cc", "-O2", "-o", self.tool, source, *flags, "-lpthread")
        for folder in (self.fuse, self.mount):
            os.makedirs(folder, exist_ok=True)
        with open(self.image, "wb") as f:
            f.truncate(SIZE)

    def up(self, fresh=False, seed=0, powercut=True):
        """Power on."""
        environment = dict(os.environ, SLOWDISK_SEED=str(seed))
        if powercut:
            environment["SLOWDISK_POWERCUT"] = "1"
        self.process = subprocess.Popen([self.tool, self.image, self.fuse, str(self.flush_us)], env=environment, stderr=open(os.path.join(FOLDER, "slowdisk.log"), "a"))
        end = time.monotonic() + 10
        while not os.path.exists(os.path.join(self.fuse, "disk")):
            if self.process.poll() is not None or time.monotonic() > end:
                cannot("use FUSE (" + open(os.path.join(FOLDER, "slowdisk.log")).read().strip()[-200:] + ")")
            time.sleep(0.02)
        try:
            self.loop = run("losetup", "--direct-io=on", "--find", "--show", os.path.join(self.fuse, "disk"))
        except RuntimeError as e:
            cannot(f"use loop devices ({e})")
        if fresh:
            run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", self.loop)
        try:
            run("mount", "-t", "ext4", self.loop, self.mount)
        except RuntimeError as e:
            if fresh:
                cannot(f"mount ext4 from a loop device ({e})")
            raise

    def cut(self):
        """Power off, in the middle of everything."""
        log = os.path.join(FOLDER, "slowdisk.log")
        before = os.path.getsize(log)
        os.kill(self.process.pid, signal.SIGUSR1)
        end = time.monotonic() + 30
        while b"power cut" not in open(log, "rb").read()[before:] and time.monotonic() < end:
            time.sleep(0.005)
        return open(log, "rb").read()[before:].decode().strip().rsplit("power cut: ", 1)[-1]

    def down(self):
        """Unmount all that is there."""
        for _ in range(100):
            if not os.path.ismount(self.mount) or subprocess.run(["umount", self.mount], capture_output=True).returncode == 0:
                break
            time.sleep(0.05)
        else:
            subprocess.run(["umount", "-l", self.mount], capture_output=True)
        if self.loop:
            subprocess.run(["losetup", "-d", self.loop], capture_output=True)
            end = time.monotonic() + 10
            while run("losetup", self.loop, check=False) and time.monotonic() < end:
                time.sleep(0.02)
            self.loop = None
        if self.process:
            subprocess.run(["fusermount3", "-u", self.fuse], capture_output=True)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                subprocess.run(["umount", "-l", self.fuse], capture_output=True)
            self.process = None


def one_cut(disk, setting, seed, reach, last, work):
    """A new file system, a server on it, a cut, a check. work: the load, as crash.Mixed is one."""
    with_binlog = setting == "on"
    settings = crash.settings(with_binlog, CANARY)
    settings.update(innodb_flush_method="fsync", innodb_use_native_aio=0, aria_checkpoint_interval=0)
    disk.up(fresh=True, seed=seed)
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
        show.say(f"{ENGINE}, binlog {setting}, power cut after {when} ({lost}): {done} acknowledged, "
                 f"{looked:,} rows looked at, restart {restart:.2f} s" + ("" if not problems else f", {len(problems)} PROBLEMS"))
        none_of(problems + ([] if done else ["nothing was acknowledged, the test proved nothing"]))
        s.stop()
    finally:
        s.kill()
        disk.down()


@pytest.fixture
def disk(request):
    """A disk, without its power at the end; its files are kept if the case failed."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    made, failed_before = Disk(FLUSH_US), request.session.testsfailed
    try:
        made.build()
        yield made
    finally:
        made.down()
        if request.session.testsfailed == failed_before:
            shutil.rmtree(FOLDER, ignore_errors=True)
        else:
            print(f"\nfiles kept in {os.path.relpath(FOLDER, env.ROOT)}/", flush=True)


@finds_the_canary
def test_power_cut(disk, again):
    """All cuts, without and with the binlog by turns."""
    again(SEED=SEED, CUTS=CUTS, BINLOG=",".join(BINLOGS), CLIENTS=CLIENTS, CRASH_ENGINE=ENGINE, FLUSH_US=FLUSH_US)
    reach = crash.Reach(ENGINE)
    for number in range(CUTS):
        one_cut(disk, BINLOGS[number % len(BINLOGS)], SEED + 2 * number, reach, number == CUTS - 1, crash.Mixed())
    show.say(f"reached: {reach}")
    none_of(reach.problems())
