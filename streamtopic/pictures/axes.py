"""Axes of a chart, even or logarithmic, and the sheet that a chart of its own is drawn on."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from streamtopic.pictures.lines import ticks
from streamtopic.pictures.markup import Markup, raw, tag
from streamtopic.pictures.style import PICTURE

__all__ = ["Axis", "Frame", "sheet"]

_MOST_MARKS = 5


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis shows, with the marks on it, ascending; its ends are the first and the last mark."""

    label: str
    marks: tuple[float, ...]
    logarithmic: bool = False

    @classmethod
    def over(cls, label: str, values: Iterable[float], *, logarithmic: bool = False) -> "Axis":
        """Return an axis around the values; on a logarithmic one those that are not above 0 have no place."""
        known = [value for value in values if math.isfinite(value) and (value > 0 or not logarithmic)]
        if logarithmic:
            return cls(label, tuple(_powers(min(known, default=1.0), max(known, default=10.0))), logarithmic=True)
        return cls(label, tuple(ticks(min(known, default=0.0), max(known, default=1.0))))

    def share(self, value: float) -> float | None:
        """Return how far along the axis a value lies, from 0 to 1; None for one that has no place."""
        if not math.isfinite(value) or (self.logarithmic and value <= 0):
            return None
        low, high = self.marks[0], self.marks[-1]
        if self.logarithmic:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)


def _powers(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten around low to high, or fewer of them where those would be too many."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    for factors in ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        steps = [factor * 10.0**power for power in powers for factor in factors]
        first = max(k for k, step in enumerate(steps) if step <= low * (1 + 1e-9))
        last = min(k for k, step in enumerate(steps) if step >= high * (1 - 1e-9))
        found = steps[first : max(last, first + 1) + 1]
        if len(found) <= _MOST_MARKS:
            return found
    every = -(-(len(found) - 1) // (_MOST_MARKS - 1))
    return [found[0] * 10.0 ** (every * k) for k in range(-(-(len(found) - 1) // every) + 1)]


@dataclass(frozen=True, slots=True)
class Frame:
    """Where two axes lie on a sheet: left, top, width and height of the field between them, in pixels."""

    across: Axis
    up: Axis
    left: float
    top: float
    width: float
    height: float

    def place(self, x: float, y: float) -> tuple[float, float] | None:
        """Return where a point is drawn, None for one that has no place."""
        right, above = self.across.share(x), self.up.share(y)
        if right is None or above is None:
            return None
        return self.left + self.width * right, self.top + self.height * (1 - above)

    def drawn(self) -> Iterator[Markup]:
        """Yield the marks of both axes, with their names."""
        bottom, right = self.top + self.height, self.left + self.width
        yield tag("text", self.up.label, x=self.left, y=self.top - 12, class_="soft small")
        for mark in self.up.marks:
            _, level = self._at(self.across.marks[0], mark)
            yield tag("path", d=f"M{self.left:.1f} {level:.1f}H{right:.1f}", class_="axis")
            yield tag("text", _named(mark), x=self.left - 6, y=level + 4, class_="soft small", text_anchor="end")
        for mark in self.across.marks:
            place, _ = self._at(mark, self.up.marks[0])
            yield tag("path", d=f"M{place:.1f} {bottom:.1f}v4", class_="axis")
            yield tag("text", _named(mark), x=place, y=bottom + 18, class_="soft small", text_anchor="middle")
        yield tag(
            "text", self.across.label, x=self.left + self.width / 2, y=bottom + 36, class_="soft small",
            text_anchor="middle",
        )  # fmt: skip

    def _at(self, x: float, y: float) -> tuple[float, float]:
        found = self.place(x, y)
        assert found is not None, "marks have a place on their own axes"  # noqa: S101  for the type checker
        return found


def _named(mark: float) -> str:
    return f"{mark:,.0f}" if 1_000 <= abs(mark) < 1e7 else f"{mark:g}"


def sheet(title: str, said: str, *parts: object, width: float, height: float) -> Markup:
    """Return an SVG that is a file of its own: style, light and dark, a title, and what it shows in words."""
    return tag(
        "svg",
        tag("title", title, id="chart-title"),
        tag("desc", said, id="chart-desc"),
        tag("style", raw(PICTURE)),
        tag("rect", x=0, y=0, width="100%", height=height, class_="paper"),
        *parts,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_labelledby="chart-title chart-desc",
        xmlns="http://www.w3.org/2000/svg",
    )
