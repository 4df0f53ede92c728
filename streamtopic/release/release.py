"""A release as its readers use it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from streamtopic.errors import InvalidRelease
from streamtopic.release.fields import Envelope, Payload
from streamtopic.release.matching import match_topics
from streamtopic.text import tokenize
from streamtopic.topics.inference import fold_in

__all__ = ["Guarantee", "Release", "Topic"]

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic for display: its number, share of the corpus, and words in display order."""

    topic: int
    share: float
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What a version promises: it is (epsilon, delta)-indistinguishable from a retraining on the documents that remain.

    kind `certified`: no assumption on the corpus; `theorem`: under the paper's. cumulative_epsilon: for all versions
    since the base together. forgotten: deletions since the base.
    """

    kind: str
    epsilon: float
    delta: float
    sigma: float
    tolerance: float
    certificate: float
    cumulative_epsilon: float
    forgotten: int

    def __str__(self) -> str:
        """Say it in one line."""
        return (
            f"{self.kind}: indistinguishable from a retraining without the {self.forgotten} forgotten documents at "
            f"epsilon {self.epsilon:g}, delta {self.delta:g} (sigma {self.sigma:.2g}, certificate "
            f"{self.certificate:.2g}); all versions since the base together at epsilon {self.cumulative_epsilon:.3g}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """A verified version. Topics are in the payload's order, or in that of `matched`.

    order: column of A for each topic. is_withdrawn: whether a later version has withdrawn this one; once it has,
    `topics` and `transform` raise InvalidRelease.
    """

    payload: Payload
    envelope: Envelope
    order: tuple[int, ...] = ()
    is_withdrawn: Callable[[int], bool] = field(default=lambda _: False, repr=False)

    @property
    def version(self) -> int:
        """Number of the version, from 1."""
        return self.envelope.version

    @property
    def words(self) -> tuple[str, ...]:
        """The vocabulary (n,), sorted."""
        return self.payload.words

    @property
    def A(self) -> Float64:  # noqa: N802 -- the paper's symbol
        """Words given topics, (n, r), columns on the simplex. Raises InvalidRelease for a task release."""
        return self._array("A")[:, self._columns]

    @property
    def R(self) -> Float64:  # noqa: N802 -- the paper's symbol
        """Topic-topic covariance, (r, r)."""
        return self._array("R")[np.ix_(self._columns, self._columns)]

    @property
    def shares(self) -> Float64:
        """Shares of the topics, (r,)."""
        return self._array("shares")[self._columns]

    @property
    def top_words(self) -> tuple[tuple[str, ...], ...]:
        """Words of each topic in display order."""
        return tuple(self.payload.top_words[column] for column in self._columns) if self.payload.top_words else ()

    @property
    def quality(self) -> Mapping[str, float]:
        """Measures of the topics, such as npmi and diversity."""
        return self.payload.quality

    @property
    def withdrawn(self) -> bool:
        """Whether a later version has withdrawn this one."""
        return self.is_withdrawn(self.version)

    @property
    def guarantee(self) -> Guarantee:
        """What the version promises."""
        e = self.envelope
        return Guarantee(
            e.guarantee, e.epsilon, e.delta, e.sigma, e.tolerance, e.certificate, e.cumulative_epsilon, e.forgotten
        )

    def topics(self, top: int = 10) -> list[Topic]:
        """Topics with at most `top` words each. Raises InvalidRelease for a withdrawn version."""
        self._check_served()
        return [
            Topic(number, float(share), words[:top])
            for number, (share, words) in enumerate(zip(self.shares, self.top_words, strict=True))
        ]

    def transform(self, texts: Sequence[str]) -> Float64:
        """Topic proportions of texts, (texts, r), rows sum to 1. Raises InvalidRelease for a withdrawn version."""
        self._check_served()
        position = {word: place for place, word in enumerate(self.words)}
        indptr, words, counts = [0], [], []
        for text in texts:
            found = np.array([position[word] for word in tokenize(text) if word in position], np.int64)
            distinct, repeats = np.unique(found, return_counts=True)
            words.append(distinct)
            counts.append(repeats)
            indptr.append(indptr[-1] + len(distinct))
        empty = [np.zeros(0, np.int64)]
        columns, amounts = np.concatenate(words or empty), np.concatenate(counts or empty)
        return fold_in(self.A, np.array(indptr, np.int64), columns, amounts)

    def matched(self, before: "Release") -> Self:
        """The same release with its topics numbered like the nearest ones of `before`.

        Nearest: least total L1 distance between columns of A. Without as many topics, the release as it is.
        """
        if before.envelope.r != self.envelope.r or self.payload.A is None or before.payload.A is None:
            return self
        order = match_topics(before.words, before.A, self.words, self._array("A"))
        return replace(self, order=order)

    @property
    def _columns(self) -> list[int]:
        return list(self.order or range(self.envelope.r))

    def _array(self, name: str) -> Float64:
        array = getattr(self.payload, name)
        if array is None:
            raise InvalidRelease(f"release {self.version} is a task's head and holds no {name}")
        return np.asarray(array, np.float64)

    def _check_served(self) -> None:
        if self.withdrawn:
            raise InvalidRelease(
                f"release {self.version} is withdrawn: it holds documents that were deleted since; take a later one"
            )
