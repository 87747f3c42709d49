#!/usr/bin/python3
"""powercut_test.py: the real server on a disk whose power is cut, checked row by row afterwards.

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
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import binlog  # noqa: E402
import crash  # noqa: E402
import load  # noqa: E402
from eskerlib import env, server, show  # noqa: E402
from eskerlib.client import Lost, SqlError  # noqa: E402

FOLDER = os.path.join(env.VAR, "power")
SIZE = 3 << 30


class Skip(Exception):
    """What this machine cannot do; what is only not installed is a failure."""


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
                raise Skip(why)
        if os.getuid() != 0:
            raise Skip("mount: that needs root")
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
                raise Skip("use FUSE (" + open(os.path.join(FOLDER, "slowdisk.log")).read().strip()[-200:] + ")")
            time.sleep(0.02)
        try:
            self.loop = run("losetup", "--direct-io=on", "--find", "--show", os.path.join(self.fuse, "disk"))
        except RuntimeError as e:
            raise Skip(f"use loop devices ({e})") from e
        if fresh:
            run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", self.loop)
        try:
            run("mount", "-t", "ext4", self.loop, self.mount)
        except RuntimeError as e:
            if fresh:
                raise Skip(f"mount ext4 from a loop device ({e})") from e
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


def one_cut(disk, engine, with_binlog, clients, seed, reach, last):
    """A new file system, a server on it, a cut, a check; the number of problems."""
    settings = crash.settings(with_binlog, os.environ.get("CANARY"))
    settings.update(innodb_flush_method="fsync", innodb_use_native_aio=0, aria_checkpoint_interval=0)
    disk.up(fresh=True, seed=seed)
    s = server.Server("power", settings, [engine], folder=FOLDER)
    s.data = os.path.join(disk.mount, "data")
    moments = random.Random(seed)
    try:
        s.create()
        s.start()
        c = s.connect()
        load.create(c, engine, clients)
        run("sync", "-f", disk.mount)
        stop = threading.Event()
        writers = [load.Writer(n, s, stop, seed, 8000 if with_binlog else 20000, crash.left_out(with_binlog)) for n in range(1, clients + 1)]
        for w in writers:
            w.start()
        when = crash.until_the_moment(c, writers, reach, moments, 1.0, 5.0, last)
        early = [w.problem for w in writers if w.problem]
        # From the cut on the disk answers no flush, so nothing more can be acknowledged.
        lost = disk.cut()
        time.sleep(0.2)
        s.kill()
        c.close()
        stop.set()
        for w in writers:
            w.join(130)
            if w.problem:  # the dead disk's errors reach clients before the kill does: the outcome is open, as after a lost connection
                w.problem = None
        disk.down()
        disk.up(seed=seed + 1)
        begin = time.monotonic()
        s.start()
        restart = time.monotonic() - begin
        c = s.connect("crash")
        problems, looked = crash.check(c, writers, moments)
        problems += early
        if with_binlog and not problems:
            problems += binlog.Replay(s, "crash", load.tables(clients)).compare(c)
        c.close()
        done = sum(w.acknowledged for w in writers)
        show.say(f"{engine}, binlog {'on' if with_binlog else 'off'}, power cut after {when} ({lost}): {done} acknowledged, "
                 f"{looked:,} rows looked at, restart {restart:.2f} s" + ("" if not problems else f", {len(problems)} PROBLEMS"))
        for p in problems[:20]:
            print(f"  PROBLEM: {p}", flush=True)
        if not done:
            print("  PROBLEM: nothing was acknowledged, the test proved nothing", flush=True)
        s.stop()
        return len(problems) + (0 if done else 1)
    finally:
        s.kill()
        disk.down()


def main():
    if len(sys.argv) > 1:
        print(__doc__.strip())
        sys.exit(0 if sys.argv[1] in ("-h", "--help") else 2)
    engine = env.names("CRASH_ENGINE", ["Esker"], ["Esker", "InnoDB"])[0]
    cuts, clients = env.number("CUTS", 1), env.number("CLIENTS", 6)
    seed = env.number("SEED", int(time.time()) % 1000000, least=0)
    binlogs = env.names("BINLOG", ["off", "on"], ["off", "on"])
    reach = crash.Reach(engine)
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    disk, bad = Disk(env.number("FLUSH_US", 300, least=0)), 0
    try:
        disk.build()
        for number in range(cuts):
            bad += one_cut(disk, engine, binlogs[number % len(binlogs)] == "on", clients, seed + 2 * number, reach, number == cuts - 1)
            if bad:
                break
        show.say(f"reached: {reach}")
        for problem in [] if bad else reach.problems():
            print(f"  PROBLEM: {problem}", flush=True)
            bad += 1
    except Skip as e:
        print(f"power cut: SKIPPED: this machine cannot {e}")
        sys.exit(77)
    except (RuntimeError, SqlError, Lost) as e:
        print(f"  PROBLEM: {e}")
        bad += 1
    finally:
        disk.down()
    if not bad:
        shutil.rmtree(FOLDER, ignore_errors=True)
    if os.environ.get("CANARY"):
        print(f"power cut canary: {'found' if bad else 'NOT FOUND'}")
        sys.exit(0 if bad else 1)
    print(f"power cut: {'everything acknowledged was there' if not bad else f'{bad} problems, files kept in var/power/'} (seed {seed})")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
