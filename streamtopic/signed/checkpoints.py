"""Checkpoints of the ledger, and proofs that an entry is in it (c2sp.org/tlog-checkpoint, c2sp.org/tlog-proof)."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from streamtopic.errors import InvalidRelease
from streamtopic.signed.entries import Entry, parse_line
from streamtopic.signed.key_list import KeyRing
from streamtopic.signed.merkle import HASH_BYTES, leaf_hash, verify_inclusion
from streamtopic.signed.signing_keys import PublicKey, from_base64, read_note

__all__ = ["Checkpoint", "LedgerProof", "Logged", "hash_of", "text_of"]

_PROOF = "c2sp.org/tlog-proof@v1"
_LONGEST_PATH = 63
_MOST = 1 << 62
_DIGITS = 20


def text_of(digest: bytes) -> str:
    """Return a hash as texts of the ledger hold it: base64."""
    return base64.b64encode(digest).decode()


def hash_of(text: object) -> bytes:
    """Undo `text_of`. Raises InvalidRelease."""
    digest = from_base64(text) if isinstance(text, str) else b""
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
    def open(cls, note: str, keys: KeyRing, *, in_place: bool = False) -> tuple["Checkpoint", PublicKey]:
        """Return the checkpoint in a signed note, and the key that signed it. Raises InvalidRelease, UnknownKey.

        in_place: whether its place in the topic vouches for what a revoked key had signed before.
        """
        found = cls.parse(read_note(note).text)
        _, signer = keys.open(note, found.size if in_place else None)
        # A key may sign other notes, and other ledgers may have a key of the same bytes.
        if found.origin != signer.name:
            raise InvalidRelease(f"the checkpoint is of ledger {found.origin}, and its key of {signer.name}")
        return found, signer


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
        checkpoint, _ = Checkpoint.open(self.checkpoint, keys)
        leaf = leaf_hash(self.line.encode())
        verify_inclusion(leaf, self.index, checkpoint.size, self.path, checkpoint.root)
        if (void := keys.void(self.index)) is not None:
            raise InvalidRelease(f"entry {self.index} is void: key {void.key.key_id} was revoked from before it")
        return Logged(self.index, parse_line(self.line), self.line)


def _after(line: str, word: str) -> str:
    if not line.startswith(word):
        raise InvalidRelease(f"this is not a proof of the ledger: it has no line of {word.strip()}")
    return line.removeprefix(word)
