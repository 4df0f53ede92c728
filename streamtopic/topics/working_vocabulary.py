"""The working vocabulary: the words of a model, and the weight of each word's column.

Both are pure functions of a few integers for each word, rounded to powers of sqrt 2 so that they rarely move:

    frequency   documents that hold the word: not too few, not too many
    tokens      its occurrences, and
    heavy       documents of which it is a tenth of the tokens or more: both tell words that repeat themselves
    mass        its row sum: the column weight D^2 is its power -1/2

The choice of words needs no pair counts, so an update knows its words before it reads a pair (docs/decisions/0028).
"""

import math
from dataclasses import dataclass

import numpy as np

from streamtopic.counts import CountSource
from streamtopic.counts.arrays import Float, Int64, Mask, Positions
from streamtopic.topics.learner_options import LearnerOptions

__all__ = ["Thresholds", "choose_words", "column_squares", "reachable_words", "thresholds"]

# In a small corpus a share is less than the documents of one subject: this many may always hold a word.
_LEAST_MAX_DF = 20
_LEAST_ANCHOR_DF = 2
# A word in this share of the documents is frequent enough, however few documents that is.
_MOST_MIN_DF_SHARE = 0.02
# With this many words or more, words that repeat themselves are left out (docs/decisions/0028).
_FEWEST_WORDS = 1_000
# `_repeated` says how these three count.
_HEAVY = 10
_SPREAD = 5
_REPEATS = 5

# 2^0, 2^(1/4), 2^(1/2), 2^(3/4): these doubles are the weights, by definition.
_ROOTS = np.array([1.0, 1.189207115002721, 1.4142135623730951, 1.681792830507429])
# So near to the middle between two steps, a library's logarithm could decide either way.
_CLOSE = 2.0**-30


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Bounds of document frequencies, themselves included.

    least, most: of a kept word.
    anchor: the least one of an anchor word.
    """

    least: float
    most: float
    anchor: float


def thresholds(documents: int, options: LearnerOptions) -> Thresholds:
    """Turn the shares of the options into numbers of documents, out of `documents`."""
    # Rounded to powers of sqrt 2: a threshold that followed m exactly would change the vocabulary at almost every
    # deletion.
    never_more = max(1.0, _coarse(_MOST_MIN_DF_SHARE * documents))
    by_count = min(options.min_df, never_more)
    by_share = _coarse(options.min_share * documents)
    most = max(_LEAST_MAX_DF, _coarse(options.max_df * documents))
    # A share of 1 means every word: rounding must not make it less.
    if options.max_df == 1:
        most = documents
    anchor = max(_LEAST_ANCHOR_DF, _coarse(options.anchor_min_df * documents))
    return Thresholds(max(by_count, by_share), most, anchor)


def choose_words(source: CountSource, options: LearnerOptions) -> tuple[Positions, Mask]:
    """Return the ascending positions of the kept words, (k,), and whether each of them may be an anchor, (k,).

    source: the counts; its pairs are not read.
    Where more than `max_words` words pass, the least frequency rises by factors of sqrt 2 until that many or fewer do.
    Then words that repeat themselves are left out.
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


def _repeated(source: CountSource, words: Positions) -> Mask:
    """Return whether words mostly meet themselves, (k,): encoded blobs, rulers, tables of one symbol.

    Such a word stands in its documents five times or more on average. It is a tenth of the tokens of a fifth of them,
    and of ten of them at least.
    """
    # So nobody leaves out a word of others with one document: if it is heavy in h of the k documents that hold it, that
    # takes max(10 - h, (k - 5 h) / 4) documents of one's own. Only at the edge one is enough.
    frequency = source.frequency[words]
    heavy = source.heavy[words]
    often_heavy = (heavy >= _HEAVY) & (_SPREAD * heavy >= frequency)
    repeated = source.tokens[words] >= _REPEATS * frequency
    return np.asarray(often_heavy & repeated)


def reachable_words(frequency: Int64, documents: int, options: LearnerOptions, deletions: int) -> Positions:
    """Return the ascending positions of all words that may be kept after deletions, whichever documents go.

    frequency: (n,) documents that hold each word.
    documents: all documents.
    deletions: the most that go.
    """
    # Thresholds do not rise with deletions, and a deletion lowers a word's frequency by one at most.
    least = thresholds(max(documents - deletions, 1), options).least
    most = thresholds(documents, options).most
    enough = frequency >= max(least, 1)
    not_too_many = frequency <= most + deletions
    return np.flatnonzero(enough & not_too_many)


def _coarse(value: float) -> float:
    """Round a number to a power of sqrt 2."""
    if value <= 0:
        return 0.0
    steps = round(2 * math.log2(value))
    return float(2.0 ** (steps / 2))


def column_squares(mass: Int64, options: LearnerOptions) -> Float:
    """Return D^2, (n,): 1 for the paper's learner, else p^-1/2 with p rounded to powers of sqrt 2.

    mass: (n,) row sums, not all 0. A word without mass gets the weight of the least mass.
    """
    if options.learner == "paper":
        return np.ones(len(mass))
    # Python's integers, since the sum of masses may leave 64 bits.
    total = sum(mass.tolist())
    own = np.maximum(mass, 1)
    rough = 2 * np.log2(own / float(total))
    steps = np.round(rough).astype(np.int64)
    fraction = rough - np.floor(rough)
    from_middle = np.abs(fraction - 0.5)
    # Close cases are decided in integers, so that the last bits of a library's logarithm decide nothing.
    for i in np.flatnonzero(from_middle < _CLOSE):
        steps[i] = _nearest_step(int(own[i]), total)
    roots = _ROOTS[-steps % 4]
    return np.asarray(np.ldexp(roots, -steps // 4))


def _nearest_step(mass: int, total: int) -> int:
    """Return k with 2^((k - 1/2) / 2) < mass / total <= 2^((k + 1/2) / 2), in integers."""
    # The fourth power of the ratio lies between 2^(2 k - 1) and 2^(2 k + 1).
    power = mass**4
    whole = total**4
    k = (power.bit_length() - whole.bit_length()) // 2 - 2
    while _above(power, whole, 2 * k + 1):
        k += 1
    return k


def _above(power: int, whole: int, exponent: int) -> bool:
    """Return whether power / whole > 2^exponent."""
    if exponent >= 0:
        return power > whole << exponent
    return power << -exponent > whole
