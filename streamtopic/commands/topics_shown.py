"""What commands show of topics in detail: their phrases, and their course over time and by class.

For both, the arguments that ask for it and the tables that show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from streamtopic.console import number_of, progress, say_json, show, table
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    import argparse

    import numpy as np

    from streamtopic.service.app import Service
    from streamtopic.settings import Settings
    from streamtopic.topics.over_time import SliceReport, Unit
    from streamtopic.topics.phrases import PhraseReport

__all__ = [
    "add_phrases",
    "add_slices",
    "count_phrases",
    "phrases_block",
    "phrases_facts",
    "print_slices",
    "slice_unit",
]

# As `streamtopic.topics.over_time.UNITS` has them (a test compares them): `--help` must not load that module.
UNITS = ("day", "week", "month", "quarter", "year")

_BARS = "▁▂▃▄▅▆▇█"
_WORDS = 6
_LARGEST = 4


def add_phrases(parser: argparse.ArgumentParser) -> None:
    """Add the argument that asks for phrases."""
    parser.add_argument(
        "--phrases",
        action="store_true",
        help="phrases of each topic, such as `interest rates`: two of its words that stand side by side in 20 or more "
        "of the documents that are there now; they are counted from the log",
    )


def count_phrases(service: Service, version: int | None, *, quiet: bool) -> PhraseReport:
    """Return the phrases of a version's topics, with a bar at a terminal. version: None for the newest."""
    with progress("counting phrases", "records", quiet=quiet) as update:
        return service.phrases(version, update)


def phrases_facts(found: PhraseReport) -> dict[str, Any]:
    """Return the fields of JSON about all phrases; each topic has its own phrases beside its words."""
    from streamtopic.topics.phrases import FLOOR

    return {"floor": FLOOR, "whole": found.whole}


def phrases_block(found: PhraseReport) -> str:
    """Lay out phrases for a person, a line for each topic with phrases."""
    from streamtopic.topics.phrases import FLOOR

    rows = []
    for topic, phrases in enumerate(found.topics):
        named = [f"{phrase} ({phrase.documents})" for phrase in phrases]
        if named:
            rows.append([topic, ", ".join(named)])
    notes = [f"in brackets: documents with the phrase, {FLOOR} at least, exact and without noise"]
    if not found.whole:
        notes.append("documents came or went while these were read: ask again for one point in time")
    shown = table(["topic", "phrases"], rows) if rows else "no topic has a phrase that enough documents hold"
    return "\n\n".join([shown, "\n".join(notes)])


def add_slices(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that ask for slices."""
    parser.add_argument(
        "--over",
        choices=["time", *UNITS],
        help="topics of the documents in each period of their `ts`; `time`: the period that the setting `slices` names",
    )
    parser.add_argument("--by", metavar="TASK", help="topics of the documents of each class of this label")


def slice_unit(over: str | None, settings: Settings) -> Unit | None:
    """Return the period that is asked for. Raises UsageError where documents have no days."""
    if over is None:
        return None
    if settings.slices == "off":
        raise UsageError(
            "this instance does not keep the days of documents: set slices = month, and make its state anew from the "
            "log (`streamtopic rebuild`)"
        )
    return settings.slices if over == "time" else cast("Unit", over)


def print_slices(found: SliceReport, *, as_json: bool) -> int:
    """Print slices as JSON or for a person; return the exit status."""
    if as_json:
        say_json(found.as_json())
        return 0
    rows = _by_slice(found) if found.task is not None else _by_topic(found)
    show("\n\n".join([f"version {found.version}", rows, *_notes(found)]))
    return 0


def _by_topic(found: SliceReport) -> str:
    """Lay out a line for each topic, the largest first, with its course over the periods."""
    shown = found.found
    if not len(shown):
        return "no period has enough documents"
    # By all documents together, so that the order is that of the whole time.
    whole = shown.tokens @ shown.shares
    rows = []
    for topic in (-whole).argsort(kind="stable").tolist():
        course = shown.shares[:, topic]
        peak = int(course.argmax())
        words = " ".join(found.words(peak, topic)[:_WORDS])
        last = found.share(len(shown) - 1, topic)
        rows.append([topic, _bars(course), f"{course[peak]:.1%} in {shown.times[peak]}", last, words])
    span = f"{shown.times[0]} to {shown.times[-1]}"
    return table(["topic", span, "most", f"in {shown.times[-1]}", "words when most"], rows)


def _by_slice(found: SliceReport) -> str:
    """Lay out a line for each slice with its largest topics."""
    shown = found.found
    if not len(shown):
        return "no slice has enough documents"
    rows = []
    for row, name in enumerate(shown.names):
        largest = (-shown.shares[row]).argsort(kind="stable")[:_LARGEST].tolist()
        parts = []
        for topic in largest:
            first = "".join(found.words(row, topic)[:1])
            parts.append(f"{topic} {first} {found.share(row, topic)}")
        rows.append([name, int(shown.documents[row]), ", ".join(parts)])
    return table(["slice", "documents", "largest topics"], rows)


def _bars(course: np.ndarray) -> str:
    """Return a bar for each number of a course, the largest number as the highest bar."""
    highest = max(float(course.max()), 1e-12)
    steps = (course / highest * (len(_BARS) - 1)).round().astype(int)
    return "".join(_BARS[step] for step in steps.tolist())


def _notes(found: SliceReport) -> list[str]:
    """Return notes on slices and documents that the table leaves out, a line each."""
    from streamtopic.topics.over_time import FLOOR

    shown = found.found
    notes = ["in brackets: 95 % intervals, for these topics as they are published"]
    if shown.hidden:
        notes.append(
            f"not shown: {number_of(shown.hidden, 'slice')} with fewer than {FLOOR} documents, "
            f"{number_of(shown.hidden_documents, 'document')} in all"
        )
    if shown.outside:
        notes.append(f"without the time or the label: {number_of(shown.outside, 'document')}")
    if not found.whole:
        notes.append("documents came or went while these were read: ask again for one point in time")
    return ["\n".join(notes)]
