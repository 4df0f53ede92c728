"""Topics of a Kafka cluster: making them, counting their partitions, their settings."""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from kafka import KafkaAdminClient, errors
from kafka.admin import ConfigResource, ConfigResourceType

from streamtopic.errors import UsageError
from streamtopic.streams.kafka_client import connect, retried
from streamtopic.streams.kafka_options import KafkaOptions

__all__ = ["Admin"]

T = TypeVar("T")
_NO_TOPIC = errors.UnknownTopicOrPartitionError.errno


class Admin:
    """An admin client, made when it is first needed and anew after an error; raises StreamtopicError only."""

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._client: Any = None
        self._mutex = threading.Lock()

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Make a topic, with as many replicas as the brokers' default says; one that exists is left alone."""
        wanted = {topic: {"num_partitions": partitions, "replication_factor": -1, "configs": dict(settings)}}

        def make(client: Any) -> None:  # noqa: ANN401 - kafka-python is untyped
            with suppress(errors.TopicAlreadyExistsError):
                client.create_topics(wanted)
            client.wait_for_topics([topic], timeout_ms=5_000)

        try:
            self._ask(make)
        except UsageError as error:
            raise UsageError(f"topic {topic} cannot be made: {error}") from error

    def partitions(self, topic: str) -> int:
        """Number of partitions, 0 without such a topic."""

        def count(client: Any) -> int:  # noqa: ANN401 - as above
            (found,) = client.describe_topics([topic])
            if found["error_code"] == _NO_TOPIC:
                return 0
            errors_of = errors.for_code(found["error_code"])
            if errors_of is not errors.NoError:
                raise errors_of(topic)
            return len(found["partitions"])

        return self._ask(count)

    def settings(self, topic: str) -> dict[str, str]:
        """Settings in effect: the topic's own, else the cluster's."""

        def describe(client: Any) -> dict[str, str]:  # noqa: ANN401 - as above
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            found = client.describe_configs([resource], config_filter="all")["topic"][topic]
            return {name: entry["value"] for name, entry in found.items() if entry["value"] is not None}

        return self._ask(describe)

    def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        """Change these settings of a topic, leaving its others."""

        def alter(client: Any) -> None:  # noqa: ANN401 - as above
            resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(settings))
            client.alter_configs([resource], incremental=True)

        self._ask(alter)

    def close(self) -> None:
        """Give the connection back."""
        with self._mutex:
            self._discard()

    def _ask(self, question: Callable[[Any], T]) -> T:
        def ask() -> T:
            with self._mutex:
                if self._client is None:
                    self._client = connect(KafkaAdminClient, self._options)
                try:
                    return question(self._client)
                except _REFUSALS as error:
                    raise UsageError(f"Kafka at {self._options.servers} refuses that ({error})") from error
                except Exception:
                    self._discard()
                    raise

        return retried(ask, self._options)

    def _discard(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            with suppress(Exception):  # what is wrong with it no longer matters
                client.close()


_REFUSALS = (
    errors.InvalidTopicError,
    errors.InvalidPartitionsError,
    errors.InvalidReplicationFactorError,
    errors.InvalidConfigurationError,
    errors.InvalidRequestError,
    errors.PolicyViolationError,
)
