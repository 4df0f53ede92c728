"""One server of several, which accidents happen to."""

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamtopic.local.child import Child

__all__ = ["Node"]


class Node:
    """One server of several, which can be killed, stopped for a moment and started again."""

    def __init__(self) -> None:
        self._server: Child | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the server, None where it does not run."""
        return self._server.pid if self._server else None

    def send(self, how: signal.Signals) -> None:
        """Send a signal to the server, if it runs."""
        if self.pid is not None:
            os.kill(self.pid, how)

    def stop(self) -> None:
        """End the server in order. Stopping twice is harmless."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the server, as a crash would."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._server is not None:
            self._server.end(how)
            self._server = None
