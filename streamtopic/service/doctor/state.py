"""The state in Redis against settings and log, and whether the service's parts keep up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtopic.errors import StateMissing
from streamtopic.receipts import ReceiptReader
from streamtopic.service.doctor.finding import Finding, fail, ok, warn
from streamtopic.state import ModelState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamtopic.service.parts import Parts
    from streamtopic.state import Meta

__all__ = ["examine_state"]

BUSY_OUTBOX = 1_000
# More than can be read in half a minute or so.
MANY_RECEIPTS = 100_000


def examine_state(parts: Parts) -> Iterator[Finding]:
    """Look at what was counted, and at what waits."""
    found = ModelState.find(parts.connection, parts.settings.model)
    if found is None:
        yield warn(
            "state", "there is none yet", "run `streamtopic init`, then `run`, or `ingest`, `schedule` and `publish`"
        )
        return
    fixed, settings = found.settings, parts.settings
    if (fixed.partitions, fixed.cap) != (settings.partitions, settings.cap):
        detail = (
            f"made for {fixed.partitions} partitions and cap {fixed.cap}, not {settings.partitions} and {settings.cap}"
        )
        yield fail("state", detail, "go back to these settings, or `streamtopic rebuild` under the new ones")
        return
    yield ok("state", f"made for {fixed.partitions} partitions, cap {fixed.cap}")
    try:
        positions = parts.reader.positions()
    except StateMissing as error:
        yield warn("counts", str(error), "start `streamtopic ingest`, or `run`")
        return
    for partition, meta in positions.items():
        yield _position(parts, partition, meta)
    yield from _waiting(parts, found, positions)
    yield from _receipts(parts)


def _position(parts: Parts, partition: int, meta: Meta) -> Finding:
    name, topic = f"partition {partition}", parts.names.documents
    begin, end = parts.log.begin(topic, partition), parts.log.end(topic, partition)
    if not begin <= meta.next_offset <= end:
        detail = f"counted up to offset {meta.next_offset}, but the log holds {begin} to {end}"
        return fail(name, detail, "point to the right log, or run `streamtopic rebuild`")
    lag, age_ms = end - meta.next_offset, parts.clock() * 1000 - meta.time_ms
    if lag and meta.time_ms and age_ms > parts.settings.delete_retention * 500:
        days = age_ms / 86_400_000
        detail = f"the newest record counted is {days:.0f} days old, {lag} wait: deletes may have left the log"
        return warn(name, detail, "start ingest: it compares all documents with the log before it goes on")
    return ok(name, f"{meta.documents} documents, {lag} records to count")


def _waiting(parts: Parts, state: ModelState, positions: Mapping[int, Meta]) -> Iterator[Finding]:
    waiting = len(state.outbox(BUSY_OUTBOX))
    if waiting >= BUSY_OUTBOX:
        yield warn("outbox", f"{waiting} records or more wait to be published", "is `streamtopic publish` running?")
    else:
        yield ok("outbox", f"{waiting} records wait to be published")
    deletions = sum(len(parts.reader.forgets(partition)) for partition in positions)
    yield ok("deletions", f"{deletions} wait for their receipt")
    if state.base_head() is None:
        yield warn("model", "there is no base model yet", "`streamtopic status` says what is missing")


def _receipts(parts: Parts) -> Iterator[Finding]:
    topic = parts.names.receipts
    if parts.log.end(topic, 0) - parts.log.begin(topic, 0) > MANY_RECEIPTS:
        yield ok("receipts", "too many to read here: `streamtopic receipts export`, then `verify`, checks them")
        return
    reader = ReceiptReader(parts.log, parts.settings.model, parts.public_key, refuse=lambda _: None)
    count = sum(1 for _ in reader.read())
    gaps = ", ".join(f"{gap.start} to {gap.stop - 1}" for gap in reader.chain.lost)
    if gaps:
        yield fail(
            "receipts", f"{count}, but {gaps} are missing from the log", "restore the receipts topic from a backup"
        )
    else:
        yield ok("receipts", f"{count}, their chain is whole, {reader.chain.strays} strays")
