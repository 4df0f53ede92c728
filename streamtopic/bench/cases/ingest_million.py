"""A million short documents whose words never end, and long ones, through one process: memory and speed by step."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopic.bench.figures import Figure, peak_bytes, printed_by

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
            printed_by("streamtopic.bench.heaps", folder, str(step), str(documents), str(tokens))
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
    found = json.loads(printed_by(__name__, redis_url))
    return [
        Figure("reading the statistics", found["read"], "s"),
        Figure("reading: peak memory", found["read_peak"] / 1e6, "MB"),
        Figure("words of one document only", found["hapaxes"] / found["words"], ""),
        Figure("words learned from", found["used"], ""),
        Figure("learning", found["learn"], "s"),
        Figure("learning: peak memory", found["peak"] / 1e6, "MB"),
    ]


def _read_and_learn(redis_url: str) -> None:
    """Read the statistics of words and learn, once each, as the other process; print seconds and memory as JSON."""
    import numpy as np

    from streamtopic.errors import CannotLearn
    from streamtopic.state import Connection, Reader
    from streamtopic.topics.learner import learn
    from streamtopic.topics.learner_options import LearnerOptions

    with Connection(redis_url) as connection:
        start = time.perf_counter()
        counts = Reader(connection, "bench", 1).counts()
        read, held = time.perf_counter() - start, peak_bytes()
        once = int(np.count_nonzero(counts.frequency == 1))
        start = time.perf_counter()
        try:
            used = len(learn(counts, LearnerOptions(n_topics=TOPICS)).words)
        except CannotLearn as error:
            used = 0
            sys.stderr.write(f"{error}\n")
        learned = time.perf_counter() - start
    found = {"read": read, "read_peak": held, "learn": learned, "peak": peak_bytes(), "used": used}
    print(json.dumps(found | {"words": len(counts.words), "hapaxes": once}))


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


CASES = {"million": million, "long": long}


if __name__ == "__main__":
    _read_and_learn(sys.argv[1])
