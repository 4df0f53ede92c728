"""Does each class of faults alone, and asks which alerts of the service's rules fire.

A drill takes seconds, and rules wait for minutes. So what it showed is replayed slower: half a second as the quarter
of a minute between two scrapes.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from campaign.alarms import Replay
from campaign.intruder import strange
from campaign.monitor import Monitor, ask, owned, shown, total
from campaign.plan import Fault
from campaign.reading import home
from campaign.stranger import Stranger, Transaction
from streamtopic.streams import Message, open_log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from campaign.cluster import Cluster
    from campaign.inject import Injector
    from campaign.monitor import Series
    from campaign.processes import Worker

__all__ = ["EVERY_DRILL", "Drill", "Drills"]

_STEP, _PACE = 0.5, 30.0
# Half a minute of rest before, as the replay counts, and as long after.
_LEAD = 1.5
_READY_SECONDS = 120.0
_DOWN = "StreamtopicDown"
_UNOWNED = "StreamtopicUnownedPartitions"
_OUTBOX = "StreamtopicOutbox"
_TAKEN_OVER = "StreamtopicTakenOver"
# A process that Redis refuses, or does not answer, gives up its partitions or its lead, and comes back after a pause.
# On a slow machine that takes minutes, as the replay counts.
_PAUSED = (_UNOWNED, _OUTBOX, _TAKEN_OVER, "StreamtopicNoLeader", "StreamtopicOldGauges")
_INTERRUPTIONS = "streamtopic_interruptions_total"
_RECORDS = "streamtopic_records_total"
_UNREACHABLE = "StreamtopicUnreachable"
_AHEAD = 86_400.0


@dataclass(frozen=True, slots=True)
class Drill:
    """A class of faults.

    must: alerts that are its own. may: alerts about what follows from it where it takes long to recover.
    """

    must: frozenset[str]
    may: frozenset[str] = frozenset()


def _drill(*must: str, may: Sequence[str] = ()) -> Drill:
    # Documents come and go all the time in a drill, many of them for so small a model.
    return Drill(frozenset(must), frozenset(may) | {"StreamtopicErasureWave"})


EVERY_DRILL = {
    "kill a process": _drill(_DOWN, may=[_UNOWNED]),
    "stop a process": _drill(_DOWN, _TAKEN_OVER, may=[_UNOWNED]),
    "lose redis": _drill(_UNREACHABLE, may=_PAUSED),
    "fill redis": _drill("StreamtopicRefused", may=_PAUSED),
    "set redis back": _drill("StreamtopicSetBack", may=[_UNREACHABLE, *_PAUSED]),
    "hide records": _drill("StreamtopicHiddenRecords"),
    "refuse a change": _drill("StreamtopicRejectedRecords", "StreamtopicRefusedChange"),
    "misplace records": _drill("StreamtopicMisplacedRecords", "StreamtopicRejectedRecords"),
    "wrong clock": _drill("StreamtopicClocks", may=[_DOWN, _OUTBOX, "StreamtopicNoLeader"]),
}
"""Classes of faults, each with its alerts."""


class Drills:
    """Does drills on a cluster that is at rest.

    known: returns ids of documents that live.
    """

    def __init__(self, cluster: Cluster, injector: Injector, known: Callable[[], Sequence[str]], rng: Random) -> None:
        self._cluster = cluster
        self._injector = injector
        self._known = known
        self._rng = rng
        self._before: Sequence[Mapping[Series, float]] = ()

    def do(self, name: str) -> Replay:
        """Do one drill of EVERY_DRILL, undo it, and return what the processes showed meanwhile."""
        act: Callable[[], None] = getattr(self, "_" + name.replace(" ", "_"))
        drill = EVERY_DRILL[name]
        self._await_all()
        self._before = shown(self._cluster.staff)
        with Monitor(self._cluster.staff, every=_STEP / 2, scrape_every=_STEP) as monitor:
            wall = time.time() - time.monotonic()
            time.sleep(_LEAD)
            self._traffic()
            act()
            self._traffic()
            time.sleep(_LEAD)
        return Replay(name, monitor.scrapes, _STEP, wall, _PACE, drill.must, drill.may)

    def _await_all(self) -> None:
        """Wait until every process works and every ingest has its share, as before any fault."""
        # The service is at rest sooner, since one process can do the work of another.
        cluster = self._cluster
        self._await(lambda: all(map(owned, cluster.ingests)) and all(map(_is_ready, cluster.staff)))

    def _await(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition, not for ever: a drill without it shows what is missing."""
        deadline = time.monotonic() + _READY_SECONDS
        while not condition() and time.monotonic() < deadline:
            time.sleep(_STEP)

    def _await_more(self, family: str, **labels: str) -> None:
        """Wait until processes have counted more in a family than when the drill began: a busy machine takes time."""
        self._await(lambda: total(shown(self._cluster.staff), family, **labels) > total(self._before, family, **labels))

    def _kill_a_process(self) -> None:
        ingest = self._cluster.ingests[0]
        with ingest.lock:
            ingest.kill()
            time.sleep(4)
            ingest.start()

    def _stop_a_process(self) -> None:
        self._injector.do(_fault("suspend ingest"))
        # It finds out what it has missed when it looks at its group again.
        time.sleep(2)

    def _lose_redis(self) -> None:
        if self._cluster.sharded:
            self._injector.do(_fault("kill master"))
            return
        with self._injector.lost():
            self._await_more(_INTERRUPTIONS, reason="unreachable")

    def _fill_redis(self) -> None:
        with self._injector.alone():
            self._cluster.redis.limit(1)
            self._traffic()
            self._await_more(_INTERRUPTIONS, reason="refused")
            self._cluster.redis.limit(0)

    def _set_redis_back(self) -> None:
        self._cluster.forget_copies()
        self._traffic()
        time.sleep(2)
        self._injector.do(_fault("set redis back"))
        time.sleep(2)

    def _hide_records(self) -> None:
        """Leave a transaction open for longer than the alert waits, and then commit it."""
        servers, topic = self._cluster.kafka.servers, self._cluster.names.documents
        name = f"drill-{time.monotonic_ns()}"
        with Stranger(servers, topic, transaction=name, timeout_ms=60_000) as stranger:
            transaction = Transaction(stranger, strange(self._rng, self._known(), 10))
            # Five minutes as the replay counts, and the time until gauges are looked at twice.
            time.sleep(300 / _PACE + 10)
            transaction.end("commit")
            time.sleep(_LEAD)

    def _refuse_a_change(self) -> None:
        document = self._rng.choice(list(self._known())).encode()
        self._send([Message(document, b'{"op": "add", "text": "t0w1 t0w2"}'), Message(document, b'{"op": "burn"}')])
        self._await_more(_RECORDS, outcome="deleted_by_refusal")

    def _misplace_records(self) -> None:
        partitions = self._cluster.partitions
        made = strange(self._rng, self._known(), 10)
        self._send([Message(m.key, m.value, (), (home(m.key or b"", partitions) + 1) % partitions) for m in made])
        self._await_more("streamtopic_rejected_total")

    def _wrong_clock(self) -> None:
        # With the other one away it leads, and writes into the ledger with its clock.
        first, second = self._cluster.schedulers
        with first.lock, second.lock:
            first.kill()
            second.kill()
            first.start(_AHEAD)
            self._await(lambda: total(shown([first]), "streamtopic_alive_timestamp_seconds") > time.time() + 60)
            time.sleep(_LEAD)
            first.kill()
            first.start()
            second.start()

    def _traffic(self) -> None:
        """Send records that nothing is wrong with, and give them time to be counted."""
        self._send(strange(self._rng, self._known(), 10))

    def _send(self, messages: Sequence[Message]) -> None:
        with closing(open_log(self._cluster.kafka.servers)[0]) as log:
            log.append_many(self._cluster.names.documents, messages)
        time.sleep(_LEAD)


def _is_ready(worker: Worker) -> bool:
    answer = ask(worker, "/readyz")
    return answer is not None and answer[0] == HTTPStatus.OK


def _fault(kind: str) -> Fault:
    return Fault(kind, 0.0, 0, 0.5, 0.5)
