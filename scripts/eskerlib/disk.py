"""Block devices of our own: an image file, slowdisk.c (FUSE) over it, a loop device over that, ext4, XFS or btrfs on it. A flush takes as
long as one says, and the power can be cut. Needs root, /dev/fuse and loop devices."""
import os
import shutil
import signal
import subprocess
import time

from . import env

SOURCE = os.path.join(env.ROOT, "scripts", "slowdisk.c")
# How each file system is made: whole at once, so that nothing is left to be written in the background, and without discards.
MAKE = {"ext4": ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"], "xfs": ["mkfs.xfs", "-q", "-f", "-K"],
        "btrfs": ["mkfs.btrfs", "-q", "-f", "-K"]}


class CannotHere(Exception):
    """This machine cannot do that, whatever is installed; the words go on after 'this machine cannot'."""

    def __str__(self):
        return f"this machine cannot {self.args[0]}"


def run(*command, check=True):
    """A command; its output as text."""
    done = subprocess.run(command, capture_output=True, text=True)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def is_installed(tool):
    """On the path, or where root's tools are."""
    return bool(shutil.which(tool) or shutil.which(tool, path="/usr/sbin:/sbin"))


def needs_root():
    """Mounting does."""
    if os.getuid() != 0:
        raise CannotHere("mount: that needs root")


class Disk:
    """One such device and its file system, in a folder of its own; `mount` is where the files are."""

    def __init__(self, folder, flush_us, filesystem="ext4", size=3 << 30):
        self.folder, self.flush_us, self.filesystem, self.size = folder, flush_us, filesystem, size
        self.image, self.fuse, self.mount, self.log = (os.path.join(folder, n) for n in ("image", "fuse", "mnt", "slowdisk.log"))
        self.tool = os.path.join(env.BUILD, "slowdisk")
        self.process = self.loop = None

    def build(self):
        """Compile the tool and make an empty image."""
        for need, why in (("/dev/fuse", "use FUSE: there is no /dev/fuse"), ("/dev/loop-control", "make loop devices")):
            if not os.path.exists(need):
                raise CannotHere(why)
        needs_root()
        for tool in ("cc", "pkg-config", "losetup", MAKE[self.filesystem][0], "fusermount3"):
            if not is_installed(tool):
                raise RuntimeError(f"{tool} is not installed; run 'make setup'")
        try:
            flags = run("pkg-config", "fuse3", "--cflags", "--libs").split()
        except RuntimeError as e:
            raise RuntimeError("libfuse3-dev is not installed; run 'make setup'") from e
        run("cc", "-O2", "-o", self.tool, SOURCE, *flags, "-lpthread")
        for folder in (self.fuse, self.mount):
            os.makedirs(folder, exist_ok=True)
        with open(self.image, "wb") as f:
            f.truncate(self.size)

    def up(self, fresh=False, seed=0, powercut=True, read_us=0):
        """Power on. With `read_us` each read takes so much longer, and is written down: see `reads_ns`."""
        environment = dict(os.environ, SLOWDISK_SEED=str(seed))
        if read_us:
            environment.update(SLOWDISK_READ_US=str(read_us), SLOWDISK_READS=os.path.join(self.folder, "reads"))
        if powercut:
            environment["SLOWDISK_POWERCUT"] = "1"
        # In a session of its own: Ctrl-C must not take the disk away from under what is mounted.
        with open(self.log, "a") as log:
            self.process = subprocess.Popen([self.tool, self.image, self.fuse, str(self.flush_us)], env=environment, stderr=log, start_new_session=True)
        end = time.monotonic() + 60
        while not os.path.exists(os.path.join(self.fuse, "disk")):
            if self.process.poll() is not None or time.monotonic() > end:
                raise CannotHere("use FUSE (" + open(self.log).read().strip()[-200:] + ")")
            time.sleep(0.02)
        try:
            self.loop = run("losetup", "--direct-io=on", "--find", "--show", os.path.join(self.fuse, "disk"))
        except RuntimeError as e:
            raise CannotHere(f"use loop devices ({e})") from e
        if fresh:
            run(*MAKE[self.filesystem], self.loop)
        try:
            run("mount", "-t", self.filesystem, self.loop, self.mount)
        except RuntimeError as e:
            if fresh:
                raise CannotHere(f"mount {self.filesystem} from a loop device ({e})") from e
            raise

    def cut(self):
        """Power off, in the middle of everything."""
        before = os.path.getsize(self.log)
        os.kill(self.process.pid, signal.SIGUSR1)
        end = time.monotonic() + 30
        while b"power cut" not in open(self.log, "rb").read()[before:] and time.monotonic() < end:
            time.sleep(0.005)
        return open(self.log, "rb").read()[before:].decode().strip().rsplit("power cut: ", 1)[-1]

    def reads_ns(self):
        """How long each read took, of those since power on that are done."""
        with open(os.path.join(self.folder, "reads")) as f:
            return [int(line.split()[2]) for line in f if line.endswith("\n")]

    def down(self):
        """Unmount all that is there."""
        unmount(self.mount)
        if self.loop:
            subprocess.run(["losetup", "-d", self.loop], capture_output=True)
            end = time.monotonic() + 60
            while run("losetup", self.loop, check=False) and time.monotonic() < end:
                time.sleep(0.02)
            self.loop = None
        if self.process:
            end = time.monotonic() + 60
            while self.process.poll() is None and time.monotonic() < end:
                subprocess.run(["fusermount3", "-u", self.fuse], capture_output=True)
                time.sleep(0.02)
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
                subprocess.run(["umount", "-l", self.fuse], capture_output=True)
            self.process = None


def clear(folder):
    """What a run that was killed left mounted below the folder, and the folder itself."""
    unmount(os.path.join(folder, "mnt"))
    fuse = os.path.join(folder, "fuse")
    for line in run("losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE", check=False).splitlines():
        if line.split(None, 1)[1:] and line.split(None, 1)[1].startswith(os.path.join(fuse, "disk")):
            subprocess.run(["losetup", "-d", line.split()[0]], capture_output=True)
    if is_mounted(fuse):
        subprocess.run(["fusermount3", "-u", "-z", fuse], capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)


def is_mounted(folder):
    """As the kernel lists it: os.path.ismount asks the file system, and takes the EIO of one without power for a no."""
    path = os.path.realpath(folder).replace("\\", r"\134").replace(" ", r"\040").replace("\t", r"\011")
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        return any(line.split()[4] == path for line in f)


def unmount(folder):
    """What is mounted there, at the latest when nobody uses it any more."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if not is_mounted(folder) or subprocess.run(["umount", folder], capture_output=True).returncode == 0:
            return
        time.sleep(0.05)
    subprocess.run(["umount", "-l", folder], capture_output=True)
