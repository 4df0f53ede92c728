"""What a release says: the payload, which the guarantee covers, and the envelope, which it does not.

`check_release` refuses a release that contradicts itself: such a release is neither signed nor opened. The words at the
end say what unlearning does not give; every reader of a version meets them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from streamtopic.errors import InvalidRelease

__all__ = [
    "FORMAT",
    "GIVEN_AWAY",
    "HELPS",
    "MEASURED",
    "REVISION",
    "Envelope",
    "Head",
    "Kind",
    "Payload",
    "check_release",
]

FORMAT = 1
REVISION = 1
"""Of the learner's decisions and of its certificate: 1 is what docs/proof.md proves. Versions made before say none."""

Kind = Literal["retrain", "unlearn"]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """A task's classifier: a document of word shares x (n,) is of the class with the largest x^T B.

    topics: anchor words of the topics that it rests on, (k,); classes: ascending, (C,); documents: labelled ones that
    it was fitted on. Where A is published, w (k, C) float64 and B = A[:, topics] w; where A is withheld, B (n, C)
    float32 with noise. The other one is None.
    """

    topics: tuple[str, ...]
    classes: tuple[str, ...]
    documents: int
    w: Float64 | None = None
    B: Float32 | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Payload:
    """The model as published; everything in it was computed after noise.

    words: sorted by code point. A (n, r) float32, columns on the simplex; R (r, r) float32; shares (r,) float64, of
    topics. top_words: for each topic, in display order. quality: such as npmi, diversity. heads: by task.
    Where A is withheld there are words and heads only, with noise on all heads together.
    """

    words: tuple[str, ...]
    A: Float32 | None = None
    R: Float32 | None = None
    shares: Float64 | None = None
    top_words: tuple[tuple[str, ...], ...] = ()
    quality: Mapping[str, float] = field(default_factory=dict)
    heads: Mapping[str, Head] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Envelope:
    """Facts about a version.

    kind: how it was made; parent: the version before (0: none); base: version of the retrain it descends from; cut:
    partition to the offset up to which records are reflected. m, n, r: documents, words, topics. sigma: noise of A, of
    heads where A is withheld (the largest); tolerance: error of A that was allowed; certificate: what is claimed of it,
    the tolerance too (under the theorem Delta, and infinity since nothing is certified).
    anchors: words, by topic; margin: the least lead of an anchor, rounded down to a power of two. forgotten: deletions
    since the base. capacity: how many it bears, by capacity_rule. cumulative_epsilon: spent since the base, at delta.
    withdrawn: versions that this one replaces because they hold forgotten documents. created: milliseconds since 1970.
    scale, slack: what composes its epsilon with that of others; ratio: norm of the noise over norm of the model;
    covered: whether every condition of the paper's proof held, None where the guarantee rests on none; epoch, counted:
    last epoch of the base, and documents accepted until the cut, by which a service goes on from here. revision: see
    REVISION, 0 if it says none. previous: digest of the version before (`Release.digest`), "" where nobody knows one;
    commitment: to the counts that it was made from, which only a holder of the noise key can test. Versions of an older
    program have neither.
    """

    model: str
    version: int
    kind: Kind
    parent: int
    base: int
    cut: Mapping[int, int]
    m: int
    n: int
    r: int
    guarantee: Literal["certified", "theorem"]
    epsilon: float
    delta: float
    sigma: float
    tolerance: float
    certificate: float
    anchors: tuple[str, ...]
    margin: float
    forgotten: int
    capacity: int
    capacity_rule: str
    cumulative_epsilon: float
    withdrawn: tuple[int, ...]
    created: int
    scale: float = 0.0
    slack: float = 0.0
    epoch: int = 0
    counted: int = 0
    ratio: float = 0.0
    covered: bool | None = None
    revision: int = 0
    previous: str = ""
    commitment: str = ""
    format: int = FORMAT

    @property
    def bound(self) -> bool:
        """Whether it names the version before and commits to its counts; those of an older program do not."""
        return bool(self.commitment)

    @property
    def unproven(self) -> bool:
        """Whether its guarantee rests on a certificate from before certificates were proven."""
        return self.guarantee == "certified" and self.revision < REVISION


