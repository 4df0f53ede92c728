"""Repairs of kafka-python, in one place. Each method names the version that needed it.

tests/streams/test_kafka_compat.py shows each fault in the installed version, and fails when a repair is not needed any
more.
"""

from collections.abc import Callable
from typing import Any

from kafka import errors
from kafka.net.compat import KafkaNetClient

__all__ = ["REFUSED", "NetClient", "data_before_end"]

REFUSED = (
    errors.AuthorizationError,
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,
)
"""Errors with which a broker refuses a user."""


class NetClient(KafkaNetClient):  # type: ignore[misc]  # kafka-python is untyped
    """The network of one client.

    refused: the error with which a broker refused the user, None if none did.
    """

    def __init__(self, **configuration: Any) -> None:  # noqa: ANN401 - kafka-python's arguments
        super().__init__(**configuration)
        self.refused: Exception | None = None
        self._open = self._manager.get_connection
        self._manager.get_connection = self._watched
        self._build = self._manager._build_transport
        self._manager._build_transport = self._built

    def connection_delay(self, node_id: object) -> float:
        """Return milliseconds, as a producer expects: 3.0.12 gives seconds, and the producer spins."""
        return 1000.0 * float(super().connection_delay(node_id))

    def _watched(self, *place: Any, **options: Any) -> Any:  # noqa: ANN401 - as above
        connection = self._open(*place, **options)
        connection.init_future.add_errback(self._note)
        return connection

    def _note(self, error: Exception) -> None:
        """Keep a refusal and stop. 3.0.12 only logs it while it looks for a first broker, and goes on trying."""
        if isinstance(error, REFUSED):
            self.refused = error
            if not self._manager.bootstrapped:
                self._net.call_soon(self._manager.close)

    async def _built(self, *place: Any, **options: Any) -> Any:  # noqa: ANN401 - as above
        """Return a transport that keeps the last answer of a broker: 3.0.12 drops it if the end follows at once."""
        transport = await self._build(*place, **options)
        transport._sock_recv = data_before_end(transport._sock_recv)
        return transport


Receive = Callable[[], tuple[bytes, Exception | None]]


def data_before_end(receive: Receive) -> Receive:
    """Return a function like `receive`. An error that came together with bytes is returned by its next call instead."""
    held: list[Exception] = []

    def received() -> tuple[bytes, Exception | None]:
        if held:
            return b"", held.pop()
        data, error = receive()
        if data and error is not None:
            held.append(error)
            error = None
        return data, error

    return received
