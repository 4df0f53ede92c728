"""The scheduler: decide, model, stage one version. One leader at a time."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from streamtopic.errors import CannotLearn
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.release import Envelope, Kind, seal_release, to_messages
from streamtopic.service.capacity import BaseCapacity, measure_capacity
from streamtopic.service.decide import Decision, Retrain, Standing, Unlearn, Wait, decision_text
from streamtopic.service.lease import LeaseKeeper
from streamtopic.service.modelling import Modelled, Modeller, NotVerified
from streamtopic.service.options import SchedulerOptions
from streamtopic.service.outlook import Outlook
from streamtopic.service.published import Published
from streamtopic.service.publishing import PayloadPlan, make_payload, remarks
from streamtopic.service.recovery import account, adopt
from streamtopic.service.staging import (
    describe,
    erasures,
    holding,
    ledger_entry,
    outgoing,
    release_record,
    replaced,
    stored_base,
)
from streamtopic.service.standing import Base, unserved
from streamtopic.service.tasks import TaskData, read_labelled
from streamtopic.service.theorem import TheoremModeller, Unlearned, theorem_payload
from streamtopic.service.theorem_base import TheoremBase
from streamtopic.signing import SigningKey
from streamtopic.state import Connection, Lease, ModelState, Reader, Snapshot, Stale, cut
from streamtopic.state.sample import sample_words
from streamtopic.topics.fit import TopicFit

__all__ = ["Scheduler", "Step"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did: the decision, the version staged if any, versions withdrawn without one, seconds by stage."""

    decision: Decision
    version: int | None = None
    withdrawn: tuple[int, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)


