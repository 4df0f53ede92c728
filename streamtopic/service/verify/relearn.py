"""Checks from the log up: counts every document again, makes a version again, and compares both with the service."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from streamtopic.counts import KeptCounts, narrowed
from streamtopic.errors import CannotLearn, SettingsError, StateCorrupt, UsageError
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.service.finding import Finding, doubt, fails, holds
from streamtopic.service.instance import secret, suppression_key
from streamtopic.service.schedule.payload import Ingredients, TaskOptions, published_heads, task_options
from streamtopic.service.verify.recount import documents_in_log
from streamtopic.signed import receipt_id
from streamtopic.state import CutGone
from streamtopic.state.document_counts import StoredDocuments, read_documents
from streamtopic.state.stored_counts import CountsStore, StoredCounts, SummedCounts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from streamtopic.counts import Cooccurrence
    from streamtopic.service.opened import Opened
    from streamtopic.service.schedule.modeller import Modeller
    from streamtopic.service.schedule.payload import PayloadPlan
    from streamtopic.service.verify.ledger_checks import InLog, WholeLedger
    from streamtopic.service.verify.recount import Progress
    from streamtopic.signed import Envelope, Head, Payload
    from streamtopic.state import DocumentCounts, Reader

    Array = npt.NDArray[Any]

__all__ = ["Kept", "Relearning", "published_differ", "read_kept"]

# R and shares are computed in double precision by threads that may add in another order, and R is stored in single.
_ROUNDING = 1e-5
# A grid is fine below this share of a number's size.
_FINE = 1e-3
_BATCH = ("indptr", "words", "counts", "lengths", "owners")
_STATISTICS = ("frequency", "tokens", "heavy")
_UPPER = ("indptr", "columns", "values")
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
_ITS_TASKS = "verify with the tasks that the version was made with, or retrain"


@dataclass(frozen=True, slots=True)
class Kept:
    """What Redis holds.

    counts: statistics of words.
    documents: over these words.
    sums: words and pair counts, as the stored sums and what came and went since give them; None without sums.
    waiting: partition to the offsets of deletions that wait for their receipts.
    """

    counts: DocumentCounts
    documents: StoredDocuments
    sums: tuple[Sequence[str], Cooccurrence] | None
    waiting: Mapping[int, list[int]]


def read_kept(service: Opened, reader: Reader) -> Kept:
    """Return what Redis holds, to be compared with ledger and log, which are to be read after it.

    Raises ComponentUnreachable, StateMissing.
    """
    store = CountsStore(reader.connection, service.settings.model)
    counts, documents, sums = reader.read(lambda now: (now, read_documents(now, now.words), _sums(now, store.read())))
    # After the counts: a deletion that they reflect waits, or has its receipt in the ledger.
    waiting = {}
    for partition in counts.offsets:
        waiting[partition] = [one.offset for one in reader.forgets(partition).each()]
    return Kept(counts, documents, sums, waiting)


def _sums(counts: DocumentCounts, stored: StoredCounts | None) -> tuple[Sequence[str], Cooccurrence] | None:
    """Return the words of stored sums that are still there, and their pair counts."""
    if stored is None:
        return None
    there = set(stored.words)
    both = np.array([k for k, word in enumerate(counts.words) if word in there], np.intp)
    try:
        return [counts.words[k] for k in both], SummedCounts.of(counts, stored).symmetric(both).upper()
    except CutGone:
        # The scheduler writes them again, and until then nobody can use them.
        return None


@dataclass(frozen=True, slots=True)
class _Recount:
    """The documents that the log leaves alive at a cut.

    whole: whether the log still holds every record before the cut.
    deleted: partition to the offset of each delete that somebody asked for.
    stored: the documents, over the words of `counts`.
    """

    whole: bool
    deleted: Mapping[int, Sequence[int]]
    stored: StoredDocuments
    counts: KeptCounts

    def read(self, words: Sequence[str], *, labelled: Collection[str] = ()) -> StoredDocuments:
        """Return what `read_documents` would read of these documents, all words and labels alike."""
        place = {word: k for k, word in enumerate(words)}
        ids = np.array([place.get(word, -1) for word in self.counts.words], np.int32)
        batch, stored = narrowed(self.stored.batch, ids), self.stored
        if not labelled:
            return replace(stored, batch=batch)
        chosen = [k for k, labels in enumerate(stored.labels) if not labels.keys().isdisjoint(labelled)]
        ids_of, labels_of = tuple(stored.ids[k] for k in chosen), tuple(stored.labels[k] for k in chosen)
        return StoredDocuments(batch.take(np.array(chosen, np.intp)), ids_of, labels_of)


class Relearning:
    """Makes counts and a version again from the log alone, and compares.

    A compacted log holds the live documents only, so a model that was learned from others cannot be learned again.

    modeller: the mode in which models are made, as the settings say now; it makes versions again.
    whole: the ledger.
    update: called with the number of records read so far, and their total.

    No finding has a figure of a model before noise.
    """

    def __init__(self, service: Opened, modeller: Modeller, whole: WholeLedger, update: Progress) -> None:
        self._service = service
        self._modeller = modeller
        self._tasks = task_options(service.settings)
        self._whole = whole
        self._update = update
        self._made: dict[object, _Recount] = {}

    def findings(self, kept: Kept, known: InLog | None) -> Iterator[Finding]:
        """Yield the comparisons; those of a version only if there is one. Raises ComponentUnreachable."""
        yield self._counts(kept)
        yield self._deleted(kept)
        if known is not None:
            yield from self._version(known)

    def _covered(self, envelope: Envelope) -> _Recount:
        """Return the counts that a version covers."""
        # In the paper's mode an update covers the remaining documents of its base model, and not later ones.
        base = self._whole.versions.get(envelope.base)
        if envelope.guarantee == "theorem" and envelope.kind == "unlearn" and base is not None:
            return self._counted(envelope.cut, base.cut)
        return self._counted(envelope.cut)

    def _counted(self, cut: Mapping[int, int], added: Mapping[int, int] | None = None) -> _Recount:
        """Return the counts of the documents that the log leaves alive at a cut. Each cut is counted once.

        cut: partition to the offset up to which records are read.
        added: count only documents that were added before these offsets; None for all documents.
        """
        key = tuple(sorted(cut.items())), tuple(sorted((added or {}).items()))
        if key not in self._made:
            service = self._service
            found = documents_in_log(
                service.log,
                service.names.documents,
                cut,
                self._update,
                suppression=suppression_key(service.settings),
            )
            found = found if added is None else found.added_before(added)
            words, stored = found.stored()
            counts = KeptCounts.counted(words, stored.batch, self._modeller.options.weighting)
            self._made[key] = _Recount(found.whole, found.deleted, stored, counts)
        return self._made[key]

    def _counts(self, kept: Kept) -> Finding:
        """Compare documents, labels, statistics of words and sums of pairs in Redis with the log, bit for bit."""
        name, log, topic = "counts", self._service.log, self._service.names.documents
        offsets = kept.counts.offsets
        ends = {partition: log.end(topic, partition) for partition in offsets}
        found = self._counted(offsets)
        problem = _difference(kept, found)
        if problem is None:
            return holds(name, f"{len(found.stored)} documents over {len(found.counts.words)} words, bit for bit")
        # Compaction may erase a counted document as soon as a record that is not counted yet supersedes it.
        if not found.whole and ends != offsets:
            waiting = sum(ends.values()) - sum(offsets.values())
            detail = f"{waiting} records wait, and the log may have erased those they supersede"
            return doubt(name, detail, "verify again once `streamtopic status` shows no lag")
        return fails(name, problem, _REBUILD)

    def _deleted(self, kept: Kept) -> Finding:
        """Whether each deletion in the log that was counted has its receipt, or waits for it."""
        name = "missing receipts"
        found = self._counted(kept.counts.offsets)
        missing = list[str]()
        for partition, offsets in found.deleted.items():
            known = [*self._whole.receipts.get(partition, ()), *kept.waiting.get(partition, ())]
            without = np.setdiff1d(np.asarray(offsets), np.asarray(known, np.int64))
            missing += [receipt_id(self._service.settings.model, partition, offset) for offset in without.tolist()]
        if missing:
            detail = f"{len(missing)} deletions in the log neither have a receipt nor wait for one, as "
            detail += ", ".join(missing[:_NAMED])
            return fails(name, detail, "`streamtopic rebuild --yes` finds them in the log, and they get theirs")
        number = sum(map(len, found.deleted.values()))
        return holds(name, f"each of {number} deletions in the log has its receipt or waits for it")

    def _version(self, known: InLog) -> Iterator[Finding]:
        """Compare a version as published with one made again from the documents at its cut, with the same noise.

        The version commits to counts; these are compared with the counts of the documents as well.
        """
        name, envelope, tasks = "version", known.envelope, self._tasks
        try:
            key = NoiseKey(secret(self._service.settings, "noise.key"))
        except SettingsError as error:
            # The server of pages has none, and may make all checks that do not need it.
            yield doubt(name, f"its noise cannot be drawn again: {error}", "verify where the noise key is")
            return
        lacking = self._lacking(known)
        if lacking is not None:
            yield lacking
            return
        found = self._covered(envelope)
        what = f"version {envelope.version}, as published, noise included"
        noise, published = key.of(envelope.model, envelope.version), known.release.payload
        # Heads of published topics are made again from the topics as they were published.
        learned = tasks if tasks.withheld else TaskOptions()
        again = Ingredients(noise, found.read, learned, versions=self._whole.versions.values)
        try:
            plan = self._modeller.again(found.counts, envelope, again)
        except UsageError as error:
            yield fails(name, str(error), _ITS_SETTINGS)
            return
        except (CannotLearn, StateCorrupt) as error:
            yield fails(name, f"{what}: the documents in the log do not make it: {error}", _DO_NOT_USE)
            return
        problem = published_differ(published, plan, replace(again, tasks=tasks))
        if problem is None:
            yield holds(name, f"{what}: all its numbers are those of one learned from scratch")
        else:
            yield fails(name, f"{what}: {problem}", f"{_ITS_SETTINGS}; if it fails with them, {_DO_NOT_USE}")
        yield _committed(envelope, noise.commitment(plan.digest))

    def _lacking(self, known: InLog) -> Finding | None:
        """Return the finding of a version that cannot be made again, None for one that can."""
        state = self._service.state
        name, envelope, base = "version", known.envelope, state.base_head()
        if (mode := envelope.guarantee) != self._service.settings.guarantee:
            return fails(name, f"it was made in another mode: verify with --set guarantee={mode}", _ITS_SETTINGS)
        # The certified mode needs no base model.
        if envelope.guarantee != "certified" and (base is None or base.version != envelope.base):
            return doubt(name, "its base model is not kept any more", _NEWER_BASE)
        found = self._covered(envelope)
        # In private mode m has noise; the commitment is to the documents.
        if found.counts.documents == envelope.m or (envelope.guarantee == "private" and found.whole):
            return None
        detail = (
            f"{found.counts.documents} of {envelope.m} documents: the log has erased documents that were deleted or "
            "replaced since, so this cannot be learned again from it"
        )
        # A log that has lost nothing would hold every document of the version.
        return fails(name, detail, _DO_NOT_USE) if found.whole else doubt(name, detail, _RETRAIN)


def _difference(kept: Kept, found: _Recount) -> str | None:
    """Return how Redis differs from a recount, None if it does not."""
    words, fresh = kept.counts.words, found.counts
    if list(words) != list(fresh.words):
        differing = len(set(words) ^ set(fresh.words))
        return f"{differing} words are in Redis or in a recount of the log, but not in both"
    one, other = kept.documents, found.stored
    if (one.ids, one.labels) != (other.ids, other.labels) or not _same(one.batch, other.batch, _BATCH):
        return "the documents in Redis differ from those in the log"
    if not _same(kept.counts, fresh, _STATISTICS):
        return "the counts in Redis differ from a recount of the log"
    if kept.sums is not None:
        summed, sums = kept.sums
        again = fresh.symmetric(fresh.positions(summed)).upper()
        if not _same(sums, again, _UPPER):
            return "the sums in Redis, with what changed since, differ from a recount of the log"
    return None


def _same(one: object, other: object, names: Sequence[str]) -> bool:
    """Return whether arrays of these names are equal."""
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


def _committed(envelope: Envelope, again: str) -> Finding:
    """Compare the counts to which a version commits with those of the documents in the log. again: their commitment."""
    name = "commitment"
    if envelope.commitment == again:
        return holds(name, f"version {envelope.version} commits to the counts of the documents in the log, bit for bit")
    other = "other counts, or other settings, than those of the documents in the log"
    return fails(name, f"version {envelope.version} commits to {other}", _DO_NOT_USE)


def published_differ(sent: Payload, plan: PayloadPlan, ingredients: Ingredients) -> str | None:
    """Return how the published numbers of a version differ from those made again from the log, None if they do not.

    plan: the version made again, without the heads of published topics.
    ingredients: of these heads.
    """
    again = plan.payload
    for name in ("words", "anchors"):
        if getattr(sent, name) != getattr(again, name):
            return f"a model learned from scratch has other {name}"
    if sent.A is not None:
        # A head of published topics is a function of them, as they were published, and of the labelled documents.
        heads, _ = published_heads(sent.A, sent.words, sent.anchors, ingredients)
        again = replace(again, heads=heads)
    for task in sorted({*sent.heads, *again.heads}):
        if _about(sent.heads.get(task)) != _about(again.heads.get(task)):
            return f"the head of task {task!r} has other topics, classes or documents than the log: {_ITS_TASKS}"
    one, other = sent.arrays, again.arrays
    allowed = _allowed(one, plan, ingredients.tasks)
    for name in sorted({*one, *other}):
        if name not in one or name not in other or one[name].shape != other[name].shape:
            return f"{name} has another shape in a model learned from scratch"
        gap = float(np.abs(np.asarray(one[name], np.float64) - other[name]).max())
        # In this form a NaN is refused too.
        if not gap <= allowed[name]:
            return f"{name}: largest difference {gap:.3g} from one learned from scratch, more than {allowed[name]:.3g}"
    if sent.top_words != again.top_words and np.array_equal(one["A"], other["A"]):
        return "A is that of one learned from scratch, top words are not"
    return None


def _about(head: Head | None) -> object:
    return None if head is None else (head.topics, head.classes, head.documents)


def _allowed(sent: Mapping[str, Array], plan: PayloadPlan, tasks: TaskOptions) -> dict[str, float]:
    """Return how far the numbers of each array may be from those made again."""
    allowed = {}
    again = plan.payload
    if again.A is not None:
        allowed["A"] = _rounding(plan.grid, again.A)
        same = np.array_equal(sent.get("A", ()), again.A)
        for name in ("R", "shares"):
            values = np.asarray(getattr(again, name), np.float64)
            if plan.covariance_grid is not None:
                allowed[name] = _rounding(plan.covariance_grid, values)
            else:
                # Made from A, so it may differ as A does.
                allowed[name] = _ROUNDING * max(1.0, float(np.abs(values).max())) if same else np.inf
    for task, options in tasks.tasks.items():
        # Each fit stops within this distance of the optimum, so two may lie twice that apart.
        allowed[f"heads/{task}/w"] = 2 * options.distance
        if (head := again.heads.get(task)) is not None and head.B is not None:
            # Before noise two may lie the sensitivity apart. Rounding adds a step of the noise's grid, and the single
            # precision of B.
            facts = plan.facts["heads"][task]
            allowed[f"heads/{task}/B"] = facts["sensitivity"] + facts["grid"] + 2.0**-22 * float(np.abs(head.B).max())
    return allowed


def _rounding(grid: float, values: Array) -> float:
    """Return how far two computations of the same published numbers may be apart. grid: of their noise."""
    size = float(np.abs(values).max())
    # Rounding may carry a number to the next point of a fine grid, hardly of a coarse one. They are stored in single
    # precision.
    return 2.0**-20 * size + (4 * grid if grid < _FINE * size else 0.0)
