"""A release as its readers use it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Self

import numpy as np
import numpy.typing as npt

from streamtopic.errors import InvalidRelease, StaleRelease, UsageError
from streamtopic.signed.matching import match_topics
from streamtopic.signed.release_fields import GIVEN_AWAY, Envelope, Head, Payload
from streamtopic.text import tokenize
from streamtopic.topics.inference import fold_in

__all__ = ["Guarantee", "Release", "Topic"]

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic for display: its number, share of the corpus, and words in display order."""

    topic: int
    share: float
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What a version promises: it is (epsilon, delta)-indistinguishable from a retraining on the documents that remain.

    kind `certified`: no assumption on the corpus; `theorem`: under the paper's, covered: whether they all held.
    epsilon: the unlearning epsilon, of one version by itself: see `limit` for what it is not.
    cumulative_epsilon: for all versions since the base together. forgotten: deletions since the base. ratio: norm of
    the noise over norm of the model. proven: False where an older program made it, whose certificate was not a proof.
    """

    kind: str
    epsilon: float
    delta: float
    sigma: float
    tolerance: float
    certificate: float
    cumulative_epsilon: float
    forgotten: int
    ratio: float = 0.0
    covered: bool | None = None
    proven: bool = True

    @property
    def limit(self) -> str:
        """What is not promised, with the number that was measured."""
        return f"unlearning is not privacy: {GIVEN_AWAY}"

    @property
    def vacuous(self) -> bool:
        """Whether the noise is as large as the model, so that little or nothing of it can be used."""
        return self.ratio >= 1

    def __str__(self) -> str:
        """Say it in one line."""
        reached = "" if self.kind == "theorem" else f", certificate at most {self.certificate:.2g}"
        held = {
            None: "",
            True: ", under the paper's assumptions",
            False: ", under the paper's assumptions, which do not all hold",
        }
        older = (
            "" if self.proven else "; an older program made it, whose certificate was not a proof: take a later version"
        )
        noise = f"; the noise has {self.ratio:.3g} times the norm of the model" if self.vacuous else ""
        return (
            f"{self.kind}: indistinguishable from a retraining without the {self.forgotten} forgotten documents at "
            f"unlearning epsilon {self.epsilon:g}, delta {self.delta:g} (sigma {self.sigma:.2g}{reached})"
            f"{held[self.covered]}; all versions since the base together at unlearning epsilon "
            f"{self.cumulative_epsilon:.3g}{noise}{older}; {self.limit}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """A verified version. Topics are in the payload's order, or in that of `matched`.

    order: column of A for each topic. digest: names its signed bytes; the next version and receipts repeat it.
    is_withdrawn: whether a version was withdrawn; once this one is, `topics`, `transform`, `scores` and `classify`
    raise InvalidRelease. why_stale: why it may not be the newest any more; they raise
    StaleRelease then. Where A is withheld there are heads only.
    """

    payload: Payload
    envelope: Envelope
    order: tuple[int, ...] = ()
    digest: str = ""
    is_withdrawn: Callable[[int], bool] = field(default=lambda _: False, repr=False)
    why_stale: Callable[[], str | None] = field(default=lambda: None, repr=False)

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
        """Words given topics, (n, r), columns on the simplex. Raises InvalidRelease where it is withheld."""
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
            kind=e.guarantee,
            epsilon=e.epsilon,
            delta=e.delta,
            sigma=e.sigma,
            tolerance=e.tolerance,
            certificate=e.certificate,
            cumulative_epsilon=e.cumulative_epsilon,
            forgotten=e.forgotten,
            ratio=e.ratio,
            covered=e.covered,
            proven=not e.unproven,
        )

    @property
    def heads(self) -> tuple[str, ...]:
        """Tasks that the version has a head for, ascending."""
        return tuple(sorted(self.payload.heads))

    def head(self, task: str) -> Head:
        """Return a task's head. Raises UsageError for a task that the version has none for."""
        found = self.payload.heads.get(task)
        if found is None:
            have = f"it has {', '.join(self.heads)}" if self.heads else "it has none, `streamtopic status` says why"
            raise UsageError(f"release {self.version} has no head for task {task!r}: {have}")
        return found

    def classes(self, task: str) -> tuple[str, ...]:
        """Return the classes that a task's head tells apart, (C,), ascending. Raises UsageError as `head`."""
        return self.head(task).classes

    def task_weights(self, task: str) -> Float64:
        """Return a task's B, (n, C): A w where A is published, else as released. Raises UsageError as `head`."""
        head = self.head(task)
        if head.B is not None:
            return np.asarray(head.B, np.float64)
        # In the payload's order of topics, so that B does not depend on how they are numbered here.
        place = {anchor: k for k, anchor in enumerate(self.envelope.anchors)}
        A = np.asarray(self.payload.A, np.float64)[:, [place[topic] for topic in head.topics]]
        return np.asarray(A @ np.asarray(head.w))

    def class_words(self, task: str, top: int = 10) -> dict[str, tuple[str, ...]]:
        """Return for each class the words that speak most for it against the others, by B less its mean over classes.

        Raises InvalidRelease for a withdrawn version, UsageError as `head`.
        """
        self._check_served()
        B = self.task_weights(task)
        order = np.argsort(B.mean(axis=1, keepdims=True) - B, axis=0, kind="stable")[:top]
        found = {}
        for name, column in zip(self.classes(task), order.T.tolist(), strict=True):
            found[name] = tuple(self.words[k] for k in column)
        return found

    def scores(self, texts: Sequence[str], task: str) -> Float64:
        """Return x^T B, (texts, C), x the shares of the vocabulary's words in a text: 0 where it holds none of them.

        A score above 0 speaks for the class, below 0 against it. Raises InvalidRelease for a withdrawn version,
        UsageError as `head`.
        """
        return self._scored(texts, task)[0]

    def classify(self, texts: Sequence[str], task: str) -> list[str | None]:
        """Return the class of each text, None for one without a word of the vocabulary. Raises as `scores`."""
        classes = self.classes(task)
        scores, known = self._scored(texts, task)
        best = scores.argmax(axis=1)
        return [classes[int(c)] if some else None for c, some in zip(best, known, strict=True)]

    def topics(self, top: int = 10) -> list[Topic]:
        """Topics with at most `top` words each. Raises InvalidRelease for a withdrawn version, or withheld topics."""
        self._check_served()
        shares = self.shares
        # A release may hold topics without words to show them by.
        shown = self.top_words or ((),) * len(shares)
        return [
            Topic(number, float(share), words[:top])
            for number, (share, words) in enumerate(zip(shares, shown, strict=True))
        ]

    def transform(self, texts: Sequence[str]) -> Float64:
        """Topic proportions of texts, (texts, r), rows sum to 1. Raises InvalidRelease as `topics`."""
        self._check_served()
        return fold_in(self.A, *self._counted(texts))

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
            raise InvalidRelease(
                f"release {self.version} withholds its topics, so it holds no {name}: use `classify` and `scores`, or "
                'publish = "topics" in the service'
            )
        return np.asarray(array, np.float64)

    def _scored(self, texts: Sequence[str], task: str) -> tuple[Float64, Bool]:
        """Return the scores of texts, and which of them hold a word of the vocabulary."""
        self._check_served()
        B = self.task_weights(task)
        indptr, words, counts = self._counted(texts)
        scores = np.zeros((len(texts), B.shape[1]))
        for row, (start, stop) in enumerate(pairwise(indptr)):
            if stop > start:
                scores[row] = counts[start:stop] @ B[words[start:stop]] / counts[start:stop].sum()
        return scores, np.diff(indptr) > 0

    def _counted(self, texts: Sequence[str]) -> tuple[Int64, Int64, Int64]:
        """Return the vocabulary's words in texts as CSR rows: indptr (texts + 1,), words (nnz,), counts (nnz,)."""
        position = {word: place for place, word in enumerate(self.words)}
        indptr, words, counts = [0], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for text in texts:
            found = np.array([position[word] for word in tokenize(text) if word in position], np.int64)
            distinct, repeats = np.unique(found, return_counts=True)
            words.append(distinct)
            counts.append(repeats)
            indptr.append(indptr[-1] + len(distinct))
        return np.array(indptr, np.int64), np.concatenate(words), np.concatenate(counts)

    def _check_served(self) -> None:
        if self.withdrawn:
            raise InvalidRelease(
                f"release {self.version} is withdrawn: it holds documents that were deleted since; take a later one"
            )
        if (stale := self.why_stale()) is not None:
            raise StaleRelease(f"release {self.version} may not be the newest: {stale}")
