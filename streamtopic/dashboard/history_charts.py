"""Capacity and epsilon over versions, as charts; the table of versions holds the same figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamtopic.report.charts import Picture, Series, line_chart
from streamtopic.report.rendering import moment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["capacity_chart", "epsilon_chart"]

_WIDTH, _HEIGHT = 420.0, 200.0
_MOST_VERSIONS = 60


def capacity_chart(versions: Sequence[Mapping[str, Any]]) -> Picture:
    """Return the share of the deletion capacity that each version had used, in percent."""
    values = [_used(version) for version in versions]
    series = Series("Deletion capacity used, %", values, at_least=0.0, at_most=100.0, limit=(100.0, "capacity"))
    said = "Share of the deletion capacity of its base that each version had used."
    return _chart("capacity", series, versions, said)


def epsilon_chart(versions: Sequence[Mapping[str, Any]], budget: float) -> Picture:
    """Return the epsilon that was spent since the base model at each version. budget: what may be spent."""
    values = [version["cumulative_epsilon"] for version in versions]
    series = Series("ε since the base model", values, at_least=0.0, at_most=budget, limit=(budget, "budget"))
    return _chart("epsilon", series, versions, "Unlearning epsilon spent since the base model, at each version.")


def _used(version: Mapping[str, Any]) -> float | None:
    """Return the share of the capacity that a version had used, in percent; None for a base that bears none."""
    return 100.0 * version["forgotten"] / version["capacity"] if version["capacity"] else None


def _chart(name: str, series: Series, versions: Sequence[Mapping[str, Any]], said: str) -> Picture:
    shown = versions[-_MOST_VERSIONS:]
    values = series.values[-_MOST_VERSIONS:]
    positions = [str(version["version"]) for version in shown]
    points = []
    for version, value in zip(shown, values, strict=True):
        figure = "none" if value is None else f"{value:.4g}"
        points.append(f"version {version['version']}, {moment(version['created'])}: {figure}")
    drawn = Series(series.title, values, "by version", series.at_least, series.at_most, series.limit)
    marks = tuple(line_chart(drawn, positions, points, left=4.0, top=4.0, width=_WIDTH - 12, height=_HEIGHT - 30))
    return Picture(name, series.title, said, _WIDTH, _HEIGHT, marks)
