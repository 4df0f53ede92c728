"""The page of one version for its readers: topics, their map, correlations, history, tasks and the guarantee."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamtopic.errors import InvalidRelease
from streamtopic.report.charts import Box, Circle, Label, LinkedMarks, Mark, Picture, Stroke, sparkline
from streamtopic.report.model_view import (
    Float,
    ModelView,
    TopicHistory,
    TopicMap,
    correlations,
    place_topics,
    similar_order,
    spread,
    strongest,
    topic_history,
    view_of,
)
from streamtopic.report.rendering import render
from streamtopic.report.slices_section import slices_section
from streamtopic.signed import Release
from streamtopic.signed.release import GIVEN_AWAY, HELPS
from streamtopic.topics.over_time import SliceReport

__all__ = ["map_figure", "model_page"]

_SPEAKING = 10
# More topics than these would be a cloud on the map, and squares too small to read among the correlations.
_MAPPED, _RELATED = 100, 40


def model_page(
    release: Release,
    earlier: Sequence[Release] = (),
    withdrawn: Sequence[int] = (),
    slices: SliceReport | None = None,
) -> str:
    """Return a self-contained page about a release, without network and scripts.

    earlier: versions before it that still stand, in order; the page follows topics through them.
    withdrawn: numbers of earlier versions that were withdrawn; the page names them and does not show them.
    slices: topics over time or by class, for readers who may see the documents.

    Raises InvalidRelease for a withdrawn release.
    """
    if release.withdrawn:
        raise InvalidRelease(
            f"release {release.version} is withdrawn: it holds documents that were deleted since; take a later one"
        )
    topics = None
    if release.payload.A is not None:
        history = topic_history([*earlier, release])
        topics = _topics(view_of(release), history)
    figures = sorted(release.quality.items())
    quality = {name: f"{value:.2f}" for name, value in figures}
    tasks = [_task(release, name) for name in release.heads]
    title = f"{release.envelope.model}, version {release.version}"
    over_time = None if slices is None else slices_section(slices)
    limit = f"{GIVEN_AWAY}. What helps: {HELPS}"
    return render(
        "model.html",
        title=title,
        envelope=release.envelope,
        guarantee=release.guarantee,
        quality=quality,
        topics=topics,
        tasks=tasks,
        withdrawn=withdrawn,
        slices=over_time,
        limit=limit,
    )


def _topics(view: ModelView, found: TopicHistory) -> dict[str, object]:
    """Return the values of the page's sections about topics."""
    # One scale for all lines, so that they can be compared.
    highest = max(max(path.shares) for path in found.paths)
    first = found.steps[0].envelope.version
    last = found.steps[-1].envelope.version
    paths = []
    for topic in view.order:
        path = found.paths[topic]
        label = f"shares of topic {topic} from version {first} to {last}"
        line = sparkline(path.shares, highest, label)
        paths.append({"path": path, "line": line})
    cards = [_card(view, topic) for topic in view.order]
    figure = map_figure(view)
    related = _correlations(view)
    return {
        "cards": cards,
        "map": figure,
        "correlations": related,
        "steps": found.steps,
        "paths": paths,
    }


def _card(view: ModelView, topic: int) -> dict[str, object]:
    """Return a topic's words, each with the length of its bar in percent of the longest bar."""
    at = list(view.top[topic])
    probabilities = view.A[at, topic].tolist()
    longest = max(probabilities, default=0.0) or 1.0
    words = []
    chances = view.here(topic).tolist()
    for word, probability, here in zip(at, probabilities, chances, strict=True):
        # Half a percent at least, so that every word has a bar.
        length = max(100 * probability / longest, 0.5)
        bar = f"{length:.1f}"
        words.append({"word": view.words[word], "bar": bar, "in_topic": probability, "here": here})
    return {"topic": topic, "share": view.shares[topic], "words": words}


def _task(release: Release, name: str) -> dict[str, object]:
    """Return a task with the words that speak most for each class: the largest weights less the classes' mean."""
    head = release.head(name)
    B = release.task_weights(name)
    # A constant that all classes share in a word's weights does not decide between the classes.
    apart = B - B.mean(axis=1, keepdims=True)
    classes = []
    for c, title in enumerate(head.classes):
        order = np.argsort(-apart[:, c], kind="stable")
        strong = order[:_SPEAKING]
        words = " ".join(release.words[k] for k in strong)
        classes.append((title, words))
    return {"name": name, "documents": head.documents, "topics": len(head.topics), "classes": classes}


