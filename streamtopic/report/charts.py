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
    """Text.

    x, y: of its base line, in pixels.
    look: classes of style.
    anchor: `start`, `middle` or `end`, the part of the text that lies at x.
    """

    kind: ClassVar[str] = "label"
    x: float
    y: float
    text: object
    look: str = "soft small"
    anchor: str = "start"


@dataclass(frozen=True, slots=True)
class Stroke:
    """Lines.

    d: moves of a pen, as SVG writes them.
    look: class of style.
    said: text that a pointer on the lines shows.
    """

    kind: ClassVar[str] = "stroke"
    d: str
    look: str = "axis"
    said: str = ""


@dataclass(frozen=True, slots=True)
class Circle:
    """A circle.

    x, y, r: middle and radius, in pixels.
    look, said: as in Stroke.
    """

    kind: ClassVar[str] = "circle"
    x: float
    y: float
    r: float
    look: str = "mark"
    said: str = ""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle.

    x, y: upper left corner, in pixels.
    look, said: as in Stroke.
    """

    kind: ClassVar[str] = "box"
    x: float
    y: float
    width: float
    height: float
    look: str = "mark"
    said: str = ""


@dataclass(frozen=True, slots=True)
class LinkedMarks:
    """Marks that lead to an element of the page.

    to: id of the element.
    said: as in Stroke.
    """

    kind: ClassVar[str] = "link"
    to: str
    said: str
    marks: "Sequence[Mark]"


Mark = Label | Stroke | Circle | Box | LinkedMarks


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


def svg(picture: Picture) -> str:
    """Return a picture as a file of its own, with its style."""
    return render("picture.svg", picture=picture)


def _level_line(start: float, stop: float, level: float, look: str = "axis") -> Stroke:
    """Return a line from left to right."""
    return Stroke(f"M{start:.1f} {level:.1f}H{stop:.1f}", look)


def _upright_line(place: float, top: float, bottom: float, look: str = "axis") -> Stroke:
    """Return a line downwards."""
    return Stroke(f"M{place:.1f} {top:.1f}V{bottom:.1f}", look)


# Axes


def ticks(low: float, high: float, most: int = 4) -> list[float]:
    """Return round numbers, evenly spaced, that cover low to high: at least two, at most two more than `most`."""
    if not high > low:
        low -= 0.5
        high += 0.5
    size = high - low
    exponent = math.floor(math.log10(size / most))
    unit = 10.0**exponent
    # The tolerance lets a range that needs exactly `most` steps have them.
    most_steps = most * (1 + 1e-9)
    # Readers count by ones, twos and fives.
    steps = (unit * factor for factor in (1, 2, 5, 10))
    step = next(step for step in steps if size / step <= most_steps)
    # A value that lies on a mark except for rounding needs no further mark.
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    # Rounded, since 3 times 0.1 is not written as 0.3.
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
        finite = [value for value in values if math.isfinite(value)]
        if logarithmic:
            positive = [value for value in finite if value > 0]
            least = min(positive, default=1.0)
            greatest = max(positive, default=10.0)
            return cls(label, tuple(_powers(least, greatest)), logarithmic=True)
        least = min(finite, default=0.0)
        greatest = max(finite, default=1.0)
        return cls(label, tuple(ticks(least, greatest)))

    def share(self, value: float) -> float | None:
        """Return the place of a value along the axis, from 0 to 1; None for a value without a place."""
        if not math.isfinite(value) or (self.logarithmic and value <= 0):
            return None
        low = self.marks[0]
        high = self.marks[-1]
        if self.logarithmic:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)


def _powers(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten around low to high, or fewer of them where these would be too many."""
    # One power more on each side: rounding of the logarithm must not leave an end outside.
    lowest = math.floor(math.log10(low)) - 1
    highest = math.ceil(math.log10(high)) + 1
    powers = range(lowest, highest + 1)
    # A value that lies on a step except for rounding is at its end.
    least = low * (1 + 1e-9)
    greatest = high * (1 - 1e-9)
    for factors in ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        steps = [factor * 10.0**power for power in powers for factor in factors]
        first = max(k for k, step in enumerate(steps) if step <= least)
        last = min(k for k, step in enumerate(steps) if step >= greatest)
        found = steps[first : max(last, first + 1) + 1]
        if len(found) <= _MOST_MARKS:
            return found
    # More than four powers of ten: equal factors keep the marks at equal distances.
    span = len(found) - 1
    every = -(-span // (_MOST_MARKS - 1))
    steps_needed = -(-span // every)
    return [found[0] * 10.0 ** (every * k) for k in range(steps_needed + 1)]


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
        """Return the place of a point in pixels; None for a point without a place."""
        right = self.across.share(x)
        above = self.up.share(y)
        if right is None or above is None:
            return None
        # SVG counts pixels downwards.
        down = 1 - above
        x = self.left + self.width * right
        y = self.top + self.height * down
        return x, y

    def marks(self) -> Iterator[Mark]:
        """Yield both axes with their marks and names."""
        bottom = self.top + self.height
        right = self.left + self.width
        yield Label(self.left, self.top - 12, self.up.label)
        for mark in self.up.marks:
            share = self.up.share(mark) or 0.0
            level = bottom - self.height * share
            yield _level_line(self.left, right, level)
            yield Label(self.left - 6, level + 4, _written(mark), anchor="end")
        for mark in self.across.marks:
            share = self.across.share(mark) or 0.0
            place = self.left + self.width * share
            yield Stroke(f"M{place:.1f} {bottom:.1f}v4")
            yield Label(place, bottom + 18, _written(mark), anchor="middle")
        middle = self.left + self.width / 2
        yield Label(middle, bottom + 36, self.across.label, anchor="middle")


def _written(mark: float) -> str:
    """Return a mark's number as text."""
    if 1_000 <= abs(mark) < 1e7:
        return f"{mark:,.0f}"
    return f"{mark:g}"


# Points and curves

# Width of a letter and height of a line at 11 pixels. Both are estimates, since the reader's own font decides.
_LETTER, _LINE = 6.2, 13.0
_LEFT, _TOP, _BELOW, _GAP = 64.0, 62.0, 64.0, 28.0
# Places of a name beside its point: alternately below and above, a little farther each time.
_SHIFTS = (0.0, *chain.from_iterable((5.0 * step, -5.0 * step) for step in range(1, 40)))
_SQUARE = ((-4, -4), (4, -4), (4, 4), (-4, 4))
_TRIANGLE = ((-5, 4), (5, 4), (0, -5))


@dataclass(frozen=True, slots=True)
class Curve:
    """Points (x, y) under one name.

    look: 0 for circles, 1 for squares, 2 for triangles, each in its own colour.
    joined: whether to draw a line through the points.
    dashed: whether to draw a dashed line without points, to compare other curves with.
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

    said: the content of the picture in words.
    width, height: of a field, in pixels.
    beside: room for names to the right of each field, in pixels.

    A single point is named beside it, a curve beside its last point. A point that is not finite, or not above 0 on a
    logarithmic axis, is left out.
    """
    step = _LEFT + width + beside
    marks: list[Mark] = []
    for k, panel in enumerate(panels):
        left = _LEFT + k * step
        points = list(chain.from_iterable(curve.points for curve in panel.curves))
        horizontal = [x for x, _ in points]
        vertical = [y for _, y in points]
        across = Axis.over(panel.across, horizontal, logarithmic=panel.log_across)
        up = Axis.over(panel.up, vertical, logarithmic=panel.log_up)
        frame = _Frame(across, up, left, _TOP, width, height)
        marks += _panel(panel, frame, left + width + beside)
    whole_width = step * len(panels) + _GAP
    whole_height = _TOP + height + _BELOW
    return svg(Picture("chart", title, said, whole_width, whole_height, marks))


def _panel(panel: ChartPanel, frame: _Frame, right: float) -> Iterator[Mark]:
    """Yield the marks of a field; right: the end of the room for names, in pixels."""
    yield Label(frame.left, frame.top - 36, panel.title, "strong")
    yield from frame.marks()
    names: list[tuple[float, float, str]] = []
    for curve in panel.curves:
        drawn = []
        for point in curve.points:
            place = frame.place(*point)
            if place is not None:
                drawn.append((place, point))
        yield from _curve(curve, drawn)
        if drawn and curve.name:
            (x, y), _ = drawn[-1]
            names.append((x, y, curve.name))
    # After all curves, so that a name lies above the lines and clear of the other names.
    yield from _names(names, right)


def _curve(curve: Curve, drawn: Sequence[tuple[tuple[float, float], tuple[float, float]]]) -> Iterator[Mark]:
    """Yield the line and the points of a curve; drawn: places in pixels, each with the values that it stands for."""
    look = _LOOKS[curve.look % len(_LOOKS)]
    if (curve.joined or curve.dashed) and len(drawn) > 1:
        path = _path([place for place, _ in drawn])
        line = "plain-line dashed" if curve.dashed else f"{look}-line"
        yield Stroke(path, line)
    if curve.dashed:
        return
    for (x, y), (across, up) in drawn:
        said = f"{curve.name}: {across:.4g}, {up:.4g}"
        if look == "mark":
            yield Circle(x, y, 4.0, look, said)
            continue
        # Shapes differ as well as colours, for readers who cannot tell the colours apart.
        corners = _SQUARE if look == "warm" else _TRIANGLE
        moved = [(x + right, y + down) for right, down in corners]
        outline = _path(moved)
        yield Stroke(f"{outline}Z", look, said)


def _path(places: Sequence[tuple[float, float]]) -> str:
    """Return the moves of a pen from place to place."""
    points = (f"{x:.1f} {y:.1f}" for x, y in places)
    return "M" + "L".join(points)


def _names(wanted: Sequence[tuple[float, float, str]], right: float) -> Iterator[Mark]:
    """Yield names to the right of their points, or to the left where the field ends, each clear of earlier names.

    wanted: x and y of each point in pixels, and its name.
    right: the end of the room for names, in pixels.
    """
    taken: list[tuple[float, float, float]] = []
    # From top to bottom, so that names keep the order of their points where they are moved.
    for x, y, name in sorted(wanted, key=lambda one: (one[1], one[0])):
        wide = _LETTER * len(name)
        start = x + 9
        if start + wide > right:
            start = x - 9 - wide
        stop = start + wide
        levels = (y + shift for shift in _SHIFTS)
        level = next(one for one in levels if not _meets(taken, start, stop, one))
        taken.append((start, stop, level))
        yield Label(start, level + 4, name, "small clear")


def _meets(taken: Sequence[tuple[float, float, float]], start: float, stop: float, level: float) -> bool:
    """Return whether a name would touch one of the taken places (start, stop, level)."""
    for left, right, height in taken:
        beside = start < right + 4 and left < stop + 4
        if beside and abs(level - height) < _LINE:
            return True
    return False


# Bars

_ROW, _THICK, _ABOVE, _TITLE, _FOOT = 20.0, 13.0, 30.0, 34.0, 34.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A value that is not negative.

    part: the part of the value whose bar is filled; None for all of it.
    note: text to the right of the bar.
    """

    name: str
    value: float
    part: float | None = None
    note: str = ""
    look: int = 0


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars under one title, on one scale from 0.

    unit: name of the scale.
    """

    title: str
    unit: str
    bars: Sequence[Bar]


def bars(title: str, said: str, groups: Sequence[Bars], *, names: float = 150.0, width: float = 420.0) -> str:
    """Return groups of bars one below the other, as an SVG file.

    said: the content of the picture in words.
    names: room for names to the left of the bars, in pixels.
    width: of the longest bar, in pixels.
    """
    marks: list[Mark] = []
    top = _ABOVE
    for group in groups:
        marks += _group(group, top, names, width)
        top += _TITLE + _ROW * len(group.bars) + _FOOT
    whole_width = names + width + 190
    return svg(Picture("chart", title, said, whole_width, top, marks))


def _group(group: Bars, top: float, left: float, width: float) -> Iterator[Mark]:
    """Yield a group of bars; left: the common beginning of the bars, in pixels."""
    longest = max((bar.value for bar in group.bars), default=1.0)
    marks = ticks(0.0, longest)
    scale = width / marks[-1]
    first = top + _TITLE - 14
    bottom = first + _ROW * len(group.bars)
    yield Label(16, top, group.title, "strong")
    for mark in marks:
        place = left + scale * mark
        yield _upright_line(place, first, bottom)
        yield Label(place, bottom + 15, f"{mark:g}", anchor="middle")
    yield Label(left + width + 24, bottom + 15, group.unit)
    for k, bar in enumerate(group.bars):
        row = first + _ROW * k
        yield from _bar(bar, left, row, scale)


def _bar(bar: Bar, left: float, top: float, scale: float) -> Iterator[Mark]:
    """Yield a bar with its name and note; scale: pixels of 1."""
    full = _LOOKS[bar.look % len(_LOOKS)]
    faint = f"{full} faint"
    middle = top + _ROW / 2
    upper = top + (_ROW - _THICK) / 2
    length = scale * max(bar.value, 0.0)
    said = f"{bar.name}: {bar.value:.4g}"
    if bar.note:
        said += f", {bar.note}"
    yield Label(left - 8, middle + 4, bar.name, "small", "end")
    # Half a pixel at least, so that a pointer finds a bar of nearly 0 too.
    yield Box(left, upper, max(length, 0.5), _THICK, full if bar.part is None else faint, said)
    if bar.part is not None:
        filled = scale * max(bar.part, 0.0)
        yield Box(left, upper, min(filled, length), _THICK, full)
    if bar.note:
        yield Label(left + length + 8, middle + 4, bar.note)


# Lines over versions or over numbers of topics

_MARGIN, _HEAD = 40.0, 44.0
_MOST_POINTS, _MOST_NAMES = 60, 12


@dataclass(frozen=True, slots=True)
class Series:
    """Values at the positions of a line chart.

    values: None for a missing value.
    note: a line below the title.
    at_least, at_most: values that the axis covers in any case.
    limit: a value and its name, drawn as a dashed line across the chart.
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

    positions: names of the positions.
    said: text that a pointer on each point shows; None for the name of its position and its value.
    left, top, width, height: in pixels; the names of positions lie below that height.
    chosen: index of the position that a dashed line marks.
    """
    right = left + width
    bottom = top + height
    start = left + _MARGIN
    covered = (series.at_least, *series.values, series.at_most)
    ends = [value for value in covered if value is not None]
    marks = ticks(min(ends, default=0.0), max(ends, default=1.0))
    lowest = marks[0]
    scale = (height - _HEAD) / (marks[-1] - lowest)
    step = (width - _MARGIN - 12) / len(positions)
    places = [start + step * (k + 0.5) for k in range(len(positions))]
    levels: list[float | None] = []
    for value in series.values:
        if value is None:
            levels.append(None)
            continue
        above = scale * (value - lowest)
        levels.append(bottom - above)
    if series.title:
        yield Label(left, top + 14, series.title, "strong")
    if series.note:
        yield Label(left, top + 30, series.note)
    for mark in marks:
        level = bottom - scale * (mark - lowest)
        yield _level_line(start, right, level)
        yield Label(start - 6, level + 4, f"{mark:g}", anchor="end")
    if series.limit is not None:
        limit, name = series.limit
        level = bottom - scale * (limit - lowest)
        yield _level_line(start, right, level, "chosen")
        yield Label(right, level - 5, name, anchor="end")
    if chosen is not None:
        yield _upright_line(places[chosen], top + 40, bottom, "chosen")
    yield _line(levels, places)
    # Names that run into each other cannot be read, so only some of many are written.
    every = -(-len(positions) // _MOST_NAMES)
    for name, place in zip(positions[::every], places[::every], strict=True):
        yield Label(place, bottom + 18, name, anchor="middle")
    # Points of a dense chart would cover the line.
    if len(positions) > _MOST_POINTS:
        return
    points = zip(places, levels, series.values, strict=True)
    for k, (place, point_level, value) in enumerate(points):
        if point_level is None or value is None:
            continue
        words = said[k] if said else f"{positions[k]}: {value:.3g}"
        yield Circle(place, point_level, 3.5, "mark", words)


def sparkline(values: Sequence[float | None], highest: float, label: str) -> Picture:
    """Return a small line without axes.

    values: None for a missing value.
    highest: top of the scale, whose bottom is 0.
    label: title of the picture.
    """
    width, height = 150.0, 30.0
    steps = max(len(values) - 1, 1)
    # A topic may have a share of 0 in all versions.
    top = highest or 1.0
    places: list[float] = []
    levels: list[float | None] = []
    end: Circle | None = None
    for k, value in enumerate(values):
        x = 6 + (width - 12) * k / steps
        places.append(x)
        if value is None:
            levels.append(None)
            continue
        y = 4 + (height - 8) * (1 - value / top)
        levels.append(y)
        end = Circle(x, y, 3.0)
    marks: list[Mark] = [_line(levels, places)]
    if end is not None:
        marks.append(end)
    return Picture("", label, "", width, height, marks)


def _line(levels: Sequence[float | None], places: Sequence[float]) -> Stroke:
    """Return a line through the points that have a level; a missing level breaks the line."""
    drawn: list[str] = []
    pen = "M"
    for level, place in zip(levels, places, strict=True):
        if level is None:
            pen = "M"
            continue
        drawn.append(f"{pen}{place:.1f} {level:.1f}")
        pen = "L"
    # A path without any move is an error in SVG.
    return Stroke("".join(drawn) or "M0 0", "mark-line")
