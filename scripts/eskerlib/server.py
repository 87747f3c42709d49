"""Private MariaDB servers: each has a folder var/<name>/ (data, log, pid), listens on a unix socket only (those that others
follow on a port of 127.0.0.1 too), and is stopped by its recorded pid. Never touches the system's own server."""
import hashlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import time

from . import env
from .client import Client, Lost, SqlError

LONGEST_SOCKET = 104  # sun_path has 108 bytes


def _short_socket(folder):
    """A socket path inside folder, or a short one in /tmp when that would be too long for the kernel."""
    path = os.path.join(folder, "sock")
    if len(path.encode()) <= LONGEST_SOCKET:
        return path
    short = f"/tmp/esker-{os.getuid()}-{hashlib.sha256(folder.encode()).hexdigest()[:12]}"
    os.makedirs(short, mode=0o700, exist_ok=True)
    return os.path.join(short, "sock")


def measured_settings():
    """The settings under which engines are compared: 4 GiB pools on a machine with room for them."""
    pool = min(4 << 30, env.memory_bytes() // 4)
    mib = 1 << 20
    return {
        "innodb_buffer_pool_size": pool,
        "innodb_log_file_size": min(2 << 30, pool // 2),
        "rocksdb_block_cache_size": pool // 2,
        "key_buffer_size": min(512 * mib, pool // 8),
        "aria_pagecache_buffer_size": min(512 * mib, pool // 8),
        "esker_memory_limit": pool,
        "max_heap_table_size": 64 * mib,
    }


def small_settings():
    """For tests: little memory, small files."""
    mib = 1 << 20
    return {
        "innodb_buffer_pool_size": 64 * mib, "innodb_log_file_size": 32 * mib, "rocksdb_block_cache_size": 32 * mib,
        "key_buffer_size": 16 * mib, "aria_pagecache_buffer_size": 16 * mib, "esker_memory_limit": 256 * mib,
    }


class Server:
    """One private server. settings: server variables; plugins of other engines are loaded when they are asked for; with a
    port it listens on 127.0.0.1 too."""

    def __init__(self, name, settings=None, engines=("ESKER",), folder=None, port=None):
        self.env = env.load()
        self.name = name
        self.folder = folder or os.path.join(env.VAR, name)
        self.data = os.path.join(self.folder, "data")
        self.log = os.path.join(self.folder, "server.log")
        self.pid_file = os.path.join(self.folder, "pid")
        self.socket = _short_socket(self.folder)
        self.settings = dict(settings or {})
        self.engines = {e.upper() for e in engines}
        self.port = port
        self.process = None

    # -- state --------------------------------------------------------------------------------------------------------
    def pid(self):
        """The pid of our running server, or None. A recycled pid is not mistaken for it."""
        try:
            with open(self.pid_file) as f:
                pid = int(f.read())
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                ours = f"--datadir={self.data}".encode() in f.read().split(b"\0")
            with open(f"/proc/{pid}/stat") as f:
                gone = f.read().rsplit(")", 1)[1].split()[0] in "ZX"
            return pid if ours and not gone else None
        except (OSError, ValueError):
            return None

    def connect(self, db=None, timeout=None):
        """A new connection."""
        return Client(self.socket, db=db, timeout=timeout)

    # -- life ---------------------------------------------------------------------------------------------------------
    def _plugin_folder(self):
        """A folder of links: the server's own plugins and ours."""
        folder = os.path.join(self.folder, "plugins")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        own = self.env.get("ESKER_PLUGIN_DIR", "")
        for name in os.listdir(own) if own and os.path.isdir(own) else []:
            os.symlink(os.path.join(own, name), os.path.join(folder, name))
        ours = os.path.join(folder, "ha_esker.so")
        if os.path.exists(env.PLUGIN):
            if os.path.lexists(ours):
                os.unlink(ours)
            os.symlink(env.PLUGIN, ours)
        return folder

    def _environment(self):
        """With a folder for temporary tables of its own: a server that starts removes all that it finds in /tmp, other servers' too."""
        folder = os.path.join(env.VAR, "tmp", self.name)
        os.makedirs(folder, exist_ok=True)
        return dict(os.environ, TMPDIR=folder)

    def _check_version(self):
        """The plugin was built for exactly this server, or a clear message."""
        if not os.path.exists(env.PLUGIN):
            env.fail(f"{os.path.relpath(env.PLUGIN, env.ROOT)} is missing; run 'make build' first")
        note = os.path.splitext(env.PLUGIN)[0] + ".version"
        if os.path.exists(note):
            built = open(note).read().strip()
            if built != self.env["ESKER_MARIADB_VERSION"]:
                env.fail(f"the plugin was built for MariaDB {built}, the server is "
                         f"{self.env['ESKER_MARIADB_VERSION']}; run 'make build' again")

    def create(self, fresh=False):
        """The data folder with its system tables; fresh=True throws away what was there."""
        if fresh:
            if self.pid():
                self.kill()
            shutil.rmtree(self.data, ignore_errors=True)
        if os.path.isdir(os.path.join(self.data, "mysql")):
            return
        os.makedirs(self.folder, exist_ok=True)
        shutil.rmtree(self.data, ignore_errors=True)
        command = [self.env["ESKER_INSTALL_DB"], "--no-defaults", f"--datadir={self.data}", "--skip-test-db",
                   "--auth-root-authentication-method=normal", f"--user={pwd.getpwuid(os.getuid()).pw_name}"]
        if self.env["ESKER_MARIADB_PREFIX"] != "/usr":
            command.append(f"--basedir={self.env['ESKER_MARIADB_PREFIX']}")
        done = subprocess.run(command, capture_output=True, text=True, env=self._environment())
        if done.returncode:
            env.fail(f"could not create the data folder {self.data}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")

    def _listening(self):
        """Where it listens beside its socket."""
        return ["--bind-address=127.0.0.1", f"--port={self.port}"] if self.port else ["--skip-networking"]

    def command(self):
        """The server's command line."""
        plugins = self._plugin_folder()
        line = [self.env["ESKER_MARIADBD"], "--no-defaults", f"--datadir={self.data}", f"--socket={self.socket}",
                *self._listening(), f"--user={pwd.getpwuid(os.getuid()).pw_name}",
                f"--pid-file={os.path.join(self.folder, 'server.pid')}", f"--log-error={self.log}",
                f"--plugin-dir={plugins}", "--plugin-maturity=unknown", "--character-set-server=utf8mb4",
                "--secure-file-priv=", "--skip-name-resolve", "--max-allowed-packet=1G"]
        if self.env["ESKER_MARIADB_PREFIX"] != "/usr":
            line.append(f"--basedir={self.env['ESKER_MARIADB_PREFIX']}")
        if "ESKER" in self.engines:
            self._check_version()
            line.append("--plugin-load-add=ha_esker.so")
        if "ROCKSDB" in self.engines:
            line.append("--plugin-load-add=ha_rocksdb.so")
        if "BLACKHOLE" in self.engines:
            line.append("--plugin-load-add=ha_blackhole.so")
        if "SPIDER" in self.engines:
            line.append("--plugin-load-add=ha_spider.so")
        return line + [f"--loose-{k.replace('_', '-')}={v}" for k, v in self.settings.items()]

    def start(self, wait_s=300, wrapper=()):
        """Start and wait until it answers; a failure shows the end of its log."""
        if self.pid():
            return self
        self.create()
        command = list(wrapper) + self.command()
        with open(os.path.join(self.folder, "command.json"), "w") as f:
            json.dump(command, f, indent=1)
        log_start = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        if os.path.exists(self.socket):
            os.unlink(self.socket)
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=open(self.log, "ab"),
                                        stderr=subprocess.STDOUT, start_new_session=True, cwd=self.folder, env=self._environment())
        with open(self.pid_file, "w") as f:
            f.write(str(self.process.pid))
        deadline = time.monotonic() + wait_s
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with status {self.process.returncode} while starting:\n" + self.log_tail(log_start))
            try:
                self.connect(timeout=30).close()
                return self
            except (Lost, SqlError):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the server did not answer within {wait_s} s:\n" + self.log_tail(log_start)) from None
                time.sleep(0.02)

    def log_tail(self, start=0, lines=25):
        """The last lines of the error log, from a position on."""
        try:
            with open(self.log, "rb") as f:
                f.seek(start)
                return "\n".join("    " + l for l in f.read().decode("utf-8", "replace").splitlines()[-lines:])
        except OSError:
            return "    (no log)"

    def _wait_gone(self, pid, wait_s):
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            if self.process is not None and self.process.pid == pid:
                if self.process.poll() is not None:
                    return True
            elif self.pid() is None:
                return True
            time.sleep(0.01)
        return False

    def stop(self, wait_s=120):
        """Orderly shutdown by pid; SIGKILL if it takes too long. True if it ended in order."""
        pid = self.pid()
        if pid is None:
            return True
        os.kill(pid, signal.SIGTERM)
        orderly = self._wait_gone(pid, wait_s)
        if not orderly:
            self.kill()
        self._forget()
        return orderly

    def kill(self):
        """SIGKILL by pid, and wait until the process is gone."""
        pid = self.pid()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            self._wait_gone(pid, 60)
        self._forget()

    def _forget(self):
        self.process = None
        for path in (self.pid_file, self.socket):
            if os.path.exists(path):
                os.unlink(path)
        if os.path.dirname(self.socket) != self.folder:
            shutil.rmtree(os.path.dirname(self.socket), ignore_errors=True)

    def remove(self):
        """Kill it and delete its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- looking at the process ---------------------------------------------------------------------------------------
    def status_kb(self, field):
        """A kB line of /proc/pid/status, as bytes."""
        with open(f"/proc/{self.pid()}/status") as f:
            for line in f:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) * 1024
        return 0

    def cpu_s(self):
        """Processor seconds of the server, the kernel's on its behalf too."""
        with open(f"/proc/{self.pid()}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def reset_peak(self):
        """Make VmHWM start anew."""
        with open(f"/proc/{self.pid()}/clear_refs", "w") as f:
            f.write("5")

    def written_bytes(self):
        """Bytes that the disk below the data folder has been asked to write, by everybody, once nothing is left to write.

        Not write_bytes of /proc/pid/io, where there is a disk: that counts what becomes dirty in the page cache, and where files have
        large folios a whole one of them (64 KiB and more) for each few bytes that are written into it and synced, of which the disk
        sees a block."""
        os.sync()
        device = os.stat(self.data).st_dev
        try:
            with open(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat") as f:
                return int(f.read().split()[6]) * 512
        except FileNotFoundError:
            return self.io()["write_bytes"]

    def io(self):
        """/proc/pid/io as a dict."""
        with open(f"/proc/{self.pid()}/io") as f:
            return {k: int(v) for k, v in (line.split(": ") for line in f)}


def all_running():
    """Servers under var/ that run now."""
    found = []
    for name in sorted(os.listdir(env.VAR)) if os.path.isdir(env.VAR) else []:
        if os.path.exists(os.path.join(env.VAR, name, "pid")):
            server = Server(name)
            if server.pid():
                found.append(server)
    return found


def folder_bytes(path, keep=lambda name: True):
    """The sizes of the files below path for which keep(path) is true."""
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            full = os.path.join(folder, name)
            try:
                total += os.lstat(full).st_size if keep(full) else 0
            except OSError:
                pass  # gone meanwhile
    return total
