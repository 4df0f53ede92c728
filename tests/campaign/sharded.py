"""A Redis Cluster for faults: three masters with a replica each, every node behind a door of the proxy."""

from __future__ import annotations

import shutil
import signal
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from campaign.server import cut_end, written_out
from servers import redis_accidents as accidents
from servers.ports import quiet_port
from servers.redis_cluster import LocalRedisCluster
from streamtopic.local.local_redis import write_anew
from streamtopic.state.redis_keys import ModelKeys

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import redis

    from campaign.proxy import Proxy
    from servers.redis_cluster import RedisNode

__all__ = ["NODE_TIMEOUT", "ShardedRedis"]

NODE_TIMEOUT = 2.0
"""Seconds until a silent node is taken for lost."""
_CARRIED = 3
_CONFIRM_MS = 5_000


class ShardedRedis:
    """A Redis Cluster whose nodes can be killed, stalled, replaced and set back, and whose slots can move.

    folder: its data.
    proxy: through which clients reach each node. Replicas reach their masters through it too.
    model, partitions: faults happen to a master that has keys of this model.
    """

    def __init__(self, folder: Path, proxy: Proxy, model: str, partitions: int) -> None:
        self._folder = folder
        keys = ModelKeys(model)
        self._keys = [keys.named("base"), *(keys.partition(p).meta for p in range(partitions))]
        self._cluster = LocalRedisCluster(
            node_timeout=NODE_TIMEOUT, folder=folder, door=lambda port: proxy.open(quiet_port(), port)
        )

    @property
    def url(self) -> str:
        """Address for clients. All of them pass the proxy, since nodes name its doors to each other."""
        return self._cluster.url

    @property
    def masters(self) -> Sequence[redis.Redis]:
        """Clients of the masters, past the proxy."""
        return [node.client for node in self._cluster.masters()]

    def value(self, key: str) -> bytes | None:
        """Return the value of a key, past the proxy. Raises redis-py's errors and ComponentUnreachable."""
        found: bytes | None = self._cluster.master_of(key).client.get(key)  # type: ignore[assignment]
        return found

    def start(self) -> None:
        """Start it, and wait until it serves. Raises ComponentUnreachable."""
        self._cluster.start()

    def stop(self) -> None:
        """End every node."""
        for node in self._cluster.nodes:
            node.send(signal.SIGCONT)
        self._cluster.stop()

    def settle(self) -> None:
        """Wait until every node runs, the cluster serves all slots, and each master has its replica."""
        for node in self._cluster.nodes:
            if node.pid is None:
                node.start()
        accidents.wait_until(lambda: len(self._cluster.masters()) == len(self._cluster.nodes) // 2)
        self._cluster.await_serving()

    def pause(self, milliseconds: int) -> None:
        """Make every master answer no client for a while."""
        for client in self.masters:
            client.execute_command("CLIENT", "PAUSE", milliseconds)  # type: ignore[no-untyped-call]

    def limit(self, size: int) -> None:
        """Limit the memory of every node to `size` bytes, 0 for no limit. Beyond the limit it refuses writes."""
        for node in self._cluster.nodes:
            node.client.config_set("maxmemory", size)

    def fail_over(self, which: int) -> None:
        """Let a replica take its master's place in order."""
        accidents.fail_over(self._cluster, self._master(which))
        self.settle()

    def kill(self, which: int, seconds: float) -> None:
        """Kill a master, wait until its replica has its place, and start it again later, as a replica."""
        master = self._master(which)
        replica = self._cluster.replicas_of(master)[0]
        master.kill()
        accidents.replace(self._cluster, replica)
        time.sleep(seconds)
        self.settle()

    def forget(self, which: int, seconds: float) -> None:
        """Have a replica promoted that has missed whatever its master confirmed for some seconds."""
        master = self._master(which)
        replica = accidents.cut_off(self._cluster, master)
        time.sleep(seconds)
        accidents.lose(self._cluster, master, replica)
        self.settle()

    def stall(self, which: int, seconds: float) -> None:
        """Stop a master for a while. It may wake up as one that others have replaced, and not know it yet."""
        master = self._master(which)
        master.send(signal.SIGSTOP)
        time.sleep(seconds)
        master.send(signal.SIGCONT)
        self.settle()

    def move(self, which: int, pause: float) -> None:
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

    def lose(self, size: int, which: int = 0) -> None:
        """Start a master again without the last `size` bytes of its file, wherever that cuts, before it is replaced."""
        self.lose_end(self._master(which), size)

    def lose_end(self, master: RedisNode, size: int) -> None:
        """Do this to a node."""
        known = written_out(master.client)
        master.kill()
        cut_end(master.folder, size, known)
        master.start()
        self.settle()
        # As docs/faults.md asks of an operator.
        write_anew(master.client)

    def copy(self, to: Path) -> None:
        """Copy the data of all nodes as they are at this moment."""
        with self.suspended():
            shutil.copytree(self._folder, to)

    def restore(self, copy: Path) -> None:
        """Start all nodes again from an older copy of their data."""
        for node in self._cluster.nodes:
            node.kill()
        shutil.rmtree(self._folder)
        shutil.copytree(copy, self._folder)
        self.settle()

    def _master(self, which: int) -> RedisNode:
        return self._cluster.master_of(self._keys[which % len(self._keys)])

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Stop every node as long as the block runs."""
        with ExitStack() as stack:
            for node in self._cluster.nodes:
                stack.callback(node.send, signal.SIGCONT)
                node.send(signal.SIGSTOP)
            yield
