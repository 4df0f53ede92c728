"""Does each kind of fault to a cluster, and undoes it."""

import contextlib
import threading
import time
from contextlib import ExitStack

import redis

from campaign.cluster import LEASE, SESSION
from campaign.sharded import NODE_TIMEOUT, ShardedRedis
from streamtopic.errors import ComponentUnreachable

_STORM = 4
_COMES_SECONDS = 5.0
# A command is recognised by the call of a script, and by keys that only this script names.
_COMMIT = (b"EVALSHA", b":meta", b":forgets")
STAGE = (b"EVALSHA", b":releases", b":outbox")
_COMMANDS = (_COMMIT, _COMMIT, STAGE, (b"EVALSHA", b":ledger:head"), (b"EVALSHA",), ())
_END_SECONDS = 40.0
_COMES_BACK = 60.0
# Seconds from the look at who leads to the moment when a held command is let go.
_EARLY = 0.3


def newest_leader(server, model):
    """Return the fencing token of the newest leader, 0 if Redis does not answer or has no leader."""
    with contextlib.suppress(redis.exceptions.RedisError, ComponentUnreachable):
        return int(server.value(f"{{st:{model}}}:fence") or 0)
    return 0


def staged_late(held, before, after):
    """Return the findings about a version whose staging was held back.

    held: the command.
    before, after: fencing token of the newest leader when it was held, and when it was let go.
    """
    # Without a new leader in between it is right that the version is staged.
    if not 0 < before < after or b"applied" not in held.reply:
        return []
    return ["a version was staged by a scheduler that another one had succeeded"]


