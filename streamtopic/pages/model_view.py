"""Numbers of a model as pages and figures show them, for a release and for a fitted AnchorTopics.

view_of      the model itself: words, shares, correlations
cards_of     words of each topic
map_of       places of topics: near each other if they use the same words, with room for each name
related_of   which topics meet, in an order in which similar topics are neighbours
history_of   the path of each topic over versions, in which a book of topics knows it again

The last four are values as JSON has them, so that whoever reads a page's data can draw its pictures again.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamtopic.client import TopicBook
from streamtopic.errors import UsageError
from streamtopic.signed import Release

if TYPE_CHECKING:
    from streamtopic.topics.estimator import AnchorTopics

__all__ = [
    "LETTER",
    "ModelView",
    "cards_of",
    "classical_scaling",
    "correlations",
    "distances_of",
    "history_of",
    "map_of",
    "related_of",
    "similar_order",
    "spread",
    "strongest",
    "view_of",
]

Float = npt.NDArray[np.float64]
Json = dict[str, Any]

_TOP = 10
# Correlations below this are too weak to mention.
_NOTABLE = 0.05
_PAIRS = 2
# More topics than these would be a cloud on the map, and squares too small to read among the correlations.
_MAPPED, _NAMED, _RELATED = 100, 40, 40


@dataclass(frozen=True, slots=True, eq=False)
class ModelView:
    """A model as people look at it.

    words: (n,), the vocabulary.
    A: (n, r), probabilities of words given topics.
    R: (r, r), topic-topic covariance.
    shares: (r,), shares of topics in all words.
    top: positions of each topic's words, r times at most 10, in display order.
    """

    words: tuple[str, ...]
    A: Float
    R: Float
    shares: Float
    top: tuple[tuple[int, ...], ...]

    @property
    def order(self) -> list[int]:
        """Topics by share, the largest first."""
        order = np.argsort(-self.shares, kind="stable")
        return [int(topic) for topic in order]

    def top_words(self, topic: int, most: int = _TOP) -> tuple[str, ...]:
        """Return the first words of a topic in display order."""
        positions = self.top[topic][:most]
        return tuple(self.words[k] for k in positions)

    def name(self, topic: int, most: int = 2) -> str:
        """Return a topic's first words, by which a person knows it."""
        return " ".join(self.top_words(topic, most))

    def here(self, topic: int) -> Float:
        """Return p(t|w) of each top word, (k,), the share of its use that is in this topic."""
        at = list(self.top[topic])
        joint = self.A[at] * self.shares
        # A word of a release may have lost its whole mass to noise.
        total = np.maximum(joint.sum(axis=1), 1e-300)
        return np.asarray(joint[:, topic] / total)


def view_of(model: "Release | AnchorTopics", feature_names: Sequence[str] | None = None) -> ModelView:
    """Return the view of a Release or of a fitted AnchorTopics.

    feature_names: words of an AnchorTopics' columns; None if it was fitted on a frame that names them.

    Raises InvalidRelease for a release that is withdrawn or withholds its topics, UsageError for other values.
    """
    if isinstance(model, Release):
        return _of_release(model)
    return _of_estimator(model, feature_names)


def _of_release(release: Release) -> ModelView:
    """Return the view of a release."""
    # Raises for a release whose topics must not be shown.
    release.topics(0)
    place = {word: k for k, word in enumerate(release.words)}
    top = tuple(_places(words[:_TOP], place) for words in release.top_words)
    return ModelView(release.words, release.A, release.R, release.shares, top)


def _places(words: Sequence[str], place: Mapping[str, int]) -> tuple[int, ...]:
    """Return the positions of words, without words that have none."""
    return tuple(place[word] for word in words if word in place)


def _of_estimator(model: "AnchorTopics", feature_names: Sequence[str] | None) -> ModelView:
    """Return the view of a fitted estimator."""
    # A subscriber shows releases without the learner.
    from streamtopic.topics.display import WordEvidence, correlations_and_words

    if not hasattr(model, "fit_"):
        raise UsageError("this is neither a Release nor a fitted AnchorTopics: fit it first")
    fit = model.fit_
    names = feature_names if feature_names is not None else getattr(model, "feature_names_in_", None)
    if names is not None and len(names) != model.n_features_in_:
        raise UsageError(f"{len(names)} names for {model.n_features_in_} columns: give one for each")
    columns, positions = model.word_places()
    if names is None:
        words = tuple(f"x{k}" for k in columns.tolist())
    else:
        words = tuple(str(names[k]) for k in columns.tolist())
    frequency = model.counts_.frequency[positions]
    evidence = WordEvidence.of(fit, frequency)
    related, order = correlations_and_words(fit, fit.A, evidence, _TOP)
    rows = []
    for topic, row in enumerate(order):
        # A topic with fewer than ten words must not show words that it does not have.
        used = row[fit.A[row, topic] > 0]
        rows.append(tuple(used.tolist()))
    shares = np.asarray(fit.topic_masses)
    return ModelView(words, fit.A, related.R, shares, tuple(rows))


