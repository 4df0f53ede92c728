"""Topics over time and by class, as commands show them: the arguments that ask for them, and the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from streamtopic.console import number_of, say_json, show, table
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    import argparse

    import numpy as np

    from streamtopic.settings import Settings
    from streamtopic.topics.over_time import SliceReport, Unit

__all__ = ["add_slices", "print_slices", "slice_unit"]

# As `streamtopic.topics.over_time.UNITS` has them (a test compares them): `--help` must not load that module.
UNITS = ("day", "week", "month", "quarter", "year")

_BARS = "▁▂▃▄▅▆▇█"
_WORDS = 6
_LARGEST = 4


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
    return ["\n".join(notes)]
