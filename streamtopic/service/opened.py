"""The servers and stores that settings name: the log, Redis, the state and the ledger, each opened when it is needed.

Commands and processes open them in a block of `opened`, and make the parts that they need of them (assembly.py).
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from streamtopic.errors import SettingsError, UsageError
from streamtopic.local import LocalRedis
from streamtopic.service import instance
from streamtopic.service.publish.ledger_writer import LedgerWriter
from streamtopic.state import Connection, ModelSettings, ModelState
from streamtopic.streams import FileLog, KafkaOptions, TopicNames, open_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamtopic.service.publish.witnesses import Witnesses
    from streamtopic.settings import Settings
    from streamtopic.signed import KeyRing
    from streamtopic.streams import EventLog

__all__ = ["Opened", "fixed_of", "kafka_options", "open_ledger", "opened"]


@contextmanager
def opened(settings: Settings, *, resident: bool = False, clock: Callable[[], float] = time.time) -> Iterator[Opened]:
    """Open what settings name, as long as the block runs.

    With settings.dir it is an instance in that folder. The folder holds all parts that settings do not place elsewhere
    (Kafka, Redis, keys), and one process at a time works on it. Without settings.dir it is a service with its Kafka
    and Redis.

    resident: whether this process stays, so that commands send it events and do not wait.
    clock: seconds since 1970.
    """
    with ExitStack() as stack:
        leads = False
        if settings.dir is not None:
            leads = stack.enter_context(instance.locked(settings.dir, service=resident))
        found = Opened(settings, clock, stack, leads=leads)
        if settings.dir is not None:
            # Nobody runs `init` for an instance in a folder. Topics in Kafka belong to the operator: missing ones are
            # made here, and only `init` changes the others.
            topics = instance.topic_settings(settings)
            instance.provision(found.log, found.names, settings.partitions, topics, change=False)
            instance.make_keys(settings)
        yield found


class Opened:
    """The log, Redis, state and ledger of a model, for the thread that has them.

    settings: of the model.
    names: its topics.
    clock: seconds since 1970.
    leads: whether this process does the service's work on an instance in a folder. If not, commands only send events.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float], stack: ExitStack, *, leads: bool) -> None:
        self.settings = settings
        self.names = TopicNames(settings.model)
        self.clock = clock
        self.leads = leads
        self._stack = stack

    @cached_property
    def log(self) -> EventLog:
        """Kafka, or the instance's log in files."""
        if self.settings.kafka is None and self.settings.dir is not None:
            log: EventLog = FileLog(self.settings.dir / instance.LOG, clock=self.clock)
        else:
            log, _ = open_log(kafka_options(self.settings))
        self._stack.callback(log.close)
        return log

    @cached_property
    def _redis_url(self) -> str:
        if self.settings.redis_url is not None:
            return self.settings.redis_url.get_secret_value()
        if self.settings.dir is None:
            raise SettingsError("setting `redis_url` is not set: give the address of the service's Redis")
        redis = LocalRedis(self.settings.dir / instance.REDIS)
        return self._stack.enter_context(redis).url

    def refuse_others(self) -> None:
        """Raise UsageError if another process works on the instance in a folder."""
        if self.settings.dir is not None and not self.leads:
            raise UsageError(f"another process runs the instance in {self.settings.dir}: stop it first")

    def connect(self) -> Connection:
        """Return one more connection to Redis, for another thread. It is closed with this object."""
        connection = self._stack.enter_context(Connection(self._redis_url))
        # A client connects with its first command only: an address that does not answer is reported here.
        connection.ping()
        return connection

    @cached_property
    def connection(self) -> Connection:
        """The connection to Redis. An instance's own Redis is started."""
        return self.connect()

    @cached_property
    def state(self) -> ModelState:
        """The model's global keys. Raises StateMismatch if the model was made with other settings."""
        return ModelState.open(self.connection, self.settings.model, fixed_of(self.settings))

    @cached_property
    def keys(self) -> KeyRing:
        """The keys of the ledger, as far as `ledger` has read their lists."""
        return instance.key_ring(self.settings)

    @cached_property
    def ledger(self) -> LedgerWriter:
        """The ledger, which this process can write if it has the signing key."""
        return open_ledger(self, self.connection, self.keys)

    @cached_property
    def holder(self) -> str:
        """The name of this process in leases."""
        # One process at a time works on a folder, so the next one is the same leader and need not wait for a lease.
        if self.leads and self.settings.dir is not None:
            return f"{socket.gethostname()}:{self.settings.dir.resolve()}"
        return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def fixed_of(settings: Settings) -> ModelSettings:
    """Return the settings that are fixed when the model is created."""
    return ModelSettings(settings.partitions, settings.cap)


def open_ledger(service: Opened, connection: Connection, keys: KeyRing) -> LedgerWriter:
    """Return the ledger over a connection to Redis, for the thread that has it. keys: of the same thread."""
    settings = service.settings
    signing, witnesses = instance.held_signing_key(settings), _witnesses(settings)
    return LedgerWriter(connection, service.log, settings.model, keys, signing, witnesses=witnesses)


def _witnesses(settings: Settings) -> Witnesses | None:
    """Return what asks the witnesses of the settings, None if none are named. Raises SettingsError."""
    if settings.witnesses is None:
        return None
    # Imported here: most services have no witnesses, and need no client of HTTP.
    from streamtopic.service.publish.witnesses import Witnesses

    return Witnesses.load(settings.witnesses, required=settings.require_witnesses)


def kafka_options(settings: Settings) -> KafkaOptions:
    """Return the options by which Kafka is reached. Raises SettingsError if no servers are set."""
    if settings.kafka is None:
        raise SettingsError("setting `kafka` is not set: give Kafka's servers, host:port,host:port")
    password = settings.kafka_sasl_password

    return KafkaOptions(
        servers=settings.kafka,
        security_protocol=settings.kafka_security_protocol,
        sasl_mechanism=settings.kafka_sasl_mechanism,
        sasl_username=settings.kafka_sasl_username,
        sasl_password=None if password is None else password.get_secret_value(),
        ssl_cafile=settings.kafka_ssl_cafile,
        ssl_certfile=settings.kafka_ssl_certfile,
    )
