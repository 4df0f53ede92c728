"""Figures of a model, for notebooks and for pages: `from streamtopic import plots`.

    topic_map       topics near each other if they use the same words
    correlations    which topics meet in documents
    shares          shares of topics over versions

A model is a Release or a fitted AnchorTopics. Each function returns a Picture in SVG, which follows a light or a dark
screen: leave it as the last line of a cell, or write `picture.svg()` to a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamtopic.errors import UsageError
from streamtopic.pages.charts import (
    Curve,
    Mark,
    Picture,
    box,
    circle,
    label,
    line_chart,
    stroke,
)
from streamtopic.pages.model_view import history_of, map_of, related_of, view_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamtopic.signed import Release
    from streamtopic.topics.estimator import AnchorTopics

__all__ = ["correlations", "draw_correlations", "draw_map", "shares", "topic_map"]

_CELL, _LEFT, _TOP, _LONGEST = 20.0, 170.0, 30.0, 25


def topic_map(model: Release | AnchorTopics, *, feature_names: Sequence[str] | None = None) -> Picture:
    """Return a map of the 100 largest topics by the distances between their words, areas by share.

    The 40 largest topics have a name of two words.

    feature_names: words of an AnchorTopics' columns.

    Raises UsageError for a value that is not a model, InvalidRelease for a release that is withdrawn or withholds its
    topics.
    """
    return draw_map(map_of(view_of(model, feature_names)))


def correlations(model: Release | AnchorTopics, *, feature_names: Sequence[str] | None = None) -> Picture:
    """Return the correlations between the topics of two words of one document, of the 40 largest topics.

    Topics that meet in documents are neighbours. Parameters and errors are as in `topic_map`.
    """
    return draw_correlations(related_of(view_of(model, feature_names)))


def shares(releases: Sequence[Release], *, most: int = 10) -> Picture:
    """Return the shares of the largest topics over versions: 0 in a version without the topic.

    releases: versions that still stand, in order.
    most: number of topics.

    Raises UsageError for an empty list, InvalidRelease if a release is withdrawn or the last withholds its topics.
    """
    if not releases or most < 1:
        raise UsageError("there is nothing to show: give the versions that a subscriber received, and at least 1 topic")
    for release in releases:
        # Raises for a withdrawn release: a picture of changes would show forgotten words.
        if release.payload.A is not None:
            release.topics(0)
    view, found = view_of(releases[-1]), history_of(releases)
    versions = [step["version"] for step in found["steps"]]
    curves = []
    for place, topic in enumerate(view.order[:most]):
        points = list(zip(versions, found["paths"][topic]["shares"], strict=True))
        curves.append(Curve(f"{topic}  {view.name(topic)}", points, place % 3))
    said = "shares of the largest topics over versions"
    return line_chart("Shares of topics", said, curves, across="version", up="share of all words", width=420)


def draw_map(numbers: Mapping[str, Any]) -> Picture:
    """Return the map; numbers: as `map_of` returns them. Each circle is a link to the topic's card on a page."""
    marks = []
    for node in numbers["nodes"]:
        x, y, radius = node["x"], node["y"], node["radius"]
        # The place is the middle of the circle with the name below.
        y -= 8 if node["name"] else 0
        within = [circle(x, y, radius, "ring"), label(x, y + 4.5, node["topic"], "strong", "middle")]
        if node["name"]:
            within.append(label(x, y + radius + 13, node["name"], "small", "middle"))
        told = f"Topic {node['topic']}, {node['share']:.1%}: {node['name']}"
        marks.append(Mark("a", {"href": f"#topic-{node['topic']}"}, said=told, within=within))
    said = f"{len(marks)} topics by their words"
    return Picture("places", "Map of topics", said, numbers["width"], numbers["height"], marks)


def draw_correlations(numbers: Mapping[str, Any]) -> Picture:
    """Return a square for each positive correlation and a circle for each negative one; the area is the strength.

    numbers: as `related_of` returns them.
    """
    found, rows, order = numbers["topics"], numbers["rows"], numbers["order"]
    side = _CELL * len(order)
    places = [(row, column) for row in range(len(order)) for column in range(len(order)) if row != column]
    # A topic with itself is always 1, and would be stronger than all others.
    full = max((abs(rows[order[row]][order[column]]) for row, column in places), default=0.0) or 1.0
    marks: list[Mark] = []
    for at in range(len(order) + 1):
        along = _CELL * at
        marks.append(stroke([(_LEFT, _TOP + along), (_LEFT + side, _TOP + along)]))
        marks.append(stroke([(_LEFT + along, _TOP), (_LEFT + along, _TOP + side)]))
    for at, k in enumerate(order):
        middle = _CELL * (at + 0.5)
        name = f"{found[k]}  {numbers['names'][k]}"[:_LONGEST]
        marks.append(label(_LEFT - 8, _TOP + middle + 4, name, "small", "end"))
        marks.append(label(_LEFT + middle, _TOP - 8, found[k], "small", "middle"))
    for row, column in places:
        value = rows[order[row]][order[column]]
        # A mark below a fiftieth of the strongest would be a speck; the table has its value.
        if abs(value) >= full / 50:
            x, y = _LEFT + _CELL * (column + 0.5), _TOP + _CELL * (row + 0.5)
            half = (_CELL - 2) / 2 * (abs(value) / full) ** 0.5
            told = f"{found[order[row]]} and {found[order[column]]}: {value:+.2f}"
            # Signs differ in shape as well as in colour, for readers who cannot tell the colours apart.
            square = box(x - half, y - half, 2 * half, 2 * half, "mark", told)
            marks.append(square if value > 0 else circle(x, y, half, "warm", told))
    return Picture(
        "heat", "Correlations between topics", "the table has all values", _LEFT + side + 8, _TOP + side + 8, marks
    )
