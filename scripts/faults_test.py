#!/usr/bin/env python3
"""faults_test.py: what the machine may do to a server with Esker: a full disk, a read-only one, a second server, files cut short.

Each must be a clear error that names the thing; the server stays up unless it cannot start at all, nothing is overwritten, and
after the cause is gone everything acknowledged is there. The disk is a small ext4 in a file (needs root and loop devices; that
part is skipped without).
"""
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from eskerlib import server, show  # noqa: E402
from eskerlib.client import Lost, SqlError  # noqa: E402

MIB = 1 << 20
problems = []


def check(good, what):
    """One thing that must hold."""
    show.say(("ok: " if good else "PROBLEM: ") + what)
    if not good:
        problems.append(what)


def error_of(c, sql):
    """The error's number and words; (0, '') if there was none."""
    try:
        c.query(sql)
        return 0, ""
    except SqlError as e:
        return e.errno, e.text


def files(folder):
    """Names and contents' sums of a folder's files, to see that nothing was overwritten."""
    sums = {}
    for path, _, names in os.walk(folder):
        for name in names:
            if name != "LOCK":
                with open(os.path.join(path, name), "rb") as f:
                    sums[os.path.join(path, name)] = hashlib.md5(f.read()).hexdigest()
    return sums


def refuses(s, words, what):
    """The server starts, but without Esker, and its log says why; no file of Esker's has changed."""
    folder = os.path.join(s.data, "#esker")
    before, start = files(folder), os.path.getsize(s.log)
    s.start()
    log = s.log_tail(start, 200)
    c = s.connect()
    engine = c.one("SELECT support FROM information_schema.engines WHERE engine='ESKER'")
    errno, text = error_of(c, "SELECT COUNT(*) FROM test.t")
    c.close()
    s.stop()
    said = [line for line in log.splitlines() if "Esker" in line and "ERROR" in line]
    check(engine is None and errno != 0, f"{what}: Esker does not start, its tables are errors ({errno} {text})")
    check(any(all(w in line for w in words) for line in said), f"{what}: the error log names {words}: {said[:2]}")
    check(files(folder) == before, f"{what}: nothing was overwritten")


