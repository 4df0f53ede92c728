"""Documents as matrices whose size their content alone bounds, for the private mode.

A document that holds k words of a vocabulary is the matrix h h^T / k, h (n,) being 1 for its words and 0 elsewhere: the
projection on its words. Its Frobenius norm is 1 whatever it says, or 0 without words. The sum M over documents has all
that a topic model needs:

    M_ij          how often two words are together, a document counting less the longer it is
    row sums      the documents that hold each word
    trace         the documents that hold any word

`word_weights` does the same for single words, from which a vocabulary is chosen.
All sums are integers, in units of 2^-30, so they do not depend on the order of documents. `noised_matrix` adds noise.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy import sparse

from streamtopic.compiled import kernel
from streamtopic.counts import DocumentBatch
from streamtopic.counts.arrays import Float, Int32, Int64
from streamtopic.privacy.keystream import NoiseSeed
from streamtopic.privacy.series_noise import SeriesNoise

__all__ = ["UNIT", "document_matrices", "noised_matrix", "word_weights"]

UNIT = 1 << 30
"""One, in the integers of sums."""


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
