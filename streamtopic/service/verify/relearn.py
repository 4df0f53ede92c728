"""Checks from the log up: counts every document again, makes a version again, and compares both with the service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streamtopic.counts import SymmetricCounts
from streamtopic.errors import CannotLearn, SettingsError, StateCorrupt, UsageError
from streamtopic.service.schedule.modeller import FromLog
from streamtopic.service.schedule.payload import TaskData, published_heads
from streamtopic.service.verify.finding import Finding, doubt, fails, holds
from streamtopic.service.verify.recount import Recount, documents_in_log
from streamtopic.signed import receipt_id
from streamtopic.state import CutGone
from streamtopic.state.stored_counts import CountsStore, StoredCounts, SummedCounts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from streamtopic.counts import Cooccurrence, Counts
    from streamtopic.privacy.keystream import NoiseKey
    from streamtopic.service.schedule.payload import PayloadPlan, TaskOptions
    from streamtopic.service.verify.finding import Sources
    from streamtopic.service.verify.ledger_checks import WholeLedger
    from streamtopic.service.verify.recount import Progress
    from streamtopic.service.verify.release_checks import InLog
    from streamtopic.signed import Envelope, Head, Payload, Release
    from streamtopic.state import DocumentCounts, StoredBase
    from streamtopic.topics.heads import LabelledDocuments

__all__ = ["Kept", "Relearning", "read_kept", "topics_differ"]

# R and shares are computed in double precision by threads that may add in another order, and R is stored in single.
_ROUNDING = 1e-5
# A grid is fine below this share of a number's size.
_FINE = 1e-3
_NAMED = 5

_KEEP = "keep a copy of the log, then `streamtopic unlearn --retrain`"
_DO_NOT_USE = f"do not use this version: {_KEEP}"
_REBUILD = "do not trust this state: keep a copy of it, then `streamtopic rebuild --yes` and `streamtopic verify`"
_RETRAIN = (
    "deleted documents have left the log, so only models made from now on can be learned again: `streamtopic "
    "unlearn --retrain`, then `streamtopic verify`"
)
_NEWER_BASE = "versions of the present base model can be made again: verify the newest one"
_ITS_SETTINGS = "verify with the settings that the version was made with (`--config`, `--set`)"


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
        waiting[partition] = [one.offset for one in sources.reader.forgets(partition).each()]
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
        summed = SummedCounts.of(counts, stored).symmetric(both).upper()
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
    """Makes counts and a version again from the log alone, and compares.

    A compacted log holds the live documents only, so a model that was learned from others cannot be learned again.

    whole: the ledger.
    update: called with the number of records read so far, and their total.

    No finding has a figure of a model before noise.
    """

    def __init__(self, sources: Sources, whole: WholeLedger, update: Progress) -> None:
        self._sources = sources
        self._whole = whole
        self._update = update
        self._made: dict[object, Recount] = {}

    def findings(self, kept: Kept, known: InLog | None) -> Iterator[Finding]:
        """Yield the comparisons; those of a version only if there is one. Raises ComponentUnreachable."""
        yield self._counts(kept)
        yield self._deleted(kept)
        for compared in () if known is None else (self._version(known), self._heads(known)):
            try:
                yield from compared
            except _NotLearnedError as reason:
                yield reason.finding

    def _covered(self, envelope: Envelope) -> Recount:
        """Return the counts that a version covers."""
        # In the paper's mode an update covers the remaining documents of its base model, and not later ones.
        base = self._whole.versions.get(envelope.base)
        if envelope.guarantee == "theorem" and envelope.kind == "unlearn" and base is not None:
            return self._counted(envelope.cut, base.cut)
        return self._counted(envelope.cut)

    def _counted(self, cut: Mapping[int, int], added: Mapping[int, int] | None = None) -> Recount:
        """Return the counts of the documents that the log leaves alive at a cut. Each cut is counted once.

        cut: partition to the offset up to which records are read.
        added: count only documents that were added before these offsets; None for all documents.
        """
        key = tuple(sorted(cut.items())), tuple(sorted((added or {}).items()))
        if key not in self._made:
            sources = self._sources
            found = documents_in_log(
                sources.log,
                sources.names.documents,
                cut,
                self._update,
                sources.partitioner,
                suppression=sources.suppression,
            )
            found = found if added is None else found.added_before(added)
            self._made[key] = Recount.of(found, sources.modeller.options.weighting, sources.tasks)
        return self._made[key]

    def _counts(self, kept: Kept) -> Finding:
        """Compare words, frequencies, tokens and every pair of the documents in Redis with a recount, bit for bit.

        So are the sums of pairs in Redis, with what came and went since.
        """
        name, sources = "counts", self._sources
        offsets = kept.counts.offsets
        ends = {partition: sources.log.end(sources.names.documents, partition) for partition in offsets}
        found = self._counted(offsets)
        fresh = found.counts
        problem = _difference(kept, fresh)
        if problem is None:
            pairs = fresh.cooccurrence.pairs
            return holds(name, f"{fresh.documents} documents, {len(fresh.words)} words, {pairs} pairs, bit for bit")
        # Compaction may erase a counted document as soon as a record that is not counted yet supersedes it.
        if not found.living.whole and ends != offsets:
            waiting = sum(ends.values()) - sum(offsets.values())
            detail = f"{waiting} records wait, and the log may have erased those they supersede"
            return doubt(name, detail, "verify again once `streamtopic status` shows no lag")
        return fails(name, problem, _REBUILD)

    def _deleted(self, kept: Kept) -> Finding:
        """Whether each deletion in the log that was counted has its receipt, or waits for it."""
        name = "missing receipts"
        if kept.waiting is None:
            return doubt(name, "the counts are being rebuilt", "verify again once `streamtopic rebuild` is done")
        found = self._counted(kept.counts.offsets)
        missing = list[str]()
        for partition, offsets in found.living.deleted.items():
            known = [*self._whole.receipts.get(partition, ()), *kept.waiting.get(partition, ())]
            without = np.setdiff1d(np.asarray(offsets), np.asarray(known, np.int64))
            missing += [receipt_id(self._sources.model, partition, offset) for offset in without.tolist()]
        if missing:
            detail = f"{len(missing)} deletions in the log neither have a receipt nor wait for one, as "
            detail += ", ".join(missing[:_NAMED])
            return fails(name, detail, "`streamtopic rebuild --yes` finds them in the log, and they get theirs")
        number = sum(map(len, found.living.deleted.values()))
        return holds(name, f"each of {number} deletions in the log has its receipt or waits for it")

    def _version(self, known: InLog) -> Iterator[Finding]:
        """Compare a version as published with one made again from the documents at its cut, with the same noise.

        The version commits to counts; these are compared with the counts of the documents as well. Raises
        _NotLearnedError.
        """
        name, envelope, key = "version", known.envelope, self._sources.noise_key
        if isinstance(key, SettingsError):
            yield doubt(name, f"its noise cannot be drawn again: {key}", "verify where the noise key is")
            return
        self._need_settings(name, envelope)
        stored = self._need_base(name, envelope)
        found = self._need_documents(name, envelope)
        what = f"version {envelope.version}, as published, noise included"
        try:
            plan = self._sources.modeller.again(self._read_again(known, found), stored, key)
        except UsageError as error:
            yield fails(name, str(error), _ITS_SETTINGS)
            return
        except (CannotLearn, StateCorrupt) as error:
            yield fails(name, f"{what}: the documents in the log do not make it: {error}", _DO_NOT_USE)
            return
        if self._sources.tasks.withheld:
            yield _judged(name, _withheld_differ(known.release, plan), f"{what}: heads", _DO_NOT_USE)
        else:
            problem, gap = topics_differ(known.release, plan)
            if problem is None:
                yield holds(name, f"{what}: largest difference {gap:.3g} from one learned from scratch")
            else:
                yield fails(name, f"{what}: {problem}", _DO_NOT_USE)
        yield _committed(envelope, key, plan)

    def _read_again(self, known: InLog, found: Recount) -> FromLog:
        """Return what a version is made again from. found: what the log has at its cut."""
        tasks, versions = self._sources.tasks, list(self._whole.versions.values())

        def labelled(words: Sequence[str]) -> TaskData:
            # Heads of published topics are compared apart, on the topics as they were published.
            return TaskData(tasks, found.over(words)) if tasks.withheld else TaskData()

        return FromLog(known.envelope, known.record, versions, found.counts, found.living.batch, labelled)

    def _heads(self, known: InLog) -> Iterator[Finding]:
        """Compare the heads of a version that has topics with heads fitted on the same topics from the log alone."""
        tasks = self._sources.tasks
        if not tasks.tasks or tasks.withheld:
            return
        name, release = "heads", known.release
        found = self._need_documents(name, known.envelope)
        problem = _heads_differ(release, found.over(release.words), tasks)
        what = f"version {release.version}: {len(release.heads)} heads"
        yield _judged(name, problem, what, f"do not use its heads: {_KEEP}")

    def _need_base(self, name: str, envelope: Envelope) -> StoredBase | None:
        """Return the base model in Redis, None for a mode that needs none. Raises _NotLearnedError if it is gone."""
        if envelope.guarantee == "certified":
            return None
        stored = self._sources.state.base()
        if stored is None or stored.version != envelope.base:
            raise _NotLearnedError(doubt(name, "its base model is not kept any more", _NEWER_BASE))
        return stored

    def _need_settings(self, name: str, envelope: Envelope) -> None:
        """Raise _NotLearnedError if the settings say another mode or number of topics than a version has."""
        modeller = self._sources.modeller
        options, mode = modeller.options, modeller.guarantee
        if mode != envelope.guarantee:
            made = f"it was made in {envelope.guarantee} mode, settings say {mode}"
            detail = f"{made}: verify with --set guarantee={envelope.guarantee}"
            raise _NotLearnedError(fails(name, detail, _ITS_SETTINGS))
        # Guided topics that have ended are missing.
        if not options.n_topics - len(options.guided) <= envelope.r <= options.n_topics:
            differ = f"the model has {envelope.r} topics, settings say {options.n_topics}"
            detail = f"{differ}: verify with --set topics={envelope.r}"
            raise _NotLearnedError(fails(name, detail, _ITS_SETTINGS))

    def _need_documents(self, name: str, envelope: Envelope) -> Recount:
        """Return the counts at a version's cut. Raises _NotLearnedError if the log has lost documents of it."""
        if not self._sources.cut(envelope):
            detail = "it was made before documents were moved to other partitions"
            raise _NotLearnedError(doubt(name, detail, _RETRAIN))
        found = self._covered(envelope)
        # In private mode m has noise; the commitment is to the documents.
        if found.counts.documents == envelope.m or (envelope.guarantee == "private" and found.living.whole):
            return found
        detail = (
            f"{found.counts.documents} of {envelope.m} documents: the log has erased documents that were deleted or "
            "replaced since, so this cannot be learned again from it"
        )
        # A log that has lost nothing would hold every document of the version.
        raise _NotLearnedError(
            fails(name, detail, _DO_NOT_USE) if found.living.whole else doubt(name, detail, _RETRAIN)
        )


