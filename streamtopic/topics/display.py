"""Topics as people read them, and how good they are."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

__all__ = ["diversity", "npmi", "top_words"]

Float = npt.NDArray[np.float64]


def top_words(A: Float, frequency: npt.NDArray[np.int64], documents: int, top: int = 10) -> npt.NDArray[np.intp]:
    """Return the positions of each topic's words in display order, (r, top).

    Order: p(w|t) log(m / df). Plain probability favours words that are frequent everywhere; the logarithm takes out
    what they share. A (n, r); frequency (n,), document frequencies among `documents`. Ties go to the first word.
    """
    weight = np.log(max(documents, 1) / np.maximum(frequency, 1))
    # A corpus of one document has no rarer words; then the plain order is all there is.
    weight = weight if weight.any() else np.ones_like(weight)
    return np.argsort(-(A * weight[:, None]).T, axis=1, kind="stable")[:, :top]


def npmi(top: npt.NDArray[np.intp], documents: Sequence[npt.NDArray[np.integer]]) -> float:
    """Return the mean normalised pointwise mutual information of each topic's pairs of top words.

    top: (r, k) word positions; documents: the distinct word positions of each document of a sample. -1 for a pair that
    never meets, +1 for one that is in every document.
    """
    wanted = np.unique(top)
    presence = np.zeros((len(documents), len(wanted)), np.float32)
    for row, words in enumerate(documents):
        known = words[np.isin(words, wanted)]
        presence[row, np.searchsorted(wanted, known)] = 1
    total = len(documents)
    together = presence.T @ presence
    single = together.diagonal()
    scores = [
        _npmi(together[a, b], single[a], single[b], total)
        for topic in np.searchsorted(wanted, top)
        for a, b in combinations(topic, 2)
    ]
    return float(np.mean(scores)) if scores else 0.0


def _npmi(both: float, one: float, other: float, total: int) -> float:
    if both == 0:
        return -1.0
    if both == total:
        return 1.0
    joint = both / total
    return float(np.log(joint * total * total / (one * other)) / -np.log(joint))


def diversity(top: npt.NDArray[np.intp]) -> float:
    """Return the share of distinct words among all top words."""
    return len(np.unique(top)) / top.size if top.size else 0.0
