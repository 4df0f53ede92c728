"""Repairs of kafka-python, in one place. Each method names the version that needed it.

tests/streams/test_kafka_compat.py shows each fault in the installed version, and fails when a repair is not needed any
more.
"""

import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Self

from kafka import errors
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket, create_connection
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from streamtopic.security.tls_faults import tls_fault

__all__ = ["REFUSED", "NetClient", "TlsRefused", "connect_or_close", "data_before_end", "give_up", "let_go", "noted"]


class TlsRefused(errors.KafkaConnectionError):  # type: ignore[misc]  # kafka-python is untyped
    """No connection is possible with these settings of TLS. Its argument is the fault and the remedy."""


REFUSED = (
    errors.AuthorizationError,
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,
)
"""Errors with which a broker refuses a user."""


async def connect_or_close(
    factory: KafkaNetSocket,
    network: Any,  # noqa: ANN401 - kafka-python's
    address: tuple[Any, ...],
    options: Sequence[tuple[Any, ...]] = (),
    timeout_at: float | None = None,
) -> socket.socket:
    """Return a socket that is connected. 3.0.12 leaves it open if the broker refuses, or a client is closed meanwhile.

    address: as getaddrinfo returns it. options: of the socket.
    """
    family, kind, protocol, _, place = address
    plain: socket.socket = factory.socket(family, kind, protocol)
    try:
        plain.setblocking(False)  # noqa: FBT003 - no keyword
        for option in options:
            plain.setsockopt(*option)
        await factory.sock_connect(network, plain, place, timeout_at=timeout_at)
    except BaseException:
        plain.close()
        raise
    return plain


# The class itself, since kafka-python makes its factories by name.
KafkaNetSocket.connect = connect_or_close


class NetClient(KafkaNetClient):  # type: ignore[misc]  # kafka-python is untyped
    """The network of one client.

    refused: the error with which a broker refused the user, or with which TLS failed for good; None if none did.
    """

    def __init__(self, **configuration: Any) -> None:  # noqa: ANN401 - kafka-python's arguments
        super().__init__(**configuration)
        self.refused: Exception | None = None
        self._sockets: dict[KafkaTCPTransport, socket.socket] = {}
        self._open = self._manager.get_connection
        self._manager.get_connection = self._watched
        self._build = self._manager._build_transport
        self._manager._build_transport = self._built

    def connection_delay(self, node_id: object) -> float:
        """Return milliseconds, as a producer expects: 3.0.12 gives seconds, and the producer spins."""
        return 1000.0 * float(super().connection_delay(node_id))

    def close(self, node_id: object = None) -> None:
        """Close the connection to a node, or all. 3.0.12 leaves a socket open that has a request yet to send."""
        super().close(node_id)
        if node_id is None:
            for connection in self._sockets.values():
                connection.close()

    def _watched(self, *place: Any, **options: Any) -> Any:  # noqa: ANN401 - as above
        connection = self._open(*place, **options)
        connection.init_future.add_errback(self._note)
        return connection

    def _note(self, error: Exception) -> None:
        """Keep a refusal and stop. 3.0.12 only logs it while it looks for a first broker, and goes on trying."""
        fault = tls_fault(error)
        if fault is not None:
            # The error itself loses its cause where it is raised again.
            error = TlsRefused(fault)
        if isinstance(error, (*REFUSED, TlsRefused)):
            self.refused = error
            if not self._manager.bootstrapped:
                self._net.call_soon(self._manager.close)

    async def _built(self, *place: Any, **options: Any) -> Any:  # noqa: ANN401 - as above
        """Return a transport that keeps the last answer of a broker: 3.0.12 drops it if the end follows at once."""
        secured = self._manager.ssl_enabled
        transport = await (self._secured(*place, **options) if secured else self._build(*place, **options))
        self._close_lost()
        self._sockets[transport] = transport._sock
        transport._sock_recv = data_before_end(transport._sock_recv)
        if not secured:
            transport._sock_recv = _without_tls(transport._sock_recv)
        return transport

    def _close_lost(self) -> None:
        """Close sockets whose last request could not be sent. 3.0.12 lets go of them without closing them."""
        for transport, connection in list(self._sockets.items()):
            if transport.is_closing() and not transport._writing:
                connection.close()
                del self._sockets[transport]

    async def _secured(self, node: Any, timeout_at: float | None = None) -> KafkaSSLTransport:  # noqa: ANN401 - as above
        """Return a transport over TLS. 3.0.12 leaves the socket open if a handshake fails, and waits for ever."""
        given = self._manager.config
        proxy = given["proxy_url"]
        plain = await create_connection(
            self._net, node.host, node.port, given["socket_options"], proxy_url=proxy, timeout_at=timeout_at
        )
        options = {name: value for name, value in given.items() if name.startswith("ssl_")}
        made: list[ssl.SSLSocket] = []
        try:
            options["ssl_context"] = noted(KafkaSSLTransport._build_ssl_context(options), made)
            transport = KafkaSSLTransport(self._net, plain, host=node.host, **options)
        # Also if a client that is closed ends this step in the middle.
        except BaseException:
            # Python's own wrapper leaves its socket open if the connection was reset by now.
            for connection in (plain, *made):
                connection.close()
            raise
        try:
            await self._shake_hands(transport._sock, timeout_at)
        except Exception as error:
            transport.close()
            raise errors.KafkaConnectionError(f"TLS handshake failed: {error}") from error
        except BaseException:
            transport.close()
            raise
        return transport

    async def _shake_hands(self, connection: ssl.SSLSocket, timeout_at: float | None) -> None:
        while True:
            try:
                connection.do_handshake()
            except ssl.SSLWantReadError:
                await self._net.wait_read(connection, timeout_at)
            except ssl.SSLWantWriteError:
                await self._net.wait_write(connection, timeout_at)
            else:
                return


