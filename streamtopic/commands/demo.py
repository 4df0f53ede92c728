"""`streamtopic demo`: the whole flow on real text, embedded.

The arguments come first, then the flow, and last the printout of its report.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
import textwrap
import time
import webbrowser
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import command, file_errors, read_corpus, settings_of
from streamtopic.commands.forgotten_person import chosen_person, covering_receipt, describe, with_made_up_person
from streamtopic.commands.looking import heads_table, topics_table, versions_table
from streamtopic.console import doing, duration, instant, number, number_of, printable, progress, say, say_json, show
from streamtopic.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamtopic.client import Deletion
    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.commands.forgotten_person import Person
    from streamtopic.console import Update
    from streamtopic.documents.corpus import Corpus, Document
    from streamtopic.service.app import Service
    from streamtopic.service.first_run import CompilingAhead
    from streamtopic.settings import Settings
    from streamtopic.signed import Release

__all__ = ["register", "run"]

EXAMPLES = 5

# An update and a cold start round differently: models of real corpora differ by 1e-15 at most, and the noise of a
# version is 1e-6. Whatever lies above this bound is not rounding.
SAME = 1e-12


# Retrain over update from which the demo calls it a difference. One run on a busy machine may be off by a third.
_CLEAR = 1.5


class _Amount:
    """How many documents to delete: a number, or a percentage."""

    def __init__(self, text: str) -> None:
        self._percent = text.endswith("%")
        try:
            self._value = float(text.removesuffix("%")) if self._percent else int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{text!r} is neither a number such as 20 nor a percentage such as 1%"
            ) from None
        most = 100 if self._percent else float("inf")
        if not 0 <= self._value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is less than 0 or more than all documents")

    def of(self, documents: int) -> int:
        """Return the number for a corpus of this size. Raises UsageError where nothing of the corpus would be left."""
        count = int(self._value)
        if self._percent:
            # A percentage of a small corpus may be less than one document, and a demo without a deletion shows nothing.
            least = 1 if self._value > 0 else 0
            count = max(int(documents * self._value / 100), least)
        if count >= documents:
            raise UsageError(f"cannot delete {count} of {documents} documents: give --delete a smaller number")
        return count


class _Stages:
    """Times each stage, and tells a person at the terminal as stages pass.

    quiet: print nothing.
    seconds: what each stage took; a stage that comes again is added up.
    """

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
        before = self.seconds.get(key, 0.0)
        self.seconds[key] = round(before + seconds, 4)
        if not self.quiet:
            say(f"  {name:28} {duration(seconds):>8}")


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(
        subparsers, "demo", run, "show the whole flow on real text: learn, delete, unlearn, verify", instance=False
    )
    parser.add_argument(
        "--documents", type=Path, metavar="FILE", help="JSON lines, gzip too (default: installed docstrings)"
    )
    parser.add_argument("--topics", type=int, metavar="R", help="number of topics (default: 20)")
    parser.add_argument(
        "--delete",
        type=_Amount,
        default="0.1%",
        metavar="AMOUNT",
        help="documents to delete first, a number or a percentage (default: 0.1%%); without --keep, more follow "
        "until a retrain is due",
    )
    parser.add_argument(
        "--kafka", action="store_true", help="with a real Kafka broker on this machine in place of a log in files"
    )
    parser.add_argument("--open", action="store_true", help="write the last version's report and open it in a browser")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the instance in this folder, to go on with it")


def run(args: argparse.Namespace) -> int:
    """Run the demo; status 1 if the twin or a signature disagrees."""
    from streamtopic.settings import FILE_NAME, write

    _refuse_keeping(args)
    # Settings that cannot be used are refused now, not after the documents were read.
    _settings(args, None, None)
    stages = _Stages(quiet=args.json)
    corpus = _read(args, stages)
    count = args.delete.of(len(corpus.documents))
    # An instance that stays holds its owner's documents only, without anything that is made up.
    if args.documents is None and args.keep is None:
        corpus = with_made_up_person(corpus)
    with _folder(args.keep) as folder, _broker(args, stages) as servers:
        settings = _settings(args, folder, servers)
        if args.keep is not None:
            write(settings, folder / FILE_NAME)
        report = _flow(settings, corpus, count, stages, kept=args.keep is not None, page=args.open)
    if args.json:
        say_json(report)
    else:
        _print_report(report, args.keep)
    if args.open:
        webbrowser.open(Path(report["page"]).as_uri())
    twin = report["twin"]
    subscriber = report["subscriber"]
    agrees = twin["words_equal"] and twin["max_abs_difference"] <= SAME
    verified = subscriber["received"] == subscriber["verified"] > 0
    proved = report["receipts"]["count"] == report["deleted"]
    covered = report["person"] is None or report["person"]["problem"] is None
    return 0 if agrees and verified and proved and covered else 1


def _refuse_keeping(args: argparse.Namespace) -> None:
    """Raise UsageError where the instance cannot stay, before anything is read or compiled."""
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
    """Load the program and read the documents. On a machine where nothing is compiled yet, compile meanwhile."""
    from streamtopic.service.first_run import CompilingAhead

    with CompilingAhead() as compiling:
        # Importing numpy, scipy and kernels takes a second or more: a stage of its own, so that none is blamed for it.
        with stages.stage("load the program"):
            cold = _compile_ahead(compiling, quiet=args.json)
            import streamtopic.service.app  # noqa: F401  all that the flow needs comes with it
        with stages.stage("read documents"):
            corpus = read_corpus(args)
        if cold:
            with stages.stage("compile, only this once", "parts") as update:
                compiling.wait(update)
    return corpus


def _compile_ahead(compiling: CompilingAhead, *, quiet: bool) -> bool:
    """Start to compile where nothing is compiled yet, and say so; return whether it was started."""
    from streamtopic.service.first_run import cache_folder

    # The compiler itself has to be loaded for an answer, which takes seconds from a cold disk.
    if not quiet:
        doing("looking for machine code of an earlier run")
    folder = cache_folder()
    if not quiet:
        doing("")
    if folder is None:
        return False
    compiling.start()
    if not quiet:
        say("  compiling to machine code: once on this machine, for up to half a minute")
        say(f"  later runs find it in {folder}")
    return True


def _settings(args: argparse.Namespace, folder: Path | None, servers: str | None) -> Settings:
    # A deletion is served at once in the demo; elsewhere it may wait for others.
    return settings_of(args, dir=folder, topics=args.topics, max_forget_lag=0.0, kafka=servers)


@contextmanager
def _broker(args: argparse.Namespace, stages: _Stages) -> Iterator[str | None]:
    """Start a broker where one is asked for; yield its servers."""
    if not args.kafka:
        yield None
        return
    from streamtopic.local import LocalKafka

    broker = LocalKafka()
    with stages.stage("start kafka"):
        broker.start()
    try:
        yield broker.servers
    finally:
        broker.stop()


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="streamtopic-demo-") as folder:
            yield Path(folder)
        return
    with file_errors("make", keep):
        keep.mkdir(parents=True, exist_ok=True)
    yield keep


def _flow(
    settings: Settings, corpus: Corpus, delete: int, stages: _Stages, *, kept: bool, page: bool
) -> dict[str, Any]:
    """Learn a corpus, delete a few documents, compare with a twin, then delete more than the model bears.

    Each version is published, received and verified.

    settings: those of the instance; `dir` is the folder to use.
    delete: number of documents to delete.
    kept: whether the folder stays.
    page: whether to write the report of the last version.
    Returns the object that `demo --json` prints.
    """
    from streamtopic.service.app import Service

    with Service(settings, kept=kept) as service:
        with stages.stage("start redis"):
            service.connection.ping()
        with stages.stage("add documents") as update:
            outcome = service.add(corpus.documents, update)
            refused = {document for document, _ in outcome.refused}
        # The service has not counted refused documents, so its twin must not learn them.
        counted = [document for document in corpus.documents if document.id not in refused]
        corpus = replace(corpus, documents=counted)
        subscriber = _Subscriber(service)
        _settle(service, stages, subscriber)
        # A person leaves together with the first documents, so that one version is without all of them.
        person = None if kept or not delete else chosen_person(counted, delete)
        order = _order(counted, person)
        theirs = 0 if person is None else len(person.documents)
        few = order[: theirs + delete]
        request = None if person is None else _forget_person(service, stages, person)
        steps = [_forget(service, stages, subscriber, few, person)] if few else []
        covered = covering_receipt(service, person, request, steps[0]["version"]) if person and request else None
        with stages.stage("twin", "words"):
            twin = _twin(service, corpus, few)
        # Documents of an instance that stays are their owner's: no more of them go than were asked for.
        needed = delete if kept else _beyond(service, len(few), len(counted))
        gone = order[:needed]
        if len(gone) > len(few):
            rest = gone[len(few) :]
            steps.append(_forget(service, stages, subscriber, rest))
        report = _report(service, corpus, gone)
        shown = _page(service) if page else None
        examples = [document.id for document in gone[theirs : theirs + EXAMPLES]]
        report |= {"examples": examples, "person": covered, "steps": steps, "page": shown}
    seconds = stages.seconds | {"total": stages.total}
    return report | {"twin": twin, "subscriber": subscriber.report(), "seconds": seconds}


def _order(documents: list[Document], person: Person | None) -> list[Document]:
    """Return documents in the order in which they are deleted: those of a person, then all others."""
    theirs = [] if person is None else list(person.documents)
    others = [document for document in documents if person is None or not person.owns(document)]
    # By the hash of their ids: the same on every run, and without a pattern that the order of a file may have.
    return theirs + sorted(others, key=lambda document: hashlib.sha256(document.id.encode()).digest())


def _beyond(service: Service, deleted: int, documents: int) -> int:
    """Return how many documents have to be gone for a retrain: one more than the capacity, if that is possible."""
    newest = service.versions()[-1]
    needed = int(newest["capacity"]) + 1
    # After a retrain nothing remains to show, and a corpus that loses its most part teaches nothing.
    if newest["kind"] != "unlearn" or needed > documents // 2:
        return deleted
    return max(needed, deleted)


def _forget_person(service: Service, stages: _Stages, person: Person) -> Deletion:
    """Request that a person is forgotten; the next version serves the request."""
    with stages.stage("delete documents"):
        return service.delete_subjects([person.subject])[0]


def _forget(
    service: Service, stages: _Stages, subscriber: _Subscriber, gone: list[Document], person: Person | None = None
) -> dict[str, Any]:
    """Delete documents and publish a version without them; return how it was made.

    person: whose documents among them one request deletes already.
    """
    one_by_one = [document.id for document in gone if person is None or not person.owns(document)]
    with stages.stage("delete documents"):
        service.delete(one_by_one)
    seconds = _settle(service, stages, subscriber)
    newest = service.versions()[-1]
    kind = newest["kind"]
    return {
        "documents": len(gone),
        "version": newest["version"],
        "kind": kind,
        "reason": newest["reason"],
        "seconds": seconds[kind],
    }


def _page(service: Service) -> str:
    """Write the report of the newest version to a file that stays, and return its path."""
    from streamtopic.pages.version_page import version_facts, version_page

    facts = version_facts(service, service.release(None).version)
    file, path = tempfile.mkstemp(prefix="streamtopic-demo-", suffix=".html")
    with os.fdopen(file, "w", encoding="utf-8") as out:
        out.write(version_page(facts))
    return path


class _Subscriber:
    """Another service, which takes each version as it appears."""

    def __init__(self, service: Service) -> None:
        self._subscriber = service.subscriber()
        self._verified = 0

    def take(self) -> None:
        """Receive the versions that are there; only those that verify are given out."""
        while self._subscriber.poll() is not None:
            self._verified += 1

    def report(self) -> dict[str, int]:
        return {"received": self._verified + self._subscriber.refused, "verified": self._verified}


def _settle(service: Service, stages: _Stages, subscriber: _Subscriber) -> Mapping[str, float]:
    """Publish the versions that are due, and receive them; return the seconds of each stage."""
    from streamtopic.service.app import silent

    with progress("count", "documents", quiet=stages.quiet) as update:
        settled = service.settle(update, announce=silent if stages.quiet else doing)
    if not settled.versions:
        raise UsageError(f"no version could be made: {settled.decision}")
    for name, seconds in settled.seconds.items():
        stages.add(name, seconds)
    # Now and not at the end: the second version withdraws the first, which would then not be given out any more.
    with stages.stage("receive and verify", "versions"):
        subscriber.take()
    return settled.seconds


def _twin(service: Service, corpus: Corpus, gone: list[Document]) -> dict[str, Any]:
    """Compare the service's model before noise with one that is learned cold from the remaining documents alone."""
    from streamtopic.paper.algorithm1 import remaining, unlearn_base
    from streamtopic.service.assembly import learner_options
    from streamtopic.service.verify.recount import compare, recount
    from streamtopic.topics.learner import learn
    from streamtopic.words.text import passages

    kept = service.model_before_noise()
    if kept is None:
        raise CheckFailed(
            "the service has published a version, but Redis holds no model to compare with the twin: run the demo again"
        )
    options = learner_options(service.settings)
    missing = {document.id for document in gone}
    left = (document for document in corpus.documents if document.id not in missing)
    rest = (tuple(passages(document.text)) for document in left)
    twin = learn(recount(rest, options.weighting), options)
    # Under the theorem the reference run is Algorithm 1 with an empty forget set.
    theorem = service.settings.guarantee == "theorem"
    difference = compare(kept, unlearn_base(remaining(twin)) if theorem else twin)
    return {"max_abs_difference": difference.max_abs_difference, "words_equal": difference.words_equal}


