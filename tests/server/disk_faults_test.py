"""What a disk may do to a server with Esker: it is full, and has space again; blocks of the log are shared or missing; it is
read-only.

Each must be a clear error, and passes where it can; after the cause is gone everything acknowledged is there. The disk is a small
ext4 or btrfs in a file (needs root and loop devices; skipped without).

    /usr/bin/pytest-3 tests/server/disk_faults_test.py -k copying     chosen cases
"""
import os
import shutil
import subprocess
import tempfile
import time
from errno import ENOSPC

import pytest

import crash
from cases import check
from eskerlib import show
from eskerlib.disk import unmount
from faults_test import CLEAR, DISK_FULL, MIB, error_of, s  # noqa: F401


def give_back(ballast):
    """The disk has the file's space again: a file system gives it back with its next transaction, until which a write may still
    meet a full disk. Emptied before it is removed: of a removed file that is still being written the space goes later."""
    try:
        os.truncate(ballast, 0)
    except OSError as e:  # no space for what that writes: btrfs has a reserve for removing alone
        if e.errno != ENOSPC:
            raise
    os.unlink(ballast)
    subprocess.run(["sync", "-f", os.path.dirname(ballast)], check=True)


def take_all(ballast):
    """The disk is full. By writes without a buffer: what one holds would be written once more when the file is closed."""
    with open(ballast, "ab", buffering=0) as f:
        with pytest.raises(OSError):
            while True:
                f.write(bytes(64 << 10))


def free_bytes(mount):
    """What is free once that has stood still for a second: the background makes files and removes them, and a file system may be
    late in giving back what those had."""
    begin, last, since = time.monotonic(), None, 0.0
    while last is None or (time.monotonic() - since < 1 and time.monotonic() - begin < 60):
        now = os.statvfs(mount).f_bavail * os.statvfs(mount).f_frsize
        if now != last:
            last, since = now, time.monotonic()
        time.sleep(0.05)
    return last


def goes_in(c, sql):
    """As error_of, of a statement for which there is space again: a disk that is still full gets a minute to know it."""
    end = time.monotonic() + 60
    while True:
        errno, text = error_of(c, sql)
        if errno != DISK_FULL or time.monotonic() > end:
            return errno, text
        show.say(f"the disk does not know yet that it has space: {text[:150]}")
        time.sleep(1)


