"""Redis state from the log: after Redis was lost, the log was restored, or the number of partitions was changed."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamtopic.errors import StateError, TakenOver, UsageError
from streamtopic.receipts import ReceiptReader
from streamtopic.service.lease import LeaseKeeper
from streamtopic.service.published import Published
from streamtopic.state import ModelSettings, ModelState
from streamtopic.state.removal import (
    counted_documents,
    kept_forgets,
    lead,
    leader,
    put_forgets,
    record,
    recorded,
    remove_base,
    remove_partition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamtopic.receipts import Chain
    from streamtopic.service.ingest import Ingest
    from streamtopic.service.runner import Service
    from streamtopic.state import Forget
    from streamtopic.state.removal import Recorded

__all__ = ["Present", "Rebuilt", "present", "rebuild"]

HOLDER = "streamtopic rebuild"


@dataclass(frozen=True, slots=True)
class Present:
    """What a rebuild would take away: partitions and documents counted now, and the scheduler that leads, if any."""

    partitions: int
    documents: int
    leader: str | None


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was made: partitions, live documents, records read, deletions that wait for their receipts."""

    partitions: int
    documents: int
    records: int
    waiting: int


def present(service: Service) -> Present | None:
    """Return what is in Redis now, None for nothing."""
    model = service.settings.model
    found = recorded(service.connection, model)
    if found is None:
        return None
    counted = sum(counted_documents(service.connection, model, partition) for partition in range(found.partitions))
    return Present(found.partitions, counted, leader(service.connection, model))


def rebuild(service: Service, update: Callable[[int, int | None], None]) -> Rebuilt:
    """Count the whole log anew, under the present settings, and begin a new base model.

    Nothing else may work on the model meanwhile: a scheduler is kept from staging, and an ingest process that takes a
    partition over makes this fail. Versions, ledger, receipts and their chain stay, and so do deletions that wait for
    their receipt: a compacted log tells of a deletion, but no longer whether there was such a document. Killed
    anywhere, it is repeated from the start. Raises UsageError, StateError, ComponentUnreachable.
    """
    settings, connection = service.settings, service.connection
    before = recorded(connection, settings.model)
    partitions = _agreed(service, before)
    fixed = ModelSettings(partitions, settings.cap)
    with _leading(service):
        newest = _newest(service)
        for partition in range(before.partitions if before else partitions):
            remove_partition(connection, settings.model, partition)
        remove_base(connection, settings.model)
        # Where documents lay when the older versions were made is known only if nothing has changed since.
        same = before is not None and before.partitions == partitions
        record(connection, settings.model, fixed, before.moved if before and same else newest)
        try:
            ingests = [service.open_ingest(partition) for partition in range(partitions)]
            records = _count(ingests, update)
            moved = any(ingest.state.meta.totals.get("moved") for ingest in ingests)
            if moved:
                record(connection, settings.model, fixed, newest)
            waiting = _mend(service, ingests, moved=moved)
        except TakenOver:
            raise StateError(
                "an ingest process has taken a partition over: stop `ingest` and `run` everywhere, then run this again"
            ) from None
    return Rebuilt(partitions, sum(ingest.state.meta.documents for ingest in ingests), records, waiting)


def _agreed(service: Service, before: Recorded | None) -> int:
    """Return the number of partitions that topic and settings agree on."""
    topic, wanted = service.names.documents, service.settings.partitions
    have = service.log.partitions(topic)
    if have != wanted:
        raise UsageError(f"topic {topic} has {have} partitions: set partitions = {have}")
    if before is not None and before.partitions > have:
        raise UsageError(
            f"the state was made for {before.partitions} partitions, {topic} has {have}: is it the right one?"
        )
    return have


@contextmanager
def _leading(service: Service) -> Iterator[None]:
    """Keep every scheduler from staging; over a connection of its own, since the lease is renewed in the background."""
    settings, ttl_ms = service.settings, int(service.settings.lease * 1000)
    connection = service.connect()
    lease = lead(connection, settings.model, HOLDER, ttl_ms)
    state = ModelState(connection, settings.model, ModelSettings(settings.partitions, settings.cap))
    keeper = LeaseKeeper(state, HOLDER, ttl_ms)
    try:
        with keeper.kept(lease):
            yield
    finally:
        keeper.release()


def _newest(service: Service) -> int:
    """Return the newest version that Redis or the log know of."""
    state = ModelState(service.connection, service.settings.model, ModelSettings(service.settings.partitions, 0))
    releases = state.releases(1)
    published = Published(service.log, service.settings.model, service.public_key)
    published.refresh()
    return max(published.newest, *(version for version, _ in releases), 0)


def _count(ingests: list[Ingest], update: Callable[[int, int | None], None]) -> int:
    """Count until no partition has records left: one may send records to another."""
    records = 0
    while lag := sum(ingest.lag for ingest in ingests):
        total = records + lag
        for ingest in ingests:
            for progress in ingest.drain():
                records += progress.records
                update(records, max(total, records))
    return records


def _mend(service: Service, ingests: list[Ingest], *, moved: bool) -> int:
    """Restore what was known of deletions that wait for their receipt; how many wait."""
    model, waiting = service.settings.model, 0
    kept = {ingest.partition: kept_forgets(service.connection, model, ingest.partition) for ingest in ingests}
    places = {(partition, forget.offset) for partition, forgets in kept.items() for forget in forgets}
    chain = _chain(service)
    for ingest in ingests:
        again = [
            forget
            for forget in _all(ingest)
            if not _known((ingest.partition, forget.offset), places, chain)
            and not (moved and _known(_origin(service, ingest.partition, forget), places, chain))
        ]
        merged = sorted([*kept[ingest.partition], *again], key=lambda forget: (forget.offset, forget.part))
        put_forgets(service.connection, model, ingest.partition, merged)
        waiting += sum(forget.wants_receipt for forget in merged)
    return waiting


def _chain(service: Service) -> Chain:
    reader = ReceiptReader(service.log, service.settings.model, service.public_key, refuse=lambda _: None)
    for _ in reader.read():
        pass
    return reader.chain


def _all(ingest: Ingest) -> list[Forget]:
    found: list[Forget] = []
    while page := ingest.state.forgets.read(found[-1].offset + 1 if found else 0):
        found += page
    return found


def _known(place: tuple[int, int] | None, places: set[tuple[int, int]], chain: Chain) -> bool:
    """Whether the deletion at this (partition, offset) has its receipt or waits for it."""
    return place is not None and (place in places or place in chain)


def _origin(service: Service, partition: int, forget: Forget) -> tuple[int, int] | None:
    """Return where a record was before it was sent to the partition of its key."""
    record = service.log.read(service.names.documents, partition, forget.offset, 1)[0]
    source, _, offset = (record.header("st-origin") or b"").partition(b"/")
    return (int(source), int(offset)) if source.isdigit() and offset.isdigit() else None
