"""Everything that a fitted estimator holds, in one value that never changes.

A change makes another one, and the estimator takes it over by one assignment. So a reader in another thread sees the
model before a change or the model after it, a change that is refused leaves no trace, and copies of an estimator
are independent of each other.
"""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from streamtopic.counts import KeptCounts, SymmetricCounts
from streamtopic.counts.arrays import Float, Positions
from streamtopic.counts.matrices import TextColumns
from streamtopic.counts.symmetric import Uncounted
from streamtopic.topics.display import WordEvidence, top_words
from streamtopic.topics.fit import TopicFit

__all__ = ["Fitted", "steady"]

# Steps of a probability that is shown: of rounding there are thousands in one of them.
_GRID = 2.0**40


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model with its documents.

    counts: the documents, as word counts.
    columns: the columns of X and the words that they represent.
    names: (n_features,) the names of columns; None for columns without names.
    n_features: how many columns.
    fit: the model.
    places: where its words are in `counts`.
    anchors: (n_topics,) columns.
    certificate: the proven bound.
    retrain_reason: why the last change was a cold start; None if it was none.
    vectoriser: the TextCounts that made the columns, of a model that was fitted on texts.
    """

    counts: KeptCounts
    columns: TextColumns
    names: npt.NDArray[np.object_] | None
    n_features: int
    fit: TopicFit
    places: Positions
    anchors: Positions
    certificate: float
    retrain_reason: str | None = None
    vectoriser: Any = None

    @classmethod
    def of(
        cls,
        counts: KeptCounts,
        columns: TextColumns,
        names: npt.NDArray[np.object_] | None,
        n_features: int,
        fit: TopicFit,
        reason: str | None = None,
    ) -> Self:
        """Put a fit on the columns of X. The parameters are the fields of the class."""
        found = columns.order[counts.positions(fit.anchors)]
        no_anchor = np.full(len(fit.guided), -1)
        return cls(
            counts=counts,
            columns=columns,
            names=names,
            n_features=n_features,
            fit=fit,
            places=counts.positions(fit.words),
            anchors=np.append(found, no_anchor),
            certificate=fit.certificate.bound,
            retrain_reason=reason,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle or a deep copy holds: documents, and in place of the rows of Q that they are counted."""
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        q = SymmetricCounts(self.fit.q.n, Uncounted(self.counts, self.places))
        return {**state, "fit": replace(self.fit, q=q)}

    @cached_property
    def components(self) -> Float:
        """Word probabilities of each topic, (n_topics, n_features)."""
        components = np.zeros((self.fit.A.shape[1], self.n_features))
        places = self.columns.order[self.places]
        # Row by row: numpy would write a column of all topics at a time, which takes five times as long.
        for row, topic in zip(components, self.fit.A.T, strict=True):
            row[places] = topic
        return components

    @property
    def documents(self) -> int:
        """How many documents are in the model."""
        return self.counts.documents

    @property
    def shares(self) -> Float:
        """The share of each topic in all word occurrences, (n_topics,)."""
        return self.fit.topic_masses

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for each guided topic that has ended or lacks a seed."""
        return tuple(self.fit.notes.values())

    @property
    def topic_names(self) -> tuple[str, ...]:
        """A name for each topic, (n_topics,): the name of its anchor's column, or of a guided topic."""
        found = len(self.fit.choice)
        by_anchor = [self.name(column) for column in self.anchors[:found].tolist()]
        guided = [topic.name for topic in self.fit.guided]
        return (*by_anchor, *guided)

    def name(self, column: int) -> str:
        """Return the name of a column."""
        return f"x{column}" if self.names is None else str(self.names[column])

    def word_places(self) -> tuple[Positions, Positions]:
        """Return where the model's words are, in the order of words: their columns, and their places in `counts`."""
        order = self.columns.order
        positions = np.flatnonzero(self.components[:, order].any(axis=0))
        return order[positions], positions

    @cached_property
    def word_order(self) -> Positions:
        """Each topic's words in the order in which they are shown, as positions in those of `shown`, (n_topics, n')."""
        # Once for a model: the pairs of all documents are read for it.
        columns, positions = self.word_places()
        evidence = WordEvidence.of(self.fit, self.counts.frequency[positions])
        return top_words(steady(self.components.T[columns]), evidence, len(columns))

    def shown(self) -> tuple[Float, Float, list[str]]:
        """Return A over the words of the model, (n', r), shares of topics, (r,), and the names of the words.

        Views of a model that forgot are made of these, so that they are those of a model that never saw the documents.
        """
        columns, _ = self.word_places()
        words = [self.name(column) for column in columns.tolist()]
        return steady(self.components.T[columns]), steady(self.shares), words


def steady(probabilities: Float) -> Float:
    """Return probabilities on a grid: words that are equally likely by the counts tie, whatever came and went."""
    # Updates and cold starts end at different last bits, which would decide which of the words is shown first.
    return np.asarray(np.rint(probabilities * _GRID) / _GRID)
