"""Topics as people read them, and how good they are."""

from itertools import combinations

import numpy as np
import numpy.typing as npt
from scipy import sparse

from streamtopic.counts import WordSets

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


def npmi(top: npt.NDArray[np.intp], documents: WordSets) -> float:
    """Return the mean normalised pointwise mutual information of each topic's pairs of top words.

    top: (r, k) word positions; documents: the words that each document of a sample holds. -1 for a pair that never
    meets, +1 for one that is in every document.
    """
    wanted = np.unique(top)
    place = np.full(max(int(documents.words.max(initial=-1)), int(wanted.max(initial=-1))) + 1, -1, np.intp)
    place[wanted] = np.arange(len(wanted))
    columns = place[documents.words]
    total = len(documents)
    rows = np.repeat(np.arange(total), np.diff(documents.indptr))[columns >= 0]
    shape = (total, len(wanted))
    presence = sparse.csr_array((np.ones(len(rows), np.int64), (rows, columns[columns >= 0])), shape=shape)
    presence.data[:] = 1  # a word of several passages is one word of its document
    together = (presence.T @ presence).toarray()
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
