"""Looks at where a service stands, for its gauges: every few seconds, in a thread of its own.

A thread of its own, with a connection of its own, since a gauge must move while the work does not: while a model is
made, or while a partition stands still. A look writes nothing.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamtopic import metrics as catalogue
from streamtopic.errors import SettingsError, StateError, StateMissing, StreamtopicError
from streamtopic.service.publish.erasure import waiting_by_stage
from streamtopic.service.schedule.situation import Base, base_forget_set
from streamtopic.service.watching import Watching
from streamtopic.state import MAX_WORD_IDS, ModelState, Reader
from streamtopic.state.measure import measure
from streamtopic.state.redis_keys import ModelKeys
from streamtopic.state.residue_ledger import ResidueState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamtopic.service.app import Service
    from streamtopic.state import Meta

__all__ = ["EVERY", "Looks", "looked_at"]

EVERY = 5.0
"""Seconds between two looks."""
_MEASURE_EVERY = 300.0
_LEAVE = 2.0


class Looks:
    """Sets the gauges of a process.

    service: whose log, settings and clock are used; Redis is reached over a connection of its own.
    """

    def __init__(self, service: Service, watching: Watching) -> None:
        self._service = service
        self._watching = watching
        self._metrics = watching.metrics
        self._measured = -_MEASURE_EVERY
        # Opened here and not in the thread that looks: the service's parts are made by the thread that works.
        self._log = service.log
        self._state: ModelState | None = None
        # An ingest process may not read the model, and a publisher not even the counts.
        if watching.role in {"run", "schedule"}:
            self._state = ModelState(service.connect(), service.settings.model, service.fixed)

    def look(self) -> None:
        """Look once. Raises StreamtopicError where a server does not answer, or refuses."""
        self._partitions()
        if self._state is not None:
            self._model(self._state)

    def _partitions(self) -> None:
        log, topic, now = self._log, self._service.names.documents, self._service.clock()
        for partition, ingest in self._watching.owned.items():
            meta = ingest.state.meta
            readable = log.end(topic, partition)
            lag = max(readable - meta.next_offset, 0)
            oldest = log.appended_ms(topic, partition, meta.next_offset) if lag else None
            values = {
                catalogue.LAG_RECORDS: lag,
                catalogue.LAG_SECONDS: 0.0 if oldest is None else max(now - oldest / 1000, 0.0),
                catalogue.HIDDEN: max(log.written_end(topic, partition) - readable, 0),
                catalogue.LAST_COMMIT: meta.moved_ms / 1000 or None,
                catalogue.WORDS: meta.next_word / MAX_WORD_IDS,
            }
            self._watching.show_partition(partition, values)

    def _model(self, state: ModelState) -> None:
        reader = Reader(state.connection, state.model, state.settings.partitions)
        self._metrics.set(catalogue.PARTITIONS, state.settings.partitions)
        self._metrics.set(catalogue.FORGET_LIMIT, self._service.settings.max_forget_lag)
        self._metrics.set(catalogue.OUTBOX, state.waiting())
        try:
            positions = reader.positions()
        except StateMissing:
            # Before every partition was counted for the first time there is nothing to show.
            return
        self._metrics.set(catalogue.DOCUMENTS, sum(meta.documents for meta in positions.values()))
        streams = [reader.forgets(partition) for partition in positions]
        first = [page[0].received_ms for stream in streams if (page := stream.read(0, 1))]
        self._metrics.set(catalogue.FORGET_PENDING, sum(map(len, streams)))
        self._metrics.set(catalogue.FORGET_OLDEST, min(first) / 1000 if first else None)
        self._residue(state)
        self._versions(state, positions)
        self._sizes(state)

    def _residue(self, state: ModelState) -> None:
        waiting = waiting_by_stage(ResidueState(state.connection, state.model).read())
        for stage, one in waiting.items():
            self._metrics.set(catalogue.RESIDUE_PENDING, one.documents, stage=stage)
            since = None if one.since_ms is None else one.since_ms / 1000
            self._metrics.set(catalogue.RESIDUE_OLDEST, since, stage=stage)

    def _versions(self, state: ModelState, positions: Mapping[int, Meta]) -> None:
        newest, head = state.releases(1), state.base_head()
        if newest:
            record, budget = newest[0][1], self._service.settings.epsilon_budget
            self._metrics.set(catalogue.RELEASE, record["created"] / 1000)
            self._metrics.set(catalogue.EPSILON, record["cumulative_epsilon"] / budget)
        base = None if head is None else Base.parse(head)
        used = None
        if base is not None and base.capacity:
            used = max(base_forget_set(positions, base.documents, base.epoch), 0) / base.capacity
        self._metrics.set(catalogue.CAPACITY, used)

    def _sizes(self, state: ModelState) -> None:
        now = self._service.clock()
        if now - self._measured < _MEASURE_EVERY:
            return
        self._measured = now
        used = state.connection.information().get("used_memory")
        self._metrics.set(catalogue.STATE_BYTES, used, kind="redis")
        partitions = map(ModelKeys(state.model).partition, range(state.settings.partitions))
        try:
            sizes = [measure(state.connection, keys) for keys in partitions]
        except (SettingsError, StateError):
            # A user of Redis that may not ask for the size of a key: the server's own figure has to do.
            return
        for kind in ("documents", "segments", "words"):
            self._metrics.set(catalogue.STATE_BYTES, sum(getattr(size, kind) for size in sizes), kind=kind)


@contextmanager
def looked_at(service: Service, every: float = EVERY) -> Iterator[None]:
    """Look now and then as long as the block runs, where a service is watched. every: seconds between looks."""
    watching = service.watch
    if not isinstance(watching, Watching):
        yield
        return
    looks, done = Looks(service, watching), threading.Event()

    def look() -> None:
        while not done.is_set():
            try:
                looks.look()
            except StreamtopicError:
                # The work meets the same error and says so; here it means only that gauges are old.
                if not done.is_set():
                    watching.metrics.add(catalogue.LOOKS_FAILED)
            done.wait(every)

    thread = threading.Thread(target=look, name="looks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        # A server that does not answer must not hold the process up: the thread ends with it.
        thread.join(_LEAVE)
