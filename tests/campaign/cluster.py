"""One whole service on this machine: a broker, Redis behind a proxy, and the processes as an operator runs them."""

import os
import subprocess
import sys

from campaign.processes import Worker
from campaign.proxy import Proxy
from campaign.server import RedisServer, ShardedRedis
from servers.kafka_broker import KafkaBroker
from servers.ports import quiet_port
from streamtopic.signed import PublicKey
from streamtopic.state.connection import ModelKeys
from streamtopic.streams import TopicNames

MODEL = "faults"
PARTITIONS = 4
# Short, so that a process that was stopped is replaced within a round; 6 s is the least that Kafka's brokers allow.
SESSION = 6.0
LEASE = 3.0

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
    """The target of a campaign.

    folder: for data, keys and output.
    stack: an ExitStack, whose end leaves nothing running.
    sharded: whether Redis is a cluster of three masters and three replicas; one server else.

    ingests, schedulers: the processes that must run unless a fault prevents it.
    guests: ingests that join and leave in a rebalance storm.
    """

    def __init__(self, folder, stack, *, sharded=False):
        folder.mkdir(parents=True, exist_ok=True)
        self.sharded = sharded
        self.folder = folder
        self.names = TopicNames(MODEL)
        self.kafka = stack.enter_context(KafkaBroker(folder / "kafka"))
        self.proxy = stack.enter_context(Proxy())
        self.redis = self._redis(stack)
        self._settle_instance()
        self.ingests = [self._worker(stack, "ingest", number) for number in range(2)]
        self.schedulers = [self._worker(stack, "schedule", number) for number in range(2)]
        self.guests = [self._worker(stack, "ingest", number) for number in range(2, 5)]

    @property
    def staff(self):
        """The processes that must run unless a fault prevents it."""
        return [*self.ingests, *self.schedulers]

    @property
    def public_key(self):
        """The key that verifies the ledger."""
        return PublicKey.load(self.folder / "keys" / "signing.pub")

    def deaths(self):
        """Return which processes ended by themselves, each with its last output; each end is told once."""
        found = []
        for worker in (*self.staff, *self.guests):
            worker.check()
            found += [f"{worker.name} ended with status {status}:\n{worker.tail(8)}" for status in worker.deaths]
            worker.deaths.clear()
        return found

    def _redis(self, stack):
        keys = ModelKeys(MODEL)
        watched = [keys.named("base"), *(keys.partition(number).meta for number in range(PARTITIONS))]
        made = (ShardedRedis if self.sharded else RedisServer)(
            self.folder / "redis", lambda port: self.proxy.open(quiet_port(), port), watched
        )
        stack.callback(made.stop)
        return made

    def _settle_instance(self):
        """Write the settings, and make keys and topics as an operator does."""
        text = _SETTINGS.format(
            model=MODEL,
            partitions=PARTITIONS,
            kafka=self.kafka.servers,
            redis=self.redis.address,
            keys=self.folder / "keys",
            session=SESSION,
            lease=LEASE,
        )
        (self.folder / "streamtopic.toml").write_text(text, "utf-8")
        for command in (["keys", "new", "--to", str(self.folder / "keys")], ["init"]):
            subprocess.run(self._command(*command), check=True, stdout=subprocess.DEVNULL)

    def _command(self, *words):
        """Return a command of the program in an environment of its own."""
        # The environment of the person who runs the campaign must not change the settings of the service.
        unset = [f"--unset={name}" for name in os.environ if name.startswith("STREAMTOPIC_")]
        # Several programs share this machine: none may take all of its cores for a product of small matrices.
        alone = ["PYTHONUNBUFFERED=1", "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1"]
        program = [sys.executable, "-P", "-m", "streamtopic"]
        return ["env", *unset, *alone, *program, *words, "--config", str(self.folder / "streamtopic.toml")]

    def _worker(self, stack, part, number):
        name = f"{part}-{number}"
        worker = Worker(name, self._command(part), self.folder / f"{name}.log")
        stack.callback(worker.kill)
        return worker