def correlations(view: ModelView) -> Float:
    """Return the correlations between the topics of two words of one document, (r, r), from -1 to 1.

    A word counts for each topic that uses it, by C = p(t|w) (n, r). The joint distribution of the two words' topics is
    T = M R M^T with M = C^T A. R (r, r) is the model's E[theta theta^T], and rows of T sum to the shares z. T is
    positive semidefinite, so T - z z^T is a covariance (a Schur complement). A topic without variance has correlations
    of 0.
    """
    # Not R itself: on real text nearly all of its entries off the diagonal are negative, and they show which topics
    # overlap rather than which topics meet.
    joint = view.A * view.shares
    total = np.maximum(joint.sum(axis=1, keepdims=True), 1e-300)
    C = joint / total
    M = C.T @ view.A
    mass = float(view.R.sum())
    R = view.R / mass if mass > 0 else np.diag(view.shares)
    T = M @ R @ M.T
    z = T.sum(axis=1)
    covariance = T - np.outer(z, z)
    own = np.diag(covariance)
    # Entries of a release are rounded to float32, so a topic without variance may seem to have a little.
    masses = np.abs(np.diag(T))
    least = 1e-6 * masses.max(initial=0.0)
    variance = np.where(own > least, own, np.inf)
    scale = np.sqrt(variance)
    ratios = covariance / np.outer(scale, scale)
    # Rounding can push a correlation beyond its limits.
    found = np.clip(ratios, -1.0, 1.0)
    np.fill_diagonal(found, 1.0)
    return np.asarray((found + found.T) / 2)


def strongest(related: Float, topics: Sequence[int], sign: int) -> list[tuple[int, int, float]]:
    """Return pairs of topics with their correlations, the strongest first, at most two.

    related: (k, k), correlations between `topics`.
    topics: (k,), numbers of topics.
    sign: 1 for positive correlations, -1 for negative ones.
    """
    first, second = np.triu_indices(len(topics), 1)
    values = related[first, second]
    order = np.argsort(-sign * values, kind="stable")[:_PAIRS]
    return [(topics[first[k]], topics[second[k]], float(values[k])) for k in order if sign * values[k] >= _NOTABLE]


def similar_order(related: Float) -> list[int]:
    """Return an order in which similar rows are neighbours: average linkage, with the best order of leaves.

    related: (k, k), correlations.
    """
    if len(related) < 3:
        return list(range(len(related)))
    # Only a picture of three or more topics needs this, and it takes a while to load.
    from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering

    above_diagonal = np.triu_indices(len(related), 1)
    apart = 1.0 - related[above_diagonal]
    tree = linkage(apart, "average")
    ordered = optimal_leaf_ordering(tree, apart)
    return [int(leaf) for leaf in leaves_list(ordered)]


def related_of(view: ModelView) -> Json:
    """Return the correlations between the largest topics.

    topics: their numbers, ascending. names: of each. rows: correlations. order: positions in `topics`.
    most, least: the pairs that meet most and least, in words.
    """
    topics = sorted(view.order[:_RELATED])
    part = correlations(view)[np.ix_(topics, topics)]
    return {
        "topics": topics,
        "names": [view.name(topic) for topic in topics],
        "rows": part.tolist(),
        "order": similar_order(part),
        "most": _pairs(view, strongest(part, topics, 1)),
        "least": _pairs(view, strongest(part, topics, -1)),
    }


def _pairs(view: ModelView, pairs: Sequence[tuple[int, int, float]]) -> str:
    """Return pairs of topics in words."""
    told = (f"{a} and {b} ({view.name(a)}; {view.name(b)}: {value:+.2f})" for a, b, value in pairs)
    return ", ".join(told)


