"""The scheduler: decide, model, stage one version. One leader at a time.

A step reads top to bottom here: `step` takes the lease, `_step` decides, `_unlearn` or `_retrain` makes a model,
`_stage` turns it into signed bytes that wait for the publisher, and `_withdraw` takes versions back where no model can
be made.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from streamtopic.errors import CannotLearn
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.service.published import Published
from streamtopic.service.schedule.decide import Decision, Policy, Retrain, Situation, Unlearn, Wait, decision_text
from streamtopic.service.schedule.lease import LeaseKeeper
from streamtopic.service.schedule.modeller import Made, MeasureCapacity, Modeller, NewBase, NotVerified
from streamtopic.service.schedule.payload import PayloadPlan, TaskData, TaskOptions, read_labelled, remarks
from streamtopic.service.schedule.self_check import Checked, SelfCheckRule, check_update
from streamtopic.service.schedule.situation import Base, SituationReader, unserved
from streamtopic.service.schedule.version import (
    account,
    adopt,
    describe,
    erasures,
    holding,
    ledger_entry,
    outgoing,
    release_record,
    replaced,
    stored_base,
)
from streamtopic.service.watching import Watch
from streamtopic.signed import Envelope, Kind, SigningKey, release_digest, seal_release, to_messages
from streamtopic.state import Connection, Lease, ModelState, Reader, Snapshot, Stale, cut
from streamtopic.state.documents import sample_words

__all__ = ["Scheduler", "SchedulerOptions", "Step"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """The settings of a scheduler.

    model: name of the model.
    topics: how many topics it has.
    policy: when to act.
    capacity_rule: the rule that the deletion capacity is set by, as envelopes name it.
    tasks: downstream tasks, and whether their heads go out in place of topics.
    delta: of the guarantee, which versions compose to.
    keep_versions: how many versions stay in the log, besides those that are withdrawn.
    self_check: when an update is checked before it leaves.
    """

    model: str
    topics: int
    policy: Policy = field(default_factory=Policy)
    capacity_rule: str = "share"
    tasks: TaskOptions = field(default_factory=TaskOptions)
    delta: float = 1e-6
    keep_versions: int = 100
    self_check: SelfCheckRule = field(default_factory=SelfCheckRule)


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one step.

    decision: the action taken, with its reason.
    version: the version staged, if any.
    withdrawn: versions that were withdrawn.
    seconds: by stage.
    """

    decision: Decision
    version: int | None = None
    withdrawn: tuple[int, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)