# The map: topics near each other where they use the same words, as large as their shares

_NAMED, _LONGEST = 40, 24
_WIDTH, _LETTER, _NAME_HEIGHT = 960.0, 6.4, 16.0


@dataclass(frozen=True, slots=True)
class _Node:
    """A topic on the map; name: "" for a small topic, whose number alone is written."""

    topic: int
    share: float
    name: str
    radius: float

    @property
    def box(self) -> tuple[float, float]:
        """Width and height of the circle with the name below."""
        width = max(2 * self.radius, _drawn_width(self.name))
        height = 2 * self.radius + 6
        if self.name:
            height += _NAME_HEIGHT
        return width + 6, height

    def drawn(self, x: float, y: float) -> LinkedMarks:
        """Return the circle, its number and its name, as a link to the topic's card; (x, y): middle of the box."""
        if self.name:
            y -= _NAME_HEIGHT / 2
        marks: list[Mark] = [Circle(x, y, self.radius, "ring")]
        marks.append(Label(x, y + 4.5, self.topic, "strong", "middle"))
        if self.name:
            below = y + self.radius + 13
            marks.append(Label(x, below, self.name, "small", "middle"))
        said = f"Topic {self.topic}, {self.share:.1%}: {self.name}"
        return LinkedMarks(f"topic-{self.topic}", said, marks)


def map_figure(view: ModelView) -> dict[str, object]:
    """Return the map of the largest topics and the table of their distances."""
    topics = sorted(view.order[:_MAPPED])
    plan = place_topics(view.A[:, topics])
    named = set(view.order[:_NAMED])
    nodes = []
    for topic in topics:
        share = float(view.shares[topic])
        # All circles together take about a tenth of the canvas.
        area = share * _WIDTH * 560 * 0.1
        # Large enough for the number within.
        radius = max((area / np.pi) ** 0.5, 11.0)
        name = ""
        if topic in named:
            name = _shortened(view.name(topic), _LONGEST)
        nodes.append(_Node(topic, share, name, radius))
    sizes = np.array([node.box for node in nodes])
    areas = sizes.prod(axis=1)
    needed = float(areas.sum()) / _WIDTH
    # Enough room to move boxes apart, and a smaller canvas for a few topics.
    roomy = min(560.0, 4 * needed)
    height = max(420.0, roomy, 2.6 * needed)
    wanted = _scaled(plan.positions, sizes, height)
    places = spread(wanted, sizes, _WIDTH, height)
    marks = []
    for node, place in zip(nodes, places.tolist(), strict=True):
        x, y = place
        marks.append(node.drawn(x, y))
    said = f"{len(topics)} topics by their words; the table below has the distances"
    picture = Picture("map", "Map of topics", said, _WIDTH, height, marks)
    rows = _nearest(view, plan, topics)
    return {
        "picture": picture,
        "shown": plan.shown,
        "drawn": len(topics),
        "all": len(view.shares),
        "rows": rows,
    }


def _scaled(positions: Float, sizes: Float, height: float) -> Float:
    """Fit positions into the canvas, both axes by one factor, so that distances keep their proportions."""
    # A box as large as the largest fits at every edge.
    room = np.array([_WIDTH, height]) - sizes.max(axis=0)
    low = positions.min(axis=0)
    high = positions.max(axis=0)
    middle = (high + low) / 2
    # One topic, or topics of the same words, have no extent: all lie in the middle then.
    extent = np.maximum(high - low, 1e-12)
    factor = 0.0
    if extent.max() > 1e-9:
        factor = float(np.min(room / extent))
    # SVG counts pixels downwards.
    scale = [factor, -factor]
    centre = [_WIDTH / 2, height / 2]
    return np.asarray((positions - middle) * scale + centre)


def _drawn_width(name: str) -> float:
    """Estimate the width of a name in pixels; the reader's own font decides it."""
    # Letters of East Asian scripts are as wide as two others.
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in name)
    return _LETTER * (len(name) + wide)


def _shortened(name: str, most: int) -> str:
    """Return a name of at most so many letters, an ellipsis in place of the rest."""
    if len(name) <= most:
        return name
    return name[: most - 1] + "\u2026"


