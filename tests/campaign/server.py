"""The Redis of a campaign, one server or a cluster, and the accidents that happen to it.

Each accident is a method with the name of its kind. It takes a fault, does it, and undoes it.
"""

import os
import shutil
import signal
import time
from contextlib import ExitStack

from servers import redis_accidents as accidents
from servers.redis_cluster import DEFAULTS, LocalRedisCluster, RedisNode
from streamtopic.local.local_redis import write_anew

NODE_TIMEOUT = 2.0
"""Seconds until a silent node of a cluster is taken for lost."""
# Copies that a fault may set Redis back to.
_COPIES = 4
_CARRIED = 3
_CONFIRM_MS = 5_000


class RedisServer:
    """One server, with its data in a folder. It writes everything to its append-only file.

    folder: a new one. Copies of the data lie beside it.
    door: is given the port of a server, and returns the one of the proxy before it.
    keys: accidents of a cluster happen to a master that has one of these keys.

    nodes: all servers.
    """

    def __init__(self, folder, door, keys):
        folder.mkdir(parents=True)
        self._folder = folder
        self._keys = keys
        self._copies = []
        self._copied = 0
        self._begin(door)
        self.settle()

    def _begin(self, door):
        node = RedisNode(self._folder / "0", DEFAULTS)
        self.nodes = [node]
        self.address = f"redis://127.0.0.1:{door(node.port)}/0"
        self.url = f"redis://{node.place}/0"

    def masters(self):
        """Return the nodes that take writes."""
        return self.nodes

    def master_of(self, key):  # noqa: ARG002  there is one server
        """Return the node that has a key. Raises redis-py's errors and ComponentUnreachable."""
        return self.nodes[0]

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

    def copy(self):
        """Keep a copy of the data of all nodes as they are at this moment. The oldest of several is dropped."""
        self._copied += 1
        self._copies.append(self._folder.with_name(f"copy-{self._copied}"))
        with ExitStack() as stack:
            # Suspended, so that the copy is what a crash at this moment would have left.
            for node in self.nodes:
                stack.callback(node.send, signal.SIGCONT)
                node.send(signal.SIGSTOP)
            shutil.copytree(self._folder, self._copies[-1])
        if len(self._copies) > _COPIES:
            shutil.rmtree(self._copies.pop(0))

    def pause_redis(self, fault):
        """Make every master answer no client for a while."""
        for node in self.masters():
            node.client.execute_command("CLIENT", "PAUSE", int(200 + 3000 * fault.seconds))
        time.sleep(0.2 + 3 * fault.seconds)

    def fill_redis(self, fault):
        """Let every node refuse writes, since its memory is used up."""
        for size in (1, 0):
            for node in self.nodes:
                node.client.config_set("maxmemory", size)
            if size:
                time.sleep(0.5 + 2 * fault.seconds)

    def kill_redis(self, fault):
        """Kill the one server."""
        # It writes its file before it answers, but not where an earlier write is still on its way to the disk.
        self.nodes[0].kill()
        time.sleep(fault.seconds * 2)
        self.nodes[0].start()

    def set_redis_back(self, fault):
        """Start all nodes again from an older copy of their data."""
        for node in self.nodes:
            node.kill()
        shutil.rmtree(self._folder)
        shutil.copytree(self._copies[fault.which % len(self._copies)], self._folder)
        self.settle()

    def redis_loses_its_end(self, fault):
        """Start a master again without the last bytes that it wrote, wherever that cuts."""
        node = self._master(fault)
        known = _written_out(node.client)
        node.kill()
        # The bytes that it started with stay: they were safe on the disk then.
        newest = max(node.folder.rglob("*.aof"), key=lambda file: file.stat().st_mtime_ns)
        # Mostly some bytes, which cut a command in two; seldom many commands.
        os.truncate(newest, max(known, newest.stat().st_size - int(200_000 * fault.amount**4)))
        node.start()
        self.settle()
        # As docs/faults.md asks of an operator.
        write_anew(node.client)

    def _master(self, fault):
        return self.master_of(self._keys[fault.which % len(self._keys)])


class ShardedRedis(RedisServer):
    """A Redis Cluster: three masters with a replica each, every node behind a door of the proxy.

    All clients pass the proxy, since nodes name its doors to each other. Replicas reach their masters through it, too.
    """

    def _begin(self, door):
        self._cluster = LocalRedisCluster(node_timeout=NODE_TIMEOUT, folder=self._folder, door=door)
        self._cluster.start()
        self.nodes = self._cluster.nodes
        self.address = self.url = self._cluster.url
        self.masters, self.master_of = self._cluster.masters, self._cluster.master_of

    def settle(self):
        """Wait until every node runs, the cluster serves all slots, and each master has its replica."""
        super().settle()
        accidents.wait_until(lambda: len(self.masters()) == len(self.nodes) // 2)
        self._cluster.await_serving()

    def fail_over(self, fault):
        """Let a replica take its master's place in order."""
        accidents.fail_over(self._cluster, self._master(fault))
        self.settle()

    def kill_master(self, fault):
        """Kill a master, wait until its replica has its place, and start it again later, as a replica."""
        master = self._master(fault)
        replica = self._cluster.replicas_of(master)[0]
        master.kill()
        accidents.replace(self._cluster, replica)
        time.sleep(fault.seconds)
        self.settle()

    def forgetful_replica(self, fault):
        """Have a replica promoted that has missed whatever its master confirmed for some seconds."""
        master = self._master(fault)
        replica = accidents.cut_off(self._cluster, master)
        time.sleep(0.5 + 2.5 * fault.seconds)
        accidents.lose(self._cluster, master, replica)
        self.settle()

    def stalled_node(self, fault):
        """Stop a master for a while. It may wake up as one that others have replaced, and not know it yet."""
        master = self._master(fault)
        master.send(signal.SIGSTOP)
        time.sleep(NODE_TIMEOUT * (0.5 + 3 * fault.seconds))
        master.send(signal.SIGCONT)
        self.settle()

    def move_slots(self, fault):
        """Move the slot of a partition or of the model to another master, a few keys at a time."""
        move = accidents.SlotMove(self._cluster, self._keys[fault.which % len(self._keys)]).begin()
        try:
            while found := move.left(_CARRIED):
                move.carry(*found)
                time.sleep(0.05 * fault.amount)
        finally:
            move.carry().end()
        self.settle()
        # As docs/operations.md asks: nobody else has the keys, and the old master must not find them again.
        move.target.client.wait(1, _CONFIRM_MS)
        write_anew(move.target.client)
        write_anew(move.source.client)


def _written_out(client):
    """Wait until the append-only file has everything that was answered; return its size at the last start."""
    while True:
        state = client.info("persistence")
        # While the disk is slow, a server answers up to two seconds before it writes: SIGKILL would lose that too.
        if not int(state["aof_buffer_length"]):
            return int(state["aof_base_size"])
        time.sleep(0.02)
