"""The Merkle tree of RFC 6962: roots, and proofs that an entry is in it and that it only grew.

Everything is made of one function: the hash of the entries from `low` up to `high`, from hashes of complete subtrees.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence

from streamtopic.errors import InvalidRelease

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


class Frontier:
    """The hashes of the largest complete subtrees from left to right: all that appending needs.

    size: number of entries.
    """

    def __init__(self, size: int = 0, hashes: Iterable[bytes] = ()) -> None:
        """Take up a tree of `size` entries. Raises InvalidRelease for hashes that do not fit it."""
        self.size = size
        self._hashes = list(hashes)
        if size < 0 or len(self._hashes) != size.bit_count() or any(len(one) != HASH_BYTES for one in self._hashes):
            raise InvalidRelease("the hashes of a tree do not fit its size")

    @property
    def hashes(self) -> tuple[bytes, ...]:
        """The hashes, one for each bit of `size`, the largest subtree first."""
        return tuple(self._hashes)

    def append(self, leaf: bytes) -> None:
        """Add the hash of the next entry."""
        carry = leaf
        size = self.size
        while size & 1:
            carry = node_hash(self._hashes.pop(), carry)
            size >>= 1
        self._hashes.append(carry)
        self.size += 1

    def grown(self, leaves: Iterable[bytes]) -> "Frontier":
        """Return the frontier of the tree with further entries."""
        grown = Frontier(self.size, self._hashes)
        for leaf in leaves:
            grown.append(leaf)
        return grown

    @property
    def root(self) -> bytes:
        """The root of the tree."""
        if not self._hashes:
            return EMPTY_ROOT
        root = self._hashes[-1]
        for one in reversed(self._hashes[:-1]):
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


def inclusion_path(node: Node, index: int, size: int) -> list[bytes]:
    """Return the proof that the entry at `index` is in the tree of `size` entries, from leaf to root."""
    path = []
    low, high = 0, size
    while high - low > 1:
        split = low + _split(high - low)
        if index < split:
            path.append((split, high))
            high = split
        else:
            path.append((low, split))
            low = split
    return [range_hash(node, *part) for part in reversed(path)]


def consistency_path(node: Node, old: int, size: int) -> list[bytes]:
    """Return the proof that the tree of `size` entries begins with the tree of `old` entries."""
    if not 0 < old < size:
        return []
    parts: list[tuple[int, int]] = []
    low, high = 0, size
    # Down to the last subtree of the old tree; it is given itself unless it is the whole old tree.
    while high != old:
        split = low + _split(high - low)
        if old <= split:
            parts.append((split, high))
            high = split
        else:
            parts.append((low, split))
            low = split
    if low:
        parts.append((low, high))
    return [range_hash(node, *part) for part in reversed(parts)]


def verify_inclusion(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> None:
    """Raise InvalidRelease unless the path proves that the entry with this hash is at `index` of a tree."""
    if not 0 <= index < size:
        raise InvalidRelease(f"entry {index} is not in a ledger of {size} entries")
    # From the leaf up: whether the entry lies in the left or in the right half of each subtree.
    sides = []
    low, high = 0, size
    while high - low > 1:
        split = low + _split(high - low)
        sides.append(index < split)
        low, high = (low, split) if index < split else (split, high)
    found = leaf
    if len(path) == len(sides):
        for is_left, other in zip(reversed(sides), path, strict=True):
            found = node_hash(found, other) if is_left else node_hash(other, found)
    if len(path) != len(sides) or found != root:
        raise InvalidRelease(f"entry {index} is not the one in the signed ledger: do not rely on this")


def _split(count: int) -> int:
    """Return the largest power of two below `count`."""
    return 1 << ((count - 1).bit_length() - 1)


_LEVELS = 8
_TILE = 1 << _LEVELS


class Tree:
    """A tree that keeps the hash of every entry, and of each 256 of them: 32 bytes an entry.

    size: number of entries.
    """

    def __init__(self) -> None:
        self._leaves = bytearray()
        self._tiles = bytearray()
        self.size = 0

    def append(self, leaf: bytes) -> None:
        """Add the hash of the next entry."""
        self._leaves += leaf
        self.size += 1
        if self.size % _TILE == 0:
            self._tiles += self._complete(0, self.size - _TILE, self.size)

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
        if level >= _LEVELS:
            width = 1 << (level - _LEVELS)
            return self._complete(_LEVELS, index * width, (index + 1) * width)
        return self._complete(0, index << level, (index + 1) << level)

    def _complete(self, level: int, low: int, high: int) -> bytes:
        """Return the hash over a complete subtree of leaves (level 0) or of tiles."""
        data = self._tiles if level else self._leaves
        hashes = [bytes(data[place * HASH_BYTES : (place + 1) * HASH_BYTES]) for place in range(low, high)]
        while len(hashes) > 1:
            hashes = list(map(node_hash, hashes[::2], hashes[1::2]))
        return hashes[0]