def cards_of(view: ModelView) -> list[Json]:
    """Return each topic with its words, the largest first.

    in_topic: the word's probability in the topic. here: the share of the word's use that is in this topic.
    """
    cards = []
    for topic in view.order:
        inside = view.A[list(view.top[topic]), topic].tolist()
        found = zip(view.top_words(topic), inside, view.here(topic).tolist(), strict=True)
        words = [{"word": word, "in_topic": probability, "here": here} for word, probability, here in found]
        cards.append({"topic": topic, "share": float(view.shares[topic]), "words": words})
    return cards


def history_of(releases: Sequence[Release]) -> Json:
    """Follow the topics of the last release back through the releases before it.

    releases: in version order. All must stand: a word that only a withdrawn version has is a forgotten word.

    steps: each version, oldest first; kept: the share of top words that its topics have in common with the version
        before, None for the first, and if no topic of that version is left.
    paths: of each topic of the newest version its shares, 0 in a version without it, and top words that came and went
        since the first version with it.
    """
    book = TopicBook()
    steps, chain = list[Json](), list[tuple[Release, dict[int, int]]]()
    for release in releases:
        if release.payload.A is None:
            continue
        # Numbers of topics are not the same from version to version, so the book knows them again.
        places = {topic.id: topic.topic for topic in book.follow(release)}
        fields = {name: getattr(release.envelope, name) for name in ("version", "created", "kind", "m", "forgotten")}
        steps.append(fields | {"kept": _kept(release, places, *chain[-1]) if chain else None})
        chain.append((release, places))
    newest, _ = chain[-1]
    paths = []
    for topic in book.topics:
        path = [(release, places[topic.id]) for release, places in chain if topic.id in places]
        first, number = path[0]
        words, first_words = newest.top_words[topic.topic][:_TOP], first.top_words[number][:_TOP]
        fields = {
            "topic": topic.topic,
            "shares": [0.0] * (len(chain) - len(path)) + [float(release.shares[place]) for release, place in path],
            "came": [word for word in words if word not in first_words],
            "went": [word for word in first_words if word not in words],
        }
        paths.append(fields)
    return {"steps": steps, "paths": paths}


def _kept(after: Release, now: Mapping[int, int], before: Release, then: Mapping[int, int]) -> float | None:
    """Return the share of top words that two versions have in common in the topics that both have.

    now, then: number of a topic in the book to its number in the version.
    """
    shares = []
    for topic in now.keys() & then.keys():
        words = set(after.top_words[now[topic]][:_TOP])
        shares.append(len(words & set(before.top_words[then[topic]][:_TOP])) / max(len(words), 1))
    return float(np.mean(shares)) if shares else None


# The map

_WIDTH, _LONGEST, _NAME_HEIGHT = 960.0, 24, 16.0
LETTER = 6.4
"""Width of a letter at 11 pixels, an estimate, since the reader's own font decides."""
# Steps that a box tries together: more of them cost memory, fewer cost calls into numpy.
_STEPS, _AT_ONCE = 60_000, 2_000


def map_of(view: ModelView) -> Json:
    """Return the places of the largest topics, and the nearest others of each.

    nodes: x, y, radius in pixels; name: "" for a small topic.
    shown: share of the squared distances that two axes can show.
    """
    topics = sorted(view.order[:_MAPPED])
    named = set(view.order[:_NAMED])
    distances = distances_of(view.A[:, topics])
    positions, shown = classical_scaling(distances**2)
    # All circles together take about a tenth of the canvas, and each is large enough for the number within.
    radii = np.maximum(np.sqrt(view.shares[topics] * _WIDTH * 56 / np.pi), 11.0)
    names = [_shortened(view.name(topic)) if topic in named else "" for topic in topics]
    widths = np.maximum(2 * radii, [_drawn_width(name) for name in names]) + 6
    heights = 2 * radii + 6 + np.where([bool(name) for name in names], _NAME_HEIGHT, 0.0)
    sizes = np.stack([widths, heights], axis=1)
    # Enough room to move boxes apart, and a smaller canvas for a few topics.
    needed = float(sizes.prod(axis=1).sum()) / _WIDTH
    height = max(420.0, min(560.0, 4 * needed), 2.6 * needed)
    places = spread(_scaled(positions, sizes, height), sizes, _WIDTH, height)
    nodes = []
    for k, (topic, name) in enumerate(zip(topics, names, strict=True)):
        # With three topics or fewer the topic itself is among them.
        near = [j for j in np.argsort(distances[k], kind="stable")[:4].tolist() if j != k][:3]
        node = {
            "topic": topic,
            "name": name,
            "share": float(view.shares[topic]),
            "x": round(float(places[k, 0]), 1),
            "y": round(float(places[k, 1]), 1),
            "radius": round(float(radii[k]), 1),
            "words": view.name(topic, 5),
            "nearest": ", ".join(f"{topics[j]} ({distances[k, j]:.2f})" for j in near),
        }
        nodes.append(node)
    return {"width": _WIDTH, "height": height, "nodes": nodes, "shown": shown}


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}\u2026"


