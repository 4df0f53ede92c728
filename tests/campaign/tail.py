"""Reads topics as any client of Kafka sees them, with kafka-python itself and not with the service's own code."""

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from streamtopic.errors import ComponentUnreachable
from streamtopic.streams.kafka_compat import give_up

_POLL_MS = 1_000
# A broker that answers these many polls without a record has a fault, and the caller must hear of it.
_POLLS = 60
_ANSWER_MS = 5_000


class Tail:
    """Reads topics from their beginnings, each record once, across any failure of the broker.

    topics: name to number of partitions.
    positions: TopicPartition to the offset at which reading continues; there may be gaps before it.
    """

    def __init__(self, servers, topics):
        self._servers = servers
        self.positions = {
            TopicPartition(topic, place): 0 for topic, places in topics.items() for place in range(places)
        }
        self._consumer = None

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
        consumer = self._consumer = self._consumer or self._open()
        # Fixed before reading: a topic that grows all the time would never let this call end.
        ends = consumer.end_offsets(list(self.positions), timeout_ms=_ANSWER_MS)
        for _ in range(_POLLS):
            if all(self.positions[place] >= end for place, end in ends.items()):
                return
            for place, records in consumer.poll(timeout_ms=_POLL_MS).items():
                for record in records:
                    self.positions[place] = record.offset + 1
                    yield record
            # Compaction and the marks of transactions leave offsets without a record, also at the end of the topic.
            for place, known in self.positions.items():
                self.positions[place] = max(known, consumer.position(place, timeout_ms=_ANSWER_MS) or 0)
        raise ComponentUnreachable(f"Kafka at {self._servers} sends nothing more")

    def _open(self):
        consumer = KafkaConsumer(
            bootstrap_servers=self._servers,
            # Positions outlive a consumer.
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            max_partition_fetch_bytes=8 << 20,
            fetch_max_wait_ms=50,
        )
        consumer.assign(list(self.positions))
        for place, offset in self.positions.items():
            consumer.seek(place, offset)
        return consumer
