"""SignedPassages: a change of counts as the passages that make it."""

import numpy as np

from streamtopic.counts import DocumentBatch, Passage, SignedPassages, Weighting, count

RNG = np.random.default_rng(11)
WEIGHTING = Weighting(256)


def _batch(documents: int, words: int) -> DocumentBatch:
    def passage() -> Passage:
        held = np.sort(RNG.choice(words, RNG.integers(1, words // 2), replace=False)).astype(np.int32)
        counts = RNG.integers(1, 4, len(held)).astype(np.int32)
        return Passage(int(counts.sum() + RNG.integers(0, 3)), held, counts)

    return DocumentBatch.build([[passage() for _ in range(RNG.integers(1, 3))] for _ in range(documents)])


def _dense(passages: SignedPassages, words: int) -> np.ndarray:
    total = np.zeros((words, words), np.int64)
    for k in range(passages.passages):
        here = slice(passages.indptr[k], passages.indptr[k + 1])
        h = np.zeros(words, np.int64)
        h[passages.words[here]] = passages.counts[here]
        total += passages.weights[k] * (np.outer(h, h) - np.diag(h))
    return total


def test_outer_products_of_passages_are_the_counts() -> None:
    """Sums of w (g g^T - diag(g)) are what counting gives, documents that went included."""
    batch, signs = _batch(9, 14), RNG.choice([-1, 1], 9)
    upper = count(batch, 14, WEIGHTING, signs).upper.toarray()
    passages = SignedPassages.of(batch, WEIGHTING, signs)
    assert np.array_equal(np.triu(_dense(passages, 14)), upper)
    assert np.array_equal(passages.row_sums(14), _dense(passages, 14).sum(axis=1))


def test_relabelled_passages_are_relabelled_counts() -> None:
    """Words that are left out take their pairs along; passages that make none vanish."""
    batch = _batch(6, 12)
    ids = np.array([-1, 0, 1, -1, 3, 4, 5, -1, 6, 7, 8, 9], np.int64)
    some = SignedPassages.of(batch, WEIGHTING).relabel(ids)
    assert np.array_equal(np.triu(_dense(some, 10)), count(batch, 12, WEIGHTING).relabel(ids, 10).upper.toarray())
    assert (np.diff(some.indptr) > 0).all()
    assert some.weights.all()
