"""The event log in Kafka."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from streamtopic.errors import ComponentUnreachable, StreamtopicError, UsageError
from streamtopic.streams.event_log import (
    MAX_READ_BYTES,
    MAX_READ_RECORDS,
    Closing,
    Headers,
    LogTopic,
    Message,
    Record,
    check_count,
    check_new_topic,
    check_partition,
    check_topic,
    placed,
)
from streamtopic.streams.kafka_options import KafkaOptions

# kafka-python is loaded when a log is first used: a program that reads files starts faster without it.
if TYPE_CHECKING:
    from streamtopic.streams.kafka_clients import Admin, Writer
    from streamtopic.streams.kafka_reader import Offsets, PartitionReader

__all__ = ["KafkaLog", "KafkaOptions"]

# Only an administrator changes the number of partitions of a topic.
_REMEMBER_SECONDS = 60.0
_LOOK_SECONDS = 3.0


class KafkaLog(Closing):
    """An EventLog in a Kafka cluster. Safe with several threads. Nothing is sent before the first call.

    options: servers and credentials.
    clock: monotonic seconds.

    Calls are repeated for `options.patience` while a broker does not answer; then ComponentUnreachable is raised.
    Besides the errors of EventLog, every method raises SettingsError if the cluster refuses the user.
    """

    def __init__(self, options: KafkaOptions, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.options = options
        self._clock = clock
        self._mutex = threading.RLock()
        # A consumer of kafka-python may be used by one thread only.
        self._readers: dict[threading.Thread, PartitionReader] = {}
        self._counts: dict[str, tuple[int, float]] = {}
        self._parts: tuple[Admin, Writer, Offsets] | None = None

    def create(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        """See EventLog.create; the brokers' default decides on replicas."""
        check_new_topic(topic, partitions)
        self._counts.pop(topic, None)
        existing = self._admin.describe(topic).partitions
        if not existing:
            self._admin.create(topic, partitions, settings or {})
            existing = self._admin.describe(topic, made=True).partitions
            self._counts[topic] = (existing, self._clock() + _REMEMBER_SECONDS)
        check_count(topic, existing, partitions)

    def partitions(self, topic: str) -> int:
        """See EventLog.partitions; a count is remembered for a minute."""
        count, until = self._counts.get(topic, (0, 0.0))
        if not count or self._clock() > until:
            count = self.describe(topic).partitions
        return count

    def describe(self, topic: str) -> LogTopic:
        """See EventLog.describe."""
        found = self._admin.describe(topic)
        self._counts[topic] = (found.partitions, self._clock() + _REMEMBER_SECONDS)
        return found

    def settings(self, topic: str) -> Mapping[str, str]:
        """See EventLog.settings."""
        self._count(topic)
        return self._admin.settings(topic)

    def copies(self, topic: str) -> tuple[int, int]:
        """Return the least number of replicas of any partition of a topic, and of replicas in sync."""
        self._count(topic)
        return self._admin.copies(topic)

    def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        """See EventLog.configure."""
        self._count(topic)
        self._admin.configure(topic, settings)

    def append(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers = (), partition: int | None = None
    ) -> tuple[int, int]:
        """See EventLog.append."""
        message = Message(key, value, headers, partition)
        return self.append_many(topic, [message])[0]

    def append_many(self, topic: str, messages: Sequence[Message]) -> list[tuple[int, int]]:
        """See EventLog.append_many; confirmed by all replicas that are in sync."""
        count = self._count(topic)
        partitions = placed(topic, messages, count)
        if any(message.key is None and message.value is None for message in messages):
            raise UsageError(f"a record for {topic} has neither a key nor a value: give it one")
        if not messages:
            return []
        try:
            offsets = self._writer.append(topic, messages, partitions)
        except ComponentUnreachable as error:
            self._explain(topic, error)
            raise
        return list(zip(partitions, offsets, strict=True))

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_records: int = MAX_READ_RECORDS,
        max_bytes: int = MAX_READ_BYTES,
    ) -> list[Record]:
        """See EventLog.read."""
        from streamtopic.streams.kafka_clients import retried

        check_partition(topic, partition, self._count(topic))
        reader = self._reader
        right = f"Read of topic {topic}"
        return retried(lambda: reader.read(topic, partition, offset, max_records, max_bytes), self.options, right)

    def wait(self, topic: str, positions: Mapping[int, int], seconds: float) -> None:
        """See EventLog.wait."""
        count = self._count(topic)
        for partition in positions:
            check_partition(topic, partition, count)
        self._reader.wait(topic, positions, seconds)

    def begin(self, topic: str, partition: int) -> int:
        """See EventLog.begin."""
        check_partition(topic, partition, self._count(topic))
        return self._offsets.begin(topic, partition)

    def end(self, topic: str, partition: int) -> int:
        """See EventLog.end; records of a transaction count once it has ended."""
        check_partition(topic, partition, self._count(topic))
        return self._offsets.end(topic, partition)

    def written_end(self, topic: str, partition: int) -> int:
        """See EventLog.written_end."""
        check_partition(topic, partition, self._count(topic))
        return self._offsets.written_end(topic, partition)

    def appended_ms(self, topic: str, partition: int, offset: int) -> int | None:
        """See EventLog.appended_ms."""
        check_partition(topic, partition, self._count(topic))
        return self._offsets.appended_ms(topic, partition, offset)

    def remove(self, topic: str) -> None:
        """See EventLog.remove; it needs the right Delete on the topic."""
        self._admin.remove(topic)
        self._counts.pop(topic, None)

    def members(self, group: str) -> list[str]:
        """See EventLog.members; it needs the right Describe on the group."""
        return self._admin.members(group)

    def close(self) -> None:
        """See EventLog.close; in a fraction of a second, also while the cluster is away."""
        with self._mutex:
            for part in (*self._readers.values(), *(self._parts or ())):
                part.close()
            self._readers.clear()
            self._parts = None

    def _explain(self, topic: str, fault: ComponentUnreachable) -> None:
        """Raise the error of an append that was not confirmed, if replicas that are not in sync explain it."""
        from streamtopic.streams.kafka_clients import Admin

        # kafka-python only says that the time was up. Brokers that answer at all answer this soon.
        patience = min(_LOOK_SECONDS, self.options.patience)
        looking = Admin(replace(self.options, patience=patience))
        try:
            replicas, in_sync = looking.copies(topic)
        except StreamtopicError:
            return
        finally:
            looking.close()
        if in_sync < replicas:
            raise ComponentUnreachable(
                f"Kafka at {self.options.servers} did not confirm records for {topic}, with too few replicas in sync "
                f"({in_sync} of {replicas}): bring its brokers back, or compare min.insync.replicas"
            ) from fault

    def _count(self, topic: str) -> int:
        return check_topic(topic, self.partitions(topic), f"on {self.options.servers}")

    @property
    def _admin(self) -> "Admin":
        return self._opened[0]

    @property
    def _writer(self) -> "Writer":
        return self._opened[1]

    @property
    def _offsets(self) -> "Offsets":
        return self._opened[2]

    @property
    def _opened(self) -> "tuple[Admin, Writer, Offsets]":
        with self._mutex:
            if self._parts is None:
                from streamtopic.streams.kafka_clients import Admin, Writer
                from streamtopic.streams.kafka_reader import Offsets

                self._parts = (Admin(self.options), Writer(self.options), Offsets(self.options))
            return self._parts

    @property
    def _reader(self) -> "PartitionReader":
        """The reader of this thread."""
        from streamtopic.streams.kafka_reader import PartitionReader

        with self._mutex:
            # Nothing tells that a thread has ended: its connection is given back when the next one comes by.
            ended = [thread for thread in self._readers if not thread.is_alive()]
            for thread in ended:
                self._readers.pop(thread).close()
            thread = threading.current_thread()
            if thread not in self._readers:
                self._readers[thread] = PartitionReader(self.options, self._offsets, clock=self._clock)
            return self._readers[thread]
