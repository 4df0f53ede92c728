"""Checks an instance from the log up: counts every document again, learns again, and compares both with the service.

A comparison whose `detail` says "older program" or "erased" could not be made for that reason; `finding` chooses the
remedy by these words.
"""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streamtopic.errors import CannotLearn, SettingsError
from streamtopic.service.schedule.payload import TaskData, make_payload, published_heads
from streamtopic.service.schedule.situation import unproven
from streamtopic.service.verify.recount import Recounts
from streamtopic.topics.learner import learn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamtopic.counts import Counts, CountSource
    from streamtopic.privacy.keystream import NoiseKey
    from streamtopic.service.schedule.payload import Labelled, PayloadPlan, TaskOptions
    from streamtopic.service.verify.recount import Recount
    from streamtopic.service.verify.sources import Sources
    from streamtopic.signed import Head, Payload, Release
    from streamtopic.state import Snapshot
    from streamtopic.topics.fit import TopicFit

__all__ = ["Comparison", "Verification", "draw_again", "topics_differ", "verify_instance"]

# R and shares are computed in double precision by threads that may add in another order, and R is stored in single.
_ROUNDING = 1e-5
# Two learners of the same counts may add in another order. A larger difference means another model.
AGREES = 1e-12
ERASED = "the log has erased documents that were deleted or replaced since, so this cannot be learned again from it"
OLDER = "an older program made it, whose learner decided otherwise, so it cannot be learned again"
BYTES_REMOVED = "its bytes were removed: documents that it was trained on were deleted"
UNBOUND = "an older program made it, which drew its noise for another digest of the counts, so it cannot be drawn again"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison and its outcome.

    passed: None where the comparison could not be made, and `detail` says why.
    exact: figures of a model before noise. Only the operator may see these; a report never shows them.
    """

    name: str
    passed: bool | None
    detail: str
    exact: str = ""


Comparisons = tuple[Comparison, ...]


def _agrees(name: str, detail: str, exact: str = "") -> Comparison:
    return Comparison(name, passed=True, detail=detail, exact=exact)


def _differs(name: str, detail: str, exact: str = "") -> Comparison:
    return Comparison(name, passed=False, detail=detail, exact=exact)


def _not_made(name: str, detail: str) -> Comparison:
    return Comparison(name, passed=None, detail=detail)


@dataclass(frozen=True, slots=True)
class Verification:
    """All comparisons of an instance."""

    checks: tuple[Comparison, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.passed is not False for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """Return the JSON values that `verify --json` prints."""
        checks = [asdict(check) for check in self.checks]
        return {"passed": self.passed, "checks": checks}


def verify_instance(
    sources: Sources, update: Callable[[int, int | None], None], version: int | None = None
) -> Verification:
    """Compare counts, base model and a version with the same made from the log alone.

    A compacted log holds the live documents only, so a model that was learned from others cannot be learned again.

    update: called with the number of records read so far, and their total.
    version: number of the version; None for the newest.

    Raises ComponentUnreachable.
    """
    counted = Recounts(sources, update)
    made = _version(sources, version)
    checks = [_counts(sources, counted), _base_model(sources, counted)]
    if isinstance(made, Comparison):
        checks.append(made)
    else:
        checks += _published(sources, counted, made)
        checks += _heads(sources, counted, made)
    return Verification(tuple(checks))


@dataclass(frozen=True, slots=True)
class _Version:
    """A version to be made again.

    name: of its comparison, by which `finding` chooses the remedy.
    number: of the version.
    record: of the version, in Redis.
    """

    name: str
    number: int
    record: Mapping[str, Any]


def _version(sources: Sources, version: int | None) -> _Version | Comparison:
    """Return the wanted version, or a comparison that says why it cannot be compared."""
    records = dict(sources.state.releases())
    newest = max(records, default=0)
    asked = newest if version is None else version
    name = "newest version" if asked == newest else "this version"
    if not records:
        return _not_made(name, "no version has been published yet")
    if asked in sources.state.withdrawn():
        return _not_made(name, f"version {asked} is withdrawn")
    if asked not in records:
        return _not_made(name, f"there is no record of version {asked}")
    return _Version(name, asked, records[asked])


def _counts(sources: Sources, counted: Recounts) -> Comparison:
    """Compare words, document frequencies, tokens and every pair in Redis with a recount, bit for bit."""
    name = "counts"
    snapshot = sources.reader.snapshot()
    # Before the recount, which takes minutes in which the log grows.
    topic = sources.names.documents
    ends = {partition: sources.log.end(topic, partition) for partition in snapshot.offsets}
    found = counted.at(snapshot.offsets)
    fresh = found.counts
    problem = _difference(snapshot, fresh)
    if problem is None:
        detail = f"{fresh.documents} documents, {len(fresh.words)} words, {fresh.cooccurrence.pairs} pairs, bit for bit"
        return _agrees(name, detail)
    # Compaction may erase a counted document as soon as a record that is not counted yet supersedes it.
    if not found.whole and ends != snapshot.offsets:
        counted_up_to = sum(snapshot.offsets.values())
        waiting = sum(ends.values()) - counted_up_to
        detail = f"{waiting} records wait, and the log may have erased those they supersede: verify again without lag"
        return _not_made(name, detail)
    return _differs(name, problem)


def _difference(snapshot: Snapshot, fresh: Counts) -> str | None:
    """Return how the counts in Redis differ from a recount, None if they do not."""
    if list(snapshot.words) != list(fresh.words):
        differing = len(set(snapshot.words) ^ set(fresh.words))
        return f"{differing} words are in Redis or in a recount of the log, but not in both"
    kept = snapshot.restrict(np.arange(len(fresh.words), dtype=np.intp))
    if kept.digest(fresh.words) != fresh.cooccurrence.digest(fresh.words):
        return "the counts in Redis differ from a recount of the log"
    return None


def _base_model(sources: Sources, counted: Recounts) -> Comparison:
    """Compare the base model before noise, as Redis keeps it, with one learned cold from its documents."""
    name = "base model"
    stored = sources.state.base()
    if stored is None:
        return _not_made(name, "there is no base model yet")
    record = dict(sources.state.releases()).get(stored.version)
    if record is None:
        return _differs(name, f"there is no record of version {stored.version}: run `streamtopic retrain`")
    fit = _learned(name, counted, record) if stored.blob else _not_made(name, BYTES_REMOVED)
    if isinstance(fit, Comparison):
        return fit
    with np.load(io.BytesIO(stored.blob)) as arrays:
        words = arrays["words"].tolist()
        A = arrays["A"]
    if words != list(fit.words) or A.shape != fit.A.shape:
        return _differs(name, "a model learned from scratch has other words or topics")
    problem = sources.paper.kept_differs(stored, fit, counted.of(record).counts)
    if problem is not None:
        return _differs(name, f"version {stored.version}: {problem}")
    gap = float(np.abs(A - fit.A).max())
    agrees = gap <= AGREES
    said = f"no number is more than {AGREES:g}" if agrees else f"a number is more than {AGREES:g}"
    # The gap itself is a figure before noise, so only `exact` has it.
    detail = f"version {stored.version}: {said} from that of one learned from scratch"
    exact = f"largest difference {gap:.3g}, certificate of the one learned from scratch {fit.certificate.bound:.3g}"
    return Comparison(name, agrees, detail, exact)


def _published(sources: Sources, counted: Recounts, made: _Version) -> Comparisons:
    """Compare a version as published with one learned cold from the documents at its cut, with the same noise.

    The version commits to counts; these are compared with the counts of the documents as well.
    """
    key = sources.noise_key
    if isinstance(key, SettingsError):
        return (_not_made(made.name, f"its noise cannot be drawn again: {key}"),)
    if made.record.get("guarantee") == "theorem":
        return _unlearned(sources, key, counted, made)
    fit = _learned(made.name, counted, made.record)
    if isinstance(fit, Comparison):
        return (fit,)
    return _compared(sources, key, counted, fit, made)


def _unlearned(sources: Sources, key: NoiseKey, counted: Recounts, made: _Version) -> Comparisons:
    """Compare a version of the paper's mode with Algorithm 1 on the counts of the log, from the stored base model."""
    stored = sources.state.base()
    if not sources.paper.expected:
        detail = "it was made under the theorem, settings say certified: verify with --set guarantee=theorem"
        return (_differs("settings", detail),)
    missing = _cannot(made.name, counted, made.record)
    if missing is not None:
        return (missing,)
    if not made.record.get("commitment"):
        return (_not_made(made.name, UNBOUND),)
    if stored is None or stored.version != made.record["base"]:
        return (_not_made(made.name, "its base model is not kept any more"),)
    release = sources.release(made.number)
    counts = counted.of(made.record).counts
    problem, plan = sources.paper.differs(release, counts, stored, made.record, key)
    what = f"version {made.number}, signed, noise included"
    committed = _committed(release, key, made, plan)
    if problem is not None:
        return (_differs(made.name, f"{what}: {problem}"), *committed)
    return (_agrees(made.name, f"{what}: Algorithm 1 on the documents in the log gives the same"), *committed)


