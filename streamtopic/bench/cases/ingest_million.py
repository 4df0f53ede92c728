"""A million short documents whose words never end, and long ones, through one process: memory and speed by step."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from streamtopic.bench.figures import Figure, certified, cpu_timed, peak_bytes, printed_by, timed

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamtopic.bench.feed import Feed
    from streamtopic.bench.runner import Option
    from streamtopic.service.ingest.partition_ingest import Ingest
    from streamtopic.state import Connection, DocumentCounts, Reader
    from streamtopic.state.stored_counts import CountsStore
    from streamtopic.topics.fit import TopicFit
    from streamtopic.topics.learner_options import LearnerOptions

__all__ = ["CASES", "OPTIONS"]

DELETED = 100
"""One document of so many is deleted at the end."""
FORGOTTEN = 10
"""Documents of the update that is measured."""
TOPICS = 50
T = TypeVar("T")

OPTIONS: dict[str, Option] = {"largest": 1_000_000}
STEPS = 10


def million(largest: int) -> list[Figure]:
    """Documents of 21 tokens, about 20 distinct, by Heaps' law, in ten steps; then deletions and restarts."""
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
        figures += _served(folder, redis.url, documents)
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


def _served(folder: str, redis_url: str, documents: int) -> list[Figure]:
    """Have another process learn, and follow deletions as an ingest and a leader that have just started."""
    found = json.loads(printed_by(__name__, folder, redis_url, *map(str, (documents, STEPS, TOPICS))))
    return [Figure(name, value, unit) for name, (value, unit) in found.items()]


def _serve(folder: str, redis_url: str, documents: int, steps: int, topics: int) -> None:
    """Learn, forget, fold and start again, once each; print name to value and unit as JSON.

    documents: of each step.
    """
    from streamtopic.bench.feed import Feed, drain
    from streamtopic.bench.heaps import deletes
    from streamtopic.service.schedule.scheduler import fold_counts
    from streamtopic.state import Connection, Reader
    from streamtopic.state.model_state import lead
    from streamtopic.state.stored_counts import CountsStore
    from streamtopic.streams import FileLog, TopicNames
    from streamtopic.topics.learner import learn
    from streamtopic.topics.learner_options import LearnerOptions

    found: dict[str, tuple[float, str]] = {}

    def measured(name: str, work: Callable[[], T]) -> T:
        seconds, result = timed(work)
        found[name] = seconds, "s"
        return result

    names, log, options = TopicNames("bench"), FileLog(Path(folder)), LearnerOptions(n_topics=topics)
    with Connection(redis_url) as connection:
        reader, sums = Reader(connection, "bench", 1), CountsStore(connection, "bench")
        feed = Feed("", redis_url, names, 1, log, connection)
        counts = measured("reading the statistics", reader.counts)
        found["reading: peak memory"] = peak_bytes() / 1e6, "MB"
        fit = measured("learning", lambda: certified(learn(counts, options)))
        found["learning: peak memory"] = peak_bytes() / 1e6, "MB"
        found["words learned from"] = len(fit.words), ""
        lease = lead(connection, "bench", "bench", 86_400_000)
        measured("writing the counts", lambda: sums.write(fit.words, fit.q, counts, lease))
        log.append_many(names.documents, deletes(0, documents, 7)[:FORGOTTEN])
        ingest = measured("a new ingest until its first commit", lambda: _opened(feed))
        found["carried over"] = measured("an update", lambda: _carried_over(fit, counts, reader)), "by it"
        gone = [message for step in range(steps) for message in deletes(step, documents, DELETED)]
        log.append_many(names.documents, gone)
        seconds, _ = cpu_timed(lambda: drain(ingest))
        found["a deletion"] = seconds / len(gone) * 1e6, "us of processor time"
        seconds, _ = cpu_timed(lambda: fold_counts(sums, reader, lease))
        found[f"folding one of {len(gone):,} documents"] = seconds / len(gone) * 1e6, "us of processor time"
        measured("a new leader until it can update", lambda: _from_sums(reader, sums, options))
    print(json.dumps(found))


def _opened(feed: Feed) -> Ingest:
    """Become the writer of the partition, and commit what waits."""
    ingest = feed.ingest()
    ingest.step()
    return ingest


def _carried_over(fit: TopicFit, before: DocumentCounts, reader: Reader) -> bool:
    """Carry a model over to the documents of now, and certify it; return whether that was possible."""
    from streamtopic.topics.update import NeedsRetrain, update

    now = reader.counts()
    outcome = update(fit, now, now.since(before))
    return not isinstance(outcome, NeedsRetrain) and bool(certified(outcome))


def _from_sums(reader: Reader, sums: CountsStore, options: LearnerOptions) -> TopicFit:
    """Learn as a leader that has just started does. Raises StateError without sums."""
    from streamtopic.errors import StateError
    from streamtopic.state.stored_counts import SummedCounts
    from streamtopic.topics.learner import learn

    stored = sums.read()
    if stored is None:
        raise StateError("the sums are gone: run the benchmark again")
    return learn(SummedCounts.of(reader.counts(), stored), options)


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


CASES = {"million": million, "long": long}


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
