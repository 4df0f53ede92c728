"""The scheduler decides, makes a model and stages one version. One scheduler leads at a time.

A step reads from top to bottom: `step` takes the lease, `_step` decides, `_unlearn` or `_retrain` makes a model,
`_make_version` turns it into bytes and the entry of the ledger that names them, which wait for the publisher, and
`_withdraw` takes versions back if no model can be made.
"""

import hashlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from streamtopic.counts import DocumentBatch
from streamtopic.errors import CannotLearn, StateMissing, StreamtopicError
from streamtopic.monitoring.metrics import SELF_CHECKS
from streamtopic.privacy.keystream import NoiseKey, VersionNoise
from streamtopic.service.instance import secret
from streamtopic.service.publish.ledger_writer import LedgerWriter, cut_of, recorded
from streamtopic.service.schedule.decide import (
    BY_HAND,
    Decision,
    Retrain,
    Situation,
    SituationReader,
    Unlearn,
    Wait,
    accepted,
    capacity_of,
    decide,
    decision_text,
    suspects,
    unreflected_deletions,
    wait_for_requests,
)
from streamtopic.service.schedule.modeller import Checked, ModelBeforeNoise, Modeller, NotVerified, check_is_due
from streamtopic.service.schedule.payload import Ingredients, PayloadPlan, remarks, task_options
from streamtopic.service.watching import Watch
from streamtopic.signed import (
    Envelope,
    Kind,
    Runs,
    SentRelease,
    line_of,
    pack_payload,
    sent_releases,
    to_messages,
    tombstones,
)
from streamtopic.state import (
    Base,
    CutGone,
    DocumentCounts,
    Lease,
    ModelState,
    Reader,
    RemainingBase,
    Stale,
)
from streamtopic.state.document_counts import read_documents, sample_words
from streamtopic.state.stored_counts import CountsStore, SummedCounts
from streamtopic.streams import EventLog, Message

if TYPE_CHECKING:
    from streamtopic.service.opened import Opened

__all__ = [
    "Scheduler",
    "Step",
    "counts_are_due",
    "describe",
    "erasures",
    "fold_counts",
    "follow_ledger",
    "release_record",
    "renewed",
]


logger = logging.getLogger(__name__)

# Most versions that one version retires. A `keep_versions` that was lowered by much takes effect over several versions.
_RETIRED = 20

# Documents, about, on which NPMI of a version is measured.
_SAMPLE = 20_000


@contextmanager
def renewed(state: ModelState, lease: Lease, ttl_ms: int) -> Iterator[None]:
    """Renew a lease as long as the block runs. Only its holder can stage a version.

    state: over a connection of its own, since renewals go on during all other calls.
    ttl_ms: milliseconds without a renewal after which another scheduler may take over.
    """
    done = threading.Event()

    def renew() -> None:
        # Three renewals in a lease's time: one that is lost or late costs no leadership.
        while not done.wait(ttl_ms / 3000):
            try:
                now = state.acquire(lease.holder, ttl_ms)
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


def counts_are_due(store: CountsStore, reader: Reader) -> bool:
    """Return whether the counts in Redis must be folded: a generation of changes has begun since their cut.

    The changes since their cut must be there: a generation of changes ends, and the one before it goes. So the counts
    hold no document for longer than the changes do, and a leader that starts need not count all documents.
    """
    cut = store.cut()
    if cut is None:
        return False
    return any(not meta.summed <= cut.places[p].version <= meta.version for p, meta in reader.positions().items())


