"""Checking an instance from the log up: recount every document, learn again, compare."""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streamtopic.errors import CannotLearn, SettingsError
from streamtopic.service.assembly import theorem_rule
from streamtopic.service.room import NO_ROOM
from streamtopic.service.verify_heads import heads_differ, withheld_differ
from streamtopic.service.verify_recounts import Recounts
from streamtopic.service.verify_theorem import kept_differs, theorem_differs
from streamtopic.service.verify_topics import topics_differ
from streamtopic.topics.learner import learn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamtopic.counts import Counts
    from streamtopic.service.runner import Service
    from streamtopic.state import Snapshot
    from streamtopic.topics.fit import TopicFit

__all__ = ["Check", "Verification", "verify_instance"]

AGREES = 1e-12
ERASED = "the log has erased documents that were deleted or replaced since, so this cannot be learned again from it"


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison and what it found; passed None: it could not be made, and why."""

    name: str
    passed: bool | None
    detail: str


@dataclass(frozen=True, slots=True)
class Verification:
    """All checks of an instance."""

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.passed is not False for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """Return what `verify --json` prints."""
        return {"passed": self.passed, "checks": [asdict(check) for check in self.checks]}


def verify_instance(
    service: Service, update: Callable[[int, int | None], None], version: int | None = None
) -> Verification:
    """Compare counts, base model and a version (None: the newest) of an instance with what its log alone gives.

    A compacted log holds the live documents only: what was learned from others cannot be learned again.
    """
    counted, made = Recounts(service, update), _version(service, version)
    published = (
        (made,) if isinstance(made, Check) else (_published(service, counted, made), *_heads(service, counted, made))
    )
    return Verification((_counts(service, counted), _base_model(service, counted), *published))


@dataclass(frozen=True, slots=True)
class _Version:
    """A version to be made again. name: of its check."""

    name: str
    number: int
    record: Mapping[str, Any]


def _version(service: Service, version: int | None) -> _Version | Check:
    """Return the version asked for, or why it cannot be compared."""
    records = dict(service.state.releases())
    newest = max(records, default=0)
    asked = newest if version is None else version
    name = "newest version" if asked == newest else "this version"
    if not records:
        return Check(name, passed=None, detail="none has been published yet")
    if asked in service.state.withdrawn():
        return Check(name, passed=None, detail=f"version {asked} is withdrawn")
    if asked not in records:
        return Check(name, passed=None, detail=f"there is no record of version {asked}")
    return _Version(name, asked, records[asked])


def _counts(service: Service, counted: Recounts) -> Check:
    """Words, document frequencies, tokens and every pair in Redis, bit for bit."""
    name = "counts"
    snapshot = service.reader.snapshot()
    ends = {partition: service.log.end(service.names.documents, partition) for partition in snapshot.offsets}
    found = counted.at(snapshot.offsets)
    fresh = found.counts
    problem = _difference(snapshot, fresh)
    if problem is None:
        detail = f"{fresh.documents} documents, {len(fresh.words)} words, {fresh.cooccurrence.pairs} pairs, bit for bit"
        return Check(name, passed=True, detail=detail)
    if not found.whole and ends != snapshot.offsets:
        waiting = sum(ends.values()) - sum(snapshot.offsets.values())
        detail = f"{waiting} records wait, and the log may have erased what they supersede: verify again without lag"
        return Check(name, passed=None, detail=detail)
    sparse = sum(view.meta.totals.get("rejected_words", 0) for view in snapshot.views)
    named = sum(offset < snapshot.offsets.get(partition, 0) for partition, offset in counted.refused)
    if sparse != named:
        detail = f"{sparse} documents were refused for want of room ({NO_ROOM}), the rejected topic still names {named}"
        return Check(name, passed=None, detail=f"{detail}: run `streamtopic rebuild` to have it counted afresh")
    refused = sum(view.meta.totals.get("rejected_live", 0) for view in snapshot.views)
    if refused and not found.whole:
        problem += f"; {refused} changes of live documents were refused: the log may have erased what they were before"
    return Check(name, passed=False, detail=problem)


def _difference(snapshot: Snapshot, fresh: Counts) -> str | None:
    if list(snapshot.words) != list(fresh.words):
        differing = len(set(snapshot.words) ^ set(fresh.words))
        return f"{differing} words are only in one of Redis and a recount of the log"
    kept = snapshot.restrict(np.arange(len(fresh.words), dtype=np.intp))
    if kept.digest(fresh.words) != fresh.cooccurrence.digest(fresh.words):
        return "the counts in Redis differ from a recount of the log"
    return None


def _base_model(service: Service, counted: Recounts) -> Check:
    """The base model before noise, as kept, against one learned cold from the documents that it was trained on."""
    name = "base model"
    stored = service.state.base()
    if stored is None:
        return Check(name, passed=None, detail="there is none yet")
    record = dict(service.state.releases()).get(stored.version)
    if record is None:
        return Check(
            name, passed=False, detail=f"there is no record of version {stored.version}: run `streamtopic retrain`"
        )
    fit = _learned(name, counted, record)
    if isinstance(fit, Check):
        return fit
    with np.load(io.BytesIO(stored.blob)) as arrays:
        words, A = arrays["words"].tolist(), arrays["A"]
    if words != list(fit.words) or A.shape != fit.A.shape:
        return Check(name, passed=False, detail="a model learned from scratch has other words or topics")
    problem = kept_differs(stored, fit, counted.of(record).counts)
    if problem is not None:
        return Check(name, passed=False, detail=f"version {stored.version}: {problem}")
    gap = float(np.abs(A - fit.A).max())
    detail = f"version {stored.version}: largest difference {gap:.3g} from one learned from scratch"
    return Check(name, gap <= AGREES, detail)


def _published(service: Service, counted: Recounts, made: _Version) -> Check:
    """A version as published, against one learned cold from the documents at its cut, with its noise."""
    try:
        _ = service.noise_key
    except SettingsError as error:
        return Check(made.name, passed=None, detail=f"its noise cannot be drawn again: {error}")
    if made.record.get("guarantee") == "theorem":
        return _unlearned(service, counted, made)
    fit = _learned(made.name, counted, made.record)
    return fit if isinstance(fit, Check) else _compared(service, counted, fit, made)


def _unlearned(service: Service, counted: Recounts, made: _Version) -> Check:
    """Hold a version of theorem mode against Algorithm 1 on the counts of the log, from what is kept of its base."""
    stored = service.state.base()
    if theorem_rule(service.settings) is None:
        detail = "it was made under the theorem, settings say certified: verify with --set guarantee=theorem"
        return Check("settings", passed=False, detail=detail)
    missing = _cannot(made.name, counted, made.record)
    if missing is not None:
        return missing
    if stored is None or stored.version != made.record["base"]:
        return Check(made.name, passed=None, detail="its base model is not kept any more")
    problem = theorem_differs(service, counted.of(made.record).counts, stored, made.number, made.record)
    what = f"version {made.number}, signed, noise included"
    if problem is not None:
        return Check(made.name, passed=False, detail=f"{what}: {problem}")
    return Check(made.name, passed=True, detail=f"{what}: Algorithm 1 on the documents in the log gives the same")


def _compared(service: Service, counted: Recounts, fit: TopicFit, made: _Version) -> Check:
    """Hold a version against one made again, noise included, from a model learned cold."""
    release, found = service.release(made.number), counted.of(made.record)
    labelled = found.over(fit.words) if counted.tasks.withheld else None
    try:
        plan = service.draw_again(fit, found.counts, made.number, labelled)
    except CannotLearn as error:
        return Check(made.name, passed=False, detail=f"the documents in the log allow none: {error}")
    what = f"version {made.number}, signed, noise included"
    if counted.tasks.withheld:
        return _judged(made.name, made.record, withheld_differ(release, plan), f"{what}: heads")
    problem, gap = topics_differ(release, plan)
    if problem is not None:
        return Check(made.name, passed=False, detail=f"{what}: {problem}")
    return Check(made.name, passed=True, detail=f"{what}: largest difference {gap:.3g} from one learned from scratch")


def _heads(service: Service, counted: Recounts, made: _Version) -> list[Check]:
    """Heads of a version beside its topics, against heads fitted on the same topics from the log alone."""
    if not counted.tasks.tasks or counted.tasks.withheld:
        return []
    name, record, found = "heads", made.record, counted.of(made.record)
    if not record["cut"] or found.counts.documents != record["documents"]:
        detail = f"{found.counts.documents} of {record['documents']} documents: {ERASED}"
        return [Check(name, passed=None if not found.whole else False, detail=detail)]
    release = service.release(made.number)
    problem = heads_differ(release, found.over(release.words), counted.tasks)
    return [_judged(name, record, problem, f"version {made.number}: {len(release.heads)} heads")]


def _judged(name: str, record: Mapping[str, Any], problem: str | None, what: str) -> Check:
    if problem is None:
        return Check(name, passed=True, detail=f"{what} are those of the labelled documents in the log")
    if not record.get("labelled_whole", True):
        detail = f"labelled documents were deleted while it was made, and are not in its heads ({problem})"
        return Check(name, passed=None, detail=detail)
    return Check(name, passed=False, detail=problem)


def _learned(name: str, counted: Recounts, record: Mapping[str, Any]) -> TopicFit | Check:
    """Learn cold from the documents at a version's cut, or say why that cannot be compared."""
    missing = _cannot(name, counted, record)
    if missing is not None:
        return missing
    try:
        return learn(counted.of(record).counts, counted.options)
    except CannotLearn as error:
        return Check("model", passed=False, detail=f"the documents in the log allow none: {error}")


def _cannot(name: str, counted: Recounts, record: Mapping[str, Any]) -> Check | None:
    """Say why a version cannot be made again from the log; None where it can."""
    if record["topics"] != counted.options.n_topics:
        made, said = record["topics"], counted.options.n_topics
        detail = f"the model has {made} topics, settings say {said}: verify with --set topics={made}"
        return Check("settings", passed=False, detail=detail)
    if not record["cut"]:
        return Check(name, passed=None, detail="it was made before documents were moved to other partitions")
    found = counted.of(record)
    if found.counts.documents != record["documents"]:
        detail = f"{found.counts.documents} of {record['documents']} documents: {ERASED}"
        return Check(name, passed=None if not found.whole else False, detail=detail)
    return None
