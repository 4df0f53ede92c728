"""A release: its payload, which the guarantee covers, its bytes, and what its readers use of it.

Its facts are an entry of the ledger (Envelope). A payload that contradicts them is neither published nor opened
(`check_release`).

The words about privacy say what unlearning does not give; every reader of a version meets them.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field, PlainValidator

from streamtopic.errors import InvalidRelease, UsageError
from streamtopic.signed.canonical import Whole, parse, reading, write
from streamtopic.signed.entries import Envelope
from streamtopic.tensors import parts, unpacked
from streamtopic.topics.inference import fold_in, unknown_documents, warn_of_unknown
from streamtopic.words.text import TOKENISER, AnyText, passages

__all__ = [
    "GIVEN_AWAY",
    "HELPS",
    "ONE_DOCUMENT",
    "Head",
    "Payload",
    "Release",
    "Topic",
    "check_release",
    "open_release",
    "pack_payload",
]


Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


def _refused(_: object) -> None:
    raise ValueError("an array lies beside the text, and not in it")


Apart32 = Annotated[Float32 | None, PlainValidator(_refused), Field(exclude=True)]
Apart64 = Annotated[Float64 | None, PlainValidator(_refused), Field(exclude=True)]

# How far shares of words in a topic, and of topics, may be from 1 in sum.
_NEAR_ONE = 1e-3
# R is stored in single precision, so its smallest eigenvalue may fall below 0 by this share of its norm.
_FLOAT32 = 2.0**-22
# `streamtopic bench difference` measured this on docstrings, 20 topics; docs/benchmarks.md has the whole table.
MEASURED = "10 of 10 single deletions ranked first among 300 candidates, with a median of 30 % of their words read off"
GIVEN_AWAY = f"two consecutive versions give a deleted document away ({MEASURED})"
ONE_DOCUMENT = (
    "this is for one document with two contents at most, one after the other; more of them and the documents of one "
    "person together reveal more (docs/guarantees.md)"
)
HELPS = (
    "let deletions wait for others (`max_forget_lag`), have the versions from before them withdrawn, and give versions "
    "only to those who may see the documents"
)


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """A task's classifier: a document of word shares x (n,) is of the class with the largest x^T B.

    topics: (k,), anchor words of the topics that it rests on.
    classes: (C,), ascending.
    documents: number of labelled documents that it was fitted on.
    w: (k, C) float64, B = A[:, topics] w; None if A is withheld.
    B: (n, C) float32 with noise, if A is withheld; else None.
    """

    topics: tuple[str, ...]
    classes: tuple[str, ...]
    documents: Whole
    w: Apart64 = None
    B: Apart32 = None


@dataclass(frozen=True, slots=True, eq=False)
class Payload:
    """The model as published; everything in it was computed after noise.

    If A is withheld there are words and heads only, with noise on all heads together.

    words: (n,), sorted by code point.
    A: (n, r) float32, words given topics, columns on the simplex.
    R: (r, r) float32, topic-topic covariance.
    shares: (r,) float64, of topics.
    top_words: words of each topic in display order.
    quality: name to value, such as npmi and diversity.
    heads: task to head.
    anchors: (r,), name of each topic: its anchor word, or the name of a guided topic. Names of guided topics come last.
    guided: name of each guided topic to those of its seeds that are words of the model; () for one that has ended.
    """

    words: tuple[str, ...]
    A: Apart32 = None
    R: Apart32 = None
    shares: Apart64 = None
    top_words: tuple[tuple[str, ...], ...] = ()
    quality: Mapping[str, float] = field(default_factory=dict)
    heads: Mapping[str, Head] = field(default_factory=dict)
    anchors: tuple[str, ...] = ()
    guided: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays that are there, by the names that they have in the bytes of a release."""
        named: dict[str, npt.NDArray[Any] | None] = {"A": self.A, "R": self.R, "shares": self.shares}
        for task, head in self.heads.items():
            named |= {f"heads/{task}/w": head.w, f"heads/{task}/B": head.B}
        return {name: array for name, array in named.items() if array is not None}


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic for display.

    topic: its number, from 0.
    share: of the corpus, from 0 to 1.
    words: in display order.
    """

    topic: int
    share: float
    words: tuple[str, ...]


# By `covered`, the guarantee's conditions.
_ASSUMED = {
    None: "",
    True: ", under the paper's assumptions",
    False: ", under the paper's assumptions, which do not all hold",
}


def guarantee_of(facts: Envelope) -> str:
    """Return the promise of a version and its limit in one line.

    The version is (epsilon, delta)-indistinguishable from a retraining on the remaining documents. Both are of one
    version by itself; this is the unlearning epsilon, which is not privacy.
    """
    if facts.guarantee == "private":
        return (
            f"private: all versions of a period together tell any one document's content apart from an empty one "
            f"at epsilon {facts.epsilon:g}, delta {facts.delta:g} at most; all periods so far together at epsilon "
            f"{facts.cumulative_epsilon:.3g}; {ONE_DOCUMENT}"
        )
    noise = f"sigma {facts.sigma:.2g}"
    # Under the theorem nothing is certified, and the certificate is infinite.
    if facts.guarantee != "theorem":
        noise += f", certificate at most {facts.certificate:.2g}"
    spent = f"unlearning epsilon {facts.epsilon:g}, delta {facts.delta:g}"
    alone = f"{spent} ({noise}){_ASSUMED[facts.covered]}"
    retraining = f"a retraining without the {facts.forgotten} forgotten documents"
    said = [
        f"{facts.guarantee}: indistinguishable from {retraining} at {alone}",
        f"all versions since the base together at unlearning epsilon {facts.cumulative_epsilon:.3g}",
    ]
    if facts.ratio >= 1:
        said.append(f"the noise has {facts.ratio:.3g} times the norm of the model")
    return "; ".join((*said, f"unlearning is not privacy: {GIVEN_AWAY}"))


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """A verified version.

    If A is withheld there are heads only. `topics`, `transform`, `scores`, `classify` and `class_words` serve the
    model: they raise InvalidRelease once the version is withdrawn, and StaleRelease once it may be out of date.

    envelope: its facts, an entry of the ledger.
    proof: that this entry is in the ledger, as a file of tlog-proof; "" for one that was never published.
    check: raises the error of a version that must not be used any more.
    """

    payload: Payload
    envelope: Envelope
    proof: str = field(default="", repr=False)
    check: Callable[["Release"], None] = field(default=lambda _: None, repr=False)

    @property
    def version(self) -> int:
        """Number of the version, from 1."""
        return self.envelope.version

    @property
    def digest(self) -> str:
        """SHA-256 of its bytes, hexadecimal, as the ledger has it."""
        return self.envelope.release

    @property
    def anchors(self) -> tuple[str, ...]:
        """Name of each topic, (r,): its anchor word, or the name of a guided topic."""
        return self.payload.anchors

    @property
    def words(self) -> tuple[str, ...]:
        """The vocabulary (n,), sorted."""
        return self.payload.words

    @property
    def A(self) -> Float64:  # noqa: N802 -- the paper's symbol
        """Words given topics, (n, r), columns on the simplex. Raises InvalidRelease if it is withheld."""
        return self._array("A")

    @property
    def R(self) -> Float64:  # noqa: N802 -- the paper's symbol
        """Topic-topic covariance, (r, r). Raises InvalidRelease if it is withheld."""
        return self._array("R")

    @property
    def shares(self) -> Float64:
        """Shares of the topics, (r,). Raises InvalidRelease if they are withheld."""
        return self._array("shares")

    @property
    def top_words(self) -> tuple[tuple[str, ...], ...]:
        """Words of each topic in display order; empty if the version does not show its topics."""
        return self.payload.top_words

    @property
    def quality(self) -> Mapping[str, float]:
        """Measures of the topics, such as npmi and diversity."""
        return self.payload.quality

    @property
    def guarantee(self) -> str:
        """The promise of the version and its limit in one line."""
        return guarantee_of(self.envelope)

    @property
    def heads(self) -> tuple[str, ...]:
        """Tasks for which the version has a head, ascending."""
        return tuple(sorted(self.payload.heads))

    def head(self, task: str) -> Head:
        """Return a task's head. Raises UsageError for a task without one."""
        found = self.payload.heads.get(task)
        if found is None:
            have = f"it has {', '.join(self.heads)}" if self.heads else "it has none, `streamtopic status` says why"
            raise UsageError(f"release {self.version} has no head for task {task!r}: {have}")
        return found

    def classes(self, task: str) -> tuple[str, ...]:
        """Return the classes that a task's head tells apart, (C,), ascending. Raises UsageError as `head`."""
        return self.head(task).classes

    def task_weights(self, task: str) -> Float64:
        """Return a task's B, (n, C): A w if A is published, else as released. Raises UsageError as `head`."""
        head = self.head(task)
        # If A is withheld, B itself has the noise.
        if head.B is not None:
            return np.asarray(head.B, np.float64)
        place = {anchor: k for k, anchor in enumerate(self.payload.anchors)}
        columns = [place[topic] for topic in head.topics]
        return np.asarray(self.A[:, columns] @ np.asarray(head.w))

    def class_words(self, task: str, top: int = 10) -> dict[str, tuple[str, ...]]:
        """Return for each class the words that speak most for it against the others, by B less its mean over classes.

        top: number of words for each class. Raises InvalidRelease or StaleRelease as the class says, UsageError as
        `head`.
        """
        self.check(self)
        B = self.task_weights(task)
        against = B.mean(axis=1, keepdims=True) - B
        # Stable, so that words of equal weight come in the order of the vocabulary on every machine.
        order = np.argsort(against, axis=0, kind="stable")[:top]
        found = {}
        for name, column in zip(self.classes(task), order.T.tolist(), strict=True):
            found[name] = tuple(self.words[k] for k in column)
        return found

    def scores(self, texts: Sequence[AnyText], task: str) -> Float64:
        """Return x^T B, (texts, C), where x (n,) has the shares of the vocabulary's words in a text.

        A score above 0 speaks for the class, below 0 against it. A text without a word of the vocabulary scores 0.
        Raises InvalidRelease or StaleRelease as the class says, UsageError as `head`.
        """
        return self._scored(texts, task)[0]

    def classify(self, texts: Sequence[AnyText], task: str) -> list[str | None]:
        """Return the class of each text, None for a text without a word of the vocabulary. Raises as `scores`."""
        classes = self.classes(task)
        scores, known = self._scored(texts, task)
        best = scores.argmax(axis=1)
        return [classes[int(c)] if some else None for c, some in zip(best, known, strict=True)]

    def topics(self, top: int = 10) -> list[Topic]:
        """Return the topics with at most `top` words each.

        Raises InvalidRelease or StaleRelease as the class says, InvalidRelease if topics are withheld.
        """
        self.check(self)
        shares = self.shares.tolist()
        # A release may hold topics without words to show them by.
        shown = self.top_words or ((),) * len(shares)
        return [Topic(number, shares[number], words[:top]) for number, words in enumerate(shown)]

    def transform(self, texts: Sequence[AnyText]) -> Float64:
        """Return the topic proportions of texts, (texts, r), rows sum to 1.

        Warns of texts without a word of the vocabulary, by their rows: their proportions are all equal.
        texts: strings; or the words of each, or mappings of words to counts, as the version's tokeniser makes them.
        Raises as `topics`, and UsageError for a string if that tokeniser is the producers' own.
        """
        self.check(self)
        A = self.A
        indptr, words, counts = self._counted(texts)
        theta = fold_in(A, indptr, words, counts)
        warn_of_unknown(unknown_documents(A, theta, indptr, words), len(texts))
        return theta

    def data(self) -> bytes:
        """Return the bytes of the version, as the service published them.

        Raises InvalidRelease or StaleRelease as the class says.
        """
        self.check(self)
        return pack_payload(self.payload, self.envelope)

    def _array(self, name: str) -> Float64:
        array = getattr(self.payload, name)
        if array is None:
            raise InvalidRelease(
                f"release {self.version} withholds its topics, so it holds no {name}: use `classify` and `scores`, or "
                'publish = "topics" in the service'
            )
        return np.asarray(array, np.float64)

    def _scored(self, texts: Sequence[AnyText], task: str) -> tuple[Float64, Bool]:
        """Return the scores of texts, (texts, C), and whether each holds a word of the vocabulary, (texts,)."""
        self.check(self)
        B = self.task_weights(task)
        indptr, words, counts = self._counted(texts)
        scores = np.zeros((len(texts), B.shape[1]))
        for row, (start, stop) in enumerate(pairwise(indptr)):
            # A text without a word of the vocabulary has no shares, and keeps score 0.
            if stop > start:
                times = counts[start:stop]
                scores[row] = times @ B[words[start:stop]] / times.sum()
        return scores, np.diff(indptr) > 0

    def _counted(self, texts: Sequence[AnyText]) -> tuple[Int64, Int64, Int64]:
        """Return the vocabulary's words in texts as CSR rows: indptr (texts + 1,), words (nnz,), counts (nnz,)."""
        position = {word: place for place, word in enumerate(self.words)}
        own = self.envelope.tokeniser
        rows = []
        for text in texts:
            if isinstance(text, str) and own != TOKENISER:
                raise UsageError(
                    f"the words of release {self.version} come from the tokeniser {own}: give the words of each text, "
                    "made by it, in place of the text"
                )
            times: Counter[int] = Counter()
            for _, held in passages(text):
                times.update({position[word]: number for word, number in held.items() if word in position})
            rows.append(sorted(times.items()))
        counts = np.array([pair for row in rows for pair in row], np.int64).reshape(-1, 2)
        return np.cumsum([0, *map(len, rows)]), counts[:, 0], counts[:, 1]


