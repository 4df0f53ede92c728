"""Checks an instance from the log up: counts every document again, learns again, and compares both with the service."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.counts import SymmetricCounts
from streamtopic.errors import CannotLearn, SettingsError
from streamtopic.service.schedule.payload import TaskData, make_payload, no_sample, published_heads
from streamtopic.service.verify.finding import Finding, fails, holds, not_checked
from streamtopic.signed import receipt_id
from streamtopic.state import CutGone
from streamtopic.state.stored_counts import CountsStore, StoredCounts, SummedCounts
from streamtopic.topics.learner import learn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamtopic.counts import Cooccurrence, Counts, CountSource
    from streamtopic.privacy.keystream import NoiseKey
    from streamtopic.service.schedule.payload import Labelled, PayloadPlan, TaskOptions
    from streamtopic.service.verify.recount import Recount, Recounts
    from streamtopic.service.verify.release_checks import InLog
    from streamtopic.service.verify.sources import Sources
    from streamtopic.signed import Envelope, Head, Payload, Release
    from streamtopic.state import DocumentCounts, StoredBase
    from streamtopic.topics.fit import TopicFit

__all__ = ["Kept", "Relearning", "draw_again", "read_kept", "topics_differ"]

# R and shares are computed in double precision by threads that may add in another order, and R is stored in single.
_ROUNDING = 1e-5
# Two learners of the same counts may add in another order. A larger difference means another model.
AGREES = 1e-12
_NAMED = 5

_KEEP = "keep a copy of the log, then `streamtopic unlearn --retrain`"
_DO_NOT_USE = f"do not use this version: {_KEEP}"
_REBUILD = "do not trust this state: keep a copy of it, then `streamtopic rebuild --yes` and `streamtopic verify`"
_OTHER_BASE = (
    "`streamtopic unlearn --retrain` makes a base that can be checked; verify with the settings it was made with"
)
_RETRAIN = (
    "deleted documents have left the log, so only models made from now on can be learned again: `streamtopic "
    "retrain`, then `streamtopic verify`"
)
_ITS_SETTINGS = "verify with the settings that the version was made with (`--config`, `--set`)"
_STATUS = "`streamtopic status` says why no model can be made of these documents"


@dataclass(frozen=True, slots=True)
class Kept:
    """What Redis holds.

    counts: of the documents.
    pairs: of all their words.
    sums_agree: whether the sums of pairs, with what came and went since, are those of the documents.
    waiting: partition to the offsets of deletions that wait for their receipts; None while counts are rebuilt.
    """

    counts: DocumentCounts
    pairs: Cooccurrence
    sums_agree: bool
    waiting: Mapping[int, list[int]] | None


def read_kept(sources: Sources) -> Kept:
    """Return what Redis holds, to be compared with ledger and log, which are to be read after it.

    Raises ComponentUnreachable, StateMissing.
    """
    store = CountsStore(sources.reader.connection, sources.state.model)
    counts, pairs, sums_agree = sources.reader.read(lambda now: _with_pairs(now, store.read()))
    # After the counts: a deletion that they reflect waits, or has its receipt in the ledger.
    waiting = {}
    for partition in counts.offsets:
        waiting[partition] = [one.offset for one in sources.forgets(partition)]
    rebuilding = any(sources.reader.forgets(partition).incomplete for partition in counts.offsets)
    return Kept(counts, pairs, sums_agree, None if rebuilding else waiting)


def _with_pairs(counts: DocumentCounts, stored: StoredCounts | None) -> tuple[DocumentCounts, Cooccurrence, bool]:
    """Return counts with the pairs of all their words, and whether stored sums agree with them.

    stored: None if there are no sums. Raises CutGone.
    """
    pairs = counts.restrict(np.arange(len(counts.words), dtype=np.intp))
    if stored is None:
        return counts, pairs, True
    position = {word: k for k, word in enumerate(counts.words)}
    both = np.array([position[word] for word in stored.words if word in position], np.intp)
    try:
        summed = SummedCounts(counts, stored).symmetric(both).upper()
    except CutGone:
        # The scheduler writes them again, and until then nobody can use them.
        return counts, pairs, True
    again = SymmetricCounts.of(pairs, both).upper()
    same = all(np.array_equal(getattr(summed, part), getattr(again, part)) for part in ("indptr", "columns", "values"))
    return counts, pairs, same


class _NotLearnedError(Exception):
    """A model cannot be learned again; `finding` says why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.detail)
        self.finding = finding


