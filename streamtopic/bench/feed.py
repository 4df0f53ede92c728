"""A log full of documents, and servers for it, for the benchmarks of ingest."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamtopic.bench.synthetic import planted
from streamtopic.documents.events import encode_add
from streamtopic.local import LocalKafka, LocalRedis
from streamtopic.service.ingest.partition_ingest import Ingest
from streamtopic.state import Connection, ModelSettings
from streamtopic.streams import TopicNames, open_log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamtopic.counts import DocumentBatch
    from streamtopic.streams import EventLog, Message

__all__ = ["WORDS", "Feed", "corpus", "drain", "feed", "local_feed", "slowest_call", "watch_calls"]

WORDS = 20_000
TOPICS = 50
_BATCH = 2_000


@dataclass(frozen=True, slots=True)
class Feed:
    """A broker and a Redis, with a model's topics."""

    servers: str
    redis_url: str
    names: TopicNames
    partitions: int
    log: EventLog
    connection: Connection

    def ingest(self, partition: int = 0) -> Ingest:
        """Become the writer of a partition."""
        settings = ModelSettings(self.partitions, 256)
        return Ingest(self.connection, self.log, self.names, partition, settings=settings, clock=time.time)

    def send(self, batch: DocumentBatch, prefix: str = "d") -> None:
        """Produce the documents as texts of words of four letters."""
        for found in _messages(batch, prefix):
            self.log.append_many(self.names.documents, found)


@contextmanager
def feed(servers: str, redis_url: str, model: str, partitions: int = 1) -> Iterator[Feed]:
    """Connect to servers and make the topics."""
    with ExitStack() as stack:
        connection = stack.enter_context(Connection(redis_url))
        names, (log, _) = TopicNames(model), open_log(servers)
        stack.callback(log.close)
        for topic, settings in names.settings().items():
            log.create(topic, partitions if topic == names.documents else 1, settings)
        yield Feed(servers, redis_url, names, partitions, log, connection)


@contextmanager
def local_feed() -> Iterator[Feed]:
    """Start a broker and a Redis on this machine for one model with one partition."""
    with LocalKafka() as kafka, LocalRedis() as redis, feed(kafka.servers, redis.url, "bench") as found:
        yield found


def corpus(documents: int, tokens: int, seed: int = 0) -> DocumentBatch:
    """Draw documents among 20,000 words; 99 tokens have about 91 distinct words, 21 tokens about 20."""
    return planted(documents, WORDS, TOPICS, tokens, seed)


def _messages(batch: DocumentBatch, prefix: str) -> Iterator[list[Message]]:
    names = ["".join(chr(97 + (k // 26**place + 7 * place) % 26) for place in range(4)) for k in range(WORDS)]
    for first in range(0, batch.documents, _BATCH):
        found = []
        for k in range(first, min(first + _BATCH, batch.documents)):
            here = slice(int(batch.indptr[k]), int(batch.indptr[k + 1]))
            pairs = zip(batch.words[here].tolist(), batch.counts[here].tolist(), strict=True)
            text = " ".join(" ".join([names[word]] * count) for word, count in pairs)
            found.append(encode_add(f"{prefix}-{k:08d}", text=text))
        yield found


def drain(ingest: Ingest) -> int:
    """Count the records of the log as the service does, changes summed up in between; return their number."""
    records = 0
    while found := ingest.step().records:
        records += found
        ingest.sum_if_due()
    return records


def watch_calls(connection: Connection) -> None:
    """Make Redis note commands that take longer than a millisecond."""
    connection.call("CONFIG", "SET", "slowlog-log-slower-than", 1000)
    connection.call("CONFIG", "SET", "slowlog-max-len", 10_000)


def slowest_call(connection: Connection) -> float:
    """Return the milliseconds of the longest command since `watch_calls`."""
    entries = connection.call("SLOWLOG", "GET", 10_000)
    return (
        max((float(entry["duration"] if isinstance(entry, dict) else entry[2]) for entry in entries), default=0) / 1e3
    )