def noted(context: ssl.SSLContext, made: list[ssl.SSLSocket]) -> ssl.SSLContext:
    """Return the context. Each socket that it wraps is added to `made` before anything can fail."""

    class Noted(ssl.SSLSocket):
        def __new__(cls, *arguments: Any, **options: Any) -> Self:  # noqa: ANN401 - of socket.socket
            connection = super().__new__(cls, *arguments, **options)
            made.append(connection)
            return connection

    context.sslsocket_class = Noted
    return context


def give_up(client: Any, **limits: Any) -> None:  # noqa: ANN401 - a client of kafka-python, and arguments of its `close`
    """Close a client, whatever happens. 3.0.12 leaves its network open if a step before that fails."""
    # It is given up in any case, so an error of its end does not matter.
    with suppress(Exception):
        client.close(**limits)
    with suppress(Exception):
        client._client.close()
    # A producer's network is closed by its own thread, once that is told to end.
    with suppress(Exception):
        client._sender.force_close()


def let_go(consumer: Any) -> None:  # noqa: ANN401 - a consumer of kafka-python
    """Let go of an answer whose records are all taken.

    3.0.12 keeps it, and then never goes back to the records of a partition that was paused behind it and resumed since:
    they are held for ever, and nothing more of that partition is fetched.
    """
    fetcher = consumer._fetcher
    if not fetcher._next_partition_records:
        fetcher._next_partition_records = None


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


# A record of TLS that holds an alert. Read as the size of an answer of Kafka, it would be 353 MB.
_TLS_ALERT = b"\x15\x03"
_WITH_TLS = "it speaks TLS and this client does not: set kafka_security_protocol to SASL_SSL or SSL"


def _without_tls(receive: Receive) -> Receive:
    """Return a function like `receive` that ends with TlsRefused if the other side begins with an alert of TLS."""
    begun = False

    def received() -> tuple[bytes, Exception | None]:
        nonlocal begun
        data, error = receive()
        if data and not begun and data.startswith(_TLS_ALERT):
            return b"", TlsRefused(_WITH_TLS)
        begun = begun or bool(data)
        return data, error

    return received
