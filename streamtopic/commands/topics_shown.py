"""`streamtopic topics`: the topics of a version, or how many there should be."""

from __future__ import annotations

import argparse
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import (
    answer,
    command,
    open_instance,
    option,
    read_corpus,
    settings_of,
    uses_instance,
    whole_number,
)
from streamtopic.console import progress, table, table_of
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamtopic.counts import CountSource, DocumentBatch
    from streamtopic.service.opened import Opened
    from streamtopic.settings import Settings
    from streamtopic.state import DocumentCounts
    from streamtopic.topics.learner_options import LearnerOptions

__all__ = ["COMMANDS", "heads_table", "topics_table"]


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
    from streamtopic.service.verify.recount import Numbering

    corpus = read_corpus(args)
    numbering = Numbering()
    numbered = [numbering.number(document.passages) for document in corpus.documents]
    words, batch = numbering.batch(numbered)
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


COMMANDS = (_topics,)
