"""What a release says: the payload, which the guarantee covers, and the envelope, which it does not."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

__all__ = ["FORMAT", "Envelope", "Head", "Kind", "Payload"]

FORMAT = 1
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
    heads where A is withheld (the largest); tolerance, certificate: error of A that was allowed and was reached
    (under the theorem Delta, and infinity since nothing is certified).
    anchors: words, by topic; margin: the least lead of an anchor. forgotten: deletions since the base. capacity: how
    many it bears, by capacity_rule. cumulative_epsilon: spent since the base, at delta. withdrawn: versions that this
    one replaces because they hold forgotten documents. created: milliseconds since 1970. scale, slack: what composes
    its epsilon with that of others; ratio: norm of the noise over norm of the model; covered: whether every condition
    of the paper's proof held, None where the guarantee rests on none; epoch, counted: last epoch of the base, and
    documents accepted until the cut, by which a service goes on from here.
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
    format: int = FORMAT
