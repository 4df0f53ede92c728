"""The scheduler decides, makes a model and stages one version. One scheduler leads at a time.

A step reads from top to bottom: `step` takes the lease, `_step` decides, `_unlearn` or `_retrain` makes a model,
`_make_version` turns it into bytes and the entry of the ledger that names them, `_stage` lets both wait for the
publisher, and `_withdraw` takes versions back if no model can be made.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from streamtopic.counts import SymmetricCounts, WordSets
from streamtopic.errors import CannotLearn, StateMissing, StreamtopicError
from streamtopic.monitoring.tracing import enabled, span
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.service.publish.ledger_writer import LedgerWriter
from streamtopic.service.schedule.decide import (
    BY_HAND,
    Decision,
    Retrain,
    Situation,
    Unlearn,
    Wait,
    decision_text,
    held,
)
from streamtopic.service.schedule.modeller import (
    Checked,
    Made,
    MeasureCapacity,
    Modeller,
    NotVerified,
    check_is_due,
    check_update,
)
from streamtopic.service.schedule.payload import PayloadPlan, TaskData, no_sample, read_labelled, remarks, task_options
from streamtopic.service.schedule.situation import (
    Base,
    SituationReader,
    accepted,
    policy_of,
    traced_deletions,
    unserved,
)
from streamtopic.service.schedule.version import (
    counted_of,
    describe,
    erasures,
    follow_ledger,
    holding,
    outgoing,
    release_record,
    replaced,
    stored_base,
)
from streamtopic.service.watching import Watch
from streamtopic.settings import Settings
from streamtopic.signed import Envelope, Kind, Runs, pack_payload, to_messages
from streamtopic.state import (
    BaseDocuments,
    Connection,
    CutGone,
    DocumentCounts,
    Lease,
    Meta,
    ModelState,
    Reader,
    RemainingBase,
    Stale,
    StoredBase,
)
from streamtopic.state.documents import sample_words
from streamtopic.state.scripts import Outcome
from streamtopic.state.stored_counts import CountsStore, SummedCounts
from streamtopic.streams import EventLog, Message
from streamtopic.topics.fit import TopicFit

__all__ = ["CountsKeeper", "LeaseKeeper", "Scheduler", "Step"]


logger = logging.getLogger(__name__)


class LeaseKeeper:
    """Takes the lease of a model and keeps it. Only its holder can stage a version.

    state: over a connection of its own, since renewals go on during all other calls.
    holder: the name of this process.
    ttl_ms: milliseconds without a renewal after which another scheduler may take over.
    """

    def __init__(self, state: ModelState, holder: str, ttl_ms: int) -> None:
        self._state = state
        self._holder = holder
        self.ttl_ms = ttl_ms

    def acquire(self) -> Lease | None:
        """Become or stay leader; return None while another scheduler leads."""
        return self._state.acquire(self._holder, self.ttl_ms)

    @contextmanager
    def kept(self, lease: Lease) -> Iterator[None]:
        """Renew the lease as long as the block runs."""
        done = threading.Event()

        def renew() -> None:
            # Three renewals in a lease's time: one that is lost or late costs no leadership.
            while not done.wait(self.ttl_ms / 3000):
                try:
                    now = self._state.acquire(self._holder, self.ttl_ms)
                except StreamtopicError:
                    continue  # staging checks the lease again, and reports the error
                # Another scheduler led meanwhile, so the token is void, and renewing it would only keep others out.
                if now is None or now.token != lease.token:
                    return

        thread = threading.Thread(target=renew, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def release(self) -> None:
        """Give leadership up, so that another scheduler need not wait until the lease ends."""
        self._state.release(Lease(self._holder, 0))


class CountsKeeper:
    """Keeps the co-occurrence counts in Redis near the documents, so that a leader that starts need not count them all.

    The changes since their cut must be there: a generation of changes ends, and the one before it goes. So the counts
    are written again once a generation has begun since their cut, and hold no document for longer than the changes do.
    """

    def __init__(self, store: CountsStore, reader: Reader) -> None:
        self._store = store
        self._reader = reader

    def replace(self, lease: Lease, fit: TopicFit, counts: DocumentCounts) -> None:
        """Write the counts of a model that was just made. counts: that it was made from."""
        self._write(lease, fit.names, fit.q, counts)

    def is_there(self) -> bool:
        """Return whether there are counts in Redis."""
        return self._store.about() is not None

    def is_due(self) -> bool:
        """Return whether a generation of changes has begun since the cut of the counts, so that they must be folded."""
        about = self._store.about()
        if about is None:
            return False
        positions = self._reader.positions()
        return any(not meta.summed <= about.cut[p].version <= meta.version for p, meta in positions.items())

    def fold(self, lease: Lease) -> None:
        """Add the documents that came or went since to the counts. Raises StateError, ComponentUnreachable."""
        counts = self._reader.counts()
        words, q = self._sums(counts)
        self._write(lease, words, q, counts)

    def _sums(self, counts: DocumentCounts) -> tuple[Sequence[str], SymmetricCounts]:
        """Return those of the words that documents hold still, and their pairs."""
        position = {word: k for k, word in enumerate(counts.words)}
        words = [word for word in self._store.words() if word in position]
        keep = np.array([position[word] for word in words], np.intp)
        stored = self._store.read()
        if stored is not None:
            with suppress(CutGone):
                return words, SummedCounts.of(counts, stored).symmetric(keep)
        return words, counts.symmetric(keep)

    def _write(self, lease: Lease, words: Sequence[str], q: SymmetricCounts, counts: DocumentCounts) -> None:
        self._store.write(words, q, counts, lease)
        logger.debug("wrote the co-occurrence counts of %d words", len(words), extra={"event": "counts_written"})


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one step.

    decision: the action, with its reason.
    version: the version that was staged, if any.
    withdrawn: versions that were withdrawn.
    seconds: durations by stage.
    """

    decision: Decision
    version: int | None = None
    withdrawn: tuple[int, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)


