"""Kafka's clients. All are made, repeated and closed in the same way.

Admin    topics: makes them, counts their partitions, changes their settings
Writer   records: confirmed by all replicas, once, and in order within each partition

Errors of kafka-python become this package's here (`mapped`).
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from uuid import UUID

from kafka import KafkaAdminClient, KafkaProducer, errors
from kafka.admin import ConfigResource, ConfigResourceType

from streamtopic.errors import (
    ComponentUnreachable,
    SettingsError,
    StateCorrupt,
    StateMismatch,
    StreamtopicError,
    UsageError,
)
from streamtopic.security.tls_faults import tls_fault
from streamtopic.streams.event_log import LogTopic, Message
from streamtopic.streams.kafka_compat import REFUSED, NetClient, TlsRefused, give_up
from streamtopic.streams.kafka_options import KafkaOptions

__all__ = ["TRANSIENT", "Admin", "Writer", "connect", "mapped", "retried"]

T = TypeVar("T")
_REQUEST_MS = 10_000
_BOOTSTRAP_MS = 5_000
# Errors that may pass by themselves: a broker restarts, a leader moves, a connection breaks.
TRANSIENT = (
    errors.RetriableError,
    errors.BrokerNotAvailableError,
    errors.InvalidReceiveError,
    errors.UnknownBrokerIdError,
    errors.IncompatibleBrokerVersion,
    OSError,
)

logger = logging.getLogger("streamtopic.streams")


_TOO_FEW = (errors.NotEnoughReplicasError, errors.NotEnoughReplicasAfterAppendError)


def mapped(error: Exception, options: KafkaOptions, right: str = "") -> StreamtopicError:
    """Return this package's error for one of kafka-python's, with the remedy.

    right: the right that the call needs, such as "Read of topic t".
    """
    servers = options.servers
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    refusal = error if isinstance(error, StreamtopicError) else _refusal(error, options, text, right)
    if refusal is not None:
        return refusal
    match error:
        case errors.UnsupportedCodecError():
            return StateMismatch(
                f"Kafka at {servers} holds compressed records ({text}), and a small one may unfold into gigabytes: set "
                "the topic's compression.type to `uncompressed` (`streamtopic init`), send their documents again, "
                "and delete the old records (kafka-delete-records.sh)"
            )
        case errors.CorruptRecordError():
            return StateCorrupt(f"Kafka at {servers} gave a damaged record ({text}): check the disks of its brokers")
        case errors.OffsetOutOfRangeError() | errors.LogTruncationError():
            return StateMismatch(
                f"Kafka at {servers} no longer holds the next record ({text}): its log was shortened; run `streamtopic "
                "rebuild`"
            )
        case _ if isinstance(error, _TOO_FEW):
            return ComponentUnreachable(
                f"Kafka at {servers} has too few replicas in sync to confirm records ({text}): bring its brokers back"
            )
        case _:
            return ComponentUnreachable(
                f"Kafka at {servers} does not answer ({text}): start it, or correct its address or protocol"
            )


def _refusal(error: Exception, options: KafkaOptions, text: str, right: str) -> SettingsError | None:
    """Return the error of a user or a client that is refused; None if it is not."""
    servers = options.servers
    fault = error.args[0] if isinstance(error, TlsRefused) else tls_fault(error)
    if fault is not None:
        return SettingsError(f"Kafka at {servers} cannot be reached safely; {fault}")
    told = f"Kafka at {servers} refuses this user ({text})"
    # A producer without any right to write gets an error of another class, whose text names the reason.
    if isinstance(error, errors.AuthorizationError) or "AuthorizationFailed" in text:
        user = options.sasl_username or "it"
        return SettingsError(f"{told}; {user} lacks the right {right}: give it by a rule (deploy/kafka-acls.sh)")
    if isinstance(error, REFUSED):
        settings = "kafka_sasl_username, kafka_sasl_password and kafka_sasl_mechanism"
        return SettingsError(f"{told}: check {settings}")
    return None


def connect(kind: Callable[..., T], options: KafkaOptions, **arguments: Any) -> T:  # noqa: ANN401 - kafka-python's arguments
    """Return a client of kafka-python that is ready.

    kind: KafkaConsumer, KafkaProducer or KafkaAdminClient.
    arguments: of its constructor, besides those that follow from the options.

    Raises kafka-python's own errors.
    """
    # A constructor that fails leaves a thread that tries to connect for ever, unless its network is closed.
    made: list[Any] = []

    def client(**configuration: Any) -> Any:  # noqa: ANN401 - as above
        made.append(NetClient(**configuration))
        return made[-1]

    patience_ms = int(options.patience * 1000)
    limits = {
        "request_timeout_ms": min(_REQUEST_MS, patience_ms),
        "bootstrap_timeout_ms": min(_BOOTSTRAP_MS, patience_ms),
        "reconnect_backoff_max_ms": 1000,
    }
    try:
        return kind(kafka_client=client, **options.client(), **limits, **arguments)
    except BaseException as error:
        for network in made:
            with suppress(Exception):
                network.close()
            # The refusal explains why no broker was found, which is all that kafka-python says.
            if network.refused is not None:
                raise network.refused from error
        raise


def retried(
    call: Callable[[], T],
    options: KafkaOptions,
    right: str = "",
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Return the result of a function, which is called again while its errors may pass by themselves.

    call: may safely be called twice.
    right: that the call needs, for the error of a user who lacks it.
    clock, sleep: seconds.

    Raises StreamtopicError, after `options.patience` at the latest.
    """
    deadline = clock() + options.patience
    pause = 0.05
    while True:
        try:
            return call()
        except (*TRANSIENT, errors.KafkaError, RuntimeError, ValueError) as error:
            refused = isinstance(error, (*REFUSED, TlsRefused))
            lasting = refused or tls_fault(error)
            passing = isinstance(error, TRANSIENT) and not lasting
            if not passing or clock() + pause > deadline:
                raise mapped(error, options, right) from error
            extra = {"event": "kafka_retried"}
            logger.debug("Kafka at %s: %s; trying again", options.servers, error, extra=extra)
        sleep(pause)
        pause = min(2 * pause, 1.0)


