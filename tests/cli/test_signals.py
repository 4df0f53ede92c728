"""Signals that come while the program is still being loaded."""

import signal
import subprocess
import sys

import pytest

# Sends a signal to its own process in the moment in which a module is looked for, then starts the program.
STARTED = """
import os, signal, sys
# A shell ignores SIGINT for what it starts in the background, and every child inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)
class Sends:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Sends())
sys.argv[1:] = {arguments!r}
from streamtopic.__main__ import start
sys.exit(start())
"""


def _start(module, number, *arguments):
    code = STARTED.format(module=module, number=int(number), arguments=list(arguments))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)


def test_ctrl_c_while_the_program_is_loaded_shows_no_traceback():
    """Whoever changes their mind at once reads nothing, and the process ends as others do at this signal."""
    done = _start("streamtopic.commands.demo", signal.SIGINT, "status")
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.parametrize(("part", "number"), [("run", signal.SIGTERM), ("schedule", signal.SIGINT)])
def test_a_part_that_is_told_to_leave_before_it_works_leaves_with_status_0(part, number, tmp_path):
    """A supervisor that stops a service in its first seconds finds the status of an orderly end."""
    config = tmp_path / "streamtopic.toml"
    # Nothing listens there: a part that went on would wait.
    config.write_text('kafka = "127.0.0.1:1"\nredis_url = "redis://127.0.0.1:1/0"\n', "utf-8")
    done = _start("streamtopic.service.leading", number, part, "--config", str(config))
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


def test_the_http_server_leaves_when_it_is_told_so_before_it_serves():
    """A signal between the opening of its port and the first request is not lost."""
    code = """
import os, signal
from streamtopic.monitoring.http_server import http_server, leave_quietly, listening
async def pages(scope, receive, send): ...
with listening("127.0.0.1", 0) as listener:
    server = http_server(pages, listener)
    leave_quietly(server)
    os.kill(os.getpid(), signal.SIGTERM)
    server.run(sockets=[listener])
"""
    pytest.importorskip("uvicorn")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
