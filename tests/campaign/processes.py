"""Programs that are killed, suspended and started again, and that end with this program, however it ends."""

import signal
import threading
import time

from servers.node import Node


class Worker(Node):
    """One program, started as often as faults need it; its output is appended to a file.

    name: of the program, for findings.
    output: that file.
    deaths: exit statuses of ends that no fault asked for.
    lock: held by a fault while it does something to the program.
    """

    def __init__(self, name, command, output):
        super().__init__()
        self.name = name
        self.output = output
        self.deaths = []
        self.lock = threading.RLock()
        self._command = list(command)

    def start(self):
        """Start it unless it runs. An end of its own is noted first."""
        with self.lock:
            self.check()
            if self._server is None:
                self._run(self._command, self.output)

    def check(self):
        """Note the exit status if the program ended by itself."""
        with self.lock:
            if self._server is not None and self._server.poll() is not None:
                self.deaths.append(self._end(signal.SIGKILL))

    def kill(self):
        """End it with SIGKILL, suspended or not."""
        with self.lock:
            self.check()
            self._end(signal.SIGKILL)

    def terminate(self, seconds):
        """Ask it to end, and return its exit status: None if it did not run, -9 if it had to be killed."""
        with self.lock:
            self.check()
            # A suspended process would not see the signal.
            for how in (signal.SIGCONT, signal.SIGTERM):
                self.send(how)
            deadline = time.monotonic() + seconds
            while self._server is not None and self._server.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            return self._end(signal.SIGKILL)

    def tail(self, lines=20):
        """Return the last lines of its output."""
        text = self.output.read_text("utf-8", "replace") if self.output.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def _end(self, how):
        """End it as in `Node`; return its exit status, None if it did not run."""
        server = self._server
        super()._end(how)
        return server and server.returncode
