"""Topics over time: how often intervals of shares cover the planted shares, and how long 1,000 slices take."""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy.sparse import csr_array, vstack

from streamtopic.lab.bench.figures import Figure, timed

__all__ = ["CASES", "OPTIONS", "planted_slices"]

OPTIONS = {"slices": 400, "topics": 20, "words": 2000, "seed": 1}
"""slices: planted for each size; topics, words: r and n; seed: of all draws."""

DRIFT = 40.0
SIZES = (20, 50, 200)


def planted_slices(
    rng: np.random.Generator, A: np.ndarray, base: np.ndarray, documents: int, concentration: float
) -> tuple[np.ndarray, csr_array]:
    """Return the planted shares of one slice, (r,), and its documents, (documents, n).

    A: (n, r) words given topics.
    base: (r,) shares that the slice's own are drawn around.
    documents: how many; their lengths vary by a factor of five and more.
    concentration: the lower, the fewer topics a document has.
    """
    shares = rng.dirichlet(DRIFT * base)
    theta = rng.dirichlet(concentration * shares, documents)
    mean_length = rng.gamma(2.0, 40.0, documents)
    lengths = 5 + rng.poisson(mean_length)
    expected = theta @ A.T
    expected /= expected.sum(axis=1, keepdims=True)
    rows = [rng.multinomial(length, p) for length, p in zip(lengths.tolist(), expected, strict=True)]
    return shares, csr_array(np.stack(rows).astype(np.int64))


def _coverage(concentration: float, slices: int, topics: int, words: int, seed: int) -> list[Figure]:
    """Shares are planted, and documents drawn: the intervals of how many shares hold the planted value."""
    from streamtopic.topics.over_time import ShareEstimator, SliceKeys

    rng = np.random.default_rng(seed)
    A = np.ascontiguousarray(rng.dirichlet(np.full(words, 0.05), topics).T)
    base = rng.dirichlet(np.full(topics, 5.0))
    estimator = ShareEstimator.of(A, base)
    figures = []
    for size in SIZES:
        drawn = [planted_slices(rng, A, base, size, concentration) for _ in range(slices)]
        truth = np.stack([shares for shares, _ in drawn])
        names = np.repeat([f"{k:05d}" for k in range(slices)], size).tolist()
        keys = SliceKeys.made(names, None)
        sums = estimator.sums(csr_array(vstack([X for _, X in drawn])), keys.of, slices)
        found = estimator.slices(keys, sums)
        held = (found.low <= truth) & (truth <= found.high)
        error = np.abs(found.shares - truth).mean()
        figures.append(Figure(f"covered, {size} documents a slice", 100 * held.mean(), "%"))
        figures.append(Figure(f"mean error, {size} documents a slice", 100 * error, "points"))
    return figures


def _thousand(slices: int, topics: int, words: int, seed: int) -> list[Figure]:
    """1,000 slices of 100,000 documents of about 60 distinct words."""
    from streamtopic.topics.over_time import ShareEstimator, SliceKeys

    del slices
    rng = np.random.default_rng(seed)
    A = np.ascontiguousarray(rng.dirichlet(np.full(words, 0.05), topics).T)
    documents, distinct, wanted = 100_000, 60, 1000
    ends = np.arange(0, documents * distinct + 1, distinct)
    entries = documents * distinct
    X = csr_array((rng.integers(1, 4, entries), rng.integers(0, words, entries), ends), shape=(documents, words))
    X.sum_duplicates()
    numbers = rng.integers(0, wanted, documents)
    names = [f"{number:04d}" for number in numbers.tolist()]
    estimator = ShareEstimator.of(A, np.full(topics, 1.0 / topics))
    naming, keys = timed(partial(SliceKeys.made, names, None))
    summing, sums = timed(partial(estimator.sums, X, keys.of, wanted))
    # Compiles.
    estimator.slices(keys, estimator.sums(X[:100], keys.of[:100], wanted), floor=1)
    shares, found = timed(partial(estimator.slices, keys, sums))
    return [
        Figure("slices", len(found), "slices"),
        Figure("a slice for each document", naming, "s"),
        Figure("sums over 100,000 documents", summing, "s"),
        Figure("shares, errors and words of 1,000 slices", shares, "s"),
    ]


CASES = {
    "few-topics-a-document": partial(_coverage, 1.0),
    "many-topics-a-document": partial(_coverage, 10.0),
    "thousand": _thousand,
}