def start_failures(s):
    """Files cut short or of a newer format; two servers on one folder."""
    s.create(fresh=True)
    s.start()
    c = s.connect()
    c.query("CREATE DATABASE test")
    c.query("USE test")
    c.query("CREATE TABLE test.t (a INT, b VARCHAR(100)) ENGINE=Esker")
    c.query("CREATE TABLE test.i (a INT) ENGINE=InnoDB")
    c.query("INSERT INTO test.t SELECT seq,MD5(seq) FROM seq_1_to_100000")
    c.close()
    other = server.Server("faults-second", dict(s.settings, esker_data_dir=os.path.join(s.data, "#esker")), ["ESKER"])
    other.create(fresh=True)
    other.start()
    o = other.connect()
    check(o.one("SELECT support FROM information_schema.engines WHERE engine='ESKER'") is None, "a second server on the folder runs without Esker")
    o.close()
    tail = other.log_tail(0, 200)
    check("in use" in tail or "lock" in tail.lower(), "its log says that the folder is in use: " + str([l for l in tail.splitlines() if "Esker" in l][:2]))
    other.stop()
    other.remove()
    c = s.connect()
    check(c.one("SELECT COUNT(*) FROM test.t") == "100000", "the first server goes on")
    c.close()
    s.stop()
    folder = os.path.join(s.data, "#esker")
    manifest = os.path.join(folder, "MANIFEST")
    whole = open(manifest, "rb").read()
    damages = [("a truncated manifest", whole[:len(whole) // 2]), ("an empty manifest", b""), ("a manifest with a flipped bit", whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])]
    for what, content in damages:
        with open(manifest, "wb") as f:
            f.write(content)
        refuses(s, ["MANIFEST"], what)
    os.rename(manifest, manifest + ".away")
    refuses(s, ["MANIFEST"], "a missing manifest beside runs and log")
    os.rename(manifest + ".away", manifest)
    with open(manifest, "wb") as f:
        f.write(whole)
    s.start()
    c = s.connect()
    check(c.one("SELECT COUNT(*) FROM test.t") == "100000", "with the right manifest everything is there")
    c.close()
    s.stop()
    start = os.path.getsize(s.log)
    bad = server.Server("faults", dict(s.settings, esker_flush_log_at_trx_commit="often"), ["ESKER"])
    try:
        bad.start()
    except RuntimeError:
        pass
    check("esker" in bad.log_tail(start).lower() and "often" in bad.log_tail(start), "a wrong option value is named in the log")
    bad.stop()


def full_disk(s, mount):
    """No space for a row, a bulk load, an update; then there is space again."""
    s.settings["esker_data_dir"] = os.path.join(mount, "esker")
    s.create(fresh=True)
    s.start()
    c = s.connect()
    c.query("CREATE DATABASE test")
    c.query("USE test")
    c.query("CREATE TABLE test.t (a INT, b VARCHAR(400)) ENGINE=Esker")
    c.query("INSERT INTO test.t SELECT seq,REPEAT(MD5(seq),3) FROM seq_1_to_50000")
    ballast = os.path.join(mount, "ballast")
    rows, total = 50000, 50000 * 50001 // 2

    def fill(leave):
        """Leave this many bytes."""
        free = os.statvfs(mount).f_bavail * os.statvfs(mount).f_frsize
        if os.path.exists(ballast):
            free += os.path.getsize(ballast)
            os.unlink(ballast)
        with open(ballast, "wb") as f:
            for _ in range(max(0, free - leave) // MIB):
                f.write(bytes(MIB))

    def same(what):
        """The rows are what was acknowledged."""
        got = c.row("SELECT COUNT(*) n,SUM(a) s,SUM(LEFT(b,32)=MD5(a)) m FROM test.t")
        check(got == {"n": str(rows), "s": str(total), "m": str(rows)}, f"{what}: all acknowledged rows are there and no other ({got})")

    for leave in (6 * MIB, 2 * MIB, 0):
        fill(leave)
        errno, text = error_of(c, "INSERT INTO test.t SELECT -seq,REPEAT(MD5(-seq),3) FROM seq_1_to_400000")
        check(errno in (1021, 1030, 1105, 1296), f"bulk insert with {leave // MIB} MiB left: error {errno} {text[:150]}")
        same("after it")
        errno, text = error_of(c, "UPDATE test.t SET b=CONCAT(MD5(a),REPEAT('u',300))")
        check(errno == 0 or errno in (1021, 1030, 1105, 1296), f"update of all rows: error {errno} {text[:150]}")
        same("after it")
    written = 0
    while written < 200000:  # single rows until the log is full too
        errno, text = error_of(c, f"INSERT INTO test.t SELECT {1000000 + written},REPEAT(MD5({1000000 + written}),12)")
        if errno:
            break
        rows, total, written = rows + 1, total + 1000000 + written, written + 1
    show.say(f"{written} single rows went in; then error {errno} {text[:150]}")
    if errno:
        check(errno in (1021, 1030, 1105, 1180, 1296), "single inserts: a clear error")
    same("after it")
    os.unlink(ballast)
    errno, text = error_of(c, "INSERT INTO test.t VALUES (-5,CONCAT(MD5(-5),'x'))")
    if errno == 0:
        rows, total = rows + 1, total - 5
    check(errno == 0, f"a row is written again when there is space: {errno} {text[:200]}")
    errno, text = error_of(c, "INSERT INTO test.t SELECT -seq-10,REPEAT(MD5(-seq-10),3) FROM seq_1_to_100000")
    if errno == 0:
        rows, total = rows + 100000, total - 100000 * 100001 // 2 - 10 * 100000
    check(errno == 0, f"and many: {errno} {text[:200]}")
    same("with space again")
    c.close()
    s.kill()
    s.start()
    c = s.connect("test")
    same("after kill -9 and restart")
    c.close()
    s.stop()


def read_only(s, mount):
    """The folder's disk is mounted read-only."""
    subprocess.run(["mount", "-o", "remount,ro", mount], check=True)
    start = os.path.getsize(s.log)
    s.start()
    c = s.connect()
    errno, text = error_of(c, "SELECT COUNT(*) FROM test.t")
    check(errno != 0 or c.one("SELECT COUNT(*) FROM test.t") != "0", f"read-only disk: the server runs ({errno} {text[:100]})")
    c.close()
    said = [line for line in s.log_tail(start, 200).splitlines() if "Esker" in line and "ERROR" in line]
    check(any("ead-only" in line or "EROFS" in line for line in said), f"read-only disk: the log says so: {said[:2]}")
    s.stop()
    subprocess.run(["mount", "-o", "remount,rw", mount], check=True)
    s.start()
    c = s.connect()
    check(error_of(c, "INSERT INTO test.t VALUES (-7,CONCAT(MD5(-7),'x'))")[0] == 0, "writable again: rows go in")
    c.close()
    s.stop()


def main():
    if len(sys.argv) > 1:
        print(__doc__.strip())
        sys.exit(0 if sys.argv[1] in ("-h", "--help") else 2)
    settings = dict(server.small_settings(), esker_wal_segment_size=4 * MIB, esker_memory_limit=64 * MIB)
    s = server.Server("faults", settings, ["ESKER"])
    try:
        start_failures(s)
        if os.getuid() != 0 or not shutil.which("mkfs.ext4"):
            print("full and read-only disk: skipped, needs root, loop devices and mkfs.ext4")
        else:
            with tempfile.TemporaryDirectory(prefix="esker-disk-") as folder:
                image, mount = os.path.join(folder, "image"), os.path.join(folder, "disk")
                os.mkdir(mount)
                with open(image, "wb") as f:
                    f.truncate(160 * MIB)
                subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
                if subprocess.run(["mount", "-o", "loop", image, mount], capture_output=True).returncode:
                    print("full and read-only disk: skipped, no loop device can be mounted")
                else:
                    try:
                        full_disk(s, mount)
                        read_only(s, mount)
                    finally:
                        s.kill()
                        subprocess.run(["umount", mount], check=True)
    except (RuntimeError, SqlError, Lost) as e:
        problems.append(str(e))
        print(f"PROBLEM: {type(e).__name__}: {e}\n{s.log_tail()}")
        s.kill()
    if not problems:
        s.remove()
    print(f"faults: {'every fault was a clear error, nothing was lost' if not problems else str(len(problems)) + ' problems'}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
