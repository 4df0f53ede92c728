"""Points between two axes, alone or joined to curves, each under its name."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from streamtopic.pictures.axes import Axis, Frame, sheet
from streamtopic.pictures.markup import Markup, tag

__all__ = ["Curve", "Panel", "scatter"]

_LETTER, _LINE = 6.2, 13.0
_LEFT, _TOP, _BELOW, _GAP = 64.0, 62.0, 64.0, 28.0
_COLOURS = ("mark", "warm", "plain")


@dataclass(frozen=True, slots=True)
class Curve:
    """Points (x, y) under one name.

    look: 0, 1, 2: colour and shape, a circle, a square or a triangle. joined: by a line; dashed: one that is only there
    to compare with, without points.
    """

    name: str
    points: Sequence[tuple[float, float]]
    look: int = 0
    joined: bool = False
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One field of a picture: its title, what stands below it, and its curves; `across`, `up`: names of the axes."""

    title: str
    across: str
    up: str
    curves: Sequence[Curve]
    log_across: bool = False
    log_up: bool = False


def scatter(
    title: str, said: str, panels: Sequence[Panel], *, width: float = 300.0, height: float = 240.0, beside: float = 150
) -> Markup:
    """Return fields side by side as an SVG of its own.

    said: what is to be seen, in words. width, height: of a field; beside: room for names to the right of each. A
    single point is named beside it, a curve beside its last point; points with no place on their axes (not finite, or
    not above 0 on a logarithmic axis) are left out.
    """
    step = _LEFT + width + beside
    drawn = [
        part for k, panel in enumerate(panels) for part in _panel(panel, _LEFT + k * step, _TOP, width, height, beside)
    ]
    return sheet(title, said, *drawn, width=step * len(panels) + _GAP, height=_TOP + height + _BELOW)


def _panel(panel: Panel, left: float, top: float, width: float, height: float, beside: float) -> Iterator[Markup]:
    points = [point for curve in panel.curves for point in curve.points]
    across = Axis.over(panel.across, [x for x, _ in points], logarithmic=panel.log_across)
    up = Axis.over(panel.up, [y for _, y in points], logarithmic=panel.log_up)
    frame = Frame(across, up, left, top, width, height)
    yield tag("text", panel.title, x=left, y=top - 36, class_="strong")
    yield from frame.drawn()
    names: list[tuple[float, float, str]] = []
    for curve in panel.curves:
        places = [place for x, y in curve.points if (place := frame.place(x, y)) is not None]
        yield from _curve(curve, places, frame)
        names += [(x, y, curve.name) for x, y in places[-1:] if curve.name]
    yield from _names(names, left + width + beside)


def _curve(curve: Curve, places: Sequence[tuple[float, float]], frame: Frame) -> Iterator[Markup]:
    colour = _COLOURS[curve.look % len(_COLOURS)]
    if (curve.joined or curve.dashed) and len(places) > 1:
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        yield tag("path", d=f"M{path}", class_="plain-line dashed" if curve.dashed else f"{colour}-line")
    if curve.dashed:
        return
    for (x, y), at in zip(curve.points, (frame.place(x, y) for x, y in curve.points), strict=True):
        if at is not None:
            yield _mark(curve, at, f"{curve.name}: {x:.4g}, {y:.4g}", colour)


def _mark(curve: Curve, at: tuple[float, float], said: str, colour: str) -> Markup:
    (x, y), name = at, tag("title", said)
    if curve.look % len(_COLOURS) == 0:
        return tag("circle", name, cx=x, cy=y, r=4.0, class_=colour)
    corners = [(-4, -4), (4, -4), (4, 4), (-4, 4)] if curve.look % len(_COLOURS) == 1 else [(-5, 4), (5, 4), (0, -5)]
    return tag("path", name, d="M" + "L".join(f"{x + a:.1f} {y + b:.1f}" for a, b in corners) + "Z", class_=colour)


def _names(wanted: Sequence[tuple[float, float, str]], right: float) -> Iterator[Markup]:
    """Yield names to the right of their points, or to the left where the sheet ends, each clear of those before."""
    taken: list[tuple[float, float, float]] = []
    for x, y, name in sorted(wanted, key=lambda one: (one[1], one[0])):
        wide = _LETTER * len(name)
        start = x + 9 if x + 9 + wide <= right else x - 9 - wide
        # Alternately below and above, a little farther each time.
        tries = chain([0.0], *((step * 5.0, -step * 5.0) for step in range(1, 40)))
        level = next(y + by for by in tries if not _meets(taken, start, start + wide, y + by))
        taken.append((start, start + wide, level))
        yield tag("text", name, x=start, y=level + 4, class_="small clear")


def _meets(taken: Sequence[tuple[float, float, float]], start: float, stop: float, level: float) -> bool:
    return any(start < b + 4 and a < stop + 4 and abs(level - y) < _LINE for a, b, y in taken)
