"""Charts: the places of points, curves, bars and lines on a picture, which `templates/picture.svg` writes."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import ClassVar

from streamtopic.report.rendering import render

__all__ = [
    "Axis",
    "Bar",
    "Bars",
    "Box",
    "ChartPanel",
    "Circle",
    "Curve",
    "Label",
    "LinkedMarks",
    "Mark",
    "Picture",
    "Series",
    "Stroke",
    "bars",
    "line_chart",
    "scatter",
    "sparkline",
    "svg",
    "ticks",
]

# Looks are classes of templates/picture.css: their colours follow a light screen, a dark one, and paper.
_LOOKS = ("mark", "warm", "plain")
_MOST_MARKS = 5


@dataclass(frozen=True, slots=True)
class Label:
    """Text at (x, y). anchor: `start`, `middle` or `end`, the part of the text that lies at x."""

    kind: ClassVar[str] = "label"
    x: float
    y: float
    text: object
    look: str = "soft small"
    anchor: str = "start"


@dataclass(frozen=True, slots=True)
class Stroke:
    """Lines. d: the moves of a pen as SVG has them; said: what a pointer on the lines reads."""

    kind: ClassVar[str] = "stroke"
    d: str
    look: str = "axis"
    said: str = ""


@dataclass(frozen=True, slots=True)
class Circle:
    """A circle around (x, y) of radius r; said: what a pointer on it reads."""

    kind: ClassVar[str] = "circle"
    x: float
    y: float
    r: float
    look: str = "mark"
    said: str = ""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle with its upper left corner at (x, y); said: what a pointer on it reads."""

    kind: ClassVar[str] = "box"
    x: float
    y: float
    width: float
    height: float
    look: str = "mark"
    said: str = ""


@dataclass(frozen=True, slots=True)
class LinkedMarks:
    """Marks that lead to an element of the page. to: the element's id; said: what a pointer on them reads."""

    kind: ClassVar[str] = "link"
    to: str
    said: str
    marks: "Sequence[Mark]"


Mark = Label | Stroke | Circle | Box | LinkedMarks


@dataclass(frozen=True, slots=True)
class Picture:
    """Marks on a canvas of width times height pixels.

    name: begins the ids of the picture's title and description on a page.
    title: heading, for whoever cannot see the picture.
    said: what the picture shows, in words.
    """

    name: str
    title: str
    said: str
    width: float
    height: float
    marks: Sequence[Mark] = field(repr=False)


def svg(picture: Picture) -> str:
    """Return a picture as a file of its own, with its style."""
    return render("picture.svg", picture=picture)


# Axes


