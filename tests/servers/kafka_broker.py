"""One Kafka broker that accidents happen to."""

import signal
import tempfile
from pathlib import Path

from streamtopic.local import LocalKafka
from streamtopic.local.child import private_folder
from streamtopic.local.local_kafka import properties_of

QUICK = {
    "transaction.state.log.num.partitions": 1,
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


class KafkaBroker(LocalKafka):
    """A broker that goes on where it stopped, in its folder and on its port, also after `kill`.

    directory: folder of its data, None for a temporary one.
    port: of the broker; None for a free one.
    properties: properties of the broker that replace those chosen here.
    """

    def __init__(self, directory=None, *, port=None, properties=None):
        super().__init__()
        self._directory = None if directory is None else Path(directory).absolute()
        self._port = port or self._port
        alone = {"transaction.state.log.replication.factor": 1, "transaction.state.log.min.isr": 1}
        self._properties = QUICK | alone | (properties or {})

    def start(self):
        """Start the broker and wait until it answers. Starting twice is harmless."""
        if self._child is None:
            folder = self._directory
            if folder is None:
                folder = self._temporary = self._temporary or Path(tempfile.mkdtemp(prefix="streamtopic-kafka-"))
            private_folder(folder)
            self._launch(folder, properties_of(folder, self._port) | self._properties)
        return self

    def kill(self):
        """End the broker as kill -9 does."""
        self._end(signal.SIGKILL)
