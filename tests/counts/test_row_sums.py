"""The sums of a row are the same bits however its documents are packed and however the row is read off."""

from itertools import pairwise

import numpy as np
import pytest

from streamtopic.counts import count_weighted


def passages(n_words, number, most, largest, seed):
    """Return (indptr, words, counts, weights) of passages of up to `most` words and counts up to `largest`."""
    rng = np.random.default_rng(seed)
    texts = [np.sort(rng.choice(n_words, rng.integers(0, most + 1), replace=False)) for _ in range(number)]
    indptr = np.cumsum([0, *map(len, texts)])
    words = np.concatenate(texts).astype(np.int32)
    counts = rng.integers(1, largest + 1, len(words)).astype(np.int32)
    return indptr, words, counts, rng.integers(-5, 6, number)


def product(indptr, words, counts, weights, n_words):
    """Return the upper triangle of H^T W H less the pairs of a token with itself, by numpy."""
    total = np.zeros((n_words, n_words), np.int64)
    for k, weight in enumerate(weights.tolist()):
        here = slice(indptr[k], indptr[k + 1])
        h = np.zeros(n_words, np.int64)
        h[words[here]] = counts[here]
        total += weight * (np.outer(h, h) - np.diag(h))
    return np.triu(total)


def blocks_as_matrix(blocks, n_words):
    """Return the pairs of blocks as a matrix, after a look at their order."""
    total = np.zeros((n_words, n_words), np.int64)
    for block in blocks:
        edges = np.concatenate([[0], np.cumsum(block.sizes)])
        for row, (start, stop) in enumerate(pairwise(edges), block.first):
            columns = block.columns[start:stop]
            assert (np.diff(columns) > 0).all()
            total[row, columns] = block.values[start:stop]
        assert block.values.all()
    return total


@pytest.mark.parametrize("pairs", [1, 50, 100_000])
@pytest.mark.parametrize("largest", [1, 3, 1 << 25])
@pytest.mark.parametrize(("n_words", "most"), [(6, 6), (40, 30), (300, 4), (300, 150)])
def test_rows_are_the_product_of_their_documents(n_words, most, largest, pairs):
    """Rows with many additions a column and with few, counts that need eight bytes, and any size of a block."""
    given = passages(n_words, 60, most, largest, seed=n_words + most)
    found = blocks_as_matrix(count_weighted(*given, n_words, pairs), n_words)
    assert np.array_equal(found, product(*given, n_words))


def test_documents_that_cancel_out_leave_no_pair():
    """A sum of zero is not stored, in a row that is read column by column and in one that is read by its marks."""
    indptr, words, counts, weights = passages(200, 30, 20, 3, seed=5)
    both = np.concatenate([indptr, indptr[1:] + indptr[-1]])
    twice = [np.concatenate([part, part]) for part in (words, counts)]
    signed = np.concatenate([weights, -weights])
    assert not any(len(block.values) for block in count_weighted(both, *twice, signed, 200, 1_000))
