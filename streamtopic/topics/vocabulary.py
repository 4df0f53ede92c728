"""The working vocabulary: which words a model is about, a pure function of counts."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopic.topics.options import LearnerOptions

__all__ = ["Thresholds", "choose_words", "reachable_words", "thresholds"]

_LEAST_MAX_DF = 20
_LEAST_ANCHOR_DF = 2
_MOST_MIN_DF_SHARE = 0.02


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
    return Thresholds(
        least=min(options.min_df, max(1.0, _coarse(_MOST_MIN_DF_SHARE * documents))),
        most=documents if options.max_df == 1 else max(_LEAST_MAX_DF, _coarse(options.max_df * documents)),
        anchor=max(_LEAST_ANCHOR_DF, _coarse(options.anchor_min_df * documents)),
    )


def choose_words(
    frequency: npt.NDArray[np.int64], documents: int, options: LearnerOptions
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """Return the ascending positions of the kept words, and which of those may be anchors.

    frequency: (n,) document frequency of every word. Where more than `max_words` pass, the least frequency rises by
    factors of sqrt 2 until they do not.
    """
    limits = thresholds(documents, options)
    least = limits.least
    below = frequency <= limits.most
    keep = np.flatnonzero((frequency >= max(least, 1)) & below)
    while len(keep) > options.max_words:
        least *= math.sqrt(2)
        keep = np.flatnonzero((frequency >= least) & below)
    return keep, frequency[keep] >= limits.anchor


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
