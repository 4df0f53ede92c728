"""Commands that look at an instance: its state, versions, topics, refused records and problems."""

from __future__ import annotations

import argparse
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from streamtopic.commands.checking import finding_lines
from streamtopic.commands.common_arguments import (
    answer,
    command,
    instance_settings,
    open_instance,
    option,
    read_corpus,
    settings_of,
    uses_instance,
    whole_number,
)
from streamtopic.console import aligned, instant, plain, progress, say, table, table_of
from streamtopic.errors import StreamtopicError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamtopic.counts import CountSource, DocumentBatch
    from streamtopic.service.ingest.rejections import Rejection
    from streamtopic.service.opened import Opened
    from streamtopic.service.verify import Finding
    from streamtopic.settings import Settings
    from streamtopic.state import DocumentCounts
    from streamtopic.topics.learner_options import LearnerOptions

__all__ = ["COMMANDS", "heads_table", "topics_table", "versions_table"]


@command()
def _status(args: argparse.Namespace) -> int:
    """Show documents, forget set, last decision and health."""
    from streamtopic.service.inspection.doctor import concerns
    from streamtopic.service.inspection.facts import ModelFacts, status_fields

    with open_instance(args) as service:
        facts = ModelFacts(service)
        found = status_fields(facts, [one.text for one in concerns(facts)])
    # How many deletions wait is enough for a person; --json has since when.
    waiting = {name: one["documents"] for name, one in found["residue"]["waiting"].items()}
    return answer(args, found, *aligned(found | {"residue": waiting}))


@command()
def _versions(args: argparse.Namespace) -> int:
    """List the published versions and their guarantees."""
    from streamtopic.service.inspection.facts import versions_of

    with open_instance(args) as service:
        versions = versions_of(service.state)
    none = "no version has been published yet; `streamtopic status` says why"
    return answer(args, {"versions": versions}, block=versions_table(versions) if versions else none)


def versions_table(versions: list[dict[str, Any]]) -> str:
    """Lay out versions for a person."""
    shown = ["version", "kind", "documents", "forgotten", "epsilon", "delta", "sigma", "certificate", "seconds"]
    # Most models have no task, and most versions stand: columns of dashes would make the table wider for nothing.
    seldom = [name for name in ("withdrawn", "heads", "unfitted") if any(map(itemgetter(name), versions))]
    return table_of(versions, *shown, *seldom)


@command(option("--last N", "the newest N (default: 20)", default=20))
def _rejected(args: argparse.Namespace) -> int:
    """List the records that were refused."""
    from streamtopic.service.ingest.rejections import RefusedRecords

    with open_instance(args) as service:
        found = RefusedRecords.read(service.log, service.names, args.last)
    newest = [_rejection_fields(rejection) for rejection in found.newest]
    told = {"rejected": found.number, "reasons": found.reasons, "newest": newest}
    if not found.number:
        return answer(args, told, "no record was refused")
    rows = table_of(newest, "document", "reason", "partition", "offset", "time")
    return answer(args, told, f"{found.number} refused: {plain(found.reasons)}", "", block=rows)


def _rejection_fields(rejection: Rejection) -> dict[str, Any]:
    key = rejection.document
    # Keys are refused for their size and encoding too: the id is cut, and bytes that are not UTF-8 are escaped.
    document = None if key is None else key[:200].decode(errors="backslashreplace")
    return {
        "document": document,
        "reason": rejection.reason,
        "partition": rejection.partition,
        "offset": rejection.offset,
        "time": instant(rejection.time_ms, "seconds"),
    }


@command()
def _doctor(args: argparse.Namespace) -> int:
    """Check Redis, Kafka, keys, settings and state, and name remedies.

    Status 1 if a finding fails.
    """
    from streamtopic.service.verify import as_json, passed

    findings = []
    for finding in _examined(instance_settings(args)):
        findings.append(finding)
        # Printed as they come: a server that does not answer holds the rest up.
        for line in () if args.json else finding_lines([finding]):
            say(line)
    fine = passed(findings)
    answer(args, {"passed": fine, "findings": as_json(findings)})
    return 0 if fine else 1


def _examined(settings: Settings) -> Iterator[Finding]:
    from streamtopic.service.inspection.doctor import examine
    from streamtopic.service.opened import opened
    from streamtopic.service.verify import Finding

    try:
        with opened(settings) as service:
            yield from examine(service)
    # An instance that cannot even be opened is a finding like others, not the end of the command.
    except StreamtopicError as error:
        yield Finding("instance", passed=False, detail=str(error))