def _report(service: Service, corpus: Corpus, gone: list[Document]) -> dict[str, Any]:
    from streamtopic.service.publish.published import quality_of, receipt_fields, topics_of

    release = service.release(None)
    receipts = service.receipts()
    example = receipt_fields(receipts[0]) if receipts else None
    # With `publish = "tasks"` the topics are withheld, and a release has heads only.
    found = topics_of(release, 10) if release.payload.A is not None else []
    heads_of_all = _heads_on(release, gone)
    return {
        "source": corpus.name,
        "documents": len(corpus.documents),
        "skipped_lines": len(corpus.problems),
        "deleted": len(gone),
        "vocabulary": len(release.words),
        "topics": found,
        "heads": heads_of_all,
        "versions": service.versions(),
        "receipts": {"count": len(receipts), "example": example},
        "quality": quality_of(release),
    }


def _heads_on(release: Release, gone: list[Document]) -> dict[str, Any]:
    """Return each head's classes with their words, and how many forgotten documents it classes right.

    A head has never seen these documents, so this is a fair test of it.
    """
    from streamtopic.service.publish.published import heads_of

    found = heads_of(release, 5)
    for task, head in found.items():
        unseen = [document for document in gone if task in document.labels]
        classes = release.classify([document.text for document in unseen], task)
        pairs = zip(classes, unseen, strict=True)
        right = sum(name == document.labels[task] for name, document in pairs)
        head |= {"unseen": len(unseen), "right": right}
    return found