def pack_payload(payload: Payload, envelope: Envelope) -> bytes:
    """Return the bytes of a release, in the safetensors format. Raises as `check_release`.

    Equal payloads have equal bytes. All but the arrays is the text `release`; an array of a head is named such as
    heads/TASK/w.
    """
    check_release(payload, envelope)
    with reading("release"):
        return b"".join(parts(payload.arrays, {"release": write(payload)}))


def open_release(data: bytes, envelope: Envelope, proof: str = "") -> Release:
    """Return the release in its bytes. Raises InvalidRelease for other bytes than those of `pack_payload`.

    envelope: its entry in the ledger, proved by `proof`. Whoever calls it has checked both (`Ledger.open_release`).
    """
    with reading("release"):
        arrays, texts = unpacked(data)
        payload = parse(Payload, texts["release"], "release")
        heads = {}
        for task, head in payload.heads.items():
            heads[task] = replace(head, w=arrays.get(f"heads/{task}/w"), B=arrays.get(f"heads/{task}/B"))
        A, R, shares = map(arrays.get, ("A", "R", "shares"))
        payload = replace(payload, A=A, R=R, shares=shares, heads=heads)
        if payload.arrays.keys() != arrays.keys() or len(texts) > 1:
            raise ValueError("it has arrays or texts that no model has")
    check_release(payload, envelope)
    return Release(payload, envelope, proof=proof)