def _numbers(text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1 or max(found) > 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers from 1 to 1000 such as 5,10,20")
    return found


@command(
    option("show|suggest", "what to do (default: show)", nargs="?", default="show"),
    # Not stored as `version`: the program's own --version has that name.
    option("--version N", "which version (default: the newest)", type=whole_number(1), dest="number"),
    option("--top K", "words for each topic, 1 to 20 (default: 10)", type=whole_number(1, 20), default=10),
    option(
        "--documents FILE", "suggest: JSON lines, gzip too (default: those of the instance, else installed docstrings)"
    ),
    option("--topics R,R,...", "suggest: numbers of topics to try (default: 5,10,15,20,30,50)", type=_numbers),
    option("--trials N", "suggest: forget sets of 1%% of the documents to try (default: 5)", default=5),
    option("--seed N", "suggest: which forget sets are drawn (default: 0)", default=0),
)
def _topics(args: argparse.Namespace) -> int:
    """Show the topics of a published version, and the words of its heads; or suggest how many topics to learn.

    The largest share comes first.
    """
    if args.action == "suggest":
        return _suggest(args)
    if args.documents is not None:
        raise UsageError("--documents is for `streamtopic topics suggest`")
    from streamtopic.service.assembly import release_of
    from streamtopic.service.inspection.facts import heads_of, topics_of

    with open_instance(args) as service:
        release = release_of(service, args.number)
        shown = release.payload.A is not None
        topics = topics_of(release, args.top) if shown else []
        heads = heads_of(release, args.top)
    blocks = [f"version {release.version}", topics_table(topics) if shown else "its topics are withheld"]
    if heads:
        blocks.append(heads_table(heads))
    told = {"version": release.version, "topics": topics, "heads": heads}
    return answer(args, told, block="\n\n".join(blocks))


def heads_table(heads: dict[str, dict[str, Any]]) -> str:
    """Lay out the heads of a release for a person: a line for each class."""
    rows = []
    for task, head in heads.items():
        rows += [[task, name, " ".join(words)] for name, words in head["classes"].items()]
    return table(["task", "class", "words that speak for it"], rows)


def topics_table(topics: list[dict[str, Any]]) -> str:
    """Lay out topics for a person, largest share first."""
    ordered = sorted(topics, key=lambda topic: -topic["share"])
    # Rows are sorted and numbers are kept: `transform`, pages and notebooks name a topic by its number.
    rows = [[topic["topic"], f"{topic['share']:6.1%}", " ".join(topic["words"])] for topic in ordered]
    return table(["topic", "share", "words"], rows)


# Forget sets are drawn from so many documents of an instance: their words are held in memory while models are tried.
SAMPLE = 20_000


@dataclass(frozen=True, slots=True)
class _Material:
    """The documents that numbers of topics are tried on.

    name: where they come from.
    source: their counts.
    documents: the documents themselves, or a sample of them, from which forget sets are drawn.
    """

    name: str
    source: CountSource
    documents: DocumentBatch


def _suggest(args: argparse.Namespace) -> int:
    """Print the measures of each number of topics; status 1 if none of them makes a model."""
    from streamtopic.service.assembly import learner_options
    from streamtopic.topics.how_many_topics import TOPICS, TrialPlan, suggest_topics

    plan = TrialPlan(args.trials)
    settings = settings_of(args)
    options = learner_options(settings)
    import numpy as np

    with _material(args, settings, options) as material:
        total = material.source.documents
        with progress("trying", "models", quiet=args.json) as update:
            found = suggest_topics(
                material.source,
                material.documents,
                options,
                np.random.default_rng(args.seed),
                topics=args.topics or TOPICS,
                plan=plan,
                progress=update,
            )
    told = {"source": material.name, "documents": total, **found.as_json()}
    answer(args, told, block=_text(told))
    return 0 if found.recommended is not None else 1


@contextmanager
def _material(args: argparse.Namespace, settings: Settings, options: LearnerOptions) -> Iterator[_Material]:
    """Yield the documents to try numbers on. An instance stays open meanwhile, because its counts are read late."""
    if uses_instance(args, settings):
        with open_instance(args) as service:
            yield _of_instance(service)
    else:
        yield _of_corpus(args, options)


def _of_instance(service: Opened) -> _Material:
    from streamtopic.service.assembly import reader_of
    from streamtopic.state.document_counts import read_documents

    def material(counts: DocumentCounts) -> _Material:
        if not counts.documents:
            raise UsageError("nothing is counted yet: `streamtopic status` says what is waiting")
        stored = read_documents(counts, counts.words, limit=SAMPLE)
        return _Material(f"model {service.settings.model}", counts, stored.batch)

    return reader_of(service).read(material)


def _of_corpus(args: argparse.Namespace, options: LearnerOptions) -> _Material:
    from streamtopic.counts import Counts, count
    from streamtopic.service.verify.recount import batch_of

    corpus = read_corpus(args)
    words, batch = batch_of(document.passages for document in corpus.documents)
    return _Material(corpus.name, Counts(words, count(batch, len(words), options.weighting)), batch)


def _text(told: Mapping[str, Any]) -> str:
    """Lay out what was measured of each number of topics. told: as JSON has it."""
    measures = ("topics", "words", "coherence", "diversity", "score", "kept", "steady", "least_share", "reason")
    lines = [f"{told['documents']} documents, {told['source']}\n", table_of(told["candidates"], *measures)]
    if told["recommended"] is not None:
        lines.append(f"\nthe {told['recommended']} topics")
        lines += [f"  {k}: {' '.join(words)}" for k, words in enumerate(told["topics"])]
    lines.append(f"\nrecommended: {told['reason']}")
    return "\n".join(lines)


COMMANDS = (_status, _versions, _topics, _rejected, _doctor)