def _committed(release: Release, key: NoiseKey, made: _Version, plan: PayloadPlan | None) -> Comparisons:
    """Compare the counts to which a version commits with those of the documents in the log."""
    if plan is None:
        return ()
    envelope = release.envelope
    again = key.commitment(envelope.model, made.number, plan.digest)
    if envelope.commitment == again:
        detail = f"version {made.number} commits to the counts of the documents in the log, bit for bit"
        return (_agrees("commitment", detail),)
    if not made.record.get("labelled_whole", True):
        detail = "labelled documents were deleted while it was made, so it commits to others than are in the log"
        return (_not_made("commitment", detail),)
    detail = f"version {made.number} commits to other counts, or other settings, than those of the documents in the log"
    return (_differs("commitment", detail),)


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

    Raises CannotLearn where topics are withheld and there is no head.
    """
    tasks = sources.options.tasks
    if labelled is None and tasks.withheld:
        raise CannotLearn("tasks", "topics are withheld and no document has a label: add labelled documents")
    data = None if labelled is None else TaskData(tasks, labelled)
    return make_payload(fit, source, sources.guarded, None, key, sources.model, version, data)


def _compared(sources: Sources, key: NoiseKey, counted: Recounts, fit: TopicFit, made: _Version) -> Comparisons:
    """Compare a version with one made again, noise included, from a model learned cold."""
    release = sources.release(made.number)
    found = counted.of(made.record)
    # Noise was drawn for another digest of the counts, so it cannot be drawn again.
    if not release.envelope.bound:
        return (_not_made(made.name, UNBOUND),)
    labelled = found.over(fit.words) if counted.tasks.withheld else None
    try:
        plan = draw_again(sources, key, fit, found.counts, made.number, labelled)
    except CannotLearn as error:
        return (_differs(made.name, f"the documents in the log do not make a version: {error}"),)
    committed = _committed(release, key, made, plan)
    what = f"version {made.number}, signed, noise included"
    if counted.tasks.withheld:
        problem = _withheld_differ(release, plan)
        judged = _judged(made.name, made.record, problem, f"{what}: heads")
        return (judged, *committed)
    problem, gap = topics_differ(release, plan)
    exact = f"certificate of the one learned from scratch {fit.certificate.bound:.3g}"
    if problem is not None:
        return (_differs(made.name, f"{what}: {problem}", exact=exact), *committed)
    detail = f"{what}: largest difference {gap:.3g} from one learned from scratch"
    return (_agrees(made.name, detail, exact=exact), *committed)


def _heads(sources: Sources, counted: Recounts, made: _Version) -> list[Comparison]:
    """Compare the heads beside a version's topics with heads fitted on the same topics from the log alone."""
    if not counted.tasks.tasks or counted.tasks.withheld:
        return []
    name, record = "heads", made.record
    found = counted.of(record)
    if not record["cut"] or found.counts.documents != record["documents"]:
        return [_incomplete(name, found, record)]
    release = sources.release(made.number)
    problem = _heads_differ(release, found.over(release.words), counted.tasks)
    what = f"version {made.number}: {len(release.heads)} heads"
    return [_judged(name, record, problem, what)]


