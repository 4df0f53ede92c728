"""How good topics are: the same scorer for every model.

NPMI and diversity are those of `streamtopic.topics.display`, of each topic's top words in three ways (`Lists`): the
ways are the same for all models, and so are the counts that they rest on. What counts most is the unseen half: topics
learned on one half of the documents, top words chosen by that half's counts, NPMI on the other.
Accuracy: logistic regression on log proportions from one common fold-in, half of the documents for training, half for
testing.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.counts.matrices import as_documents
from streamtopic.topics.display import arranged, diversity, npmi, top_words
from streamtopic.topics.inference import fold_in

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    import numpy.typing as npt

    from streamtopic.bench.peers.material import Material
    from streamtopic.topics.display import WordEvidence

    Positions = npt.NDArray[np.intp]

__all__ = ["Lists", "Score", "accuracy", "mean_score"]

TOP = 10


@dataclass(frozen=True, slots=True)
class Score:
    """Scores of top words as they are shown, of those by probability and evidence, and of plain order p(w|t)."""

    npmi: float
    diversity: float
    likely_npmi: float
    likely_diversity: float
    plain_npmi: float


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """Top words of topics, (r, top) each, positions in the words of the material.

    shown: the coherent ones of twice as many, by coefficients, as our own models show them.
    likely: the coherent ones of twice as many, by probability and the certainty of words.
    plain: by p(w|t).
    """

    shown: Positions
    likely: Positions
    plain: Positions

    @classmethod
    def of(cls, topics: npt.NDArray[np.float64], vocabulary: Positions, evidence: WordEvidence, top: int = TOP) -> Self:
        """Choose words. topics: (r, len(vocabulary)), rows summing to 1; evidence: of what was learned."""
        A = topics.T
        return cls(
            vocabulary[top_words(A, evidence, top, keep=top)],
            vocabulary[arranged(A * evidence.weight[:, None], evidence, top, keep=top)],
            vocabulary[np.argsort(-topics, axis=1, kind="stable")[:, :top]],
        )

    def score(self, material: Material) -> Score:
        """Score the lists on documents: those that were learned, or others over the same words."""
        held = as_documents(material.counts)
        shown, likely, plain = self.shown, self.likely, self.plain
        return Score(
            npmi(shown, held),
            diversity(shown),
            npmi(likely, held),
            diversity(likely),
            npmi(plain, held),
        )


def mean_score(scores: Iterable[Score]) -> Score:
    """Return the mean of each measure; of one score at least."""
    return Score(*np.mean([astuple(score) for score in scores], axis=0).tolist())


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
