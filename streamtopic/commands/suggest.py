"""`streamtopic suggest`: how many topics for these documents?"""

from __future__ import annotations

import argparse
import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopic.commands.common_arguments import command, instance_settings, settings_of
from streamtopic.console import say, say_json, show
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.counts import CountSource, DocumentBatch
    from streamtopic.service.app import Service
    from streamtopic.settings import Settings
    from streamtopic.topics.how_many_topics import Candidate, Suggestion
    from streamtopic.topics.learner_options import LearnerOptions

__all__ = ["register", "run"]

SAMPLE = 20_000


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(subparsers, "suggest", run, "try several numbers of topics and recommend one, with the reason")
    parser.add_argument(
        "--documents",
        type=Path,
        metavar="FILE",
        help="JSON lines, gzip too (default: those of the instance; without one, installed docstrings)",
    )
    parser.add_argument(
        "--topics",
        type=_numbers,
        metavar="R,R,...",
        help="numbers of topics to try (default: 5,10,15,20,30,50)",
    )
    parser.add_argument(
        "--trials", type=int, default=5, metavar="N", help="forget sets of 1%% of the documents to try (default: 5)"
    )
    parser.add_argument(
        "--thresholds", action="store_true", help="try half and twice of max_df and anchor_min_df as well"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which forget sets are drawn (default: 0)")
    parser.add_argument("--to", type=Path, metavar="FILE", help="write it to a name that ends in .svg, .html or .json")


def _numbers(text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1 or max(found) > 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers from 1 to 1000 such as 5,10,20")
    return found


def run(args: argparse.Namespace) -> int:
    """Print what was found; status 1 if no number of topics makes a model."""
    from streamtopic.console import progress
    from streamtopic.service.assembly import learner_options
    from streamtopic.topics.how_many_topics import TOPICS, TrialPlan, suggest_topics

    if args.to is not None and args.to.suffix not in {".svg", ".html", ".json"}:
        raise UsageError(f"cannot write {args.to.name}: end the name in .svg, .html or .json")
    if args.seed < 0:
        raise UsageError(f"--seed is {args.seed}: use a whole number from 0")
    plan = TrialPlan(args.trials, variants=args.thresholds)
    settings = _settings(args)
    options = learner_options(settings)
    import numpy as np

    with _counted(args, settings, options) as (name, source, documents):
        total = source.documents
        with progress("trying", "models", quiet=args.json) as update:
            found = suggest_topics(
                source,
                documents,
                options,
                np.random.default_rng(args.seed),
                topics=args.topics or TOPICS,
                plan=plan,
                progress=update,
            )
    if args.to is not None:
        _write(args.to, found, name, total)
    if args.json:
        say_json({"source": name, "documents": total, **found.as_json()})
    else:
        show(_table(name, total, found))
        if args.to is not None:
            say(f"written to {args.to}")
    return 0 if found.recommended is not None else 1


def _settings(args: argparse.Namespace) -> Settings:
    if args.documents is not None and args.dir is not None:
        raise UsageError("--documents reads a file and --dir an instance: give one of them")
    return settings_of(args)


@contextmanager
def _counted(
    args: argparse.Namespace, settings: Settings, options: LearnerOptions
) -> Iterator[tuple[str, CountSource, DocumentBatch]]:
    """Yield what they are of, counts, and their documents or a sample of them; an instance's are read meanwhile."""
    if args.documents is None and (settings.dir is not None or settings.kafka is not None):
        from streamtopic.service.app import Service

        with Service(instance_settings(args)) as service:
            yield _of_instance(service)
    else:
        yield _of_corpus(args, options)


def _of_instance(service: Service) -> tuple[str, CountSource, DocumentBatch]:
    from streamtopic.state.documents import read_documents

    snapshot = service.reader.snapshot()
    if not snapshot.documents:
        raise UsageError("nothing is counted yet: `streamtopic status` says what is waiting")
    stored = read_documents(service.connection, snapshot, snapshot.words, limit=SAMPLE)
    if not stored.whole:
        raise UsageError("documents were deleted while they were read: run `streamtopic suggest` again")
    return f"model {service.settings.model}", snapshot, stored.batch


def _of_corpus(args: argparse.Namespace, options: LearnerOptions) -> tuple[str, CountSource, DocumentBatch]:
    from streamtopic.commands.demo import read_corpus
    from streamtopic.counts import Counts, count
    from streamtopic.service.verify.recount import Numbering
    from streamtopic.text import passages

    corpus = read_corpus(args)
    numbering = Numbering()
    words, batch = numbering.batch([numbering.number(tuple(passages(one.text))) for one in corpus.documents])
    return corpus.name, Counts(words, count(batch, len(words), options.weighting)), batch


def _write(path: Path, found: Suggestion, name: str, documents: int) -> None:
    from streamtopic.report.suggestion_page import suggestion_page, suggestion_picture

    content = {
        ".svg": lambda: suggestion_picture(found) + "\n",
        ".html": lambda: suggestion_page(found, name, documents),
        ".json": lambda: json.dumps({"source": name, "documents": documents, **found.as_json()}),
    }[path.suffix]()
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def _table(name: str, documents: int, found: Suggestion) -> str:
    from streamtopic.console import table

    head = ["topics", "words", "coherence", "diversity", "score", "words last", "anchors stay", "smallest"]
    lines = [f"{documents} documents, {name}\n", table(head, _rows(found.candidates, found.recommended))]
    if found.variants:
        rows = [
            [f"{one.max_df:g}", f"{one.anchor_min_df:g}", *row[1:5]]
            for one, row in zip(found.variants, _rows(found.variants, None), strict=True)
        ]
        lines += ["\nthe same number under other thresholds", table(["max_df", "anchor_min_df", *head[1:5]], rows)]
    lines += [f"  {one.topics} topics: {one.reason}" for one in found.candidates if one.reason]
    return "\n".join([*lines, f"\nrecommended: {found.reason}"])


def _rows(candidates: Sequence[Candidate], recommended: Candidate | None) -> list[list[str]]:
    rows = []
    for one in candidates:
        number = f"{one.topics} *" if one is recommended else str(one.topics)
        if one.reason:
            rows.append([number, *["-"] * 7])
            continue
        lasting = ["-" if share is None else f"{share:.0%}" for share in (one.kept, one.steady)]
        measures = [f"{one.coherence:.3f}", f"{one.diversity:.2f}", f"{one.score:.3f}"]
        rows.append([number, str(one.words), *measures, *lasting, f"{one.least_share:.1%}"])
    return rows
