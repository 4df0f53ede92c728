"""The parts that every command and process is put together from, each started when it is first needed."""

from __future__ import annotations

import os
import secrets
import socket
import time
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Self

from streamtopic.errors import SettingsError, UsageError
from streamtopic.local import LocalRedis
from streamtopic.service import assembly
from streamtopic.service.instance import InstanceLock, Layout
from streamtopic.state import Connection, ModelSettings, ModelState, Reader
from streamtopic.streams import FileLog, TopicNames, open_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from streamtopic.settings import Settings
    from streamtopic.signing import PublicKey, SigningKey
    from streamtopic.streams import EventLog

__all__ = ["Parts"]


class Parts:
    """Log, Redis, keys and readers of one model, as a context manager.

    With settings.dir, an instance in that folder: what settings do not place elsewhere (Kafka, Redis, keys) is there,
    and one process at a time works on it. Without, the processes of a service next to its Kafka and Redis.

    resident: this process stays, so that commands send it events in place of waiting. kept: whether Redis's data must
    survive the process, where it is the instance's own. clock: seconds since 1970.
    leads: whether this process does the service's work on an instance; else others do, and commands only send events.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        resident: bool = False,
        kept: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if settings.dir is None and settings.kafka is None:
            raise UsageError("which instance? give --dir DIR, or the settings `kafka` and `redis_url` of a service")
        self.settings = settings
        self.layout = None if settings.dir is None else Layout(settings.dir)
        self.names = TopicNames(settings.model)
        self.clock = clock
        self._kept = kept
        self._resident = resident
        self._stack = ExitStack()
        self.leads = False

    def __enter__(self) -> Self:
        try:
            if self.layout is not None:
                lock = InstanceLock(self.layout.root, service=self._resident)
                self.leads = lock.acquire()
                self._stack.callback(lock.release)
                self._create(self.layout)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _create(self, layout: Layout) -> None:
        """Make what an instance in a folder needs and is not there yet."""
        for topic, settings in self.topic_settings.items():
            self.log.create(topic, self.settings.partitions if topic == self.names.documents else 1, settings)
        _ = self.signing_key, self.noise_key, self.receipt_secret
        layout.initialised.touch()

    @property
    def topic_settings(self) -> dict[str, dict[str, str]]:
        """Kafka's settings of each topic."""
        settings = self.settings
        return self.names.settings(
            max_compaction_lag_ms=int(settings.max_compaction_lag * 1000),
            delete_retention_ms=int(settings.delete_retention * 1000),
        )

    @cached_property
    def log(self) -> EventLog:
        """Kafka, or the instance's log in files."""
        if self.settings.kafka is not None:
            log, _ = open_log(assembly.kafka_options(self.settings))
        else:
            log = FileLog(self.own_layout.log, clock=self.clock)
        self._stack.callback(log.close)
        return log

    @property
    def own_layout(self) -> Layout:
        """Paths of the instance's folder. Raises UsageError where there is none."""
        if self.layout is None:
            raise UsageError("an instance needs a folder: give --dir DIR")
        return self.layout

    @cached_property
    def signing_key(self) -> SigningKey:
        """The private key that releases and receipts are signed with."""
        return assembly.signing_key(self.settings, self.layout)

    @cached_property
    def public_key(self) -> PublicKey:
        """The key that they verify with."""
        return assembly.public_key(self.settings) or self.signing_key.public

    @cached_property
    def noise_key(self) -> assembly.NoiseKey:
        """The secret that noise is drawn from."""
        return assembly.noise_key(self.settings, self.layout)

    @cached_property
    def receipt_secret(self) -> bytes:
        """The secret that receipts digest document ids with."""
        return assembly.receipt_secret(self.settings, self.layout)

    @cached_property
    def redis_url(self) -> str:
        """Address of the Redis that holds counts and models, started if it is this instance's own."""
        if self.settings.redis_url is not None:
            return self.settings.redis_url.get_secret_value()
        if self.layout is None:
            raise SettingsError("setting `redis_url` is not set: give the address of the service's Redis")
        return self._stack.enter_context(LocalRedis(self.own_layout.redis, persistent=self._kept)).url

    def connect(self) -> Connection:
        """Return one more connection to Redis, for another thread; closed with this object."""
        connection = self._stack.enter_context(Connection(self.redis_url))
        connection.ping()
        return connection

    @cached_property
    def connection(self) -> Connection:
        """The connection to Redis."""
        return self.connect()

    @cached_property
    def state(self) -> ModelState:
        """The model's global keys. Raises StateMismatch where the model was made with other settings."""
        fixed = ModelSettings(self.settings.partitions, self.settings.cap)
        return ModelState.open(self.connection, self.settings.model, fixed)

    @cached_property
    def keeper_state(self) -> ModelState:
        """The model's global keys over a connection of its own, for the thread that renews the lease."""
        return ModelState(self.connect(), self.settings.model, self.state.settings)

    @cached_property
    def reader(self) -> Reader:
        """Reads counts beside their writers."""
        return Reader(self.connection, self.settings.model, self.settings.partitions)

    @cached_property
    def holder(self) -> str:
        """This process's name in leases.

        An instance in a folder lets one process in, so the next one is the same leader: it need not wait for a lease.
        """
        if self.leads:
            return f"{socket.gethostname()}:{self.own_layout.root.resolve()}"
        return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
