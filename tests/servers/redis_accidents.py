"""Does to a Redis Cluster what operators and accidents do, step by step, so that other events can come in between."""

import contextlib
import signal
import time

import redis
from redis.crc import key_slot

from streamtopic.errors import ComponentUnreachable
from waiting import until

_ALL_KEYS = 10_000
_MOVE_MS = 5_000
# Seconds after which Redis gives up a failover in order.
_FAILOVER = 5.0


def wait_until(condition):
    """Wait for a condition; servers that do not answer for a moment do not meet it. Raises AssertionError."""

    def met():
        with contextlib.suppress(redis.exceptions.RedisError, ComponentUnreachable, StopIteration):
            return condition()
        return False

    until(met)


class SlotMove:
    """The slot of a key on its way from one master to another, as `redis-cli --cluster reshard` moves it."""

    def __init__(self, cluster, key):
        self.cluster, self.slot = cluster, key_slot(key.encode())
        self.source = cluster.master_of(key)
        self.target = next(node for node in cluster.masters() if node is not self.source)

    def begin(self):
        """From now on the source sends on whoever asks for a key that it does not have."""
        source, target = self.cluster.name_of(self.source), self.cluster.name_of(self.target)
        _command(self.target, "CLUSTER SETSLOT", self.slot, "IMPORTING", source)
        _command(self.source, "CLUSTER SETSLOT", self.slot, "MIGRATING", target)
        return self

    def left(self, number=_ALL_KEYS):
        """Return keys of the slot that the source still has, `number` at most."""
        return list(_command(self.source, "CLUSTER GETKEYSINSLOT", self.slot, number))

    def carry(self, *keys):
        """Move these keys; all that are in the slot without any."""
        for key in keys or self.left():
            _command(self.source, "MIGRATE", "127.0.0.1", self.target.port, key, 0, _MOVE_MS)
        return self

    def end(self):
        """Make the target the owner, and let every node know."""
        name = self.cluster.name_of(self.target)
        for node in [self.target, self.source, *self.cluster.masters()]:
            _command(node, "CLUSTER SETSLOT", self.slot, "NODE", name)
        return self


def fail_over(cluster, master):
    """Let a replica take its master's place in order, without loss; return it."""
    replica = cluster.replicas_of(master)[0]
    # Masters do not vote for a replica that has not heard which slots have moved, and it asks again only after long.
    wait_until(lambda: len({_slots(node) for node in [replica, *cluster.masters()]}) == 1)
    asked = -_FAILOVER

    def promoted():
        nonlocal asked
        if _is_master(replica):
            return True
        # A failover that is asked for once more begins again, so it is given the time that it may take.
        if time.monotonic() - asked > _FAILOVER:
            _command(replica, "CLUSTER FAILOVER")
            asked = time.monotonic()
        return False

    wait_until(promoted)
    wait_until(lambda: master.client.info("replication").get("master_link_status") == "up")
    return replica


def _slots(node):
    """Return which slots each master has, as a node has heard."""
    return repr(sorted((first, last, master[2]) for first, last, master, *_ in _command(node, "CLUSTER SLOTS")))


def cut_off(cluster, master):
    """Take a replica out of reach, so that it misses whatever its master confirms from now on; return it."""
    replica = cluster.replicas_of(master)[0]
    wait_until(lambda: master.client.wait(1, 1000) == 1)
    replica.send(signal.SIGSTOP)
    # Stopped alone it would still read, later, what its system has received meanwhile.
    _command(master, "CLIENT", "KILL", "TYPE", "replica")
    wait_until(lambda: int(master.client.info("replication")["connected_slaves"]) == 0)
    return replica


def lose(cluster, master, replica):
    """Kill a master for good, and have the replica that was cut off promoted with what it knows."""
    master.kill()
    replica.send(signal.SIGCONT)
    replace(cluster, replica)


def replace(cluster, replica):
    """Wait until a replica has taken the place of its master, which does not answer any more."""
    wait_until(lambda: _is_master(replica))
    cluster.await_serving()


def _is_master(node):
    return str(node.client.info("replication")["role"]) == "master"


def _command(node, *command):
    return node.client.execute_command(*command)