_NO_TOPIC = errors.UnknownTopicOrPartitionError.errno
_NO_ID = UUID(int=0)


class Admin:
    """An admin client, which is made when it is first needed, and again after an error.

    Every method raises StreamtopicError only.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._client: Any = None
        self._mutex = threading.Lock()

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Make a topic with the brokers' default number of replicas; one that exists stays as it is."""
        # -1 asks for the default.
        described = {"num_partitions": partitions, "replication_factor": -1, "configs": dict(settings)}
        wanted = {topic: described}

        def make(client: Any) -> None:  # noqa: ANN401 - kafka-python is untyped
            with suppress(errors.TopicAlreadyExistsError):
                client.create_topics(wanted)
            # The answer comes before all brokers know of the topic, and the next call may reach another one.
            client.wait_for_topics([topic], timeout_ms=5_000)

        try:
            self._ask(make, f"Create of topic {topic}")
        except UsageError as error:
            raise UsageError(f"topic {topic} cannot be made: {error}") from error

    def describe(self, topic: str, *, made: bool = False) -> LogTopic:
        """Return id and number of partitions, 0 without such a topic.

        made: whether the topic was made just now; then a broker that has not heard of it yet is asked again.
        """

        def describe(client: Any) -> LogTopic:  # noqa: ANN401 - as above
            (found,) = client.describe_topics([topic])
            if found["error_code"] == _NO_TOPIC and not made:
                return LogTopic("", 0)
            failure = errors.for_code(found["error_code"])
            if failure is not errors.NoError:
                raise failure(topic)
            known = UUID(str(found.get("topic_id") or _NO_ID))
            return LogTopic("" if known == _NO_ID else known.hex, len(found["partitions"]))

        return self._ask(describe, f"Describe of topic {topic}")

    def settings(self, topic: str) -> dict[str, str]:
        """Return the settings in effect: the topic's own, else the cluster's."""

        def describe(client: Any) -> dict[str, str]:  # noqa: ANN401 - as above
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            answer = client.describe_configs([resource], config_filter="all")
            found = answer["topic"][topic]
            # kafka-python only logs that the broker refuses: no settings would look like settings without a fault.
            if not found:
                raise errors.TopicAuthorizationFailedError(topic)
            # A sensitive setting has no value here.
            return {name: entry["value"] for name, entry in found.items() if entry["value"] is not None}

        return self._ask(describe, f"DescribeConfigs of topic {topic}")

    def copies(self, topic: str) -> tuple[int, int]:
        """Return the least number of replicas of any partition, and of replicas in sync."""

        def describe(client: Any) -> tuple[int, int]:  # noqa: ANN401 - as above
            (found,) = client.describe_topics([topic])
            partitions = found["partitions"]
            replicas = min(len(one["replica_nodes"]) for one in partitions)
            in_sync = min(len(one["isr_nodes"]) for one in partitions)
            return replicas, in_sync

        return self._ask(describe, f"Describe of topic {topic}")

    def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        """Change these settings of a topic; its other settings stay."""

        def alter(client: Any) -> None:  # noqa: ANN401 - as above
            resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(settings))
            client.alter_configs([resource], incremental=True)

        self._ask(alter, f"AlterConfigs of topic {topic}")

    def remove(self, topic: str) -> None:
        """Remove a topic with all its records; one that does not exist is no error."""

        def delete(client: Any) -> None:  # noqa: ANN401 - as above
            with suppress(errors.UnknownTopicOrPartitionError):
                client.delete_topics([topic])

        self._ask(delete, f"Delete of topic {topic}")

    def members(self, group: str) -> list[str]:
        """Return the host of each member of a consumer group; [] if there is no such group."""

        def describe(client: Any) -> list[str]:  # noqa: ANN401 - as above
            try:
                found = client.describe_groups([group])[group]
            except errors.GroupIdNotFoundError:
                return []
            hosts = [str(member["client_host"]) for member in found["members"]]
            return [host.removeprefix("/") for host in hosts]

        return self._ask(describe, f"Describe of group {group}")

    def close(self) -> None:
        """Give the connection back."""
        with self._mutex:
            self._discard()

    def _ask(self, question: Callable[[Any], T], right: str) -> T:
        def ask() -> T:
            with self._mutex:
                if self._client is None:
                    self._client = connect(KafkaAdminClient, self._options)
                try:
                    return question(self._client)
                except _REFUSALS as error:
                    told = f"Kafka at {self._options.servers} refuses the request ({error})"
                    raise UsageError(f"{told}: change the setting that it names") from error
                except Exception:
                    # A client that failed may hold a broken connection for as long as it lives.
                    self._discard()
                    raise

        return retried(ask, self._options, right)

    def _discard(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            give_up(client)


_REFUSALS = (
    errors.InvalidTopicError,
    errors.InvalidPartitionsError,
    errors.InvalidReplicationFactorError,
    errors.InvalidConfigurationError,
    errors.InvalidRequestError,
    errors.PolicyViolationError,
)


# Topics have limits of their own. This one must be above all of them, or it would decide.
_MAX_REQUEST = 16 << 20
_BATCH = 256 << 10
_OPTIONS = {
    "acks": "all",
    "enable_idempotence": True,
    "linger_ms": 0,
    "batch_size": _BATCH,
    "max_request_size": _MAX_REQUEST,
    "allow_auto_create_topics": False,
    "metrics_enabled": False,
}
_TOO_LARGE = (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError)
_REFUSED = (*_TOO_LARGE, errors.InvalidRecordError, errors.InvalidTimestampError)


class Writer:
    """An idempotent producer, which is made when it is first needed, and again after an error."""

    # A producer that met an error may refuse everything after it, and its pending records must not arrive later, after
    # those of the next one.

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._producer: Any = None
        self._mutex = threading.Lock()

    def append(self, topic: str, messages: Sequence[Message], partitions: Sequence[int]) -> list[int]:
        """Append messages; return the offset of each once all are confirmed.

        partitions: of each message.

        Raises UsageError for a message that the topic does not take, ComponentUnreachable after the options' patience.
        """
        with self._mutex:
            if self._producer is None:
                self._producer = retried(self._connect, self._options)
            try:
                return self._send(topic, messages, partitions)
            except BaseException:
                self._discard()
                raise

    def close(self) -> None:
        """Give the connection back."""
        # Nothing is pending, since every append waits for its confirmations.
        with self._mutex:
            self._discard()

    def _connect(self) -> Any:  # noqa: ANN401 - kafka-python is untyped
        patience_ms = int(self._options.patience * 1000)
        return connect(
            KafkaProducer, self._options, **_OPTIONS, delivery_timeout_ms=patience_ms, max_block_ms=patience_ms
        )

    def _send(self, topic: str, messages: Sequence[Message], partitions: Sequence[int]) -> list[int]:
        futures = []
        for message, partition in zip(messages, partitions, strict=True):
            headers = list(message.headers)
            try:
                future = self._producer.send(topic, message.value, message.key, headers=headers, partition=partition)
                futures.append(future)
            except (errors.KafkaError, ValueError, TypeError) as error:
                raise self._explained(error, topic, message) from error
        # A record that is not confirmed by then has failed, as is found below.
        with suppress(errors.KafkaTimeoutError):
            self._producer.flush(self._options.patience + 10)
        failed = []
        for message, future in zip(messages, futures, strict=True):
            if not future.succeeded():
                failed.append((future.exception, message))
        if failed:
            # One bad record fails all of its batch; only its own error names the reason.
            refused = [entry for entry in failed if isinstance(entry[0], _REFUSED)]
            cause, message = (refused or failed)[0]
            fault = cause or errors.KafkaTimeoutError("not confirmed")
            raise self._explained(fault, topic, message) from cause
        return [int(future.value.offset) for future in futures]

    def _explained(self, error: Exception, topic: str, message: Message) -> StreamtopicError:
        """Return this package's error for one that a message met, with the remedy."""
        named = repr(message.key[:80]) if message.key else "without a key"
        match error:
            case _ if isinstance(error, _TOO_LARGE):
                size = len(message.key or b"") + len(message.value or b"")
                # Somebody can mend the topic while a part of the service waits.
                return SettingsError(
                    f"record {named} of {size} bytes is larger than {topic} takes: set the topic's max.message.bytes "
                    "right (`streamtopic init` does), or split the document if it is one"
                )
            case _ if isinstance(error, (*_REFUSED, ValueError, TypeError)):
                return UsageError(
                    f"{topic} does not take record {named} ({error}): a compacted topic needs a key, and records go to "
                    "partitions that exist"
                )
            case _:
                return mapped(error, self._options, f"Write of topic {topic}")

    def _discard(self) -> None:
        if self._producer is not None:
            producer, self._producer = self._producer, None
            # Pending records must not be sent any more: the caller learns of an error, and its next records may differ.
            producer._sender.force_close()  # noqa: SLF001 - its own close waits for pending records, or fails over them
            with suppress(Exception):
                producer.close(timeout=1)
