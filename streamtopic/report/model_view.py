"""Numbers of a model as pages and figures show them, for a release and for a fitted AnchorTopics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from streamtopic.errors import UsageError
from streamtopic.signed import Release

if TYPE_CHECKING:
    from streamtopic.topics.estimator import AnchorTopics

__all__ = ["ModelView", "correlations", "similar_order", "strongest", "view_of"]

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
    evidence = WordEvidence.of(fit, model.counts_.frequency[positions])
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
    least = 1e-6 * np.abs(np.diag(T)).max(initial=0.0)
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
    best = np.argsort(-sign * values, kind="stable")[:_PAIRS]
    notable = [k for k in best if sign * values[k] >= _NOTABLE]
    return [(topics[first[k]], topics[second[k]], float(values[k])) for k in notable]


def similar_order(related: Float) -> list[int]:
    """Return an order in which similar rows are neighbours: average linkage, with the best order of leaves.

    related: (k, k), correlations.
    """
    if len(related) < 3:
        return list(range(len(related)))
    # Only a picture of three or more topics needs this, and it takes a while to load.
    from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering

    apart = (1.0 - related)[np.triu_indices(len(related), 1)]
    tree = linkage(apart, "average")
    ordered = optimal_leaf_ordering(tree, apart)
    return [int(leaf) for leaf in leaves_list(ordered)]
