"""What another ingest process costs: one, two and four on a real Kafka and a real Redis, in processor time.

A model has four partitions; one process owns all, two own two each, four own one each, and each is kept to a core.
Processor time of ingest, Redis and Kafka is measured, not the clock alone: with fewer cores than processes, more of
them cannot be faster, but they show whether sharing the servers costs anything. The rounds of one, two and four
processes follow each other in turn, so that other work on the machine meets all of them. Medians are reported.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamtopic.bench.figures import Figure, timed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamtopic.bench.feed import Feed
    from streamtopic.bench.runner import Option
    from streamtopic.counts import DocumentBatch

__all__ = ["CASES", "OPTIONS"]

OPTIONS: dict[str, Option] = {"largest": 24_000}
NUMBERS = (1, 2, 4)
PARTITIONS = 4
ROUNDS = 3
TOKENS = 99
WARM = 1_000
"""Documents that are counted before, so that everything is loaded and compiled."""


@dataclass(frozen=True, slots=True)
class Run:
    """What the same documents cost with a number of ingest processes.

    seconds: from the first record to the last commit, on the clock.
    ingest: processor seconds of the ingest processes.
    redis, kafka: processor seconds of the servers.
    log: bytes that the documents take in Kafka.
    received, sent: bytes that Redis got and gave.
    """

    documents: int
    seconds: float
    ingest: float
    redis: float
    kafka: float
    log: int
    received: int
    sent: int

    def figures(self) -> list[Figure]:
        """Return each cost for one document."""
        each = 1e6 / self.documents
        return [
            Figure("documents", self.documents / self.seconds, "documents/s"),
            Figure("documents a processor second of ingest", self.documents / self.ingest, "documents/CPU s"),
            Figure("ingest", self.ingest * each, "us of processor time"),
            Figure("Redis", self.redis * each, "us of processor time"),
            Figure("Kafka, reading", self.kafka * each, "us of processor time"),
            Figure("Kafka, on disk", self.log / self.documents, "bytes a document"),
            Figure("Redis received", self.received / self.documents, "bytes a document"),
            Figure("Redis sent", self.sent / self.documents, "bytes a document"),
        ]


def long(largest: int) -> list[Figure]:
    """Documents of about 91 distinct words, `largest` of them for each run."""
    import numpy as np

    from streamtopic.bench.feed import corpus, feed
    from streamtopic.local import LocalKafka, LocalRedis

    batch = corpus(largest, TOKENS)
    runs: dict[int, list[Run]] = defaultdict(list)
    with LocalKafka() as kafka, LocalRedis() as redis:
        # The first run is not counted: the broker's own code is compiled in it.
        for k, number in enumerate((NUMBERS[0], *NUMBERS * ROUNDS)):
            with feed(kafka.servers, redis.url, f"scale{k}", PARTITIONS) as found:
                run = _run(found, number, batch, (redis.pid, kafka.pid))
            if k:
                runs[number].append(run)
    figures = []
    for number in NUMBERS:
        several = zip(*[run.figures() for run in runs[number]], strict=True)
        figures += [_median(_process_name(number), same) for same in several]
    for number in NUMBERS[1:]:
        pairs = zip(runs[NUMBERS[0]], runs[number], strict=True)
        efficiency = float(np.median([one.ingest / more.ingest for one, more in pairs]))
        figures.append(Figure(f"{_process_name(number)}: efficiency of each", efficiency, "x", "at least 0.9"))
    return figures


def _process_name(number: int) -> str:
    return "1 process" if number == 1 else f"{number} processes"


def _median(name: str, same: Sequence[Figure]) -> Figure:
    """Return the median of one figure over rounds."""
    import numpy as np

    value = float(np.median([figure.value for figure in same]))
    return Figure(f"{name}: {same[0].name}", value, same[0].unit)


def _run(feed: Feed, number: int, batch: DocumentBatch, servers: tuple[int | None, int | None]) -> Run:
    """Count the documents with so many processes. Raises CheckFailed if not each is counted once.

    servers: process ids of Redis and Kafka.
    """
    from streamtopic.bench.feed import corpus
    from streamtopic.bench.ingest_processes import IngestProcesses, processor_seconds
    from streamtopic.errors import CheckFailed

    redis, kafka = servers
    feed.send(corpus(WARM, TOKENS, seed=1), "warm")
    shares = [(core, range(core, PARTITIONS, number)) for core in range(number)]
    with IngestProcesses(feed, shares) as ingests:
        feed.send(batch)
        log = _log_bytes(feed)
        moved = _moved(feed)
        before = [processor_seconds(pids) for pids in (ingests.pids, [redis], [kafka])]
        seconds, counted = timed(ingests.count)
        after = [processor_seconds(pids) for pids in (ingests.pids, [redis], [kafka])]
        received, sent = (now - then for now, then in zip(_moved(feed), moved, strict=True))
    if counted != batch.documents:
        raise CheckFailed(f"{_process_name(number)} counted {counted} of {batch.documents} documents")
    return Run(
        documents=batch.documents,
        seconds=seconds,
        ingest=after[0] - before[0],
        redis=after[1] - before[1],
        kafka=after[2] - before[2],
        log=log * batch.documents // (batch.documents + WARM),
        received=received,
        sent=sent,
    )


def _log_bytes(feed: Feed) -> int:
    """Return the bytes of the documents topic on the disk of its broker."""
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=feed.servers)
    try:
        (broker,) = admin.describe_log_dirs([feed.names.documents])
    finally:
        admin.close()
    (topic,) = broker["log_dirs"][0]["topics"]
    return sum(partition["partition_size"] for partition in topic["partitions"])


def _moved(feed: Feed) -> tuple[int, int]:
    """Return how many bytes Redis has received and sent so far."""
    info = feed.connection.information()
    return int(info["total_net_input_bytes"]), int(info["total_net_output_bytes"])


CASES = {"long": long}
