"""Make the parts of the service from settings: the options of each part, and the parts that every command uses."""

from __future__ import annotations

import os
import secrets
import socket
import time
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Self

from streamtopic.documents.dialects import Dialect, InputMapping
from streamtopic.documents.events import limits_of
from streamtopic.documents.suppression import SuppressionKey
from streamtopic.errors import SettingsError, StateMismatch, StateMissing, UsageError
from streamtopic.local import LocalRedis
from streamtopic.service import instance
from streamtopic.service.log_history import departures
from streamtopic.service.paper_mode.deletion_capacity import CapacityRule
from streamtopic.service.paper_mode.theorem_modeller import TheoremModeller, TheoremRule
from streamtopic.service.partition_counts import check_counts, wanted_partitions
from streamtopic.service.publish.ledger_writer import LedgerWriter
from streamtopic.service.schedule.decide import Policy
from streamtopic.service.schedule.modeller import CertifiedModeller
from streamtopic.service.schedule.payload import Guarded, TaskOptions
from streamtopic.service.schedule.scheduler import SchedulerOptions
from streamtopic.service.watching import Watch
from streamtopic.signed import KeyRing, load_secret
from streamtopic.state import Connection, ModelSettings, ModelState, Reader
from streamtopic.streams import FileLog, TopicNames, addressed, open_log
from streamtopic.topics.heads import HeadTask
from streamtopic.topics.learner_options import GuidedTopic, LearnerOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from streamtopic.service.publish.ledger_writer import Cosigner
    from streamtopic.service.schedule.modeller import MeasureCapacity, Modeller
    from streamtopic.settings import Settings
    from streamtopic.signed import PublicKey, SigningKey
    from streamtopic.state import StoredBase
    from streamtopic.state.stored_counts import StoredCounts
    from streamtopic.streams import EventLog, Message
    from streamtopic.streams.kafka_log import KafkaOptions

__all__ = [
    "LEAST_COMPACTION_LAG_MS",
    "Parts",
    "capacity_measure",
    "capacity_rule",
    "cosigner",
    "guarded",
    "input_mapping",
    "kafka_options",
    "learner_options",
    "modeller",
    "scheduler_options",
    "self_check_interval",
    "task_options",
    "theorem_rule",
]

LEAST_COMPACTION_LAG_MS = 3_600_000
"""A broker that compacts the log more often than each hour would rewrite it all day."""


def learner_options(settings: Settings) -> LearnerOptions:
    """Return the learner's part of the settings."""
    return LearnerOptions(
        n_topics=settings.topics,
        learner=settings.learner,
        min_df=settings.min_df,
        min_share=settings.min_share,
        max_df=settings.max_df,
        anchor_min_df=settings.anchor_min_df,
        max_words=settings.max_words,
        tolerance=settings.tolerance,
        guided=tuple(GuidedTopic(name, seeds) for name, seeds in settings.guided.items()),
    )


def scheduler_options(settings: Settings) -> SchedulerOptions:
    """Return the scheduler's part of the settings."""
    return SchedulerOptions(
        model=settings.model,
        policy=Policy(
            max_forget_lag_ms=int(settings.max_forget_lag * 1000),
            update_after=settings.update_after,
            epsilon_budget=settings.epsilon_budget,
        ),
        capacity_rule=settings.capacity.rule,
        tasks=task_options(settings),
        delta=settings.delta,
        keep_versions=settings.keep_versions,
        self_check_ms=self_check_interval(settings),
    )


def self_check_interval(settings: Settings) -> int | None:
    """Return the milliseconds from one check of an update to the next; None if updates are not checked."""
    return None if settings.self_check == "off" else int(settings.self_check * 1000)


def modeller(
    settings: Settings, stored: Callable[[], StoredBase | None], sums: Callable[[], StoredCounts | None]
) -> Modeller:
    """Return the modeller of the mode that `guarantee` names.

    stored: reads the kept base model.
    sums: reads the co-occurrence counts in Redis.
    """
    rule = theorem_rule(settings)
    if rule is not None:
        return TheoremModeller(learner_options(settings), rule, stored)
    return CertifiedModeller(learner_options(settings), guarded(settings), stored=sums)


