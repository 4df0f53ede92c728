"""Which topics meet in documents: correlations between the topics of two words of one document."""

import numpy as np
import numpy.typing as npt

from streamtopic.pictures.markup import Markup, tag
from streamtopic.pictures.page import behind, figure, ruled_table
from streamtopic.pictures.view import ModelView, correlations

__all__ = ["MOST", "correlation_figure", "similar_order", "strongest"]

Float = npt.NDArray[np.float64]

MOST = 40
"""A larger picture could not be read; the largest topics are drawn."""

_CELL = 20.0
_LEFT = 170.0
_TOP = 30.0
_NOTABLE = 0.05
_PAIRS = 5


def correlation_figure(view: ModelView) -> Markup:
    """Return the picture with a caption in words and the table behind it."""
    related = correlations(view)
    topics = sorted(view.order[:MOST])
    part = related[np.ix_(topics, topics)]
    order = similar_order(part)
    caption = tag(
        "span",
        "How the topics of two words of one document go together: blue squares more often than by chance, orange "
        "circles less often; the area is the strength, the strongest pair fills its cell. Topics that meet are "
        "neighbours. ",
        _sentence("Meet most", strongest(part, topics, 1), view),
        _sentence("Meet least", strongest(part, topics, -1), view),
    )
    if len(topics) < len(view.shares):
        caption = tag("span", caption, f"The {len(topics)} largest topics are drawn.")
    head = ["topic", *topics]
    rows = [[topic, *(f"{value:.2f}" for value in part[k])] for k, topic in enumerate(topics)]
    table = behind(
        "Correlations as a table",
        ruled_table("Correlations between the topics of two words of one document", head, rows),
    )
    return tag("div", figure(_picture(view, part, topics, order), caption), table)


def strongest(related: Float, topics: list[int], sign: int) -> list[tuple[int, int, float]]:
    """Return the pairs of topics that go together (sign 1) or apart (-1) most, at least a little."""
    first, second = np.triu_indices(len(topics), 1)
    values = related[first, second]
    best = np.argsort(-sign * values, kind="stable")[:_PAIRS]
    return [(topics[first[k]], topics[second[k]], float(values[k])) for k in best if sign * values[k] >= _NOTABLE]


def _sentence(start: str, pairs: list[tuple[int, int, float]], view: ModelView) -> str:
    if not pairs:
        return ""
    said = [f"{a} and {b} ({view.name(a)}; {view.name(b)}: {value:+.2f})" for a, b, value in pairs[:2]]
    return f"{start}: {', '.join(said)}. "


def similar_order(related: Float) -> list[int]:
    """Return an order in which similar rows are neighbours: average linkage, leaves arranged best."""
    if len(related) < 3:
        return list(range(len(related)))
    from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering

    apart = (1.0 - related)[np.triu_indices(len(related), 1)]
    tree = linkage(apart, "average")
    return [int(leaf) for leaf in leaves_list(optimal_leaf_ordering(tree, apart))]


def _picture(view: ModelView, part: Float, topics: list[int], order: list[int]) -> Markup:
    r = len(topics)
    strongest_pair = max(float(np.abs(part - np.eye(r)).max(initial=0.0)), 1e-12)
    width, height = _LEFT + _CELL * r + 8, _TOP + _CELL * r + 8
    parts: list[Markup] = []
    for row, k in enumerate(order):
        middle = _TOP + _CELL * (row + 0.5)
        name = f"{topics[k]}  {view.name(topics[k])}"
        label = name if len(name) <= 25 else name[:24] + "\u2026"
        parts += [
            tag("text", label, x=_LEFT - 8, y=middle + 4, text_anchor="end", class_="small"),
            tag("text", topics[k], x=_LEFT + _CELL * (row + 0.5), y=_TOP - 8, text_anchor="middle", class_="small"),
            tag("path", d=f"M{_LEFT:g} {_TOP + _CELL * row:g}H{width - 8:g}", class_="axis"),
            tag("path", d=f"M{_LEFT + _CELL * row:g} {_TOP:g}V{height - 8:g}", class_="axis"),
        ]
        parts += [
            _cell(topics[k], topics[j], float(part[k, j]), strongest_pair, _LEFT + _CELL * (column + 0.5), middle)
            for column, j in enumerate(order)
            if j != k and abs(part[k, j]) >= strongest_pair / 50
        ]
    # Not stretched beyond its own size where there are few topics.
    return tag(
        "svg",
        tag("title", "Correlations between topics", id="heat-title"),
        tag("desc", "the table below has all values", id="heat-desc"),
        *parts,
        viewBox=f"0 0 {width:g} {height:g}",
        style=f"max-width:{1.5 * width:.0f}px",
        role="img",
        aria_labelledby="heat-title heat-desc",
    )


def _cell(one: int, other: int, value: float, full: float, x: float, y: float) -> Markup:
    half = max((_CELL - 2) / 2 * (abs(value) / full) ** 0.5, 0.8)
    title = tag("title", f"{one} and {other}: {value:+.2f}")
    if value < 0:
        return tag("circle", title, cx=x, cy=y, r=half, class_="warm")
    return tag("rect", title, x=x - half, y=y - half, width=2 * half, height=2 * half, class_="mark")