class Relearning:
    """Makes counts, base model and a version again from the log alone, and compares.

    A compacted log holds the live documents only, so a model that was learned from others cannot be learned again.

    counted: counts documents, each cut once.

    No finding has a figure of a model before noise.
    """

    def __init__(self, sources: Sources, counted: Recounts) -> None:
        self._sources = sources
        self._counted = counted

    def findings(self, kept: Kept, known: InLog | None) -> Iterator[Finding]:
        """Yield the comparisons; those of a version only if there is one. Raises ComponentUnreachable."""
        yield self._counts(kept)
        yield self._deleted(kept)
        yield self._base_model()
        if known is not None:
            yield from self._version(known)
            yield from self._heads(known)

    def _counts(self, kept: Kept) -> Finding:
        """Compare words, frequencies, tokens and every pair of the documents in Redis with a recount, bit for bit.

        So are the sums of pairs in Redis, with what came and went since.
        """
        name, sources = "counts", self._sources
        offsets = kept.counts.offsets
        ends = {partition: sources.log.end(sources.names.documents, partition) for partition in offsets}
        found = self._counted.at(offsets)
        fresh = found.counts
        problem = _difference(kept, fresh)
        if problem is None:
            pairs = fresh.cooccurrence.pairs
            return holds(name, f"{fresh.documents} documents, {len(fresh.words)} words, {pairs} pairs, bit for bit")
        # Compaction may erase a counted document as soon as a record that is not counted yet supersedes it.
        if not found.whole and ends != offsets:
            waiting = sum(ends.values()) - sum(offsets.values())
            detail = f"{waiting} records wait, and the log may have erased those they supersede"
            return not_checked(name, detail, "verify again once `streamtopic status` shows no lag")
        return fails(name, problem, _REBUILD)

    def _deleted(self, kept: Kept) -> Finding:
        """Whether each deletion in the log that was counted has its receipt, or waits for it."""
        name = "missing receipts"
        if kept.waiting is None:
            return not_checked(name, "the counts are being rebuilt", "verify again once `streamtopic rebuild` is done")
        found = self._counted.at(kept.counts.offsets)
        missing = list[str]()
        for partition, offsets in found.deleted.items():
            known = [*self._counted.whole.receipts.get(partition, ()), *kept.waiting.get(partition, ())]
            without = np.setdiff1d(np.asarray(offsets), np.asarray(known, np.int64))
            missing += [receipt_id(self._sources.model, partition, offset) for offset in without.tolist()]
        if missing:
            detail = f"{len(missing)} deletions in the log neither have a receipt nor wait for one, as "
            detail += ", ".join(missing[:_NAMED])
            return fails(name, detail, "`streamtopic rebuild --yes` finds them in the log, and they get theirs")
        number = sum(map(len, found.deleted.values()))
        return holds(name, f"each of {number} deletions in the log has its receipt or waits for it")

    def _base_model(self) -> Finding:
        """Compare the base model before noise, as Redis keeps it, with one learned cold from its documents."""
        name, stored = "base model", self._sources.state.base()
        if stored is None:
            return not_checked(name, "there is no base model yet", "`streamtopic status` says what it waits for")
        envelope = self._counted.whole.versions.get(stored.version)
        if envelope is None:
            detail = f"version {stored.version}, which it was published as, is not in the ledger"
            return not_checked(name, detail, "verify again once it is published")
        if not stored.blob:
            detail = "its bytes were removed: documents that it was trained on were deleted"
            return not_checked(name, detail, _RETRAIN)
        try:
            return self._kept_as_learned(name, stored, envelope)
        except _NotLearnedError as reason:
            return reason.finding

    def _kept_as_learned(self, name: str, stored: StoredBase, envelope: Envelope) -> Finding:
        """Compare a base model that Redis keeps with one learned cold. Raises _NotLearnedError."""
        fit = self._learned(name, envelope)
        with np.load(io.BytesIO(stored.blob)) as arrays:
            words, A = arrays["words"].tolist(), arrays["A"]
        if words != list(fit.words) or A.shape != fit.A.shape:
            return fails(name, "a model learned from scratch has other words or topics", _OTHER_BASE)
        problem = self._sources.paper.kept_differs(stored, fit, self._counted.of(envelope).counts)
        if problem is not None:
            return fails(name, f"version {stored.version}: {problem}", _OTHER_BASE)
        gap = float(np.abs(A - fit.A).max())
        said = "no number is more" if gap <= AGREES else "a number is more"
        detail = f"version {stored.version}: {said} than {AGREES:g} from that of one learned from scratch"
        return holds(name, detail) if gap <= AGREES else fails(name, detail, _OTHER_BASE)

    def _version(self, known: InLog) -> Iterator[Finding]:
        """Compare a version as published with one learned cold from the documents at its cut, with the same noise.

        The version commits to counts; these are compared with the counts of the documents as well.
        """
        name, key = "version", self._sources.noise_key
        if isinstance(key, SettingsError):
            yield not_checked(name, f"its noise cannot be drawn again: {key}", "verify where the noise key is")
            return
        again = self._unlearned if known.envelope.guarantee == "theorem" else self._compared
        try:
            finding, plan = again(name, key, known)
        except _NotLearnedError as reason:
            yield reason.finding
            return
        yield finding
        if plan is not None:
            yield _committed(known.envelope, key, plan)

    def _unlearned(self, name: str, key: NoiseKey, known: InLog) -> tuple[Finding, PayloadPlan | None]:
        """Compare a version of the paper's mode with Algorithm 1 on the counts of the log, from the stored base."""
        envelope, stored = known.envelope, self._sources.state.base()
        if not self._sources.paper.expected:
            detail = "it was made under the theorem, settings say certified: verify with --set guarantee=theorem"
            return fails(name, detail, _ITS_SETTINGS), None
        self._need_topics(name, envelope)
        self._need_documents(name, envelope)
        if stored is None or stored.version != envelope.base:
            return not_checked(name, "its base model is not kept any more", _RETRAIN), None
        counts = self._counted.of(envelope).counts
        problem, plan = self._sources.paper.differs(known.release, counts, stored, known.record, key)
        what = _noise_included(envelope)
        if problem is not None:
            return fails(name, f"{what}: {problem}", _DO_NOT_USE), plan
        return holds(name, f"{what}: Algorithm 1 on the documents in the log gives the same"), plan

    def _compared(self, name: str, key: NoiseKey, known: InLog) -> tuple[Finding, PayloadPlan | None]:
        """Compare a version with one made again, noise included, from a model learned cold."""
        envelope, withheld = known.envelope, self._counted.tasks.withheld
        fit, found = self._learned(name, envelope), self._counted.of(envelope)
        labelled = found.over(fit.words) if withheld else None
        try:
            plan = draw_again(self._sources, key, fit, found.counts, envelope.version, labelled)
        except CannotLearn as error:
            return fails(name, f"the documents in the log do not make a version: {error}", _DO_NOT_USE), None
        what = _noise_included(envelope)
        if withheld:
            problem = _withheld_differ(known.release, plan)
            return _judged(name, problem, f"{what}: heads", _DO_NOT_USE), plan
        problem, gap = topics_differ(known.release, plan)
        if problem is not None:
            return fails(name, f"{what}: {problem}", _DO_NOT_USE), plan
        return holds(name, f"{what}: largest difference {gap:.3g} from one learned from scratch"), plan

    def _heads(self, known: InLog) -> Iterator[Finding]:
        """Compare the heads beside a version's topics with heads fitted on the same topics from the log alone."""
        tasks = self._counted.tasks
        if not tasks.tasks or tasks.withheld:
            return
        name, release = "heads", known.release
        try:
            found = self._need_documents(name, known.envelope)
        except _NotLearnedError as reason:
            yield reason.finding
            return
        problem = _heads_differ(release, found.over(release.words), tasks)
        what = f"version {release.version}: {len(release.heads)} heads"
        yield _judged(name, problem, what, f"do not use its heads: {_KEEP}")

    def _learned(self, name: str, envelope: Envelope) -> TopicFit:
        """Return a model learned cold from the documents at a version's cut. Raises _NotLearnedError."""
        self._need_topics(name, envelope)
        found = self._need_documents(name, envelope)
        try:
            return learn(found.counts, self._counted.options)
        except CannotLearn as error:
            detail = f"the documents in the log do not make a model: {error}"
            raise _NotLearnedError(fails(name, detail, _STATUS)) from None

    def _need_topics(self, name: str, envelope: Envelope) -> None:
        """Raise _NotLearnedError if the settings ask for another number of topics than a version has."""
        options = self._counted.options
        # Guided topics that have ended are missing.
        if not options.n_topics - len(options.guided) <= envelope.r <= options.n_topics:
            differ = f"the model has {envelope.r} topics, settings say {options.n_topics}"
            detail = f"{differ}: verify with --set topics={envelope.r}"
            raise _NotLearnedError(fails(name, detail, _ITS_SETTINGS))

    def _need_documents(self, name: str, envelope: Envelope) -> Recount:
        """Return the counts at a version's cut. Raises _NotLearnedError if the log has lost documents of it."""
        if not self._sources.cut(envelope):
            detail = "it was made before documents were moved to other partitions"
            raise _NotLearnedError(not_checked(name, detail, _RETRAIN))
        found = self._counted.of(envelope)
        if found.counts.documents == envelope.m:
            return found
        detail = (
            f"{found.counts.documents} of {envelope.m} documents: the log has erased documents that were deleted or "
            "replaced since, so this cannot be learned again from it"
        )
        # A log that has lost nothing would hold every document of the version.
        raise _NotLearnedError(fails(name, detail, _DO_NOT_USE) if found.whole else not_checked(name, detail, _RETRAIN))