def check_release(payload: Payload, envelope: Envelope) -> None:
    """Raise InvalidRelease unless payload and envelope fit each other, and the numbers are those of a model."""
    # In this order, since each check relies on the ones before. NaN is refused by each comparison.
    for holds, problem in _claims(payload, envelope):
        if not holds:
            raise InvalidRelease(f"release {envelope.version}: {problem}")


def _claims(payload: Payload, envelope: Envelope) -> Iterator[tuple[bool | np.bool_, str]]:
    """Yield what must hold of a release, each with the problem if it does not."""
    certified = envelope.guarantee == "certified"
    yield (
        not certified or envelope.certificate <= envelope.tolerance,
        "its certificate is above the tolerance that its noise is made for",
    )
    ordered = len(payload.words) == envelope.n and _ascending(payload.words)
    yield ordered, f"its words are not {envelope.n} sorted, distinct words"
    yield len(payload.anchors) == envelope.r, f"it names {len(payload.anchors)} anchors of {envelope.r} topics"
    if payload.A is None:
        # Each of these was computed from A, and would give part of it away.
        alone = payload.R is None and payload.shares is None and not payload.top_words
        yield alone, "it has R, shares or top words without A"
        yield bool(payload.heads), "it has neither topics nor heads"
    else:
        yield from _model_claims(payload, envelope.n, envelope.r)
    for task, head in payload.heads.items():
        for holds, problem in _head_claims(head, payload):
            yield holds, f"the head of task {task!r} {problem}"