def full_disk(s, mount):
    """No space for a row, a bulk load, an update; then there is space again."""
    s.settings["esker_data_dir"] = os.path.join(mount, "esker")
    s.create(fresh=True)
    s.start()
    c = s.connect()
    c.query("CREATE DATABASE test")
    c.query("USE test")
    c.query("CREATE TABLE test.t (a INT, b VARCHAR(400), version INT DEFAULT 0) ENGINE=Esker")
    c.query("INSERT INTO test.t (a,b) SELECT seq,REPEAT(MD5(seq),3) FROM seq_1_to_50000")
    c.query("CREATE SEQUENCE test.q NOCACHE ENGINE=Esker")
    ballast = os.path.join(mount, "ballast")
    rows, total, version = 50000, 50000 * 50001 // 2, 0

    def fill(leave):
        """Leave this many bytes, or what a file system leaves that promises more than it has."""
        free = free_bytes(mount)
        if os.path.exists(ballast):
            free += os.path.getsize(ballast)
            give_back(ballast)
        try:
            with open(ballast, "wb", buffering=0) as f:
                for _ in range(max(0, free - leave) // MIB):
                    f.write(bytes(MIB))
        except OSError as e:
            if e.errno != ENOSPC:
                raise
        if not leave:
            take_all(ballast)

    def same(what):
        """The rows are what was acknowledged, each of them in the version of the last update that was."""
        got = c.row("SELECT COUNT(*) n,SUM(a) s,SUM(LEFT(b,32)=MD5(a)) m,MIN(version) least,MAX(version) most,"
                    "SUM(version=0 OR RIGHT(b,4)=LPAD(version,4,'u')) v FROM test.t WHERE a<1000000")
        wanted = {"n": str(rows), "s": str(total), "m": str(rows), "least": str(version), "most": str(version), "v": str(rows)}
        check(got == wanted, f"{what}: all acknowledged rows are there, no other, and none is changed by half ({got}, wanted {wanted})")

    for leave in (6 * MIB, 2 * MIB, 0):
        fill(leave)
        # Far more than the disk holds, whatever the background gives back meanwhile.
        errno, text = error_of(c, "INSERT INTO test.t (a,b) SELECT -seq,REPEAT(MD5(-seq),3) FROM seq_1_to_8000000")
        check(errno in CLEAR, f"bulk insert with {leave // MIB} MiB left: error {errno} {text[:150]}")
        same("after it")
        if not leave:
            take_all(ballast)  # what Esker has given back for it: files of the log that were spare
        errno, text = error_of(c, f"UPDATE test.t SET version={version + 1}, b=CONCAT(MD5(a),REPEAT('u',300),LPAD({version + 1},4,'u'))")
        check(errno == 0 or errno in CLEAR, f"update of all rows: error {errno} {text[:150]}")
        version += errno == 0
        same("after it")
    written = 0
    while written < 200000:  # single rows until the log is full too
        errno, text = error_of(c, f"INSERT INTO test.t (a,b) SELECT {1000000 + written},REPEAT(MD5({1000000 + written}),12)")
        if errno:
            break
        written += 1
    show.say(f"{written} single rows went in; then error {errno} {text[:150]}")
    if errno:
        check(errno in CLEAR, "single inserts: a clear error")
    last, errno = 0, 0
    while last < 20000 and not errno:
        errno, text = error_of(c, "SELECT NEXTVAL(test.q)")
        last += not errno
    check(errno == 0 or errno in CLEAR and "Esker" in text, f"a sequence's value {last + 1}: error {errno} {text[:150]}")
    held = c.one("SELECT COUNT(*) FROM INFORMATION_SCHEMA.ESKER_LOCKS")
    check(held == "0", f"and no lock on the sequence is left to nobody ({held})")
    same("after it")
    check(c.one("SELECT COUNT(*) FROM test.t WHERE a>=1000000 AND LEFT(b,32)=MD5(a)") == str(written), "and every single row that went in is there")
    give_back(ballast)
    errno, text = goes_in(c, f"INSERT INTO test.t VALUES (-5,CONCAT(MD5(-5),LPAD({version},4,'u')),{version})")
    if errno == 0:
        rows, total = rows + 1, total - 5
    check(errno == 0, f"a row is written again when there is space: {errno} {text[:200]}")
    value = int(c.one("SELECT NEXTVAL(test.q)"))
    check(value > last, f"the sequence goes on, with a value that nobody got ({value}, after {last})")
    errno, text = goes_in(c, f"INSERT INTO test.t SELECT -seq-10,CONCAT(MD5(-seq-10),REPEAT('b',64),LPAD({version},4,'u')),{version} FROM seq_1_to_100000")
    if errno == 0:
        rows, total = rows + 100000, total - 100000 * 100001 // 2 - 10 * 100000
    check(errno == 0, f"and many: {errno} {text[:200]}")
    same("with space again")
    c.close()
    s.kill()
    s.start()
    c = s.connect("test")
    same("after kill -9 and restart")
    c.query("DROP TABLE test.t, test.q")
    c.close()
    s.stop()


def shared_disk(s, mount, share):
    """The folder was restored with holes, or shares its blocks: what `share` does to it. The log needs space for what it writes
    over, and must have taken it before: that the disk is full is an error of the statement, and passes."""
    s.settings = dict(s.settings, esker_wal_segment_size=MIB, esker_data_dir=os.path.join(mount, "esker"))
    s.start()
    c = s.connect("test")
    c.query("CREATE OR REPLACE TABLE test.t (a INT, b VARCHAR(900)) ENGINE=Esker")
    for n in range(3000):  # segments that are spares later
        c.query(f"INSERT INTO test.t VALUES ({n},REPEAT(MD5({n}),20))")
    c.close()
    s.stop()
    share()
    s.start()
    c, ballast, rows, errno, text = s.connect("test"), os.path.join(mount, "ballast"), 3000, 0, ""
    take_all(ballast)
    while errno == 0 and rows < 60000:
        if rows % 10000 == 0:  # what the background has given back since
            take_all(ballast)
        errno, text = error_of(c, f"INSERT INTO test.t VALUES ({rows},REPEAT(MD5({rows}),20))")
        rows += errno == 0
    check(errno in CLEAR, f"blocks of the log shared or missing, full disk: {rows - 3000} rows go in, then error {errno} {text[:150]}")
    give_back(ballast)
    errno, text = goes_in(c, f"INSERT INTO test.t VALUES ({rows},REPEAT(MD5({rows}),20))")
    check(errno == 0, f"with space again a row goes in: {errno} {text[:200]}")
    c.close()
    s.kill()
    s.start()
    c = s.connect("test")
    check(c.one("SELECT COUNT(*) FROM test.t WHERE LEFT(b,32)=MD5(a)") == str(rows + 1), f"after kill -9 all {rows + 1} rows are there")
    c.query("CREATE OR REPLACE TABLE test.t (a INT, b VARCHAR(400), version INT DEFAULT 0) ENGINE=Esker")
    c.query("INSERT INTO test.t (a,b) VALUES (1,MD5(1))")
    c.close()
    s.stop()


def with_holes(folder):
    """As a copy that leaves zeros out makes it."""
    os.rename(folder, folder + ".old")
    subprocess.run(["cp", "-a", "--sparse=always", folder + ".old", folder], check=True)
    shutil.rmtree(folder + ".old")
    sizes = [os.stat(os.path.join(folder, "wal", name)) for name in os.listdir(os.path.join(folder, "wal"))]
    check(any(s.st_blocks * 512 < s.st_size for s in sizes), f"the log's files have holes: {[(s.st_size, s.st_blocks * 512) for s in sizes]}")


def filling_disk(s, mount):
    """A disk that fills up and gets space again, three times in one life of the server: it goes on, in the background too."""
    s.settings = dict(crash.settings(False, None), esker_data_dir=os.path.join(mount, "esker"))
    s.start()
    c = s.connect("test")
    c.query("CREATE TABLE test.t (a INT, b VARCHAR(400)) ENGINE=Esker")
    ballast, a, acknowledged = os.path.join(mount, "ballast"), 0, 0

    def insert(tries):
        """Small transactions of 20 rows until one fails; the error."""
        nonlocal a, acknowledged
        for _ in range(tries):
            values = ",".join(f"({a + i},REPEAT(MD5({a + i}),6))" for i in range(20))
            a += 20
            errno, text = error_of(c, f"INSERT INTO test.t VALUES {values}")
            if errno:
                return errno, text
            acknowledged += 20
        return 0, ""

    def counters(wanted, before, what):
        """The background gets on: these counters move, after a while."""
        end = time.monotonic() + 120
        while time.monotonic() < end:
            now = crash.status(c)
            if all(now[name] > before[name] for name in wanted):
                break
            errno, text = insert(20)
            if errno == DISK_FULL:  # it does not know yet that it has space
                time.sleep(1)
            elif errno:
                what += f" (error {errno} {text[:150]})"
                break
        now = crash.status(c)
        check(all(now[name] > before[name] for name in wanted), f"{what}: {', '.join(f'{now[n] - before[n]} {n}' for n in wanted)}")

    # No room for one more segment of the log, but for what frees those there are: small writes go on and on.
    insert(1)
    with open(ballast, "wb") as f:
        os.posix_fallocate(f.fileno(), 0, free_bytes(mount) - MIB // 2)
    before, answers = crash.status(c), [error_of(c, f"UPDATE test.t SET b=CONCAT(MD5(a),REPEAT({n},90))") for n in range(100, 2600)]
    now, failed = crash.status(c), [a for a in answers if a[0]]
    check(not failed, f"disk with half a MiB: {len(answers)} updates, {now['wal_bytes'] - before['wal_bytes']} bytes of log, "
                      f"{now['checkpoints'] - before['checkpoints']} checkpoints, {len(failed)} failed: {failed[:1]}")
    give_back(ballast)
    for turn in (1, 2, 3):
        c.query("CREATE TABLE test.big (a INT, b VARCHAR(400)) ENGINE=Esker")
        c.query("INSERT INTO test.big SELECT seq,MD5(seq) FROM seq_1_to_20000")
        counters(["flushes", "checkpoints"], crash.status(c), f"filling disk, turn {turn}: before, it flushes and writes manifests")
        take_all(ballast)
        errno, text = insert(20000)
        check(errno in CLEAR, f"turn {turn}: single inserts meet a clear error {errno} {text[:150]}")
        time.sleep(1)
        got = c.row("SELECT COUNT(*) n,SUM(LEFT(b,32)=MD5(a)) m FROM test.t")
        check(got == {"n": str(acknowledged), "m": str(acknowledged)}, f"turn {turn}: reads go on, all {acknowledged} acknowledged rows are there ({got})")
        errno, text = error_of(c, "DROP TABLE test.big")
        check(errno == 0 or errno in CLEAR, f"turn {turn}: a table is dropped on the full disk, or a clear error {errno} {text[:150]}")
        give_back(ballast)
        if errno:
            check(error_of(c, "DROP TABLE IF EXISTS test.big")[0] == 0, f"turn {turn}: it is dropped when there is space")
        before = crash.status(c)
        errno, text = insert(1)
        check(errno == 0, f"turn {turn}: with space again a row goes in at once: {errno} {text[:150]}")
        counters(["flushes", "checkpoints"], before, f"turn {turn}: and the background goes on")
    c.close()
    s.kill()
    s.start()
    c = s.connect("test")
    got = c.row("SELECT COUNT(*) n,SUM(LEFT(b,32)=MD5(a)) m FROM test.t")
    check(got == {"n": str(acknowledged), "m": str(acknowledged)}, f"after kill -9: all {acknowledged} acknowledged rows are there ({got})")
    c.query("CREATE OR REPLACE TABLE test.t (a INT, b VARCHAR(400), version INT DEFAULT 0) ENGINE=Esker")
    c.query("INSERT INTO test.t (a,b) VALUES (1,MD5(1))")
    c.close()
    s.stop()


def binlog_elsewhere(s, mount):
    """The binary log has space, Esker has none: what cannot be committed, or prepared, is not in the binary log. So it is where
    MariaDB asks nobody to prepare, as an engine takes part that cannot, and writes the binary log first; and in XA PREPARE."""
    s.settings = dict(s.settings, esker_wal_segment_size=MIB, esker_data_dir=os.path.join(mount, "esker"), log_bin="binlog", server_id=1)
    s.start()
    c = s.connect("test")
    c.query("CREATE OR REPLACE TABLE test.t (a INT, b VARCHAR(900)) ENGINE=Esker")
    c.query("CREATE TABLE test.source (a INT, b VARCHAR(900)) ENGINE=Aria")
    c.query("INSERT INTO test.source SELECT seq,REPEAT(MD5(seq),20) FROM seq_1_to_300")
    ballast, rows = os.path.join(mount, "ballast"), 0

    def turn(begin, end, undo, what):
        """Transactions, until a few have failed at their end."""
        nonlocal rows
        failed = 0
        for _ in range(400):
            take_all(ballast)
            before = c.row("SHOW MASTER STATUS")
            answers = [error_of(c, sql) for sql in [*begin, "INSERT INTO test.t SELECT * FROM test.source", *end]]
            errno, text = next((a for a in answers if a[0]), (0, ""))
            if errno:
                check(errno in CLEAR or end and "XA_RBROLLBACK" in text or errno == 1402, f"{what}: error {errno} {text[:100]}")
                after = c.row("SHOW MASTER STATUS")
                assert after == before, f"{what} failed ({errno} {text}), and the binary log has it: {before}, {after}"
                failed += 1
            rows += 0 if errno else 300
            for sql in undo if errno else []:
                error_of(c, sql)
            if failed == 5:
                break
        got = int(c.one("SELECT COUNT(*) FROM test.t"))
        check(failed == 5 and got == rows, f"{what}: {failed} failed on the full disk, their rows are not there ({got}, {rows}), nor in the binary log")
        give_back(ballast)
        check(goes_in(c, "INSERT INTO test.t SELECT * FROM test.source")[0] == 0, f"{what}: with space again it goes in")
        rows += 300

    turn([], [], [], "a transaction beside Aria")
    # A source of which no engine keeps the whole transaction from preparing.
    c.query("ALTER TABLE test.source ENGINE=InnoDB")
    turn(["XA START 'x'"], ["XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'"], ["XA END 'x'", "XA ROLLBACK 'x'"], "XA PREPARE")
    check(not c.query("XA RECOVER").rows, "nothing is left prepared")
    c.close()
    s.kill()
    s.start()
    c = s.connect("test")
    check(c.one("SELECT COUNT(*) FROM test.t WHERE LEFT(b,32)=MD5(a)") == str(rows), f"after kill -9 all {rows} rows are there")
    c.query("DROP TABLE test.source")
    c.query("CREATE OR REPLACE TABLE test.t (a INT, b VARCHAR(400), version INT DEFAULT 0) ENGINE=Esker")
    c.query("INSERT INTO test.t (a,b) VALUES (1,MD5(1))")
    c.close()
    s.stop()


def remount(mount, how):
    """Read-only once nobody writes: the kernel may close a moment later what an ended process had open."""
    end = time.monotonic() + 60
    while True:
        done = subprocess.run(["mount", "-o", f"remount,{how}", mount], capture_output=True, text=True)
        if not done.returncode:
            return
        assert time.monotonic() < end, done.stderr
        time.sleep(0.1)


def read_only(s, mount):
    """The folder's disk is mounted read-only."""
    remount(mount, "ro")
    start = os.path.getsize(s.log)
    s.start()
    c = s.connect()
    errno, text = error_of(c, "SELECT COUNT(*) FROM test.t")
    check(errno != 0 or c.one("SELECT COUNT(*) FROM test.t") != "0", f"read-only disk: the server runs ({errno} {text[:100]})")
    c.close()
    said = [line for line in s.log_tail(start, 200).splitlines() if "Esker" in line and "ERROR" in line]
    check(any("ead-only" in line or "EROFS" in line for line in said), f"read-only disk: the log says so: {said[:2]}")
    s.stop()
    remount(mount, "rw")
    s.start()
    c = s.connect()
    check(error_of(c, "INSERT INTO test.t (a,b) VALUES (-7,CONCAT(MD5(-7),'x'))")[0] == 0, "writable again: rows go in")
    c.close()
    s.stop()


# -- runs and handles ---------------------------------------------------------------------------------------------------
def on_a_disk(make, cases):
    """The cases on a small disk of our own, which this command makes."""
    if os.getuid() != 0 or not (shutil.which(make[0]) or shutil.which(make[0], path="/usr/sbin:/sbin")):
        pytest.skip(f"this machine cannot mount: that needs root and {make[0]}")
    with tempfile.TemporaryDirectory(prefix="esker-disk-") as folder:
        image, mount = os.path.join(folder, "image"), os.path.join(folder, "disk")
        os.mkdir(mount)
        with open(image, "wb") as f:
            f.truncate(160 * MIB)
        subprocess.run([*make, image], check=True, capture_output=True)
        if subprocess.run(["mount", "-o", "loop", image, mount], capture_output=True).returncode:
            pytest.skip(f"this machine cannot mount a loop device, or not what {make[0]} makes")
        try:
            cases(mount)
        finally:
            unmount(mount)


def test_disk(s):
    """All that needs a disk of our own."""
    def cases(mount):
        try:
            full_disk(s, mount)
            filling_disk(s, mount)
            shared_disk(s, mount, lambda: with_holes(os.path.join(mount, "esker")))
            binlog_elsewhere(s, mount)
            read_only(s, mount)
        finally:
            s.kill()
    on_a_disk(["mkfs.ext4", "-q", "-m", "0"], cases)


def test_copying_disk(s):
    """A file system that copies what is written over, unless it is told not to: a full disk is no reason to stop the log."""
    def cases(mount):
        try:
            full_disk(s, mount)
            snapshot = ["btrfs", "-q", "subvolume", "snapshot", mount, os.path.join(mount, "snapshot")]
            shared_disk(s, mount, lambda: subprocess.run(snapshot, check=True, capture_output=True))
        finally:
            s.kill()
    on_a_disk(["mkfs.btrfs", "-q", "-f"], cases)
