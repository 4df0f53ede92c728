"""Topics as any client of Kafka sees them: read with kafka-python itself, not through the service's own code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from streamtopic.errors import ComponentUnreachable

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["TailRecord", "TopicTail"]

_POLL_MS = 1_000
_POLLS = 60
_ANSWER_MS = 5_000


@dataclass(frozen=True, slots=True)
class TailRecord:
    """A record at its place."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class TopicTail:
    """Reads a topic from its beginning, each record once, across any failure of the broker."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        self._servers = servers
        self._places = [TopicPartition(topic, partition) for partition in range(partitions)]
        self._next = dict.fromkeys(range(partitions), 0)
        self._consumer: Any = None

    def read(self) -> Iterator[TailRecord]:
        """Yield what is there now and was not read before, in order within each partition.

        Raises ComponentUnreachable where the broker does not answer; reading goes on with the next call.
        """
        try:
            yield from self._read()
        except KafkaError as error:
            self.close()
            raise ComponentUnreachable(f"Kafka at {self._servers} does not answer: {error!r}") from error

    def close(self) -> None:
        """Give the connections back."""
        if self._consumer is not None:
            self._consumer.close(autocommit=False)
            self._consumer = None

    def _read(self) -> Iterator[TailRecord]:
        consumer = self._connected()
        ends = consumer.end_offsets(self._places, timeout_ms=_ANSWER_MS)
        for _ in range(_POLLS):
            if all(self._next[place.partition] >= ends[place] for place in self._places):
                return
            for records in consumer.poll(timeout_ms=_POLL_MS).values():
                for record in records:
                    self._next[record.partition] = record.offset + 1
                    headers = tuple((name, value or b"") for name, value in record.headers)
                    yield TailRecord(record.partition, record.offset, record.key, record.value, headers)
            # Beyond the last record there may be a gap that compaction left.
            for place in self._places:
                position = consumer.position(place, timeout_ms=_ANSWER_MS) or 0
                self._next[place.partition] = max(self._next[place.partition], position)
        raise ComponentUnreachable(f"Kafka at {self._servers} sends nothing of {self._places[0].topic}")

    def _connected(self) -> Any:  # noqa: ANN401  kafka-python has no types
        if self._consumer is None:
            self._consumer = KafkaConsumer(
                bootstrap_servers=self._servers,
                enable_auto_commit=False,
                auto_offset_reset="none",
                max_partition_fetch_bytes=8 << 20,
                fetch_max_wait_ms=50,
            )
            self._consumer.assign(self._places)
            for place in self._places:
                self._consumer.seek(place, self._next[place.partition])
        return self._consumer