def _difference(kept: Kept, fresh: Counts) -> str | None:
    """Return how the counts in Redis differ from a recount, None if they do not."""
    words = kept.counts.words
    if list(words) != list(fresh.words):
        differing = len(set(words) ^ set(fresh.words))
        return f"{differing} words are in Redis or in a recount of the log, but not in both"
    if kept.pairs.digest(fresh.words) != fresh.cooccurrence.digest(fresh.words):
        return "the counts in Redis differ from a recount of the log"
    return None if kept.sums_agree else "the sums in Redis, with what changed since, differ from a recount of the log"


def _noise_included(envelope: Envelope) -> str:
    return f"version {envelope.version}, as published, noise included"


def _committed(envelope: Envelope, key: NoiseKey, plan: PayloadPlan) -> Finding:
    """Compare the counts to which a version commits with those of the documents in the log."""
    name, again = "commitment", key.commitment(envelope.model, envelope.version, plan.digest)
    if envelope.commitment == again:
        return holds(name, f"version {envelope.version} commits to the counts of the documents in the log, bit for bit")
    other = "other counts, or other settings, than those of the documents in the log"
    return fails(name, f"version {envelope.version} commits to {other}", _DO_NOT_USE)


def _judged(name: str, problem: str | None, what: str, remedy: str) -> Finding:
    """Return the finding of a comparison of heads: how they differ is `problem`, None if they do not."""
    if problem is None:
        return holds(name, f"{what} are those of the labelled documents in the log")
    return fails(name, problem, remedy)


