"""A million short documents whose words never end, and long ones, through one process: memory and speed by step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopic.bench.figures import Figure

if TYPE_CHECKING:
    from streamtopic.bench.feed import Feed
    from streamtopic.bench.runner import Option
    from streamtopic.service.ingest.partition_ingest import Ingest
    from streamtopic.state import Connection

__all__ = ["CASES", "OPTIONS"]

DELETED = 100
"""One document of so many is deleted at the end."""
TOPICS = 50

OPTIONS: dict[str, Option] = {"largest": 1_000_000}
STEPS = 10


def million(largest: int) -> list[Figure]:
    """Documents of 21 tokens, about 20 distinct, by Heaps' law, in ten steps; then 1 % deleted; then learned."""
    return _measured(largest // STEPS, 21)


def long(largest: int) -> list[Figure]:
    """A tenth as many documents of 99 tokens, about 90 distinct."""
    return _measured(largest // 10 // STEPS, 99)


def _measured(documents: int, tokens: int) -> list[Figure]:
    from streamtopic.bench.feed import Feed, watch_calls
    from streamtopic.local import LocalRedis
    from streamtopic.state import Connection
    from streamtopic.streams import FileLog, TopicNames

    figures = []
    with tempfile.TemporaryDirectory() as folder, LocalRedis() as redis, Connection(redis.url) as connection:
        names, log = TopicNames("bench"), FileLog(Path(folder))
        log.create(names.documents, 1)
        log.create(names.rejected, 1)
        feed = Feed("", redis.url, names, 1, log, connection)
        ingest = feed.ingest()
        watch_calls(connection)
        for step in range(STEPS):
            _child("streamtopic.bench.heaps", folder, str(step), str(documents), str(tokens))
            at = f"{(step + 1) * documents:,}"
            found = _step(connection, ingest)
            figures += [Figure(f"{at}: {name}", value, unit) for name, value, unit in found]
        figures += _deleted(feed, ingest, documents)
        figures += _learned(redis.url)
    return figures


def _step(connection: Connection, ingest: Ingest) -> list[tuple[str, float, str]]:
    """Count the log; return the cost, and the state afterwards."""
    from streamtopic.bench.feed import drain, slowest_call

    start, used, before = time.perf_counter(), time.process_time(), ingest.state.meta.documents
    drain(ingest)
    seconds, used = time.perf_counter() - start, time.process_time() - used
    documents = ingest.state.meta.documents - before
    slowest = slowest_call(connection)
    kinds = _memory(connection, ingest)
    connection.call("SLOWLOG", "RESET")
    return [
        ("speed", documents / seconds, "documents/s"),
        ("processor time", used / documents * 1e6, "us a document"),
        ("resident", _resident() / 1e6, "MB"),
        *((f"Redis, {kind}", size / 1e6, "MB") for kind, size in kinds.items()),
        ("words", len(ingest.state.vocabulary), ""),
        ("longest Redis call", slowest, "ms"),
    ]


def _memory(connection: Connection, ingest: Ingest) -> dict[str, float]:
    """Return bytes of Redis in all and by kind; `other` is mostly what clients and the allocator take."""
    from streamtopic.bench.state_sizes import measure

    info, sizes = connection.information(), measure(connection, ingest.state.keys)
    known = {"documents": sizes.documents, "changes": sizes.changes, "words": sizes.words}
    total = float(info["used_memory"])
    return {"all": total, **known, "other": total - float(info["used_memory_startup"]) - sum(known.values())}


def _deleted(feed: Feed, ingest: Ingest, documents: int) -> list[Figure]:
    """Delete 1 % of the documents, of every step alike."""
    from streamtopic.bench.feed import drain
    from streamtopic.bench.heaps import deletes

    gone = [message for step in range(STEPS) for message in deletes(step, documents, DELETED)]
    feed.log.append_many(feed.names.documents, gone)
    start, used = time.perf_counter(), time.process_time()
    drain(ingest)
    seconds, used = time.perf_counter() - start, time.process_time() - used
    return [
        Figure("deleting 1 %", seconds, "s"),
        Figure("a deletion", used / len(gone) * 1e6, "us of processor time"),
        Figure("resident after deleting", _resident() / 1e6, "MB"),
    ]


def _learned(redis_url: str) -> list[Figure]:
    """Have another process read all counts and learn."""
    found = json.loads(_child("streamtopic.bench.learning_child", redis_url, str(TOPICS)))
    return [
        Figure("reading the statistics", found["read"], "s"),
        Figure("reading: peak memory", found["read_peak"] / 1e6, "MB"),
        Figure("words of one document only", found["hapaxes"] / found["words"], ""),
        Figure("words learned from", found.get("used", 0), ""),
        Figure("learning", found["learn"], "s"),
        Figure("learning: peak memory", found["peak"] / 1e6, "MB"),
    ]


def _child(module: str, *arguments: str) -> str:
    """Run a module as a process of its own, so that its memory is not counted; return what it printed."""
    program = [sys.executable, "-P", "-m", module, *arguments]
    return subprocess.run(program, stdout=subprocess.PIPE, text=True, check=True).stdout  # noqa: S603  this very program


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


CASES = {"million": million, "long": long}