def _incomplete(name: str, found: Recount, record: Mapping[str, Any]) -> Comparison:
    """Return the comparison of a version that was made of more documents than the log holds."""
    detail = f"{found.counts.documents} of {record['documents']} documents: {ERASED}"
    # A log that has lost nothing would hold every document of the version.
    return _differs(name, detail) if found.whole else _not_made(name, detail)


def _judged(name: str, record: Mapping[str, Any], problem: str | None, what: str) -> Comparison:
    """Return the comparison of heads: how they differ is `problem`, None if they do not."""
    if problem is None:
        return _agrees(name, f"{what} are those of the labelled documents in the log")
    # Heads are fitted a moment after the cut; documents that were deleted between the two are not in them.
    if not record.get("labelled_whole", True):
        detail = f"labelled documents were deleted while it was made, and are not in its heads ({problem})"
        return _not_made(name, detail)
    return _differs(name, problem)


def _learned(name: str, counted: Recounts, record: Mapping[str, Any]) -> TopicFit | Comparison:
    """Return a model learned cold from the documents at a version's cut, or why it cannot be compared."""
    missing = _cannot(name, counted, record)
    if missing is not None:
        return missing
    try:
        return learn(counted.of(record).counts, counted.options)
    except CannotLearn as error:
        return _differs("model", f"the documents in the log do not make a model: {error}")


