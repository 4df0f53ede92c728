"""The Redis of a campaign: what faults do to one server and to a cluster alike, and the one server."""

import os
import shutil
import signal
import time
from contextlib import ExitStack, contextmanager

from servers.ports import quiet_port
from servers.redis_cluster import DEFAULTS, RedisNode
from streamtopic.local.local_redis import write_anew


class RedisNodes:
    """Servers with their data in one folder. They write everything to their append-only files.

    folder: their data.
    """

    def __init__(self, folder):
        self._folder = folder

    @property
    def nodes(self):
        """All of them."""
        raise NotImplementedError

    @property
    def masters(self):
        """Clients of those that take writes, past the proxy."""
        raise NotImplementedError

    def settle(self):
        """Start the nodes that do not run, and wait until they have loaded their data. Raises ComponentUnreachable."""
        for node in self.nodes:
            if node.pid is None:
                node.start()

    def stop(self):
        """End every node."""
        for node in self.nodes:
            node.kill()
            node.client.close()

    def pause(self, milliseconds):
        """Make every master answer no client for a while."""
        for client in self.masters:
            client.execute_command("CLIENT", "PAUSE", milliseconds)

    def limit(self, size):
        """Limit the memory of every node to `size` bytes, 0 for no limit. Beyond the limit it refuses writes."""
        for node in self.nodes:
            node.client.config_set("maxmemory", size)

    def lose_end(self, node, size):
        """Start a node again without the last `size` bytes that were written since it started, wherever that cuts."""
        known = _written_out(node.client)
        node.kill()
        # The bytes that it started with stay: they were safe on the disk then.
        newest = max(node.folder.rglob("*.aof"), key=lambda file: file.stat().st_mtime_ns)
        os.truncate(newest, max(known, newest.stat().st_size - size))
        node.start()
        self.settle()
        # As docs/faults.md asks of an operator.
        write_anew(node.client)

    def copy(self, to):
        """Copy the data of all nodes as they are at this moment."""
        # Suspended, so that the copy is what a crash at this moment would have left.
        with self.suspended():
            shutil.copytree(self._folder, to)

    def restore(self, copy):
        """Start all nodes again from an older copy of their data."""
        for node in self.nodes:
            node.kill()
        shutil.rmtree(self._folder)
        shutil.copytree(copy, self._folder)
        self.settle()

    @contextmanager
    def suspended(self):
        """Stop every node as long as the block runs: it takes connections and answers nobody."""
        with ExitStack() as stack:
            for node in self.nodes:
                stack.callback(node.send, signal.SIGCONT)
                node.send(signal.SIGSTOP)
            yield


class RedisServer(RedisNodes):
    """One server. address: the one behind the proxy. url: its own."""

    def __init__(self, folder, proxy):
        super().__init__(folder)
        folder.mkdir(parents=True)
        self.node = RedisNode(folder / "0", DEFAULTS)
        self.address = f"redis://127.0.0.1:{proxy.open(quiet_port(), self.node.port)}/0"
        self.url = f"redis://{self.node.place}/0"

    @property
    def nodes(self):
        """The one."""
        return [self.node]

    @property
    def masters(self):
        """Its client, past the proxy."""
        return [self.node.client]

    def value(self, key):
        """Return the value of a key. Raises redis-py's errors."""
        return self.node.client.get(key)

    def lose(self, size, which=0):  # noqa: ARG002  there is one server
        """Start again without the last `size` bytes."""
        self.lose_end(self.node, size)


def _written_out(client):
    """Wait until the append-only file has everything that was answered; return its size at the last start."""
    while True:
        state = client.info("persistence")
        # While the disk is slow, a server answers up to two seconds before it writes: SIGKILL would lose that too.
        if not int(state["aof_buffer_length"]):
            return int(state["aof_base_size"])
        time.sleep(0.02)
