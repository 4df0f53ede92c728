"""Reads topics as any client of Kafka sees them, with kafka-python itself and not with the service's own code."""

from __future__ import annotations

from dataclasses import dataclass

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from streamtopic.errors import ComponentUnreachable
from streamtopic.streams.kafka_compat import give_up

_POLL_MS = 1_000
# A broker that answers these many polls without a record has a fault, and the caller must hear of it.
_POLLS = 60
_ANSWER_MS = 5_000


@dataclass(frozen=True, slots=True)
class TailRecord:
    """A record at its place.

    time_ms: when it was appended, by the broker's clock, milliseconds since 1970.
    """

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    time_ms: int = 0


class TopicTail:
    """Reads a topic from its beginning, each record once, across any failure of the broker."""

    def __init__(self, servers, topic, partitions):
        self._servers = servers
        self._places = [TopicPartition(topic, partition) for partition in range(partitions)]
        self._next = dict.fromkeys(range(partitions), 0)
        self._consumer = None

    @property
    def positions(self):
        """Partition to the offset at which reading continues; there may be gaps before it."""
        return dict(self._next)

    def read(self):
        """Yield the records that are there now and were not read before, in order within each partition.

        Raises ComponentUnreachable if the broker does not answer. The next call continues where this one stopped.
        """
        try:
            yield from self._read()
        except KafkaError as error:
            self.close()
            raise ComponentUnreachable(f"Kafka at {self._servers} does not answer: {error!r}") from error

    def close(self):
        """Close the connections."""
        if self._consumer is not None:
            give_up(self._consumer, autocommit=False)
        self._consumer = None

    def _read(self):
        consumer = self._connected()
        # Fixed before reading: a topic that grows all the time would never let this call end.
        ends = consumer.end_offsets(self._places, timeout_ms=_ANSWER_MS)
        for _ in range(_POLLS):
            if all(self._next[place.partition] >= ends[place] for place in self._places):
                return
            for records in consumer.poll(timeout_ms=_POLL_MS).values():
                for record in records:
                    self._next[record.partition] = record.offset + 1
                    headers = tuple((name, value or b"") for name, value in record.headers)
                    yield TailRecord(
                        record.partition, record.offset, record.key, record.value, headers, record.timestamp
                    )
            # Compaction and the marks of transactions leave offsets without a record, also at the end of the topic.
            for place in self._places:
                position = consumer.position(place, timeout_ms=_ANSWER_MS) or 0
                self._next[place.partition] = max(self._next[place.partition], position)
        raise ComponentUnreachable(f"Kafka at {self._servers} sends nothing of {self._places[0].topic}")

    def _connected(self):
        if self._consumer is None:
            self._consumer = self._open()
            self._consumer.assign(self._places)
            for place in self._places:
                self._consumer.seek(place, self._next[place.partition])
        return self._consumer

    def _open(self):
        return KafkaConsumer(
            bootstrap_servers=self._servers,
            # Positions are kept in `_next`, which outlives a consumer.
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            max_partition_fetch_bytes=8 << 20,
            fetch_max_wait_ms=50,
        )