def _print_report(report: Mapping[str, Any], keep: Path | None) -> None:
    """Print topics, what was forgotten, a receipt, the checks, versions, times and what to try next."""
    newest = report["versions"][-1]
    topics = topics_table(report["topics"]) if report["topics"] else ""
    example = report["receipts"]["example"]
    sections = {
        "Topics": topics,
        "Heads": _heads(report["heads"], newest["unfitted"]),
        "Forgotten": _forgotten(report),
        "Receipt of one deletion": _receipt(example),
        "Checks": _checks(report),
        "Versions": versions_table(report["versions"]),
        "Time": _times(report["seconds"]),
        "Try next": _next(keep, newest["version"]),
    }
    for title, text in sections.items():
        if text:
            underline = "=" * len(title)
            show(f"\n{title}\n{underline}\n{text}")


def _times(seconds: Mapping[str, float]) -> str:
    parts = [f"{stage.replace('_', ' ')} {duration(spent)}" for stage, spent in seconds.items()]
    return textwrap.fill(", ".join(parts), 110)


def _forgotten(report: Mapping[str, Any]) -> str:
    if not report["deleted"]:
        return ""
    examples = ", ".join(map(printable, report["examples"]))
    receipts = number_of(report["receipts"]["count"], "receipt")
    lines = [
        f"{report['deleted']} of {report['documents']} documents, among them {examples}",
        f"{receipts}; vocabulary {report['vocabulary']} words",
    ]
    if report["person"] is not None:
        lines.append(describe(report["person"]))
    for step in report["steps"]:
        spent = duration(step["seconds"])
        made = f"version {step['version']}: {step['kind']} in {spent}"
        lines.append(f"{made} without {step['documents']} more, because {step['reason']}")
    seconds = {step["kind"]: step["seconds"] for step in report["steps"]}
    if {"unlearn", "retrain"} <= seconds.keys():
        lines.append(_compared(seconds["unlearn"], seconds["retrain"]))
    return "\n".join(lines)


