"""One whole service on this machine: a broker, a Redis behind a proxy, and the processes as an operator runs them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from streamtopic.lab.faults.processes import Guard, Worker, free_port
from streamtopic.lab.faults.proxy import Proxy
from streamtopic.lab.faults.server import RedisServer
from streamtopic.local.local_kafka import LocalKafka
from streamtopic.local.local_redis import write_anew
from streamtopic.signed import PublicKey, new_secret, new_signing_key
from streamtopic.streams import TopicNames, open_log

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

__all__ = ["LEASE", "MODEL", "PARTITIONS", "SESSION", "Cluster"]

MODEL = "faults"
PARTITIONS = 4
SESSION = 6.0
LEASE = 3.0
_COPIES = 4

_SETTINGS = """
model = "{model}"
partitions = {partitions}
kafka = "{kafka}"
redis_url = "redis://127.0.0.1:{redis}/0"
signing_key = "{keys}/signing.pem"
noise_key = "{keys}/noise.key"
receipt_key = "{keys}/receipt.key"
session_timeout = {session}
lease = {lease}
linger = 0.1
heartbeat = 5
topics = 4
min_df = 3
max_df = 0.8
anchor_min_df = 0.15
max_forget_lag = 1
update_after = 0.3
capacity_share = 0.3
epsilon_budget = 20
keep_versions = 1000
"""


# Transactions that are left open end soon after their time.
_BROKER = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
_ANSWER_SECONDS = 300.0


class Cluster:
    """Everything that a campaign does harm to, as a context manager; it leaves nothing running.

    folder: data, keys and output. program: how a process is started, before the name of its part.
    """

    def __init__(self, folder: Path, program: Sequence[str] = (sys.executable, "-m", "streamtopic")) -> None:
        self.folder = folder
        self.names = TopicNames(MODEL)
        self.config = folder / "streamtopic.toml"
        self.copies: list[Path] = []
        self._program = list(program)
        self._stack = ExitStack()
        self._copied = 0

    def __enter__(self) -> Self:
        try:
            return self._start()
        except BaseException:
            self._stack.close()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def _start(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        guard = self._stack.enter_context(Guard())
        self.kafka = self._stack.enter_context(LocalKafka(self.folder / "kafka", properties=_BROKER))
        self.redis = RedisServer(self.folder / "redis", free_port(), guard)
        self._stack.callback(self.redis.kill)
        self._stack.callback(self.redis.client.close)
        self.redis.start()
        self.proxy = self._stack.enter_context(Proxy(free_port(), self.redis.port))
        self._configure()
        self._create_topics()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STREAMTOPIC_")}
        # Seven programs share this machine: none may take all of its cores for a product of small matrices.
        environment |= {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._environment = environment
        self.ingests = [self._worker("ingest", number, guard, environment) for number in range(2)]
        self.schedulers = [self._worker("schedule", number, guard, environment) for number in range(2)]
        self.publishers = [self._worker("publish", 0, guard, environment)]
        self.guests = [self._worker("ingest", number, guard, environment) for number in range(2, 5)]
        for worker in self.workers:
            self._stack.callback(worker.kill)
        return self

    @property
    def staff(self) -> list[Worker]:
        """The processes that are to run whenever no fault keeps them from it."""
        return [*self.ingests, *self.schedulers, *self.publishers]

    @property
    def workers(self) -> list[Worker]:
        """The staff, and the ingests that come and go in a rebalance storm."""
        return [*self.staff, *self.guests]

    @property
    def public_key(self) -> PublicKey:
        """What releases and receipts verify with."""
        return PublicKey.load(self.folder / "keys" / "signing.pub")

    @property
    def url(self) -> str:
        """Redis without the proxy."""
        return f"redis://127.0.0.1:{self.redis.port}/0"

    def ask(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the program to its end."""
        return subprocess.run(  # noqa: S603  this program's own commands
            [*self._program, *command, "--config", str(self.config)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env=self._environment,
            timeout=_ANSWER_SECONDS,
        )

    def forget_copies(self) -> None:
        """Keep a new copy of Redis's data in place of all older ones; nor can the end of its file be lost any more."""
        write_anew(self.redis.client)
        while self.copies:
            shutil.rmtree(self.copies.pop())
        self.copy()

    def copy(self) -> None:
        """Keep a copy of Redis's data, to set it back to; the oldest of several goes."""
        self._copied += 1
        to = self.folder / "copies" / str(self._copied)
        self.redis.copy(to)
        self.copies.append(to)
        if len(self.copies) > _COPIES:
            shutil.rmtree(self.copies.pop(0))

    def deaths(self) -> list[str]:
        """Say which processes ended by themselves, with the last that they wrote; each end once."""
        found = []
        for worker in self.workers:
            worker.check()
            found += [f"{worker.name} ended with status {status}:\n{worker.tail(8)}" for status in worker.deaths]
            worker.deaths.clear()
        return found

    def _worker(self, part: str, number: int, guard: Guard, environment: Mapping[str, str]) -> Worker:
        name = f"{part}-{number}"
        command = [*self._program, part, "--config", str(self.config)]
        return Worker(name, command, self.folder / f"{name}.log", guard, environment)

    def _configure(self) -> None:
        keys = self.folder / "keys"
        keys.mkdir()
        new_signing_key(keys / "signing.pem", keys / "signing.pub")
        new_secret(keys / "noise.key")
        new_secret(keys / "receipt.key")
        text = _SETTINGS.format(
            model=MODEL,
            partitions=PARTITIONS,
            kafka=self.kafka.servers,
            redis=self.proxy.port,
            keys=keys,
            session=SESSION,
            lease=LEASE,
        )
        self.config.write_text(text, "utf-8")

    def _create_topics(self) -> None:
        log, _ = open_log(self.kafka.servers)
        try:
            for topic, settings in self.names.settings().items():
                log.create(topic, PARTITIONS if topic == self.names.documents else 1, settings)
        finally:
            log.close()
