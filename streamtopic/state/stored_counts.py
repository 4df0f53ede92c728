"""The co-occurrence counts of a model's working vocabulary, as exact sums in Redis.

    CountsStore     reads and writes them; the leading scheduler writes
    StoredCounts    sums as of a cut
    SummedCounts    the counts of now, as a count source: the sums, and the documents that came or went since their cut

They are never needed: without them the documents are counted again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import msgpack
import numpy as np

from streamtopic.counts import Cooccurrence, SymmetricCounts
from streamtopic.counts.arrays import Positions
from streamtopic.errors import StateCorrupt
from streamtopic.state.connection import Applied, Codec, Command, Connection, ModelKeys, Outcome, Stale
from streamtopic.state.document_counts import DocumentCounts, changed_documents
from streamtopic.state.meta import Cut, pack_numbers, unpack_numbers
from streamtopic.state.model_state import Lease

__all__ = ["CountsStore", "StoredCounts", "SummedCounts"]

# Bytes of one string, so that no call keeps Redis busy for long: a pair takes about seven.
_CHUNK = 2 << 20

_UNREADABLE = "the co-occurrence counts in Redis cannot be read: run `streamtopic rebuild`"
_CUTS = Codec(Cut, _UNREADABLE)


@dataclass(frozen=True, slots=True, eq=False)
class StoredCounts:
    """Sums as of a cut.

    words: (n,) the working vocabulary, ascending.
    cut: the moment that they are of.
    upper: the pairs of these words, one triangle. Word statistics are not stored, and are 0.
    """

    words: Sequence[str]
    cut: Cut
    upper: Cooccurrence


class CountsStore:
    """Reads and writes the counts of a model."""

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection = connection
        self._keys = ModelKeys(model)
        self._key = self._keys.named("counts")

    def write(self, words: Sequence[str], q: SymmetricCounts, counts: DocumentCounts, lease: Lease) -> Outcome:
        """Put counts in the place of those of before.

        words: (n,) ascending.
        q: their pairs.
        counts: that the pairs are of.
        lease: of the leading scheduler.

        Until the last string is written a reader finds none: strings of two states would be counts of none.
        """
        upper = q.upper()
        pairs = b"".join(map(pack_numbers, (upper.columns.astype(np.int64), upper.values)))
        parts = [pairs[start : start + _CHUNK] for start in range(0, len(pairs), _CHUNK)]
        head = {"words": list(words), "sizes": pack_numbers(np.diff(upper.indptr)), "chunks": len(parts)}
        packed = bytes(msgpack.packb(head, unicode_errors="surrogatepass"))
        cut = _CUTS.pack(Cut(counts.offsets, dict(zip(counts.offsets, counts.places, strict=True))))
        fields = [*((f"{number}", part) for number, part in enumerate(parts)), ("head", packed), ("cut", cut)]
        # The first field removes the counts of before, and the last one makes the new ones whole.
        gone: list[Command] = [("UNLINK", self._key)]
        for name, value in fields:
            result = self._connection.change([*gone, ("HSET", self._key, name, value)], guards=lease.guards(self._keys))
            if isinstance(result, Stale):
                return result
            gone = []
        return Applied()

    def cut(self) -> Cut | None:
        """Return the moment that the counts are of, None if there are none, or not all yet. Raises StateCorrupt."""
        found = self._connection.call("HGET", self._key, "cut")
        return None if found is None else _CUTS.unpack(found)

    def read(self) -> StoredCounts | None:
        """Return the counts, None if there are none. Raises StateCorrupt."""
        cut = self._connection.call("HGET", self._key, "cut")
        packed = self._connection.call("HGET", self._key, "head")
        if cut is None or packed is None:
            return None
        head = _head(packed)
        sizes = unpack_numbers(head["sizes"], len(head["words"]))
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        parts = [self._connection.call("HGET", self._key, f"{number}") for number in range(head["chunks"])]
        # The cut comes last, so counts that were written meanwhile are not mixed in.
        if self._connection.call("HGET", self._key, "cut") != cut or None in parts:
            return None
        pairs, number = b"".join(parts), int(indptr[-1])
        # The first byte says how many bytes each column takes.
        end = 1 + pairs[0] * number if pairs else 0
        columns = unpack_numbers(pairs[:end], number).astype(np.int32)
        values = unpack_numbers(pairs[end:], number)
        if columns.max(initial=-1) >= len(sizes):
            raise _unreadable()
        nothing = np.zeros(len(sizes), np.int64)
        upper = Cooccurrence(len(sizes), indptr, columns, values, nothing, nothing, nothing, 0)
        return StoredCounts(tuple(head["words"]), _CUTS.unpack(cut), upper)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SummedCounts(DocumentCounts):
    """Counts of now whose working matrix is made of stored sums.

    stored: sums as of an earlier cut.
    """

    stored: StoredCounts

    @classmethod
    def of(cls, counts: DocumentCounts, stored: StoredCounts) -> "SummedCounts":
        """Return counts with the sums to begin from."""
        return cls(**{one.name: getattr(counts, one.name) for one in fields(counts)}, stored=stored)

    def symmetric(self, keep: Positions) -> SymmetricCounts:
        """Return the pair counts of `restrict` as a working matrix.

        Documents are read only if a word is not among those of the sums. Raises CutGone if changes since the cut
        of the sums are gone.
        """
        stored = self.stored
        since = [stored.cut.places[cut.partition] for cut in self.cuts]
        change = changed_documents(self.connection, self.table, since, self.cuts)
        place = {self.words[k]: at for at, k in enumerate(keep.tolist())}
        summed = np.array([place.get(word, -1) for word in stored.words], np.int64)
        q = SymmetricCounts.of(stored.upper.relabel(summed, len(keep)))
        # The last place is for words that nobody asks for.
        known = np.zeros(len(keep) + 1, np.bool_)
        known[summed[summed >= 0]] = True
        # Pairs with a word that the sums do not have are counted from the documents, all at once.
        changed = np.array([place.get(word, -1) for word in change.words], np.int64)
        changed[~known[changed]] = -1
        held = np.flatnonzero(changed >= 0)
        q = q.plus(SymmetricCounts.of(change.restrict(held).relabel(changed[held], len(keep))))
        new = ~known[:-1]
        return q.plus(SymmetricCounts.of(self.touching(keep, new))) if new.any() else q


def _head(packed: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = msgpack.unpackb(packed, unicode_errors="surrogatepass")
    except (ValueError, msgpack.UnpackException):
        raise _unreadable() from None
    return found


def _unreadable() -> StateCorrupt:
    return StateCorrupt(_UNREADABLE)