def _model_claims(payload: Payload, n: int, r: int) -> Iterator[tuple[bool | np.bool_, str]]:
    for name, shape in {"A": (n, r), "R": (r, r), "shares": (r,)}.items():
        array = getattr(payload, name)
        yield np.shape(array) == shape, f"{name} does not fit {n} words and {r} topics"
        yield array.dtype == (np.float64 if name == "shares" else np.float32), f"{name} has numbers of another type"
        yield np.isfinite(array).all(), f"{name} has entries that are not finite numbers"
    # A release may have topics without words to show them by.
    yield len(payload.top_words) in {0, r}, f"it has top words of {len(payload.top_words)} topics, not {r}"
    A, R, shares = (np.asarray(array, np.float64) for array in (payload.A, payload.R, payload.shares))
    # Sums of float32, each rounded to the grid of the noise.
    near = np.abs(A.sum(axis=0) - 1).max() <= _NEAR_ONE
    yield A.min() >= 0 and near, "a column of A does not hold shares of words"
    yield shares.min() >= 0 and abs(shares.sum() - 1) <= _NEAR_ONE, "the shares of its topics do not sum to 1"
    rounding = _FLOAT32 * r * max(1.0, float(np.linalg.norm(R)))
    least = np.linalg.eigvalsh((R + R.T) / 2).min()
    yield np.abs(R - R.T).max() <= rounding and least >= -rounding, "R is not positive semidefinite"


def _head_claims(head: Head, payload: Payload) -> Iterator[tuple[bool | np.bool_, str]]:
    enough = len(head.classes) >= 2 and _ascending(head.classes) and head.documents >= len(head.classes)
    yield enough, "does not have at least two sorted, distinct classes with a document each"
    distinct = set(head.topics)
    known = bool(distinct) and len(distinct) == len(head.topics) and distinct <= set(payload.anchors)
    yield known, "rests on topics that are repeated or not in the model"
    # A head has w if A is published, and B in place of a withheld one, never both.
    withheld = payload.A is None
    array, other = (head.B, head.w) if withheld else (head.w, head.B)
    shape = (len(payload.words) if withheld else len(head.topics), len(head.classes))
    fits = array is not None and other is None and array.shape == shape
    yield fits, f"does not fit {len(payload.words)} words, its topics and its classes"
    wanted = np.float32 if withheld else np.float64
    sound = array is not None and array.dtype == wanted and np.isfinite(array).all()
    yield sound, f"has entries that are not finite numbers of {wanted.__name__}"


def _ascending(words: Sequence[str]) -> bool:
    return all(a < b for a, b in pairwise(words))
