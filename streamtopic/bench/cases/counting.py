"""Counting word pairs: the kernel and scipy's sparse product."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamtopic.bench.figures import Figure, timed
from streamtopic.bench.synthetic import planted, subset

if TYPE_CHECKING:
    from streamtopic.counts import DocumentBatch

__all__ = ["CASES"]

WORDS = 20_000
DOCUMENTS = 8_000
REPEATS = 5


def kernel() -> list[Figure]:
    """Both on the same 8,000 documents of about 91 distinct words among 20,000, on one core."""
    from scipy.sparse import csr_array

    from streamtopic.counts import Weighting, count

    batch = planted(DOCUMENTS, WORDS, 50, 107)
    weighting = Weighting(256)
    count(subset(batch, np.arange(10)), WORDS, weighting)
    weights = weighting.of(batch)
    H = csr_array((batch.counts.astype(np.int64), batch.words, batch.indptr), shape=(DOCUMENTS, WORDS))
    W = csr_array((batch.counts * np.repeat(weights, np.diff(batch.indptr)), batch.words, batch.indptr), shape=H.shape)
    ours, theirs, counts = [], [], None
    for _ in range(REPEATS):
        seconds, counts = timed(lambda: count(batch, WORDS, weighting))
        ours.append(seconds)
        theirs.append(timed(lambda: H.T.tocsr() @ W)[0])
    fast, plain = float(np.median(ours)), float(np.median(theirs))
    work = _pairs_visited(batch)
    return [
        Figure("distinct words a document", len(batch.words) / DOCUMENTS, "words"),
        Figure("kernel", DOCUMENTS / fast, "documents/s"),
        Figure("kernel, pairs", work / fast, "pairs/s"),
        Figure("scipy product", DOCUMENTS / plain, "documents/s"),
        Figure("kernel over scipy", plain / fast, "x"),
        Figure("stored pairs", counts.pairs if counts else 0, "pairs"),
    ]


def _pairs_visited(batch: DocumentBatch) -> int:
    distinct = np.diff(batch.indptr)
    return int((distinct * (distinct + 1) // 2).sum())


CASES = {"kernel": kernel}