def _difference(kept: Kept, fresh: Counts) -> str | None:
    """Return how the counts in Redis differ from a recount, None if they do not."""
    words = kept.counts.words
    if list(words) != list(fresh.words):
        differing = len(set(words) ^ set(fresh.words))
        return f"{differing} words are in Redis or in a recount of the log, but not in both"
    if kept.pairs.digest(fresh.words) != fresh.cooccurrence.digest(fresh.words):
        return "the counts in Redis differ from a recount of the log"
    return None if kept.sums_agree else "the sums in Redis, with what changed since, differ from a recount of the log"


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


def topics_differ(release: Release, plan: PayloadPlan) -> tuple[str | None, float]:
    """Return how published topics differ from those made again from the log, and the largest difference in A.

    plan: the version made again.

    The first is None if they do not differ.
    """
    sent, again = release.payload, plan.payload
    if sent.A is None or again.A is None:
        return "topics are withheld, settings say that they are published: verify with --set publish=tasks", 0.0
    if sent.words != again.words or sent.A.shape != again.A.shape:
        return "a model learned from scratch has other words or topics", 0.0
    gap = float(np.abs(sent.A - again.A).max())
    # In this form a NaN is refused too.
    if not gap <= _rounding(plan.noise.grid, sent.A):
        return f"largest difference {gap:.3g} from one learned from scratch", gap
    return _others_differ(sent, again, plan.noise.covariance_grid, same=gap == 0), gap