class Scheduler:
    """Decides and stages; keeps the current model in memory so that the next update is warm.

    published: what is in the releases topic; read to its end before a version is staged. lease: leadership.
    clock: seconds since 1970.
    """

    def __init__(
        self,
        connection: Connection,
        state: ModelState,
        options: SchedulerOptions,
        noise_key: NoiseKey,
        signing_key: SigningKey,
        *,
        published: Published,
        lease: LeaseKeeper,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.connection = connection
        self.state = state
        self.options = options
        self.reader = Reader(connection, options.model, state.settings.partitions)
        self.modeller = Modeller(options.learner)
        self.theorem = None if options.theorem is None else TheoremModeller(options.learner, options.theorem)
        self._noise_key = noise_key
        self._signing_key = signing_key
        self._published = published
        self._lease = lease
        self._outlook = Outlook(self.reader, state, options, clock, published.rivals)
        self._noted = ""
        self._heads = TaskData().before
        self._failed: tuple[dict[int, int], str] | None = None

    def decide(self, requested: str | None = None) -> Decision:
        """Return what `step` would do now, without doing it."""
        return self._outlook.decide(self._outlook.standing(requested, self._failure()))

    def step(self, requested: str | None = None) -> Step:
        """Decide once and act on it. requested: `unlearn` or `retrain`, else what waits in Redis from an operator.

        Raises ComponentUnreachable, StateError; a failed attempt stages nothing, and may be repeated.
        """
        lease = self._lease.acquire()
        if lease is None:
            return Step(Wait("another scheduler leads"))
        step = self._step(lease, requested)
        if (text := decision_text(step.decision)) != self._noted:
            self.state.note_decision(text, self._outlook.now())
            self._noted = text
        return step

    def _step(self, lease: Lease, requested: str | None) -> Step:
        waiting = self.state.requested()
        requested = requested or (waiting or "").partition(":")[0] or None
        self._published.refresh()
        standing = self._outlook.standing(requested, self._failure())
        decision = self._outlook.decide(standing)
        if isinstance(decision, Wait):
            return self._withdraw(lease, decision, standing)
        with self._lease.kept(lease):
            account(self.state, self._published.rivals)
            if adopt(self.state, lease, self._published.versions):
                decision = self.decide(requested)
            step = Step(decision) if isinstance(decision, Wait) else self._act(lease, decision)
        if waiting is not None:
            self.state.fulfil(waiting)
        return step

    def close(self) -> None:
        """Give leadership up."""
        self._lease.release()

    def _act(self, lease: Lease, decision: Retrain | Unlearn) -> Step:
        offsets = {partition: meta.next_offset for partition, meta in self.reader.positions().items()}
        try:
            return self._unlearn(lease, decision) if isinstance(decision, Unlearn) else self._retrain(lease, decision)
        except CannotLearn as error:
            self._failed = (offsets, str(error))
            return self._withdraw(
                lease,
                Wait(f"no model can be made of the present documents: {error}"),
                self._outlook.standing(failed=str(error)),
            )

    def _unlearn(self, lease: Lease, decision: Unlearn) -> Step:
        base = self._outlook.base()
        if base is None:
            return Step(Wait("the base model vanished while it was decided on"))
        made: Modelled | Unlearned | NotVerified
        if self.theorem is None:
            made = self.modeller.unlearn(self.reader.snapshot(), base.anchors)
        else:
            made = self._unlearn_base(self.theorem, base)
        if isinstance(made, NotVerified):
            return self._retrain(lease, Retrain(f"{decision.reason}; {made.reason}"))
        return self._stage(lease, decision, made, "unlearn", base)

    def _unlearn_base(self, theorem: TheoremModeller, base: Base) -> Unlearned | NotVerified:
        """Take what is left of the base model's documents, and start from what was kept of it."""
        stored = self.state.base()
        if stored is None or stored.version != base.version:
            return NotVerified("the base model was replaced meanwhile")
        return theorem.unlearn(self.reader.snapshot(through=base.epoch), TheoremBase.parse(stored))

    def _retrain(self, lease: Lease, decision: Retrain) -> Step:
        """Begin a new epoch everywhere, train on all before it, commit once: a crash leaves the old base as it was."""
        positions = self.reader.positions()
        epoch = max(meta.epoch for meta in positions.values())
        for partition in positions:
            result = cut(self.connection, self.options.model, partition, epoch=epoch + 1, leader=lease.token)
            if isinstance(result, Stale):
                return Step(Wait(f"partition {partition} could not begin an epoch: {result.reason}"))
        modelled = self.modeller.retrain(self.reader.snapshot(through=epoch))
        fit = modelled.fit
        capacity = self._capacity(modelled)
        base = Base(0, epoch, fit.documents, fit.anchors, capacity.limit, capacity.facts)
        if self.theorem is None:
            return self._stage(lease, decision, modelled, "retrain", base, fit)
        return self._stage(lease, decision, self.theorem.first(modelled, capacity.limit), "retrain", base, fit)

    def _capacity(self, modelled: Modelled) -> BaseCapacity:
        options = self.options
        tasks = tuple(options.tasks.tasks.values()) if options.tasks.withheld else ()
        snapshot, fit = modelled.snapshot, modelled.fit
        return measure_capacity(options.capacity, self.connection, snapshot, fit, options.epsilon, options.delta, tasks)

    def _stage(
        self,
        lease: Lease,
        decision: Retrain | Unlearn,
        modelled: Modelled | Unlearned,
        kind: Kind,
        base: Base,
        fit: TopicFit | None = None,
    ) -> Step:
        """Stage a version; fit: the new base model that it is the first version of, if it is."""
        last = self._outlook.last()
        version = last.version + 1 if last else 1
        if fit is not None:
            base = replace(base, version=version)
        start = time.perf_counter()
        plan = self._payload(modelled, version)
        envelope = self._envelope(modelled, plan, kind, base, version)
        chunks = to_messages(version, seal_release(plan.payload, envelope, self._signing_key))
        records = [outgoing(self.options.model, message) for message in chunks]
        records += replaced(self.state, envelope, self.options.keep_versions)
        seconds = {"retrain" if kind == "retrain" else "unlearn": modelled.seconds}
        if fit is not None and "tried" in base.calibration:
            seconds["try deletions"] = base.calibration["tried"]["seconds"]
        seconds["noise and release"] = time.perf_counter() - start
        result = self.state.stage(
            lease,
            version,
            release=release_record(
                envelope,
                chunks=len(chunks),
                warm=modelled.warm,
                reason=decision.reason,
                seconds=sum(seconds.values()),
                unfitted=plan.unfitted,
                facts=plan.facts,
            ),
            ledger=ledger_entry(envelope, plan.digest),
            records=records,
            base=None if fit is None else stored_base(base, fit, _kept(modelled)),
        )
        if isinstance(result, Stale):
            return Step(Wait(f"version {version} was not staged: {result.reason}"), seconds=seconds)
        self._failed, self._heads = None, plan.fitted
        for remark in remarks(plan):
            logger.warning("version %d of %s: %s", version, self.options.model, remark)
        return Step(decision, version, envelope.withdrawn, seconds)

    def _payload(self, modelled: Modelled | Unlearned, version: int) -> PayloadPlan:
        snapshot, tasks, words = modelled.snapshot, self.options.tasks, modelled.words
        sample = None if tasks.withheld else sample_words(self.connection, snapshot, words)
        labelled = read_labelled(self.connection, snapshot, words, tasks)
        data = TaskData(tasks, labelled, before=self._heads, cold=not modelled.warm)
        options, key = self.options, self._noise_key
        if isinstance(modelled, Unlearned):
            return theorem_payload(modelled.run, snapshot, sample, key, options.model, version, data)
        return make_payload(modelled.fit, snapshot, sample, options.guarded, key, options.model, version, data)

    def _envelope(
        self, modelled: Modelled | Unlearned, plan: PayloadPlan, kind: Kind, base: Base, version: int
    ) -> Envelope:
        spent = self._outlook.spent(base.version).then(plan.noise.scale, plan.noise.slack)
        facts = describe(
            modelled,
            base=base,
            kind=kind,
            version=version,
            model=self.options.model,
            topics=self.options.learner.n_topics,
            created=self._outlook.now(),
        )
        return Envelope(
            **facts,
            guarantee=self.options.guarantee,
            epsilon=plan.noise.epsilon,
            delta=plan.noise.delta,
            sigma=plan.noise.sigma,
            scale=plan.noise.scale,
            slack=plan.noise.slack,
            ratio=plan.noise.ratio,
            covered=plan.covered,
            capacity_rule=self.options.capacity.rule,
            cumulative_epsilon=spent.epsilon(self.options.delta),
            withdrawn=tuple(sorted({*self._holding(modelled.snapshot), *self._outlook.doubled()})),
        )

    def _holding(self, snapshot: Snapshot | None) -> tuple[int, ...]:
        """Return versions that still hold a document forgotten since, and are not withdrawn yet."""
        views = () if snapshot is None else snapshot.views
        positions = {view.partition: view.meta for view in views} or self.reader.positions()
        forgotten = [
            (partition, forget.document_offset)
            for partition, forget in unserved(self.reader, positions, self._outlook.last())
            if forget.offset < positions[partition].next_offset
        ]
        return holding(self.state.releases(), self.state.withdrawn(), forgotten) if forgotten else ()

    def _withdraw(self, lease: Lease, decision: Wait, standing: Standing) -> Step:
        """Withdraw versions that hold documents which waited too long, where no model can be made without them."""
        oldest = standing.oldest_unserved_ms
        if standing.failed is None or oldest is None:
            return Step(decision)
        if self._outlook.now() - oldest < self.options.policy.max_forget_lag_ms or not (
            versions := self._holding(None)
        ):
            return Step(decision)
        records = erasures(self.state, self.state.releases(), versions, retired=False)
        result = self.state.withdraw(lease, versions, records)
        return Step(decision, withdrawn=() if isinstance(result, Stale) else versions)

    def _failure(self) -> str | None:
        """Return why the last attempt failed, while no document has come or gone since."""
        if self._failed is None:
            return None
        offsets = {partition: meta.next_offset for partition, meta in self.reader.positions().items()}
        return self._failed[1] if offsets == self._failed[0] else None


def _kept(modelled: Modelled | Unlearned) -> TheoremBase | None:
    return modelled.run.base if isinstance(modelled, Unlearned) else None
