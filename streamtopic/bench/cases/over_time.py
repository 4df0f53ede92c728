"""Topics over time: how often intervals cover planted shares, how long 1,000 slices and a pass over a service take."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array, vstack

from streamtopic.bench.figures import Figure, timed

__all__ = ["CASES", "OPTIONS", "planted_slices"]

OPTIONS = {"slices": 400, "topics": 20, "words": 2000, "size": 100_000, "seed": 1}
"""slices: planted for each size; topics, words: r and n; size: documents of the large cases; seed: of all draws."""

DRIFT = 40.0
SIZES = (20, 50, 200)


def planted_slices(
    rng: np.random.Generator,
    A: np.ndarray,
    base: np.ndarray,
    documents: int,
    concentration: float,
    absent: float = 0.0,
    burst: float = 0.0,
) -> tuple[np.ndarray, csr_array]:
    """Return the planted shares of one slice, (r,), and its documents, (documents, n).

    A: (n, r) words given topics.
    base: (r,) shares that the slice's own are drawn around.
    documents: how many; their lengths vary by a factor of five and more.
    concentration: the lower, the fewer topics a document has.
    absent: the chance with which each topic is missing in the slice; the first one never is.
    burst: 0 for words that are drawn one by one; the higher, the more often a word is in its document again.
    """
    drawn = rng.dirichlet(DRIFT * base)
    present = rng.random(len(base)) >= absent
    present[0] = True
    shares = drawn * present / drawn[present].sum()
    theta = np.zeros((documents, len(base)))
    theta[:, present] = rng.dirichlet(concentration * shares[present], documents)
    mean_length = rng.gamma(2.0, 40.0, documents)
    lengths = 5 + rng.poisson(mean_length)
    expected = theta @ A.T
    if burst:
        # Dirichlet's, whose words have 1 + L burst times the variance of words that are drawn one by one.
        expected = rng.standard_gamma(expected / burst)
    expected /= expected.sum(axis=1, keepdims=True)
    rows = [rng.multinomial(length, p) for length, p in zip(lengths.tolist(), expected, strict=True)]
    return shares, csr_array(np.stack(rows).astype(np.int64))


def _coverage(
    concentration: float, absent: float, burst: float, slices: int, topics: int, words: int, size: int, seed: int
) -> list[Figure]:
    """Shares are planted, and documents drawn: the intervals of how many shares hold the planted value."""
    from streamtopic.topics.over_time import ShareEstimator, SliceKeys

    del size
    rng = np.random.default_rng(seed)
    A = np.ascontiguousarray(rng.dirichlet(np.full(words, 0.05), topics).T)
    base = rng.dirichlet(np.full(topics, 5.0))
    estimator = ShareEstimator.of(A, base)
    figures = []
    for number in SIZES:
        drawn = [planted_slices(rng, A, base, number, concentration, absent, burst) for _ in range(slices)]
        truth = np.stack([shares for shares, _ in drawn])
        names = np.repeat([f"{k:05d}" for k in range(slices)], number).tolist()
        keys = SliceKeys.made(names, None)
        sums = estimator.sums(csr_array(vstack([X for _, X in drawn])), keys.of, slices)
        found = estimator.slices(keys, sums)
        held = (found.low <= truth) & (truth <= found.high)
        error = np.abs(found.shares - truth).mean()
        figures.append(Figure(f"covered, {number} documents a slice", 100 * held.mean(), "%"))
        figures.append(Figure(f"mean error, {number} documents a slice", 100 * error, "points"))
        if absent:
            figures.append(Figure(f"covered zeros, {number} documents a slice", 100 * held[truth == 0].mean(), "%"))
    return figures


def _thousand(slices: int, topics: int, words: int, size: int, seed: int) -> list[Figure]:
    """1,000 slices of documents of about 60 distinct words."""
    from streamtopic.topics.over_time import ShareEstimator, SliceKeys

    del slices
    rng = np.random.default_rng(seed)
    A = np.ascontiguousarray(rng.dirichlet(np.full(words, 0.05), topics).T)
    distinct, wanted = 60, 1000
    ends = np.arange(0, size * distinct + 1, distinct)
    entries = size * distinct
    X = csr_array((rng.integers(1, 4, entries), rng.integers(0, words, entries), ends), shape=(size, words))
    X.sum_duplicates()
    numbers = rng.integers(0, wanted, size)
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
        Figure("documents", size, "documents"),
        Figure("sums over documents", summing, "s"),
        Figure("shares, errors and words of 1,000 slices", shares, "s"),
    ]


def _stored(slices: int, topics: int, words: int, size: int, seed: int) -> list[Figure]:
    """A pass over the documents that a service has stored, of two years, by month and by class."""
    from streamtopic.documents.corpus import Document
    from streamtopic.service.app import Service
    from streamtopic.service.inspection.slices import SliceView, slice_sums
    from streamtopic.settings import load
    from streamtopic.topics.over_time import ShareEstimator

    del slices
    rng = np.random.default_rng(seed)
    names = np.array([f"w{k:05d}" for k in range(words)])
    texts = names[rng.zipf(1.3, (size, 90)) % words]
    # A day of two years, in milliseconds.
    times = (20_000 + rng.integers(0, 730, size)) * 86_400_000
    classes = [{"class": f"class {k % 5}"} for k in range(5)]
    rows = zip(texts, times.tolist(), strict=True)
    made = [Document(str(k), " ".join(text), classes[k % 5], time) for k, (text, time) in enumerate(rows)]
    A = np.ascontiguousarray(rng.dirichlet(np.full(words, 0.05), topics).T)
    estimator = ShareEstimator.of(A, np.full(topics, 1.0 / topics))
    with tempfile.TemporaryDirectory() as folder:
        settings = load({"dir": Path(folder), "keep_days": True})
        with Service(settings, kept=False) as service:
            service.add(made)
            for ingest in service.ingests:
                list(ingest.drain())
            counts = service.reader.counts()
            view = SliceView("month", "class")
            seconds, (keys, sums) = timed(partial(slice_sums, counts, names.tolist(), estimator, view))
    return [
        Figure("documents", int(sums.documents.sum()), "documents"),
        Figure("slices", len(keys.times), "slices"),
        Figure("pass over the stored documents", seconds, "s"),
    ]


CASES = {
    "stored": _stored,
    "few-topics-a-document": partial(_coverage, 1.0, 0.0, 0.0),
    "many-topics-a-document": partial(_coverage, 10.0, 0.0, 0.0),
    "half-absent": partial(_coverage, 1.0, 0.5, 0.0),
    "half-absent-clustered-words": partial(_coverage, 1.0, 0.5, 0.01),
    "thousand": _thousand,
}
