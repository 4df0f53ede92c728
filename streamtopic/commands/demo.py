"""`streamtopic demo`: the whole flow on real text, embedded. Arguments, then the flow, then the printout."""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import textwrap
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import (
    answer,
    command,
    file_errors,
    option,
    read_corpus,
    settings_of,
)
from streamtopic.commands.looking import heads_table, topics_table, versions_table
from streamtopic.commands.receipts import readable
from streamtopic.console import aligned, doing, duration, plain, progress, say, table_of
from streamtopic.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamtopic.client import ModelSubscriber
    from streamtopic.console import Update
    from streamtopic.documents.corpus import Corpus, Document
    from streamtopic.service.leading import Embedded
    from streamtopic.service.opened import Opened
    from streamtopic.settings import Settings
    from streamtopic.signed import Release

__all__ = ["COMMANDS"]

_CANDIDATES = 300
# Fewer than elsewhere: installed docstrings are some tens of thousands.
_PRIVATE_TOPICS = 10
_SHOWN_OF_STEPS = ("documents", "version", "kind", "reason", "seconds")

# An update and a cold start round differently: models of real corpora differ by 1e-15 at most, and the noise of a
# version is 1e-6. Whatever lies above this bound is not rounding.
SAME = 1e-12


class _Stages:
    """Times each stage, and tells a person at the terminal as stages pass.

    quiet: print nothing.
    seconds: what each stage took; a stage that comes again is added up.
    start: when the first stage began.
    received: the versions that the subscriber was given, each verified.
    """

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self.seconds: dict[str, float] = {}
        self.start = time.perf_counter()
        self.received: list[Release] = []
        self._now = ("", self.start)
        self._passed: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str, unit: str = "documents") -> Iterator[Update]:
        """Time a stage under this name; yields `update(done, total)` for its progress bar."""
        start = time.perf_counter()
        with progress(name, unit, quiet=self.quiet) as update:
            yield update
        self._add(name, time.perf_counter() - start)

    def doing(self, what: str) -> None:
        """Begin the next of several stages that may come again, and name it at a terminal; "" records all of them."""
        name, start = self._now
        self._now = what, time.perf_counter()
        if name:
            self._passed[name] = self._passed.get(name, 0.0) + self._now[1] - start
        if not self.quiet:
            doing(what)
        if not what:
            for stage, seconds in self._passed.items():
                self._add(stage, seconds)
            self._passed = {}

    def _add(self, name: str, seconds: float) -> None:
        key = name.replace(" ", "_")
        before = self.seconds.get(key, 0.0)
        self.seconds[key] = round(before + seconds, 4)
        if not self.quiet:
            say(f"  {name:28} {duration(seconds):>8}")


