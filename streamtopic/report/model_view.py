"""Numbers of a model as pages and figures show them, for a release and for a fitted AnchorTopics.

view_of        the model itself: words, shares, correlations, and an order in which similar topics stand together
topic_history  the path of each topic over versions: it is matched with its counterpart in the version before
place_topics   places of topics on a map: distances, two axes that show most of them, and room for each name
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from streamtopic.errors import UsageError
from streamtopic.signed import Envelope, Release, match_topics

if TYPE_CHECKING:
    from streamtopic.topics.estimator import AnchorTopics

__all__ = [
    "ModelView",
    "TopicHistory",
    "TopicMap",
    "TopicPath",
    "VersionStep",
    "classical_scaling",
    "correlations",
    "divergences",
    "place_topics",
    "similar_order",
    "spread",
    "strongest",
    "topic_history",
    "view_of",
]


Float = npt.NDArray[np.float64]

_TOP = 10
# Correlations below this are too weak to mention.
_NOTABLE = 0.05
_PAIRS = 5


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

    feature_names: words of an AnchorTopics' columns; None where it was fitted on a frame that names them.

    Raises InvalidRelease for a release that is withdrawn or withholds its topics, UsageError for other values.
    """
    if isinstance(model, Release):
        return _of_release(model)
    return _of_estimator(model, feature_names)


def _of_release(release: Release) -> ModelView:
    """Return the view of a release."""
    # Raises for a release whose topics must not be shown.
    release.topics(0)
    A = release.A
    place = {word: k for k, word in enumerate(release.words)}
    if len(release.top_words) == A.shape[1]:
        rows = [_places(words[:_TOP], place) for words in release.top_words]
    else:
        # Early versions of the program did not choose words for display; these show the most probable ones.
        ranked = np.argsort(-A.T, axis=1, kind="stable")
        rows = ranked[:, :_TOP].tolist()
    top = tuple(map(tuple, rows))
    return ModelView(release.words, A, release.R, release.shares, top)


def _places(words: Sequence[str], place: Mapping[str, int]) -> list[int]:
    """Return the positions of words, without words that have none."""
    return [place[word] for word in words if word in place]


def _of_estimator(model: "AnchorTopics", feature_names: Sequence[str] | None) -> ModelView:
    """Return the view of a fitted estimator."""
    # A subscriber shows releases without the learner.
    from streamtopic.topics.display import WordEvidence, top_words, topic_correlations

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
    order = np.asarray(top_words(fit.A, evidence, _TOP))
    rows = []
    for topic, row in enumerate(order):
        # A topic with fewer than ten words must not show words that it does not have.
        used = row[fit.A[row, topic] > 0]
        rows.append(tuple(used.tolist()))
    related = topic_correlations(fit, fit.A)
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
    """Return pairs of topics with their correlations, the largest first, at most five.

    related: (k, k), correlations between `topics`.
    topics: (k,), numbers of topics.
    sign: 1 for positive correlations, -1 for negative ones.
    """
    first, second = np.triu_indices(len(topics), 1)
    values = related[first, second]
    signed = sign * values
    order = np.argsort(-signed, kind="stable")
    found = []
    for k in order[:_PAIRS]:
        if signed[k] >= _NOTABLE:
            one = topics[first[k]]
            other = topics[second[k]]
            found.append((one, other, float(values[k])))
    return found


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


@dataclass(frozen=True, slots=True)
class VersionStep:
    """A version, compared with the version before it.

    kept: share of the topics' ten top words that both versions have; None for the first version.
    moved: mean total variation distance between topics, from 0 to 1; None for the first version.
    """

    envelope: Envelope
    kept: float | None
    moved: float | None


@dataclass(frozen=True, slots=True)
class TopicPath:
    """A topic of the newest version.

    shares: in each version, oldest first.
    came, went: top words that came and went since the first version.
    """

    topic: int
    shares: tuple[float, ...]
    came: tuple[str, ...]
    went: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicHistory:
    """Versions, oldest first, and the path of each topic of the newest."""

    steps: tuple[VersionStep, ...]
    paths: tuple[TopicPath, ...]