def draw_again(
    sources: Sources,
    key: NoiseKey,
    fit: TopicFit,
    source: CountSource,
    version: int,
    labelled: Labelled | None = None,
) -> PayloadPlan:
    """Return the payload that a version gets if it is made of this model, with noise from the same key.

    key: the noise key.
    fit: the model before noise.
    source: counts that it was made from.
    version: number of the version.
    labelled: documents of the tasks; None for a payload without heads.

    Raises CannotLearn if topics are withheld and there is no head.
    """
    tasks = sources.options.tasks
    if labelled is None and tasks.withheld:
        raise CannotLearn("tasks", "topics are withheld and no document has a label: add labelled documents")
    data = None if labelled is None else TaskData(tasks, labelled)
    return make_payload(fit, source, sources.guarded, no_sample, key, sources.model, version, data)


def topics_differ(release: Release, plan: PayloadPlan) -> tuple[str | None, float]:
    """Return how published topics differ from those made again from the log, and the largest difference in A.

    plan: the version made again.

    The first is None if they do not differ.
    """
    sent = release.payload
    again = plan.payload
    if sent.A is None or again.A is None:
        return "topics are withheld, settings say that they are published: verify with --set publish=tasks", 0.0
    if sent.words != again.words or sent.A.shape != again.A.shape:
        return "a model learned from scratch has other words or topics", 0.0
    gap = float(np.abs(sent.A - again.A).max())
    largest = float(sent.A.max())
    # Rounding may put a number of A on the next point of the noise's grid, and A is stored in single precision.
    bound = 2 * plan.noise.grid + 2.0**-23 * largest
    # In this form a NaN is refused too.
    if not gap <= bound:
        return f"largest difference {gap:.3g} from one learned from scratch", gap
    # R, shares and top words are computed from A, so they may differ wherever A does.
    problem = None if gap else _others_differ(sent, again)
    return problem, gap


