"""Forgetting: its cost against how much was learned and how much is forgotten, and how often it takes a retrain.

Documents are of planted topics, 66 tokens among 5,000 words, 50 topics. Case `state` draws and counts them once.
Cases documents-...: the same sets of ten documents are forgotten out of growing numbers. Cases forgotten-...: sets of
growing sizes out of 100,000 documents. Case redis: documents-default through the service's state, the documents in a
real Redis, and the change as Redis keeps it. Each update is of a copy of one model; its seconds are processor time,
certificate included, and medians of the updates that were verified.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopic.bench.figures import Figure, timed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamtopic.bench.forgetting import Point
    from streamtopic.bench.material import Material
    from streamtopic.bench.runner import Option, Result
    from streamtopic.topics.learner_options import LearnerOptions

__all__ = ["CASES", "OPTIONS", "ratios", "text"]

OPTIONS: dict[str, Option] = {"draws": 20, "seed": 0, "largest": 1_000_000, "folder": ""}
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
IN_REDIS = 300_000
FORGOTTEN = 10
FORGET_SIZES = (1, 3, 10, 30, 100, 300, 1_000)
OUT_OF = 100_000
WORDS, TOPICS, TOKENS = 5_000, 50, 66


def _material(largest: int, seed: int, folder: str) -> Material:
    from streamtopic.bench.material import Material
    from streamtopic.errors import UsageError

    sizes = tuple(size for size in SIZES if size <= largest)
    if not sizes:
        raise UsageError(f"largest is {largest}: take at least {SIZES[0]:,}")
    return Material(Path(folder), sizes, WORDS, TOPICS, TOKENS, seed)


def _options(learner: str) -> LearnerOptions:
    from streamtopic.topics.learner_options import LearnerOptions

    return LearnerOptions(n_topics=TOPICS, learner=learner, min_share=0.0, max_df=0.2)  # type: ignore[arg-type]  # a case's own name


def _state(draws: int, seed: int, largest: int, folder: str) -> list[Figure]:  # noqa: ARG001  all cases have all options
    """Draw and count."""
    material = _material(largest, seed, folder)
    drawn, batch = timed(lambda: material.batch)
    figures = [Figure("documents", batch.documents, "documents"), Figure("draw", drawn, "s")]
    for learner in ("default", "paper"):
        weighting = _options(learner).weighting
        seconds, _ = timed(lambda weighting=weighting: [material.counts(size, weighting) for size in material.sizes])  # type: ignore[misc]  # bound now, on purpose
        figures.append(Figure(f"count, {learner}", seconds, "s"))
    kept = sum(path.stat().st_size for path in material.folder.iterdir())
    return [*figures, Figure("size in the folder", kept / 1e6, "MB")]


def _documents(learner: str, draws: int, seed: int, largest: int, folder: str) -> list[Figure]:
    """Forget the same few documents out of growing numbers of documents."""
    from streamtopic.bench.forgetting import forget_sets, forgotten

    material, options = _material(largest, seed, folder), _options(learner)
    gone = forget_sets(material.sizes[0], [FORGOTTEN], draws, seed)
    forgotten(material, material.sizes[0], gone[:2], options)  # compiles what is measured
    points = {size: forgotten(material, size, gone, options)[0] for size in material.sizes}
    return _in_m(points)


def _in_m(points: Mapping[int, Point]) -> list[Figure]:
    from streamtopic.bench.forgetting import power

    figures = [figure for size, point in points.items() for figure in point.figures(f"m = {size:,}")]
    for what, target in (("update", "flat: 0"), ("retrain", "")):
        slope = power([(size, getattr(point, what).cpu) for size, point in points.items()])
        figures.append(Figure(f"{what}, exponent in m", slope, "power", target))
    return figures


def _forgotten(learner: str, draws: int, seed: int, largest: int, folder: str) -> list[Figure]:
    """Forget growing numbers of documents out of the same number."""
    from streamtopic.bench.forgetting import forget_sets, forgotten

    material, options = _material(largest, seed, folder), _options(learner)
    size = max(size for size in material.sizes if size <= OUT_OF)
    forgotten(material, size, forget_sets(size, FORGET_SIZES[:1], 2, seed), options)  # compiles what is measured
    points = forgotten(material, size, forget_sets(size, FORGET_SIZES, draws, seed), options)
    named = zip(FORGET_SIZES, points, strict=True)
    figures = [figure for gone, point in named for figure in point.figures(f"{gone:,} forgotten")]
    return [*figures, *_in_pairs(points)]


def _in_pairs(points: Sequence[Point]) -> list[Figure]:
    """Return how cost grows with pairs: as a power of them, and a cost a pair besides the fixed cost of an update."""
    import numpy as np

    from streamtopic.bench.forgetting import power

    found = [(float(np.median(point.pairs)), point.update.cpu) for point in points if point.verified]
    figures = [Figure("update, exponent in pairs", power(found), "power", "at most 1")]
    if len(found) > 2:
        pairs, cpu = np.array(found).T
        # The fit minimises relative errors: with absolute ones the largest set alone would decide.
        slope, fixed = np.polyfit(pairs, cpu, 1, w=1 / cpu)
        figures.append(Figure("update, a pair", 1e9 * float(slope), "ns"))
        figures.append(Figure("update, whatever is forgotten", float(fixed), "CPU s"))
    return figures


def _redis(draws: int, seed: int, largest: int, folder: str) -> list[Figure]:
    """Forget the same few documents out of growing numbers that are counted in Redis."""
    from streamtopic.bench.forgetting import forget_sets
    from streamtopic.bench.forgetting_redis import Stored
    from streamtopic.local import LocalRedis
    from streamtopic.state import Connection

    material = _material(largest, seed, folder)
    gone = forget_sets(material.sizes[0], [FORGOTTEN], draws, seed)
    points, figures = {}, []
    with LocalRedis() as redis, Connection(redis.url) as connection:
        stored = Stored(material, connection, _options("default"))
        for size in (size for size in material.sizes if size <= IN_REDIS):
            before = stored.held
            seconds, _ = timed(partial(stored.grow, size))
            if not before:
                stored.forgotten(gone[:2])  # compiles what is measured
            points[size], more = stored.forgotten(gone)
            figures += [Figure(f"m = {size:,}: {one.name}", one.value, one.unit) for one in more]
            speed = (size - before) / seconds
            figures.append(Figure(f"m = {size:,}: counted into Redis", speed, "documents/s"))
    return [*_in_m(points), *figures]


def ratios(found: dict[str, dict[str, float]]) -> list[Figure]:
    """Return the cost of an update at the most documents over that at the fewest, within each case."""
    figures = []
    for case, values in found.items():
        cost = [value for name, value in values.items() if re.fullmatch(r"m = .*: update", name)]
        if len(cost) > 1:
            figures.append(Figure(f"{case}: update at most documents over fewest", cost[-1] / cost[0], "x"))
    return figures


_SHOWN = ("pairs forgotten", "update", "update, wall", "retrain", "retrain over update", "retrains needed",
          "a deletion served, retrains included", "largest certificate")  # fmt: skip


def text(result: Result) -> str:
    """Return a table for each case, a row for each size, and below it why retrains were needed, and the rest."""
    from streamtopic.console import table

    shown = [result.machine]
    for case in result.cases:
        rows: dict[str, dict[str, str]] = {}
        below = []
        for figure in case.figures:
            size, colon, name = figure.name.partition(": ")
            value = f"{figure.value:,.0f}" if figure.value >= 1e4 else f"{figure.value:,.4g}"
            if colon and name in _SHOWN:
                rows.setdefault(size, {})[name] = value
            else:
                below.append(f"{figure.name}: {value} {figure.unit}{f' ({figure.target})' if figure.target else ''}")
        cells = [[size, *(row.get(name, "-") for name in _SHOWN)] for size, row in rows.items()]
        head = [
            "",
            "pairs",
            "update, CPU s",
            "wall s",
            "retrain, CPU s",
            "ratio",
            "retrains",
            "served, CPU s",
            "certificate",
        ]
        listed = [table(head, cells)] if cells else []
        shown.append("\n".join([f"{case.case}, peak memory {case.peak_memory / 1e6:.0f} MB", "", *listed, *below]))
    return "\n\n".join([*shown, *(f"{one.name}: {one.value:.2f} {one.unit}" for one in result.ratios)])


CASES = {
    "state": _state,
    **{f"documents-{learner}": partial(_documents, learner) for learner in ("default", "paper")},
    **{f"forgotten-{learner}": partial(_forgotten, learner) for learner in ("default", "paper")},
    "redis": _redis,
}