def topic_history(releases: Sequence[Release]) -> TopicHistory:
    """Follow the topics of the last release back to the first release that has as many topics.

    releases: in version order. All must stand: a word that only a withdrawn version has is a forgotten word.
    """
    newest = releases[-1]
    topics = range(newest.envelope.r)
    chain = [newest]
    columns = [list(topics)]
    steps: list[VersionStep] = []
    for before in reversed(releases[:-1]):
        after = chain[-1]
        as_many = before.envelope.r == after.envelope.r
        if not as_many or before.payload.A is None:
            break
        # Numbers of topics are not the same from version to version, so topics are matched by their words.
        place = match_topics(after.words, after.A, before.words, before.A)
        kept = _kept(after, before, place)
        moved = _moved(after, before, place)
        steps.append(VersionStep(after.envelope, kept, moved))
        counterparts = [place[k] for k in columns[-1]]
        columns.append(counterparts)
        chain.append(before)
    steps.append(VersionStep(chain[-1].envelope, None, None))
    # The chain was made from the newest version back.
    steps.reverse()
    chain.reverse()
    columns.reverse()
    paths = [_path(topic, chain, columns) for topic in topics]
    return TopicHistory(tuple(steps), tuple(paths))


def _path(topic: int, chain: Sequence[Release], columns: Sequence[Sequence[int]]) -> TopicPath:
    """Return the path of a topic of the newest version; columns: its counterparts' numbers, version by version."""
    shares = []
    for release, places in zip(chain, columns, strict=True):
        counterpart = places[topic]
        shares.append(float(release.shares[counterpart]))
    now = chain[-1].top_words[topic][:_TOP]
    first = columns[0][topic]
    then = chain[0].top_words[first][:_TOP]
    came = tuple(word for word in now if word not in then)
    went = tuple(word for word in then if word not in now)
    return TopicPath(topic, tuple(shares), came, went)


def _kept(after: Release, before: Release, place: Sequence[int]) -> float:
    """Return the share of top words that both versions have; place: the counterpart of each topic."""
    shares = []
    for words, counterpart in zip(after.top_words, place, strict=True):
        now = words[:_TOP]
        then = before.top_words[counterpart][:_TOP]
        common = set(now) & set(then)
        shares.append(len(common) / max(len(now), 1))
    return float(np.mean(shares))


def _moved(after: Release, before: Release, place: Sequence[int]) -> float:
    """Return the mean distance of topics from their counterparts; place: as in `_kept`."""
    # Vocabularies differ between versions; a word that one of them lacks has probability 0 there.
    words = sorted({*after.words, *before.words})
    gap = np.zeros((len(words), after.envelope.r))
    now = np.searchsorted(words, after.words)
    then = np.searchsorted(words, before.words)
    gap[now] += after.A
    gap[then] -= before.A[:, list(place)]
    # Half the sum of differences is the total variation distance.
    total: npt.NDArray[np.float64] = np.abs(gap).sum(axis=0) / 2
    return float(total.mean())


# Steps that a box tries together: more of them cost memory, fewer cost calls into numpy.
_AT_ONCE = 2_000
# Rounding of positions, in pixels.
_CLOSE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class TopicMap:
    """A map of r topics.

    positions: (r, 2), on two axes.
    distances: (r, r), between the topics' words, from 0 (the same words) to 1 (no common word).
    shown: share of the squared distances that two axes can show.
    """

    positions: Float
    distances: Float
    shown: float


def place_topics(A: Float) -> TopicMap:
    """Lay out the columns of A (n, r), words given topics, by the square roots of their divergences."""
    squares = divergences(A)
    positions, shown = classical_scaling(squares)
    return TopicMap(positions, np.sqrt(squares), shown)


