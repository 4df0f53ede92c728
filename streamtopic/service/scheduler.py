"""The scheduler: decide, model, stage one version. One leader at a time."""

import io
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamtopic.errors import CannotLearn, StateError
from streamtopic.privacy.accounting import Composition
from streamtopic.privacy.capacity import base_capacity
from streamtopic.privacy.gaussian import gaussian_scale
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.release import Envelope, Kind, seal_release, to_messages, tombstones
from streamtopic.service.decide import Decision, Policy, Retrain, Standing, Unlearn, Wait, decide
from streamtopic.service.modelling import Modelled, Modeller, NotVerified
from streamtopic.service.publishing import Guarded, PayloadPlan, make_payload
from streamtopic.service.standing import LastRelease, base_forget_set, read_standing, unserved
from streamtopic.signing import SigningKey
from streamtopic.state import Connection, Lease, ModelState, OutboxRecord, Reader, Snapshot, Stale, StoredBase, cut
from streamtopic.state.sample import sample_words
from streamtopic.streams import Message, TopicNames
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.options import LearnerOptions

__all__ = ["CapacityRule", "Scheduler", "SchedulerOptions", "Step"]

LEASE_MS = 60_000


@dataclass(frozen=True, slots=True)
class CapacityRule:
    """How many deletions a base model bears: a share of its documents, a number, or the paper's formula with c."""

    rule: str = "share"
    share: float = 0.01
    number: int = 100
    constant: float = 1.0

    def limit(self, fit: TopicFit, epsilon: float, delta: float) -> int:
        """Return the capacity of a base model, at least 1 under `share`."""
        if self.rule == "fixed":
            return self.number
        if self.rule == "theorem":
            n, r = fit.A.shape
            return int(base_capacity(self.constant, fit.documents, n, r, epsilon, delta))
        return max(1, int(self.share * fit.documents))


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """All that a scheduler is told."""

    model: str
    learner: LearnerOptions = field(default_factory=LearnerOptions)
    policy: Policy = field(default_factory=Policy)
    capacity: CapacityRule = field(default_factory=CapacityRule)
    epsilon: float = 1.0
    delta: float = 1e-6

    @property
    def guarded(self) -> Guarded:
        """What noise is calibrated to."""
        return Guarded(self.epsilon, self.delta, self.learner.tolerance)


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did: the decision, the version staged if any, and seconds by stage."""

    decision: Decision
    version: int | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)


class Scheduler:
    """Decides and stages; keeps the current model in memory so that the next update is warm.

    clock: seconds since 1970; holder: this process's name in the lease.
    """

    def __init__(
        self,
        connection: Connection,
        state: ModelState,
        options: SchedulerOptions,
        noise_key: NoiseKey,
        signing_key: SigningKey,
        *,
        holder: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.connection = connection
        self.state = state
        self.options = options
        self.reader = Reader(connection, options.model, state.settings.partitions)
        self.modeller = Modeller(options.learner)
        self._noise_key = noise_key
        self._signing_key = signing_key
        self._holder = holder
        self._clock = clock
        self._failed: tuple[dict[int, int], str] | None = None

    def standing(self, requested: str | None = None) -> Standing:
        """Return where the model stands now."""
        base = self._base()
        return read_standing(
            self.reader,
            self._last(),
            base,
            next_epsilon=self._spent(base["version"] if base else None).then(self._scale).epsilon(self.options.delta),
            failed=self._failure(),
            requested=requested,
        )

    def decide(self, requested: str | None = None) -> Decision:
        """Return what `step` would do now, without doing it."""
        return decide(self.standing(requested), self.options.policy, int(self._clock() * 1000))

    def step(self, requested: str | None = None) -> Step:
        """Decide once and act on it. Raises ComponentUnreachable, StateError; a failed attempt stages nothing."""
        lease = self.state.acquire(self._holder, LEASE_MS)
        if lease is None:
            return Step(Wait("another scheduler leads"))
        decision = self.decide(requested)
        if isinstance(decision, Wait):
            return Step(decision)
        offsets = {partition: meta.next_offset for partition, meta in self.reader.positions().items()}
        try:
            return self._unlearn(lease, decision) if isinstance(decision, Unlearn) else self._retrain(lease, decision)
        except CannotLearn as error:
            self._failed = (offsets, str(error))
            return Step(Wait(f"no model can be made of the present documents: {error}"))

    def _unlearn(self, lease: Lease, decision: Unlearn) -> Step:
        base = self._base()
        if base is None:
            raise StateError(f"the base model of {self.options.model} vanished: run `streamtopic retrain`")
        modelled = self.modeller.unlearn(self.reader.snapshot(), base["anchors"])
        if isinstance(modelled, NotVerified):
            return self._retrain(lease, Retrain(f"{decision.reason}; {modelled.reason}"))
        return self._stage(lease, decision, modelled, "unlearn", base)

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
        base = {
            "epoch": epoch,
            "documents": fit.documents,
            "anchors": list(fit.anchors),
            "capacity": self.options.capacity.limit(fit, self.options.epsilon, self.options.delta),
        }
        return self._stage(lease, decision, modelled, "retrain", base)

    def _stage(
        self, lease: Lease, decision: Retrain | Unlearn, modelled: Modelled, kind: Kind, base: dict[str, Any]
    ) -> Step:
        last = self._last()
        version = last.version + 1 if last else 1
        if kind == "retrain":
            base = {**base, "version": version}
        start = time.perf_counter()
        plan = self._payload(modelled, version)
        envelope = self._envelope(modelled, plan, kind, base, version)
        data = seal_release(plan.payload, envelope, self._signing_key)
        chunks = to_messages(version, data)
        # The new version goes out before those that it withdraws, so that a subscriber is never left without one.
        erased = [message for gone in envelope.withdrawn for message in tombstones(gone, self._chunks(gone))]
        records = [_outgoing(self.options.model, message) for message in (*chunks, *erased)]
        seconds = {"retrain" if kind == "retrain" else "unlearn": modelled.seconds}
        seconds["noise and release"] = time.perf_counter() - start
        record = self._record(envelope, modelled, decision.reason, len(chunks), base, sum(seconds.values()))
        ledger = {"base": base["version"], "scale": plan.noise.scale, "slack": plan.noise.slack, "digest": plan.digest}
        stored = _stored(base, modelled.fit) if kind == "retrain" else None
        result = self.state.stage(lease, version, release=record, ledger=ledger, records=records, base=stored)
        if isinstance(result, Stale):
            return Step(Wait(f"version {version} was not staged: {result.reason}"), None, seconds)
        self._failed = None
        return Step(decision, version, seconds)

    def _payload(self, modelled: Modelled, version: int) -> PayloadPlan:
        fit, snapshot = modelled.fit, modelled.snapshot
        sample = sample_words(self.connection, snapshot, fit.words)
        return make_payload(fit, snapshot, sample, self.options.guarded, self._noise_key, self.options.model, version)

    def _envelope(
        self, modelled: Modelled, plan: PayloadPlan, kind: Kind, base: Mapping[str, Any], version: int
    ) -> Envelope:
        fit, snapshot = modelled.fit, modelled.snapshot
        positions = {view.partition: view.meta for view in snapshot.views}
        spent = self._spent(base["version"]).then(plan.noise.scale, plan.noise.slack)
        return Envelope(
            model=self.options.model,
            version=version,
            kind=kind,
            parent=version - 1,
            base=base["version"],
            cut=_cut(snapshot),
            m=fit.documents,
            n=len(fit.words),
            r=self.options.learner.n_topics,
            guarantee="certified",
            epsilon=self.options.epsilon,
            delta=self.options.delta,
            sigma=plan.noise.sigma,
            tolerance=self.options.learner.tolerance,
            certificate=fit.certificate.bound,
            anchors=fit.anchors,
            margin=fit.choice.margin,
            forgotten=base_forget_set(positions, base["documents"], base["epoch"]),
            capacity=base["capacity"],
            capacity_rule=self.options.capacity.rule,
            cumulative_epsilon=spent.epsilon(self.options.delta),
            withdrawn=self._withdrawn(snapshot),
            created=int(self._clock() * 1000),
        )

    def _record(
        self,
        envelope: Envelope,
        modelled: Modelled,
        reason: str,
        chunks: int,
        base: Mapping[str, Any],
        seconds: float,
    ) -> dict[str, Any]:
        """Return what Redis keeps of a version: for decisions, for receipts and for people."""
        return {
            "kind": envelope.kind,
            "base": envelope.base,
            "epoch": base["epoch"],
            "cut": {str(partition): offset for partition, offset in envelope.cut.items()},
            "documents": envelope.m,
            "vocabulary": envelope.n,
            "topics": envelope.r,
            "forget_set": envelope.forgotten,
            "capacity": envelope.capacity,
            "counted": _counted(modelled.snapshot),
            "chunks": chunks,
            "withdrawn": list(envelope.withdrawn),
            "anchors": list(envelope.anchors),
            "margin": float(min(envelope.margin, 1e300)),
            "certificate": envelope.certificate,
            "warm": modelled.warm,
            "reason": reason,
            "epsilon": envelope.epsilon,
            "delta": envelope.delta,
            "sigma": envelope.sigma,
            "cumulative_epsilon": envelope.cumulative_epsilon,
            "created": envelope.created,
            "seconds": seconds,
        }

    def _withdrawn(self, snapshot: Snapshot) -> tuple[int, ...]:
        """Return versions that still hold a document forgotten since, and are not withdrawn yet."""
        last = self._last()
        positions = {view.partition: view.meta for view in snapshot.views}
        forgotten = [
            (partition, forget.document_offset)
            for partition, forget in unserved(self.reader, positions, last)
            if forget.offset < positions[partition].next_offset
        ]
        if not forgotten:
            return ()
        records = self.state.releases()
        before = {version for _, record in records for version in record["withdrawn"]}
        return tuple(
            version
            for version, record in records
            if version not in before
            and any(offset < record["cut"].get(str(partition), 0) for partition, offset in forgotten)
        )

    def _chunks(self, version: int) -> int:
        return next(int(record["chunks"]) for v, record in self.state.releases() if v == version)

    @property
    def _scale(self) -> float:
        return gaussian_scale(self.options.epsilon, self.options.delta)

    def _spent(self, base_version: int | None) -> Composition:
        entries = self.state.ledger().values() if base_version else []
        return Composition.of((e["scale"], e["slack"]) for e in entries if e["base"] == base_version)

    def _last(self) -> LastRelease | None:
        newest = self.state.releases(1)
        return LastRelease.parse(*newest[0]) if newest else None

    def _base(self) -> dict[str, Any] | None:
        stored = self.state.base()
        return {**stored.fields, "epoch": stored.epoch, "version": stored.version} if stored else None

    def _failure(self) -> str | None:
        """Return why the last attempt failed, while no document has come or gone since."""
        if self._failed is None:
            return None
        offsets = {partition: meta.next_offset for partition, meta in self.reader.positions().items()}
        return self._failed[1] if offsets == self._failed[0] else None


def _cut(snapshot: Snapshot) -> dict[int, int]:
    """Return up to where each partition's records are reflected.

    A retraining reads epochs that were closed before it; records behind a partition's cut belong to the next epoch.
    """
    offsets = {}
    for view in snapshot.views:
        offsets[view.partition] = view.meta.next_offset
        if snapshot.through is not None and snapshot.through < view.meta.epoch:
            offsets[view.partition] = view.meta.cuts[snapshot.through - view.meta.folded]
    return offsets


def _counted(snapshot: Snapshot) -> int:
    """Return how many documents were ever accepted into the epochs of a snapshot."""
    through = float("inf") if snapshot.through is None else snapshot.through
    return sum(n for view in snapshot.views for epoch, n in view.meta.counted.items() if epoch <= through)


def _outgoing(model: str, message: Message) -> OutboxRecord:
    return OutboxRecord(TopicNames(model).releases, message.key or b"", message.value, message.headers)


def _stored(base: Mapping[str, Any], fit: TopicFit) -> StoredBase:
    """Return the base model as Redis keeps it: before noise, so never for subscribers."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, words=np.array(fit.words), A=fit.A)
    fields = {"documents": base["documents"], "anchors": base["anchors"], "capacity": base["capacity"]}
    return StoredBase(base["epoch"], base["version"], fields, buffer.getvalue())