def _drawn_width(name: str) -> float:
    """Estimate the width of a name in pixels; the reader's own font decides it."""
    # Letters of East Asian scripts are as wide as two others.
    return LETTER * (len(name) + sum(unicodedata.east_asian_width(letter) in "WF" for letter in name))


def _scaled(positions: Float, sizes: Float, height: float) -> Float:
    """Fit positions into the canvas, both axes by one factor, so that distances keep their proportions."""
    # A box as large as the largest fits at every edge.
    room = np.array([_WIDTH, height]) - sizes.max(axis=0)
    low, high = positions.min(axis=0), positions.max(axis=0)
    extent = high - low
    # One topic, or topics of the same words, have no extent: all lie in the middle then.
    factor = float(np.min(room / np.maximum(extent, 1e-12))) if extent.max() > 1e-9 else 0.0
    # SVG counts pixels downwards.
    return np.asarray((positions - (high + low) / 2) * [factor, -factor] + [_WIDTH / 2, height / 2])


def distances_of(A: Float) -> Float:
    """Return the distances between columns of A (n, r), (r, r): 0 for the same words, 1 for no common word.

    They are square roots of Jensen-Shannon divergences in bits, which lie in a Euclidean space (Endres and Schindelin
    2003; Fuglede and Topsoe 2004), so classical scaling has no negative part to drop.
    """
    # Only a map needs this, and it takes a while to load.
    from scipy.spatial.distance import pdist, squareform

    return np.asarray(squareform(pdist(A.T, "jensenshannon")) / np.sqrt(np.log(2)))


def classical_scaling(squares: Float) -> tuple[Float, float]:
    """Return positions (r, 2) by classical scaling, and the share of the squared distances that they show.

    squares: (r, r), squared distances.
    Source: Torgerson 1952.
    """
    r = len(squares)
    centred = squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    # The largest first. Rounding can leave an eigenvalue of 0 a little below it.
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    positions = np.zeros((r, 2))
    for axis in range(min(2, r)):
        column = vectors[:, axis] * np.sqrt(values[axis])
        # An eigenvector has either sign; with its largest coordinate above 0, equal distances give equal maps.
        positions[:, axis] = -column if column[np.abs(column).argmax()] < 0 else column
    total = float(values.sum())
    # Topics of the same words have no distances to show.
    return positions, float(values[:2].sum() / total) if total > 0 else 1.0


def spread(centres: Float, sizes: Float, width: float, height: float) -> Float:
    """Move boxes apart within a canvas, so that they do not overlap; return their centres, (r, 2).

    centres, sizes: (r, 2), of the boxes.
    width, height: of the canvas.

    The largest box stays in its place, and each next one goes to the nearest free place. A box without room stays in
    its place and overlaps others.
    """
    low = sizes / 2
    high = np.maximum(np.array([width, height]) - low, low)
    places = np.clip(centres, low, high)
    # A spiral of even density, the shortest steps first; the last one leads over the whole canvas.
    turns = np.arange(_STEPS)
    angles = turns * np.pi * (3 - np.sqrt(5))
    lengths = np.hypot(width, height) * np.sqrt(turns / _STEPS)
    steps = (lengths * np.stack([np.cos(angles), np.sin(angles)])).T
    # An order that sizes alone decide gives equal releases equal maps.
    order = np.argsort(-sizes.prod(axis=1), kind="stable")
    for count, box in enumerate(order):
        others = order[:count]
        needed = (sizes[box] + sizes[others]) / 2
        for first in range(0, _STEPS, _AT_ONCE):
            tried = places[box] + steps[first : first + _AT_ONCE]
            inside = ((tried >= low[box]) & (tried <= high[box])).all(axis=1)
            # Two boxes are clear of each other if they are apart along one axis.
            clear = (np.abs(tried[:, None] - places[others]) >= needed).any(axis=2).all(axis=1)
            free = inside & clear
            if free.any():
                places[box] = tried[free.argmax()]
                break
    return places