def _rounding(grid: float, values: npt.NDArray[Any]) -> float:
    """Return how far two computations of the same published numbers may be apart. grid: of their noise."""
    size = float(np.abs(values).max())
    # Rounding may carry a number to the next point of a fine grid, hardly of a coarse one. They are stored in single
    # precision.
    return 2.0**-20 * size + (4 * grid if grid < _FINE * size else 0.0)


def _others_differ(sent: Payload, again: Payload, grid: float | None, *, same: bool) -> str | None:
    """Return which of R, shares and top words differs, None if all are the same.

    grid: of the noise on R; None if it is made from A, as shares and top words are: then it may differ where A does.
    same: whether A is the same.
    """
    for name in ("R", "shares") if same or grid is not None else ():
        one, other = (np.asarray(getattr(part, name), np.float64) for part in (sent, again))
        allowed = _ROUNDING * max(1.0, float(np.abs(other).max())) if grid is None else _rounding(grid, other)
        if not float(np.abs(one - other).max()) <= allowed:
            return f"{name} is not that of one learned from scratch"
    if same and sent.top_words != again.top_words:
        return "A is that of one learned from scratch, top words are not"
    return None


def _heads_differ(release: Release, labelled: dict[str, LabelledDocuments], options: TaskOptions) -> str | None:
    """Return how heads of published topics differ from heads fitted again on that A, None if they do not."""
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
