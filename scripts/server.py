#!/usr/bin/python3
"""server.py: start, stop, kill and look at a private MariaDB with Esker, by hand.

    scripts/server.py start  [name]     start var/<name>/ (default 'run'), unix socket only
    scripts/server.py stop   [name]     stop it by its recorded pid; 'all' stops every server under var/
    scripts/server.py kill   [name]     SIGKILL it
    scripts/server.py status            what runs
    scripts/server.py client [name] [arguments of the mariadb client...]

ENGINES=esker,rocksdb,blackhole chooses the plugins that are loaded (default esker,rocksdb,blackhole);
SETTINGS="a=1 b=2" adds server variables; MEASURED=1 takes the large settings of the benchmark.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from eskerlib import env, server  # noqa: E402


def is_there(s, engine):
    """Does the server have the engine?"""
    c = s.connect()
    try:
        return c.one(f"SELECT COUNT(*) FROM information_schema.ENGINES WHERE ENGINE='{engine}' AND SUPPORT<>'NO'") not in (0, "0")
    finally:
        c.close()


def main():
    args = sys.argv[1:]
    if not args or args[0] not in ("start", "stop", "kill", "status", "client"):
        print(__doc__.strip())
        sys.exit(0 if args in ([], ["help"]) else 2)
    verb, name = args[0], args[1] if len(args) > 1 and not args[1].startswith("-") else "run"
    if "/" in name or name.startswith("."):
        env.fail(f"'{name}' is not a server's name: letters and digits only, it becomes a folder under var/")
    if verb == "status":
        for s in server.all_running():
            print(f"{s.name}: pid {s.pid()}, socket {s.socket}")
        return
    if name == "all" and verb in ("stop", "kill"):
        running = server.all_running()
        for s in running:
            print(f"stopping {s.name} (pid {s.pid()})", flush=True)
            s.stop() if verb == "stop" else s.kill()
        if not running:
            print("no private server is running")
        return
    engines = env.names("ENGINES", ["ESKER", "ROCKSDB", "BLACKHOLE"], ["ESKER", "ROCKSDB", "BLACKHOLE", "NONE"])
    settings = server.measured_settings() if os.environ.get("MEASURED") else server.small_settings()
    for pair in os.environ.get("SETTINGS", "").split():
        key, _, value = pair.partition("=")
        settings[key] = value
    s = server.Server(name, settings, engines)
    if verb == "start":
        try:
            s.start()
        except RuntimeError as e:
            env.fail(str(e))
        refused = [e for e in engines if e != "NONE" and not is_there(s, e)]
        print(f"{name}: pid {s.pid()}; connect with: mariadb --no-defaults -u root -S {s.socket}")
        if refused:
            env.fail(f"it runs without {', '.join(refused)}, since the server refused the plugin:\n" + s.log_tail())
    elif verb == "client":
        if not s.pid():
            env.fail(f"server '{name}' is not running (scripts/server.py start {name})")
        client = os.path.join(s.env["ESKER_CLIENT_DIR"], "mariadb")
        os.execv(client, [client, "--no-defaults", "-u", "root", "-S", s.socket] + args[2:])
    elif not s.pid():
        print(f"{name} is not running")
    elif verb == "stop":
        print(f"{name} stopped" if s.stop() else f"{name} did not stop in time and was killed")
    else:
        s.kill()
        print(f"{name} killed")


if __name__ == "__main__":
    main()