def _cannot(name: str, counted: Recounts, record: Mapping[str, Any]) -> Comparison | None:
    """Return why a version cannot be made again from the log, None if it can."""
    made = record["topics"]
    said = counted.options.n_topics
    # Guided topics that have ended are missing.
    if not said - len(counted.options.guided) <= made <= said:
        detail = f"the model has {made} topics, settings say {said}: verify with --set topics={made}"
        return _differs("settings", detail)
    if unproven(record):
        return _not_made(name, OLDER)
    if not record["cut"]:
        return _not_made(name, "it was made before documents were moved to other partitions")
    found = counted.of(record)
    if found.counts.documents != record["documents"]:
        return _incomplete(name, found, record)
    return None


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
    """Return which of R, shares and top words differs where A is the same, None if all are the same."""
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
    anchors = release.envelope.anchors
    again, _ = published_heads(release.payload.A, release.words, anchors, data)
    sent = release.payload.heads
    for task in sorted({*sent, *again}):
        problem = _other(sent.get(task), again.get(task))
        if problem is None:
            one = np.asarray(sent[task].w)
            other = np.asarray(again[task].w)
            gap = float(np.linalg.norm(one - other))
            # Each fit stops within this distance of the optimum, so two may lie twice that apart.
            allowed = 2 * options.tasks[task].distance
            problem = _apart(gap, allowed)
        if problem is not None:
            return f"head of task {task!r}: {problem}"
    return None


def _withheld_differ(release: Release, plan: PayloadPlan) -> str | None:
    """Return how heads in place of topics differ from those made again from the log, None if they do not.

    plan: the version made again.
    """
    if release.payload.A is not None:
        return "topics are published, settings say that they are withheld: verify with --set publish=topics"
    if release.words != plan.payload.words:
        return "a model learned from scratch has other words"
    sent = release.payload.heads
    again = plan.payload.heads
    facts: Mapping[str, Mapping[str, Any]] = plan.facts["heads"]
    for task in sorted({*sent, *again}):
        problem = _other(sent.get(task), again.get(task))
        if problem is None:
            one = np.asarray(sent[task].B, np.float64)
            other = np.asarray(again[task].B, np.float64)
            gap = float(np.abs(one - other).max())
            # Before noise two may lie the sensitivity apart. Rounding adds a step of the noise's grid, and the single
            # precision of B.
            fact = facts[task]
            largest = float(np.abs(one).max())
            rounding = fact["grid"] + 2.0**-22 * largest
            allowed = fact["sensitivity"] + rounding
            problem = _apart(gap, allowed)
        if problem is not None:
            return f"head of task {task!r}: {problem}"
    return None


def _apart(gap: float, allowed: float) -> str | None:
    """Return that weights differ too much, None if they do not."""
    if gap <= allowed:
        return None
    return f"weights differ by {gap:.3g}, more than {allowed:.3g}; retrain, if tasks were changed in the settings"


def _other(sent: Head | None, again: Head | None) -> str | None:
    """Return in which of topics, classes and documents two heads differ, None if they are of the same."""
    if again is None:
        return "the log gives no such head: verify with the tasks that the version was made with, or retrain"
    if sent is None:
        return "the log gives a head, the version has none: retrain, if the task is new in the settings"
    for name in ("topics", "classes", "documents"):
        if getattr(sent, name) != getattr(again, name):
            return f"other {name} from the log"
    return None