def _nearest(view: ModelView, plan: TopicMap, topics: list[int]) -> list[dict[str, object]]:
    """Return the rows of the table of distances; topics: on the map."""
    rows: list[dict[str, object]] = []
    for place, topic in enumerate(topics):
        others = plan.distances[place].copy()
        others[place] = np.inf
        order = np.argsort(others, kind="stable")
        ranked = order[:3]
        # With three topics or fewer the topic itself is among them.
        near = [k for k in ranked if k != place]
        nearest = [f"{topics[k]} ({others[k]:.2f})" for k in near]
        said = ", ".join(nearest)
        words = view.name(topic, 5)
        rows.append({"topic": topic, "share": view.shares[topic], "words": words, "nearest": said})
    return rows


# Correlations: which topics meet in documents

_CELL, _LEFT, _TOP = 20.0, 170.0, 30.0


def _correlations(view: ModelView) -> dict[str, object]:
    """Return the picture of correlations between the largest topics, and the numbers behind it."""
    topics = sorted(view.order[:_RELATED])
    part = correlations(view)[np.ix_(topics, topics)]
    order = similar_order(part)
    names = [f"{topic}  {view.name(topic)}" for topic in topics]
    labels = [_shortened(name, 25) for name in names]
    side = _CELL * len(topics) + 8
    grid = _grid(topics, labels, order)
    cells = _cells(topics, part, order)
    marks = [*grid, *cells]
    title = "Correlations between topics"
    width = _LEFT + side
    height = _TOP + side
    picture = Picture("heat", title, "the table below has all values", width, height, marks)
    most = strongest(part, topics, 1)
    least = strongest(part, topics, -1)
    said_most = _pairs(view, most)
    said_least = _pairs(view, least)
    return {
        "picture": picture,
        "most": said_most,
        "least": said_least,
        "drawn": len(topics),
        "all": len(view.shares),
        "topics": topics,
        "rows": part.tolist(),
    }


def _grid(topics: list[int], labels: list[str], order: list[int]) -> list[Mark]:
    """Return rows and columns with their names; order: positions in `topics`."""
    bottom = _TOP + _CELL * len(topics)
    right = _LEFT + _CELL * len(topics)
    marks: list[Mark] = []
    for row, k in enumerate(order):
        x = _LEFT + _CELL * row
        y = _TOP + _CELL * row
        middle = _CELL / 2
        beside = y + middle + 4
        marks.append(Label(_LEFT - 8, beside, labels[k], "small", "end"))
        marks.append(Label(x + middle, _TOP - 8, topics[k], "small", "middle"))
        above_row = f"M{_LEFT:g} {y:g}H{right:g}"
        left_of_column = f"M{x:g} {_TOP:g}V{bottom:g}"
        marks += [Stroke(above_row), Stroke(left_of_column)]
    # Each square has its line above and to the left; the last ones need theirs below and to the right too.
    corner = f"M{_LEFT:g} {bottom:g}H{right:g}V{_TOP:g}"
    marks.append(Stroke(corner))
    return marks


def _cells(topics: list[int], part: Float, order: list[int]) -> list[Mark]:
    """Return a square for each positive correlation and a circle for each negative one; the area is the strength."""
    r = len(topics)
    # A topic with itself is always 1, and would be stronger than all others.
    strongest_of_all = np.abs(part - np.eye(r)).max(initial=0.0)
    full = max(float(strongest_of_all), 1e-12)
    marks: list[Mark] = []
    for row, column in np.ndindex(r, r):
        k = order[row]
        j = order[column]
        value = float(part[k, j])
        # A mark below a fiftieth of the strongest would be a speck; the table has its value.
        if k == j or abs(value) < full / 50:
            continue
        relative = (abs(value) / full) ** 0.5
        # A pixel of space on each side, and large enough for a pointer to find.
        most = (_CELL - 2) / 2
        half = max(most * relative, 0.8)
        x = _LEFT + _CELL * (column + 0.5)
        y = _TOP + _CELL * (row + 0.5)
        one = topics[k]
        other = topics[j]
        said = f"{one} and {other}: {value:+.2f}"
        # Signs differ in shape as well as in colour, for readers who cannot tell the colours apart.
        if value < 0:
            marks.append(Circle(x, y, half, "warm", said))
        else:
            side = 2 * half
            left = x - half
            upper = y - half
            marks.append(Box(left, upper, side, side, "mark", said))
    return marks


def _pairs(view: ModelView, pairs: list[tuple[int, int, float]]) -> str:
    """Return the first two pairs of topics in words."""
    said = []
    for a, b, value in pairs[:2]:
        first = view.name(a)
        second = view.name(b)
        names = f"{first}; {second}"
        said.append(f"{a} and {b} ({names}: {value:+.2f})")
    return ", ".join(said)
