"""The demo's first words on a machine where nothing is compiled yet, and where it is."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager


@contextmanager
def _started(cache, documents, output):
    """Start the demo with this cache, and interrupt it at the end of the block, as Ctrl-C does."""
    demo = [sys.executable, "-m", "streamtopic", "demo", "--documents", str(documents)]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    with subprocess.Popen(demo, env=environment, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


def _at_a_terminal(cache, documents, wanted):
    """Return what the demo shows at a terminal, until it has shown `wanted`."""
    master, slave = os.openpty()
    shown = b""
    try:
        with _started(cache, documents, slave):
            os.close(slave)
            while wanted not in shown:
                # An OSError here means that the demo has ended without it.
                shown += os.read(master, 4096)
    finally:
        os.close(master)
    return shown.decode()


def test_the_first_output_at_a_terminal_names_the_compiler(sample_file, tmp_path):
    """With an empty cache compiling is named first, with how long it takes, and that it happens once."""
    shown = _at_a_terminal(tmp_path, sample_file, b"load the program")
    before, compiling, after = shown.partition(
        "compiling to machine code: once on this machine, for up to half a minute"
    )
    assert compiling
    assert before.startswith("\r\033[Klooking for machine code")
    # Nothing but this one line that is replaced comes before it.
    assert "\n" not in before
    assert str(tmp_path) in after.splitlines()[1]
