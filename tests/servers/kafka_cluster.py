"""Kafka brokers on this machine that stand in for one another."""

import atexit
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from servers.kafka_broker import QUICK
from servers.node import Node
from streamtopic.errors import ComponentUnreachable
from streamtopic.local.child import Child, failure_reason
from streamtopic.local.local_kafka import (
    COMMON_PROPERTIES,
    brokers_seen,
    free_broker_port,
    java_command,
    new_cluster_id,
    prepare_storage,
    write_properties,
)
from waiting import PATIENCE

_HEAP_MB = 256
_ATTEMPTS = 3


class KafkaNode(Node):
    """One broker of a cluster, which is one of its controllers too. It can be killed and started again.

    number: of the node, from 1.
    folder: of its files.
    """

    def __init__(self, number, folder):
        super().__init__()
        self.number = number
        self.folder = folder
        # For clients, for the other brokers, and for the controllers.
        self.port, self.internal, self.controller = (free_broker_port() for _ in range(3))
        self._begin = 0

    @property
    def place(self):
        """Host and port for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def log(self):
        """The file of the broker's own log."""
        return self.folder / "kafka.log"

    def launch(self, command):
        """Start the broker without waiting for it. Starting twice is harmless."""
        if self._server is None:
            self._begin = self.log.stat().st_size if self.log.exists() else 0
            properties = str(self.folder / "server.properties")
            self._server = Child([*command, "kafka.Kafka", properties], self.log, None, None)

    def check(self):
        """Raise ComponentUnreachable where the broker has ended by itself."""
        if self._server is None or not self._server.running:
            reason = failure_reason(self.log, self._begin)
            raise ComponentUnreachable(f"Kafka broker {self.number} did not start: {reason} (see {self.log})")


class LocalKafkaCluster:
    """Kafka brokers (KRaft, each a controller too) on ports of the loopback, in one temporary folder.

    brokers: how many. Topics have as many replicas, three at most, of which two must confirm a record where there are
        three.
    properties: properties of each broker that replace those chosen here.

    Raises ComponentUnreachable where a broker cannot be found or started.
    """

    def __init__(self, brokers=3, *, properties=None):
        self._brokers = brokers
        self._properties = dict(properties or {})
        self._command = []
        self._folder = None
        self.nodes = []

    @property
    def servers(self):
        """Addresses for clients. Raises ComponentUnreachable before `start`."""
        self._started()
        return ",".join(node.place for node in self.nodes)

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, error, at):
        self.stop()

    def start(self):
        """Start all brokers, those that were killed too, and wait until each knows all of them."""
        if self._folder is None:
            self._command = java_command(heap_mb=_HEAP_MB)
            atexit.register(self.stop)
            for attempt in range(_ATTEMPTS):
                try:
                    self._make()
                except ComponentUnreachable as error:
                    # Another program may have taken a port since it was found free.
                    again = "already in use" in str(error) and attempt < _ATTEMPTS - 1
                    self.stop()
                    if not again:
                        raise
                except BaseException:
                    self.stop()
                    raise
                else:
                    return self
        for node in self.nodes:
            node.launch(self._command)
        self.await_brokers(self._brokers)
        return self

    def stop(self):
        """Stop the brokers and remove what they held. Stopping twice is harmless."""
        atexit.unregister(self.stop)
        for node in self.nodes:
            # It is all going to be removed, so nobody need wait until a broker has handed its work over.
            node.kill()
        self.nodes = []
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def await_brokers(self, count):
        """Wait until each broker that runs knows `count` brokers. Raises ComponentUnreachable."""
        deadline = time.monotonic() + PATIENCE
        for node in self.nodes:
            while node.pid is not None and brokers_seen(node.internal) != count:
                node.check()
                if time.monotonic() > deadline:
                    told = f"the local Kafka is not ready after {PATIENCE:.0f} s"
                    raise ComponentUnreachable(f"{told}: is this machine very busy?")
                time.sleep(0.05)

    def _started(self):
        if not self.nodes:
            raise ComponentUnreachable("the local Kafka is not running: start it first")

    def _make(self):
        """Make the files of all brokers, and start them."""
        folder = self._folder = Path(tempfile.mkdtemp(prefix="streamtopic-kafka-"))
        self.nodes = [KafkaNode(number, folder / str(number)) for number in range(1, self._brokers + 1)]
        cluster = new_cluster_id()

        def prepare(node):
            node.folder.mkdir(mode=0o700)
            write_properties(node.folder, self._properties_of(node) | self._properties)
            prepare_storage(node.folder, self._command, cluster)

        with ThreadPoolExecutor(len(self.nodes)) as pool:
            # Read, so that the error of one is raised.
            list(pool.map(prepare, self.nodes))
        for node in self.nodes:
            node.launch(self._command)
        self.await_brokers(self._brokers)

    def _properties_of(self, node):
        doors = {"CLIENTS": node.port, "INTERNAL": node.internal}
        advertised = [f"{name}://127.0.0.1:{port}" for name, port in doors.items()]
        voters = [f"{other.number}@127.0.0.1:{other.controller}" for other in self.nodes]
        copies = min(self._brokers, 3)
        confirming = max(copies - 1, 1)
        return {
            **COMMON_PROPERTIES,
            **QUICK,
            "process.roles": "broker,controller",
            "node.id": node.number,
            "controller.quorum.voters": ",".join(voters),
            "listeners": ",".join([*advertised, f"CONTROLLER://127.0.0.1:{node.controller}"]),
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "INTERNAL",
            "log.dirs": node.folder / "data",
            "default.replication.factor": copies,
            "min.insync.replicas": confirming,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": confirming,
            # A replica that does not follow for so long is not waited for any more, by default 30 s.
            "replica.lag.time.max.ms": 4000,
        }
