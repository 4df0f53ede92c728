"""The noise of private mode: documents as matrices whose size their content alone bounds, and noise on their sum.

A document that holds k words of a vocabulary is the matrix h h^T / k, h (n,) being 1 for its words and 0 elsewhere: the
projection on its words. Its Frobenius norm is 1 whatever it says, or 0 without words. The sum M over documents has all
that a topic model needs:

    M_ij          how often two words are together, a document counting less the longer it is
    row sums      the documents that hold each word
    trace         the documents that hold any word

`word_weights` does the same for single words, from which a vocabulary is chosen. All sums are integers, in units of
2^-30, so they do not depend on the order of documents.

Noise is correlated over the versions of a period, so that all of them together cost less than with independent noise.
Version t publishes M_t + sum over j <= t of b_(t-j) sigma Z_j, in which Z_1, Z_2, ... are independent standard normals
and b_i are the coefficients of (1 - x)^(-2/5). M_t are the counts as of version t.

One document's content changes M_t by y_t with ||y_t|| <= 1. All versions together are the Gaussian mechanism of
B^-1 y, whose rows are independent; B is the lower triangular matrix of b_(t-j). Rounding is post-processing. So its
sensitivity is the greatest ||B^-1 y|| (`sensitivity`). docs/proof.md, "Private mode", has the proof.

Source: Henzinger, Upadhyay and Upadhyay, "Almost tight error bounds on differentially private continual counting"
(SODA 2023), for prefix sums, with power 1/2 in place of 2/5.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import sparse
from scipy.linalg import toeplitz

from streamtopic.compiled import kernel
from streamtopic.counts import DocumentBatch
from streamtopic.counts.arrays import Float, Int32, Int64
from streamtopic.privacy.keystream import NoiseSeed
from streamtopic.privacy.noise import add_draws, grid_of

__all__ = [
    "CONTENTS",
    "UNIT",
    "SeriesNoise",
    "document_matrices",
    "factors",
    "noised_matrix",
    "sensitivity",
    "word_weights",
]

UNIT = 1 << 30
"""One, in the integers of sums."""

CONTENTS = 2
"""The contents of one document that a guarantee covers: it comes, is replaced once, and goes."""

# Of 1/4, 1/3, 2/5 and 1/2, this power gives a document of two contents the least noise in the last of 64 versions.
_POWER = 0.4
# The inverse of B is computed in floats, whose errors are far below this.
_MARGIN = 1 + 1e-9


def factors(versions: int, power: float = _POWER) -> Float:
    """Return b_0, b_1, ..., the coefficients of (1 - x)^-power, (versions,)."""
    steps = np.arange(1, versions)
    return np.concatenate([[1.0], np.cumprod((steps - 1 + power) / steps)])


# Asked for with each property of a noise.
@lru_cache(maxsize=64)
def sensitivity(versions: int, contents: int = CONTENTS) -> float:
    """Return the greatest ||B^-1 y|| over the lives of one document, rounded up.

    versions: of the series.
    contents: number of contents that the document has one after the other; between two it may be gone.

    For one content from version s to before t, the norm is that of the sum of columns s ... t - 1 of B^-1. For several,
    squares are added: the inner product of two contents' matrices is not negative, and that of two such sums is not
    positive.
    """
    inverse = toeplitz(factors(versions, -_POWER), np.zeros(versions))
    sums = np.cumsum(np.column_stack([np.zeros(versions), inverse]), axis=1)
    gram = sums.T @ sums
    own = np.diagonal(gram)
    # [s, t]: the square for one content from s to before t.
    squares = np.triu(own[:, None] + own - 2 * gram)
    best = np.zeros(versions + 1)
    for _ in range(contents):
        best = np.maximum.accumulate((best[:, None] + squares).max(axis=0))
    return float(np.sqrt(best[-1])) * _MARGIN


@dataclass(frozen=True, slots=True)
class SeriesNoise:
    """How much noise each version of a series gets.

    versions: the most versions of the series.
    scale: s = sigma / sensitivity of all of them together.
    """

    versions: int
    scale: float

    @property
    def sigma(self) -> float:
        """Standard deviation of each Z_j's part in its own version."""
        return self.scale * sensitivity(self.versions)

    @property
    def grid(self) -> float:
        """Step of the noised numbers, a power of two, at most a sixteenth of sigma."""
        return grid_of(self.sigma)

    def deviation(self, number: int) -> float:
        """Return the standard deviation of the noise in a version. number: of the version in its series, from 1."""
        return float(self.sigma * np.linalg.norm(factors(number)))

    def add(self, values: Float, spread: Float, seeds: Sequence[NoiseSeed]) -> Float:
        """Return values with the noise of a version, each rounded to the nearest multiple of the grid.

        values: (k,) finite numbers.
        spread: (k,) the part of sigma that each value gets, above 0.
        seeds: of this version and of those before it in its series, the oldest first.

        Cost: one draw of k numbers for each seed.
        """
        weights = factors(len(seeds))[::-1].tolist()
        return add_draws(values, spread * self.sigma, self.grid, [*zip(weights, seeds, strict=True)])


