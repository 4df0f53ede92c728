"""The Merkle tree of RFC 6962: roots, and proofs that an entry is in it and that it only grew.

Everything is made of one function: the hash of the entries from `low` up to `high`, from hashes of complete subtrees.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from streamtopic.errors import InvalidRelease
from streamtopic.signed.canonical import Base64

__all__ = [
    "EMPTY_ROOT",
    "HASH_BYTES",
    "Frontier",
    "Tree",
    "consistency_path",
    "inclusion_path",
    "leaf_hash",
    "node_hash",
    "range_hash",
    "verify_inclusion",
]

HASH_BYTES = 32
EMPTY_ROOT = hashlib.sha256(b"").digest()

Node = Callable[[int, int], bytes]
"""Level and index to the hash of a complete subtree: level 0 has the leaves, level k has subtrees of 2^k of them."""


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of an entry."""
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of two subtrees side by side."""
    return hashlib.sha256(b"\x01" + left + right).digest()


@dataclass(frozen=True, slots=True)
class Frontier:
    """The hashes of the largest complete subtrees from left to right: all that appending needs.

    size: number of entries.
    hashes: one for each bit of `size`, the largest subtree first.
    """

    size: int = 0
    hashes: tuple[Base64, ...] = ()

    def __post_init__(self) -> None:
        """Raise InvalidRelease for hashes that do not fit the size."""
        fits = self.size >= 0 and len(self.hashes) == self.size.bit_count()
        if not fits or any(len(one) != HASH_BYTES for one in self.hashes):
            raise InvalidRelease("the hashes of a tree do not fit its size")

    def grown(self, leaves: Iterable[bytes]) -> "Frontier":
        """Return the frontier of the tree with further entries, given by their hashes."""
        size, hashes = self.size, list(self.hashes)
        for leaf in leaves:
            hashes.append(leaf)
            size += 1
            # Each zero at the end of the new size is a pair of subtrees that is complete.
            for _ in range((size & -size).bit_length() - 1):
                right = hashes.pop()
                hashes.append(node_hash(hashes.pop(), right))
        return Frontier(size, tuple(hashes))

    @property
    def root(self) -> bytes:
        """The root of the tree."""
        if not self.hashes:
            return EMPTY_ROOT
        *others, root = self.hashes
        for one in reversed(others):
            root = node_hash(one, root)
        return root


def range_hash(node: Node, low: int, high: int) -> bytes:
    """Return the hash over the entries from `low` up to and without `high`: a subtree of RFC 6962."""
    count = high - low
    level = count.bit_length() - 1
    if count == 1 << level and low % count == 0:
        return node(level, low >> level)
    split = low + _split(count)
    return node_hash(range_hash(node, low, split), range_hash(node, split, high))


def _descent(index: int, size: int, end: int = 0) -> tuple[list[tuple[bool, int, int]], int]:
    """Return the subtrees beside the way from the root down to an entry, the largest first; and where the last begins.

    Each is whether the way goes left of it, and its first entry and the one after its last.
    end: stop at the subtree that ends before this entry; 0 for at the entry itself.
    """
    beside = []
    low, high = 0, size
    while high - low > 1 and high != end:
        split = low + _split(high - low)
        if index < split:
            beside.append((True, split, high))
            high = split
        else:
            beside.append((False, low, split))
            low = split
    return beside, low


def inclusion_path(node: Node, index: int, size: int) -> list[bytes]:
    """Return the proof that the entry at `index` is in the tree of `size` entries, from leaf to root."""
    beside, _ = _descent(index, size)
    return [range_hash(node, low, high) for _, low, high in reversed(beside)]


def consistency_path(node: Node, old: int, size: int) -> list[bytes]:
    """Return the proof that the tree of `size` entries begins with the tree of `old` entries."""
    if not 0 < old < size:
        return []
    # Down to the last subtree of the old tree; it is given itself unless it is the whole old tree.
    beside, last = _descent(old - 1, size, old)
    own = [range_hash(node, last, old)] if last else []
    return own + [range_hash(node, low, high) for _, low, high in reversed(beside)]


def verify_inclusion(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> None:
    """Raise InvalidRelease unless the path proves that the entry with this hash is at `index` of a tree."""
    if not 0 <= index < size:
        raise InvalidRelease(f"entry {index} is not in a ledger of {size} entries")
    beside, _ = _descent(index, size)
    found = leaf
    if len(path) == len(beside):
        for (is_left, _, _), other in zip(reversed(beside), path, strict=True):
            found = node_hash(found, other) if is_left else node_hash(other, found)
    if len(path) != len(beside) or found != root:
        raise InvalidRelease(f"entry {index} is not the one in the signed ledger: do not rely on this")


def _split(count: int) -> int:
    """Return the largest power of two below `count`."""
    return 1 << ((count - 1).bit_length() - 1)


class Tree:
    """A tree that keeps the hash of every complete subtree: 64 bytes an entry.

    size: number of entries.
    """

    def __init__(self) -> None:
        self._levels = [bytearray()]
        self.size = 0

    def append(self, leaf: bytes) -> None:
        """Add the hash of the next entry."""
        self._levels[0] += leaf
        self.size += 1
        for level in range((self.size & -self.size).bit_length() - 1):
            if level + 1 == len(self._levels):
                self._levels.append(bytearray())
            pair = bytes(self._levels[level][-2 * HASH_BYTES :])
            self._levels[level + 1] += node_hash(pair[:HASH_BYTES], pair[HASH_BYTES:])

    def root(self, size: int) -> bytes:
        """Return the root that the tree had with `size` entries."""
        return range_hash(self.node, 0, size) if size else EMPTY_ROOT

    def inclusion(self, index: int, size: int) -> list[bytes]:
        """Return the proof that the entry at `index` was in the tree of `size` entries."""
        return inclusion_path(self.node, index, size)

    def consistency(self, old: int, size: int) -> list[bytes]:
        """Return the proof that the tree of `size` entries begins with that of `old` entries."""
        return consistency_path(self.node, old, size)

    def node(self, level: int, index: int) -> bytes:
        """Return the hash of a complete subtree; see Node."""
        return bytes(self._levels[level][index * HASH_BYTES : (index + 1) * HASH_BYTES])