def guarded(settings: Settings) -> Guarded:
    """Return the guarantee that the noise of certified mode is calibrated to."""
    return Guarded(settings.epsilon, settings.delta, settings.tolerance)


def capacity_rule(settings: Settings) -> CapacityRule:
    """Return the rule that sets the deletion capacity."""
    found = settings.capacity
    return CapacityRule(rule=found.rule, share=found.share, number=found.documents, constant=found.constant)


def capacity_measure(settings: Settings) -> MeasureCapacity:
    """Return the function that measures the capacity of a new base model."""
    rule = capacity_rule(settings)
    tasks = task_options(settings)
    # Heads have a formula of their own if they are published in place of topics; next to topics they cost nothing.
    alone = tuple(tasks.tasks.values()) if tasks.withheld else ()

    return lambda fit: rule.limit(fit, settings.epsilon, settings.delta, alone)


def theorem_rule(settings: Settings) -> TheoremRule | None:
    """Return the settings of theorem mode, None in certified mode."""
    if settings.guarantee != "theorem":
        return None
    found = settings.theorem
    set_by_hand = {
        "a": found.topic_imbalance,
        "p_sep": found.separability,
        "gamma": found.topic_condition,
        "eps0": found.base_error,
    }
    # A constant that is not set is estimated from the model.
    known = {name: value for name, value in set_by_hand.items() if value is not None}
    return TheoremRule(settings.epsilon, settings.delta, found.constant, known)


def cosigner(settings: Settings) -> Cosigner | None:
    """Return what asks the witnesses of the settings, None if none are named. Raises SettingsError."""
    if settings.witnesses is None:
        return None
    # Imported here: most services have no witnesses, and need no client of HTTP.
    from streamtopic.service.publish.witnesses import Witnesses

    return Witnesses.load(settings.witnesses, required=settings.require_witnesses)


def task_options(settings: Settings) -> TaskOptions:
    """Return the downstream tasks of the settings."""
    tasks = {name: HeadTask(**task.model_dump()) for name, task in settings.tasks.items()}
    return TaskOptions(tasks, withheld=settings.publish == "tasks")


def input_mapping(settings: Settings) -> InputMapping:
    """Return how records of the documents topic make documents."""
    found = settings.input
    labels = tuple(sorted(found.labels.items()))
    return InputMapping(
        format=found.format,
        text=found.text,
        labels=labels,
        time=found.time,
        time_unit=found.time_unit,
        operation=found.operation,
        subject=found.subject,
    )


def kafka_options(settings: Settings) -> KafkaOptions:
    """Return the options by which Kafka is reached. Raises SettingsError if no servers are set."""
    # Imported here: an instance without Kafka must not load its client.
    from streamtopic.streams.kafka_log import KafkaOptions

    if settings.kafka is None:
        raise SettingsError("setting `kafka` is not set: give Kafka's servers, host:port,host:port")
    password = settings.kafka_sasl_password

    def path(name: Path | None) -> str | None:
        return None if name is None else str(name)

    return KafkaOptions(
        servers=settings.kafka,
        security_protocol=settings.kafka_security_protocol,
        sasl_mechanism=settings.kafka_sasl_mechanism,
        sasl_username=settings.kafka_sasl_username,
        sasl_password=None if password is None else password.get_secret_value(),
        ssl_cafile=path(settings.kafka_ssl_cafile),
        ssl_certfile=path(settings.kafka_ssl_certfile),
    )


