"""The page of one version for its readers: topics, their map, correlations, history, tasks and the guarantee."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamtopic.errors import InvalidRelease
from streamtopic.report.charts import Box, Circle, Label, LinkedMarks, Mark, Picture, Stroke, sparkline
from streamtopic.report.model_view import Float, ModelView, correlations, similar_order, strongest, view_of
from streamtopic.report.rendering import render
from streamtopic.report.topic_history import TopicHistory, topic_history
from streamtopic.report.topic_layout import TopicMap, place_topics, spread
from streamtopic.signed import Release
from streamtopic.signed.release import GIVEN_AWAY, HELPS

__all__ = ["model_page"]

_SPEAKING = 10
# More topics than these would be a cloud on the map, and squares too small to read among the correlations.
_MAPPED, _RELATED = 100, 40


def model_page(release: Release, earlier: Sequence[Release] = (), withdrawn: Sequence[int] = ()) -> str:
    """Return a self-contained page about a release: no network, no script.

    earlier: versions before it that still stand, in order; the page follows topics through them.
    withdrawn: numbers of earlier versions that do not stand; the page names them and does not show them.

    Raises InvalidRelease for a withdrawn release.
    """
    if release.withdrawn:
        raise InvalidRelease(
            f"release {release.version} is withdrawn: it holds documents that were deleted since; take a later one"
        )
    topics = None if release.payload.A is None else _topics(view_of(release), topic_history([*earlier, release]))
    return render(
        "model.html",
        title=f"{release.envelope.model}, version {release.version}",
        envelope=release.envelope,
        guarantee=release.guarantee,
        quality={name: f"{value:.2f}" for name, value in sorted(release.quality.items())},
        topics=topics,
        tasks=[_task(release, name) for name in release.heads],
        withdrawn=withdrawn,
        limit=f"{GIVEN_AWAY}. What helps: {HELPS}",
    )


def _topics(view: ModelView, found: TopicHistory) -> dict[str, object]:
    """Return what the page shows where topics are published."""
    highest = max(max(path.shares) for path in found.paths)
    first, last = found.steps[0].envelope.version, found.steps[-1].envelope.version
    paths = []
    for topic in view.order:
        path = found.paths[topic]
        label = f"shares of topic {topic} from version {first} to {last}"
        paths.append({"path": path, "line": sparkline(path.shares, highest, label)})
    return {
        "cards": [_card(view, topic) for topic in view.order],
        "map": _map(view),
        "correlations": _correlations(view),
        "steps": found.steps,
        "paths": paths,
    }


def _card(view: ModelView, topic: int) -> dict[str, object]:
    """Return a topic's words; bar: length, in percent of the bar of its most frequent shown word."""
    at = list(view.top[topic])
    probabilities = view.A[at, topic].tolist()
    longest = max(probabilities, default=0.0) or 1.0
    words = [
        {"word": view.words[word], "bar": f"{max(100 * p / longest, 0.5):.1f}", "in_topic": p, "here": here}
        for word, p, here in zip(at, probabilities, view.here(topic).tolist(), strict=True)
    ]
    return {"topic": topic, "share": view.shares[topic], "words": words}


def _task(release: Release, name: str) -> dict[str, object]:
    """Return a task with the words that speak most for each class: the largest weights less the classes' mean."""
    head, B = release.head(name), release.task_weights(name)
    # Weights of all classes may share a constant, which decides nothing between them.
    apart = B - B.mean(axis=1, keepdims=True)
    classes = []
    for c, title in enumerate(head.classes):
        strong = np.argsort(-apart[:, c], kind="stable")[:_SPEAKING]
        classes.append((title, " ".join(release.words[k] for k in strong)))
    return {"name": name, "documents": head.documents, "topics": len(head.topics), "classes": classes}


# The map: topics near each other where they use the same words, as large as their shares

_NAMED, _LONGEST = 40, 24
_WIDTH, _LETTER, _NAME_HEIGHT = 960.0, 6.4, 16.0


@dataclass(frozen=True, slots=True)
class _Node:
    topic: int
    share: float
    name: str
    radius: float

    @property
    def box(self) -> tuple[float, float]:
        """Width and height of the circle with the name below."""
        wide = max(2 * self.radius, _drawn_width(self.name))
        return wide + 6, 2 * self.radius + 6 + (_NAME_HEIGHT if self.name else 0.0)

    def drawn(self, x: float, y: float) -> LinkedMarks:
        """Return the circle, its number and its name, as a link to the topic's card; (x, y): middle of the box."""
        y -= _NAME_HEIGHT / 2 if self.name else 0
        marks: list[Mark] = [
            Circle(x, y, self.radius, "ring"),
            Label(x, y + 4.5, self.topic, "strong", "middle"),
        ]
        if self.name:
            marks.append(Label(x, y + self.radius + 13, self.name, "small", "middle"))
        return LinkedMarks(f"topic-{self.topic}", f"Topic {self.topic}, {self.share:.1%}: {self.name}", marks)


