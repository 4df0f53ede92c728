"""The event log in Kafka: records written and read a second, and those of a bare consumer; the time of one call."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.bench.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamtopic.streams import KafkaLog

__all__ = ["CASES", "OPTIONS", "ratios"]

OPTIONS = {"records": 100_000}
CALLS = 200
TOPIC = "bench"


def small(records: int) -> list[Figure]:
    """Records of 100 bytes."""
    return _measure(records, 100)


def large(records: int) -> list[Figure]:
    """Half as many records of 1,200 bytes."""
    return _measure(records // 2, 1_200)


def ratios(figures: Mapping[str, Mapping[str, float]]) -> list[Figure]:
    """Reading, and that of a bare consumer of kafka-python, in the same process after one another."""
    return [
        Figure(f"read / bare consumer, {case}", found["read"] / found["bare consumer"], "")
        for case, found in figures.items()
    ]


def _measure(records: int, size: int) -> list[Figure]:
    from streamtopic.local import LocalKafka
    from streamtopic.streams import KafkaLog, KafkaOptions, Message

    value = np.random.default_rng(0).bytes(size)
    messages = (Message(b"doc-%d" % number, value) for number in range(records))
    with LocalKafka() as server, KafkaLog(KafkaOptions(server.servers)) as log:
        log.create(TOPIC, 1, {"message.timestamp.type": "LogAppendTime"})
        start = time.perf_counter()
        while batch := list(itertools.islice(messages, 5_000)):
            log.append_many(TOPIC, batch)
        written = records / (time.perf_counter() - start)
        rates = [(_read(log, records), _bare(server.servers, records)) for _ in range(2)]
        one = _call(lambda: log.append(TOPIC, b"k", b"v"))
        end = log.end(TOPIC, 0)
        return [
            Figure("append_many", written, "records/s"),
            Figure("read", max(ours for ours, _ in rates), "records/s"),
            Figure("bare consumer", max(bare for _, bare in rates), "records/s"),
            Figure("append of one", one * 1000, "ms"),
            Figure("read at the end", _call(lambda: log.read(TOPIC, 0, end)) * 1000, "ms"),
        ]


def _call(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) / CALLS


def _read(log: KafkaLog, records: int) -> float:
    start, offset = time.perf_counter(), 0
    while offset < records:
        offset = log.read(TOPIC, 0, offset)[-1].next_offset
    return records / (time.perf_counter() - start)


def _bare(servers: str, records: int) -> float:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
    place = TopicPartition(TOPIC, 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    start, seen = time.perf_counter(), 0
    while seen < records:
        seen += sum(map(len, consumer.poll(1_000, max_records=4_000).values()))
    rate = seen / (time.perf_counter() - start)
    consumer.close()
    return rate


CASES = {"small": small, "large": large}
