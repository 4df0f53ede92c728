"""One server of several, which accidents happen to."""

import os
import signal


class Node:
    """One server of several, which can be killed, stopped for a moment and started again."""

    def __init__(self):
        self._server = None

    @property
    def pid(self):
        """Process id of the server, None where it does not run."""
        return self._server.pid if self._server else None

    def send(self, how):
        """Send a signal to the server, if it runs."""
        if self.pid is not None:
            os.kill(self.pid, how)

    def stop(self):
        """End the server in order. Stopping twice is harmless."""
        self._end(signal.SIGTERM)

    def kill(self):
        """Kill the server, as a crash would."""
        self._end(signal.SIGKILL)

    def _end(self, how):
        if self._server is not None:
            self._server.end(how)
            self._server = None
