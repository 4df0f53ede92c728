"""Checking an instance from the log up: recount every document, learn again, compare."""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streamtopic.errors import CannotLearn, InvalidEvent
from streamtopic.events import Add, Delete, decode_record
from streamtopic.service.assembly import learner_options
from streamtopic.service.recount import recount
from streamtopic.topics.learner import learn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamtopic.counts import Counts
    from streamtopic.events import Passages
    from streamtopic.service.runner import Service
    from streamtopic.streams import EventLog
    from streamtopic.topics.fit import TopicFit

__all__ = ["Check", "Verification", "documents_in_log", "verify_instance"]

AGREES = 1e-12


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison and what it found."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Verification:
    """All checks of an instance."""

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """Return what `verify --json` prints."""
        return {"passed": self.passed, "checks": [asdict(check) for check in self.checks]}


def documents_in_log(
    log: EventLog, topic: str, offsets: Mapping[int, int], progress: Callable[[int, int | None], None]
) -> dict[tuple[int, str], Passages]:
    """Return the documents that the log leaves alive before these offsets, by partition and id.

    Reads with the events' own codec, but with none of the code that keeps the counts.
    """
    total = sum(offsets.values())
    alive: dict[tuple[int, str], Passages] = {}
    done = 0
    for partition, end in offsets.items():
        offset = log.begin(topic, partition)
        while offset < end:
            records = log.read(topic, partition, offset)
            if not records:
                break
            for record in records:
                if record.offset >= end:
                    break
                try:
                    event = decode_record(record)
                except InvalidEvent:
                    continue
                if isinstance(event, Add):
                    alive[partition, event.document] = event.passages
                elif isinstance(event, Delete):
                    alive.pop((partition, event.document), None)
            offset = records[-1].next_offset
            done += len(records)
            progress(min(done, total), total)
    return alive


def verify_instance(service: Service, update: Callable[[int, int | None], None]) -> Verification:
    """Compare counts, base model and newest version of an instance with what its log alone gives."""
    counted = _Recounts(service, update)
    return Verification((_counts(service, counted), _base_model(service, counted), _newest(service, counted)))


class _Recounts:
    """Counts of the documents that the log leaves alive at a cut, each made once."""

    def __init__(self, service: Service, update: Callable[[int, int | None], None]) -> None:
        self._service = service
        self._update = update
        self._made: dict[tuple[tuple[int, int], ...], Counts] = {}
        self.options = learner_options(service.settings)

    def at(self, cut: Mapping[int, int]) -> Counts:
        key = tuple(sorted(cut.items()))
        if key not in self._made:
            service = self._service
            alive = documents_in_log(service.log, service.names.documents, cut, self._update)
            self._made[key] = recount(alive.values(), self.options.weighting)
        return self._made[key]


def _counts(service: Service, counted: _Recounts) -> Check:
    """Words, document frequencies, tokens and every pair in Redis, bit for bit."""
    name = "counts"
    snapshot = service.reader.snapshot()
    fresh = counted.at(snapshot.offsets)
    if list(snapshot.words) != list(fresh.words):
        differing = len(set(snapshot.words) ^ set(fresh.words))
        return Check(name, passed=False, detail=f"{differing} words are only in one of Redis and a recount of the log")
    kept = snapshot.restrict(np.arange(len(fresh.words), dtype=np.intp))
    if kept.digest(fresh.words) != fresh.cooccurrence.digest(fresh.words):
        return Check(name, passed=False, detail="the counts in Redis differ from a recount of the log")
    detail = f"{fresh.documents} documents, {len(fresh.words)} words, {fresh.cooccurrence.pairs} pairs, bit for bit"
    return Check(name, passed=True, detail=detail)


def _base_model(service: Service, counted: _Recounts) -> Check:
    """The base model before noise, as kept, against one learned cold from the documents that it was trained on."""
    name = "base model"
    stored = service.state.base()
    if stored is None:
        return Check(name, passed=True, detail="there is none yet")
    record = dict(service.state.releases())[stored.version]
    fit = _learned(counted, record)
    if isinstance(fit, Check):
        return fit
    with np.load(io.BytesIO(stored.blob)) as arrays:
        words, A = arrays["words"].tolist(), arrays["A"]
    if words != list(fit.words) or A.shape != fit.A.shape:
        return Check(name, passed=False, detail="a model learned from scratch has other words or topics")
    gap = float(np.abs(A - fit.A).max())
    detail = f"version {stored.version}: largest difference {gap:.3g} from one learned from scratch"
    return Check(name, gap <= AGREES, detail)


def _newest(service: Service, counted: _Recounts) -> Check:
    """The newest version as published, against one learned cold from the documents at its cut, with its noise."""
    name = "newest version"
    records = service.state.releases(1)
    if not records:
        return Check(name, passed=True, detail="none has been published yet")
    version, record = records[0]
    fit = _learned(counted, record)
    if isinstance(fit, Check):
        return fit
    release = service.release(version)
    plan = service.draw_again(fit, counted.at(_cut(record)), version)
    if plan.payload.words != release.words or plan.payload.A is None or plan.payload.A.shape != release.A.shape:
        return Check(name, passed=False, detail="a model learned from scratch has other words or topics")
    gap = float(np.abs(plan.payload.A - release.A).max())
    # Rounding may put a number on the next point of the noise grid; float32 adds its own.
    bound = 2 * plan.noise.grid + 2.0**-23 * float(release.A.max())
    detail = f"version {version}, signed, noise included: largest difference {gap:.3g} from one learned from scratch"
    return Check(name, gap <= bound, detail)


def _learned(counted: _Recounts, record: Mapping[str, Any]) -> TopicFit | Check:
    if record["topics"] != counted.options.n_topics:
        made, said = record["topics"], counted.options.n_topics
        detail = f"the model has {made} topics, settings say {said}: verify with --set topics={made}"
        return Check("settings", passed=False, detail=detail)
    try:
        return learn(counted.at(_cut(record)), counted.options)
    except CannotLearn as error:
        return Check("model", passed=False, detail=f"the documents in the log allow none: {error}")


def _cut(record: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in record["cut"].items()}
