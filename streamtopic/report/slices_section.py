"""The section of a page about topics over time and by class, with a band around each course that holds 95 %."""

from collections.abc import Sequence
from itertools import chain

import numpy as np

from streamtopic.report.charts import Circle, Label, Mark, Picture, Stroke
from streamtopic.report.model_view import Float
from streamtopic.topics.over_time import FLOOR, SliceReport

__all__ = ["course_picture", "slices_section"]

_WORDS = 6
_LARGEST = 5
_WIDTH, _HEIGHT = 260.0, 64.0
_SIDE, _TOP, _FOOT = 6.0, 6.0, 18.0


def slices_section(slices: SliceReport) -> dict[str, object]:
    """Return the values of the section.

    `topics` has a row with a picture for each topic, the largest first, where slices are periods; `rows` has a row for
    each slice with its largest topics, where they have classes.
    """
    found = slices.found
    by_class = slices.task is not None
    return {
        "unit": slices.unit,
        "task": slices.task,
        "floor": FLOOR,
        "hidden": found.hidden,
        "outside": found.outside,
        "whole": slices.whole,
        "topics": [] if by_class or not len(found) else _topics(slices),
        "rows": [_row(slices, row) for row in range(len(found))] if by_class else [],
    }


def _topics(slices: SliceReport) -> list[dict[str, object]]:
    """Return a row for each topic, the largest of all periods first."""
    found = slices.found
    # One scale for all pictures, so that they can be compared.
    highest = float(found.high.max())
    together = found.tokens @ found.shares
    rows = []
    for topic in np.argsort(-together, kind="stable").tolist():
        peak = int(np.argmax(found.shares[:, topic]))
        course = course_picture(
            f"share of topic {topic} by {slices.unit}",
            found.times,
            found.shares[:, topic],
            found.low[:, topic],
            found.high[:, topic],
            highest,
        )
        words = slices.words(peak, topic)[:_WORDS]
        last = slices.share(len(found) - 1, topic)
        rows.append({"topic": topic, "course": course, "peak": found.times[peak], "words": words, "last": last})
    return rows


def _row(slices: SliceReport, row: int) -> dict[str, object]:
    """Return a slice with its largest topics."""
    found = slices.found
    largest = np.argsort(-found.shares[row], kind="stable")[:_LARGEST].tolist()
    topics = []
    for topic in largest:
        words = slices.words(row, topic)[:_WORDS]
        topics.append({"topic": topic, "share": slices.share(row, topic), "words": words})
    return {"name": found.names[row], "documents": int(found.documents[row]), "topics": topics}


def course_picture(title: str, times: Sequence[str], shares: Float, low: Float, high: Float, highest: float) -> Picture:
    """Return a topic's shares over periods as a line within the band of its intervals.

    times: (slices,) names of the periods, at least one.
    shares, low, high: (slices,) from 0 to 1.
    highest: top of the scale, whose bottom is 0.
    """
    bottom = _HEIGHT - _FOOT
    step = (_WIDTH - 2 * _SIDE) / max(len(times) - 1, 1)
    across = [_SIDE + step * k for k in range(len(times))]
    scale = (bottom - _TOP) / (highest or 1.0)
    line = _points(across, bottom - scale * shares)
    above = _points(across, bottom - scale * high)
    below = _points(across, bottom - scale * low)
    band = [*above, *reversed(below)]
    marks: list[Mark] = [
        Stroke(f"M{_SIDE:.1f} {bottom:.1f}H{_WIDTH - _SIDE:.1f}"),
        Stroke(f"{_path(band)}Z", "mark faint"),
        Stroke(_path(line), "mark-line"),
    ]
    facts = zip(line, times, shares.tolist(), low.tolist(), high.tolist(), strict=True)
    for (x, y), time, share, least, most in facts:
        marks.append(Circle(x, y, 2.5, "mark", f"{time}: {share:.1%} ({least:.1%} to {most:.1%})"))
    marks.append(Label(_SIDE, _HEIGHT - 4, times[0]))
    if len(times) > 1:
        marks.append(Label(_WIDTH - _SIDE, _HEIGHT - 4, times[-1], anchor="end"))
    return Picture("", title, "", _WIDTH, _HEIGHT, marks)


def _points(across: Sequence[float], levels: Float) -> list[tuple[float, float]]:
    return list(zip(across, levels.tolist(), strict=True))


def _path(points: Sequence[tuple[float, float]]) -> str:
    """Return the moves of a pen from point to point."""
    moves = chain(["M"], ["L"] * (len(points) - 1))
    parts = zip(moves, points, strict=True)
    return "".join(f"{move}{x:.1f} {y:.1f}" for move, (x, y) in parts)
