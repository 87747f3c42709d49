"""What every server test gets: servers that end with the case, the command that replays it, a status of its own when
nothing could run.

Files of a case that failed are kept, those of one that passed are removed.
"""
import os
import signal

import pytest

from eskerlib import env, server, show

NOT_HERE = 77  # status of a program that this machine cannot run, as of the scripts

# 'make test' ends a step that is out of time with SIGTERM: servers must go then, too.
signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_sessionfinish(session, exitstatus):
    """All skipped is not passed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    ran = any(reporter.stats.get(how) for how in ("passed", "xfailed"))
    if exitstatus == pytest.ExitCode.OK and not ran and not session.config.option.collectonly:
        session.exitstatus = NOT_HERE


@pytest.fixture(scope="module")
def module_servers(request):
    """As `servers`, for all cases of a file."""
    yield from _servers(request)


@pytest.fixture
def servers(request):
    """Makes private servers: servers(name, settings, engines, folder, port)."""
    yield from _servers(request)


def _servers(request):
    made, failed_before = [], request.session.testsfailed

    def make(name, settings, engines=("ESKER",), folder=None, port=None):
        made.append(server.Server(name, settings, engines, folder, port))
        return made[-1]

    yield make
    for s in made:
        s.kill()
        if request.session.testsfailed == failed_before:
            s.remove()
        elif os.path.exists(s.folder):
            print(f"\n{s.name}: files kept in {os.path.relpath(s.folder, env.ROOT)}/; the end of its log:\n{s.log_tail()}", flush=True)


@pytest.fixture
def again(request):
    """Tells with which parameters to replay the case, now and where it failed: again(SEED=7, ...)."""

    def tell(**parameters):
        words = [f"{name}={value}" for name, value in parameters.items()]
        text = "again with: " + " ".join([*words, "/usr/bin/pytest-3", os.path.relpath(request.path, env.ROOT)])
        print(flush=True)
        show.say(text)
        request.node.add_report_section("call", "replay", text)

    return tell