class Injector:
    """Does faults to a cluster, several at a time, but only one to each part of it.

    findings: problems while a fault was done, such as a process that did not end when it was asked to.
    """

    def __init__(self, cluster):
        self._cluster = cluster
        self._redis, self._kafka, self._storm = threading.Lock(), threading.Lock(), threading.Lock()
        # How often a server that knows less may have taken the place of another.
        self._replaced = 0
        self.findings = []

    def do(self, fault):
        """Do a fault, wait as long as it lasts, and undo it."""
        act = getattr(self, "_" + fault.kind.replace(" ", "_"), None)
        if act is not None:
            act(fault)
            return
        verb, part = fault.kind.split()
        workers = {"ingest": self._cluster.ingests, "schedule": self._cluster.schedulers}
        targets = workers[part]
        worker = targets[fault.which % len(targets)]
        if verb == "kill":
            self._kill(worker, fault)
        else:
            self._suspend(worker, fault)

    def _kill(self, worker, fault):
        with worker.lock:
            worker.kill()
            time.sleep(fault.seconds * 2)
            worker.start()

    def _suspend(self, worker, fault):
        # Longer than the others wait before they take over, so that the worker wakes up with a successor.
        others_wait = LEASE if worker in self._cluster.schedulers else SESSION
        with worker.lock:
            worker.suspend()
            time.sleep(others_wait * (1.1 + 0.3 * fault.seconds))
            worker.resume()

    def _lose_replies(self, fault):
        for turn in range(1 + int(3 * fault.amount)):
            self._cluster.proxy.lose_reply(*_COMMANDS[(fault.which + turn) % len(_COMMANDS)])
        time.sleep(1 + fault.seconds)

    def _late_commit(self, fault):
        self._late(_COMMIT, self._cluster.ingests, SESSION * (1.3 + 0.5 * fault.seconds))

    def _late_version(self, fault):
        self._late(STAGE, self._cluster.schedulers, LEASE * (1.3 + fault.seconds))

    def _late(self, command, senders, seconds):
        """Hold a command back, end its possible senders, and let it arrive when others have taken over."""
        held = self._cluster.proxy.hold(*command, seconds=seconds)
        # There may be no such command in this round.
        if not held.begun.wait(_COMES_SECONDS):
            return
        before, replaced = self._leaders(), self._replaced
        with ExitStack() as locks:
            for sender in senders:
                locks.enter_context(sender.lock)
                sender.kill()
            for sender in senders:
                sender.start()
        time.sleep(max(0.0, seconds - _EARLY))
        after = self._leaders()
        held.over.wait(_COMES_BACK)
        # A replica that was promoted meanwhile may not have heard of the newer leader, and rightly takes the version.
        if command == STAGE and replaced == self._replaced:
            self.findings += staged_late(held, before, after)

    def _leaders(self):
        return newest_leader(self._cluster.redis, self._cluster.names.model)

    def _cut_connections(self, fault):
        for _ in range(1 + int(5 * fault.amount)):
            self._cluster.proxy.sever()
            time.sleep(0.3 * fault.seconds)

    def _pause_redis(self, fault):
        with self._redis:
            self._cluster.redis.pause(int(200 + 3000 * fault.seconds))
            time.sleep(0.2 + 3 * fault.seconds)

    def _fill_redis(self, fault):
        with self._redis:
            self._cluster.redis.limit(1)
            time.sleep(0.5 + 2 * fault.seconds)
            self._cluster.redis.limit(0)

    def _kill_redis(self, fault):
        with self._redis:
            # It writes its file before it answers, but not where an earlier write is still on its way to the disk.
            self._server.node.kill()
            time.sleep(fault.seconds * 2)
            self._server.node.start()

    @property
    def _server(self):
        server = self._cluster.redis
        if isinstance(server, ShardedRedis):
            raise TypeError("a fault of one server was drawn for a cluster: draw from SHARDED_KINDS")
        return server

    @contextlib.contextmanager
    def _shards(self):
        """Yield the cluster for an accident that may promote a replica."""
        shards = self._cluster.redis
        if not isinstance(shards, ShardedRedis):
            raise TypeError("a fault of a cluster was drawn for one server: draw from EVERY_KIND")
        with self._redis:
            self._replaced += 1
            yield shards
            self._replaced += 1

    def _fail_over(self, fault):
        with self._shards() as shards:
            shards.fail_over(fault.which)

    def _kill_master(self, fault):
        with self._shards() as shards:
            shards.kill(fault.which, fault.seconds)

    def _forgetful_replica(self, fault):
        with self._shards() as shards:
            shards.forget(fault.which, 0.5 + 2.5 * fault.seconds)

    def _stalled_node(self, fault):
        with self._shards() as shards:
            shards.stall(fault.which, NODE_TIMEOUT * (0.5 + 3 * fault.seconds))

    def _move_slots(self, fault):
        with self._shards() as shards:
            shards.move(fault.which, 0.05 * fault.amount)

    def _set_redis_back(self, fault):
        with self._redis:
            copies = self._cluster.copies
            self._cluster.redis.restore(copies[fault.which % len(copies)])

    def _redis_loses_its_end(self, fault):
        with self._redis:
            # Mostly some bytes, which cut a command in two; seldom many commands.
            self._replaced += 1
            self._cluster.redis.lose(int(200_000 * fault.amount**4), fault.which)

    def _kill_kafka(self, fault):
        with self._kafka:
            self._cluster.kafka.kill()
            time.sleep(fault.seconds)
            self._cluster.kafka.start()

    def _restart_kafka(self, fault):
        with self._kafka:
            self._cluster.kafka.stop()
            time.sleep(fault.seconds)
            self._cluster.kafka.start()

    def _rebalance_storm(self, fault):
        """Let guests join and leave the group in quick turn, politely or not."""
        with self._storm:
            for turn in range(_STORM):
                guest = self._cluster.guests[turn % len(self._cluster.guests)]
                guest.start()
                time.sleep(1.5 * fault.seconds)
                other = self._cluster.guests[(turn + fault.which) % len(self._cluster.guests)]
                if turn % 2 and other.running:
                    self.end(other)
                else:
                    other.kill()
            for guest in self._cluster.guests:
                guest.kill()

    def copy(self):
        """Keep a copy of Redis's data in the middle of the faults."""
        # Not while a fault restarts Redis: a copy of half a restored folder would be no state that ever was.
        with self._redis:
            self._cluster.copy()

    def end(self, worker):
        """Ask a process to end. It must end in time and without an error, whatever else happens meanwhile."""
        status = worker.terminate(_END_SECONDS)
        if status is None:
            self.findings.append(f"{worker.name} did not end within {_END_SECONDS:.0f} s of SIGTERM:\n{worker.tail()}")
        # -15: the signal came before the program had set its handler.
        elif status not in (0, -15):
            self.findings.append(f"{worker.name} ended with status {status} after SIGTERM:\n{worker.tail()}")
