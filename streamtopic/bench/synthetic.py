"""Documents drawn from planted topics with word frequencies as in natural language."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.counts import Counts, DocumentBatch, Weighting, count

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64 = npt.NDArray[np.int64]

__all__ = ["counted", "planted"]

_TOKENS_AT_ONCE = 1 << 20


def planted(
    documents: int, words: int, topics: int, tokens: int, seed: int = 0, lengths: Int64 | None = None
) -> DocumentBatch:
    """Draw documents of about `tokens` tokens: Zipf frequencies, most words leaning to one topic, few topics each.

    lengths: (documents,) tokens of each, in place of those. Every topic has an anchor word. A million documents of 66
    tokens take half a minute and 2.2 GB, the documents themselves a quarter of that.
    """
    rng = np.random.default_rng(seed)
    zipf = 1.0 / (np.arange(words) + 20.0)
    home = rng.integers(0, topics, words)
    lean = np.where(rng.random(words) < 0.6, 40.0, 1.0)
    weights = np.repeat(zipf[:, None], topics, axis=1)
    weights[np.arange(words), home] *= lean
    # Each topic has one word of its own, 6 % of its tokens, so that anchors stay while few documents go.
    weights[:topics] = np.diag(0.06 * weights.sum(axis=0))
    steps = np.cumsum(weights / weights.sum(axis=0), axis=0)
    theta = rng.dirichlet(np.full(topics, 2.0 / topics), documents)
    np.cumsum(theta, axis=1, out=theta)
    if lengths is None:
        lengths = np.maximum(rng.poisson(tokens, documents), 2)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    topic = _topics(rng, theta, starts)
    word = np.empty(len(topic), np.int32)
    for k in range(topics):
        here = np.flatnonzero(topic == k)
        word[here] = np.searchsorted(steps[:, k], rng.random(len(here))).clip(max=words - 1)
    # Ids without meaning: frequent words must not be side by side.
    return _batch(rng.permutation(words).astype(np.int32)[word], starts, words)


def _spans(starts: Int64) -> list[tuple[int, int]]:
    """Return documents first ... stop - 1 of about a million tokens each; whole arrays of tokens would not fit."""
    edges = np.searchsorted(starts, np.arange(0, starts[-1] + _TOKENS_AT_ONCE, _TOKENS_AT_ONCE))
    return [(int(a), int(b)) for a, b in pairwise(np.unique(edges.clip(max=len(starts) - 1)))]


def _topics(rng: np.random.Generator, theta: npt.NDArray[np.float64], starts: Int64) -> npt.NDArray[np.uint16]:
    """Draw every token's topic from its document's steps theta (documents, topics)."""
    topic = np.empty(starts[-1], np.uint16)
    last = theta.shape[1] - 1
    for first, stop in _spans(starts):
        drawn = rng.random(int(starts[stop] - starts[first]))
        rows = np.repeat(np.arange(stop - first), np.diff(starts[first : stop + 1]))
        # Bisection: for all tokens of the span together, the number of steps below the number that was drawn.
        low, high = np.zeros(len(drawn), np.int32), np.full(len(drawn), last + 1, np.int32)
        part = theta[first:stop]
        for _ in range(int(last + 1).bit_length()):
            middle = (low + high) // 2
            above = drawn > part[rows, middle.clip(max=last)]
            open_ = low < high
            low, high = np.where(open_ & above, middle + 1, low), np.where(open_ & ~above, middle, high)
        topic[starts[first] : starts[stop]] = low.clip(max=last)
    return topic


def _batch(word: npt.NDArray[np.int32], starts: Int64, words: int) -> DocumentBatch:
    """Count the words of each document, tokens starts[d] ... starts[d + 1] - 1."""
    documents = len(starts) - 1
    sizes, found, counts = np.zeros(documents + 1, np.int64), [], []
    for first, stop in _spans(starts):
        rows = np.repeat(np.arange(stop - first), np.diff(starts[first : stop + 1]))
        pairs, amounts = np.unique(rows * words + word[starts[first] : starts[stop]], return_counts=True)
        sizes[first + 1 : stop + 1] = np.bincount(pairs // words, minlength=stop - first)
        found.append((pairs % words).astype(np.int32))
        counts.append(amounts.astype(np.int32))
    return DocumentBatch.whole(
        indptr=np.cumsum(sizes),
        words=np.concatenate(found),
        counts=np.concatenate(counts),
        lengths=np.diff(starts),
        owners=np.arange(documents, dtype=np.int32),
        documents=documents,
    )


def counted(batch: DocumentBatch, words: int, weighting: Weighting) -> Counts:
    """Count a batch over words whose names sort like their ids."""
    return Counts([f"w{k:06d}" for k in range(words)], count(batch, words, weighting))
