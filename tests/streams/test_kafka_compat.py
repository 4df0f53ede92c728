"""Each fault of kafka-python that is put right: the installed version has it; where it does not, the repair can go."""

import contextlib
import importlib.util
import socket
import ssl
import struct
from collections import Counter

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaConnectionError
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaTCPTransport

from streamtopic.streams import KafkaLog, KafkaOptions, Message, kafka_compat
from streamtopic.streams.kafka_compat import NetClient, connect_or_close, data_before_end, give_up, let_go, noted
from waiting import until

# The function that the repair replaces, from a copy of its module that nobody has repaired.
_copy = importlib.util.module_from_spec(importlib.util.find_spec("kafka.net.inet"))
_copy.__spec__.loader.exec_module(_copy)
ORIGINAL = _copy.KafkaNetSocket.connect


class Listener:
    """What a connection hears, in order."""

    def __init__(self):
        self.heard = []
        self._sensors = None

    def data_received(self, data):
        self.heard.append(bytes(data))

    def connection_lost(self, error):
        self.heard.append(type(error).__name__)

    def fail_in_flight_requests(self, error):
        pass


def heard(wrap):
    """Return what a connection hears of a peer that answers and hangs up at once."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.sendall(b"refused")
    theirs.close()
    network = NetworkSelector()
    transport = KafkaTCPTransport(network, ours, host="broker")
    listener = Listener()
    transport._sock_recv = wrap(transport._sock_recv)
    transport.set_protocol(listener)
    transport.resume_reading()
    for _ in range(20):
        network.poll(timeout_ms=50)
    network.close()
    return listener.heard


def test_the_last_words_of_a_broker_are_heard():
    """A refusal that comes together with the end of the connection reaches the client."""
    assert heard(data_before_end) == [b"refused", "KafkaConnectionError"]


def test_the_last_words_are_lost_without_the_repair():
    """kafka-python drops them; `data_before_end` can go when this fails."""
    assert heard(lambda receive: receive) == ["KafkaConnectionError"]


def test_a_delay_is_given_in_seconds_without_the_repair():
    """A producer takes it for milliseconds; `NetClient.connection_delay` can go when this fails."""
    delays = {}
    for kind in (KafkaNetClient, NetClient):
        client = kind(bootstrap_servers=["127.0.0.1:1"], reconnect_backoff_ms=10_000, reconnect_backoff_max_ms=10_000)
        with contextlib.closing(client):
            client._manager.update_backoff("bootstrap-0")
            delays[kind] = client.connection_delay("bootstrap-0")
        client._net.close()
    assert 5 < delays[KafkaNetClient] < 13
    assert 5_000 < delays[NetClient] < 13_000


class Refused:
    """A socket that no broker takes."""

    def __init__(self):
        self.closed = False

    def setblocking(self, flag):
        pass

    def close(self):
        self.closed = True


@pytest.mark.parametrize("end", [KafkaConnectionError("refused"), GeneratorExit()], ids=["refused", "client closed"])
def test_a_socket_that_is_not_connected_is_closed(end, monkeypatch):
    """kafka-python leaves it to the collector; `connect_or_close` can go when the second half fails."""

    async def fails(*_, **__):
        raise end

    given = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 1))
    left = {}
    for connect in (connect_or_close, ORIGINAL):
        factory, made = KafkaNetSocket(), Refused()
        monkeypatch.setattr(factory, "socket", lambda *_, made=made: made)
        monkeypatch.setattr(factory, "sock_connect", fails)
        with pytest.raises(type(end)):
            connect(factory, None, given).send(None)
        left[connect] = made.closed
    assert left == {connect_or_close: True, ORIGINAL: False}


def test_a_connection_with_a_request_to_send_is_closed(kafka_server):
    """kafka-python leaves its socket to the collector; `NetClient.close` can go when the second half fails."""
    left = {}
    for kind in (NetClient, KafkaNetClient):
        consumer = KafkaConsumer(bootstrap_servers=kafka_server.servers, group_id=None, kafka_client=kind)
        consumer.topics()
        (transport, *_) = [one.transport for one in consumer._client._manager._conns.values() if one.connected]
        # As if the broker had stopped to read: what is sent stays in the buffer.
        transport._writing = True
        transport.write(b"a request")
        connection = transport._sock
        consumer.close()
        left[kind] = connection.fileno() >= 0
        connection.close()
    assert left == {NetClient: False, KafkaNetClient: True}


def whole_after_a_pause(servers, topic, sizes, repair):
    """Read one partition a little, pause it, read the other one to its end; return whether the first one goes on."""
    consumer = KafkaConsumer(bootstrap_servers=servers, group_id=None, fetch_max_wait_ms=50)
    places = [TopicPartition(topic, partition) for partition in range(len(sizes))]
    taken = Counter()

    def took(**options):
        repair(consumer)
        taken.update({place: len(some) for place, some in consumer.poll(timeout_ms=200, **options).items()})
        return taken

    with contextlib.closing(consumer):
        consumer.assign(places)
        for place in places:
            consumer.seek(place, 0)
        until(lambda: took(max_records=1))
        (first,) = taken
        (other,) = (place for place in places if place != first)
        consumer.pause(first)
        until(lambda: took()[other] == sizes[other.partition])
        consumer.resume(first)
        for _ in range(20):
            took()
    return taken[first] == sizes[first.partition]


@pytest.mark.slow
def test_a_partition_that_was_paused_goes_on_when_it_is_resumed(kafka_server):
    """kafka-python keeps its records for ever, if another one was read to its end; `let_go` can go when this fails."""
    with KafkaLog(KafkaOptions(kafka_server.servers)) as log:
        log.create("paused", 2)
        log.append_many("paused", [Message(b"%d" % k, b"x") for k in range(400)])
        sizes = [log.end("paused", partition) for partition in range(2)]
    assert whole_after_a_pause(kafka_server.servers, "paused", sizes, let_go)
    assert not whole_after_a_pause(kafka_server.servers, "paused", sizes, lambda _: None)


def test_a_client_whose_end_fails_gives_its_sockets_back(kafka_server):
    """kafka-python leaves them open where leaving its group fails; `give_up` can be a plain `close` when this fails."""

    def broken(**_):
        raise OSError("the broker is gone")

    consumer = KafkaConsumer(bootstrap_servers=kafka_server.servers, group_id=None)
    consumer._coordinator.close = broken
    with contextlib.suppress(OSError):
        consumer.close()
    assert consumer._client._net._wakeup_r.fileno() >= 0
    give_up(consumer)
    assert consumer._client._net._wakeup_r.fileno() < 0


def after_a_lost_request(kind, servers):
    """Return the socket of a connection that was closed with a request to send, and reset by the broker then."""
    consumer = KafkaConsumer(bootstrap_servers=servers, group_id=None, kafka_client=kind)
    with contextlib.closing(consumer):
        consumer.topics()
        client = consumer._client
        (transport, *_) = [one.transport for one in client._manager._conns.values() if one.connected]
        connection = transport._sock

        sent = []

        def lost():
            transport._write_buffer.clear()
            sent.append("lost")
            return 0, KafkaConnectionError("reset")

        def closes():
            transport.write(b"a request")
            transport.close()

        transport._sock_send = lost
        client._net.call_soon_threadsafe(closes)
        until(lambda: sent and not transport._writing, what="the loss")
    return connection


def test_a_connection_that_is_lost_while_it_is_closed_is_closed(kafka_server):
    """kafka-python lets go of the open socket; `NetClient._close_lost` can go when the second half fails."""
    left = {}
    for kind in (NetClient, KafkaNetClient):
        connection = after_a_lost_request(kind, kafka_server.servers)
        left[kind] = connection.fileno() >= 0
        connection.close()
    assert left == {NetClient: False, KafkaNetClient: True}


def reset_connection():
    """Return a connection that the other side has reset."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
    until(lambda: not connected(ours), what="the reset")
    return ours


