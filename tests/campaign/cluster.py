"""One whole service on this machine: a broker, Redis behind a proxy, and the processes as an operator runs them."""

import os
import shutil
import sys
from contextlib import ExitStack

from campaign.processes import Guard, Worker
from campaign.proxy import Proxy
from campaign.server import RedisServer
from campaign.sharded import ShardedRedis
from servers.kafka_broker import KafkaBroker
from streamtopic.signed import PublicKey, SigningKey, new_secret
from streamtopic.streams import TopicNames, open_log

MODEL = "faults"
_PROGRAM = (sys.executable, "-P", "-m", "streamtopic")
PARTITIONS = 4
# Short, so that a process that was stopped is replaced within a round; 6 s is the least that Kafka's brokers allow.
SESSION = 6.0
LEASE = 3.0
# Copies of Redis that a fault may set it back to.
_COPIES = 4

_SETTINGS = """
model = "{model}"
partitions = {partitions}
kafka = "{kafka}"
redis_url = "{redis}"
keys = "{keys}"
session_timeout = {session}
lease = {lease}
residue_max_age = 40
topics = 4
min_df = 3
max_df = 0.8
anchor_min_df = 0.15
max_forget_lag = 1
update_after = 0.3
capacity.share = 0.3
epsilon_budget = 20
keep_versions = 1000
"""


class Cluster:
    """The target of a campaign, as a context manager that leaves nothing running.

    folder: for data, keys and output.
    sharded: whether Redis is a cluster of three masters and three replicas; one server else.
    """

    def __init__(self, folder, *, sharded=False):
        self.sharded = sharded
        self.folder = folder
        self.names = TopicNames(MODEL)
        self.config = folder / "streamtopic.toml"
        self.copies = []
        self._stack = ExitStack()
        self._copied = 0

    def __enter__(self):
        try:
            return self._start()
        except BaseException:
            # Python does not call __exit__ where __enter__ has raised.
            self._stack.close()
            raise

    def __exit__(self, kind, error, at):
        self._stack.close()

    def _start(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        guard = self._stack.enter_context(Guard())
        self.kafka = self._stack.enter_context(KafkaBroker(self.folder / "kafka"))
        self.proxy = self._stack.enter_context(Proxy())
        self._configure(self._start_redis())
        self._create_topics()
        # The environment of the person who runs the campaign must not change the settings of the service.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STREAMTOPIC_")}
        # Several programs share this machine: none may take all of its cores for a product of small matrices.
        environment |= {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.ingests = [self._worker("ingest", number, guard, environment) for number in range(2)]
        self.schedulers = [self._worker("schedule", number, guard, environment) for number in range(2)]
        self.guests = [self._worker("ingest", number, guard, environment) for number in range(2, 5)]
        for worker in self.workers:
            self._stack.callback(worker.kill)
        return self

    @property
    def staff(self):
        """The processes that must run unless a fault prevents it."""
        return [*self.ingests, *self.schedulers]

    @property
    def workers(self):
        """The staff, and the ingests that join and leave in a rebalance storm."""
        return [*self.staff, *self.guests]

    @property
    def public_key(self):
        """The key that verifies the ledger."""
        return PublicKey.load(self.folder / "keys" / "signing.pub")

    def copy(self):
        """Keep a copy of Redis's data, to which a fault may set it back. The oldest of several is dropped."""
        self._copied += 1
        to = self.folder / "copies" / str(self._copied)
        self.redis.copy(to)
        self.copies.append(to)
        if len(self.copies) > _COPIES:
            shutil.rmtree(self.copies.pop(0))

    def deaths(self):
        """Return which processes ended by themselves, each with its last output; each end is told once."""
        found = []
        for worker in self.workers:
            worker.check()
            found += [f"{worker.name} ended with status {status}:\n{worker.tail(8)}" for status in worker.deaths]
            worker.deaths.clear()
        return found

    def _worker(self, part, number, guard, environment):
        name = f"{part}-{number}"
        command = [*_PROGRAM, part, "--config", str(self.config)]
        return Worker(name, command, self.folder / f"{name}.log", guard, environment)

    def _start_redis(self):
        """Start one server or a cluster, and return its address, which leads through the proxy."""
        folder = self.folder / "redis"
        if self.sharded:
            self.redis = ShardedRedis(folder, self.proxy, MODEL, PARTITIONS)
        else:
            self.redis = RedisServer(folder, self.proxy)
        self._stack.callback(self.redis.stop)
        self.redis.settle()
        return self.redis.address

    def _configure(self, redis_url):
        keys = self.folder / "keys"
        keys.mkdir()
        SigningKey.generate(MODEL).save(keys / "signing.key")
        new_secret(keys / "noise.key")
        new_secret(keys / "receipt.key")
        text = _SETTINGS.format(
            model=MODEL,
            partitions=PARTITIONS,
            kafka=self.kafka.servers,
            redis=redis_url,
            keys=keys,
            session=SESSION,
            lease=LEASE,
        )
        self.config.write_text(text, "utf-8")

    def _create_topics(self):
        log, _ = open_log(self.kafka.servers)
        try:
            for topic, settings in self.names.settings().items():
                log.create(topic, PARTITIONS if topic == self.names.documents else 1, settings)
        finally:
            log.close()