def divergences(A: Float) -> Float:
    """Return the Jensen-Shannon divergences between columns of A (n, r), (r, r), in bits: 0 if equal, 1 at the most.

    Their square roots are distances that lie in a Euclidean space (Endres and Schindelin 2003; Fuglede and Topsoe
    2004), so classical scaling has no negative part to drop. Cost: n r^2.
    """
    r = A.shape[1]
    own = _entropies(A)
    found = np.zeros((r, r))
    # One topic against all later ones at a time: all pairs at once would take n r^2 numbers of memory.
    for k in range(r - 1):
        later = A[:, k + 1 :]
        mixtures = (later + A[:, [k]]) / 2
        mixed = _entropies(mixtures)
        mean = (own[k] + own[k + 1 :]) / 2
        # Rounding can leave a divergence of equal topics a little below 0.
        found[k, k + 1 :] = np.clip(mixed - mean, 0.0, 1.0)
    return found + found.T


def _entropies(A: Float) -> Float:
    """Return the entropies of the columns of A (n, r), (r,), in bits."""
    # 0 log 0 counts as 0: a word that a topic lacks adds nothing.
    logs = np.log2(A, out=np.zeros_like(A), where=A > 0)
    return np.asarray(-np.einsum("ij,ij->j", A, logs))


def classical_scaling(squares: Float) -> tuple[Float, float]:
    """Return positions (r, 2) by classical scaling, and the share of the squared distances that they show.

    squares: (r, r), squared distances.
    Source: Torgerson 1952.
    """
    r = len(squares)
    by_column = squares.mean(axis=0)
    by_row = squares.mean(axis=1)[:, None]
    centred = squares - by_column - by_row + squares.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    # The largest first. Rounding can leave an eigenvalue of 0 a little below it.
    values = np.maximum(values[::-1], 0.0)
    vectors = vectors[:, ::-1]
    positions = np.zeros((r, 2))
    for axis in range(min(2, r)):
        column = vectors[:, axis] * np.sqrt(values[axis])
        # An eigenvector has either sign; with its largest coordinate above 0, equal distances give equal maps.
        if column[np.abs(column).argmax()] < 0:
            column = -column
        positions[:, axis] = column
    total = float(values.sum())
    # Topics of the same words have no distances to show.
    if total <= 0:
        return positions, 1.0
    shown = values[:2].sum()
    return positions, float(shown / total)


def spread(centres: Float, sizes: Float, width: float, height: float) -> Float:
    """Move boxes apart within a canvas, so that they do not overlap; return their centres, (r, 2).

    centres, sizes: (r, 2), of the boxes.
    width, height: of the canvas.

    The largest box stays in its place, and each next one goes to the nearest free place. A box without room stays in
    its place and overlaps others.
    """
    canvas = np.array([width, height])
    low = sizes / 2
    high = np.maximum(canvas - low, low)
    places = np.clip(centres, low, high)
    steps = _nearest_first(canvas)
    # An order that sizes alone decide gives equal releases equal maps.
    order = np.argsort(-sizes.prod(axis=1), kind="stable")
    for count, box in enumerate(order):
        others = order[:count]
        # Steps are tried in parts: most boxes find a place among the first, and all at once would take memory.
        for first in range(0, len(steps), _AT_ONCE):
            tried = places[box] + steps[first : first + _AT_ONCE]
            not_low = tried >= low[box] - _CLOSE
            not_high = tried <= high[box] + _CLOSE
            inside = (not_low & not_high).all(axis=1)
            gaps = np.abs(tried[:, None] - places[others])
            needed = (sizes[box] + sizes[others]) / 2
            # Two boxes are clear of each other if they are apart along one axis.
            apart = (gaps >= needed).any(axis=2)
            clear = apart.all(axis=1)
            free = inside & clear
            if free.any():
                places[box] = tried[free.argmax()]
                break
    return places


def _nearest_first(canvas: Float) -> Float:
    """Return steps on a fine grid over the canvas, (steps, 2), the shortest first, (0, 0) being the first of all."""
    step = float(canvas.max()) / 160
    reach = []
    for side in canvas:
        most = int(side / step)
        reach.append(np.arange(-most, most + 1) * step)
    grid = np.meshgrid(*reach, indexing="ij")
    steps = np.stack(grid, axis=-1).reshape(-1, 2)
    # Rounded, so that steps of equal lengths keep their order on every machine.
    squares = (steps**2).sum(axis=1).round(6)
    order = np.argsort(squares, kind="stable")
    return np.asarray(steps[order])
