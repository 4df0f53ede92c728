"""Keep the co-occurrence counts in Redis near the documents, so that a leader that starts need not count them all.

The changes since their cut must be there: a generation of changes ends, and the one before it goes. So the counts are
written again once a generation has begun since their cut, and hold no document for longer than the changes do.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.state import CutGone
from streamtopic.state.stored_counts import SummedCounts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamtopic.counts import SymmetricCounts
    from streamtopic.state import DocumentCounts, Lease, Reader
    from streamtopic.state.stored_counts import CountsStore
    from streamtopic.topics.fit import TopicFit

__all__ = ["CountsKeeper"]

logger = logging.getLogger(__name__)


class CountsKeeper:
    """Writes the counts of the working vocabulary for the leading scheduler."""

    def __init__(self, store: CountsStore, reader: Reader) -> None:
        self._store = store
        self._reader = reader

    def replace(self, lease: Lease, fit: TopicFit, counts: DocumentCounts) -> None:
        """Write the counts of a model that was just made. counts: that it was made from."""
        self._write(lease, fit.names, fit.q, counts)

    def is_there(self) -> bool:
        """Return whether there are counts in Redis."""
        return self._store.about() is not None

    def is_due(self) -> bool:
        """Return whether a generation of changes has begun since the cut of the counts, so that they must be folded."""
        about = self._store.about()
        if about is None:
            return False
        positions = self._reader.positions()
        return any(not meta.summed <= about.cut[p].version <= meta.version for p, meta in positions.items())

    def fold(self, lease: Lease) -> None:
        """Add the documents that came or went since to the counts. Raises StateError, ComponentUnreachable."""
        counts = self._reader.counts()
        words, q = self._sums(counts)
        self._write(lease, words, q, counts)

    def _sums(self, counts: DocumentCounts) -> tuple[Sequence[str], SymmetricCounts]:
        """Return those of the words that documents hold still, and their pairs."""
        position = {word: k for k, word in enumerate(counts.words)}
        words = [word for word in self._store.words() if word in position]
        keep = np.array([position[word] for word in words], np.intp)
        stored = self._store.read()
        if stored is not None:
            with suppress(CutGone):
                return words, SummedCounts.of(counts, stored).symmetric(keep)
        return words, counts.symmetric(keep)

    def _write(self, lease: Lease, words: Sequence[str], q: SymmetricCounts, counts: DocumentCounts) -> None:
        self._store.write(words, q, counts, lease)
        logger.debug("wrote the co-occurrence counts of %d words", len(words), extra={"event": "counts_written"})