def fold_counts(store: CountsStore, reader: Reader, lease: Lease) -> None:
    """Add the documents that came or went since to the counts in Redis. Raises StateError, ComponentUnreachable."""
    counts, stored, q = reader.counts(), store.read(), None
    if stored is None:
        # Another leader writes them.
        return
    position = {word: k for k, word in enumerate(counts.words)}
    words = [word for word in stored.words if word in position]
    keep = np.array([position[word] for word in words], np.intp)
    with suppress(CutGone):
        q = SummedCounts.of(counts, stored).symmetric(keep)
    store.write(words, counts.symmetric(keep) if q is None else q, counts, lease)


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

    service: whose model it is.
    modeller: the mode in which models are made.
    watch: is told what the scheduler does, if somebody asks.
    staged: called once there is something to publish.

    Raises SettingsError without the noise key.
    """

    def __init__(self, service: "Opened", modeller: Modeller, watch: Watch | None, staged: Callable[[], None]) -> None:
        settings, state = service.settings, service.state
        self.state = state
        self.settings = settings
        self.modeller = modeller
        self._model = settings.model
        self._tasks = task_options(settings)
        self.reader = Reader(state.connection, settings.model, state.settings.partitions)
        self._sums = CountsStore(state.connection, settings.model)
        self._noise_key = NoiseKey(secret(settings, "noise.key"))
        self._ledger = service.ledger
        self._log = service.log
        self._renewing = ModelState(service.connect(), settings.model, state.settings)
        self._holder, self._ttl_ms = service.holder, int(settings.lease * 1000)
        self._watch = watch or Watch()
        self._staged = staged
        self._situation = SituationReader(self.reader, state, modeller, settings, service.clock)
        self._noted = ""
        self._parent = 0
        # Versions that are withdrawn in the ledger, or in Redis by no later version.
        self._withdrawn = Runs()
        self._failed: tuple[dict[int, int], str] | None = None

    def step(self) -> Step:
        """Decide once and act on it; an operator's request that waits in Redis is a part of the situation.

        Raises ComponentUnreachable, StateError; CutGone if documents changed faster than a model could be made of
        them. A failed attempt stages nothing, and may be repeated.
        """
        with self.leading() as lease:
            self._watch.leads = lease is not None
            if lease is None:
                return Step(Wait("another scheduler leads"))
            step = self._step(lease)
            # If documents change too fast for that, the next step does it.
            with suppress(CutGone):
                if counts_are_due(self._sums, self.reader):
                    fold_counts(self._sums, self.reader, lease)
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
        lease = self._renewing.acquire(self._holder, self._ttl_ms)
        with nullcontext() if lease is None else renewed(self._renewing, lease, self._ttl_ms):
            yield lease

    def close(self) -> None:
        """Give leadership up."""
        # First: where Redis is away, the lease ends by itself.
        self._watch.leads = False
        self._renewing.release(Lease(self._holder, 0))

    def _step(self, lease: Lease) -> Step:
        """Decide as the leader, and act."""
        waiting = self.state.requested()
        requested = None if waiting is None else waiting.partition(":")[0]
        # Redis may have been set back since; the ledger says which versions there are.
        self._ledger.catch_up()
        follow_ledger(self.state, lease, self._ledger, self._log)
        self._parent, _ = self._situation.newest()
        self._withdrawn = self._ledger.ledger.withdrawn | self.state.withdrawn_alone()
        situation = self._situation.read(requested, self._failure())
        decision = decide(situation, self.settings, self._situation.now())
        if isinstance(decision, Wait):
            # An obstacle stays one while the next attempt only waits for the rest of a subject's documents.
            if situation.failed is None and wait_for_requests(situation, self.settings) is None:
                self._watch.blocked = ""
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
            with self._watch.health.exempt("learning"):
                if isinstance(decision, Unlearn):
                    return self._unlearn(lease, decision)
                return self._retrain(lease, decision)
        except CannotLearn as error:
            self._watch.blocked = error.reason
            self._failed = (offsets, str(error))
            wait = Wait(f"no model can be made of the present documents: {error}")
            return self._withdraw(lease, wait, self._situation.read(failed=str(error)))

    def _unlearn(self, lease: Lease, decision: Unlearn) -> Step:
        """Update the base model and stage the result; retrain where the update cannot be verified."""
        base = self.state.base_head()
        if base is None:
            return Step(Wait("the base model vanished after the decision"))
        before = base.start.offsets if self.modeller.base_only else None
        due = check_is_due(self.state.checked(), self.settings.self_check, self._situation.now())

        def update(counts: DocumentCounts) -> ModelBeforeNoise | NotVerified:
            made = self.modeller.unlearn(counts, base)
            return self.modeller.check(made) if due and isinstance(made, ModelBeforeNoise) and made.warm else made

        start = time.perf_counter()
        made = self.reader.read(update, before=before)
        seconds = {"unlearn": time.perf_counter() - start}
        # The counts are right in any case, so a model learned from them serves the deletion as well.
        if isinstance(made, NotVerified):
            return self._retrain(lease, Retrain(f"{decision.reason}; {made.reason}"))
        if made.checked is not None:
            seconds["self check"] = made.checked.seconds
            seconds["unlearn"] -= made.checked.seconds
            if not made.checked.passed:
                # Before the version that takes its place: whoever makes that one withdraws what it has to.
                self._note_check(made.checked)
                found = f"the update was not borne out by the service's own check: {made.checked.detail}"
                decision = Unlearn(f"{decision.reason}; {found}")
        forgotten = base.documents - self._situation.left(base, made.counts.positions).documents
        return self._make_version(lease, decision, made, base, seconds, forgotten=forgotten)

    def _note_check(self, checked: Checked) -> None:
        """Keep the result of the service's own check of an update in Redis, and log a failure."""
        version = self._next_version()
        self._watch.add(SELF_CHECKS, "passed" if checked.passed else "failed")
        self.state.note_check({**asdict(checked), "version": version, "at": self._situation.now()})
        if not checked.passed:
            logger.error(
                "an update was not borne out: %s. Version %d of %s is learned from the counts in its place, and "
                "withdraws those since the last one that is known to be right",
                checked.detail,
                version,
                self._model,
                extra={"event": "self_check_failed", "version": version},
            )

    def _retrain(self, lease: Lease, decision: Retrain) -> Step:
        """Train on all documents.

        The new base model is committed with its version, so a crash leaves the old one as it was.
        """
        counts = self.reader.counts()
        start = time.perf_counter()
        capacity = capacity_of(self.settings, counts.documents)
        made = self.modeller.retrain(counts, capacity)
        seconds = {"retrain": time.perf_counter() - start}
        base = Base(
            self._next_version(),
            RemainingBase.at(counts.positions, counts.documents),
            made.anchors,
            capacity,
            accepted(counts.positions),
            self.settings.capacity.rule,
            self.modeller.guarantee,
            self.modeller.rules,
        )
        return self._make_version(lease, decision, made, base, seconds)

    def _make_version(
        self,
        lease: Lease,
        decision: Retrain | Unlearn,
        made: ModelBeforeNoise,
        base: Base,
        seconds: dict[str, float],
        *,
        forgotten: int = 0,
    ) -> Step:
        """Draw the noise of a model, write its facts with its payload, and stage the version.

        base: the base model that it rests on.
        seconds: that it took to make, by stage.
        forgotten: documents of it that are gone.
        """
        version = base.version if isinstance(decision, Retrain) else self._next_version()
        kind: Kind = "retrain" if isinstance(decision, Retrain) else "unlearn"
        start = time.perf_counter()
        plan = self._payload(made, version)
        envelope = self._envelope(made, plan, kind, base, version, forgotten)
        # A request may have come since the decision.
        if decision.reason != BY_HAND and (split := self._situation.splits(envelope.cut)) is not None:
            return Step(split)
        data = pack_payload(plan.payload, envelope)
        envelope = replace(envelope, release=hashlib.sha256(data).hexdigest())
        chunks = to_messages(version, data)
        seconds["noise and release"] = time.perf_counter() - start
        facts = {
            **plan.facts,
            "seconds": sum(seconds.values()),
            "warm": made.warm,
            "guided": {name: list(seeds) for name, seeds in plan.payload.guided.items()},
        }
        passed = made.checked is None or made.checked.passed
        if made.checked is not None and passed:
            facts["self_check"] = asdict(made.checked)
        if "m" in plan.shown:
            # What the entry shows with noise or not at all, decisions still need.
            exact = describe(made, base, forgotten)
            facts["exact"] = {name: exact[name] for name in ("m", "counted", "forgotten")}
        record = release_record(envelope, chunks=len(chunks), reason=decision.reason, facts=facts)
        stored = None
        if kind == "retrain":
            stored = replace(base, blob=plan.kept)
        # One script for all of it: a version never lacks its record or its base model. Bytes are fixed from here on.
        records = [*chunks, *replaced(self.state, self._withdrawn, envelope, self.settings.keep_versions)]
        # Nor does one follow another version than the one before it, as after Redis was set back meanwhile.
        result = self.state.stage(lease, version, before=self._parent, release=record, records=records, base=stored)
        if isinstance(result, Stale):
            return Step(Wait(f"version {version} was not staged: {result.reason}"), seconds=seconds)
        self._failed = None
        self._staged()
        self._watch.staged(kind)
        for remark in (*remarks(plan), *made.notes):
            extra = {"event": "version_remark", "version": version}
            logger.warning("version %d of %s: %s", version, self._model, remark, extra=extra)
        if made.checked is not None and passed:
            self._note_check(made.checked)
        # A check that failed may have found them wrong.
        if made.fit is not None and (not passed or kind == "retrain" or self._sums.cut() is None):
            self._sums.write(made.fit.words, made.fit.q, made.counts, lease)
        return Step(decision, version, envelope.withdrawn, seconds)

    def _next_version(self) -> int:
        """Return the number of the next version, which neither Redis nor the ledger has."""
        return max(self._parent, self._ledger.ledger.newest) + 1

    def _noise(self, version: int) -> VersionNoise:
        """Return the noise of a version."""
        return self._noise_key.of(self._model, version)

    def _payload(self, made: ModelBeforeNoise, version: int) -> PayloadPlan:
        """Draw the noise of a model, and fill the payload of its version with what follows."""

        def versions() -> list[Envelope]:
            return [recorded(record) for _, record in self.state.releases()]

        read = partial(read_documents, made.counts)
        found = Ingredients(self._noise(version), read, self._tasks, versions=versions)
        # Words that are not known before the noise have no sample either.
        if not self._tasks.withheld and made.words:
            found = replace(found, sample=partial(_sample, made))
        return made.draw(found)

    def _envelope(
        self, made: ModelBeforeNoise, plan: PayloadPlan, kind: Kind, base: Base, version: int, forgotten: int
    ) -> Envelope:
        """Return the facts of a version, without the digest of its bytes."""
        spent = self._situation.spent(base.version, plan.shown["scale"], plan.shown["slack"])
        facts = {**describe(made, base, forgotten), "cumulative_epsilon": spent}
        return Envelope(
            **(facts | dict(plan.shown)),
            model=self._model,
            version=version,
            kind=kind,
            parent=self._parent,
            created=self._situation.now(),
            guarantee=self.modeller.guarantee,
            capacity_rule=self.settings.capacity.rule,
            withdrawn=self._withdrawn_by(made.counts),
            # Under a key: without one, who can guess the documents could try the guesses (docs/guarantees.md).
            commitment=self._noise(version).commitment(plan.digest),
            tokeniser=self.settings.tokeniser,
            excluded=self.modeller.options.excluded_digest,
        )

    def _withdrawn_by(self, counts: DocumentCounts) -> tuple[int, ...]:
        """Return the versions that a new one withdraws: with a broken promise, never sent, or by a false update."""
        found = {*self._holding(counts), *self._situation.unsent()}
        last = self.state.checked()
        if last is not None and not last["passed"]:
            found.update(suspects(self.state))
        # Others came from another leader meanwhile, and this version will not be staged.
        return tuple(sorted(version for version in found if version <= self._parent))

    def _holding(self, counts: DocumentCounts | None) -> tuple[int, ...]:
        """Return versions that hold a document deleted since, and are not withdrawn yet.

        counts: the counts of the version that withdraws them, None for a withdrawal without a new version.
        """
        # A new version reflects deletions up to its cut only; a withdrawal alone reflects all of them.
        positions = self.reader.positions() if counts is None else counts.positions
        _, newest = self._situation.newest()
        oldest = dict[int, int]()
        for partition, forget in unreflected_deletions(self.reader, positions, cut_of(newest) if newest else None):
            if forget.offset < positions[partition].next_offset:
                oldest[partition] = min(forget.document_offset, oldest.get(partition, forget.document_offset))
        if not oldest:
            return ()
        records = self._standing()
        withdrawn = self.state.withdrawn(records)
        found = []
        for version, record in records:
            # A version without a cut for a partition may hold any of its documents.
            holds = any(offset < record["cut"].get(str(partition), math.inf) for partition, offset in oldest.items())
            if holds and version not in withdrawn:
                found.append(version)
        return tuple(found)

    def _standing(self) -> list[tuple[int, dict[str, Any]]]:
        """Return number and record of the versions that are not known to be withdrawn, oldest first."""
        # Not of all versions that there ever were: a deletion must not cost more with each version.
        return self.state.releases_among(self._withdrawn.gaps(self._parent).pairs())

    def _withdraw(self, lease: Lease, decision: Wait, situation: Situation) -> Step:
        """Withdraw versions that hold documents whose deletion has waited too long, if no model can replace them."""
        oldest = situation.oldest_unserved_ms
        # If a model can be made, the next version withdraws this one, and subscribers are never without one.
        if situation.failed is None or oldest is None:
            return Step(decision)
        waited_ms = self._situation.now() - oldest
        versions = self._holding(None) if waited_ms >= self.settings.max_forget_lag * 1000 else ()
        if not versions:
            return Step(decision)
        result = self.state.withdraw(lease, versions, erasures(self._standing(), versions))
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


