"""The service in one process: what commands call."""

from __future__ import annotations

import os
import secrets
import time
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from streamtopic.client import ModelSubscriber, Receipts
from streamtopic.errors import CannotLearn, CheckFailed, InvalidEvent, UsageError
from streamtopic.events import encode_add, encode_delete
from streamtopic.service import assembly
from streamtopic.service.decide import decision_text
from streamtopic.service.ingest import Ingest
from streamtopic.service.lease import LeaseKeeper
from streamtopic.service.outlook import Outlook
from streamtopic.service.parts import Parts
from streamtopic.service.published import Published
from streamtopic.service.publisher import Publisher
from streamtopic.service.publishing import PayloadPlan, make_payload
from streamtopic.service.report import version_fields
from streamtopic.service.room import WordLimits
from streamtopic.service.scheduler import Scheduler
from streamtopic.service.sweep import sweep_if_due
from streamtopic.service.tasks import TaskData
from streamtopic.streams import FileLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from streamtopic.corpus import Document
    from streamtopic.counts import CountSource
    from streamtopic.receipts import Receipt
    from streamtopic.release import Release
    from streamtopic.service.tasks import Labelled
    from streamtopic.service.verify import Verification
    from streamtopic.state import Reader
    from streamtopic.topics.algorithm1 import BaseModel
    from streamtopic.topics.fit import TopicFit

__all__ = ["Sent", "Service", "Settled", "silent"]

BATCH = 1000
# A version begets another only while documents arrive; more than this many in a row would be a loop.
MOST_VERSIONS = 8


def silent(*_: object) -> None:
    """Report to nobody."""