def _map(view: ModelView) -> dict[str, object]:
    """Return the map of the largest topics and the table of their distances."""
    topics = sorted(view.order[:_MAPPED])
    plan = place_topics(view.A[:, topics])
    named = set(view.order[:_NAMED])
    nodes = []
    for topic in topics:
        # All circles together take about a tenth of the canvas, none is too small for its number.
        radius = max((float(view.shares[topic]) * _WIDTH * 560 * 0.1 / np.pi) ** 0.5, 11.0)
        name = _shortened(view.name(topic), _LONGEST) if topic in named else ""
        nodes.append(_Node(topic, float(view.shares[topic]), name, radius))
    sizes = np.array([node.box for node in nodes])
    needed = float(sizes.prod(axis=1).sum()) / _WIDTH
    # Room enough to move boxes apart; a few topics need no large canvas.
    height = max(420.0, min(560.0, 4 * needed), 2.6 * needed)
    places = spread(_scaled(plan.positions, sizes, height), sizes, _WIDTH, height)
    marks = [node.drawn(float(x), float(y)) for node, (x, y) in zip(nodes, places, strict=True)]
    said = f"{len(topics)} topics by their words; the table below has the distances"
    return {
        "picture": Picture("map", "Map of topics", said, _WIDTH, height, marks),
        "shown": plan.shown,
        "drawn": len(topics),
        "all": len(view.shares),
        "rows": _nearest(view, plan, topics),
    }


def _scaled(positions: Float, sizes: Float, height: float) -> Float:
    """Fit positions into the canvas, both axes by one factor, so that distances keep their proportions."""
    room = np.array([_WIDTH, height]) - sizes.max(axis=0)
    middle = (positions.max(axis=0) + positions.min(axis=0)) / 2
    # One topic, or topics of the same words, have no extent: all lie in the middle then.
    extent = np.maximum(positions.max(axis=0) - positions.min(axis=0), 1e-12)
    factor = float(np.min(room / extent)) if extent.max() > 1e-9 else 0.0
    return np.asarray((positions - middle) * [factor, -factor] + [_WIDTH / 2, height / 2])


def _drawn_width(name: str) -> float:
    """Estimate the width of a name in pixels: the reader's own font decides it."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in name)
    return _LETTER * (len(name) + wide)


def _shortened(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "\u2026"


def _nearest(view: ModelView, plan: TopicMap, topics: list[int]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for place, topic in enumerate(topics):
        others = plan.distances[place].copy()
        others[place] = np.inf
        nearest = [int(k) for k in np.argsort(others, kind="stable")[:3] if k != place]
        said = ", ".join(f"{topics[k]} ({others[k]:.2f})" for k in nearest)
        rows.append({"topic": topic, "share": view.shares[topic], "words": view.name(topic, 5), "nearest": said})
    return rows


# Correlations: which topics meet in documents

_CELL, _LEFT, _TOP = 20.0, 170.0, 30.0


def _correlations(view: ModelView) -> dict[str, object]:
    """Return the picture of correlations between the largest topics, and the numbers behind it."""
    topics = sorted(view.order[:_RELATED])
    part = correlations(view)[np.ix_(topics, topics)]
    order = similar_order(part)
    labels = [_shortened(f"{topic}  {view.name(topic)}", 25) for topic in topics]
    width, height = _LEFT + _CELL * len(topics) + 8, _TOP + _CELL * len(topics) + 8
    marks = [*_grid(topics, labels, order), *_cells(topics, part, order)]
    return {
        "picture": Picture(
            "heat", "Correlations between topics", "the table below has all values", width, height, marks
        ),
        "most": _pairs(view, strongest(part, topics, 1)),
        "least": _pairs(view, strongest(part, topics, -1)),
        "drawn": len(topics),
        "all": len(view.shares),
        "topics": topics,
        "rows": part.tolist(),
    }


def _grid(topics: list[int], labels: list[str], order: list[int]) -> list[Mark]:
    """Return rows and columns with their names: `order` holds positions in `topics`."""
    end = _CELL * len(topics)
    marks: list[Mark] = []
    for row, k in enumerate(order):
        edge = _CELL * row
        marks += [
            Label(_LEFT - 8, _TOP + edge + _CELL / 2 + 4, labels[k], "small", "end"),
            Label(_LEFT + edge + _CELL / 2, _TOP - 8, topics[k], "small", "middle"),
            Stroke(f"M{_LEFT:g} {_TOP + edge:g}H{_LEFT + end:g}"),
            Stroke(f"M{_LEFT + edge:g} {_TOP:g}V{_TOP + end:g}"),
        ]
    return marks


def _cells(topics: list[int], part: Float, order: list[int]) -> list[Mark]:
    """Return a square for each positive correlation and a circle for each negative one; the area is the strength."""
    r = len(topics)
    full = max(float(np.abs(part - np.eye(r)).max(initial=0.0)), 1e-12)
    marks: list[Mark] = []
    for row, column in np.ndindex(r, r):
        k, j = order[row], order[column]
        value = float(part[k, j])
        # A mark below a fiftieth of the strongest would be a speck; the table has its value.
        if k == j or abs(value) < full / 50:
            continue
        half = max((_CELL - 2) / 2 * (abs(value) / full) ** 0.5, 0.8)
        x, y = _LEFT + _CELL * (column + 0.5), _TOP + _CELL * (row + 0.5)
        said = f"{topics[k]} and {topics[j]}: {value:+.2f}"
        square = Box(x - half, y - half, 2 * half, 2 * half, "mark", said)
        # Signs differ in shape as well as in colour, for whoever cannot tell the colours apart.
        marks.append(Circle(x, y, half, "warm", said) if value < 0 else square)
    return marks


def _pairs(view: ModelView, pairs: list[tuple[int, int, float]]) -> str:
    return ", ".join(f"{a} and {b} ({view.name(a)}; {view.name(b)}: {value:+.2f})" for a, b, value in pairs[:2])
