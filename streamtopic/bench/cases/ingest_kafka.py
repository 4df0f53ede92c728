"""From Kafka to durable counts in Redis: long and short documents, one process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from streamtopic.bench.figures import Figure, timed

if TYPE_CHECKING:
    from streamtopic.bench.feed import Feed
    from streamtopic.counts import DocumentBatch

__all__ = ["CASES"]

LONG, SHORT = 99, 21
LONG_DOCUMENTS, SHORT_DOCUMENTS = 42_000, 60_000


def long() -> list[Figure]:
    """Texts of about 91 distinct words, compared with the counting kernel alone on the same documents."""
    from streamtopic.bench.feed import corpus, drain, local_feed, slowest_call, watch_calls
    from streamtopic.bench.state_sizes import measure

    batch = corpus(LONG_DOCUMENTS, LONG)
    with local_feed() as feed:
        feed.send(corpus(500, LONG, seed=1), "warm")
        ingest = feed.ingest()
        drain(ingest)
        before = _kernel(batch)
        feed.send(batch)
        watch_calls(feed.connection)
        used = time.process_time()
        seconds, documents = timed(lambda: drain(ingest))
        used = time.process_time() - used
        call = slowest_call(feed.connection)
        kernel = (before + _kernel(batch)) / 2
        record = _record_bytes(feed)
        sizes = measure(feed.connection, ingest.state.keys)
        summing, _ = timed(ingest.state.sum_changes)
    return [
        Figure("distinct words", len(batch.words) / batch.documents, "a document"),
        Figure("ingest", documents / seconds, "documents/s", "at least 6,000"),
        Figure("kernel alone", kernel, "documents/s"),
        Figure("ingest over kernel", documents / seconds / kernel, "x", "at least 0.6"),
        Figure("processor time", used / documents * 1e6, "us a document"),
        Figure("longest Redis call", call, "ms", "at most 15"),
        Figure("document record", record, "bytes a document", "at most 250"),
        Figure("changes and statistics", sizes.changes / 1e6, "MB"),
        Figure("writing the statistics of all words", summing * 1e3, "ms"),
    ]


def short() -> list[Figure]:
    """Texts of about 20 words, compared with a plain kafka-python consumer that decodes the same records."""
    from streamtopic.bench.feed import corpus, drain, local_feed

    batch = corpus(SHORT_DOCUMENTS, SHORT)
    with local_feed() as feed:
        feed.send(corpus(500, SHORT, seed=1), "warm")
        ingest = feed.ingest()
        drain(ingest)
        feed.send(batch)
        bare, number = timed(lambda: _bare_consumer(feed))
        seconds, documents = timed(lambda: drain(ingest))
    return [
        Figure("distinct words", len(batch.words) / batch.documents, "a document"),
        Figure("ingest", documents / seconds, "documents/s"),
        Figure("plain consumer", number / bare, "documents/s"),
        Figure("ingest over plain consumer", documents / seconds / (number / bare), "x", "at least 0.25"),
    ]


def _kernel(batch: DocumentBatch) -> float:
    """Documents a second of the kernel alone, in batches as large as those of ingest."""
    import numpy as np

    from streamtopic.bench.feed import WORDS
    from streamtopic.counts import Weighting, count
    from streamtopic.state import MAX_FLUSH_DOCUMENTS

    starts = range(0, batch.documents, MAX_FLUSH_DOCUMENTS)
    parts = [batch.take(np.arange(start, start + MAX_FLUSH_DOCUMENTS)) for start in starts]
    count(batch.take(np.arange(10)), WORDS, Weighting())
    seconds, _ = timed(lambda: [count(part, WORDS, Weighting()).documents for part in parts])
    return batch.documents / seconds


def _record_bytes(feed: Feed) -> float:
    from streamtopic.state.connection import ModelKeys

    keys = ModelKeys(feed.names.model).partition(0)
    records = [value for bucket in range(8) for value in feed.connection.call("HVALS", keys.documents(bucket))]
    return sum(map(len, records)) / len(records)


def _bare_consumer(feed: Feed) -> int:
    import msgpack
    from kafka import KafkaConsumer, TopicPartition

    place = TopicPartition(feed.names.documents, 0)
    consumer = KafkaConsumer(bootstrap_servers=feed.servers, enable_auto_commit=False, auto_offset_reset="earliest")
    consumer.assign([place])
    end, number = consumer.end_offsets([place])[place], 0
    while number < end:
        for records in consumer.poll(timeout_ms=1000, max_records=4000).values():
            for record in records:
                msgpack.unpackb(record.value)
            number += len(records)
    consumer.close()
    return number


CASES = {"long": long, "short": short}
