"""A million short documents through one process: memory and speed by step, merging included."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from streamtopic.bench.figures import Figure

__all__ = ["CASES"]

STEPS = 10
DOCUMENTS = 100_000
TOKENS = 21


def million() -> list[Figure]:
    """Ten times 100,000 documents of about 20 words, each under a new id; the log is in files."""
    from streamtopic.bench.feed import Feed, corpus, drain, watch_calls
    from streamtopic.bench.feed import slowest_call as slowest
    from streamtopic.local import LocalRedis
    from streamtopic.state import Connection
    from streamtopic.streams import FileLog, TopicNames

    figures = []
    with tempfile.TemporaryDirectory() as folder, LocalRedis() as redis, Connection(redis.url) as connection:
        names, log = TopicNames("bench"), FileLog(Path(folder))
        log.create(names.documents, 1)
        log.create(names.rejected, 1)
        feed = Feed("", redis.url, names, 1, log, connection)
        batch = corpus(DOCUMENTS, TOKENS)
        ingest = feed.ingest()
        watch_calls(connection)
        for step in range(STEPS):
            feed.send(batch, f"{step}")
            start = time.perf_counter()
            drain(ingest, merging=True)
            speed = DOCUMENTS / (time.perf_counter() - start)
            figures.append(Figure(f"{step + 1}00,000: speed", speed, "documents/s"))
            figures.append(Figure(f"{step + 1}00,000: resident", _resident() / 1e6, "MB"))
        memory = int(connection.information()["used_memory"])
        figures.append(Figure("longest Redis call", slowest(connection), "ms", "at most 15"))
        figures.append(Figure("Redis memory", memory / (STEPS * DOCUMENTS), "bytes a document"))
        figures.append(Figure("segments", len(ingest.state.manifest), ""))
    return figures


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


CASES = {"million": million}