class Parts:
    """Log, Redis, keys and readers of one model, as a context manager. Each is started when it is first needed.

    With settings.dir it is an instance in that folder. The folder holds all parts that settings do not place elsewhere
    (Kafka, Redis, keys), and one process at a time works on it. Without settings.dir it is a process of a service
    with its Kafka and Redis.

    resident: whether this process stays, so that commands send it events and do not wait.
    kept: whether Redis's data must survive the process, if Redis is the instance's own.
    clock: seconds since 1970.
    watch: is told what the parts do, for metrics and health.
    leads: whether this process does the service's work on an instance. If not, commands only send events.

    Raises UsageError if settings name neither a folder nor Kafka.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        resident: bool = False,
        kept: bool = True,
        clock: Callable[[], float] = time.time,
        watch: Watch | None = None,
    ) -> None:
        if settings.dir is None and settings.kafka is None:
            raise UsageError("which instance? give --dir DIR, or the settings `kafka` and `redis_url` of a service")
        self.settings = settings
        self.layout = None if settings.dir is None else instance.Layout(settings.dir)
        self.names = TopicNames(settings.model)
        self.clock = clock
        self.watch = watch or Watch()
        self._kept = kept
        self._resident = resident
        self._stack = ExitStack()
        self.leads = False

    def __enter__(self) -> Self:
        try:
            if self.layout is not None:
                lock = instance.InstanceLock(self.layout.root, service=self._resident)
                self.leads = lock.acquire()
                self._stack.callback(lock.release)
                self._create(self.layout)
        # `__exit__` is not called if this method fails, and the lock would stay.
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _create(self, layout: instance.Layout) -> None:
        """Make the topics and keys of an instance in a folder, if they are missing."""
        partitions = self.settings.partitions
        if self.settings.kafka is None:
            # Settings that changed reach the topics here: nobody runs `init` for an instance in a folder.
            instance.provision(self.log, self.names, partitions, self.topic_settings)
        else:
            # Topics in Kafka belong to the operator: missing ones are made here, and only `init` changes the others.
            check_counts(self.log, self.names, partitions, self.topic_settings)
            for topic, settings in self.topic_settings.items():
                self.log.create(topic, wanted_partitions(self.names, topic, partitions), settings)
        # All keys are made before the mark `initialised`: after a crash in between, the next process makes the others.
        _ = self.signing_key, self.noise_key, self.receipt_secret
        layout.initialised.touch(mode=0o600)

    @property
    def topic_settings(self) -> dict[str, dict[str, str]]:
        """Kafka's settings of each topic."""
        settings = self.settings
        return self.names.settings(
            max_compaction_lag_ms=max(int(settings.residue_max_age * 1000), LEAST_COMPACTION_LAG_MS),
            delete_retention_ms=int(settings.delete_retention * 1000),
        )

    @cached_property
    def log(self) -> EventLog:
        """Kafka, or the instance's log in files."""
        if self.settings.kafka is not None:
            log, _ = open_log(kafka_options(self.settings))
        else:
            log = FileLog(self.own_layout.log, clock=self.clock)
        self._stack.callback(log.close)
        return log

    @property
    def own_layout(self) -> instance.Layout:
        """Paths of the instance's folder. Raises UsageError if there is none."""
        if self.layout is None:
            raise UsageError("an instance needs a folder: give --dir DIR")
        return self.layout

    @cached_property
    def signing_key(self) -> SigningKey:
        """The private key that signs the ledger."""
        return instance.signing_key(self.settings, self.layout)

    @property
    def _signs(self) -> bool:
        """Whether this process has the signing key."""
        own = self.layout is not None and self.layout.signing_key.exists()
        return own or self.settings.signing_key is not None

    @cached_property
    def public_key(self) -> PublicKey:
        """The public half of the signing key, or the root key that signs lists of such keys."""
        return instance.public_key(self.settings, self.layout) or self.signing_key.public

    @cached_property
    def keys(self) -> KeyRing:
        """The keys of the ledger, as far as `ledger` has read their lists."""
        return self.key_ring()

    def key_ring(self) -> KeyRing:
        """Return the keys of the ledger before any list of them is read, for another thread."""
        own = (self.signing_key.public,) if self._signs else ()
        return KeyRing(self.public_key, self.settings.model, own)

    @cached_property
    def ledger(self) -> LedgerWriter:
        """The ledger, which this process can write if it has the signing key."""
        return self.open_ledger(self.connection, self.keys)

    def open_ledger(self, connection: Connection, keys: KeyRing) -> LedgerWriter:
        """Return the ledger over a connection to Redis, for the thread that has it. keys: of the same thread."""
        signing = self.signing_key if self._signs else None
        witnesses = cosigner(self.settings)
        return LedgerWriter(connection, self.log, self.settings.model, keys, signing, witnesses=witnesses)

    @cached_property
    def noise_key(self) -> instance.NoiseKey:
        """The secret that noise is drawn from."""
        return instance.noise_key(self.settings, self.layout)

    @cached_property
    def receipt_secret(self) -> bytes:
        """The secret that receipts digest document ids with."""
        return instance.receipt_secret(self.settings, self.layout)

    @cached_property
    def redis_url(self) -> str:
        """Address of the Redis that holds counts and models. An instance's own Redis is started."""
        if self.settings.redis_url is not None:
            return self.settings.redis_url.get_secret_value()
        if self.layout is None:
            raise SettingsError("setting `redis_url` is not set: give the address of the service's Redis")
        return self._stack.enter_context(LocalRedis(self.own_layout.redis, persistent=self._kept)).url

    def connect(self) -> Connection:
        """Return one more connection to Redis, for another thread. It is closed with this object."""
        connection = self._stack.enter_context(Connection(self.redis_url))
        # A client connects with its first command only: an address that does not answer is reported here.
        connection.ping()
        return connection

    @cached_property
    def connection(self) -> Connection:
        """The connection to Redis."""
        return self.connect()

    @cached_property
    def state(self) -> ModelState:
        """The model's global keys. Raises StateMismatch if the model was made with other settings."""
        model = self.settings.model
        return ModelState.open(self.connection, model, self.fixed)

    def need_suppression_key(self) -> None:
        """Raise SettingsError if settings name a key of suppressions that is not here."""
        file = instance.suppression_file(self.settings, self.layout)
        if file is not None and not file.exists():
            raise SettingsError(
                f"{self.settings.suppression_key} is not here: `streamtopic keys suppression` makes the key; restore a "
                "lost one from your backup, or take the setting `suppression_key` away"
            )

    @cached_property
    def suppression(self) -> SuppressionKey | None:
        """The key of suppressions; None if nothing is suppressed, and if this process lacks the key."""
        file = instance.suppression_file(self.settings, self.layout)
        if file is None or not file.exists():
            return None
        return SuppressionKey(load_secret(file), self.settings.model)

    @property
    def fixed(self) -> ModelSettings:
        """The settings that are fixed when the model is created."""
        settings = self.settings
        limits = limits_of(days=settings.keep_days) + input_mapping(settings).rules
        return ModelSettings(settings.partitions, settings.cap, settings.partitioner, limits)

    @cached_property
    def dialect(self) -> Dialect:
        """The dialect of the records in the documents topic."""
        return Dialect(input_mapping(self.settings))

    def send(self, messages: Sequence[Message]) -> list[tuple[int, int]]:
        """Append records to the documents topic, each to its key's partition; return (partition, offset) of each."""
        topic = self.names.documents
        if self.layout is not None:
            self._check_history()
        # A topic that does not exist has no partitions; `append_many` then raises the right error.
        if count := self.log.partitions(topic):
            messages = addressed(messages, count, self.settings.partitioner)
        return self.log.append_many(topic, messages)

    def _check_history(self) -> None:
        """Raise StateMismatch if the log is not the one that was counted: a record might be where nobody reads it.

        Other producers write to Kafka without asking, and ingest refuses the log there.
        """
        # Not by `self.reader`, which may take ownership of the partitions: a record may be sent without that.
        try:
            positions = Reader(self.connection, self.settings.model, self.settings.partitions).positions()
        except StateMissing:
            return
        found = departures(self.log, self.names.documents, self.settings.partitions, positions)
        if found:
            raise StateMismatch(f"nothing was written: {found[0].text}")

    @cached_property
    def keeper_state(self) -> ModelState:
        """The model's global keys over a connection of its own, for the thread that renews the lease."""
        return ModelState(self.connect(), self.settings.model, self.state.settings)

    @cached_property
    def reader(self) -> Reader:
        """Reads counts while their writers work."""
        return Reader(self.connection, self.settings.model, self.settings.partitions)

    @cached_property
    def holder(self) -> str:
        """The name of this process in leases."""
        # One process at a time works on a folder, so the next one is the same leader and need not wait for a lease.
        if self.leads:
            return f"{socket.gethostname()}:{self.own_layout.root.resolve()}"
        return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
