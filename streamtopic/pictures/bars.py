"""Bars: one number beside the other, each whole or up to the part of it that something else explains."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from streamtopic.pictures.axes import sheet
from streamtopic.pictures.lines import ticks
from streamtopic.pictures.markup import Markup, tag

__all__ = ["Bar", "Bars", "bars"]

_ROW, _THICK, _TOP, _TITLE, _BELOW = 20.0, 13.0, 30.0, 34.0, 34.0
_LOOKS = ("mark", "warm", "plain")


@dataclass(frozen=True, slots=True)
class Bar:
    """One value, not negative; part: how much of it is drawn full, None for all; note: what stands behind it."""

    name: str
    value: float
    part: float | None = None
    note: str = ""
    look: int = 0


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars under one title, on one scale from 0; `unit` names it."""

    title: str
    unit: str
    bars: Sequence[Bar]


def bars(title: str, said: str, groups: Sequence[Bars], *, names: float = 150.0, width: float = 420.0) -> Markup:
    """Return groups of bars one below the other as an SVG of its own.

    said: what is to be seen, in words. names: room for names to the left; width: of the longest bar. Notes stand to the
    right of the bars.
    """
    drawn: list[Markup] = []
    top = _TOP
    for group in groups:
        drawn += _group(group, top, names, width)
        top += _TITLE + _ROW * len(group.bars) + _BELOW
    return sheet(title, said, *drawn, width=names + width + 190, height=top)


def _group(group: Bars, top: float, names: float, width: float) -> Iterator[Markup]:
    marks = ticks(0.0, max((bar.value for bar in group.bars), default=1.0))
    first, bottom = top + _TITLE - 14, top + _TITLE - 14 + _ROW * len(group.bars)

    def place(value: float) -> float:
        return names + width * max(value, 0.0) / marks[-1]

    yield tag("text", group.title, x=16, y=top, class_="strong")
    for mark in marks:
        yield tag("path", d=f"M{place(mark):.1f} {first:.1f}V{bottom:.1f}", class_="axis")
        yield tag("text", f"{mark:g}", x=place(mark), y=bottom + 15, class_="soft small", text_anchor="middle")
    yield tag("text", group.unit, x=names + width + 24, y=bottom + 15, class_="soft small")
    for k, bar in enumerate(group.bars):
        yield from _bar(bar, first + _ROW * k, names, place(bar.value), place(bar.part or 0.0))


def _bar(bar: Bar, top: float, start: float, stop: float, full: float) -> Iterator[Markup]:
    look, middle = _LOOKS[bar.look % len(_LOOKS)], top + _ROW / 2
    yield tag("text", bar.name, x=start - 8, y=middle + 4, class_="small", text_anchor="end")
    said = tag("title", f"{bar.name}: {bar.value:.4g}" + (f", {bar.note}" if bar.note else ""))
    shape = {"x": start, "y": top + (_ROW - _THICK) / 2, "height": _THICK}
    whole = bar.part is None
    yield tag("rect", said, width=max(stop - start, 0.5), class_=look if whole else f"{look} faint", **shape)
    if not whole:
        yield tag("rect", width=max(min(full, stop) - start, 0.0), class_=look, **shape)
    if bar.note:
        yield tag("text", bar.note, x=stop + 8, y=middle + 4, class_="soft small")
