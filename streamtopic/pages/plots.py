"""Pictures of a model, for notebooks and for pages: `from streamtopic import plots`.

    topic_map       topics near each other if they use the same words
    correlations    which topics meet in documents
    shares          shares of topics over versions
    line_chart      curves over versions
    small_line      a line without axes

A model is a Release or a fitted AnchorTopics. Each function returns a Picture in SVG, which follows a light or a dark
screen: leave it as the last line of a cell, or write `picture.svg()` to a file.
"""

from __future__ import annotations

import math
from base64 import b64encode
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from streamtopic.errors import UsageError
from streamtopic.pages.model_view import LETTER, history_of, map_of, related_of, view_of
from streamtopic.pages.rendering import render

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streamtopic.signed import Release
    from streamtopic.topics.estimator import AnchorTopics

    Point = tuple[float, float]

__all__ = [
    "Curve",
    "Mark",
    "Picture",
    "correlations",
    "draw_correlations",
    "draw_map",
    "line_chart",
    "shares",
    "small_line",
    "ticks",
    "topic_map",
]

_CELL, _BESIDE, _ABOVE, _LONGEST = 20.0, 170.0, 30.0, 25
# Classes of templates/picture.css: their colours follow a light screen, a dark one, and paper.
_LOOKS = ("mark", "warm", "plain")
_MOST_MARKS = 5
_SQUARE = ((-4, -4), (4, -4), (4, 4), (-4, 4))
_TRIANGLE = ((-5, 4), (5, 4), (0, -5))
# Height of a line at 11 pixels, an estimate, since the reader's own font decides.
_LINE = 13.0


@dataclass(frozen=True, slots=True)
class Mark:
    """An element of a picture.

    kind: `text`, `path`, `circle`, `rect`, or `a` for a link around other marks.
    at: the attributes that say its place and its size, in pixels.
    look: classes of style.
    said: text that a pointer on the mark shows.
    text: what a `text` says.
    within: the marks of a link.
    """

    kind: str
    at: Mapping[str, object]
    look: str = ""
    said: str = ""
    text: object = None
    within: Sequence[Mark] = ()


def label(x: float, y: float, text: object, look: str = "soft small", anchor: str = "start") -> Mark:
    """Return text. anchor: `start`, `middle` or `end`, the part of the text that lies at x."""
    return Mark("text", {"x": round(x, 1), "y": round(y, 1), "text-anchor": anchor}, look, text=text)


def stroke(points: Sequence[Point], look: str = "axis", said: str = "", *, closed: bool = False) -> Mark:
    """Return a line from point to point."""
    moves = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return Mark("path", {"d": f"M{moves or '0 0'}{'Z' if closed else ''}"}, look, said)


def circle(x: float, y: float, r: float, look: str = "mark", said: str = "") -> Mark:
    """Return a circle around (x, y)."""
    return Mark("circle", {"cx": round(x, 1), "cy": round(y, 1), "r": round(r, 1)}, look, said)


def box(x: float, y: float, width: float, height: float, look: str = "mark", said: str = "") -> Mark:
    """Return a rectangle; (x, y): its upper left corner."""
    place = {"x": x, "y": y, "width": width, "height": height}
    return Mark("rect", {name: round(value, 1) for name, value in place.items()}, look, said)


@dataclass(frozen=True, slots=True)
class Picture:
    """Marks on a canvas of width times height pixels.

    name: beginning of the ids of the picture's title and description on a page.
    title: heading, for readers who cannot see the picture.
    said: the content of the picture in words.
    """

    name: str
    title: str
    said: str
    width: float
    height: float
    marks: Sequence[Mark] = field(repr=False)

    def svg(self) -> str:
        """Return the picture as a file of its own, with its style."""
        return render("picture.svg", picture=self)

    def _repr_html_(self) -> str:
        # As an image, so that the picture's style is that of the picture alone in a notebook.
        return render("image.html", title=self.title, data=b64encode(self.svg().encode()).decode())


def ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Return two to six round numbers, evenly spaced, that cover low to high. whole: whether all are integers."""
    if not high > low:
        low, high = low - 0.5, high + 0.5
    size = high - low
    unit = 10.0 ** math.floor(math.log10(size / (_MOST_MARKS - 1)))
    # Readers count by ones, twos and fives. The tolerance lets a range that needs exactly four steps have them.
    steps = (unit * factor for factor in (1, 2, 5, 10))
    step = next(step for step in steps if size / step <= (_MOST_MARKS - 1) * (1 + 1e-9))
    step = max(step, 1.0) if whole else step
    # A value that lies on a mark except for rounding needs no further mark.
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    # Rounded, since 3 times 0.1 is not written as 0.3.
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class Curve:
    """Points (x, y) under one name, joined by a line.

    look: 0 for circles, 1 for squares, 2 for triangles, each in its own colour.
    dashed: whether to draw a dashed line without points, to compare other curves with.
    """

    name: str
    points: Sequence[Point]
    look: int = 0
    dashed: bool = False


_LEFT, _TOP, _BELOW, _GAP = 64.0, 62.0, 64.0, 28.0


def line_chart(
    title: str,
    said: str,
    curves: Sequence[Curve],
    *,
    across: str,
    up: str = "",
    name: str = "chart",
    width: float = 300.0,
    height: float = 240.0,
    beside: float = 150,
) -> Picture:
    """Return curves over whole numbers, such as those of versions, on an axis that begins at 0.

    said: the content of the picture in words.
    curves: at least one point in all.
    across, up: names of the axes.
    width, height: of the field, in pixels.
    beside: room for names to the right of the field, in pixels. A curve is named at its last point.
    """
    marks = list(_chart(title, curves, across, up, (width, height, beside)))
    return Picture(name, title, said, _LEFT + width + beside + _GAP, _TOP + height + _BELOW, marks)


def _chart(
    title: str, curves: Sequence[Curve], across: str, up: str, size: tuple[float, float, float]
) -> Iterator[Mark]:
    """Yield the axes, the curves and their names. size: width, height and room for names."""
    width, height, beside = size
    points = list(chain.from_iterable(curve.points for curve in curves))
    bottom, right = _TOP + height, _LEFT + width
    numbers = [x for x, _ in points]
    steps = ticks(min(numbers), max(numbers), whole=True)
    levels = ticks(0.0, max(y for _, y in points) or 1.0)

    def place(x: float) -> float:
        return _LEFT + width * (x - steps[0]) / (steps[-1] - steps[0])

    def level(y: float) -> float:
        return bottom - height * y / levels[-1]

    yield label(_LEFT, _TOP - 36, title, "strong")
    yield label(_LEFT, _TOP - 12, up)
    for mark in levels:
        yield stroke([(_LEFT, level(mark)), (right, level(mark))])
        yield label(_LEFT - 6, level(mark) + 4, _written(mark), anchor="end")
    for mark in steps:
        yield stroke([(place(mark), bottom), (place(mark), bottom + 4)])
        yield label(place(mark), bottom + 18, _written(mark), anchor="middle")
    yield label(_LEFT + width / 2, bottom + 36, across, anchor="middle")
    ends: list[tuple[float, float, str]] = []
    for curve in curves:
        drawn = [(place(x), level(y), f"{curve.name}: {x:.4g}, {y:.4g}") for x, y in curve.points]
        yield from _curve(curve, drawn)
        ends += [(x, y, curve.name) for x, y, _ in drawn[-1:] if curve.name]
    # After all curves, so that a name lies above the lines and clear of the other names.
    yield from _names(ends, right + beside)


def _written(mark: float) -> str:
    return f"{mark:,.0f}" if 1_000 <= abs(mark) < 1e7 else f"{mark:g}"


def _curve(curve: Curve, drawn: Sequence[tuple[float, float, str]]) -> Iterator[Mark]:
    """Yield the line and the points of a curve; drawn: x and y in pixels, and what a pointer there shows."""
    look = _LOOKS[curve.look % len(_LOOKS)]
    if len(drawn) > 1:
        yield stroke([(x, y) for x, y, _ in drawn], "plain-line dashed" if curve.dashed else f"{look}-line")
    for x, y, told in () if curve.dashed else drawn:
        if look == "mark":
            yield circle(x, y, 4.0, look, told)
            continue
        # Shapes differ as well as colours, for readers who cannot tell the colours apart.
        corners = _SQUARE if look == "warm" else _TRIANGLE
        yield stroke([(x + right, y + down) for right, down in corners], look, told, closed=True)


def _names(wanted: Sequence[tuple[float, float, str]], right: float) -> Iterator[Mark]:
    """Yield names next to their points, each below the earlier ones that it would touch. right: end of the room."""
    taken: list[tuple[float, float, float]] = []
    for x, y, name in sorted(wanted, key=lambda one: (one[1], one[0])):
        wide = LETTER * len(name)
        start = x + 9 if x + 9 + wide <= right else x - 9 - wide
        level = y
        for left, end, height in sorted(taken, key=lambda one: one[2]):
            if left < start + wide + 4 and start < end + 4 and abs(level - height) < _LINE:
                level = height + _LINE
        taken.append((start, start + wide, level))
        yield label(start, level + 4, name, "small clear")


def small_line(title: str, values: Sequence[float], highest: float) -> Picture:
    """Return a small line without axes. highest: top of the scale, whose bottom is 0."""
    width, height = 150.0, 30.0
    step = (width - 12) / max(len(values) - 1, 1)
    line = [(6 + step * k, 4 + (height - 8) * (1 - value / (highest or 1.0))) for k, value in enumerate(values)]
    return Picture("", title, "", width, height, [stroke(line, "mark-line"), circle(*line[-1], 3.0)])


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
        marks.append(stroke([(_BESIDE, _ABOVE + along), (_BESIDE + side, _ABOVE + along)]))
        marks.append(stroke([(_BESIDE + along, _ABOVE), (_BESIDE + along, _ABOVE + side)]))
    for at, k in enumerate(order):
        middle = _CELL * (at + 0.5)
        name = f"{found[k]}  {numbers['names'][k]}"[:_LONGEST]
        marks.append(label(_BESIDE - 8, _ABOVE + middle + 4, name, "small", "end"))
        marks.append(label(_BESIDE + middle, _ABOVE - 8, found[k], "small", "middle"))
    for row, column in places:
        value = rows[order[row]][order[column]]
        # A mark below a fiftieth of the strongest would be a speck; the table has its value.
        if abs(value) >= full / 50:
            x, y = _BESIDE + _CELL * (column + 0.5), _ABOVE + _CELL * (row + 0.5)
            half = (_CELL - 2) / 2 * (abs(value) / full) ** 0.5
            told = f"{found[order[row]]} and {found[order[column]]}: {value:+.2f}"
            # Signs differ in shape as well as in colour, for readers who cannot tell the colours apart.
            square = box(x - half, y - half, 2 * half, 2 * half, "mark", told)
            marks.append(square if value > 0 else circle(x, y, half, "warm", told))
    return Picture(
        "heat", "Correlations between topics", "the table has all values", _BESIDE + side + 8, _ABOVE + side + 8, marks
    )
