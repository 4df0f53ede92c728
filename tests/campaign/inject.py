"""Draws faults from a seed, so that a campaign can be run again; does each one, and undoes it."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass

from campaign.cluster import LEASE, SESSION

EVERY_KIND = {
    "kill ingest": 5,
    "kill schedule": 6,
    "suspend ingest": 3,
    "suspend schedule": 3,
    "late commit": 2,
    "late version": 1,
    "lose replies": 6,
    "cut connections": 3,
    "pause redis": 3,
    "fill redis": 1,
    "kill redis": 2,
    "set redis back": 2,
    "redis loses its end": 2,
    "kill kafka": 1,
    "restart kafka": 1,
    "rebalance storm": 2,
}
"""Kinds of faults with their shares, where Redis is one server; docs/faults.md says what each does."""

_NEW_WITH_SHARDS = {"fail over": 2, "kill master": 3, "forgetful replica": 2, "stalled node": 3, "move slots": 3}
SHARDED_KINDS = {kind: share for kind, share in (EVERY_KIND | _NEW_WITH_SHARDS).items() if kind != "kill redis"}
"""Kinds of faults with their shares, where Redis is a cluster."""

_STORM = 4
_COMES_SECONDS = 5.0
# A command is recognised by the call of a script, and by keys that only this script names.
_COMMIT = (b"EVALSHA", b":meta", b":forgets")
_STAGE = (b"EVALSHA", b":releases", b":outbox")
_COMMANDS = (_COMMIT, _COMMIT, _STAGE, (b"EVALSHA", b":ledger:head"), (b"EVALSHA",), ())
_END_SECONDS = 40.0
_COMES_BACK = 60.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    kind: of EVERY_KIND or SHARDED_KINDS.
    delay: seconds from the start of its round.
    which: any number, which picks a target among several.
    seconds: how long it lasts, from 0 to 1; each kind has its own scale.
    amount: how much of it there is, from 0 to 1; each kind has its own scale.
    """

    kind: str
    delay: float
    which: int
    seconds: float
    amount: float


def draw(rng, number, window, kinds):
    """Return a round of faults.

    number: of faults.
    window: seconds within which they begin.
    kinds: kind to share.
    """
    names = rng.choices(list(kinds), list(kinds.values()), k=number)
    return [Fault(name, rng.uniform(0, window), rng.randrange(1 << 16), rng.random(), rng.random()) for name in names]


class Injector:
    """Does faults to a cluster, several at a time, but only one to each part of it.

    findings: problems while a fault was done, such as a process that did not end when it was asked to.
    """

    def __init__(self, cluster):
        self._cluster = cluster
        self._redis, self._kafka, self._storm = threading.Lock(), threading.Lock(), threading.Lock()
        self.findings = []

    def do(self, fault):
        """Do a fault, wait as long as it lasts, and undo it."""
        name = fault.kind.replace(" ", "_")
        verb, _, part = fault.kind.partition(" ")
        if accident := getattr(self._cluster.redis, name, None):
            with self._redis:
                accident(fault)
        elif workers := {"ingest": self._cluster.ingests, "schedule": self._cluster.schedulers}.get(part):
            act = self._kill if verb == "kill" else self._suspend
            act(workers[fault.which % len(workers)], fault)
        else:
            getattr(self, f"_{name}")(fault)

    def copy_redis(self):
        """Keep a copy of Redis's data in the middle of the faults."""
        # Not while a fault restarts Redis: a copy of half a restored folder would be no state that ever was.
        with self._redis:
            self._cluster.redis.copy()

    def _kill(self, worker, fault):
        with worker.lock:
            worker.kill()
            time.sleep(fault.seconds * 2)
            worker.start()

    def _suspend(self, worker, fault):
        # Longer than the others wait before they take over, so that the worker wakes up with a successor.
        others_wait = LEASE if worker in self._cluster.schedulers else SESSION
        with worker.lock:
            worker.check()
            worker.send(signal.SIGSTOP)
            time.sleep(others_wait * (1.1 + 0.3 * fault.seconds))
            worker.send(signal.SIGCONT)

    def _lose_replies(self, fault):
        for turn in range(1 + int(3 * fault.amount)):
            self._cluster.proxy.lose_reply(*_COMMANDS[(fault.which + turn) % len(_COMMANDS)])
        time.sleep(1 + fault.seconds)

    def _late_commit(self, fault):
        self._late(_COMMIT, self._cluster.ingests, SESSION * (1.3 + 0.5 * fault.seconds))

    def _late_version(self, fault):
        self._late(_STAGE, self._cluster.schedulers, LEASE * (1.3 + fault.seconds))

    def _late(self, command, senders, seconds):
        """Hold a command back, end its possible senders, and let it arrive when others have taken over."""
        held = self._cluster.proxy.hold(*command, seconds=seconds)
        if not held.begun.wait(_COMES_SECONDS):
            return
        with ExitStack() as locks:
            for sender in senders:
                locks.enter_context(sender.lock)
                sender.kill()
            for sender in senders:
                sender.start()
        held.over.wait(seconds + _COMES_BACK)

    def _cut_connections(self, fault):
        for _ in range(1 + int(5 * fault.amount)):
            self._cluster.proxy.sever()
            time.sleep(0.3 * fault.seconds)

    def _kill_kafka(self, fault):
        self._restart(self._cluster.kafka.kill, fault)

    def _restart_kafka(self, fault):
        self._restart(self._cluster.kafka.stop, fault)

    def _restart(self, end, fault):
        with self._kafka:
            end()
            time.sleep(fault.seconds)
            self._cluster.kafka.start()

    def _rebalance_storm(self, fault):
        """Let guests join and leave the group in quick turn, politely or not."""
        guests = self._cluster.guests
        with self._storm:
            for turn in range(_STORM):
                guests[turn % len(guests)].start()
                time.sleep(1.5 * fault.seconds)
                other = guests[(turn + fault.which) % len(guests)]
                if turn % 2:
                    self._end(other)
                else:
                    other.kill()
            for guest in guests:
                guest.kill()

    def _end(self, worker):
        """Ask a process to end. It must end in time and without an error, whatever else happens meanwhile."""
        status = worker.terminate(_END_SECONDS)
        if status == -signal.SIGKILL:
            self.findings.append(f"{worker.name} did not end within {_END_SECONDS:.0f} s of SIGTERM:\n{worker.tail()}")
        # The signal may come before the program has set its handler.
        elif status not in (None, 0, -signal.SIGTERM):
            self.findings.append(f"{worker.name} ended with status {status} after SIGTERM:\n{worker.tail()}")
