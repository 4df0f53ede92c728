"""A long ledger: writing it, its index in Redis, the start of a subscriber, and finding and proving one receipt."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopic.bench.figures import Figure, timed

if TYPE_CHECKING:
    from streamtopic.signed import KeyRing, LedgerReader, Receipt
    from streamtopic.state import Connection
    from streamtopic.streams import EventLog

__all__ = ["CASES", "OPTIONS"]

OPTIONS = {"entries": 1_000_000, "page": 500}
"""entries: receipts in the ledger; page: of them in one page."""

_MODEL = "bench"


def _case(entries: int, page: int) -> list[Figure]:
    """Receipts with a request id and a salt each, which have three names; nobody else is at work."""
    from streamtopic.local import LocalRedis
    from streamtopic.service.publish.ledger_writer import LedgerWriter
    from streamtopic.signed import Alive, KeyRing, LedgerProof, LedgerReader, SigningKey
    from streamtopic.state import Connection
    from streamtopic.streams import FileLog, TopicNames

    names = TopicNames(_MODEL)
    key = SigningKey.generate(_MODEL)

    def ring() -> KeyRing:
        return KeyRing.load(key.public, _MODEL)

    with tempfile.TemporaryDirectory() as folder, LocalRedis() as redis, Connection(redis.url) as connection:
        log = FileLog(Path(folder))
        for topic in (names.ledger, names.releases):
            log.create(topic, 1, names.settings()[topic])
        before = _used(connection)
        writer = LedgerWriter(connection, log, _MODEL, ring(), key)
        writer.catch_up()
        start = time.perf_counter()
        for first in range(0, entries, page):
            writer.append([_receipt(offset) for offset in range(first, min(first + page, entries))])
        writer.append([Alive(int(time.time() * 1000), 60_000, 0)])
        written = time.perf_counter() - start
        grown = _used(connection) - before
        started, tail = timed(lambda: _caught_up(LedgerReader(log, _MODEL, ring(), tail=True)))
        found, proof = timed(lambda: _found(connection, log, ring(), entries // 3))
        verified, _ = timed(lambda: LedgerProof.parse(proof).verify(ring()))
        read, whole = timed(lambda: _caught_up(LedgerReader(log, _MODEL, ring())))
        if not tail.ledger.size == whole.ledger.size == entries + 1:
            raise AssertionError("the readers have not read the same ledger")
    return [
        Figure("entries", entries + 1, "entries"),
        Figure("writing them, with the index", 1e6 * written / entries, "us an entry"),
        Figure("the index in Redis", grown / (1 << 20), "MB", "50"),
        Figure("a subscriber's start, at the tail", started, "s", "1"),
        Figure("a receipt found and proved by a new process", found, "s", "1"),
        Figure("its proof", len(proof), "bytes"),
        Figure("verifying the proof", 1000 * verified, "ms"),
        Figure("reading the whole ledger", 1e6 * read / entries, "us an entry"),
    ]


def _receipt(offset: int) -> Receipt:
    from streamtopic.signed import Receipt, link_digest, request_digest

    request = f"request-{offset}"
    return Receipt(
        model=_MODEL,
        partition=offset % 8,
        offset=offset,
        request=request_digest(request, "salt"),
        document=request_digest(request, "document"),
        link=link_digest(b"k" * 32, request),
        month="2026-11",
        received=1_764_000_000_000 + offset,
        applied=1_764_000_000_500 + offset,
        found=True,
        version=1 + offset // 1000,
    )


def _used(connection: Connection) -> int:
    return int(connection.information()["used_memory"])


def _caught_up(reader: LedgerReader) -> LedgerReader:
    reader.catch_up()
    return reader


def _found(connection: Connection, log: EventLog, keys: KeyRing, offset: int) -> str:
    """Return the proof of one receipt, found by its request id."""
    from streamtopic.service.publish.ledger_writer import LedgerWriter
    from streamtopic.signed import link_digest

    writer = LedgerWriter(connection, log, _MODEL, keys)
    writer.catch_up()
    name = link_digest(b"k" * 32, f"request-{offset}")
    (logged,) = writer.find([name])[name]
    return writer.proof(logged.index).text


CASES = {"one process": _case}