class Scheduler:
    """Decides and stages; its modeller keeps the current model in memory so that the next update is warm.

    modeller: the mode that models are made in.
    capacity: measures the deletion capacity of a new base model.
    published: the versions in the releases topic; read to its end before a version is staged.
    lease: leadership.
    clock: seconds since 1970.
    watch: is told what the scheduler does.
    """

    def __init__(
        self,
        connection: Connection,
        state: ModelState,
        options: SchedulerOptions,
        modeller: Modeller,
        capacity: MeasureCapacity,
        noise_key: NoiseKey,
        signing_key: SigningKey,
        *,
        published: Published,
        lease: LeaseKeeper,
        clock: Callable[[], float] = time.time,
        watch: Watch | None = None,
    ) -> None:
        self.connection = connection
        self.state = state
        self.options = options
        self.modeller = modeller
        self.reader = Reader(connection, options.model, state.settings.partitions)
        self._capacity = capacity
        self._noise_key = noise_key
        self._signing_key = signing_key
        self._published = published
        self._lease = lease
        self._watch = watch or Watch()
        self._situation = SituationReader(
            self.reader, state, modeller, options.policy, options.delta, clock, published.rivals
        )
        self._noted = ""
        self._heads = TaskData().before
        self._failed: tuple[dict[int, int], str] | None = None

    def decide(self, requested: str | None = None) -> Decision:
        """Return the decision of a `step` now, without acting on it."""
        return self._situation.decide(self._situation.read(requested, self._failure()))

    def step(self, requested: str | None = None) -> Step:
        """Decide once and act on it.

        requested: `unlearn` or `retrain`; None takes the request that waits in Redis from an operator, if any.
        Raises ComponentUnreachable, StateError; a failed attempt stages nothing, and may be repeated.
        """
        lease = self._lease.acquire()
        self._watch.leads(leading=lease is not None)
        if lease is None:
            return Step(Wait("another scheduler leads"))
        step = self._step(lease, requested)
        self._watch.decided(type(step.decision).__name__.lower())
        # Steps come every few seconds, and a decision that stays needs no write.
        if (text := decision_text(step.decision)) != self._noted:
            self.state.note_decision(text, self._situation.now())
            self._noted = text
        return step

    @contextmanager
    def leading(self) -> Iterator[Lease | None]:
        """Yield this scheduler's lease, which lasts for as long as the block runs; None where another one leads."""
        lease = self._lease.acquire()
        with nullcontext() if lease is None else self._lease.kept(lease):
            yield lease

    def close(self) -> None:
        """Give leadership up."""
        self._lease.release()
        self._watch.leads(leading=False)

    def _step(self, lease: Lease, requested: str | None) -> Step:
        waiting = self.state.requested()
        requested = requested or (waiting or "").partition(":")[0] or None
        # Redis may have been set back since; the log says which versions subscribers hold.
        self._published.refresh()
        situation = self._situation.read(requested, self._failure())
        decision = self._situation.decide(situation)
        if isinstance(decision, Wait):
            return self._withdraw(lease, decision, situation)
        with self._lease.kept(lease):
            account(self.state, self._published.rivals)
            # Versions read back from the log change the situation, so the first decision may rest on a false one.
            if adopt(self.state, lease, self._published.versions):
                decision = self.decide(requested)
            step = Step(decision) if isinstance(decision, Wait) else self._act(lease, decision)
        # Only now: a process that is killed before leaves the request to the next leader.
        if waiting is not None:
            self.state.fulfil(waiting)
        return step

    def _act(self, lease: Lease, decision: Retrain | Unlearn) -> Step:
        # Read before the attempt: a document that comes meanwhile must not be held for one that was tried.
        offsets = self._offsets()
        try:
            with self._watch.busy("learning"):
                if isinstance(decision, Unlearn):
                    return self._unlearn(lease, decision)
                return self._retrain(lease, decision)
        except CannotLearn as error:
            self._watch.blocked(error.reason)
            self._failed = (offsets, str(error))
            return self._withdraw(
                lease,
                Wait(f"no model can be made of the present documents: {error}"),
                self._situation.read(failed=str(error)),
            )

    def _unlearn(self, lease: Lease, decision: Unlearn) -> Step:
        base = self._situation.base()
        if base is None:
            return Step(Wait("the base model vanished while it was decided on"))
        through = base.epoch if self.modeller.base_only else None
        made = self.modeller.unlearn(self.reader.snapshot(through=through), base)
        # The counts are right in any case, so a model learned from them serves the deletion as well.
        if isinstance(made, NotVerified):
            return self._retrain(lease, Retrain(f"{decision.reason}; {made.reason}"))
        checked = self._own_check(made)
        if checked is not None and checked.passed is False:
            # A false version is not published. One learned cold rests on nothing that the check found false.
            self.modeller.forget()
            reason = f"{decision.reason}; the update was not borne out by the service's own check: {checked.detail}"
            # A retraining needs the memory that the false model still takes.
            del made
            return self._retrain(lease, Retrain(reason))
        return self._stage(lease, decision, made, base, checked=checked)

    def _own_check(self, made: Made) -> Checked | None:
        """Check an update that was carried over, where that is due; keep and tell the result."""
        now = self._situation.now()
        if made.fit is None or not made.warm:
            return None
        if not self.options.self_check.due(self.state.checked(), now):
            return None
        checked = check_update(made.fit, made.snapshot, self._noise_key.counts_key)
        version, suspects = self._next_version(), self._situation.suspects()
        self._watch.checked(passed=checked.passed)
        self.state.note_check(checked.fields(version, now, suspects if checked.passed is False else ()))
        if checked.passed is False:
            logger.error(
                "version %d of %s is not published: %s. One learned from the counts takes its place and withdraws %s",
                version,
                self.options.model,
                checked.detail,
                ", ".join(map(str, suspects)) or "no other",
                extra={"event": "self_check_failed", "version": version},
            )
        return checked

    def _retrain(self, lease: Lease, decision: Retrain) -> Step:
        """Begin a new epoch everywhere, train on all before it, commit once: a crash leaves the old base as it was."""
        positions = self.reader.positions()
        # Partitions may be epochs apart where an earlier attempt was killed between two cuts; the largest closes all.
        epoch = max(meta.epoch for meta in positions.values())
        for partition in positions:
            result = cut(self.connection, self.options.model, partition, epoch=epoch + 1, leader=lease.token)
            if isinstance(result, Stale):
                return Step(Wait(f"partition {partition} could not begin an epoch: {result.reason}"))
        made, new = self.modeller.retrain(self.reader.snapshot(through=epoch), self._capacity)
        limit, facts = new.capacity.limit, new.capacity.facts
        base = Base(self._next_version(), epoch, made.documents, made.anchors, limit, facts)
        return self._stage(lease, decision, made, base, new=new)

    def _stage(
        self,
        lease: Lease,
        decision: Retrain | Unlearn,
        made: Made,
        base: Base,
        *,
        new: NewBase | None = None,
        checked: Checked | None = None,
    ) -> Step:
        """Stage a version.

        base: the base model that it stands on.
        new: the same with its numbers, where this is its first version.
        checked: the result of its own check, if there was one.
        """
        version = self._next_version()
        kind: Kind = "unlearn" if new is None else "retrain"
        start = time.perf_counter()
        plan = self._payload(made, version)
        envelope = self._envelope(made, plan, kind, base, version)
        sealed = seal_release(plan.payload, envelope, self._signing_key)
        chunks = to_messages(version, sealed)
        records = [outgoing(self.options.model, message) for message in chunks]
        records += replaced(self.state, envelope, self.options.keep_versions)
        seconds = _stages(kind, made, base, checked) | {"noise and release": time.perf_counter() - start}
        result = self.state.stage(
            lease,
            version,
            release=release_record(
                envelope,
                digest=release_digest(sealed),
                chunks=len(chunks),
                warm=made.warm,
                reason=decision.reason,
                seconds=sum(seconds.values()),
                unfitted=plan.unfitted,
                facts={**plan.facts, **_told(checked)},
            ),
            ledger=ledger_entry(envelope, plan.digest),
            records=records,
            base=None if new is None else stored_base(base, new, self._salt(version, plan)),
        )
        if isinstance(result, Stale):
            return Step(Wait(f"version {version} was not staged: {result.reason}"), seconds=seconds)
        # Only once it is staged: heads of a version that nobody gets are no start for the next.
        self._failed, self._heads = None, plan.fitted
        self._watch.staged(version, kind, seconds)
        self._watch.withdrew(len(envelope.withdrawn))
        for remark in remarks(plan):
            extra = {"event": "version_remark", "version": version}
            logger.warning("version %d of %s: %s", version, self.options.model, remark, extra=extra)
        return Step(decision, version, envelope.withdrawn, seconds)

    def _next_version(self) -> int:
        last = self._situation.last()
        return last.version + 1 if last else 1

    def _salt(self, version: int, plan: PayloadPlan) -> bytes:
        """Return a secret for the kept bytes of a base model, the same on a retry."""
        return self._noise_key.seed(self.options.model, version, plan.digest, "base").secret

    def _payload(self, made: Made, version: int) -> PayloadPlan:
        """Read the documents that a payload needs beside its model, and draw it."""
        tasks = self.options.tasks
        # NPMI is a figure of topics, so nothing is read for it where topics are withheld.
        sample = None if tasks.withheld else sample_words(self.connection, made.snapshot, made.words)
        labelled = read_labelled(self.connection, made.snapshot, made.words, tasks)
        data = TaskData(tasks, labelled, before=self._heads, cold=not made.warm)
        return made.draw(sample, self._noise_key, self.options.model, version, data)

    def _envelope(self, made: Made, plan: PayloadPlan, kind: Kind, base: Base, version: int) -> Envelope:
        spent = self._situation.spent(base.version).then(plan.noise.scale, plan.noise.slack)
        facts = describe(
            made,
            base=base,
            kind=kind,
            version=version,
            model=self.options.model,
            topics=self.options.topics,
            created=self._situation.now(),
        )
        return Envelope(
            **facts,
            guarantee=self.modeller.guarantee,
            epsilon=plan.noise.epsilon,
            delta=plan.noise.delta,
            sigma=plan.noise.sigma,
            scale=plan.noise.scale,
            slack=plan.noise.slack,
            ratio=plan.noise.ratio,
            covered=plan.covered,
            capacity_rule=self.options.capacity_rule,
            cumulative_epsilon=spent.epsilon(self.options.delta),
            withdrawn=self._withdrawn_by(made.snapshot),
            previous=self._digest(version - 1),
            commitment=self._noise_key.commitment(self.options.model, version, plan.digest),
        )

    def _digest(self, version: int) -> str:
        """Return the digest of the version before the next one, "" where there is none or nobody knows it any more.

        What stands in the log comes first: subscribers hold that, whatever Redis was set back to.
        """
        newest = dict(self.state.releases(1))
        return self._published.digest(version) or str(newest.get(version, {}).get("digest", ""))

    def _withdrawn_by(self, snapshot: Snapshot) -> tuple[int, ...]:
        """Return versions that a new one replaces: none may stand whose promise is broken, doubled or unproven."""
        now = self._situation
        return tuple(sorted({*self._holding(snapshot), *now.doubled(), *now.unproven(), *now.refuted()}))

    def _holding(self, snapshot: Snapshot | None) -> tuple[int, ...]:
        """Return versions that still hold a document forgotten since, and are not withdrawn yet."""
        # A version made of a snapshot misses deletions up to its cut only; a withdrawal alone looks at all of them.
        views = () if snapshot is None else snapshot.views
        positions = {view.partition: view.meta for view in views} or self.reader.positions()
        forgotten = [
            (partition, forget.document_offset)
            for partition, forget in unserved(self.reader, positions, self._situation.last())
            if forget.offset < positions[partition].next_offset
        ]
        return holding(self.state.releases(), self.state.withdrawn(), forgotten) if forgotten else ()

    def _withdraw(self, lease: Lease, decision: Wait, situation: Situation) -> Step:
        """Withdraw versions where no model can be made to take their place.

        Versions go that hold documents which waited too long, or that the own check has not borne out.
        """
        # A model can be made, so the next version withdraws what it replaces, and subscribers are never without one.
        if situation.failed is None:
            return Step(decision)
        oldest = situation.oldest_unserved_ms
        late = oldest is not None and self._situation.now() - oldest >= self.options.policy.max_forget_lag_ms
        versions = tuple(sorted({*self._situation.refuted(), *(self._holding(None) if late else ())}))
        if not versions:
            return Step(decision)
        records = erasures(self.state, self.state.releases(), versions, retired=False)
        if isinstance(self.state.withdraw(lease, versions, records), Stale):
            return Step(decision)
        self._watch.withdrew(len(versions))
        return Step(decision, withdrawn=versions)

    def _failure(self) -> str | None:
        """Return why the last attempt failed, while no document has come or gone since."""
        if self._failed is None:
            return None
        return self._failed[1] if self._offsets() == self._failed[0] else None

    def _offsets(self) -> dict[int, int]:
        return {partition: meta.next_offset for partition, meta in self.reader.positions().items()}


def _stages(kind: Kind, made: Made, base: Base, checked: Checked | None) -> dict[str, float]:
    """Return the seconds that a model took until it is staged, by stage."""
    seconds: dict[str, float] = {kind: made.seconds}
    if checked is not None:
        seconds["self check"] = checked.seconds
    if kind == "retrain" and "tried" in base.calibration:
        seconds["try deletions"] = base.calibration["tried"]["seconds"]
    return seconds


def _told(checked: Checked | None) -> dict[str, object]:
    """Return what the release record keeps of an own check."""
    return {} if checked is None else {"self_check": {"passed": checked.passed, "detail": checked.detail}}