def ticks(low: float, high: float, most: int = 4) -> list[float]:
    """Return round numbers, evenly spaced, that cover low to high: at least two, at most two more than `most`."""
    if not high > low:
        low, high = low - 0.5, high + 0.5
    unit = 10.0 ** math.floor(math.log10((high - low) / most))
    # Readers count by ones, twos and fives; the tolerance lets a range that needs exactly `most` steps have them.
    step = next(unit * factor for factor in (1, 2, 5, 10) if (high - low) / (unit * factor) <= most * (1 + 1e-9))
    # A value that lies on a mark but for rounding needs no further mark.
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis with its label and ascending marks; the first and the last mark are its ends."""

    label: str
    marks: tuple[float, ...]
    logarithmic: bool = False

    @classmethod
    def over(cls, label: str, values: Iterable[float], *, logarithmic: bool = False) -> "Axis":
        """Return an axis around the values. Only values above 0 have a place on a logarithmic axis."""
        known = [value for value in values if math.isfinite(value) and (value > 0 or not logarithmic)]
        if logarithmic:
            return cls(label, tuple(_powers(min(known, default=1.0), max(known, default=10.0))), logarithmic=True)
        return cls(label, tuple(ticks(min(known, default=0.0), max(known, default=1.0))))

    def share(self, value: float) -> float | None:
        """Return how far along the axis a value lies, from 0 to 1; None for a value without a place."""
        if not math.isfinite(value) or (self.logarithmic and value <= 0):
            return None
        low, high = self.marks[0], self.marks[-1]
        if self.logarithmic:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)


def _powers(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten around low to high, or fewer factors where those would be too many."""
    # One power more on each side: rounding of the logarithm must not leave an end outside.
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    for factors in ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        steps = [factor * 10.0**power for power in powers for factor in factors]
        first = max(k for k, step in enumerate(steps) if step <= low * (1 + 1e-9))
        last = min(k for k, step in enumerate(steps) if step >= high * (1 - 1e-9))
        found = steps[first : max(last, first + 1) + 1]
        if len(found) <= _MOST_MARKS:
            return found
    # More than four powers of ten: equal factors keep the marks at equal distances.
    every = -(-(len(found) - 1) // (_MOST_MARKS - 1))
    return [found[0] * 10.0 ** (every * k) for k in range(-(-(len(found) - 1) // every) + 1)]


@dataclass(frozen=True, slots=True)
class _Frame:
    """Two axes and the field between them: left, top, width and height in pixels."""

    across: Axis
    up: Axis
    left: float
    top: float
    width: float
    height: float

    def place(self, x: float, y: float) -> tuple[float, float] | None:
        """Return where a point is drawn; None for a point without a place."""
        right, above = self.across.share(x), self.up.share(y)
        if right is None or above is None:
            return None
        return self.left + self.width * right, self.top + self.height * (1 - above)

    def marks(self) -> Iterator[Mark]:
        """Yield both axes with their marks and names."""
        bottom, right = self.top + self.height, self.left + self.width
        yield Label(self.left, self.top - 12, self.up.label)
        for mark in self.up.marks:
            level = bottom - self.height * (self.up.share(mark) or 0.0)
            yield Stroke(f"M{self.left:.1f} {level:.1f}H{right:.1f}")
            yield Label(self.left - 6, level + 4, _written(mark), anchor="end")
        for mark in self.across.marks:
            place = self.left + self.width * (self.across.share(mark) or 0.0)
            yield Stroke(f"M{place:.1f} {bottom:.1f}v4")
            yield Label(place, bottom + 18, _written(mark), anchor="middle")
        yield Label(self.left + self.width / 2, bottom + 36, self.across.label, anchor="middle")


def _written(mark: float) -> str:
    return f"{mark:,.0f}" if 1_000 <= abs(mark) < 1e7 else f"{mark:g}"


# Points and curves

# Width of a letter and height of a line at 11 pixels, estimated: the reader's own font decides them.
_LETTER, _LINE = 6.2, 13.0
_LEFT, _TOP, _BELOW, _GAP = 64.0, 62.0, 64.0, 28.0
_SQUARE = ((-4, -4), (4, -4), (4, 4), (-4, 4))
_TRIANGLE = ((-5, 4), (5, 4), (0, -5))


@dataclass(frozen=True, slots=True)
class Curve:
    """Points (x, y) under one name.

    look: 0, 1, 2: colour and shape, a circle, a square or a triangle.
    joined: draw a line through the points.
    dashed: draw a dashed line without points, to compare others with.
    """

    name: str
    points: Sequence[tuple[float, float]]
    look: int = 0
    joined: bool = False
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class ChartPanel:
    """One field of a picture: its title, the names of its two axes, and its curves."""

    title: str
    across: str
    up: str
    curves: Sequence[Curve]
    log_across: bool = False
    log_up: bool = False


def scatter(
    title: str,
    said: str,
    panels: Sequence[ChartPanel],
    *,
    width: float = 300.0,
    height: float = 240.0,
    beside: float = 150,
) -> str:
    """Return fields of points side by side, as an SVG file.

    said: what the picture shows, in words.
    width, height: of a field, in pixels.
    beside: room for names to the right of each field, in pixels.

    A single point is named beside it, a curve beside its last point. A point that is not finite, or not above 0 on a
    logarithmic axis, is left out.
    """
    step = _LEFT + width + beside
    marks: list[Mark] = []
    for k, panel in enumerate(panels):
        across = Axis.over(panel.across, _coordinates(panel, 0), logarithmic=panel.log_across)
        up = Axis.over(panel.up, _coordinates(panel, 1), logarithmic=panel.log_up)
        frame = _Frame(across, up, _LEFT + k * step, _TOP, width, height)
        marks += _panel(panel, frame, frame.left + width + beside)
    return svg(Picture("chart", title, said, step * len(panels) + _GAP, _TOP + height + _BELOW, marks))


def _coordinates(panel: ChartPanel, axis: int) -> list[float]:
    return [point[axis] for curve in panel.curves for point in curve.points]


def _panel(panel: ChartPanel, frame: _Frame, right: float) -> Iterator[Mark]:
    yield Label(frame.left, frame.top - 36, panel.title, "strong")
    yield from frame.marks()
    names: list[tuple[float, float, str]] = []
    for curve in panel.curves:
        placed = [(frame.place(*point), point) for point in curve.points]
        drawn = [(place, point) for place, point in placed if place is not None]
        yield from _curve(curve, drawn)
        names += [(*place, curve.name) for place, _ in drawn[-1:] if curve.name]
    yield from _names(names, right)


def _curve(curve: Curve, drawn: Sequence[tuple[tuple[float, float], tuple[float, float]]]) -> Iterator[Mark]:
    look = _LOOKS[curve.look % len(_LOOKS)]
    if (curve.joined or curve.dashed) and len(drawn) > 1:
        path = "L".join(f"{x:.1f} {y:.1f}" for (x, y), _ in drawn)
        yield Stroke(f"M{path}", "plain-line dashed" if curve.dashed else f"{look}-line")
    if curve.dashed:
        return
    for (x, y), (across, up) in drawn:
        said = f"{curve.name}: {across:.4g}, {up:.4g}"
        if look == "mark":
            yield Circle(x, y, 4.0, look, said)
            continue
        # Shapes differ as well as colours, for whoever cannot tell the colours apart.
        corners = _SQUARE if look == "warm" else _TRIANGLE
        outline = "L".join(f"{x + a:.1f} {y + b:.1f}" for a, b in corners)
        yield Stroke(f"M{outline}Z", look, said)


def _names(wanted: Sequence[tuple[float, float, str]], right: float) -> Iterator[Mark]:
    """Yield names to the right of their points, or to the left where the field ends, each clear of those before."""
    taken: list[tuple[float, float, float]] = []
    # From top to bottom, so that names keep the order of their points where they are moved.
    for x, y, name in sorted(wanted, key=lambda one: (one[1], one[0])):
        wide = _LETTER * len(name)
        start = x + 9 if x + 9 + wide <= right else x - 9 - wide
        # Alternately below and above, a little farther each time.
        tries = chain([0.0], *((step * 5.0, -step * 5.0) for step in range(1, 40)))
        level = next(y + by for by in tries if not _meets(taken, start, start + wide, y + by))
        taken.append((start, start + wide, level))
        yield Label(start, level + 4, name, "small clear")


def _meets(taken: Sequence[tuple[float, float, float]], start: float, stop: float, level: float) -> bool:
    return any(start < b + 4 and a < stop + 4 and abs(level - y) < _LINE for a, b, y in taken)


# Bars

_ROW, _THICK, _ABOVE, _TITLE, _FOOT = 20.0, 13.0, 30.0, 34.0, 34.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A value that is not negative.

    part: how much of the value is drawn full; None: all of it.
    note: text to the right of the bar.
    """

    name: str
    value: float
    part: float | None = None
    note: str = ""
    look: int = 0


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars under one title, on one scale from 0; unit: the name of the scale."""

    title: str
    unit: str
    bars: Sequence[Bar]


def bars(title: str, said: str, groups: Sequence[Bars], *, names: float = 150.0, width: float = 420.0) -> str:
    """Return groups of bars one below the other, as an SVG file.

    said: what the picture shows, in words.
    names: room for names to the left of the bars, in pixels.
    width: of the longest bar, in pixels.
    """
    marks: list[Mark] = []
    top = _ABOVE
    for group in groups:
        marks += _group(group, top, names, width)
        top += _TITLE + _ROW * len(group.bars) + _FOOT
    return svg(Picture("chart", title, said, names + width + 190, top, marks))


def _group(group: Bars, top: float, left: float, width: float) -> Iterator[Mark]:
    marks = ticks(0.0, max((bar.value for bar in group.bars), default=1.0))
    scale = width / marks[-1]
    first = top + _TITLE - 14
    bottom = first + _ROW * len(group.bars)
    yield Label(16, top, group.title, "strong")
    for mark in marks:
        place = left + scale * mark
        yield Stroke(f"M{place:.1f} {first:.1f}V{bottom:.1f}")
        yield Label(place, bottom + 15, f"{mark:g}", anchor="middle")
    yield Label(left + width + 24, bottom + 15, group.unit)
    for k, bar in enumerate(group.bars):
        yield from _bar(bar, left, first + _ROW * k, scale)


def _bar(bar: Bar, left: float, top: float, scale: float) -> Iterator[Mark]:
    look, middle, whole = _LOOKS[bar.look % len(_LOOKS)], top + _ROW / 2, bar.part is None
    length, upper = scale * max(bar.value, 0.0), top + (_ROW - _THICK) / 2
    said = f"{bar.name}: {bar.value:.4g}" + (f", {bar.note}" if bar.note else "")
    yield Label(left - 8, middle + 4, bar.name, "small", "end")
    # Half a pixel at least, so that a pointer finds a bar of nearly 0 too.
    yield Box(left, upper, max(length, 0.5), _THICK, look if whole else f"{look} faint", said)
    if bar.part is not None:
        yield Box(left, upper, min(scale * max(bar.part, 0.0), length), _THICK, look)
    if bar.note:
        yield Label(left + length + 8, middle + 4, bar.note)


# Lines over versions or over numbers of topics

_MARGIN, _HEAD = 40.0, 44.0
_MOST_POINTS, _MOST_NAMES = 60, 12


@dataclass(frozen=True, slots=True)
class Series:
    """Values at the positions of a line chart; None: a missing value.

    note: a line below the title.
    at_least, at_most: values that the axis covers in any case.
    limit: a value, with its name, that is drawn as a dashed line across the chart.
    """

    title: str
    values: Sequence[float | None]
    note: str = ""
    at_least: float | None = None
    at_most: float | None = None
    limit: tuple[float, str] | None = None


def line_chart(
    series: Series,
    positions: Sequence[str],
    said: Sequence[str] | None = None,
    *,
    left: float,
    top: float,
    chosen: int | None = None,
    width: float = 280.0,
    height: float = 130.0,
) -> Iterator[Mark]:
    """Yield a line chart: title and note above, values as points on a line, names of positions evenly below.

    said: what a pointer on each point reads; None: the name of its position and its value.
    left, top, width, height: in pixels, the names of positions lie below that height.
    chosen: index of the position that a dashed line marks.
    """
    right, bottom, start = left + width, top + height, left + _MARGIN
    ends = [value for value in (series.at_least, *series.values, series.at_most) if value is not None]
    marks = ticks(min(ends, default=0.0), max(ends, default=1.0))
    scale = (height - _HEAD) / (marks[-1] - marks[0])
    step = (width - _MARGIN - 12) / len(positions)
    places = [start + step * (k + 0.5) for k in range(len(positions))]
    levels = [None if value is None else bottom - scale * (value - marks[0]) for value in series.values]
    if series.title:
        yield Label(left, top + 14, series.title, "strong")
    if series.note:
        yield Label(left, top + 30, series.note)
    for mark in marks:
        level = bottom - scale * (mark - marks[0])
        yield Stroke(f"M{start:.1f} {level:.1f}H{right:.1f}")
        yield Label(start - 6, level + 4, f"{mark:g}", anchor="end")
    if series.limit is not None:
        level = bottom - scale * (series.limit[0] - marks[0])
        yield Stroke(f"M{start:.1f} {level:.1f}H{right:.1f}", "chosen")
        yield Label(right, level - 5, series.limit[1], anchor="end")
    if chosen is not None:
        yield Stroke(f"M{places[chosen]:.1f} {top + 40:.1f}V{bottom:.1f}", "chosen")
    yield _line(levels, places)
    # Names that run into each other cannot be read, so only some of many are written.
    every = -(-len(positions) // _MOST_NAMES)
    for name, place in list(zip(positions, places, strict=True))[::every]:
        yield Label(place, bottom + 18, name, anchor="middle")
    if len(positions) <= _MOST_POINTS:
        told = said or [f"{name}: {_short(value)}" for name, value in zip(positions, series.values, strict=True)]
        for place, above, words in zip(places, levels, told, strict=True):
            if above is not None:
                yield Circle(place, above, 3.5, "mark", words)


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def sparkline(values: Sequence[float | None], highest: float, label: str) -> Picture:
    """Return a small line without axes; highest: the top of its scale, whose bottom is 0."""
    width, height = 150.0, 30.0
    places = [6 + (width - 12) * k / max(len(values) - 1, 1) for k in range(len(values))]
    levels = [None if value is None else 4 + (height - 8) * (1 - value / (highest or 1.0)) for value in values]
    ends = [(place, level) for place, level in zip(places, levels, strict=True) if level is not None]
    return Picture("", label, "", width, height, [_line(levels, places), *(Circle(x, y, 3.0) for x, y in ends[-1:])])


def _line(levels: Sequence[float | None], places: Sequence[float]) -> Stroke:
    """Return a line through the points that have a level; a missing one breaks it."""
    drawn, pen = [], "M"
    for level, place in zip(levels, places, strict=True):
        if level is None:
            pen = "M"
            continue
        drawn.append(f"{pen}{place:.1f} {level:.1f}")
        pen = "L"
    # A path without any move is an error in SVG.
    return Stroke("".join(drawn) or "M0 0", "mark-line")
