"""The working vocabulary: which words a model is about, and how much the column of each one weighs.

Both are pure functions of a few integers a word, rounded to powers of sqrt 2 so that they rarely move:

    frequency   documents that hold the word: not too few, not too many
    tokens      its occurrences, and
    heavy       documents that are a tenth that word or more: both tell words that repeat themselves
    mass        its row sum: the column weight D^2 is its power -1/2

The choice of words needs no pair counts, so an update knows its words before it reads a pair (docs/decisions/0028).
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopic.counts import CountSource
from streamtopic.topics.learner_options import LearnerOptions

__all__ = ["Thresholds", "choose_words", "column_squares", "reachable_words", "thresholds"]

# A share of a small corpus is less than the documents of one subject: so many may always hold a word.
_LEAST_MAX_DF = 20
_LEAST_ANCHOR_DF = 2
_MOST_MIN_DF_SHARE = 0.02
# From so many words on, words that repeat themselves are left out (docs/decisions/0028).
_FEWEST_WORDS = 1_000
# See `_repeated` for these three.
_HEAVY = 10
_SPREAD = 5
_REPEATS = 5

Float = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
# 2^0, 2^(1/4), 2^(1/2), 2^(3/4): these doubles are the weights, by definition.
_ROOTS = np.array([1.0, 1.189207115002721, 1.4142135623730951, 1.681792830507429])

_CLOSE = 2.0**-30


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Document frequencies, both ends included, of kept words, and the least one of an anchor word."""

    least: float
    most: float
    anchor: float


def thresholds(documents: int, options: LearnerOptions) -> Thresholds:
    """Turn shares of `documents` into counts, rounded to powers of sqrt 2 so that they rarely move.

    A threshold that followed m exactly would change the vocabulary at almost every deletion.
    """
    never_more = max(1.0, _coarse(_MOST_MIN_DF_SHARE * documents))
    by_count, by_share = min(options.min_df, never_more), _coarse(options.min_share * documents)
    # A share of 1 means every word: rounding must not make it less.
    most = documents if options.max_df == 1 else max(_LEAST_MAX_DF, _coarse(options.max_df * documents))
    return Thresholds(
        least=max(by_count, by_share),
        most=most,
        anchor=max(_LEAST_ANCHOR_DF, _coarse(options.anchor_min_df * documents)),
    )


def choose_words(source: CountSource, options: LearnerOptions) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """Return the ascending positions of the kept words, and which of those may be anchors.

    source: its numbers a word and its number of documents count, no pairs. Where more than `max_words` pass, the least
    frequency rises by factors of sqrt 2 until they do not. Then words that repeat themselves are left out.
    """
    limits = thresholds(source.documents, options)
    least = limits.least
    below = source.frequency <= limits.most
    keep = np.flatnonzero((source.frequency >= max(least, 1)) & below)
    while len(keep) > options.max_words:
        least *= math.sqrt(2)
        keep = np.flatnonzero((source.frequency >= least) & below)
    if len(keep) >= _FEWEST_WORDS:
        keep = keep[~_repeated(source, keep)]
    return keep, source.frequency[keep] >= limits.anchor


def _repeated(source: CountSource, words: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    """Return which words mostly meet themselves: encoded blobs, rulers, tables of one symbol.

    Such a word stands in its documents five times or more on average, and is a tenth of the tokens of a fifth of them,
    ten at least. Where h of the k documents that hold a word are such ones already, it takes max(10 - h, (k - 5 h) / 4)
    documents of somebody's own to have it left out, and one is enough at the edge.
    """
    frequency, tokens, heavy = (column[words] for column in (source.frequency, source.tokens, source.heavy))
    return np.asarray((heavy >= _HEAVY) & (_SPREAD * heavy >= frequency) & (tokens >= _REPEATS * frequency))


def reachable_words(
    frequency: npt.NDArray[np.int64], documents: int, options: LearnerOptions, deletions: int
) -> npt.NDArray[np.intp]:
    """Return the ascending positions of all words that may be kept after up to so many deletions, whichever they are.

    Thresholds do not rise with deletions, and a word's frequency falls by one a deletion at most.
    """
    least = thresholds(max(documents - deletions, 1), options).least
    most = thresholds(documents, options).most
    return np.flatnonzero((frequency >= max(least, 1)) & (frequency <= most + deletions))


def _coarse(value: float) -> float:
    return 0.0 if value <= 0 else float(2.0 ** (round(2 * math.log2(value)) / 2))


def column_squares(mass: Int64, options: LearnerOptions) -> Float:
    """Return D^2, (n,): 1, or p^-1/2 with p rounded to powers of sqrt 2.

    mass: (n,) row sums, not all 0; a word without mass gets the weight of the least mass. Rounding is decided in
    integers where it is close, so no library's logarithm has a part in it.
    """
    if options.learner == "paper":
        return np.ones(len(mass))
    total = sum(mass.tolist())
    own = np.maximum(mass, 1)
    rough = 2 * np.log2(own / float(total))
    steps = np.round(rough).astype(np.int64)
    for i in np.flatnonzero(np.abs(np.abs(rough - np.floor(rough)) - 0.5) < _CLOSE):
        steps[i] = _nearest_step(int(own[i]), total)
    return np.asarray(np.ldexp(_ROOTS[-steps % 4], -steps // 4))


def _nearest_step(mass: int, total: int) -> int:
    """Return k with 2^((k - 1/2) / 2) < mass / total <= 2^((k + 1/2) / 2), in integers."""
    # The fourth power of the ratio lies between 2^(2 k - 1) and 2^(2 k + 1).
    power, whole = mass**4, total**4
    k = (power.bit_length() - whole.bit_length()) // 2 - 2
    while _above(power, whole, 2 * k + 1):
        k += 1
    return k


def _above(power: int, whole: int, exponent: int) -> bool:
    """Return whether power / whole > 2^exponent."""
    if exponent >= 0:
        return power > whole << exponent
    return power << -exponent > whole
