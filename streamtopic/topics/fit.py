"""A learned model before noise, with all numbers that a later update needs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from streamtopic.counts import SymmetricCounts
from streamtopic.counts.arrays import Float, Int64, Positions
from streamtopic.topics.anchors import AnchorChoice
from streamtopic.topics.certificate import Certificate, topic_columns
from streamtopic.topics.learner_options import LearnerOptions
from streamtopic.topics.mixtures import Mixtures
from streamtopic.topics.products import times

__all__ = ["TopicFit", "Words"]

_T = TypeVar("_T", bound=np.generic)


class Words(tuple[str, ...]):  # noqa: SLOT001  it keeps its table of places
    """Words that know their places."""

    # One table for all updates over the same words.
    @cached_property
    def place(self) -> dict[str, int]:
        """Position of each word."""
        return {word: k for k, word in enumerate(self)}

    def places(self, words: Sequence[str]) -> Int64:
        """Return the position of each of some words, -1 for a word that is not among these, (len(words),)."""
        place = self.place
        return np.array([place.get(word, -1) for word in words], np.int64)


@dataclass(eq=False)
class TopicFit:
    """A topic model before noise, over n internal words. Those with mass are published.

    options: the choices of the learner.
    names: (n,) the internal words, ascending.
    documents: how many documents were counted.
    q: counts over the internal words. Updates change them in place.
    mass: (n,) row sums, 0 for a word that an update has dropped.
    squares: (n,) D^2.
    candidates: positions of words that may be anchors.
    choice: the anchors.
    group: (n,) the topic that each word stands for, -1 for most.
    mixtures: every word as a mixture of topics.
    """

    options: LearnerOptions
    names: Words
    documents: int
    q: SymmetricCounts
    mass: Int64
    squares: Float
    candidates: Positions
    choice: AnchorChoice
    group: Int64
    mixtures: Mixtures

    @cached_property
    def live(self) -> Positions:
        """Positions of the published words."""
        return np.flatnonzero(self.mass)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The published words, ascending by code point, (n',)."""
        if self.mass.all():
            return self.names
        return tuple(self.names[k] for k in self.live)

    @property
    def anchors(self) -> tuple[str, ...]:
        """The anchor word of each topic, ascending."""
        return tuple(self.names[k] for k in self.choice.rows)

    @cached_property
    def p(self) -> Float:
        """Word masses over the internal words, (n,), sum 1."""
        # Python's integers, since the sum of masses may leave 64 bits.
        return np.asarray(self.mass / float(sum(self.mass.tolist())))

    @property
    def C(self) -> Float:
        """Each internal word as a mixture of topics, (n, r)."""
        return self.mixtures.C

    @cached_property
    def topic_masses(self) -> Float:
        """Masses of topics, z = C^T p, (r,)."""
        return np.asarray(self.C.T @ self.p)

    @cached_property
    def A(self) -> Float:
        """Topic-conditional word distributions of the published words, (n', r), columns sum to 1."""
        return self._columns[0]

    @cached_property
    def certificate(self) -> Certificate:
        """Bound on the distance of A to the exact optimum for these counts."""
        return self.mixtures.certificate(self.mass, self.p[self.live], *self._columns)

    @cached_property
    def _columns(self) -> tuple[Float, Float]:
        """A and z of the published words: A and the certificate need the same sums."""
        return topic_columns(self.C[self.live], self.p[self.live])

    def restricted_product(self, thin: Float) -> Float:
        """Return Q V for the published words, (n', r), for V (n', r). The entries of Q sum to 1."""
        wide = np.zeros((self.q.n, thin.shape[1]))
        wide[self.live] = thin
        product = times(self.q, wide, live=self.live)[self.live]
        return np.asarray(product / float(sum(self.mass.tolist())))

    def held(self, words: Sequence[str]) -> Int64:
        """Return the internal position of each word, -1 for a word that is not among them or has no mass."""
        found = self.names.places(words)
        # The pairs of a dropped word are all gone from Q, so its changes do not concern the fit.
        live = (found >= 0) & (self.mass[found] > 0)
        return np.where(live, found, -1)

    def over(self, names: Words, q: SymmetricCounts) -> "TopicFit":
        """Return the same model over other internal words. A word that is new has counts in `q` and is 0 elsewhere.

        names: the internal words, ascending.
        q: the counts to hold, over `names`. Arrays that were derived from counts stay those of the old counts.
        """
        ids = names.places(self.names)
        stays = np.flatnonzero(ids >= 0)
        n = len(names)
        at = ids[stays]
        part = self.mixtures
        anchor_counts = _spread(part.anchor_counts.T, at, stays, n, 0).T
        mixtures = replace(
            part,
            # Compiled loops read its rows, so they lie together again.
            anchor_counts=anchor_counts.copy(),
            thin=_spread(part.thin, at, stays, n, 0),
            product=_spread(part.product, at, stays, n, 0),
            relative=_spread(part.relative, at, stays, n, 0),
            error=_spread(part.error, at, stays, n, 0),
            C=_spread(part.C, at, stays, n, 0),
        )
        return replace(
            self,
            names=names,
            q=q,
            mass=_spread(self.mass, at, stays, n, 0),
            squares=_spread(self.squares, at, stays, n, 1),
            candidates=ids[self.candidates],
            choice=replace(self.choice, rows=ids[self.choice.rows]),
            group=_spread(self.group, at, stays, n, -1),
            mixtures=mixtures,
        )


def _spread(array: npt.NDArray[_T], at: Int64, stays: Positions, n: int, fill: float) -> npt.NDArray[_T]:
    """Return n rows: those of `array` at `stays` come to stand at `at`, and all others are `fill`."""
    wide = np.full((n, *array.shape[1:]), fill, array.dtype)
    wide[at] = array[stays]
    return wide
