"""Everything that a fitted estimator holds, in one value that never changes.

A change makes another one, and the estimator takes it over by one assignment. So a reader in another thread sees the
model before a change or the model after it, a change that is refused leaves no trace, and copies of an estimator
are independent of each other.
"""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from threading import Lock
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from streamtopic.counts import KeptCounts, SymmetricCounts
from streamtopic.counts.arrays import Float, Positions
from streamtopic.counts.matrices import TextColumns
from streamtopic.counts.symmetric import Uncounted
from streamtopic.topics.display import WordEvidence, top_words
from streamtopic.topics.fit import TopicFit

__all__ = ["Fitted", "Inside", "steady"]

# Steps of a probability that is shown: of rounding there are thousands in one of them.
_GRID = 2.0**40
# Held while somebody reads the rows of Q of any model, or takes them to change them in place.
_READS_Q = Lock()


@dataclass(frozen=True, slots=True, eq=False)
class Inside:
    """Where the internal words of a fit are among the words of counts.

    fit: the internal words.
    counts: the words of the counts.
    places: (len(fit),) positions in `counts`.
    """

    fit: Any
    counts: Any
    places: Positions

    @classmethod
    def of(cls, fit: TopicFit, counts: KeptCounts, known: "Inside | None" = None) -> "Inside":
        """Look the words up. known: of another fit, taken over if the words are the same objects."""
        if known is not None and known.fit is fit.names and known.counts is counts.words:
            return known
        return cls(fit.names, counts.words, counts.positions(fit.names))


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model with its documents.

    counts: the documents, as word counts.
    columns: the columns of X and the words that they represent.
    names: (n_features,) the names of columns; None for columns without names.
    n_features: how many columns.
    fit: the model. Only an update changes an array of it, Q, which it takes away: see `taken`.
    inside: where its words are in `counts`.
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
    inside: Inside
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
        *,
        inside: Inside | None = None,
        reason: str | None = None,
    ) -> Self:
        """Put a fit on the columns of X. The parameters are the fields of the class."""
        inside = Inside.of(fit, counts, inside)
        found = columns.order[counts.positions(fit.anchors)]
        no_anchor = np.full(len(fit.guided), -1)
        return cls(
            counts=counts,
            columns=columns,
            names=names,
            n_features=n_features,
            fit=fit,
            inside=inside,
            anchors=np.append(found, no_anchor),
            certificate=fit.certificate.bound,
            retrain_reason=reason,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle or a deep copy holds: no rows of Q, which an update may be writing to."""
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        q = SymmetricCounts(self.fit.q.n, self._uncounted)
        return {**state, "fit": replace(self.fit, q=q)}

    def taken(self) -> TopicFit:
        """Return the fit for an update, which changes its Q in place: a copy of Q would be a sixth of its time.

        This model here stays as it is. If it is updated or shown again, its Q is counted from its documents.
        """
        with _READS_Q:
            return replace(self.fit, q=self.fit.q.taken(self._uncounted))

    @property
    def _uncounted(self) -> Uncounted:
        """The documents over the words of the fit. Dropped words have no pairs."""
        keep = np.where(self.fit.mass > 0, self.inside.places, -1)
        return Uncounted(self.counts, keep)

    @cached_property
    def components(self) -> Float:
        """Word probabilities of each topic, (n_topics, n_features)."""
        components = np.zeros((self.fit.A.shape[1], self.n_features))
        places = self.columns.order[self.inside.places[self.fit.live]]
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
        with _READS_Q:
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
