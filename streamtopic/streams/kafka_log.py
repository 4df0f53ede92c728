"""The event log in Kafka."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from uuid import UUID

from kafka import KafkaAdminClient, TopicPartition, errors
from kafka.admin import ConfigResource, ConfigResourceType

from streamtopic.errors import UsageError
from streamtopic.streams.event_log import (
    MAX_READ_BYTES,
    MAX_READ_RECORDS,
    Closing,
    EventLog,
    LogTopic,
    Message,
    Record,
    check_partition,
    check_topic,
    placed,
)
from streamtopic.streams.kafka_clients import SharedClient, TopicReader, Writer, connect, consumer_of, retried
from streamtopic.streams.kafka_compat import records_in
from streamtopic.streams.kafka_membership import KafkaMembership
from streamtopic.streams.kafka_options import KafkaOptions

__all__ = ["KafkaLog", "KafkaOptions"]

T = TypeVar("T")

# Only an administrator changes the number of partitions of a topic.
_REMEMBER_SECONDS = 60.0
_ASK_MS = 5_000
# A stored record comes at once. Without one the wait must end: a transaction may have left nothing but its marks.
_LOOK_MS = 2_000
# Seconds between two looks for settings that were changed.
_PAUSE = 0.02
_NO_TOPIC = errors.UnknownTopicOrPartitionError.errno
_NO_ID = UUID(int=0)
_REFUSALS = (
    errors.InvalidTopicError,
    errors.InvalidPartitionsError,
    errors.InvalidReplicationFactorError,
    errors.InvalidConfigurationError,
    errors.InvalidRequestError,
    errors.PolicyViolationError,
)


class KafkaLog(Closing, EventLog):
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
        # A consumer of kafka-python may be used by one thread only, and asks for metadata anew with each other topic.
        self._readers: dict[tuple[threading.Thread, str], TopicReader] = {}
        self._counts: dict[str, tuple[int, float]] = {}
        self._admin = SharedClient(lambda: connect(KafkaAdminClient, options))
        self._writer = Writer(options)
        # Not the admin client, which asks for metadata each time; nor the readers, whose answers would wait for
        # requests that the broker holds.
        self._finished = SharedClient(lambda: consumer_of(options))
        self._written = SharedClient(lambda: consumer_of(options, isolation_level="read_uncommitted"))

    def create(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        """See EventLog.create; the brokers' default decides on replicas."""
        if self.describe(topic).partitions:
            return
        # -1 asks for the default.
        described = {"num_partitions": partitions, "replication_factor": -1, "configs": dict(settings or {})}

        def make(admin: Any) -> None:  # noqa: ANN401 - kafka-python is untyped
            try:
                admin.create_topics({topic: described})
            except errors.TopicAlreadyExistsError:
                pass
            except errors.InvalidReplicationFactorError as error:
                # A broker whose word to its controller is late is fenced, and takes a topic once it was heard.
                if "fenced" in str(error):
                    raise errors.BrokerNotAvailableError(str(error)) from error
                raise
            # The answer comes before all brokers know of the topic, and the next call may reach another one.
            admin.wait_for_topics([topic], timeout_ms=_ASK_MS)

        try:
            self._administer(make, f"Create of topic {topic}")
        except UsageError as error:
            raise UsageError(f"topic {topic} cannot be made: {error}") from error
        self._described(topic, made=True)

    def partitions(self, topic: str) -> int:
        """See EventLog.partitions; a count is remembered for a minute."""
        count, until = self._counts.get(topic, (0, 0.0))
        return self.describe(topic).partitions if not count or self._clock() > until else count

    def describe(self, topic: str) -> LogTopic:
        """See EventLog.describe."""
        return self._described(topic)

    def settings(self, topic: str) -> Mapping[str, str]:
        """See EventLog.settings: the topic's own, else the cluster's."""
        self._count(topic)

        def describe(admin: Any) -> dict[str, str]:  # noqa: ANN401 - as above
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            found = admin.describe_configs([resource], config_filter="all")["topic"][topic]
            # kafka-python only logs that the broker refuses: no settings would look like settings without a fault.
            if not found:
                raise errors.TopicAuthorizationFailedError(topic)
            # A sensitive setting has no value here.
            return {name: entry["value"] for name, entry in found.items() if entry["value"] is not None}

        return self._administer(describe, f"DescribeConfigs of topic {topic}")

    def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        """See EventLog.configure."""
        self._count(topic)
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(settings))
        self._administer(
            lambda admin: admin.alter_configs([resource], incremental=True), f"AlterConfigs of topic {topic}"
        )
        # As with a new topic, the answer comes before the brokers know of it.
        until = time.monotonic() + _ASK_MS / 1000
        while not settings.items() <= self.settings(topic).items() and time.monotonic() < until:
            time.sleep(_PAUSE)

    def append_many(self, topic: str, messages: Sequence[Message]) -> list[tuple[int, int]]:
        """See EventLog.append_many; confirmed by all replicas that are in sync."""
        partitions = placed(topic, messages, self._count(topic))
        if not messages:
            return []
        return list(zip(partitions, self._writer.append(topic, messages, partitions), strict=True))

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_records: int = MAX_READ_RECORDS,
        max_bytes: int = MAX_READ_BYTES,
    ) -> list[Record]:
        """See EventLog.read."""
        check_partition(topic, partition, self._count(topic))
        reader = self._reader(topic)
        right = f"Read of topic {topic}"
        return retried(lambda: reader.read(partition, offset, max_records, max_bytes), self.options, right)

    def wait(self, topic: str, positions: Mapping[int, int], seconds: float) -> None:
        """See EventLog.wait."""
        self._reader(topic).wait(positions, seconds)

    def begin(self, topic: str, partition: int) -> int:
        """See EventLog.begin."""
        return self._ask(self._finished, topic, partition, _begin)

    def end(self, topic: str, partition: int) -> int:
        """See EventLog.end; records of a transaction count once it has ended."""
        return self._ask(self._finished, topic, partition, _end)

    def written_end(self, topic: str, partition: int) -> int:
        """See EventLog.written_end."""
        return self._ask(self._written, topic, partition, _end)

    def appended_ms(self, topic: str, partition: int, offset: int) -> int | None:
        """See EventLog.appended_ms."""

        def look(consumer: Any, place: TopicPartition) -> int | None:  # noqa: ANN401 - as above
            consumer.assign([place])
            consumer.seek(place, offset)
            found = records_in(consumer.poll(timeout_ms=_LOOK_MS).get(place, []), offset)
            return found[0].timestamp_ms if found else None

        return self._ask(self._written, topic, partition, look)

    def remove(self, topic: str) -> None:
        """See EventLog.remove; it needs the right Delete on the topic."""

        def delete(admin: Any) -> None:  # noqa: ANN401 - as above
            with suppress(errors.UnknownTopicOrPartitionError):
                admin.delete_topics([topic])

        self._administer(delete, f"Delete of topic {topic}")
        self._counts.pop(topic, None)

    def join(self, topic: str, group: str, session_timeout_ms: int) -> KafkaMembership:
        """See EventLog.join."""
        return KafkaMembership(self.options, topic, group, session_timeout_ms)

    def members(self, group: str) -> list[str]:
        """See EventLog.members; it needs the right Describe on the group."""

        def describe(admin: Any) -> list[str]:  # noqa: ANN401 - as above
            try:
                found = admin.describe_groups([group])[group]
            except errors.GroupIdNotFoundError:
                return []
            return [str(member["client_host"]).removeprefix("/") for member in found["members"]]

        return self._administer(describe, f"Describe of group {group}")

    def close(self) -> None:
        """See EventLog.close; in a fraction of a second, also while the cluster is away."""
        with self._mutex:
            for reader in self._readers.values():
                reader.close()
            self._readers.clear()
            self._writer.close()
            for client in (self._admin, self._finished, self._written):
                client.close()

    def _described(self, topic: str, *, made: bool = False) -> LogTopic:
        """Return what is known of a topic, and remember how many partitions it has.

        made: whether the topic was made just now; then a broker that has not heard of it yet is asked again.
        """

        def describe(admin: Any) -> LogTopic:  # noqa: ANN401 - as above
            (found,) = admin.describe_topics([topic])
            if found["error_code"] == _NO_TOPIC and not made:
                return LogTopic("", 0)
            failure = errors.for_code(found["error_code"])
            if failure is not errors.NoError:
                raise failure(topic)
            known = UUID(str(found.get("topic_id") or _NO_ID))
            partitions = found["partitions"]
            replicas = min(len(one["replica_nodes"]) for one in partitions)
            in_sync = min(len(one["isr_nodes"]) for one in partitions)
            return LogTopic("" if known == _NO_ID else known.hex, len(partitions), replicas, in_sync)

        found = self._administer(describe, f"Describe of topic {topic}")
        self._counts[topic] = (found.partitions, self._clock() + _REMEMBER_SECONDS)
        return found

    def _administer(self, question: Callable[[Any], T], right: str) -> T:
        """Ask the admin client. right: that the question needs."""

        def ask(admin: Any) -> T:  # noqa: ANN401 - as above
            try:
                return question(admin)
            except _REFUSALS as error:
                told = f"Kafka at {self.options.servers} refuses the request ({error})"
                raise UsageError(f"{told}: change the setting that it names") from error

        return retried(lambda: self._admin.ask(ask), self.options, right)

    def _ask(
        self, consumers: SharedClient, topic: str, partition: int, question: Callable[[Any, TopicPartition], T]
    ) -> T:
        """Ask a consumer about a partition."""
        check_partition(topic, partition, self._count(topic))
        place = TopicPartition(topic, partition)
        right = f"Read of topic {topic}"
        return retried(lambda: consumers.ask(lambda consumer: question(consumer, place)), self.options, right)

    def _count(self, topic: str) -> int:
        return check_topic(topic, self.partitions(topic), f"on {self.options.servers}")

    def _reader(self, topic: str) -> TopicReader:
        """Return the reader of a topic for this thread."""
        with self._mutex:
            # Nothing tells that a thread has ended: its connection is given back when the next one comes by.
            ended = [place for place in self._readers if not place[0].is_alive()]
            for place in ended:
                self._readers.pop(place).close()
            wanted = threading.current_thread(), topic
            if wanted not in self._readers:
                self._readers[wanted] = TopicReader(self.options, self, topic, clock=self._clock)
            return self._readers[wanted]


def _begin(consumer: Any, place: TopicPartition) -> int:  # noqa: ANN401 - kafka-python is untyped
    """Return the first offset of a partition."""
    return int(consumer.beginning_offsets([place], timeout_ms=_ASK_MS)[place])


def _end(consumer: Any, place: TopicPartition) -> int:  # noqa: ANN401 - kafka-python is untyped
    """Return the end of a partition as a consumer sees it."""
    return int(consumer.end_offsets([place], timeout_ms=_ASK_MS)[place])
