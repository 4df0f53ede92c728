"""Cumulative epsilon by version, drawn as SVG in the page itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamtopic.service.evidence.markup import Markup, element

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["spending_chart"]

_WIDTH, _HEIGHT = 640, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 16, 36
_MOST_DOTS = 60
_MOST_LABELS = 12


def spending_chart(versions: Sequence[Mapping[str, Any]], budget: float) -> Markup | None:
    """Draw the versions of a base, each with its cumulative_epsilon (None: no bound left), against the budget.

    Returns None without a bounded one: there is nothing to draw.
    """
    bounded = [(place, v) for place, v in enumerate(versions) if v["cumulative_epsilon"] is not None]
    if not bounded:
        return None
    most = 1.08 * max(budget, *(v["cumulative_epsilon"] for _, v in bounded))
    points = [(_x(place, len(versions)), _y(v["cumulative_epsilon"], most), v) for place, v in bounded]
    first, last = versions[0], bounded[-1][1]
    label = (
        f"Cumulative epsilon from {first['cumulative_epsilon'] or 0:.3g} at version {first['version']} to "
        f"{last['cumulative_epsilon']:.3g} at version {last['version']}, of a budget of {budget:g}"
    )
    parts = [element("title", label), *_frame(most, budget), *_names(versions)]
    parts.append(element("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points), class_="line"))
    if len(points) <= _MOST_DOTS:
        parts += [_dot(x, y, v) for x, y, v in points]
    return element("svg", *parts, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=label)


def _x(place: int, count: int) -> float:
    inner = _WIDTH - _LEFT - _RIGHT
    return _LEFT + inner * (place + 0.5) / count


def _y(value: float, most: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / most


def _frame(most: float, budget: float) -> list[Markup]:
    ground, edge = f"{_y(0, most):.1f}", f"{_y(budget, most):.1f}"
    ends = {"x1": str(_LEFT), "x2": str(_WIDTH - _RIGHT)}
    return [
        element("line", **ends, y1=ground, y2=ground, class_="axis"),
        element("line", **ends, y1=edge, y2=edge, class_="budget"),
        _label(_LEFT - 6, float(ground) + 4, "0", "end"),
        _label(_LEFT - 6, float(edge) + 4, f"{budget:g}", "end"),
        _label(_WIDTH - _RIGHT, float(edge) - 5, "budget", "end"),
        _label(_WIDTH - _RIGHT, _HEIGHT - 4, "version", "end"),
    ]


def _names(versions: Sequence[Mapping[str, Any]]) -> list[Markup]:
    step = -(-len(versions) // _MOST_LABELS)
    return [
        _label(_x(place, len(versions)), _HEIGHT - 20, str(version["version"]), "middle")
        for place, version in enumerate(versions)
        if place % step == 0
    ]


def _label(x: float, y: float, words: str, anchor: str) -> Markup:
    return element("text", words, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)


def _dot(x: float, y: float, version: Mapping[str, Any]) -> Markup:
    told = f"version {version['version']} ({version['kind']}): {version['cumulative_epsilon']:.4g}"
    return element("circle", element("title", told), cx=f"{x:.1f}", cy=f"{y:.1f}", r="4", class_="dot")
