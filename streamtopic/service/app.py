"""The service in one process: what commands call."""

from __future__ import annotations

import os
import secrets
import time
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from streamtopic.client import Deletion, ModelSubscriber, Receipts
from streamtopic.errors import InvalidEvent, SettingsError, UsageError
from streamtopic.events import encode_add, encode_delete
from streamtopic.service import assembly
from streamtopic.service.assembly import Parts
from streamtopic.service.ingest.missed_deletes import sweep_if_due
from streamtopic.service.ingest.partition_ingest import Ingest
from streamtopic.service.paper_mode.verify_theorem import TheoremCheck
from streamtopic.service.publish.erasure import ResidueKeeper, ResidueOptions
from streamtopic.service.publish.publisher import Publisher, Statements
from streamtopic.service.published import Published, read_all_releases, read_release, versions_of
from streamtopic.service.schedule.decide import decision_text
from streamtopic.service.schedule.lease import LeaseKeeper
from streamtopic.service.schedule.scheduler import Scheduler
from streamtopic.service.schedule.situation import SituationReader
from streamtopic.service.status_facts import status_of
from streamtopic.service.verify.relearn import verify_instance
from streamtopic.service.verify.sources import Sources
from streamtopic.streams import FileLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from streamtopic.corpus import Document
    from streamtopic.privacy.keystream import NoiseKey
    from streamtopic.service.schedule.modeller import ModelBeforeNoise
    from streamtopic.service.verify.relearn import Verification
    from streamtopic.signed import Receipt, Release
    from streamtopic.state import Reader

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
    """The work of one `settle`: events by outcome, versions made, the last decision, seconds by stage."""

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
        """Take ownership of a partition; documents whose delete left the log go at once. Raises as Ingest.open."""
        ingest = Ingest.open(
            self.connection,
            self.log,
            self.names,
            partition,
            settings=self.state.settings,
            clock=self.clock,
            base_epoch=self.state.base_epoch,
        )
        ingest.clear_residue_after(self.settings.residue_max_age)
        sweep_if_due(ingest, self.log, int(self.clock() * 1000), int(self.settings.delete_retention * 1000))
        return ingest

    @cached_property
    def reader(self) -> Reader:
        """Reads counts beside their writers."""
        if self.leads:
            _ = self.ingests  # a new instance has no state before its writers open it
        return super().reader

    @cached_property
    def situation(self) -> SituationReader:
        """Reads where the model stands, without the keys that a scheduler needs."""
        options = assembly.scheduler_options(self.settings)
        mode = assembly.modeller(self.settings, self.state.base)
        return SituationReader(self.reader, self.state, mode, options.policy, options.delta, self.clock)

    @cached_property
    def scheduler(self) -> Scheduler:
        """Decides and stages."""
        scheduler = Scheduler(
            self.connection,
            self.state,
            assembly.scheduler_options(self.settings),
            assembly.modeller(self.settings, self.state.base),
            assembly.capacity_measure(self.settings, self.connection),
            self.noise_key,
            self.signing_key,
            published=Published(self.log, self.settings.model, self.keys),
            lease=LeaseKeeper(self.keeper_state, self.holder, int(self.settings.lease * 1000)),
            clock=self.clock,
        )
        self._stack.callback(scheduler.close)
        return scheduler

    @cached_property
    def residue(self) -> ResidueKeeper:
        """Removes the traces that deletions leave."""
        settings = self.settings
        options = ResidueOptions(
            settings.residue_max_age, settings.backups_kept, base_needed=settings.guarantee == "theorem"
        )
        return ResidueKeeper(self.state, self.reader, self.log, options, self.clock)

    def clear_residue(self, *, whole: bool = False) -> bool:
        """Remove the traces that deletions leave, where this process leads; return whether anything moved.

        May be repeated. whole: read the logs to their ends at once, where that is due. Raises as ResidueKeeper.step.
        """
        if self._compact_log():
            self.residue.look_again()
        with self.scheduler.leading() as lease:
            return lease is not None and self.residue.step(lease, whole=whole)

    @cached_property
    def publisher(self) -> Publisher:
        """Publishes staged versions, receipts and completions."""
        return Publisher(
            self.state,
            self.log,
            key=self.signing_key,
            secret=self.receipt_secret,
            link_months=self.settings.link_months,
            clock=self.clock,
            keys=self.keys,
        )

    @cached_property
    def statements(self) -> Statements:
        """Says which version is the newest. A process that ends promises no further statement."""
        interval = self.settings.statement_every if self._resident else 0.0
        return Statements(
            self.state,
            self.log,
            Published(self.log, self.settings.model, self.keys),
            self.signing_key,
            interval_ms=int(interval * 1000),
            clock=self.clock,
        )

    def add(self, documents: Iterable[Document], update: Callable[[int, int | None], None] = silent) -> Sent:
        """Write add events; documents that ingest would refuse are left out, and returned with the reason."""
        todo, sent, refused = iter(documents), 0, list[tuple[str, str]]()
        while batch := list(islice(todo, BATCH)):
            messages = []
            for document in batch:
                try:
                    messages.append(encode_add(document.id, text=document.text, labels=document.labels))
                except InvalidEvent as error:
                    refused.append((document.id, str(error)))
            sent += len(self.send(messages))
            update(sent, None)
        return Sent(sent, refused)

    def delete(self, ids: Iterable[str]) -> list[Deletion]:
        """Write delete events; return request ids and salts, by which their receipts are found.

        Raises UsageError for an id that no document can have.
        """
        requests, messages = [], []
        for document in ids:
            requests.append(Deletion(secrets.token_hex(12), secrets.token_hex(16)))
            try:
                messages.append(encode_delete(document, requests[-1], requests[-1].salt.encode()))
            except InvalidEvent as error:
                raise UsageError(f"cannot delete {document[:80]!r}: {error}") from None
        self.send(messages)
        return requests

    def settle(
        self,
        update: Callable[[int, int | None], None] = silent,
        *,
        announce: Callable[[str], None] = silent,
        stopped: Callable[[], bool] = lambda: False,
        requested: str | None = None,
    ) -> Settled:
        """Ingest all that is in the log, then decide, learn and publish until nothing more is due.

        update: told how many records are counted, of how many.
        announce: told the name of the present stage.
        stopped: asked between flushes and versions, to leave early; finished work stays.
        requested: the wish of an operator, "unlearn" or "retrain".
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
            # An update that could not be verified, and the reads of a decision, do not count as a stage.
            rest = time.perf_counter() - start - sum(step.seconds.values())
            for name, spent in {"decide": rest, **step.seconds}.items():
                seconds[name] = seconds.get(name, 0.0) + spent
            if step.version is None:
                break
            made.append(step.version)
        start = time.perf_counter()
        announce("publishing")
        receipts = self._publish()
        # Segments are merged once versions are out: nobody waits for it.
        for ingest in self.ingests:
            while ingest.compact_if_due():
                pass
        self.clear_residue(whole=True)
        self.issue_completion()
        announce("")
        if made or receipts:
            seconds["publish"] = time.perf_counter() - start
        versions = [version for version in self.versions() if version["version"] in made] if made else []
        return Settled(ingested, versions, decision, receipts, seconds)

    def _ingest(self, update: Callable[[int, int | None], None], stopped: Callable[[], bool]) -> dict[str, int]:
        for ingest in self.ingests:
            ingest.went_back()
        total, done, outcomes = sum(ingest.lag for ingest in self.ingests), 0, dict[str, int]()
        before = (-1, 0)
        # One partition may send deletions to another; what waits for an open transaction is left for the next time.
        while (lag := sum(ingest.lag for ingest in self.ingests)) and before != (done, lag):
            before = (done, lag)
            for ingest in self.ingests:
                for progress in ingest.drain():
                    done += progress.records
                    update(done, max(total, done))
                    for name, number in progress.outcomes.items():
                        outcomes[name] = outcomes.get(name, 0) + number
                    if stopped():
                        return outcomes
        return outcomes

    def _publish(self) -> int:
        # Receipts name versions as they stand in the log, so versions go out first.
        records = self.publisher.drain()
        receipts = self.issue_receipts()
        self.statements.publish(changed=records > 0)
        return receipts

    def _compact_log(self) -> bool:
        """Compact a log in files where that is due, as Kafka does by itself; return whether it was done."""
        if not isinstance(self.log, FileLog):
            return False
        done = self.own_layout.compacted
        now = self.clock()
        # The file's time is the memory of it. A new log has nothing to compact, so its time begins now.
        if not done.exists():
            done.touch(mode=0o600)
            os.utime(done, (now, now))
        due = now - done.stat().st_mtime >= self.settings.max_compaction_lag
        if due:
            for topic in (self.names.documents, self.names.releases):
                self.log.compact(topic, tombstones_ms=int(self.settings.delete_retention * 1000))
            os.utime(done, (now, now))
        return due

    def issue_receipts(self) -> int:
        """Publish the receipts of deletions that a published version reflects; return their number."""
        return self.publisher.issue_receipts({p: self.reader.forgets(p) for p in range(self.settings.partitions)})

    def issue_completion(self) -> bool:
        """Publish that nothing is left of deleted documents, where that is new; return whether it was."""
        return self.publisher.issue_completion({p: self.reader.forgets(p) for p in range(self.settings.partitions)})

    def releases(self) -> Iterator[Release]:
        """Yield every published version, verified, those that were withdrawn as well."""
        return read_all_releases(self.log, self.settings.model, self.keys)

    def subscriber(self, *, include_withdrawn: bool = False) -> ModelSubscriber:
        """Return a subscriber of this model that holds nothing but its public keys."""
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

    def receipts(self) -> list[Receipt]:
        """Return all receipts, verified, oldest first."""
        return list(Receipts(self.log, model=self.settings.model, public_key=self.keys))

    def versions(self) -> list[dict[str, Any]]:
        """Return every version as `versions --json` shows it, oldest first."""
        return versions_of(self.state)

    def model_before_noise(self) -> ModelBeforeNoise | None:
        """Return the last model of this process: secret, for checks only."""
        return self.scheduler.modeller.last

    def status(self) -> dict[str, Any]:
        """Return the state of the instance as `status --json` shows it, without changing it."""
        return status_of(self, self.situation)

    @property
    def sources(self) -> Sources:
        """All that `verify` and `gather` read, as it is now."""
        settings = self.settings
        # A dashboard has no noise key, and may check all that needs none.
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
        )

    def verify(self, update: Callable[[int, int | None], None] = silent, version: int | None = None) -> Verification:
        """Recount the log, learn again, and compare with counts, base model and a version (None: the newest)."""
        return verify_instance(self.sources, update, version)
