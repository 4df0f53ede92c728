"""What operators and accidents do to a Redis Cluster, step by step, so that a test can stop in between."""

import contextlib
import os
import signal
import time

import redis
from redis.crc import key_slot

from streamtopic.errors import ComponentUnreachable


def wait_until(condition, seconds=60):
    """Wait for a condition; servers that do not answer for a moment do not meet it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(redis.exceptions.RedisError, ComponentUnreachable, StopIteration):
            if condition():
                return
        time.sleep(0.05)
    raise AssertionError("it did not come true")


class SlotMove:
    """A slot on its way from one master to another, as `redis-cli --cluster reshard` moves it."""

    def __init__(self, cluster, key):
        self.cluster, self.slot = cluster, key_slot(key.encode())
        self.source = cluster.master_of(key)
        self.target = next(node for node in cluster.masters() if node is not self.source)

    def begin(self):
        """From now on the source sends on whoever asks for a key that it does not have."""
        source, target = self.cluster.name_of(self.source), self.cluster.name_of(self.target)
        self.target.client.execute_command("CLUSTER SETSLOT", self.slot, "IMPORTING", source)
        self.source.client.execute_command("CLUSTER SETSLOT", self.slot, "MIGRATING", target)
        return self

    def carry(self, *keys):
        """Move these keys; all that are in the slot without any."""
        found = keys or self.source.client.execute_command("CLUSTER GETKEYSINSLOT", self.slot, 10_000)
        for key in found:
            self.source.client.execute_command("MIGRATE", "127.0.0.1", self.target.port, key, 0, 5000)
        return self

    def end(self):
        """Make the target the owner, and let every node know."""
        name = self.cluster.name_of(self.target)
        for node in [self.target, self.source, *self.cluster.masters()]:
            node.client.execute_command("CLUSTER SETSLOT", self.slot, "NODE", name)
        return self


def fail_over(cluster, master):
    """Let a replica take its master's place in order, without loss."""
    replica = cluster.replicas_of(master)[0]

    def promoted():
        if replica.client.info("replication")["role"] == "master":
            return True
        # Masters do not vote for a replica that has not heard yet which slots have moved: it is asked again.
        replica.client.execute_command("CLUSTER FAILOVER")
        time.sleep(0.3)
        return False

    wait_until(promoted)
    wait_until(lambda: master.client.info("replication").get("master_link_status") == "up")
    return replica


def cut_off(cluster, master):
    """Take a replica out of reach, so that it misses whatever its master confirms from now on; return it."""
    replica = cluster.replicas_of(master)[0]
    wait_until(lambda: master.client.wait(1, 1000) == 1)
    os.kill(replica.pid, signal.SIGSTOP)
    # Stopped alone it would still read, later, what its system has received meanwhile.
    master.client.execute_command("CLIENT", "KILL", "TYPE", "replica")
    wait_until(lambda: int(master.client.info("replication")["connected_slaves"]) == 0)
    return replica


def lose(cluster, master, replica):
    """Kill a master for good, and have the replica that was cut off promoted with what it knows."""
    master.kill()
    os.kill(replica.pid, signal.SIGCONT)
    wait_until(lambda: replica.client.info("replication")["role"] == "master")
    cluster.await_serving()
