"""Charts: points and curves, small lines. `templates/picture.svg` writes their marks, for light and dark."""

import math
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from streamtopic.pages.rendering import render

__all__ = [
    "Axis",
    "ChartPanel",
    "Curve",
    "Mark",
    "Picture",
    "box",
    "circle",
    "label",
    "scatter",
    "small_line",
    "stroke",
    "ticks",
]

# Classes of templates/picture.css: their colours follow a light screen, a dark one, and paper.
_LOOKS = ("mark", "warm", "plain")
_MOST_MARKS = 5
_SQUARE = ((-4, -4), (4, -4), (4, 4), (-4, 4))
_TRIANGLE = ((-5, 4), (5, 4), (0, -5))
# Width of a letter and height of a line at 11 pixels. Both are estimates, since the reader's own font decides.
LETTER, _LINE = 6.4, 13.0

Point = tuple[float, float]


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
    within: "Sequence[Mark]" = ()


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


def _powers(low: float, high: float) -> list[float]:
    """Return powers of ten around low to high, with their double and fivefold if these are few."""
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
class Axis:
    """An axis with its label and ascending marks; the first and the last mark are its ends."""

    label: str
    marks: Sequence[float]
    logarithmic: bool = False

    @classmethod
    def over(cls, label: str, values: Iterable[float], *, logarithmic: bool = False, whole: bool = False) -> "Axis":
        """Return an axis around the values. Only values above 0 have a place on a logarithmic axis."""
        placed = [value for value in values if math.isfinite(value) and (value > 0 or not logarithmic)]
        low, high = min(placed, default=1.0 if logarithmic else 0.0), max(placed, default=10.0 if logarithmic else 1.0)
        return cls(label, _powers(low, high) if logarithmic else ticks(low, high, whole=whole), logarithmic)

    def share(self, value: float) -> float | None:
        """Return the place of a value along the axis, from 0 to 1; None for a value without a place."""
        if not math.isfinite(value) or (self.logarithmic and value <= 0):
            return None
        low, high = self.marks[0], self.marks[-1]
        if self.logarithmic:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)


@dataclass(frozen=True, slots=True)
class Curve:
    """Points (x, y) under one name.

    look: 0 for circles, 1 for squares, 2 for triangles, each in its own colour.
    joined: whether to draw a line through the points.
    dashed: whether to draw a dashed line without points, to compare other curves with.
    """

    name: str
    points: Sequence[Point]
    look: int = 0
    joined: bool = False
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class ChartPanel:
    """One field of a picture: its title, the names of its two axes, and its curves.

    whole: whether the marks across are integers, such as numbers of versions.
    from_zero: whether the axis upwards begins at 0.
    """

    title: str
    across: str
    up: str
    curves: Sequence[Curve]
    log_across: bool = False
    log_up: bool = False
    whole: bool = False
    from_zero: bool = False


_LEFT, _TOP, _BELOW, _GAP = 64.0, 62.0, 64.0, 28.0


def scatter(
    title: str,
    said: str,
    panels: Sequence[ChartPanel],
    *,
    name: str = "chart",
    width: float = 300.0,
    height: float = 240.0,
    beside: float = 150,
) -> Picture:
    """Return fields of points side by side.

    said: the content of the picture in words.
    width, height: of a field, in pixels.
    beside: room for names to the right of each field, in pixels.

    A single point is named to its right, a curve at its last point. A point that is not finite, or not above 0 on a
    logarithmic axis, is left out.
    """
    step = _LEFT + width + beside
    marks = chain.from_iterable(_panel(one, _LEFT + k * step, width, height, beside) for k, one in enumerate(panels))
    return Picture(name, title, said, step * len(panels) + _GAP, _TOP + height + _BELOW, list(marks))


def _panel(panel: ChartPanel, left: float, width: float, height: float, beside: float) -> Iterator[Mark]:
    points = list(chain.from_iterable(curve.points for curve in panel.curves))
    across = Axis.over(panel.across, (x for x, _ in points), logarithmic=panel.log_across, whole=panel.whole)
    heights = [y for _, y in points] + [0.0] * panel.from_zero
    up = Axis.over(panel.up, heights, logarithmic=panel.log_up)
    bottom, right = _TOP + height, left + width
    yield label(left, _TOP - 36, panel.title, "strong")
    yield label(left, _TOP - 12, up.label)
    for mark in up.marks:
        level = bottom - height * (up.share(mark) or 0.0)
        yield stroke([(left, level), (right, level)])
        yield label(left - 6, level + 4, _written(mark), anchor="end")
    for mark in across.marks:
        place = left + width * (across.share(mark) or 0.0)
        yield stroke([(place, bottom), (place, bottom + 4)])
        yield label(place, bottom + 18, _written(mark), anchor="middle")
    yield label(left + width / 2, bottom + 36, across.label, anchor="middle")
    ends: list[tuple[float, float, str]] = []
    for curve in panel.curves:
        drawn = []
        for x, y in curve.points:
            right_share, up_share = across.share(x), up.share(y)
            if right_share is not None and up_share is not None:
                told = f"{curve.name}: {x:.4g}, {y:.4g}"
                drawn.append((left + width * right_share, bottom - height * up_share, told))
        yield from _curve(curve, drawn)
        ends += [(x, y, curve.name) for x, y, _ in drawn[-1:] if curve.name]
    # After all curves, so that a name lies above the lines and clear of the other names.
    yield from _names(ends, right + beside)


def _written(mark: float) -> str:
    return f"{mark:,.0f}" if 1_000 <= abs(mark) < 1e7 else f"{mark:g}"


def _curve(curve: Curve, drawn: Sequence[tuple[float, float, str]]) -> Iterator[Mark]:
    """Yield the line and the points of a curve; drawn: x and y in pixels, and what a pointer there shows."""
    look = _LOOKS[curve.look % len(_LOOKS)]
    if (curve.joined or curve.dashed) and len(drawn) > 1:
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


def small_line(
    title: str, values: Sequence[float], highest: float, band: Sequence[Point] = (), told: Sequence[str] = ()
) -> Picture:
    """Return a small line without axes.

    highest: top of the scale, whose bottom is 0.
    band: the least and the greatest value at each place, drawn around the line.
    told: text that a pointer on each place shows.
    """
    width, height = 150.0, 30.0
    step = (width - 12) / max(len(values) - 1, 1)

    def at(k: int, value: float) -> Point:
        return 6 + step * k, 4 + (height - 8) * (1 - value / (highest or 1.0))

    line = [at(k, value) for k, value in enumerate(values)]
    below = [at(k, low) for k, (low, _) in enumerate(band)]
    above = [at(k, high) for k, (_, high) in enumerate(band)]
    around = [stroke([*above, *reversed(below)], "mark faint", closed=True)] if band else []
    points = [circle(x, y, 2.5, "mark", said) for (x, y), said in zip(line, told, strict=False)]
    return Picture("", title, "", width, height, [*around, stroke(line, "mark-line"), *points, circle(*line[-1], 3.0)])
