"""Kafka's clients, made, repeated and closed in one way; where kafka-python's errors become this package's."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from kafka import errors
from kafka.net.compat import KafkaNetClient

from streamtopic.errors import ComponentUnreachable, SettingsError, StateCorrupt, StateMismatch, StreamtopicError
from streamtopic.streams.kafka_options import KafkaOptions

__all__ = ["TRANSIENT", "connect", "mapped", "retried"]

T = TypeVar("T")
_REQUEST_MS = 10_000
_BOOTSTRAP_MS = 5_000
_REFUSED = (
    errors.AuthorizationError,
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,
)
# What may pass by itself: the broker restarts, a leader moves, a connection breaks.
TRANSIENT = (
    errors.RetriableError,
    errors.BrokerNotAvailableError,
    errors.InvalidReceiveError,
    errors.UnknownBrokerIdError,
    errors.IncompatibleBrokerVersion,
    OSError,
)

logger = logging.getLogger("streamtopic.streams")


class _Network(KafkaNetClient):  # type: ignore[misc]  # kafka-python is untyped
    """The network of one client; `refused`: what a broker said against its user, if one did.

    kafka-python 3.0.12 only logs that while it looks for a first broker.
    """

    def __init__(self, **configuration: Any) -> None:  # noqa: ANN401 - as above
        super().__init__(**configuration)
        self.refused: Exception | None = None
        self._connect = self._manager.get_connection
        self._manager.get_connection = self._watched

    def connection_delay(self, node_id: object) -> float:
        """Milliseconds, which a producer takes this for; kafka-python 3.0.12 gives seconds, and then never sleeps."""
        return 1000.0 * float(super().connection_delay(node_id))

    def _watched(self, *place: Any, **options: Any) -> Any:  # noqa: ANN401 - as above
        connection = self._connect(*place, **options)
        connection.init_future.add_errback(self._note)
        return connection

    def _note(self, error: Exception) -> None:
        if isinstance(error, _REFUSED):
            self.refused = error


def mapped(error: Exception, servers: str) -> StreamtopicError:
    """Return this package's error for one of kafka-python's, with the remedy."""
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    match error:
        case StreamtopicError():
            return error
        case errors.UnsupportedCodecError():
            return StateMismatch(
                f"Kafka at {servers} holds records in a compression that this machine cannot read ({text}): set the "
                "topic's compression.type to `uncompressed` for those to come (`streamtopic init`), and install the "
                "codec's package (lz4, python-snappy or zstandard) for those that are there"
            )
        case errors.CorruptRecordError():
            return StateCorrupt(
                f"Kafka at {servers} gave a damaged record ({text}): check its disks, or read elsewhere"
            )
        case errors.OffsetOutOfRangeError() | errors.LogTruncationError():
            return StateMismatch(
                f"Kafka at {servers} no longer holds the next record ({text}): its log was shortened; run `streamtopic "
                "rebuild`"
            )
        case _ if isinstance(error, _REFUSED):
            return SettingsError(f"Kafka at {servers} refuses this user ({text}): check user, password and ACLs")
        case _:
            return ComponentUnreachable(
                f"Kafka at {servers} does not answer ({text}): start it, or correct its address or protocol"
            )


def connect(kind: Callable[..., T], options: KafkaOptions, **arguments: Any) -> T:  # noqa: ANN401 - what kafka-python takes
    """A client of kafka-python (consumer, producer, admin) that is ready; raises kafka-python's own errors.

    One that cannot be made leaves nothing behind: its constructor would leave a thread that tries for ever.
    """
    made: list[Any] = []

    def client(**configuration: Any) -> Any:  # noqa: ANN401 - as above
        made.append(_Network(**configuration))
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
            if network.refused is not None:
                raise network.refused from error
        raise


def retried(
    call: Callable[[], T],
    options: KafkaOptions,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """What `call` returns, called again while its errors may pass; raises StreamtopicError."""
    deadline, pause = clock() + options.patience, 0.05
    while True:
        try:
            return call()
        except (*TRANSIENT, errors.KafkaError, RuntimeError, ValueError) as error:
            if not isinstance(error, TRANSIENT) or isinstance(error, _REFUSED) or clock() + pause > deadline:
                raise mapped(error, options.servers) from error
            logger.debug("Kafka at %s: %s; trying again", options.servers, error)
        sleep(pause)
        pause = min(2 * pause, 1.0)
