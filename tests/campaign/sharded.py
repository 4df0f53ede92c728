"""A Redis Cluster for faults: three masters with a replica each, every node behind a door of the proxy."""

import signal
import time

from campaign.server import RedisNodes
from servers import redis_accidents as accidents
from servers.ports import quiet_port
from servers.redis_cluster import LocalRedisCluster
from streamtopic.local.local_redis import write_anew
from streamtopic.state.redis_keys import ModelKeys

NODE_TIMEOUT = 2.0
"""Seconds until a silent node is taken for lost."""
_CARRIED = 3
_CONFIRM_MS = 5_000


class ShardedRedis(RedisNodes):
    """A Redis Cluster whose nodes can be killed, stalled, replaced and set back, and whose slots can move.

    folder: its data.
    proxy: through which clients reach each node. Replicas reach their masters through it too.
    model, partitions: faults happen to a master that has keys of this model.
    """

    def __init__(self, folder, proxy, model, partitions):
        super().__init__(folder)
        keys = ModelKeys(model)
        self._keys = [keys.named("base"), *(keys.partition(p).meta for p in range(partitions))]
        self._cluster = LocalRedisCluster(
            node_timeout=NODE_TIMEOUT, folder=folder, door=lambda port: proxy.open(quiet_port(), port)
        )

    @property
    def url(self):
        """Address for clients. All of them pass the proxy, since nodes name its doors to each other."""
        return self._cluster.url

    address = url

    @property
    def nodes(self):
        """Masters and replicas."""
        return self._cluster.nodes

    @property
    def masters(self):
        """Clients of the masters, past the proxy."""
        return [node.client for node in self._cluster.masters()]

    def value(self, key):
        """Return the value of a key, past the proxy. Raises redis-py's errors and ComponentUnreachable."""
        return self._cluster.master_of(key).client.get(key)

    def settle(self):
        """Wait until every node runs, the cluster serves all slots, and each master has its replica."""
        self._cluster.start()
        super().settle()
        accidents.wait_until(lambda: len(self._cluster.masters()) == len(self._cluster.nodes) // 2)
        self._cluster.await_serving()

    def fail_over(self, which):
        """Let a replica take its master's place in order."""
        accidents.fail_over(self._cluster, self._master(which))
        self.settle()

    def kill(self, which, seconds):
        """Kill a master, wait until its replica has its place, and start it again later, as a replica."""
        master = self._master(which)
        replica = self._cluster.replicas_of(master)[0]
        master.kill()
        accidents.replace(self._cluster, replica)
        time.sleep(seconds)
        self.settle()

    def forget(self, which, seconds):
        """Have a replica promoted that has missed whatever its master confirmed for some seconds."""
        master = self._master(which)
        replica = accidents.cut_off(self._cluster, master)
        time.sleep(seconds)
        accidents.lose(self._cluster, master, replica)
        self.settle()

    def stall(self, which, seconds):
        """Stop a master for a while. It may wake up as one that others have replaced, and not know it yet."""
        master = self._master(which)
        master.send(signal.SIGSTOP)
        time.sleep(seconds)
        master.send(signal.SIGCONT)
        self.settle()

    def move(self, which, pause):
        """Move the slot of a partition or of the model to another master, a few keys at a time.

        pause: seconds between them.
        """
        move = accidents.SlotMove(self._cluster, self._keys[which % len(self._keys)]).begin()
        try:
            while found := move.left(_CARRIED):
                move.carry(*found)
                time.sleep(pause)
        finally:
            move.carry().end()
        self.settle()
        # As docs/operations.md asks: nobody else has the keys, and the old master must not find them again.
        move.target.client.wait(1, _CONFIRM_MS)
        write_anew(move.target.client)
        write_anew(move.source.client)

    def lose(self, size, which=0):
        """Start a master again without the last `size` bytes of its file, wherever that cuts, before it is replaced."""
        self.lose_end(self._master(which), size)

    def _master(self, which):
        return self._cluster.master_of(self._keys[which % len(self._keys)])
