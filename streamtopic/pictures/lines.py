"""Line charts: values over versions or over numbers of topics."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from streamtopic.pictures.markup import Markup, tag

__all__ = ["Series", "line_chart", "sparkline", "ticks"]


@dataclass(frozen=True, slots=True)
class Series:
    """Values at the positions of a chart, None for none; at_least, at_most: what the axis shows in any case."""

    title: str
    values: Sequence[float | None]
    note: str = ""
    at_least: float | None = None
    at_most: float | None = None


def ticks(low: float, high: float, most: int = 4) -> list[float]:
    """Return round numbers, evenly spaced, that cover low to high: two at least, at most two more than `most`."""
    if not high > low:
        low, high = low - 0.5, high + 0.5
    unit = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(unit * factor for factor in (1, 2, 5, 10) if (high - low) / (unit * factor) <= most * (1 + 1e-9))
    # A value that is on a mark but for rounding needs no further one.
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]


def line_chart(
    series: Series,
    positions: Sequence[str],
    *,
    left: float,
    top: float,
    chosen: int | None = None,
    width: float = 280.0,
) -> Markup:
    """Return one small chart as a group: its title above, values as points on a line, positions evenly below.

    chosen: a position that is marked by a dashed line.
    """
    height, margin = 130.0, 40.0
    known = [value for value in series.values if value is not None]
    low = min([value for value in (series.at_least, *known) if value is not None], default=0.0)
    high = max([value for value in (series.at_most, *known) if value is not None], default=1.0)
    marks = ticks(low, high)
    span = marks[-1] - marks[0]
    places = [margin + (width - margin - 12) * (k + 0.5) / len(positions) for k in range(len(positions))]

    def level(value: float) -> float:
        return 44 + (height - 44) * (1 - (value - marks[0]) / span)

    parts: list[Markup] = [
        tag("text", series.title, x=0, y=14, class_="strong"),
        tag("text", series.note, x=0, y=30, class_="soft small"),
    ]
    for mark in marks:
        parts += [
            tag("path", d=f"M{margin:.1f} {level(mark):.1f}H{width:.1f}", class_="axis"),
            tag("text", f"{mark:g}", x=margin - 6, y=level(mark) + 4, class_="soft small", text_anchor="end"),
        ]
    if chosen is not None:
        parts.append(tag("path", d=f"M{places[chosen]:.1f} 40V{height:.1f}", class_="chosen"))
    parts.append(_line([None if value is None else level(value) for value in series.values], places))
    parts += _points(series.values, positions, places, level, height)
    return tag("g", *parts, transform=f"translate({left:g} {top:g})")


def _points(
    values: Sequence[float | None],
    positions: Sequence[str],
    places: Sequence[float],
    level: Callable[[float], float],
    height: float,
) -> Iterator[Markup]:
    """Yield each position's name below, and its value as a point that tells its number."""
    for name, place, value in zip(positions, places, values, strict=True):
        yield tag("text", name, x=place, y=height + 18, class_="soft small", text_anchor="middle")
        if value is not None:
            yield tag("circle", tag("title", f"{name}: {value:.3g}"), cx=place, cy=level(value), r=3.5, class_="mark")


def _line(levels: Sequence[float | None], places: Sequence[float]) -> Markup:
    drawn, pen = [], "M"
    for level, place in zip(levels, places, strict=True):
        if level is None:
            pen = "M"
            continue
        drawn.append(f"{pen}{place:.1f} {level:.1f}")
        pen = "L"
    return tag("path", d="".join(drawn) or "M0 0", class_="mark-line")


def sparkline(values: Sequence[float | None], highest: float, label: str) -> Markup:
    """Return a small line without axes; `highest` is the top of its scale, 0 the bottom."""
    width, height = 150.0, 30.0
    places = [6 + (width - 12) * k / max(len(values) - 1, 1) for k in range(len(values))]
    levels = [None if value is None else 4 + (height - 8) * (1 - value / (highest or 1.0)) for value in values]
    ends = [(place, level) for place, level in zip(places, levels, strict=True) if level is not None]
    dot = tag("circle", cx=ends[-1][0], cy=ends[-1][1], r=3.0, class_="mark") if ends else Markup("")
    return tag(
        "svg", tag("title", label), _line(levels, places), dot,
        viewBox=f"0 0 {width:g} {height:g}", width=int(width), height=int(height), role="img",
    )  # fmt: skip
