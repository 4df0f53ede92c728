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
    topics = [] if by_class or not len(found) else _topics(slices)
    rows = [_row(slices, row) for row in range(len(found))] if by_class else []
    return {
        "unit": slices.unit,
        "task": slices.task,
        "floor": FLOOR,
        "hidden": found.hidden,
        "outside": found.outside,
        "topics": topics,
        "rows": rows,
    }


def _topics(slices: SliceReport) -> list[dict[str, object]]:
    """Return a row for each topic, the largest of all periods first."""
    found = slices.found
    # One scale for all pictures, so that they can be compared.
    highest = float(found.high.max())
    together = found.tokens @ found.shares
    rows = []
    for topic in np.argsort(-together, kind="stable").tolist():
        shares = found.shares[:, topic]
        low = found.low[:, topic]
        high = found.high[:, topic]
        title = f"share of topic {topic} by {slices.unit}"
        course = course_picture(title, found.times, shares, low, high, highest)
        peak = int(np.argmax(shares))
        words = slices.words(peak, topic)[:_WORDS]
        last = slices.share(len(found) - 1, topic)
        rows.append({"topic": topic, "course": course, "peak": found.times[peak], "words": words, "last": last})
    return rows


def _row(slices: SliceReport, row: int) -> dict[str, object]:
    """Return a slice with its largest topics."""
    found = slices.found
    order = np.argsort(-found.shares[row], kind="stable")
    largest = order[:_LARGEST].tolist()
    topics = []
    for topic in largest:
        share = slices.share(row, topic)
        words = slices.words(row, topic)[:_WORDS]
        topics.append({"topic": topic, "share": share, "words": words})
    documents = int(found.documents[row])
    return {"name": found.names[row], "documents": documents, "topics": topics}


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
    right = _WIDTH - _SIDE
    axis = f"M{_SIDE:.1f} {bottom:.1f}H{right:.1f}"
    around = f"{_path(band)}Z"
    marks: list[Mark] = [Stroke(axis), Stroke(around, "mark faint"), Stroke(_path(line), "mark-line")]
    facts = zip(line, times, shares.tolist(), low.tolist(), high.tolist(), strict=True)
    for (x, y), time, share, least, most in facts:
        said = f"{time}: {share:.1%} ({least:.1%} to {most:.1%})"
        marks.append(Circle(x, y, 2.5, "mark", said))
    foot = _HEIGHT - 4
    marks.append(Label(_SIDE, foot, times[0]))
    if len(times) > 1:
        marks.append(Label(right, foot, times[-1], anchor="end"))
    return Picture("", title, "", _WIDTH, _HEIGHT, marks)


def _points(across: Sequence[float], levels: Float) -> list[tuple[float, float]]:
    return list(zip(across, levels.tolist(), strict=True))


def _path(points: Sequence[tuple[float, float]]) -> str:
    """Return the moves of a pen from point to point."""
    moves = chain(["M"], ["L"] * (len(points) - 1))
    parts = zip(moves, points, strict=True)
    return "".join(f"{move}{x:.1f} {y:.1f}" for move, (x, y) in parts)