def _others_differ(sent: Payload, again: Payload) -> str | None:
    """Return which of R, shares and top words differs if A is the same, None if all are the same."""
    for name in ("R", "shares"):
        one = np.asarray(getattr(sent, name), np.float64)
        other = np.asarray(getattr(again, name), np.float64)
        largest = float(np.abs(other).max())
        gap = float(np.abs(one - other).max())
        if not gap <= _ROUNDING * max(1.0, largest):
            return f"A is that of one learned from scratch, {name} is not"
    if sent.top_words != again.top_words:
        return "A is that of one learned from scratch, top words are not"
    return None


def _heads_differ(release: Release, labelled: Labelled, options: TaskOptions) -> str | None:
    """Return how heads beside published topics differ from heads fitted again on that A, None if they do not."""
    if release.payload.A is None:
        return "topics are withheld, settings say that they are published: verify with --set publish=tasks"
    data = TaskData(options, labelled)
    again, _ = published_heads(release.payload.A, release.words, release.anchors, data)
    # Each fit stops within this distance of the optimum, so two may lie twice that apart.
    allowed = {task: 2 * options.tasks[task].distance for task in again}
    return _first_difference(release.payload.heads, again, allowed)


def _withheld_differ(release: Release, plan: PayloadPlan) -> str | None:
    """Return how heads in place of topics differ from those made again from the log, None if they do not.

    plan: the version made again.
    """
    if release.payload.A is not None:
        return "topics are published, settings say that they are withheld: verify with --set publish=topics"
    if release.words != plan.payload.words:
        return "a model learned from scratch has other words"
    allowed = {}
    for task, head in plan.payload.heads.items():
        facts, B = plan.facts["heads"][task], np.asarray(head.B)
        # Before noise two may lie the sensitivity apart. Rounding adds to each number a step of the noise's grid, and
        # the single precision of B.
        rounding = facts["grid"] + 2.0**-22 * float(np.abs(B).max())
        allowed[task] = facts["sensitivity"] + rounding * B.size**0.5
    return _first_difference(release.payload.heads, plan.payload.heads, allowed)


def _first_difference(sent: Mapping[str, Head], again: Mapping[str, Head], allowed: Mapping[str, float]) -> str | None:
    """Return how the first task's heads differ that do, None if all are the same.

    allowed: task to the greatest distance of weights (Frobenius norm).
    """
    for task in sorted({*sent, *again}):
        one, other = sent.get(task), again.get(task)
        if one is None or other is None:
            has, lacks = ("log", "version") if one is None else ("version", "log")
            problem: str | None = (
                f"the {has} has one, the {lacks} has none: verify with the tasks that the version was made with, or "
                "retrain"
            )
        else:
            problem = _apart(one, other, allowed[task])
        if problem is not None:
            return f"head of task {task!r}: {problem}"
    return None


def _apart(sent: Head, again: Head, allowed: float) -> str | None:
    """Return how two heads of a task differ, None if they do not."""
    for name in ("topics", "classes", "documents"):
        if getattr(sent, name) != getattr(again, name):
            return f"other {name} from the log"
    one, other = (np.asarray(head.B if head.w is None else head.w, np.float64) for head in (sent, again))
    gap = float(np.linalg.norm(one - other)) if one.shape == other.shape else np.inf
    # In this form a NaN is refused too.
    if gap <= allowed:
        return None
    return f"weights differ by {gap:.3g}, more than {allowed:.3g}; retrain, if tasks were changed in the settings"
