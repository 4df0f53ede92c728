"""How good topics are: the same scorer for every model.

NPMI and diversity are those of `streamtopic.topics.display`, of top words in the same display order for all. Accuracy:
logistic regression on log proportions from one common fold-in, half of the documents for training, half for testing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.counts import WordSets
from streamtopic.topics.display import diversity, npmi, top_words
from streamtopic.topics.inference import fold_in

if TYPE_CHECKING:
    import numpy.typing as npt

    from streamtopic.bench.peers.material import Material

__all__ = ["Score", "accuracy", "score"]

TOP = 10


@dataclass(frozen=True, slots=True)
class Score:
    """Of the top words in display order p(w|t) log(m/df), and in plain order p(w|t); accuracy: None without labels."""

    npmi: float
    diversity: float
    plain_npmi: float
    plain_diversity: float
    accuracy: float | None


def score(
    topics: npt.NDArray[np.float64], vocabulary: npt.NDArray[np.intp], material: Material, top: int = TOP
) -> Score:
    """Judge topics (r, len(vocabulary)), rows summing to 1, over these words of the material; top: words of each."""
    frequency, documents = material.frequency[vocabulary], material.counts.shape[0]
    held = WordSets(material.counts.indptr.astype(np.int64), material.counts.indices.astype(np.int64))
    shown = vocabulary[top_words(topics.T, frequency, documents, top)]
    plain = vocabulary[np.argsort(-topics, axis=1, kind="stable")[:, :top]]
    return Score(
        npmi(shown, held),
        diversity(shown),
        npmi(plain, held),
        diversity(plain),
        None if material.labels is None else accuracy(topics, vocabulary, material),
    )


def accuracy(topics: npt.NDArray[np.float64], vocabulary: npt.NDArray[np.intp], material: Material) -> float:
    """Return the share of documents whose class a logistic regression on log proportions finds; one fixed split.

    Documents with fewer than two words of the vocabulary are left out. Raises ValueError without labels.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    if material.labels is None:
        raise ValueError("accuracy needs labelled documents")
    rows = material.counts[:, vocabulary]
    known = np.flatnonzero(rows.sum(axis=1) >= 2)
    rows, labels = rows[known], np.array(material.labels)[known]
    theta = fold_in(topics.T + 1e-9, rows.indptr.astype(np.int64), rows.indices, rows.data)
    order = np.random.default_rng(0).permutation(len(labels))
    train, test = order[: len(order) // 2], order[len(order) // 2 :]
    scaler = StandardScaler().fit(np.log(theta[train]))
    model = LogisticRegression(max_iter=500).fit(scaler.transform(np.log(theta[train])), labels[train])
    return float(model.score(scaler.transform(np.log(theta[test])), labels[test]))