def _compared(update: float, retrain: float) -> str:
    both = f"the update took {duration(update)}, the retrain {duration(retrain)}"
    if retrain >= _CLEAR * update:
        return f"{both}: {retrain / update:.1f} times as long"
    return (
        f"{both}: no clear difference, since few documents are learned quickly, and a first run compiles parts of the "
        "update; docs/benchmarks.md has more documents"
    )


def _heads(heads: dict[str, dict[str, Any]], unfitted: Mapping[str, str]) -> str:
    lines = [heads_table(heads), ""] if heads else []
    for task, head in heads.items():
        lines.append(
            f"{task}: fitted on {head['documents']} documents; of {head['unseen']} forgotten ones, which it has never "
            f"seen, {head['right']} are classed right"
        )
    lines += [f"{task}: no head, because {reason}" for task, reason in unfitted.items()]
    return "\n".join(lines)


def _receipt(receipt: Mapping[str, Any] | None) -> str:
    if not receipt:
        return ""
    times = {name: instant(receipt[name]) for name in ("received", "applied")}
    width = max(map(len, receipt))
    facts = {**receipt, **times}.items()
    lines = [f"{name.replace('_', ' '):{width}}  {_short(value)}" for name, value in facts]
    return "\n".join(lines)


def _short(value: object) -> str:
    if isinstance(value, float):
        return number(value)
    text = printable(str(value))
    return text if len(text) <= 80 else f"{text[:77]}..."


