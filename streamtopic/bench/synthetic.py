"""Documents drawn from planted topics with word frequencies as in natural language."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamtopic.counts import Counts, DocumentBatch, Weighting, count

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["counted", "planted", "subset"]


def planted(documents: int, words: int, topics: int, tokens: int, seed: int = 0) -> DocumentBatch:
    """Draw documents of about `tokens` tokens: Zipf frequencies, most words leaning to one topic, few topics each.

    Every topic has an anchor word.
    """
    rng = np.random.default_rng(seed)
    zipf = 1.0 / (np.arange(words) + 20.0)
    home = rng.integers(0, topics, words)
    lean = np.where(rng.random(words) < 0.6, 40.0, 1.0)
    weights = np.repeat(zipf[:, None], topics, axis=1)
    weights[np.arange(words), home] *= lean
    # One word a topic is its own alone and takes 6 % of it, so that anchors hold while few documents go.
    weights[:topics] = np.diag(0.06 * weights.sum(axis=0))
    steps = np.cumsum(weights / weights.sum(axis=0), axis=0)
    theta = np.cumsum(rng.dirichlet(np.full(topics, 2.0 / topics), documents), axis=1)
    lengths = np.maximum(rng.poisson(tokens, documents), 2)
    rows = np.repeat(np.arange(documents), lengths)
    topic = (rng.random(len(rows))[:, None] > theta[rows]).sum(axis=1).clip(max=topics - 1)
    word = np.empty(len(rows), np.int64)
    for k in range(topics):
        here = np.flatnonzero(topic == k)
        word[here] = np.searchsorted(steps[:, k], rng.random(len(here))).clip(max=words - 1)
    # Ids without meaning: frequent words must not stand side by side.
    word = rng.permutation(words)[word]
    pairs, amounts = np.unique(rows * words + word, return_counts=True)
    indptr = np.searchsorted(pairs, np.arange(documents + 1) * words)
    return DocumentBatch(
        indptr=indptr.astype(np.int64),
        words=(pairs % words).astype(np.int32),
        counts=amounts.astype(np.int32),
        lengths=lengths.astype(np.int64),
        owners=np.arange(documents, dtype=np.int32),
        documents=documents,
    )


def subset(batch: DocumentBatch, chosen: npt.NDArray[np.intp]) -> DocumentBatch:
    """Return some documents of a batch that has one row a document."""
    spans = [slice(int(batch.indptr[k]), int(batch.indptr[k + 1])) for k in chosen]
    indptr = np.concatenate([[0], np.cumsum([span.stop - span.start for span in spans])])
    return DocumentBatch(
        indptr=indptr.astype(np.int64),
        words=np.concatenate([batch.words[span] for span in spans]),
        counts=np.concatenate([batch.counts[span] for span in spans]),
        lengths=batch.lengths[chosen],
        owners=np.arange(len(chosen), dtype=np.int32),
        documents=len(chosen),
    )


def counted(batch: DocumentBatch, words: int, weighting: Weighting) -> Counts:
    """Count a batch over words whose names sort like their ids."""
    return Counts([f"w{k:06d}" for k in range(words)], count(batch, words, weighting))