class Scheduler:
    """Decides and stages. Its modeller keeps the current model in memory, so that the next update is warm.

    settings: of the model.
    modeller: the mode in which models are made.
    capacity: measures the deletion capacity of a new base model.
    noise_key: the secret that noise is drawn from.
    ledger: it is read to its end before a version is staged.
    log: where the ledger and the releases are.
    lease: leadership.
    clock: seconds since 1970.
    watch: is told what the scheduler does.
    staged: called once there is something to publish.
    """

    def __init__(
        self,
        connection: Connection,
        state: ModelState,
        settings: Settings,
        modeller: Modeller,
        capacity: MeasureCapacity,
        noise_key: NoiseKey,
        *,
        ledger: LedgerWriter,
        log: EventLog,
        lease: LeaseKeeper,
        clock: Callable[[], float] = time.time,
        watch: Watch | None = None,
        staged: Callable[[], None] = lambda: None,
    ) -> None:
        self.connection = connection
        self.state = state
        self.settings = settings
        self.modeller = modeller
        self._model = settings.model
        self._tasks = task_options(settings)
        self._excluded = modeller.options.excluded_digest
        self.reader = Reader(connection, settings.model, state.settings.partitions)
        self._sums = CountsKeeper(CountsStore(connection, settings.model), self.reader)
        self._capacity = capacity
        self._noise_key = noise_key
        self._ledger = ledger
        self._log = log
        self._lease = lease
        self._watch = watch or Watch()
        self._staged = staged
        self._base_documents = BaseDocuments(self.reader, settings.model)
        self._situation = SituationReader(self.reader, state, modeller, self._left, settings, clock)
        self._noted = ""
        self._parent = 0
        # Versions that are withdrawn in the ledger, or in Redis by no later version.
        self._withdrawn = Runs()
        self._heads = TaskData().before
        self._failed: tuple[dict[int, int], str] | None = None

    def step(self, requested: str | None = None) -> Step:
        """Decide once and act on it.

        requested: `unlearn` or `retrain`; None takes an operator's request that waits in Redis, if any.

        Raises ComponentUnreachable, StateError; CutGone if documents changed faster than a model could be made of
        them. A failed attempt stages nothing, and may be repeated.
        """
        lease = self._lease.acquire()
        self._watch.leads(leading=lease is not None)
        if lease is None:
            return Step(Wait("another scheduler leads"))
        with self._lease.kept(lease):
            step = self._step(lease, requested)
            if self._sums.is_due():
                # If documents change too fast for that, the next step does it.
                with suppress(CutGone):
                    self._sums.fold(lease)
        # Steps come every few seconds, and a decision that stays needs no write.
        if (text := decision_text(step.decision)) != self._noted:
            self.state.note_decision(text, self._situation.now())
            self._noted = text
        return step

    def offsets(self) -> dict[int, int]:
        """Return, by partition, the offset up to which records are counted; {} before every partition was counted."""
        try:
            return {partition: meta.next_offset for partition, meta in self.reader.positions().items()}
        except StateMissing:
            return {}

    @contextmanager
    def leading(self) -> Iterator[Lease | None]:
        """Yield this scheduler's lease, which lasts as long as the block runs; None if another scheduler leads."""
        lease = self._lease.acquire()
        with nullcontext() if lease is None else self._lease.kept(lease):
            yield lease

    def close(self) -> None:
        """Give leadership up."""
        # First: where Redis is away, the lease ends by itself.
        self._watch.leads(leading=False)
        self._lease.release()

    def _step(self, lease: Lease, requested: str | None) -> Step:
        """Decide as the leader, and act."""
        waiting = self.state.requested()
        requested = requested or (waiting or "").partition(":")[0] or None
        # Redis may have been set back since; the ledger says which versions there are.
        self._ledger.catch_up()
        follow_ledger(self.state, lease, self._ledger, self._log)
        self._parent = self._situation.last_version()
        self._withdrawn = self._ledger.ledger.withdrawn | self.state.withdrawn_alone()
        situation = self._situation.read(requested, self._failure())
        decision = self._situation.decide(situation)
        if isinstance(decision, Wait):
            # An obstacle stays one while the next attempt only waits for the rest of a subject's documents.
            if situation.failed is None and held(situation, policy_of(self.settings)) is None:
                self._watch.unblocked()
            return self._withdraw(lease, decision, situation)
        # One at a time: what Redis holds and the ledger lacks is the newest version, if any.
        if self._parent > self._ledger.ledger.newest:
            return Step(Wait(f"version {self._parent} is on its way to the ledger"))
        step = self._act(lease, decision)
        # Only now: a process that is killed before this leaves the request to the next leader.
        if waiting is not None:
            self.state.fulfil(waiting)
        return step

    def _act(self, lease: Lease, decision: Retrain | Unlearn) -> Step:
        """Make and stage a model; withdraw versions if none can be made."""
        # Read before the attempt: a document that comes meanwhile was not part of it.
        offsets = self.offsets()
        try:
            with self._watch.busy("learning"):
                if isinstance(decision, Unlearn):
                    return self._unlearn(lease, decision)
                return self._retrain(lease, decision)
        except CannotLearn as error:
            self._watch.blocked(error.reason)
            self._failed = (offsets, str(error))
            wait = Wait(f"no model can be made of the present documents: {error}")
            return self._withdraw(lease, wait, self._situation.read(failed=str(error)))

    def _unlearn(self, lease: Lease, decision: Unlearn) -> Step:
        """Update the base model and stage the result; retrain where the update cannot be verified."""
        base = self._situation.base()
        if base is None:
            return Step(Wait("the base model vanished after the decision"))
        before = base.start.offsets if self.modeller.base_only else None
        start = time.perf_counter()
        made = self.reader.read(lambda counts: self.modeller.unlearn(counts, base), before=before)
        seconds = {"unlearn": time.perf_counter() - start}
        # The counts are right in any case, so a model learned from them serves the deletion as well.
        if isinstance(made, NotVerified):
            return self._retrain(lease, Retrain(f"{decision.reason}; {made.reason}"))
        checked = self._own_check(made)
        if checked is not None:
            seconds["self check"] = checked.seconds
        if checked is not None and checked.passed is False:
            # A false version must not be published. A model learned cold rests on nothing that the check found false.
            self.modeller.forget()
            reason = f"{decision.reason}; the update was not borne out by the service's own check: {checked.detail}"
            # A retraining needs the memory that the false model still takes.
            del made
            return self._retrain(lease, Retrain(reason))
        forgotten = base.documents - self._left(base, made.counts.positions).documents
        step = self._make_version(lease, decision, made, base, seconds, forgotten=forgotten, checked=checked)
        if step.version is not None and made.fit is not None and not self._sums.is_there():
            self._sums.replace(lease, made.fit, made.counts)
        return step

    def _own_check(self, made: Made) -> Checked | None:
        """Check an update that was carried over, where a check is due; keep the result in Redis and log a failure."""
        now = self._situation.now()
        if made.fit is None or not made.warm:
            return None
        if not check_is_due(self.state.checked(), self.settings.self_check, now):
            return None
        checked = check_update(made.fit, made.counts, self._noise_key.counts_key)
        version = self._next_version()
        suspects = self._situation.suspects() if checked.passed is False else ()
        self._watch.checked(passed=checked.passed)
        # Suspects: versions made since the last model that was known to be right.
        self.state.note_check({**asdict(checked), "version": version, "at": now, "suspects": list(suspects)})
        if checked.passed is False:
            withdrawn = ", ".join(map(str, suspects)) or "no other"
            logger.error(
                "version %d of %s is not published: %s. One learned from the counts takes its place and withdraws %s",
                version,
                self._model,
                checked.detail,
                withdrawn,
                extra={"event": "self_check_failed", "version": version},
            )
        return checked

    def _retrain(self, lease: Lease, decision: Retrain) -> Step:
        """Train on all documents.

        The new base model is committed with its version, so a crash leaves the old one as it was.
        """
        counts = self.reader.counts()
        start = time.perf_counter()
        made, capacity = self.modeller.retrain(counts, self._capacity)
        seconds = {"retrain": time.perf_counter() - start}
        base = Base(
            self._next_version(),
            RemainingBase.at(counts.positions, made.documents),
            made.anchors,
            capacity,
            accepted(counts.positions),
            self.settings.capacity.rule,
            self.modeller.guarantee,
            self.modeller.rules,
        )
        step = self._make_version(lease, decision, made, base, seconds)
        if step.version is not None and made.fit is not None:
            self._sums.replace(lease, made.fit, made.counts)
        return step

    def _make_version(
        self,
        lease: Lease,
        decision: Retrain | Unlearn,
        made: Made,
        base: Base,
        seconds: dict[str, float],
        *,
        forgotten: int = 0,
        checked: Checked | None = None,
    ) -> Step:
        """Draw the noise of a model, write its facts with its payload, and stage the version.

        base: the base model that it rests on.
        seconds: that it took to make, by stage.
        forgotten: documents of it that are gone.
        checked: the result of the service's own check, if there was one.
        """
        version = base.version if isinstance(decision, Retrain) else self._next_version()
        kind: Kind = "retrain" if isinstance(decision, Retrain) else "unlearn"
        start = time.perf_counter()
        plan = self._payload(made, version)
        envelope = self._envelope(made, plan, kind, base, version, forgotten)
        if plan.shown:
            # What the entry shows with noise or not at all, decisions still need.
            exact = {"m": made.documents, "counted": counted_of(made.counts, base), "forgotten": forgotten}
            plan = replace(plan, facts={**plan.facts, "exact": exact})
        obstacle = self._obstacle(decision, envelope)
        if obstacle is not None:
            return Step(obstacle)
        data = pack_payload(plan.payload, envelope)
        envelope = replace(envelope, release=hashlib.sha256(data).hexdigest())
        chunks = to_messages(version, data)
        seconds["noise and release"] = time.perf_counter() - start
        facts = {
            **plan.facts,
            **_check_fields(checked),
            "seconds": sum(seconds.values()),
            "noised": plan.digest,
            "warm": made.warm,
            "guided": {name: list(seeds) for name, seeds in plan.payload.guided.items()},
            "unfitted": dict(plan.unfitted),
        }
        record = release_record(envelope, chunks=len(chunks), reason=decision.reason, facts=facts)
        # Before the version is there: with it, the publisher drops deletions.
        asked = self._asked(envelope)
        stored = None if kind == "unlearn" else stored_base(base, plan.kept, self._salt(version, plan))
        result = self._stage(lease, envelope, chunks, record, stored)
        if isinstance(result, Stale):
            return Step(Wait(f"version {version} was not staged: {result.reason}"), seconds=seconds)
        # Only once it is staged: the next version must not start from heads that nobody gets.
        self._failed = None
        self._heads = plan.fitted
        self._staged()
        self._tell(envelope, [*remarks(plan), *made.notes], seconds, asked)
        return Step(decision, version, envelope.withdrawn, seconds)

    def _obstacle(self, decision: Decision, envelope: Envelope) -> Wait | None:
        """Return why a version may not be staged after all, None if it may."""
        version = envelope.version
        # A model takes seconds to make. A Redis that was set back meanwhile no longer knows the versions that this step
        # had read back from the ledger, and would give a number again that subscribers hold.
        self._ledger.catch_up()
        if self._situation.last_version() != self._parent or self._ledger.ledger.newest >= version:
            return Wait(f"other versions stand there than when version {version} was begun: Redis was set back")
        # A request may have come since the decision.
        return None if decision.reason == BY_HAND else self._situation.splits(envelope.cut)

    def _stage(
        self,
        lease: Lease,
        envelope: Envelope,
        chunks: Sequence[Message],
        record: Mapping[str, Any],
        stored: StoredBase | None,
    ) -> Outcome:
        """Write a version into the outbox in Redis; its bytes are fixed from here on.

        chunks: its bytes.
        record: that Redis keeps of it.
        stored: its base model, if this is its first version.
        """
        records = [outgoing(self._model, message) for message in chunks]
        records += replaced(self.state, self._withdrawn, envelope, self.settings.keep_versions)
        # One script for all of it: a version never lacks its record or its base model.
        return self.state.stage(
            lease, envelope.version, release=record, records=records, base=stored, before=envelope.parent
        )

    def _tell(
        self, envelope: Envelope, told: Sequence[str], seconds: Mapping[str, float], asked: Sequence[bytes]
    ) -> None:
        """Tell those who watch, trace or read the log of a version that is staged.

        told: remarks on it.
        seconds: durations by stage.
        asked: the `traceparent` of deletions that it reflects.
        """
        version = envelope.version
        self._watch.staged(version, envelope.kind, seconds)
        spent_ms = int(1000 * sum(seconds.values()))
        times = (envelope.created - spent_ms, envelope.created)
        span("streamtopic version", times, {"version": version}, links=asked)
        for remark in told:
            extra = {"event": "version_remark", "version": version}
            logger.warning("version %d of %s: %s", version, self._model, remark, extra=extra)

    def _asked(self, envelope: Envelope) -> list[bytes]:
        """Return the `traceparent` of deletions that a version reflects, if somebody traces them."""
        if not enabled():
            return []
        return traced_deletions(self.reader, self._situation.last_cut() or {}, envelope.cut)

    def _left(self, base: Base, positions: Mapping[int, Meta]) -> RemainingBase:
        """Return the documents of a base model that are left at some positions."""
        return self._base_documents.left(base.version, base.start, positions)

    def _next_version(self) -> int:
        """Return the number of the next version, which neither Redis nor the ledger has."""
        return max(self._parent, self._ledger.ledger.newest) + 1

    def _salt(self, version: int, plan: PayloadPlan) -> bytes:
        """Return a secret for the kept bytes of a base model, the same on a retry."""
        return self._noise_key.seed(self._model, version, plan.digest, "base").secret

    def _payload(self, made: Made, version: int) -> PayloadPlan:
        """Read the documents that a payload needs besides its model, and draw its noise."""
        tasks = self._tasks
        labelled = read_labelled(made.counts, made.words, tasks)
        data = TaskData(tasks, labelled, before=self._heads, cold=not made.warm)
        # Words that are not known before the noise have no sample either.
        if tasks.withheld or not made.words:
            return made.draw(no_sample, self._noise_key, self._model, version, data)
        # NPMI alone needs the sample, so it is read by a second thread.
        with ThreadPoolExecutor(1, "sample") as beside:
            sample = beside.submit(_sample, made)
            return made.draw(sample.result, self._noise_key, self._model, version, data)

    def _envelope(
        self, made: Made, plan: PayloadPlan, kind: Kind, base: Base, version: int, forgotten: int
    ) -> Envelope:
        """Return the facts of a version, without the digest of its bytes."""
        noise = plan.noise
        spent = self._situation.spent(base.version).then(noise.scale, noise.slack)
        facts = {**describe(made, base, forgotten), "cumulative_epsilon": spent.epsilon(self.settings.delta)}
        return Envelope(
            **(facts | dict(plan.shown)),
            model=self._model,
            version=version,
            kind=kind,
            parent=self._parent,
            created=self._situation.now(),
            guarantee=self.modeller.guarantee,
            epsilon=noise.epsilon,
            delta=noise.delta,
            sigma=noise.sigma,
            scale=noise.scale,
            slack=noise.slack,
            ratio=noise.ratio,
            covered=plan.covered,
            capacity_rule=self.settings.capacity.rule,
            withdrawn=self._withdrawn_by(made.counts),
            # Under a key: without one, who can guess the documents could try the guesses (docs/guarantees.md).
            commitment=self._noise_key.commitment(self._model, version, plan.digest),
            tokeniser=self.settings.tokeniser,
            excluded=self._excluded,
        )

    def _withdrawn_by(self, counts: DocumentCounts) -> tuple[int, ...]:
        """Return the versions that a new one withdraws: with a broken promise, refuted, or never sent."""
        found = set(self._holding(counts))
        found.update(self._situation.unsent())
        found.update(self._situation.refuted())
        # Others came from another leader meanwhile, and this version will not be staged.
        return tuple(sorted(version for version in found if version <= self._parent))

    def _holding(self, counts: DocumentCounts | None) -> tuple[int, ...]:
        """Return versions that hold a document deleted since, and are not withdrawn yet.

        counts: the counts of the version that withdraws them, None for a withdrawal without a new version.
        """
        # A new version reflects deletions up to its cut only; a withdrawal alone reflects all of them.
        positions = self.reader.positions() if counts is None else counts.positions
        waiting = unserved(self.reader, positions, self._situation.last_cut())
        forgotten = [
            (partition, forget.document_offset)
            for partition, forget in waiting
            if forget.offset < positions[partition].next_offset
        ]
        if not forgotten:
            return ()
        records = self._standing()
        # Under the paper's guarantee a version holds the documents of its base, which may be withdrawn.
        bases = self.state.releases_among(Runs.of(record["base"] for _, record in records).pairs())
        cuts = dict(bases) | dict(records)
        return holding(sorted(cuts.items()), self._withdrawn | self.state.withdrawn(records), forgotten)

    def _standing(self) -> list[tuple[int, dict[str, Any]]]:
        """Return number and record of the versions that are not withdrawn in the ledger, oldest first."""
        # Not of all versions that there ever were: a deletion must not cost more with each version.
        return self.state.releases_among(self._withdrawn.gaps(self._parent).pairs())

    def _withdraw(self, lease: Lease, decision: Wait, situation: Situation) -> Step:
        """Withdraw versions if no model can be made to take their place.

        These are versions that hold documents whose deletion has waited too long, and versions that the service's own
        check did not bear out.
        """
        # A model can be made, so the next version withdraws this one, and subscribers are never without one.
        if situation.failed is None:
            return Step(decision)
        found = set(self._situation.refuted())
        oldest = situation.oldest_unserved_ms
        if oldest is not None:
            waited_ms = self._situation.now() - oldest
            if waited_ms >= self.settings.max_forget_lag * 1000:
                found.update(self._holding(None))
        versions = tuple(sorted(found))
        if not versions:
            return Step(decision)
        records = erasures(self.state, self._standing(), versions)
        result = self.state.withdraw(lease, versions, records)
        # Another scheduler leads by now, and withdraws them itself.
        if isinstance(result, Stale):
            return Step(decision)
        self._staged()
        return Step(decision, withdrawn=versions)

    def _failure(self) -> str | None:
        """Return why the last attempt failed, as long as no document has come or gone since."""
        if self._failed is None:
            return None
        offsets, reason = self._failed
        return reason if self.offsets() == offsets else None


def _sample(made: Made) -> WordSets | None:
    """Return the words of a sample of a model's documents, None if its cut is gone by now."""
    # A version without one figure of its quality is better than one that comes later: deletions wait for it.
    try:
        return sample_words(made.counts, made.words)
    except CutGone:
        return None


def _check_fields(checked: Checked | None) -> dict[str, object]:
    """Return the fields that the release record keeps of the service's own check."""
    return {} if checked is None else {"self_check": {"passed": checked.passed, "detail": checked.detail}}