def _checks(report: Mapping[str, Any]) -> str:
    twin = report["twin"]
    subscriber = report["subscriber"]
    quality = report["quality"]
    words = "the same words" if twin["words_equal"] else "OTHER WORDS"
    difference = number(twin["max_abs_difference"])
    received = number_of(subscriber["received"], "version")
    receipts = report["receipts"]["count"]
    deletions = number_of(report["deleted"], "deletion")
    npmi, diversity = number(quality["npmi"]), number(quality["diversity"])
    lines = [
        f"twin        a service that never saw the deleted documents learns {words};",
        f"            largest difference of its model before noise: {difference}",
        f"subscriber  {received} received, {subscriber['verified']} verified",
        f"receipts    {receipts} verified, for {deletions}",
        f"quality     NPMI {npmi}, diversity {diversity}",
    ]
    return "\n".join(lines)


def _next(keep: Path | None, newest: int) -> str:
    if keep is None:
        return (
            "streamtopic demo --documents FILE.jsonl --keep ./news   your own documents, kept to go on with\n"
            "streamtopic demo --json                                 the same for machines"
        )
    # Only the newest version is certain to stand: the demo's own deletion has withdrawn the one before.
    lines = [
        f"streamtopic status --dir {keep}",
        f"streamtopic topics --dir {keep} --top 5",
        f"streamtopic add MORE.jsonl --dir {keep}",
        f"streamtopic delete ID --dir {keep}",
        f"streamtopic verify --dir {keep}",
        f"streamtopic report --verify --to report.html --dir {keep}",
        f"streamtopic export {newest} --to model.npz --dir {keep}",
    ]
    return "\n".join(lines)
