"""Another producer than ours: compressed batches, wrong timestamps, and transactions that it may leave open."""

from __future__ import annotations

import contextlib
import time
import warnings
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal, Self

from kafka.errors import KafkaError, KafkaTimeoutError

from streamtopic.streams.kafka_compat import NetClient, give_up

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from streamtopic.streams import Message

__all__ = ["Stranger", "Transaction"]

_MOST_BYTES = 16 << 20
_PATIENCE_MS = 20_000


class Stranger:
    """Sends records to a topic with kafka-python itself. Records that the broker does not take are lost.

    compression: of batches, such as "gzip"; None for uncompressed ones.
    transaction: the name of its transactions; "" for a producer without transactions.
    timeout_ms: after which the broker ends a transaction.
    """

    def __init__(
        self, servers: str, topic: str, *, compression: str | None = None, transaction: str = "", timeout_ms: int = 0
    ) -> None:
        with warnings.catch_warnings():
            # kafka-python warns about itself when a producer is made.
            warnings.simplefilter("ignore", DeprecationWarning)
            from kafka import KafkaProducer
        self._topic = topic
        networks = list[NetClient]()

        def network(**configuration: Any) -> NetClient:
            networks.append(NetClient(**configuration))
            return networks[-1]

        options: dict[str, Any] = {"transactional_id": transaction, "transaction_timeout_ms": timeout_ms}
        try:
            self.producer: Any = KafkaProducer(
                bootstrap_servers=servers,
                acks="all",
                compression_type=compression,
                max_request_size=_MOST_BYTES,
                max_block_ms=_PATIENCE_MS,
                kafka_client=network,
                **(options if transaction else {}),
            )
        except BaseException:
            # A producer that cannot be made, since the broker is away, leaves its network open.
            for one in networks:
                one.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # It need not be polite: the broker ends a transaction that is left open.
        give_up(self.producer, timeout=0.1)

    def send(self, messages: Sequence[Message], skew: Callable[[], float] = lambda: 0.0) -> int:
        """Send records, wait for their confirmations, and return how many came.

        skew: returns the seconds by which a timestamp is put forward.
        """
        waiting = []
        for message in messages:
            with contextlib.suppress(KafkaError):
                waiting.append(
                    self.producer.send(
                        self._topic,
                        key=message.key,
                        value=message.value,
                        headers=list(message.headers),
                        partition=message.partition,
                        timestamp_ms=max(0, int((time.time() + skew()) * 1000)),
                    )
                )
        confirmed = 0
        for future in waiting:
            with contextlib.suppress(KafkaError):
                future.get(timeout=_PATIENCE_MS / 1000)
                confirmed += 1
        return confirmed


class Transaction:
    """Records of one transaction, which the broker ends by itself after `timeout_ms`.

    sent: how many of them are in the log while the transaction is open.
    """

    def __init__(self, stranger: Stranger, messages: Sequence[Message]) -> None:
        self._stranger = stranger
        _bounded(stranger.producer.init_transactions)
        stranger.producer.begin_transaction()
        self.sent = stranger.send(messages)

    def end(self, how: Literal["commit", "abort"]) -> None:
        """End the transaction. Raises KafkaError; where no answer comes, the broker ends it by itself."""
        producer = self._stranger.producer
        _bounded(producer.commit_transaction if how == "commit" else producer.abort_transaction)


def _bounded(call: Callable[[], object]) -> None:
    """Call kafka-python, which may wait for ever where a broker died under its request. Raises KafkaError."""
    raised: list[BaseException] = []

    def work() -> None:
        try:
            call()
        except (KafkaError, AssertionError) as error:
            raised.append(error)

    # Nobody waits for this thread: it may never end.
    thread = Thread(target=work, daemon=True)
    thread.start()
    thread.join(_PATIENCE_MS / 1000)
    if thread.is_alive():
        raise KafkaTimeoutError("no answer")
    if raised:
        raise raised[0]
