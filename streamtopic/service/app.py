"""What one process of a model needs, made from settings, and the service in one process.

Commands and processes open a `Service` and hand its parts on by name. Nothing that it imports knows it.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from streamtopic.client import Deletion, ModelSubscriber, Receipts
from streamtopic.documents.events import encode_add, encode_delete
from streamtopic.documents.subjects import MAX_SUBJECT, is_subject
from streamtopic.documents.suppression import Suppression, SuppressionKey
from streamtopic.errors import InvalidEvent, SettingsError, StateMismatch, StateMissing, UsageError
from streamtopic.local import LocalRedis
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.service import assembly, instance
from streamtopic.service.ingest.missed_deletes import delete_missed_if_due
from streamtopic.service.ingest.partition_ingest import Ingest
from streamtopic.service.ingest.suppressions import Suppressions
from streamtopic.service.inspection.examination import concerns, examine
from streamtopic.service.inspection.facts import ModelFacts, status_fields
from streamtopic.service.log_history import departures
from streamtopic.service.private_mode import Series
from streamtopic.service.publish.erasure import ResidueKeeper
from streamtopic.service.publish.ledger_writer import LedgerWriter, recorded
from streamtopic.service.publish.published import read_release, versions_of
from streamtopic.service.publish.publisher import ALIVE_EVERY, Publisher
from streamtopic.service.requests.request_door import RequestDoor
from streamtopic.service.requests.request_mover import Moved, RequestMover
from streamtopic.service.schedule.decide import decision_text
from streamtopic.service.schedule.payload import task_options
from streamtopic.service.schedule.scheduler import LeaseKeeper, Scheduler
from streamtopic.service.upkeep import rebuild_state
from streamtopic.service.upkeep.model_removal import RemovedModel, facts_of, remove
from streamtopic.service.verify import verify_instance
from streamtopic.service.verify.finding import Sources
from streamtopic.service.watching import Watch
from streamtopic.signed import KeyRing, load_secret
from streamtopic.state import Connection, ModelSettings, ModelState, Reader
from streamtopic.state.deletions import LinkKeys
from streamtopic.state.stored_counts import CountsStore
from streamtopic.streams import FileLog, Message, TopicNames, open_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from streamtopic.documents.corpus import Document
    from streamtopic.service.schedule.modeller import ModelBeforeNoise, Modeller
    from streamtopic.service.verify import Finding
    from streamtopic.settings import Settings
    from streamtopic.signed import End, PublicKey, Receipt, Release, SigningKey
    from streamtopic.streams import EventLog

__all__ = ["Sent", "Service", "Settled", "silent"]

BATCH = 1000
# A version begets another only while documents arrive; more than this many in a row would be a loop.
MOST_VERSIONS = 8


def _message(document: Document) -> Message:
    """Return the add event of a document. Raises InvalidEvent."""
    text = document.text
    return encode_add(
        document.id,
        text=text if isinstance(text, str) else None,
        counts=None if isinstance(text, str) else text,
        labels=document.labels,
        subjects=document.subjects,
    )


def silent(*_: object) -> None:
    """Report to nobody."""


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Add the seconds that the block takes to those of a stage."""
    start = time.perf_counter()
    yield
    seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of `add`.

    documents: number of add events that were written.
    refused: (id, reason) of each document that was refused.
    """

    documents: int
    refused: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Settled:
    """The work of one `settle`.

    ingested: number of events by outcome.
    versions: the versions that were made, as `versions --json` shows them.
    decision: the last decision, with its reason.
    receipts: number of receipts that were published.
    seconds: durations by stage.
    """

    ingested: Mapping[str, int]
    versions: list[dict[str, Any]]
    decision: str
    receipts: int
    seconds: Mapping[str, float] = field(default_factory=dict)


class Service:
    """One process of a model, as a context manager: what it needs is made from settings when it is first needed.

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
        # Settings that changed reach the topics here: nobody runs `init` for an instance in a folder. Topics in Kafka
        # belong to the operator: missing ones are made here, and only `init` changes the others.
        own = self.settings.kafka is None
        instance.provision(self.log, self.names, self.settings.partitions, self.topic_settings, change=own)
        # All keys are made before the mark `initialised`: after a crash in between, the next process makes the others.
        _ = self.signing_key, self.noise_key, self.receipt_secret
        layout.initialised.touch(mode=0o600)

    @property
    def topic_settings(self) -> dict[str, dict[str, str]]:
        """Kafka's settings of each topic."""
        settings = self.settings
        return self.names.settings(
            max_compaction_lag_ms=max(int(settings.residue_max_age * 1000), assembly.LEAST_COMPACTION_LAG_MS),
            delete_retention_ms=int(settings.delete_retention * 1000),
        )

    @cached_property
    def log(self) -> EventLog:
        """Kafka, or the instance's log in files."""
        if self.settings.kafka is None and self.layout is not None:
            log: EventLog = FileLog(self.layout.log, clock=self.clock)
        else:
            log, _ = open_log(assembly.kafka_options(self.settings))
        self._stack.callback(log.close)
        return log

    @cached_property
    def signing_key(self) -> SigningKey:
        """The private key that signs the ledger."""
        return instance.signing_key(self.settings)

    @property
    def signs(self) -> bool:
        """Whether this process has the signing key."""
        return instance.present_key(self.settings, "signing.key") is not None

    @cached_property
    def public_key(self) -> PublicKey:
        """The public half of the signing key, or the root key that signs lists of such keys."""
        return instance.public_key(self.settings) or self.signing_key.public

    @cached_property
    def keys(self) -> KeyRing:
        """The keys of the ledger, as far as `ledger` has read their lists."""
        return self.key_ring()

    def key_ring(self) -> KeyRing:
        """Return the keys of the ledger before any list of them is read, for another thread."""
        own = (self.signing_key.public,) if self.signs else ()
        return KeyRing(self.public_key, self.settings.model, own)

    @cached_property
    def ledger(self) -> LedgerWriter:
        """The ledger, which this process can write if it has the signing key."""
        return self.open_ledger(self.connection, self.keys)

    def open_ledger(self, connection: Connection, keys: KeyRing) -> LedgerWriter:
        """Return the ledger over a connection to Redis, for the thread that has it. keys: of the same thread."""
        signing = self.signing_key if self.signs else None
        witnesses = assembly.witnesses(self.settings)
        return LedgerWriter(connection, self.log, self.settings.model, keys, signing, witnesses=witnesses)

    @property
    def links(self) -> LinkKeys:
        """The keys of the months, which tie receipts to request ids."""
        return LinkKeys(self.connection, self.settings.model)

    @cached_property
    def noise_key(self) -> NoiseKey:
        """The secret that noise is drawn from."""
        return NoiseKey(instance.secret(self.settings, "noise.key"))

    @cached_property
    def receipt_secret(self) -> bytes:
        """The secret that receipts digest document ids with."""
        return instance.secret(self.settings, "receipt.key")

    @cached_property
    def redis_url(self) -> str:
        """Address of the Redis that holds counts and models. An instance's own Redis is started."""
        if self.settings.redis_url is not None:
            return self.settings.redis_url.get_secret_value()
        if self.layout is None:
            raise SettingsError("setting `redis_url` is not set: give the address of the service's Redis")
        return self._stack.enter_context(LocalRedis(self.layout.redis, persistent=self._kept)).url

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

    @cached_property
    def suppression(self) -> SuppressionKey | None:
        """The key of suppressions; None if nothing is suppressed, and if this process lacks the key."""
        file = instance.present_key(self.settings, "suppression.key")
        return None if file is None else SuppressionKey(load_secret(file), self.settings.model)

    @property
    def fixed(self) -> ModelSettings:
        """The settings that are fixed when the model is created."""
        settings = self.settings
        return ModelSettings(settings.partitions, settings.cap, settings.partitioner)

    def send(self, messages: Sequence[Message]) -> list[tuple[int, int]]:
        """Append records to the documents topic, each to its key's partition; return (partition, offset) of each."""
        topic = self.names.documents
        if self.layout is not None:
            self._check_history()
        return self.log.append_many(topic, messages, self.settings.partitioner)

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
    def holder(self) -> str:
        """The name of this process in leases."""
        # One process at a time works on a folder, so the next one is the same leader and need not wait for a lease.
        if self.leads and self.layout is not None:
            return f"{socket.gethostname()}:{self.layout.root.resolve()}"
        return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"

    @cached_property
    def due(self) -> threading.Event:
        """Set when there may be something to publish."""
        return threading.Event()

    @cached_property
    def undecided(self) -> threading.Event:
        """Set when the last decision may be out of date, since something was published."""
        return threading.Event()

    @cached_property
    def ingests(self) -> list[Ingest]:
        """The writer of each partition."""
        ingests = [self.open_ingest(partition) for partition in range(self.settings.partitions)]
        for ingest in ingests:
            self.watch.owns(ingest.partition, ingest)
            self._stack.callback(self.watch.gave_up, ingest.partition)
        return ingests

    def open_ingest(self, partition: int) -> Ingest:
        """Take ownership of a partition, and delete documents whose deletes have left the log.

        Raises as `Ingest` and `delete_missed_if_due`.
        """
        with self.watch.busy("recovering"):
            ingest = Ingest(
                self.connection,
                self.log,
                self.names,
                partition,
                settings=self.state.settings,
                clock=self.clock,
                suppressions=self.suppressions,
            )
            ingest.residue_max_age = self.settings.residue_max_age
            retention_ms = int(self.settings.delete_retention * 1000)
            # Before the first step: a new record would make the state look as if it had never been away.
            missed = delete_missed_if_due(ingest, self.log, int(self.clock() * 1000), retention_ms)
        if missed:
            self.watch.missed(missed)
        return ingest

    @cached_property
    def suppressions(self) -> Suppressions:
        """Who is suppressed, as far as this process has the key."""
        return Suppressions(self.connection, self.log, self.settings.model, self.suppression)

    @cached_property
    def reader(self) -> Reader:
        """Reads counts while their writers work."""
        # A new instance has no state before its writers open it.
        if self.leads:
            _ = self.ingests
        return Reader(self.connection, self.settings.model, self.settings.partitions)

    @cached_property
    def sums(self) -> CountsStore:
        """The co-occurrence counts of the working vocabulary in Redis."""
        return CountsStore(self.connection, self.settings.model)

    def _modeller(self) -> Modeller:
        """Return the mode in which models are made, with nothing in memory yet."""
        return assembly.modeller(self.settings, self.state.base, self.sums.read, self._series)

    def _series(self, base: int, version: int) -> Series:
        """Return the versions of a period in private mode before a version. base: the first one of the period."""
        return Series.of((recorded(record) for _, record in self.state.releases()), base, version)

    @cached_property
    def scheduler(self) -> Scheduler:
        """Decides, and stages versions."""
        scheduler = Scheduler(
            self.state,
            self.settings,
            self._modeller(),
            partial(assembly.capacity_limit, self.settings),
            self.noise_key,
            ledger=self.ledger,
            log=self.log,
            # Over a connection of its own, for the thread that renews the lease.
            lease=self.lease_keeper(ModelState(self.connect(), self.settings.model, self.state.settings)),
            clock=self.clock,
            watch=self.watch,
            staged=self.due.set,
        )
        self._stack.callback(scheduler.close)
        return scheduler

    def lease_keeper(self, state: ModelState) -> LeaseKeeper:
        """Return what takes the lease for this process. state: over a connection of the thread that asks."""
        return LeaseKeeper(state, self.holder, int(self.settings.lease * 1000))

    @cached_property
    def residue(self) -> ResidueKeeper:
        """Removes the traces that deletions leave."""
        settings = self.settings
        return ResidueKeeper(
            self.state,
            self.reader,
            self.log,
            settings.residue_max_age,
            settings.backups_kept,
            clock=self.clock,
            watch=self.watch,
        )

    def clear_residue(self, *, whole: bool = False) -> bool:
        """Remove the traces that deletions leave, if this process leads; return whether marks have moved.

        whole: read the logs to their ends at once, if that is due.

        May be repeated. Raises as ResidueKeeper.step.
        """
        # A compaction has just erased records, so the logs are worth a look before the next one is due.
        if self._compact_log():
            self.residue.look_again()
        with self.scheduler.leading() as lease:
            return lease is not None and self.residue.step(whole=whole)

    @cached_property
    def door(self) -> RequestDoor:
        """Takes requests for deletions in, and lets people approve or cancel them."""
        return RequestDoor(self.settings, self.connection, self.log, self.names.requests, self.clock)

    @cached_property
    def request_mover(self) -> RequestMover:
        """Moves requests for deletions on."""
        return RequestMover(self.settings, self.connection, self.reader, self.log, self.send, self.ledger, self.clock)

    def move_requests(self) -> Moved:
        """Move requests for deletions as far as they can go, if this process leads. May be repeated.

        Raises as RequestMover.step.
        """
        with self.scheduler.leading() as lease:
            return Moved() if lease is None else self.request_mover.step(lease)

    @cached_property
    def publisher(self) -> Publisher:
        """Publishes versions, receipts and all else that is in the ledger."""
        return self.open_publisher(self.state, self.ledger)

    def open_publisher(self, state: ModelState, ledger: LedgerWriter) -> Publisher:
        """Return a publisher for the thread that has this state and this ledger."""
        settings = self.settings
        # Here, where its absence is an error of the settings: the ledger may be read without it.
        _ = self.signing_key
        # A process that ends must not promise a next `alive`: readers would wait for it and raise an alarm.
        interval = ALIVE_EVERY if self._resident else 0.0
        reader = Reader(state.connection, settings.model, settings.partitions)
        return Publisher(
            state,
            self.log,
            ledger,
            {partition: reader.forgets(partition) for partition in range(settings.partitions)},
            secret=self.receipt_secret,
            interval_ms=int(interval * 1000),
            link_months=settings.link_months,
            clock=self.clock,
            watch=self.watch,
        )

    def publish(self) -> int:
        """Publish until nothing more is due; return the number of receipts. May be repeated after any error."""
        receipts = 0
        while (done := self.publisher.step()).did_something:
            receipts += done.receipts
        return receipts

    def add(self, documents: Iterable[Document], update: Callable[[int, int | None], None] = silent) -> Sent:
        """Write add events. Documents that ingest would refuse are not written; they are returned with the reason.

        update: told how many events were written.
        """
        todo = iter(documents)
        sent = 0
        refused = list[tuple[str, str]]()
        while batch := list(islice(todo, BATCH)):
            messages = []
            for document in batch:
                try:
                    messages.append(_message(document))
                except InvalidEvent as error:
                    refused.append((document.id, str(error)))
            sent += len(self.send(messages))
            update(sent, None)
        return Sent(sent, refused)

    def delete(self, ids: Iterable[str]) -> list[Deletion]:
        """Write delete events; return request ids and salts, by which their receipts are found.

        Raises UsageError for an id that no document can have. Nothing is written then.
        """
        documents = list(ids)
        # All first: a wrong id must not leave some of the documents deleted, and their requests unknown.
        self.check_deletable(documents, ())
        requests = [Deletion(secrets.token_hex(12), secrets.token_hex(16)) for _ in documents]
        pairs = zip(documents, requests, strict=True)
        self.send([encode_delete(document, request, request.salt.encode()) for document, request in pairs])
        return requests

    def check_deletable(self, ids: Iterable[str], subjects: Iterable[str]) -> None:
        """Raise UsageError for an id or a subject that no document can have."""
        salt = secrets.token_hex(16)
        for document in ids:
            try:
                encode_delete(document, "checked", salt.encode())
            except InvalidEvent as error:
                raise UsageError(f"cannot delete {document[:80]!r}: {error}") from None
        for subject in subjects:
            if not is_subject(subject):
                raise UsageError(
                    f"cannot forget {subject[:80]!r}: a subject is a text of 1 to {MAX_SUBJECT} characters"
                )

    def suppress(self, documents: Iterable[str], subjects: Iterable[str], *, suppressed: bool = True) -> int:
        """Suppress ids and subjects, or lift that; return how many were named.

        Raises UsageError for a text that no document and no subject can have, and if the model has no suppressions.
        Nothing is written then.
        """
        key = self.suppression
        if key is None:
            raise UsageError(
                "there is no suppression.key here: `streamtopic keys suppression` makes it, for every `ingest` too; "
                "restore a lost one from your backup"
            )
        ids, people = list(documents), list(subjects)
        self.check_deletable(ids, people)
        self.suppressions.check()
        digests = list({*(key.of_document(one.encode()) for one in ids), *map(key.of_subject, people)})
        # The clock that made the statement before may be ahead of this one, and an older statement changes nothing.
        made_ms = max(int(self.clock() * 1000), self.suppressions.made_ms(digests) + 1)
        said = [Suppression(digest, suppressed, made_ms) for digest in sorted(digests)]
        for start in range(0, len(said), BATCH):
            some = said[start : start + BATCH]
            self.log.append_many(self.names.requests, [Message(one.key, key.value(one), partition=0) for one in some])
        self.suppressions.catch_up()
        return len(said)

    def settle(
        self,
        update: Callable[[int, int | None], None] = silent,
        *,
        announce: Callable[[str], None] = silent,
    ) -> Settled:
        """Ingest all records of the log, then decide, learn and publish until nothing more is due.

        update: told how many records are counted, of how many.
        announce: told the name of the present stage.
        """
        seconds: dict[str, float] = {}
        with _timed(seconds, "count"):
            ingested = self._ingest(update)
            # What requests delete is counted before a version is made.
            while self.move_requests():
                ingested.update(self._ingest(update))
        with _timed(seconds, "publish"):
            # A version that was staged before must be in the ledger before the next one is.
            receipts = self.publish()
        made: list[int] = []
        decision = ""
        while len(made) < MOST_VERSIONS:
            announce("learning")
            start = time.perf_counter()
            step = self.scheduler.step()
            decision = decision_text(step.decision)
            # The reads of a decision, and an update that could not be verified, are in no stage of the step.
            rest = time.perf_counter() - start - sum(step.seconds.values())
            for name, spent in {"decide": rest, **step.seconds}.items():
                seconds[name] = seconds.get(name, 0.0) + spent
            announce("publishing")
            with _timed(seconds, "publish"):
                receipts += self.publish()
            if step.version is None:
                break
            made.append(step.version)
        # Changes are summed up once versions are out: nobody waits for it.
        for ingest in self.ingests:
            # Twice: a deleted document leaves them with the second generation that begins after it.
            for _ in range(2):
                ingest.sum_if_due()
        with self.watch.busy("clearing"):
            self.clear_residue(whole=True)
        with _timed(seconds, "publish"):
            self.publish()
        # The receipts of requests are there now.
        self.move_requests()
        announce("")
        if not any(ingested.values()):
            del seconds["count"]
        if not made and not receipts:
            del seconds["publish"]
        versions = versions_of(self.state, len(made)) if made else []
        return Settled(dict(ingested), versions, decision, receipts, seconds)

    def _ingest(self, update: Callable[[int, int | None], None]) -> Counter[str]:
        """Count the records of all partitions; return the number of events by outcome."""
        for ingest in self.ingests:
            ingest.went_back()
        total = sum(ingest.lag for ingest in self.ingests)
        done = 0
        outcomes = Counter[str]()
        before = (-1, 0)
        # Several rounds: one partition may send deletions to another. A round without progress ends it: the records
        # that are left wait for an open transaction.
        while (lag := sum(ingest.lag for ingest in self.ingests)) and before != (done, lag):
            before = (done, lag)
            for ingest in self.ingests:
                for progress in ingest.drain():
                    self.watch.counted(ingest.partition, progress)
                    self.watch.moved()
                    done += progress.records
                    update(done, max(total, done))
                    outcomes.update(progress.outcomes)
        return outcomes

    def _compact_log(self) -> bool:
        """Compact a log in files if that is due, as Kafka does by itself; return whether it was done."""
        if not isinstance(self.log, FileLog):
            return False
        settings = self.settings
        longest_ms = max(int(settings.residue_max_age * 1000), 1)
        topics = (self.names.documents, self.names.requests, self.names.releases)
        tombstones_ms = int(settings.delete_retention * 1000)
        return self.log.compact_when_due(topics, longest_ms=longest_ms, tombstones_ms=tombstones_ms)

    def subscriber(self) -> ModelSubscriber:
        """Return a subscriber of this model, which has the public keys only."""
        return ModelSubscriber(self.log, model=self.settings.model, public_key=self.keys, idle_seconds=0)

    def release(self, version: int | None) -> Release:
        """Return a published version, the newest for None. Raises as `read_release`."""
        return read_release(self.log, self.state, self.keys, version)

    def receipts(self) -> list[Receipt]:
        """Return all receipts, verified, oldest first."""
        return list(Receipts(self.log, model=self.settings.model, public_key=self.keys))

    def versions(self) -> list[dict[str, Any]]:
        """Return every version as `versions --json` shows it, oldest first."""
        return versions_of(self.state)

    def model_before_noise(self) -> ModelBeforeNoise | None:
        """Return the last model of this process, None if it made none. It is secret, for checks only."""
        return self.scheduler.modeller.last

    def status(self) -> dict[str, Any]:
        """Return the state of the instance as `status --json` shows it, without changing it."""
        # A new instance has no state before its writers open it.
        _ = self.reader
        facts = self.facts()
        return status_fields(facts, [one.text for one in concerns(facts)])

    def facts(self, state: ModelState | None = None, *, served: bool = False) -> ModelFacts:
        """Return what is known of the model now.

        state: over a connection of the thread that asks, if it is another one.
        served: as of `ModelFacts`.
        """
        known = self.state if state is None else state
        ledger, now = lambda: self.ledger, self.clock()
        return ModelFacts(self.settings, self.log, known, ledger, now, alone=self.leads, served=served)

    def examine(self) -> Iterator[Finding]:
        """Yield what the doctor finds. Nothing is changed."""
        yield from examine(
            self.settings,
            self.topic_settings,
            self.clock,
            connection=lambda: self.connection,
            log=lambda: self.log,
            ledger=lambda: self.ledger,
            facts=lambda: self.facts(ModelState(self.connection, self.settings.model, self.fixed)),
        )

    def rebuild(self, update: Callable[[int, int | None], None]) -> rebuild_state.Rebuilt:
        """Count the whole log again, and begin a new base model; see `rebuild_state.rebuild`."""
        model, fixed, holder = self.settings.model, self.fixed, rebuild_state.HOLDER
        lease = LeaseKeeper(ModelState(self.connect(), model, fixed), holder, int(self.settings.lease * 1000))
        # Read before, it would still have the limits of the state that goes.
        vars(self).pop("state", None)
        return rebuild_state.rebuild(
            model, fixed, self.connection, self.log, self.ledger, self.suppression, lease, self.open_ingest, update
        )

    def end(self, *, keep_ledger: bool) -> End:
        """Return the last entry of the ledger, if the model were deleted now. Raises UsageError if there is nothing."""
        made = int(self.clock() * 1000)
        return facts_of(self.settings.model, self.connection, self.log, self.ledger, made=made, keep_ledger=keep_ledger)

    def remove(self, path: Path, end: End, update: Callable[[int, int | None], None]) -> RemovedModel:
        """End the ledger, then remove topics and Redis's keys; see `model_removal.remove`."""
        key, leads = self.signing_key, self.leads
        return remove(self.settings, self.connection, self.log, self.ledger, key, path, end, update, leads=leads)

    @property
    def sources(self) -> Sources:
        """All that `verify` and `gather` read, as it is now."""
        settings = self.settings
        # The server of pages has no noise key, and may make all checks that do not need it.
        key: NoiseKey | SettingsError
        try:
            key = self.noise_key
        except SettingsError as error:
            key = error
        return Sources(
            log=self.log,
            state=self.state,
            reader=self.reader,
            keys=self.keys,
            model=settings.model,
            modeller=self._modeller(),
            tasks=task_options(settings),
            noise_key=key,
            partitioner=settings.partitioner,
            epsilon_budget=settings.budget,
            clock=self.clock,
            suppression=self.suppression,
        )

    def verify(
        self, update: Callable[[int, int | None], None] = silent, version: int | None = None
    ) -> tuple[Finding, ...]:
        """Check the ledger, the counts and a version (None: the newest) against the log. As `verify_instance`."""
        return verify_instance(self.sources, update, version)