@dataclass(frozen=True, slots=True)
class Sent:
    """How many events were written, and the documents that were refused: id and why."""

    documents: int
    refused: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Settled:
    """What bringing the model up to date did: events by outcome, versions, the last decision, seconds by stage."""

    ingested: Mapping[str, int]
    versions: list[dict[str, Any]]
    decision: str
    receipts: int
    seconds: Mapping[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON has them."""
        return {
            "ingested": dict(self.ingested),
            "versions": self.versions,
            "decision": self.decision,
            "receipts": self.receipts,
            "seconds": dict(self.seconds),
        }


class Service(Parts):
    """An instance, or a service next to Kafka and Redis, and all that commands ask of it; see Parts."""

    @cached_property
    def ingests(self) -> list[Ingest]:
        """The writer of each partition."""
        return [self.open_ingest(partition) for partition in range(self.settings.partitions)]

    def open_ingest(self, partition: int) -> Ingest:
        """Become the writer of a partition, without what the log has forgotten meanwhile. Raises as Ingest.open."""
        ingest = Ingest.open(
            self.connection,
            self.log,
            self.names,
            partition,
            settings=self.state.settings,
            clock=self.clock,
            base_epoch=self.state.base_epoch,
            limits=WordLimits(self.settings.max_partition_words),
        )
        sweep_if_due(ingest, self.log, int(self.clock() * 1000), int(self.settings.delete_retention * 1000))
        return ingest

    @cached_property
    def reader(self) -> Reader:
        """Reads counts beside their writers."""
        if self.leads:
            _ = self.ingests  # a new instance has no state before its writers open it
        return super().reader

    @cached_property
    def outlook(self) -> Outlook:
        """Sees where the model stands, without the keys that a scheduler needs."""
        return Outlook(self.reader, self.state, assembly.scheduler_options(self.settings), self.clock)

    @cached_property
    def scheduler(self) -> Scheduler:
        """Decides and stages."""
        scheduler = Scheduler(
            self.connection,
            self.state,
            assembly.scheduler_options(self.settings),
            self.noise_key,
            self.signing_key,
            published=Published(self.log, self.settings.model, self.public_key),
            lease=LeaseKeeper(self.keeper_state, self.holder, int(self.settings.lease * 1000)),
            clock=self.clock,
        )
        self._stack.callback(scheduler.close)
        return scheduler

    @cached_property
    def publisher(self) -> Publisher:
        """Publishes what is staged."""
        return Publisher(self.state, self.log, key=self.signing_key, secret=self.receipt_secret)

    def add(self, documents: Iterable[Document], update: Callable[[int, int | None], None] = silent) -> Sent:
        """Write add events, but for documents that ingest would refuse."""
        todo, sent, refused = iter(documents), 0, list[tuple[str, str]]()
        while batch := list(islice(todo, BATCH)):
            messages = []
            for document in batch:
                try:
                    messages.append(encode_add(document.id, text=document.text, labels=document.labels))
                except InvalidEvent as error:
                    refused.append((document.id, str(error)))
            sent += len(self.log.append_many(self.names.documents, messages))
            update(sent, None)
        return Sent(sent, refused)

    def delete(self, ids: Iterable[str]) -> list[str]:
        """Write delete events; their request ids, by which receipts are found. Raises UsageError for an unusable id."""
        requests, messages = [], []
        for document in ids:
            requests.append(secrets.token_hex(12))
            try:
                messages.append(encode_delete(document, requests[-1]))
            except InvalidEvent as error:
                raise UsageError(f"cannot delete {document[:80]!r}: {error}") from None
        self.log.append_many(self.names.documents, messages)
        return requests

    def settle(
        self,
        update: Callable[[int, int | None], None] = silent,
        *,
        announce: Callable[[str], None] = silent,
        stopped: Callable[[], bool] = lambda: False,
        requested: str | None = None,
    ) -> Settled:
        """Ingest all that is in the log, then decide, model and publish until there is nothing more to do.

        update, announce: told how far counting is, and what is going on. stopped: asked between flushes and versions,
        to leave early; what was done stays done. requested: what an operator asks for, "unlearn" or "retrain".
        """
        start = time.perf_counter()
        ingested = self._ingest(update, stopped)
        seconds = {"count": time.perf_counter() - start} if any(ingested.values()) else {}
        made: list[int] = []
        decision = "stopped before a decision"
        while not stopped() and len(made) < MOST_VERSIONS:
            announce("learning")
            start = time.perf_counter()
            step = self.scheduler.step(requested)
            requested, decision = None, decision_text(step.decision)
            # An update that could not be verified, and what a decision reads, are no stage of the scheduler's own.
            rest = time.perf_counter() - start - sum(step.seconds.values())
            for name, spent in {"decide": rest, **step.seconds}.items():
                seconds[name] = seconds.get(name, 0.0) + spent
            if step.version is None:
                break
            made.append(step.version)
        start = time.perf_counter()
        announce("publishing")
        receipts = self._publish()
        self._compact_log()
        announce("")
        if made or receipts:
            seconds["publish"] = time.perf_counter() - start
        versions = [version for version in self.versions() if version["version"] in made] if made else []
        return Settled(ingested, versions, decision, receipts, seconds)

    def _ingest(self, update: Callable[[int, int | None], None], stopped: Callable[[], bool]) -> dict[str, int]:
        total, done, outcomes = sum(ingest.lag for ingest in self.ingests), 0, dict[str, int]()
        for ingest in self.ingests:
            for progress in ingest.drain():
                done += progress.records
                update(done, max(total, done))
                for name, number in progress.outcomes.items():
                    outcomes[name] = outcomes.get(name, 0) + number
                if stopped():
                    break
        return outcomes

    def _publish(self) -> int:
        self.publisher.drain()
        return self.issue_receipts()

    def _compact_log(self) -> None:
        """Erase from a log in files what was deleted or replaced, where that is due; Kafka does it by itself."""
        if not isinstance(self.log, FileLog):
            return
        done = self.own_layout.compacted
        now = self.clock()
        if not done.exists():
            done.touch()
            os.utime(done, (now, now))
        if now - done.stat().st_mtime >= self.settings.max_compaction_lag:
            for topic in (self.names.documents, self.names.releases, self.names.receipts):
                self.log.compact(topic, tombstones_ms=int(self.settings.delete_retention * 1000))
            os.utime(done, (now, now))

    def issue_receipts(self) -> int:
        """Publish the receipts of deletions that a published version reflects; how many."""
        return self.publisher.issue_receipts({p: self.reader.forgets(p) for p in range(self.settings.partitions)})

    def releases(self) -> Iterator[Release]:
        """Yield every published version, verified, those that were withdrawn as well."""
        with self.subscriber(include_withdrawn=True) as subscriber:
            while (release := subscriber.poll()) is not None:
                yield release

    def subscriber(self, *, include_withdrawn: bool = False) -> ModelSubscriber:
        """Return a subscriber of this model that holds nothing but its public key."""
        return ModelSubscriber(
            self.log,
            model=self.settings.model,
            public_key=self.public_key,
            include_withdrawn=include_withdrawn,
            idle_seconds=0,
        )

    def release(self, version: int | None) -> Release:
        """Return a published version, the newest for None.

        Raises UsageError where there is none or it is withdrawn, CheckFailed where it does not verify.
        """
        withdrawn = self.state.withdrawn()
        found = None
        for release in self.releases():
            if version in (None, release.version):
                found = release
        if found is not None and found.version in withdrawn:
            raise UsageError(f"version {version} is withdrawn: it holds documents deleted since; take a later one")
        if found is None and any(number == version for number, _ in self.state.releases()):
            raise CheckFailed(f"version {version} in the log does not verify with this instance's key")
        if found is None:
            name = "no version" if version is None else f"no version {version}"
            raise UsageError(
                f"there is {name}: `streamtopic versions` lists them, `streamtopic status` says what is waiting"
            )
        return found

    def receipts(self) -> list[Receipt]:
        """Return all receipts, verified, oldest first."""
        return list(Receipts(self.log, model=self.settings.model, public_key=self.public_key))

    def versions(self) -> list[dict[str, Any]]:
        """Return what is known of each version, oldest first."""
        records, withdrawn = self.state.releases(), self.state.withdrawn()
        return [version_fields(version, record, withdrawn=version in withdrawn) for version, record in records]

    def model_before_noise(self) -> TopicFit | BaseModel | None:
        """Return the last model of this process, in theorem mode that of Algorithm 1: secret, for checks only."""
        scheduler = self.scheduler
        return scheduler.modeller.fit if scheduler.theorem is None else scheduler.theorem.last

    def draw_again(
        self, fit: TopicFit, source: CountSource, version: int, labelled: Labelled | None = None
    ) -> PayloadPlan:
        """Return the payload that a version gets if it is made of this model: its noise is drawn from the same key.

        labelled: documents of the tasks, without which the payload has no heads. Raises CannotLearn where topics are
        withheld and there is no head.
        """
        options = assembly.scheduler_options(self.settings)
        if labelled is None and options.tasks.withheld:
            raise CannotLearn("tasks", "topics are withheld and there are no labelled documents to fit heads on")
        data = None if labelled is None else TaskData(options.tasks, labelled)
        return make_payload(fit, source, None, options.guarded, self.noise_key, options.model, version, data)

    def status(self) -> dict[str, Any]:
        """Return where the instance stands, without changing it."""
        from streamtopic.service.report import status_of

        return status_of(self)

    def verify(self, update: Callable[[int, int | None], None] = silent, version: int | None = None) -> Verification:
        """Recount the log, learn again, and compare with counts, base model and a version (None: the newest)."""
        from streamtopic.service.verify import verify_instance

        return verify_instance(self, update, version)
