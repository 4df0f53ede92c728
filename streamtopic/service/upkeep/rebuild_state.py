"""Make Redis state again from the log, after Redis was lost, the log was restored, or a fixed setting was changed."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamtopic.errors import StateError, TakenOver, UsageError
from streamtopic.service.assembly import ingest_opener
from streamtopic.service.ingest.partition_ingest import count_to_the_end
from streamtopic.service.instance import suppression_key
from streamtopic.service.log_history import count_remedy
from streamtopic.service.opened import fixed_of
from streamtopic.service.publish.ledger_writer import RedisIndex
from streamtopic.service.schedule.scheduler import renewed
from streamtopic.signed import Envelope
from streamtopic.state import ModelState, Suppressed
from streamtopic.state.deletions import ResidueState
from streamtopic.state.meta import stored_settings
from streamtopic.state.model_state import (
    counted_documents,
    lead,
    leader,
    note_removed,
    record,
    remove_base,
    remove_partition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamtopic.service.opened import Opened
    from streamtopic.state import Connection, ModelSettings
    from streamtopic.streams import EventLog, TopicNames

__all__ = ["Rebuilt", "present", "rebuild"]

HOLDER = "streamtopic rebuild"


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The state that a rebuild made.

    partitions: number of partitions.
    documents: number of live documents.
    records: number of records that were read.
    """

    partitions: int
    documents: int
    records: int


def present(connection: Connection, model: str) -> str | None:
    """Return in words what a rebuild would remove from Redis, None if there is no state yet."""
    number, settings = stored_settings(connection, model)
    if number is None:
        return None
    partitions = settings.partitions if settings else 0
    counted = sum(counted_documents(connection, model, partition) for partition in range(partitions))
    holder = leader(connection, model)
    leads = f"; a scheduler leads ({holder})" if holder else ""
    return f"Redis holds counts of {counted} documents in {partitions} partition(s){leads}"


def rebuild(service: Opened, update: Callable[[int, int | None], None]) -> Rebuilt:
    """Count the whole log again, under the present settings, and begin a new base model.

    No other process may work on the model meanwhile: a scheduler is kept from staging, and an ingest process that takes
    ownership of a partition makes this fail. Versions and the ledger stay, and so do deletions that wait for their
    receipt. If it is killed anywhere, run it again from the start.

    update: told how many records are counted, of how many.

    Raises UsageError if topic, settings and state name different numbers of partitions, or the key of suppressions
    is missing; StateError if an ingest process runs; ComponentUnreachable.
    """
    settings, connection, log = service.settings, service.connection, service.log
    model, fixed = settings.model, fixed_of(settings)
    before = stored_settings(connection, model)[1]
    partitions = _agreed(log, service.names, fixed.partitions, before)
    suppression = suppression_key(settings)
    suppressed = Suppressed(connection, model)
    wanted = suppressed.fingerprint()
    if wanted and suppression is None:
        raise UsageError(
            f"the state of {model} keeps suppressions, and suppression.key is not here: put it into the "
            "folder of keys; if it is lost, make another one, which ends all that was suppressed with it"
        )
    if suppression is not None and wanted != suppression.fingerprint:
        suppressed.clear()
    with _leading(service):
        # Its index may have lost a part, like all else in Redis.
        RedisIndex(connection, model).clear()
        _refuse_moved(service, partitions)
        for partition in range(before.partitions if before else partitions):
            remove_partition(connection, model, partition)
        remove_base(connection, model)
        ResidueState(connection, model).reset()
        record(connection, model, fixed)
        try:
            open_ingest = ingest_opener(service)
            ingests = [open_ingest(partition) for partition in range(partitions)]
            records = sum(progress.records for progress in count_to_the_end(ingests, update, patient=True))
            for partition in range(partitions):
                note_removed(connection, model, partition)
        except TakenOver:
            raise StateError(
                "an ingest process has taken a partition over: stop `ingest` and `run` everywhere, then run this again"
            ) from None
    return Rebuilt(partitions, sum(ingest.state.meta.documents for ingest in ingests), records)


def _agreed(log: EventLog, names: TopicNames, wanted: int, before: ModelSettings | None) -> int:
    """Return the number of partitions. Raises UsageError if topic, settings and state do not agree on it."""
    topic = names.documents
    have = log.partitions(topic)
    if have != wanted:
        remedy = count_remedy(names, topic, have)
        raise UsageError(f"topic {topic} has {have} partitions, not {wanted}: {remedy}")
    if before is not None and before.partitions != have:
        raise _moved(f"the state was made for {before.partitions} partitions", topic, have)
    return have


def _refuse_moved(service: Opened, partitions: int) -> None:
    """Raise UsageError if the newest version was made of another number of partitions, also after Redis was lost."""
    writer = service.ledger
    writer.catch_up()
    index = writer.ledger.index_of(writer.ledger.newest)
    # There is no entry if a revoked key signed it.
    for logged in writer.entries([] if index is None else [index]).values():
        entry = logged.entry
        if isinstance(entry, Envelope) and len(entry.cut) != partitions:
            made = f"version {entry.version} was made of {len(entry.cut)} partitions"
            raise _moved(made, service.names.documents, partitions)


def _moved(made: str, topic: str, have: int) -> UsageError:
    """Return the error of a model whose documents lie in other partitions. made: what says so."""
    return UsageError(
        f"{made}, {topic} has {have}: is it the right topic? Ids belong to other partitions now, and records are not "
        "moved: make a model of another name with this number of partitions, and add the documents to it "
        "(docs/operations.md)"
    )


@contextmanager
def _leading(service: Opened) -> Iterator[None]:
    """Keep every scheduler from staging as long as the block runs."""
    settings = service.settings
    # Over a connection of its own, for the thread that renews the lease.
    state = ModelState(service.connect(), settings.model, fixed_of(settings))
    ttl_ms = int(settings.lease * 1000)
    lease = lead(service.connection, settings.model, HOLDER, ttl_ms)
    try:
        with renewed(state, lease, ttl_ms):
            yield
    finally:
        state.release(lease)