@command(
    option("--documents FILE", "JSON lines, gzip too (default: installed docstrings)"),
    option("--topics R", "number of topics (default: 20)", type=int),
    option(
        "--delete N",
        "documents to delete first (default: one in a thousand); without --keep, more follow up to a retrain",
    ),
    option("--kafka", "with a real Kafka broker on this machine in place of a log in files"),
    option("--private", "in private mode, with 500 words and 4 versions a period unless the settings say otherwise"),
    option("--keep DIR", "keep the instance in this folder, to go on with it"),
    instance=False,
)
def _demo(args: argparse.Namespace) -> int:
    """Show the whole flow on real text: learn, delete, unlearn, verify.

    Status 1 if the twin, a check or a signature disagrees.
    """
    from streamtopic.settings import FILE_NAME, write

    _refuse_keeping(args)
    # Settings that cannot be used are refused now, not after the documents were read. A deletion is served at once in
    # the demo; elsewhere it may wait for others.
    chosen = {"topics": args.topics, "max_forget_lag": 0.0}
    if args.private:
        chosen |= {"topics": args.topics or _PRIVATE_TOPICS, "guarantee": "private"}
    given = settings_of(args, **chosen)
    private = given.guarantee == "private"
    stages = _Stages(quiet=args.json)
    corpus = _read(args, stages)
    # In private mode few documents need few words and versions. Whoever set these has decided.
    if private and "private" not in given.model_fields_set:
        chosen |= {"private.size": 500, "private.versions": 4}
    documents = len(corpus.documents)
    count = max(documents // 1000, 1) if args.delete is None else args.delete
    if private:
        # The attack is on one document.
        count = 1
    if count >= documents:
        raise UsageError(f"cannot delete {count} of {documents} documents: give --delete a smaller number")
    with ExitStack() as stack:
        folder = args.keep
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamtopic-demo-")))
        with file_errors("make", folder):
            folder.mkdir(parents=True, exist_ok=True)
        servers = None
        if args.kafka:
            from streamtopic.local import LocalKafka

            with stages.stage("start kafka"):
                servers = stack.enter_context(LocalKafka()).servers
        settings = settings_of(args, dir=folder, kafka=servers, **chosen)
        if args.keep is not None:
            write(settings, folder / FILE_NAME)
        report = _flow(settings, corpus, count, stages, kept=args.keep is not None)
    sections = _sections(report, args.keep).items()
    blocks = [f"\n{title}\n{'=' * len(title)}\n{text}" for title, text in sections if text]
    answer(args, report, block="\n".join(blocks))
    return 0 if report["passed"] else 1


def _refuse_keeping(args: argparse.Namespace) -> None:
    """Raise UsageError if the instance cannot stay, before anything is read."""
    if args.keep is None:
        return
    if args.kafka:
        raise UsageError("--keep keeps a log in files, and the broker of --kafka ends with the demo: give one of them")
    # The demo compares its model with a twin of this corpus alone: documents from before would make them differ.
    if args.keep.exists() and (not args.keep.is_dir() or any(args.keep.iterdir())):
        raise UsageError(
            f"{args.keep} is not empty: give --keep a new folder, or go on with `streamtopic add --dir {args.keep}`"
        )


def _read(args: argparse.Namespace, stages: _Stages) -> Corpus:
    """Load the program and read the documents."""
    # Importing numpy, scipy and kernels takes a second or more: a stage of its own, so that none is blamed for it.
    with stages.stage("load the program"):
        import streamtopic.service.leading  # noqa: F401  all that the flow needs comes with it
    with stages.stage("read documents"):
        return read_corpus(args)


def _flow(settings: Settings, corpus: Corpus, delete: int, stages: _Stages, *, kept: bool) -> dict[str, Any]:
    """Learn a corpus, delete a few documents, check what was published, then delete more than the model bears.

    Each version is published, received and verified. The model without the documents is compared with a twin that never
    saw them; in private mode, two versions are subtracted to find the deleted document, and nothing more is deleted.

    settings: those of the instance; `dir` is the folder to use.
    delete: number of documents to delete.
    kept: whether the folder stays.
    Returns the object that `demo --json` prints.
    """
    from streamtopic.client import ModelSubscriber
    from streamtopic.compiled import compiling_is_said
    from streamtopic.service.leading import embedded
    from streamtopic.service.opened import opened
    from streamtopic.service.sending import add

    with compiling_is_said(), opened(settings) as service:
        with stages.stage("start redis"):
            service.connection.ping()
        with stages.stage("add documents") as update:
            refused = {document for document, _ in add(service, corpus.documents, update)}
        # The service has not counted refused documents, so its twin must not learn them.
        corpus = replace(corpus, documents=[one for one in corpus.documents if one.id not in refused])
        # By the hash of their ids: the same on every run, and without a pattern that the order of a file may have.
        order = sorted(corpus.documents, key=lambda document: hashlib.sha256(document.id.encode()).digest())
        subscriber = ModelSubscriber(service.log, model=settings.model, public_key=service.keys, idle_seconds=0)
        with embedded(service) as work:
            _settle(work, stages, subscriber)
            steps = [_forget(service, work, stages, subscriber, order[:delete])] if delete else []
            gone = order[:delete]
            if settings.guarantee == "private":
                checks = _attack(service, stages, stages.received[0], order)
            else:
                with stages.stage("twin", "words"):
                    checks = {"twin": _twin(work, settings, corpus, gone)}
                # Documents of an instance that stays are their owner's: no more of them go than were asked for.
                gone = order[: delete if kept else _beyond(service, delete, len(order))]
                if len(gone) > delete:
                    steps.append(_forget(service, work, stages, subscriber, gone[delete:]))
            report = _report(service, corpus, gone)
    verified = len(stages.received)
    received = {"received": verified + subscriber.refused, "verified": verified}
    seconds = stages.seconds | {"total": round(time.perf_counter() - stages.start, 4)}
    report |= {"steps": steps, **checks, "subscriber": received, "seconds": seconds}
    return report | {"passed": _passed(report)}


def _passed(report: Mapping[str, Any]) -> bool:
    """Return whether every version was verified, every deletion has its receipt, and the checks found nothing."""
    received, twin = report["subscriber"], report.get("twin")
    verified = received["received"] == received["verified"] > 0
    proved = report["receipts"]["count"] == report["deleted"]
    if twin is not None:
        agrees = twin["words_equal"] and twin["max_abs_difference"] <= SAME
    else:
        agrees = report["verify"]["failed"] == 0
    return bool(agrees and verified and proved)


def _forget(
    service: Opened, work: Embedded, stages: _Stages, subscriber: ModelSubscriber, gone: list[Document]
) -> dict[str, Any]:
    """Delete documents and publish a version without them; return how it was made."""
    from streamtopic.service.inspection.facts import versions_of
    from streamtopic.service.sending import delete

    with stages.stage("delete documents"):
        delete(service, [document.id for document in gone])
    _settle(work, stages, subscriber)
    newest = versions_of(service.state, 1)[-1]
    made = {name: newest[name] for name in ("version", "kind", "reason", "seconds")}
    return {"documents": len(gone), **made}


def _settle(work: Embedded, stages: _Stages, subscriber: ModelSubscriber) -> None:
    """Publish the versions that are due, and receive them as another service does."""
    with progress("count", "documents", quiet=stages.quiet) as update:
        settled = work.settle(update, announce=stages.doing)
    if not settled.versions:
        raise UsageError(f"no version could be made: {settled.decision}")
    # Now and not at the end: the second version withdraws the first, which would then not be given out any more.
    with stages.stage("receive and verify", "versions"):
        while (release := subscriber.poll()) is not None:
            stages.received.append(release)


def _beyond(service: Opened, deleted: int, documents: int) -> int:
    """Return how many documents have to be gone for a retrain: one more than the capacity, if that is possible."""
    from streamtopic.service.inspection.facts import versions_of

    newest = versions_of(service.state, 1)[-1]
    needed = int(newest["capacity"]) + 1
    # After a retrain nothing remains to show, and a corpus that loses its most part teaches nothing.
    if newest["kind"] != "unlearn" or needed > documents // 2:
        return deleted
    return max(needed, deleted)


def _attack(service: Opened, stages: _Stages, before: Release, order: list[Document]) -> dict[str, Any]:
    """Subtract the version before a deletion from the one after it to find the document, and verify everything.

    order: documents, the deleted one first.
    """
    from streamtopic.service.assembly import modeller_of, reader_of, release_of
    from streamtopic.service.sending import silent
    from streamtopic.service.verify import verify_instance

    with stages.stage("attack"):
        rank = _rank(before, release_of(service, None), order[:_CANDIDATES])
    with stages.stage("verify"):
        findings = verify_instance(service, reader_of(service), modeller_of(service), silent)
    failed = sum(one.passed is False for one in findings)
    return {
        "attack": {"rank": rank, "candidates": len(order[:_CANDIDATES])},
        "verify": {"checks": len(findings), "failed": failed},
    }


def _rank(before: Release, after: Release, candidates: list[Document]) -> int:
    """Return the place of the first candidate among all, by what two versions tell of a deletion between them."""
    from streamtopic.audit.subtraction import fall, probabilities, score

    held = probabilities(before.words, before.A, before.shares)
    fell = fall(held, probabilities(after.words, after.A, after.shares))
    scores = []
    for document in candidates:
        counts = Counter[str]()
        for _, counted in document.passages:
            counts += counted
        total = max(counts.total(), 1)
        scores.append(score({word: count / total for word, count in counts.items()}, fell, held))
    return 1 + sum(other > scores[0] for other in scores)


def _twin(work: Embedded, settings: Settings, corpus: Corpus, gone: list[Document]) -> dict[str, Any]:
    """Compare the service's model before noise with one that is learned cold from the remaining documents alone."""
    from streamtopic.audit.subtraction import difference
    from streamtopic.paper.algorithm1 import remaining, unlearn_base
    from streamtopic.service.assembly import learner_options
    from streamtopic.service.verify.recount import recount
    from streamtopic.topics.learner import learn

    kept = work.leader.scheduler.modeller.last
    if kept is None:
        raise CheckFailed(
            "the service has published a version, but Redis holds no model to compare with the twin: run the demo again"
        )
    options = learner_options(settings)
    missing = {document.id for document in gone}
    left = (document for document in corpus.documents if document.id not in missing)
    rest = (document.passages for document in left)
    twin = learn(recount(rest, options.weighting), options)
    # Under the theorem the reference run is Algorithm 1 with an empty forget set.
    theorem = settings.guarantee == "theorem"
    reference = unlearn_base(remaining(twin)) if theorem else twin
    largest = float(abs(difference(kept, reference)).max())
    return {"max_abs_difference": largest, "words_equal": kept.words == reference.words}


def _report(service: Opened, corpus: Corpus, gone: list[Document]) -> dict[str, Any]:
    from streamtopic.client import Receipts
    from streamtopic.service.assembly import release_of
    from streamtopic.service.inspection.facts import heads_of, receipt_fields, topics_of, versions_of

    release = release_of(service, None)
    receipts = list(Receipts(service.log, model=service.settings.model, public_key=service.keys))
    example = receipt_fields(receipts[0]) if receipts else None
    # With `publish = "tasks"` the topics are withheld, and a release has heads only.
    found = topics_of(release, 10) if release.payload.A is not None else []
    return {
        "source": corpus.name,
        "documents": len(corpus.documents),
        "skipped_lines": len(corpus.problems),
        "deleted": len(gone),
        "vocabulary": len(release.words),
        "topics": found,
        "heads": heads_of(release, 5),
        "guarantee": release.guarantee,
        "versions": versions_of(service.state),
        "receipts": {"count": len(receipts), "example": example},
        "quality": {name: release.quality.get(name) for name in ("npmi", "diversity")},
    }


def _sections(report: Mapping[str, Any], keep: Path | None) -> dict[str, str]:
    """Return topics, what was forgotten, a receipt, the checks, versions, times and what to try next, by title.

    In private mode there are fewer, so that all fits on one screen.
    """
    topics = topics_table(report["topics"]) if report["topics"] else ""
    told = ("documents", "deleted", "twin", "attack", "verify", "subscriber", "quality")
    checks = {name: report[name] for name in told if name in report} | {"receipts": report["receipts"]["count"]}
    shown = {"Topics": topics, "Checks": "\n".join(aligned(checks))}
    if "attack" in report:
        return shown | {"Guarantee": textwrap.fill(report["guarantee"], 110)}
    newest = report["versions"][-1]
    example = report["receipts"]["example"]
    heads = [heads_table(report["heads"])] if report["heads"] else []
    heads += [f"{task}: no head, because {reason}" for task, reason in newest["unfitted"].items()]
    return shown | {
        "Heads": "\n".join(heads),
        "Forgotten": table_of(report["steps"], *_SHOWN_OF_STEPS) if report["steps"] else "",
        "Receipt of one deletion": "\n".join(aligned(readable(example))) if example else "",
        "Versions": versions_table(report["versions"]),
        "Seconds": textwrap.fill(plain(report["seconds"]), 110),
        "Try next": _next(keep, newest["version"]),
    }


def _next(keep: Path | None, newest: int) -> str:
    if keep is None:
        return "streamtopic demo --documents FILE.jsonl --keep ./news   your own documents, kept to go on with"
    # Only the newest version is certain to stand: the demo's own deletion has withdrawn the one before.
    commands = (
        "status",
        "topics --top 5",
        "add MORE.jsonl",
        "delete ID",
        "verify",
        "export --verify --to report.html",
        f"export {newest} --to model",
    )
    return "\n".join(f"streamtopic {command} --dir {keep}" for command in commands)


COMMANDS = (_demo,)
