"""The numbers that pages and figures show of a model, whether it was published or has just been fitted."""

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
_NOTABLE = 0.05
_PAIRS = 5


@dataclass(frozen=True, slots=True, eq=False)
class ModelView:
    """A model as people look at it.

    words: (n,), the vocabulary.
    A: (n, r), probabilities of words given topics.
    R: (r, r), topic-topic covariance.
    shares: (r,), of topics in all words.
    top: (r, k), positions of each topic's words in display order.
    """

    words: tuple[str, ...]
    A: Float
    R: Float
    shares: Float
    top: tuple[tuple[int, ...], ...]

    @property
    def order(self) -> list[int]:
        """Topics by share, the largest first."""
        return [int(topic) for topic in np.argsort(-self.shares, kind="stable")]

    def top_words(self, topic: int, most: int = _TOP) -> tuple[str, ...]:
        """Return the first words of a topic in display order."""
        return tuple(self.words[k] for k in self.top[topic][:most])

    def name(self, topic: int, most: int = 2) -> str:
        """Return a topic's first words, by which a person knows it."""
        return " ".join(self.top_words(topic, most))

    def here(self, topic: int) -> Float:
        """Return how much of each top word's use is in this topic, p(t|w), (k,): 1 for a word that no other has."""
        at = list(self.top[topic])
        joint = self.A[at] * self.shares
        return np.asarray(joint[:, topic] / np.maximum(joint.sum(axis=1), 1e-300))


def view_of(model: "Release | AnchorTopics", feature_names: Sequence[str] | None = None) -> ModelView:
    """Return the view of a Release or of a fitted AnchorTopics.

    feature_names: words of an AnchorTopics' columns, where it was not fitted on a frame that names them.

    Raises InvalidRelease for a release that is withdrawn or withholds its topics, UsageError for anything else.
    """
    return _of_release(model) if isinstance(model, Release) else _of_estimator(model, feature_names)


def _of_release(release: Release) -> ModelView:
    # Refuses a release whose topics must not be shown.
    release.topics(0)
    place = {word: k for k, word in enumerate(release.words)}
    A, listed = release.A, release.top_words
    if len(listed) == A.shape[1]:
        rows = [_places(words[:_TOP], place) for words in listed]
    else:
        # Releases of programs that chose no words for display show the most probable ones.
        rows = np.argsort(-A.T, axis=1, kind="stable")[:, :_TOP].tolist()
    return ModelView(release.words, A, release.R, release.shares, tuple(map(tuple, rows)))


def _places(words: Sequence[str], place: Mapping[str, int]) -> list[int]:
    return [place[word] for word in words if word in place]


def _of_estimator(model: "AnchorTopics", feature_names: Sequence[str] | None) -> ModelView:
    from streamtopic.topics.display import WordEvidence, top_words, topic_correlations

    if not hasattr(model, "fit_"):
        raise UsageError("this is neither a Release nor a fitted AnchorTopics: fit it first")
    fit = model.fit_
    names = feature_names if feature_names is not None else getattr(model, "feature_names_in_", None)
    if names is not None and len(names) != model.n_features_in_:
        raise UsageError(f"{len(names)} names for {model.n_features_in_} columns: give one for each")
    columns, positions = model.word_places()
    words = tuple(f"x{k}" if names is None else str(names[k]) for k in columns.tolist())
    order = top_words(fit.A, WordEvidence.of(fit, model.counts_.frequency[positions]), _TOP)
    # A topic with fewer words than places would be shown with words that it does not have.
    rows = [row[fit.A[row, topic] > 0].tolist() for topic, row in enumerate(np.asarray(order))]
    top = tuple(map(tuple, rows))
    related = topic_correlations(fit, fit.A)
    return ModelView(words, fit.A, related.R, np.asarray(fit.topic_masses), top)


def correlations(view: ModelView) -> Float:
    """Return the correlations between the topics of two words of one document, (r, r), from -1 to 1.

    A word counts for each topic that uses it, by C = p(t|w) (n, r). The joint distribution of the two words' topics is
    T = M R M^T with M = C^T A: R (r, r) is E[theta theta^T] as the model has it, and rows of T sum to the shares. T is
    positive semidefinite, so T - z z^T is a covariance (a Schur complement). 0 for a topic that has none. Of R itself
    nearly all entries off the diagonal are negative on real text, and say which topics overlap rather than which meet.
    """
    joint = view.A * view.shares
    C = joint / np.maximum(joint.sum(axis=1, keepdims=True), 1e-300)
    total = float(view.R.sum())
    M = C.T @ view.A
    T = M @ (view.R / total if total > 0 else np.diag(view.shares)) @ M.T
    z = T.sum(axis=1)
    covariance = T - np.outer(z, z)
    own = np.diag(covariance)
    # Entries of a release are rounded to float32, so a topic without variance may seem to have a little.
    scale = np.sqrt(np.where(own > 1e-6 * np.abs(np.diag(T)).max(initial=0.0), own, np.inf))
    found = np.clip(covariance / np.outer(scale, scale), -1.0, 1.0)
    np.fill_diagonal(found, 1.0)
    return np.asarray((found + found.T) / 2)


def strongest(related: Float, topics: Sequence[int], sign: int) -> list[tuple[int, int, float]]:
    """Return the pairs of topics with the largest correlations of a sign (1 or -1), largest first.

    related: (k, k), correlations between `topics`, k numbers of topics.
    """
    first, second = np.triu_indices(len(topics), 1)
    values = related[first, second]
    best = np.argsort(-sign * values, kind="stable")[:_PAIRS]
    return [(topics[first[k]], topics[second[k]], float(values[k])) for k in best if sign * values[k] >= _NOTABLE]


def similar_order(related: Float) -> list[int]:
    """Return an order in which similar rows are neighbours: average linkage, leaves arranged best.

    related: (k, k), correlations.
    """
    if len(related) < 3:
        return list(range(len(related)))
    # Only a picture of three or more topics needs this, and it takes a while to load.
    from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering

    apart = (1.0 - related)[np.triu_indices(len(related), 1)]
    tree = linkage(apart, "average")
    return [int(leaf) for leaf in leaves_list(optimal_leaf_ordering(tree, apart))]
