"""The service in one process. Commands call its methods."""

from __future__ import annotations

import secrets
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from streamtopic.client import Deletion, ModelSubscriber, Receipts
from streamtopic.documents.events import encode_add, encode_delete
from streamtopic.documents.subjects import MAX_SUBJECT, is_subject
from streamtopic.documents.suppression import Suppression
from streamtopic.errors import InvalidEvent, SettingsError, UsageError
from streamtopic.service import assembly
from streamtopic.service.assembly import Parts
from streamtopic.service.ingest.missed_deletes import delete_missed_if_due
from streamtopic.service.ingest.partition_ingest import Ingest
from streamtopic.service.ingest.suppressions import Suppressions
from streamtopic.service.inspection.slices import SliceView, read_slices
from streamtopic.service.inspection.status_facts import status_of
from streamtopic.service.paper_mode.theorem_modeller import TheoremCheck
from streamtopic.service.publish.erasure import ResidueKeeper, ResidueOptions
from streamtopic.service.publish.published import read_all_releases, read_release, versions_of
from streamtopic.service.publish.publisher import ALIVE_EVERY, Publisher, PublisherOptions
from streamtopic.service.requests.request_door import RequestDoor
from streamtopic.service.requests.request_mover import Brake, Moved, RequestMover
from streamtopic.service.schedule.decide import decision_text
from streamtopic.service.schedule.scheduler import LeaseKeeper, Scheduler
from streamtopic.service.schedule.situation import SituationReader
from streamtopic.service.verify import verify_instance
from streamtopic.service.verify.sources import Sources
from streamtopic.state import Reader
from streamtopic.state.base_documents import remaining_noted
from streamtopic.state.stored_counts import CountsStore
from streamtopic.streams import FileLog, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from streamtopic.documents.corpus import Document
    from streamtopic.privacy.keystream import NoiseKey
    from streamtopic.service.publish.ledger_writer import LedgerWriter
    from streamtopic.service.schedule.modeller import ModelBeforeNoise
    from streamtopic.service.schedule.situation import Base
    from streamtopic.service.verify import Finding
    from streamtopic.signed import Receipt, Release
    from streamtopic.state import Meta, ModelState, RemainingBase
    from streamtopic.topics.over_time import SliceReport, Unit

__all__ = ["Sent", "Service", "Settled", "silent"]

BATCH = 1000
# A version begets another only while documents arrive; more than this many in a row would be a loop.
MOST_VERSIONS = 8