def connected(connection):
    """Tell whether a socket has a peer."""
    try:
        connection.getpeername()
    except OSError:
        return False
    return True


def test_a_connection_that_is_reset_before_tls_is_left_open_by_python():
    """`noted` can go when it is closed."""
    made = []
    context = noted(ssl.create_default_context(), made)
    with pytest.raises(OSError, match="reset"):
        context.wrap_socket(reset_connection(), server_hostname="broker", do_handshake_on_connect=False)
    (left,) = made
    assert left.fileno() >= 0
    left.close()


def test_a_connection_that_is_reset_before_tls_is_closed(monkeypatch):
    """The client closes the socket that Python leaves open."""
    made = []

    async def reset(*_, **__):
        return reset_connection()

    def watched(context, sockets):
        made.append(sockets)
        return noted(context, sockets)

    monkeypatch.setattr(kafka_compat, "create_connection", reset)
    monkeypatch.setattr(kafka_compat, "noted", watched)
    with contextlib.closing(NetClient(bootstrap_servers=["127.0.0.1:1"], security_protocol="SSL")) as client:
        (node, *_) = client._manager.cluster.bootstrap_brokers()
        with pytest.raises(OSError, match="reset"):
            client._secured(node).send(None)
    ((connection,),) = made
    assert connection.fileno() < 0