def describe(made: ModelBeforeNoise, base: Base, forgotten: int) -> dict[str, Any]:
    """Return the envelope's facts about the model.

    forgotten: documents of the base model that its counts do not hold any more.
    """
    return {
        "base": base.version,
        "cut": made.counts.offsets,
        "counted": base.counted if made.counts.partial else accepted(made.counts.positions),
        "m": made.counts.documents,
        "n": len(made.words),
        "r": len(made.anchors),
        "tolerance": made.tolerance,
        "certificate": made.certificate,
        "forgotten": forgotten,
        "capacity": base.capacity,
    }


def release_record(
    envelope: Envelope, *, chunks: int, reason: str, facts: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the record that Redis keeps of a version beside its facts, for decisions, the publisher and people.

    chunks: number of its messages in the releases topic.
    reason: of the decision to make it.
    facts: further fields, which subscribers do not get.
    """
    return {**facts, "chunks": chunks, "reason": reason, "entry": line_of(envelope)}


def erasures(records: Sequence[tuple[int, Mapping[str, Any]]], versions: Iterable[int]) -> list[Message]:
    """Return the tombstones of versions. records: number and record of those that are known."""
    chunks = {version: int(record["chunks"]) for version, record in records}
    return [message for version in versions for message in tombstones(version, chunks.get(version, 0))]


def replaced(state: ModelState, withdrawn: Runs, envelope: Envelope, keep_versions: int) -> list[Message]:
    """Return the tombstones of versions that a new one withdraws, and of the oldest beyond `keep_versions`.

    withdrawn: the versions that were withdrawn before.

    Send them after the new version, so that a subscriber is never left without one.
    """
    # Usually it is one version; if the setting was lowered, a few at once.
    standing = withdrawn.gaps(max(envelope.version - keep_versions, 0))
    aged = set(standing.newest(_RETIRED)) - set(envelope.withdrawn)
    records = state.releases_among(Runs.of(aged.union(envelope.withdrawn)).pairs())
    known = {version for version, _ in records}
    return erasures(records, [*envelope.withdrawn, *sorted(aged & known)])


def follow_ledger(state: ModelState, lease: Lease, ledger: LedgerWriter, log: EventLog) -> bool:
    """Record the versions that the ledger has and Redis has not, or has with other bytes; return whether there are any.

    ledger: read to its end.

    Raises ComponentUnreachable, StateMismatch.
    """
    # A Redis that was set back has forgotten versions that subscribers hold. Their numbers must not be used again,
    # their epsilon stays spent, and later deletions are measured against them.
    newest = state.releases(1)
    known, record = newest[0] if newest else (0, {})
    read = ledger.ledger
    if read.newest < known or (read.newest == known and read.digest(known) in {None, record.get("release")}):
        return False
    sent = sent_releases(log, state.model)
    names = [f"version/{number}" for number in range(max(known, 1), read.newest + 1)]
    found = ledger.find(names)
    # Those that are void are left out.
    for envelope in [found[name][0].entry for name in names if name in found]:
        if not isinstance(envelope, Envelope) or (envelope.version == known and envelope.release == record["release"]):
            continue
        bytes_there = sent.get(envelope.version, SentRelease())
        # Bytes that were in Redis alone are lost: the version needs a successor.
        facts = {"unsent": not bytes_there.complete}
        recorded = release_record(envelope, chunks=bytes_there.chunks, reason="read back from the ledger", facts=facts)
        # Another scheduler leads by now, and records the rest itself.
        if isinstance(state.adopt(lease, envelope.version, recorded), Stale):
            return True
    # Tombstones of others may have waited in Redis.
    gone = sorted(version for version in read.withdrawn - state.withdrawn_alone() if version in sent)
    if gone:
        state.withdraw(lease, gone, erasures([(version, {"chunks": sent[version].chunks}) for version in gone], gone))
    return True


def _sample(made: ModelBeforeNoise) -> DocumentBatch | None:
    """Return the words of a sample of a model's documents, None if its cut is gone by now."""
    # A version without one figure of its quality is better than one that comes later: deletions wait for it.
    with suppress(CutGone):
        return sample_words(made.counts, made.words, _SAMPLE)
    return None
