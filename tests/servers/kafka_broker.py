"""Kafka brokers that accidents happen to: one, and three that stand in for one another."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

from kafka import KafkaAdminClient, errors

from servers.node import Group, Node
from servers.ports import quiet_ports
from streamtopic.local import LocalKafka
from streamtopic.local.child import private_folder
from streamtopic.local.local_kafka import new_cluster_id, properties_of
from streamtopic.streams import KafkaOptions
from waiting import until

QUICK = {
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "group.min.session.timeout.ms": 1000,
    # Compaction and retention act within seconds if a topic's settings allow it.
    "log.cleaner.backoff.ms": 1000,
    "log.retention.check.interval.ms": 1000,
    "log.initial.task.delay.ms": 1000,
    # A broker that was killed can join again only after its session has ended, by default after 9 s.
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 500,
}
"""Properties of a broker that compacts and fails over soon."""


class KafkaBroker(Node, LocalKafka):
    """A broker that goes on where it stopped, in its folder and on its port, also after `kill`.

    directory: folder of its data, None for a temporary one.
    port: of the broker; None for a free one.
    properties: properties of the broker that replace those chosen here.
    cluster: id of the cluster that it belongs to; None for one of its own.
    """

    def __init__(self, directory=None, *, port=None, properties=None, cluster=None):
        super().__init__()
        self._directory = None if directory is None else Path(directory).absolute()
        self._port = port or self._port
        self._cluster = cluster or self._cluster
        self._properties = QUICK | (properties or {})

    def start(self):
        """Start the broker and wait until it answers. Starting twice is harmless."""
        if self._server is None:
            folder = self._directory
            if folder is None:
                folder = self._temporary = self._temporary or Path(tempfile.mkdtemp(prefix="streamtopic-kafka-"))
            private_folder(folder)
            self._launch(folder, properties_of(folder, self._port) | self._properties)
        return self


class LocalKafkaCluster(Group):
    """Three brokers, each a controller too. Topics have three replicas, of which two must confirm a record.

    Raises ComponentUnreachable if a broker cannot be found or started.
    """

    @property
    def servers(self):
        """Addresses for clients."""
        return ",".join(node.servers for node in self.nodes)

    def start(self):
        """Start all brokers, those that were killed too, and wait until each knows all of them."""
        super().start()
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            # Read, so that the error of one is raised. None answers before two of them can vote.
            list(pool.map(KafkaBroker.start, self.nodes))
        self.await_brokers(len(self.nodes))
        return self

    def await_brokers(self, count):
        """Wait until each broker that runs knows `count` brokers."""
        for node in self.nodes:
            if node.pid is not None:
                with closing(KafkaAdminClient(**KafkaOptions(node.servers).client())) as admin:
                    until(lambda ask=admin: _known(ask) == count, f"{count} brokers")

    def _launch(self, folder):
        ports = quiet_ports(6)
        voters = [f"{number}@127.0.0.1:{port}" for number, port in enumerate(ports[3:], 1)]
        common = {
            "controller.quorum.voters": ",".join(voters),
            "default.replication.factor": 3,
            "min.insync.replicas": 2,
            "offsets.topic.replication.factor": 3,
            "transaction.state.log.replication.factor": 3,
            "transaction.state.log.min.isr": 2,
            # A replica that does not follow for so long is not waited for any more, by default 30 s.
            "replica.lag.time.max.ms": 4000,
        }
        cluster = new_cluster_id()
        for number, port in enumerate(ports[:3], 1):
            listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{ports[number + 2]}"
            own = {"node.id": number, "listeners": listeners}
            self.nodes.append(KafkaBroker(folder / str(number), port=port, properties=common | own, cluster=cluster))


def _known(admin):
    """Return how many brokers are known, 0 if the one that is asked was lost a moment ago."""
    with suppress(errors.KafkaError):
        return sum(not broker["is_fenced"] for broker in admin.describe_cluster()["brokers"])
    return 0
