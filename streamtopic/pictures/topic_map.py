"""A map of topics: near each other where they use the same words, as large as their share."""

import unicodedata

import numpy as np
import numpy.typing as npt

from streamtopic.pictures.layout import Map, place_topics, spread
from streamtopic.pictures.markup import Markup, tag
from streamtopic.pictures.page import behind, figure, ruled_table
from streamtopic.pictures.view import ModelView

__all__ = ["MOST", "map_figure", "topic_map"]

Float = npt.NDArray[np.float64]

MOST = 100
"""More topics than these would be a cloud; the largest are drawn."""

_NAMED = 40
_WIDTH = 960.0
_LETTER = 6.4
_NAME_HEIGHT = 16.0
_LONGEST = 24


def map_figure(view: ModelView) -> Markup:
    """Return the map with a caption and the table behind it."""
    topics = sorted(view.order[:MOST])
    plan = place_topics(view.A[:, topics])
    left_out = "" if len(topics) == len(view.shares) else f" The {len(topics)} largest topics are drawn."
    caption = (
        "Topics that share words lie near each other; the area of a circle is the topic's share. Two axes can show "
        f"{plan.shown:.0%} of the squared distances between topics, the table holds them in full; circles that would "
        f"overlap are moved apart.{left_out}"
    )
    return tag(
        "div",
        figure(topic_map(view, plan, topics), caption),
        behind("Distances as a table", _table(view, plan, topics)),
    )


def topic_map(view: ModelView, plan: Map, topics: list[int]) -> Markup:
    """Return the map of these topics as SVG; each circle leads to its topic's card."""
    shares = view.shares[topics]
    named = {topics[k] for k in np.argsort(-shares, kind="stable")[:_NAMED]}
    names = [_shortened(view.name(topic)) if topic in named else "" for topic in topics]
    # All circles together take about a tenth of the canvas, none is too small for its number.
    radii = np.maximum(np.sqrt(shares * _WIDTH * 560 * 0.1 / np.pi), 11.0)
    sizes = np.stack([np.maximum(2 * radii, [_wide(name) for name in names]) + 6, 2 * radii + 6], axis=1)
    sizes[:, 1] += [_NAME_HEIGHT if name else 0.0 for name in names]
    needed = float(sizes.prod(axis=1).sum()) / _WIDTH
    height = max(420.0, min(560.0, 4 * needed), 2.6 * needed)
    places = spread(_scaled(plan.positions, sizes, height), sizes, _WIDTH, height)
    nodes = [
        _node(topic, float(share), name, float(radius), float(x), float(y - (_NAME_HEIGHT / 2 if name else 0)))
        for topic, share, name, radius, (x, y) in zip(topics, shares, names, radii, places, strict=True)
    ]
    return tag(
        "svg",
        tag("title", "Map of topics", id="map-title"),
        tag("desc", f"{len(topics)} topics by their words; the table below has the distances", id="map-desc"),
        *nodes,
        viewBox=f"0 0 {_WIDTH:g} {height:.0f}",
        role="img",
        aria_labelledby="map-title map-desc",
    )


def _node(topic: int, share: float, name: str, radius: float, x: float, y: float) -> Markup:
    parts = [
        tag("title", f"Topic {topic}, {share:.1%}: {name}"),
        tag("circle", cx=x, cy=y, r=radius, class_="ring"),
        tag("text", topic, x=x, y=y + 4.5, text_anchor="middle", class_="strong"),
    ]
    if name:
        parts.append(tag("text", name, x=x, y=y + radius + 13, text_anchor="middle", class_="small"))
    return tag("a", *parts, href=f"#topic-{topic}")


def _scaled(positions: Float, sizes: Float, height: float) -> Float:
    """Fit positions into the canvas, both axes by one factor, so that distances keep their proportions."""
    room = np.array([_WIDTH, height]) - sizes.max(axis=0)
    middle = (positions.max(axis=0) + positions.min(axis=0)) / 2
    extent = np.maximum(positions.max(axis=0) - positions.min(axis=0), 1e-12)
    factor = float(np.min(room / extent)) if extent.max() > 1e-9 else 0.0
    return np.asarray((positions - middle) * [factor, -factor] + [_WIDTH / 2, height / 2])


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "\u2026"


def _wide(name: str) -> float:
    """Estimate how wide a name is drawn: nobody can measure it before the reader's own font is known."""
    return sum(_LETTER * (2 if unicodedata.east_asian_width(letter) in "WF" else 1) for letter in name)


def _table(view: ModelView, plan: Map, topics: list[int]) -> Markup:
    rows: list[list[object]] = []
    for place, topic in enumerate(topics):
        others = plan.distances[place].copy()
        others[place] = np.inf
        nearest = [int(k) for k in np.argsort(others, kind="stable")[:3] if len(topics) > 1 and k != place]
        said = ", ".join(f"{topics[k]} ({others[k]:.2f})" for k in nearest)
        rows.append([topic, f"{view.shares[topic]:.1%}", view.name(topic, 5), said or "-"])
    head = ["topic", "share", "words", "nearest topics (distance, 0 to 1)"]
    return ruled_table("Distances are square roots of Jensen-Shannon divergences in bits", head, rows)