def _message(document: Document) -> Message:
    """Return the add event of a document. Raises InvalidEvent."""
    return encode_add(
        document.id,
        text=document.text,
        labels=document.labels,
        timestamp_ms=document.timestamp_ms,
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


class Service(Parts):
    """An instance, or a service with Kafka and Redis, with a method for each command; see Parts."""

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

        Raises as `Ingest.open` and `delete_missed_if_due`, and SettingsError without a key that settings name.
        """
        self.need_suppression_key()
        with self.watch.busy("recovering"):
            ingest = Ingest.open(
                self.connection,
                self.log,
                self.names,
                partition,
                settings=self.state.settings,
                clock=self.clock,
                dialect=self.dialect,
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
        return super().reader

    @cached_property
    def sums(self) -> CountsStore:
        """The co-occurrence counts of the working vocabulary in Redis."""
        return CountsStore(self.connection, self.settings.model)

    @cached_property
    def situation(self) -> SituationReader:
        """Reads the situation of the model, without the keys that a scheduler needs."""
        options = assembly.scheduler_options(self.settings)
        mode = assembly.modeller(self.settings, self.state.base, self.sums.read)
        return SituationReader(self.reader, self.state, mode, self._left, options.policy, options.delta, self.clock)

    def _left(self, base: Base, _positions: Mapping[int, Meta]) -> RemainingBase:
        """Return what is left of the base model, as the leader noted it last."""
        return remaining_noted(self.connection, self.settings.model, base.version, base.start)

    @cached_property
    def scheduler(self) -> Scheduler:
        """Decides, and stages versions."""
        scheduler = Scheduler(
            self.connection,
            self.state,
            assembly.scheduler_options(self.settings),
            assembly.modeller(self.settings, self.state.base, self.sums.read),
            assembly.capacity_measure(self.settings),
            self.noise_key,
            ledger=self.ledger,
            log=self.log,
            lease=self.lease_keeper(self.keeper_state),
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
        options = ResidueOptions(settings.residue_max_age, settings.backups_kept)
        return ResidueKeeper(self.state, self.reader, self.log, options, self.clock, self.watch)

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
        settings = self.settings
        return RequestMover(
            self.connection,
            self.names,
            settings.partitions,
            Brake(settings.brake_share, int(1000 * settings.brake_seconds), int(1000 * settings.hold_seconds)),
            self.reader,
            self.log,
            self.send,
            self.ledger,
            self.clock,
            settings.partitioner,
        )

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
            options=PublisherOptions(int(interval * 1000), settings.link_months),
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

    def delete_subjects(self, subjects: Iterable[str]) -> list[Deletion]:
        """Write requests to forget subjects, one for each; return request ids and salts, to find their receipts by.

        Raises UsageError for a text that no subject can be. Nothing is written then.
        """
        people = list(subjects)
        self.check_deletable((), people)
        received = [self.door.receive((), subjects=[subject]) for subject in people]
        return [Deletion(one.request.id, one.salt) for one in received]

    def suppress(self, documents: Iterable[str], subjects: Iterable[str], *, suppressed: bool = True) -> int:
        """Suppress ids and subjects, or lift that; return how many were named.

        Raises UsageError for a text that no document and no subject can have, and if the model has no suppressions.
        Nothing is written then.
        """
        self.need_suppression_key()
        key = self.suppression
        if key is None:
            raise UsageError(
                f"model {self.settings.model} has no suppressions: make a key (`streamtopic keys suppression`), and "
                "name it in the setting `suppression_key` of `ingest` as well"
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
        stopped: Callable[[], bool] = lambda: False,
        requested: str | None = None,
    ) -> Settled:
        """Ingest all records of the log, then decide, learn and publish until nothing more is due.

        update: told how many records are counted, of how many.
        announce: told the name of the present stage.
        stopped: asked between flushes and versions; True ends the work early, and finished work stays.
        requested: the request of an operator, "unlearn" or "retrain".
        """
        seconds: dict[str, float] = {}
        with _timed(seconds, "count"):
            ingested = self._ingest(update, stopped)
            # What requests delete is counted before a version is made.
            while not stopped() and self.move_requests():
                for name, number in self._ingest(update, stopped).items():
                    ingested[name] = ingested.get(name, 0) + number
        with _timed(seconds, "publish"):
            # A version that was staged before must be in the ledger before the next one is.
            receipts = self.publish()
        made: list[int] = []
        decision = "stopped before a decision"
        while not stopped() and len(made) < MOST_VERSIONS:
            announce("learning")
            start = time.perf_counter()
            step = self.scheduler.step(requested)
            # A request is for one version: asked again, it would make the next one too.
            requested, decision = None, decision_text(step.decision)
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
        return Settled(ingested, versions, decision, receipts, seconds)

    def _ingest(self, update: Callable[[int, int | None], None], stopped: Callable[[], bool]) -> dict[str, int]:
        """Count the records of all partitions; return the number of events by outcome."""
        for ingest in self.ingests:
            ingest.went_back()
        total = sum(ingest.lag for ingest in self.ingests)
        done = 0
        outcomes = dict[str, int]()
        before = (-1, 0)
        # Several rounds: one partition may send deletions to another. A round without progress ends it: the records
        # that are left wait for an open transaction.
        while (lag := sum(ingest.lag for ingest in self.ingests)) and before != (done, lag):
            before = (done, lag)
            for ingest in self.ingests:
                for progress in ingest.drain():
                    self.watch.counted(ingest.partition, progress)
                    self.watch.moved("run")
                    done += progress.records
                    update(done, max(total, done))
                    for name, number in progress.outcomes.items():
                        outcomes[name] = outcomes.get(name, 0) + number
                    if stopped():
                        return outcomes
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

    def releases(self) -> Iterator[Release]:
        """Yield every published version, verified, withdrawn versions as well."""
        return read_all_releases(self.log, self.settings.model, self.keys)

    def subscriber(self, *, include_withdrawn: bool = False) -> ModelSubscriber:
        """Return a subscriber of this model, which has the public keys only."""
        return ModelSubscriber(
            self.log,
            model=self.settings.model,
            public_key=self.keys,
            include_withdrawn=include_withdrawn,
            idle_seconds=0,
        )

    def release(self, version: int | None) -> Release:
        """Return a published version, the newest for None. Raises as `read_release`."""
        return read_release(self.log, self.state, self.keys, version)

    def slices(self, version: int | None, unit: Unit | None, task: str | None, top: int = 10) -> SliceReport:
        """Return the topics of a published version (None: the newest) over time, by class, or both.

        unit: length of a period, None for classes alone.
        task: the label whose classes make slices, None for periods alone.
        top: words of a topic in a slice.

        Raises as `read_release` and `read_slices`.
        """
        release = self.release(version)
        return read_slices(self.reader, release, SliceView(unit, task), top)

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
        return status_of(self, self.situation)

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
        options = assembly.scheduler_options(settings)
        learner = assembly.learner_options(settings)
        return Sources(
            log=self.log,
            state=self.state,
            reader=self.reader,
            keys=self.keys,
            options=options,
            learner=learner,
            guarded=assembly.guarded(settings),
            paper=TheoremCheck(assembly.theorem_rule(settings), learner, settings.model),
            noise_key=key,
            partitioner=settings.partitioner,
            refuted=frozenset(self.situation.refuted()),
            epsilon_budget=settings.epsilon_budget,
            clock=self.clock,
            dialect=self.dialect,
            suppression=self.suppression,
        )

    def verify(
        self, update: Callable[[int, int | None], None] = silent, version: int | None = None
    ) -> tuple[Finding, ...]:
        """Check the ledger, the counts and a version (None: the newest) against the log. As `verify_instance`."""
        return verify_instance(self.sources, update, version)