def document_matrices(batch: DocumentBatch, n: int) -> Int64:
    """Return the upper triangle of the sum of all documents' matrices, (n, n), in units of 2^-30.

    batch: documents over n words.
    Each weight is rounded down, so that no document's norm is above 1.
    Cost: one addition for each pair of different words of a document.
    """
    found = np.zeros((n, n), np.int64)
    _add_matrices(*_distinct(batch, n), found)
    return found


def noised_matrix(exact: Int64, noise: SeriesNoise, seeds: Sequence[NoiseSeed]) -> Float:
    """Return the whole symmetric matrix with its noise, (n, n), in units of documents.

    exact: the upper triangle, as of `document_matrices`.
    noise, seeds: as of `SeriesNoise.add`.
    """
    rows, columns = np.triu_indices(len(exact))
    # An entry off the diagonal is in the matrix twice, and counts twice in its norm. Rounded up.
    spread = np.where(rows == columns, 1.0, math.sqrt(0.5) * (1 + 2.0**-50))
    values = noise.add(exact[rows, columns] / UNIT, spread, seeds)
    whole = np.zeros(exact.shape)
    whole[rows, columns] = values
    whole[columns, rows] = values
    return whole


def word_weights(batch: DocumentBatch, n: int) -> tuple[Int64, int]:
    """Return the weight of each word, (n,), and that of a word that all documents with words would hold.

    In units of 2^-30. A document of k > 0 words adds 1 / sqrt(k + 1) to each of them and to the last: together a vector
    of length 1.
    """
    found = np.zeros(n + 1, np.int64)
    _add_weights(*_distinct(batch, n), found)
    return found[:n], int(found[n])


def _distinct(batch: DocumentBatch, n: int) -> tuple[Int32, Int32]:
    """Return the different words of each document as rows: where rows begin (documents + 1,), and words, ascending."""
    firsts = np.searchsorted(batch.owners, np.arange(batch.documents + 1))
    ends = batch.indptr[firsts]
    # A copy, since duplicates are dropped in place.
    held = sparse.csr_array((np.ones(len(batch.words), np.int8), batch.words.copy(), ends), (batch.documents, n))
    held.sum_duplicates()
    return held.indptr, held.indices


@kernel
def _add_matrices(indptr: Int32, words: Int32, found: Int64) -> None:
    """Add each document's matrix to the upper triangle."""
    for document in range(len(indptr) - 1):
        first, last = indptr[document], indptr[document + 1]
        if last > first:
            weight = UNIT // (last - first)
            for k in range(first, last):
                for other in range(k, last):
                    found[words[k], words[other]] += weight


@kernel
def _add_weights(indptr: Int32, words: Int32, found: Int64) -> None:
    """Add each document's weight to its words, and to the last place."""
    for document in range(len(indptr) - 1):
        first, last = indptr[document], indptr[document + 1]
        # A document without words adds nothing: another one differs from it by its own vector, of length 1.
        if last > first:
            weight = np.int64(UNIT / np.sqrt(last - first + 1.0))
            found[len(found) - 1] += weight
            for k in range(first, last):
                found[words[k]] += weight
