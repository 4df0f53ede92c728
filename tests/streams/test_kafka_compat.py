"""Each fault of kafka-python that is put right: the installed version has it; where it does not, the repair can go."""

import contextlib
import socket

import pytest
from kafka import KafkaConsumer
from kafka.net.compat import KafkaNetClient
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaTCPTransport

from streamtopic.errors import ComponentUnreachable
from streamtopic.streams import KafkaOptions
from streamtopic.streams.kafka_compat import NetClient, data_before_end, give_up
from streamtopic.streams.kafka_log import KafkaLog


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


def test_a_handshake_that_never_ends_is_given_up():
    """A server takes connections and says nothing: kafka-python waits for ever, `NetClient` until its time is up."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = KafkaOptions(f"127.0.0.1:{silent.getsockname()[1]}", "SSL", patience=0.5)
        with KafkaLog(options) as log, pytest.raises(ComponentUnreachable, match="does not answer"):
            log.partitions("t")


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
