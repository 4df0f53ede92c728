"""The tree of the ledger, its checkpoints, and proofs that an entry is in it.

The tree is that of RFC 6962. Everything about it is made of one function: the hash of the entries from `low` up to
`high`, from hashes of complete subtrees. Formats: c2sp.org/tlog-checkpoint, c2sp.org/tlog-proof.
"""

import base64
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from streamtopic.errors import InvalidRelease
from streamtopic.signed.canonical import Base64, Whole, from_base64
from streamtopic.signed.entries import Entry, parse_line
from streamtopic.signed.signing_keys import KeyRing, read_note

__all__ = [
    "EMPTY_ROOT",
    "Checkpoint",
    "Frontier",
    "LedgerProof",
    "Logged",
    "consistency_path",
    "hash_of",
    "inclusion_path",
    "leaf_hash",
    "node_hash",
    "range_hash",
    "text_of",
    "verify_inclusion",
]

_PROOF = "c2sp.org/tlog-proof@v1"
_LONGEST_PATH = 63
_MOST = 1 << 62
_DIGITS = 20
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

    size: Whole = 0
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


def text_of(digest: bytes) -> str:
    """Return a hash as texts of the ledger hold it: base64."""
    return base64.b64encode(digest).decode()


def hash_of(text: str) -> bytes:
    """Undo `text_of`. Raises InvalidRelease."""
    digest = from_base64(text)
    if len(digest) != HASH_BYTES:
        raise InvalidRelease("a hash of the ledger is malformed")
    return digest


@dataclass(frozen=True, slots=True)
class Logged:
    """An entry in its place. index: number of entries before it. line: its very text."""

    index: int
    entry: Entry
    line: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A ledger at one moment.

    origin: its name.
    size: number of entries.
    root: of its tree.
    """

    origin: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        """The text that is signed."""
        return f"{self.origin}\n{self.size}\n{text_of(self.root)}\n"

    @classmethod
    def parse(cls, text: str) -> "Checkpoint":
        """Return the checkpoint in a text. Raises InvalidRelease."""
        lines = text.split("\n")
        # Further lines would be extensions, which this ledger does not make.
        if len(lines) != 4 or lines[3]:
            raise InvalidRelease("this is not a checkpoint: it has other lines than origin, size and root")
        return cls(lines[0], _number(lines[1]), hash_of(lines[2]))

    @classmethod
    def open(cls, note: str, keys: KeyRing, *, in_place: bool = False) -> "Checkpoint":
        """Return the checkpoint in a note that a key of its ledger signed. Raises InvalidRelease, UnknownKey.

        in_place: whether its place in the topic vouches for what a revoked key had signed before.
        """
        found = cls.parse(read_note(note).text)
        signer = keys.signer_of(note, found.size if in_place else None)
        # A key may sign other notes, and other ledgers may have a key of the same bytes.
        if found.origin != signer.name:
            raise InvalidRelease(f"the checkpoint is of ledger {found.origin}, and its key of {signer.name}")
        return found


def _number(text: str) -> int:
    # Python itself refuses to read a number of thousands of digits, with an error of its own.
    digits = text.isascii() and text.isdigit() and len(text) < _DIGITS
    if not digits or (text[0] == "0" and text != "0") or int(text) >= _MOST:
        raise InvalidRelease(f"{text[:20]!r} is not a number of the ledger")
    return int(text)


@dataclass(frozen=True, slots=True)
class LedgerProof:
    """A proof that an entry is in a ledger, which verifies by itself.

    line: of the entry.
    index: number of entries before it.
    path: hashes from the entry up to the root.
    checkpoint: signed note.
    """

    line: str
    index: int
    path: Sequence[bytes]
    checkpoint: str

    @property
    def text(self) -> str:
        """The proof as a file has it, in the form of tlog-proof; its extra line holds the entry."""
        extra = base64.b64encode(self.line.encode()).decode()
        hashes = "".join(f"{text_of(one)}\n" for one in self.path)
        return f"{_PROOF}\nextra {extra}\nindex {self.index}\n{hashes}\n{self.checkpoint}"

    @classmethod
    def parse(cls, text: str) -> "LedgerProof":
        """Return the proof in a text. Raises InvalidRelease for any other text."""
        head, blank, checkpoint = text.partition("\n\n")
        title, _, rest = head.partition("\n")
        lines = rest.split("\n")
        if title != _PROOF or not blank or len(lines) < 2 or len(lines) > 2 + _LONGEST_PATH:
            raise InvalidRelease("this is not a proof of the ledger: it begins with another line, or ends too early")
        try:
            line = from_base64(_after(lines[0], "extra ")).decode()
        except UnicodeDecodeError:
            line = ""
        if not line:
            raise InvalidRelease("this is not a proof of the ledger: it holds no entry")
        index = _number(_after(lines[1], "index "))
        return cls(line, index, tuple(map(hash_of, lines[2:])), checkpoint)

    def verify(self, keys: KeyRing) -> Logged:
        """Return the proved entry. Raises InvalidRelease, and UnknownKey if no trusted key signed the checkpoint."""
        checkpoint = Checkpoint.open(self.checkpoint, keys)
        leaf = leaf_hash(self.line.encode())
        verify_inclusion(leaf, self.index, checkpoint.size, self.path, checkpoint.root)
        if (void := keys.void(self.index)) is not None:
            raise InvalidRelease(f"entry {self.index} is void: key {void.key.key_id} was revoked from before it")
        return Logged(self.index, parse_line(self.line), self.line)


def _after(line: str, word: str) -> str:
    if not line.startswith(word):
        raise InvalidRelease(f"this is not a proof of the ledger: it has no line of {word.strip()}")
    return line.removeprefix(word)
