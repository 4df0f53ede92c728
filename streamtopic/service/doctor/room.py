"""Room: words of each partition against their limits, and how many documents Redis will hold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from streamtopic.errors import StateMissing
from streamtopic.service.doctor.finding import Finding, fail, ok, warn
from streamtopic.service.room import NEARLY, NO_ROOM
from streamtopic.state import MAX_WORD_IDS, ModelSettings, ModelState
from streamtopic.state.keys import ModelKeys
from streamtopic.state.measure import growth, measure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamtopic.service.parts import Parts
    from streamtopic.state import Meta
    from streamtopic.state.measure import Growth

__all__ = ["examine_room"]

LEAST_DOCUMENTS = 1_000
"""With fewer, what a document takes says little about those to come."""

COPIES = 3
"""Times the segments that Redis holds at most: those that count, those that they replaced, and those being merged."""

REPLACED = 256 << 20
"""Bytes of replaced segments that stay in any case, a partition."""


def examine_room(parts: Parts) -> Iterator[Finding]:
    """Look at what was counted, if anything was, and under these settings."""
    found, settings = ModelState.find(parts.connection, parts.settings.model), parts.settings
    if found is None or found.settings != ModelSettings(settings.partitions, settings.cap):
        return
    try:
        positions = parts.reader.positions()
    except StateMissing:
        return
    for partition, meta in positions.items():
        grown = growth(parts.connection, ModelKeys(parts.settings.model).partition(partition))
        yield _words(f"words of partition {partition}", grown, meta, parts.settings.max_partition_words)
    documents = sum(meta.documents for meta in positions.values())
    if documents >= LEAST_DOCUMENTS:
        yield _redis(parts, documents, len(positions))


def _words(name: str, grown: Growth, meta: Meta, limit: int) -> Finding:
    shown = f"{grown.words:,} of at most {limit:,}"
    if meta.next_word > NEARLY * MAX_WORD_IDS:
        detail = f"{shown}; {meta.next_word:,} of {MAX_WORD_IDS:,} ids were given, most to words that are gone"
        return warn(name, detail, "run `streamtopic rebuild`, which gives ids anew; deletions go on meanwhile")
    refused = meta.totals.get("rejected_words", 0)
    if refused and grown.words > NEARLY * limit:
        detail = f"{shown}: documents with new words are refused ({NO_ROOM}), {refused} so far"
        return fail(name, detail, "raise max_partition_words, or keep ids and hashes out of the texts")
    if grown.words > NEARLY * limit:
        remedy = f"raise max_partition_words: past it, documents with new words are refused ({NO_ROOM})"
        return warn(name, shown, remedy)
    times = grown.times_until(limit)
    if meta.documents < LEAST_DOCUMENTS or not math.isfinite(times * meta.documents) or times > LEAST_DOCUMENTS:
        return ok(name, shown)
    until = f"full at about {_round(times * meta.documents):,} documents"
    return ok(name, f"{shown}; they grow like documents^{grown.exponent:.2f}: {until}")


def _redis(parts: Parts, documents: int, partitions: int) -> Finding:
    keys = ModelKeys(parts.settings.model)
    sizes = [measure(parts.connection, keys.partition(partition)) for partition in range(partitions)]
    pairs, held = sum(size.pairs for size in sizes), sum(size.held for size in sizes)
    records, segments = sum(size.documents for size in sizes), sum(size.segments for size in sizes)
    words = sum(size.words for size in sizes)
    detail = (
        f"{(records + segments + words) / documents:,.0f} bytes a document so far: "
        f"{records / documents:,.0f} its record, "
        f"{segments / documents:,.0f} pairs ({segments / max(pairs, 1):.1f} each), "
        f"{words / documents:,.0f} words ({words / max(held, 1):.0f} each)"
    )
    limit = int(parts.connection.information().get("maxmemory", 0))
    least = (records + words + COPIES * segments) / documents
    if not limit:
        return ok("room", f"{detail}; with what merging needs, a GiB more is for about {_round((1 << 30) / least):,}")
    most = _round(max(limit - partitions * REPLACED, 0) / least)
    detail = f"{detail}; with what merging needs, maxmemory {limit / 2**20:,.0f} MiB is for about {most:,}"
    return (
        warn("room", detail, "raise maxmemory: merging writes before it frees")
        if documents > most
        else ok("room", detail)
    )


def _round(number: float) -> int:
    """Return two digits of a number: no more is known."""
    return int(round(number, 1 - max(1, math.floor(math.log10(max(number, 1))))))
