"""How each fault is done, and undone."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from streamtopic.faults.cluster import LEASE, SESSION

if TYPE_CHECKING:
    from streamtopic.faults.cluster import Cluster
    from streamtopic.faults.plan import Fault
    from streamtopic.faults.processes import Worker

__all__ = ["Injector"]

_STORM = 4
_COMES_SECONDS = 5.0
# Commands are told by the script's call and by keys that only they name.
_COMMIT = (b"EVALSHA", b":meta", b":forgets")
_STAGE = (b"EVALSHA", b":releases", b":ledger")
_COMMANDS = (_COMMIT, _COMMIT, _STAGE, (b"EVALSHA", b":outbox"), (b"EVALSHA",), ())
_END_SECONDS = 40.0


class Injector:
    """Does faults to a cluster; several at a time, but only one to each part of it.

    findings: what went wrong while a fault was done, such as a process that did not end when it was asked to.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._redis, self._kafka, self._storm = threading.Lock(), threading.Lock(), threading.Lock()
        self.findings: list[str] = []

    def do(self, fault: Fault) -> None:
        """Do a fault, wait for as long as it lasts, and undo it: what it stopped runs again afterwards."""
        act = getattr(self, "_" + fault.kind.replace(" ", "_"), None)
        if act is not None:
            act(fault)
            return
        verb, part = fault.kind.split()
        workers = {"ingest": self._cluster.ingests, "schedule": self._cluster.schedulers}
        targets = workers.get(part, self._cluster.publishers)
        worker = targets[fault.which % len(targets)]
        if verb == "kill":
            self._kill(worker, fault)
        else:
            self._suspend(worker, fault)

    def _kill(self, worker: Worker, fault: Fault) -> None:
        with worker.lock:
            worker.kill()
            time.sleep(fault.seconds * 2)
            worker.start()

    def _suspend(self, worker: Worker, fault: Fault) -> None:
        others_wait = LEASE if worker in self._cluster.schedulers else SESSION
        with worker.lock:
            worker.suspend()
            time.sleep(others_wait * (1.1 + 0.3 * fault.seconds))
            worker.resume()

    def _lose_replies(self, fault: Fault) -> None:
        for turn in range(1 + int(3 * fault.amount)):
            self._cluster.proxy.lose_reply(*_COMMANDS[(fault.which + turn) % len(_COMMANDS)])
        time.sleep(1 + fault.seconds)

    def _late_commit(self, fault: Fault) -> None:
        self._late(_COMMIT, self._cluster.ingests, SESSION * (1.3 + 0.5 * fault.seconds))

    def _late_version(self, fault: Fault) -> None:
        self._late(_STAGE, self._cluster.schedulers, LEASE * (1.3 + fault.seconds))

    def _late(self, command: tuple[bytes, ...], senders: list[Worker], seconds: float) -> None:
        """Hold a command back, end who may have sent it, and let it arrive when others have taken over."""
        if not self._cluster.proxy.hold(*command, seconds=seconds).wait(_COMES_SECONDS):
            return
        with ExitStack() as locks:
            for sender in senders:
                locks.enter_context(sender.lock)
                sender.kill()
            for sender in senders:
                sender.start()
        time.sleep(seconds)

    def _cut_connections(self, fault: Fault) -> None:
        for _ in range(1 + int(5 * fault.amount)):
            self._cluster.proxy.sever()
            time.sleep(0.3 * fault.seconds)

    def _pause_redis(self, fault: Fault) -> None:
        with self._redis:
            self._cluster.redis.pause(int(200 + 3000 * fault.seconds))
            time.sleep(0.2 + 3 * fault.seconds)

    def _fill_redis(self, fault: Fault) -> None:
        with self._redis:
            self._cluster.redis.limit(1)
            time.sleep(0.5 + 2 * fault.seconds)
            self._cluster.redis.limit(0)

    def _kill_redis(self, fault: Fault) -> None:
        with self._redis:
            self._cluster.redis.kill()
            time.sleep(fault.seconds * 2)
            self._cluster.redis.start()

    def _set_redis_back(self, fault: Fault) -> None:
        with self._redis:
            copies = self._cluster.copies
            self._cluster.redis.restore(copies[fault.which % len(copies)])

    def _redis_loses_its_end(self, fault: Fault) -> None:
        with self._redis:
            self._cluster.redis.lose(int(200_000 * fault.amount**4))

    def _kill_kafka(self, fault: Fault) -> None:
        with self._kafka:
            self._cluster.kafka.kill()
            time.sleep(fault.seconds)
            self._cluster.kafka.start()

    def _restart_kafka(self, fault: Fault) -> None:
        with self._kafka:
            self._cluster.kafka.stop()
            time.sleep(fault.seconds)
            self._cluster.kafka.start()

    def _rebalance_storm(self, fault: Fault) -> None:
        """Guests join and leave the group in quick turn, politely or not."""
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

    def copy(self) -> None:
        """Keep a copy of Redis's data in the middle of it all."""
        with self._redis:
            self._cluster.copy()

    def end(self, worker: Worker) -> None:
        """Ask a process to end; it must do so, with status 0, whatever else happens meanwhile."""
        status = worker.terminate(_END_SECONDS)
        if status is None:
            self.findings.append(f"{worker.name} did not end within {_END_SECONDS:.0f} s of SIGTERM:\n{worker.tail()}")
        elif status not in (0, -15):
            self.findings.append(f"{worker.name} ended with status {status} after SIGTERM:\n{worker.tail()}")