_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_END = 253_402_300_800_000
"""Milliseconds from 1970 to the year 10000."""


def check_release(payload: Payload, envelope: Envelope) -> None:
    """Raise InvalidRelease unless the parts of a release fit each other, and all its numbers are numbers."""
    problem = _chained(envelope) or _words(payload, envelope) or _model(payload, envelope) or _heads(payload, envelope)
    if problem is not None:
        raise InvalidRelease(f"release {envelope.version}: {problem}")


def _chained(envelope: Envelope) -> str | None:
    for name in ("previous", "commitment"):
        said = getattr(envelope, name)
        if not isinstance(said, str) or (said and not _DIGEST.match(said)):
            return f"its {name} is not a digest"
    return "names a version before the first" if envelope.parent == 0 and envelope.previous else None


def _words(payload: Payload, envelope: Envelope) -> str | None:
    if envelope.version < 1 or not all(0 < version < envelope.version for version in envelope.withdrawn):
        return "withdraws versions that are not before it"
    if not 0 <= envelope.created < _END:
        return "its time is in no calendar"
    if len(payload.words) != envelope.n or not _ascending(payload.words):
        return f"its words are not {envelope.n} sorted, distinct words"
    return None


def _model(payload: Payload, envelope: Envelope) -> str | None:
    n, r = envelope.n, envelope.r
    shapes = {"A": (n, r), "R": (r, r), "shares": (r,)}
    if payload.A is None:
        extra = [name for name in ("R", "shares") if getattr(payload, name) is not None]
        if extra or payload.top_words:
            return f"{', '.join(extra) or 'top words'} without A"
        return None if payload.heads else "holds neither topics nor heads"
    if len(envelope.anchors) != r:
        return f"it names {len(envelope.anchors)} anchors of {r} topics"
    for name, shape in shapes.items():
        array = getattr(payload, name)
        if np.shape(array) != shape:
            return f"{name} does not fit {n} words and {r} topics"
        if not np.isfinite(array).all():
            return f"{name} holds what is not a number"
    return None if len(payload.top_words) in {0, r} else f"it has top words of {len(payload.top_words)} topics, not {r}"


def _heads(payload: Payload, envelope: Envelope) -> str | None:
    for task, head in payload.heads.items():
        problem = _head(head, envelope, withheld=payload.A is None)
        if problem is not None:
            return f"the head of task {task!r} {problem}"
    return None


def _head(head: Head, envelope: Envelope, *, withheld: bool) -> str | None:
    if len(head.classes) < 2 or not _ascending(head.classes) or head.documents < len(head.classes):
        return "has no two sorted, distinct classes with a document each"
    if not head.topics or len(set(head.topics)) < len(head.topics) or not set(head.topics) <= set(envelope.anchors):
        return "rests on topics that the model has not"
    array, other = (head.B, head.w) if withheld else (head.w, head.B)
    rows = envelope.n if withheld else len(head.topics)
    if array is None or other is not None or array.shape != (rows, len(head.classes)):
        return f"does not fit {envelope.n} words, its topics and its classes"
    return None if np.isfinite(array).all() else "holds what is not a number"


def _ascending(words: Sequence[str]) -> bool:
    return all(a < b for a, b in pairwise(words))


MEASURED = "10 of 10 single deletions ranked first among 300 candidates, with a median of 55 % of their words read off"
"""What `streamtopic bench difference` found on docstrings, 20 topics: docs/benchmarks.md has the whole of it."""
GIVEN_AWAY = f"two consecutive versions give a deleted document away ({MEASURED})"
HELPS = (
    "let deletions wait for others (`max_forget_lag`), have the versions from before them withdrawn, and give versions "
    "only to those who may see the documents"
)
