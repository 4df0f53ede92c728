"""The demo: the whole flow once, and what it showed, as one JSON-ready report."""

from __future__ import annotations

import hashlib
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamtopic.console import doing, duration, progress, say
from streamtopic.errors import CheckFailed, UsageError
from streamtopic.paper.algorithm1 import remaining, unlearn_base
from streamtopic.service.app import Service, silent
from streamtopic.service.assembly import learner_options
from streamtopic.service.published import heads_of, quality_of, receipt_fields, topics_of
from streamtopic.service.verify.recount import compare, recount
from streamtopic.text import passages
from streamtopic.topics.learner import learn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamtopic.console import Update
    from streamtopic.corpus import Corpus, Document
    from streamtopic.settings import Settings
    from streamtopic.signed import Release

__all__ = ["Stages", "chosen", "run_demo"]

EXAMPLES = 5


def chosen(documents: list[Document], count: int) -> list[Document]:
    """Return `count` documents to delete, picked by the hash of their ids: the same on every run, without a pattern."""
    return sorted(documents, key=lambda document: hashlib.sha256(document.id.encode()).digest())[:count]


def run_demo(settings: Settings, corpus: Corpus, delete: int, stages: Stages, *, kept: bool) -> dict[str, Any]:
    """Learn a corpus, delete documents, publish both versions, receive and verify them, compare with a twin.

    settings.dir: a folder to use; kept: it stays. Returns the object that `demo --json` prints.
    """
    with Service(settings, kept=kept) as service:
        with stages.stage("start redis"):
            service.connection.ping()
        with stages.stage("add documents") as update:
            refused = {document for document, _ in service.add(corpus.documents, update).refused}
        corpus = replace(corpus, documents=[d for d in corpus.documents if d.id not in refused])
        subscriber = _Subscriber(service)
        _settle(service, stages, subscriber)
        if gone := chosen(corpus.documents, delete):
            with stages.stage("delete documents"):
                service.delete([document.id for document in gone])
            _settle(service, stages, subscriber)
        with stages.stage("twin", "words"):
            twin = _twin(service, corpus, gone)
        report = _report(service, corpus, gone)
    return report | {
        "twin": twin,
        "subscriber": subscriber.report(),
        "seconds": stages.seconds | {"total": stages.total},
    }


class _Subscriber:
    """Another service, which takes each version as it appears."""

    def __init__(self, service: Service) -> None:
        self._subscriber = service.subscriber()
        self._verified = 0

    def take(self) -> None:
        """Receive what is there; only what verifies is given out."""
        while self._subscriber.poll() is not None:
            self._verified += 1

    def report(self) -> dict[str, int]:
        return {"received": self._verified + self._subscriber.refused, "verified": self._verified}


def _settle(service: Service, stages: Stages, subscriber: _Subscriber) -> None:
    with progress("count", "documents", quiet=stages.quiet) as update:
        settled = service.settle(update, announce=silent if stages.quiet else doing)
    if not settled.versions:
        raise UsageError(f"no version could be made: {settled.decision}")
    for name, seconds in settled.seconds.items():
        stages.add(name, seconds)
    with stages.stage("receive and verify", "versions"):
        subscriber.take()


def _twin(service: Service, corpus: Corpus, gone: list[Document]) -> dict[str, Any]:
    """Compare the service's model before noise with one learned from the remaining documents alone, cold."""
    missing = {document.id for document in gone}
    options = learner_options(service.settings)
    rest = (tuple(passages(document.text)) for document in corpus.documents if document.id not in missing)
    kept = service.model_before_noise()
    if kept is None:
        raise CheckFailed("the service has published a version but holds no model to compare with the twin")
    twin = learn(recount(rest, options.weighting), options)
    # Under the theorem the reference run is Algorithm 1 with an empty forget set.
    theorem = service.settings.guarantee == "theorem"
    difference = compare(kept, unlearn_base(remaining(twin)) if theorem else twin)
    return {"max_abs_difference": difference.max_abs_difference, "words_equal": difference.words_equal}


def _report(service: Service, corpus: Corpus, gone: list[Document]) -> dict[str, Any]:
    release = service.release(None)
    receipts = service.receipts()
    return {
        "source": corpus.name,
        "documents": len(corpus.documents),
        "skipped_lines": len(corpus.problems),
        "deleted": len(gone),
        "examples": [document.id for document in gone[:EXAMPLES]],
        "vocabulary": len(release.words),
        "topics": topics_of(release, 10) if release.payload.A is not None else [],
        "heads": _heads(release, gone),
        "versions": service.versions(),
        "receipts": {"count": len(receipts), "example": receipt_fields(receipts[0]) if receipts else None},
        "quality": quality_of(release),
    }


def _heads(release: Release, gone: list[Document]) -> dict[str, Any]:
    """Say what each head goes by, and how well it does on forgotten documents: it has never seen them."""
    found = heads_of(release, 5)
    for task, head in found.items():
        unseen = [document for document in gone if task in document.labels]
        classes = release.classify([document.text for document in unseen], task)
        right = sum(name == document.labels[task] for name, document in zip(classes, unseen, strict=True))
        head |= {"unseen": len(unseen), "right": right}
    return found


class Stages:
    """Times each stage, and tells a person at the terminal as they pass."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self.seconds: dict[str, float] = {}
        self._start = time.perf_counter()

    @property
    def total(self) -> float:
        """Seconds since the first stage began."""
        return round(time.perf_counter() - self._start, 4)

    @contextmanager
    def stage(self, name: str, unit: str = "documents") -> Iterator[Update]:
        """Time a stage under this name; yields `update(done, total)` for its progress bar."""
        start = time.perf_counter()
        with progress(name, unit, quiet=self.quiet) as update:
            yield update
        self.add(name, time.perf_counter() - start)

    def add(self, name: str, seconds: float) -> None:
        """Record a stage that was timed elsewhere."""
        key = name.replace(" ", "_")
        self.seconds[key] = round(self.seconds.get(key, 0.0) + seconds, 4)
        if not self.quiet:
            say(f"  {name:28} {duration(seconds):>8}")
