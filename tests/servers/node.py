"""Servers that accidents happen to: one of several, and groups that start and stop together."""

import os
import shutil
import signal
import tempfile
from pathlib import Path

from streamtopic.local.child import LocalServer


class Node(LocalServer):
    """One server of several, which can be killed, stopped for a moment and started again."""

    def send(self, how):
        """Send a signal to the server, if it runs."""
        if self.pid is not None:
            os.kill(self.pid, how)

    def kill(self):
        """Kill the server, as a crash would."""
        self._end(signal.SIGKILL)

    def close(self):
        """Kill the server for good: nobody needs what it holds any more."""
        self.kill()


class Group:
    """Servers in one private folder, which is removed at the end. kept: a folder that stays, in its place."""

    def __init__(self, kept=None):
        self.nodes = []
        self._kept = kept
        self._folder = None

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, error, at):
        self.stop()

    def start(self):
        """Start the servers and wait until they serve. Starting twice is harmless."""
        if self._folder is None:
            if self._kept is not None:
                self._kept.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder = self._kept or Path(tempfile.mkdtemp(prefix="streamtopic-"))
            try:
                self._launch(self._folder)
            except BaseException:
                self.stop()
                raise
        return self

    def stop(self):
        """Stop the servers and remove what they held, unless their folder is kept. Stopping twice is harmless."""
        for node in self.nodes:
            node.close()
        self.nodes = []
        if self._folder is not None and self._kept is None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def _launch(self, folder):
        """Make the nodes and start them."""
        raise NotImplementedError
