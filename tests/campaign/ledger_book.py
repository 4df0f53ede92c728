"""Reads the ledger a second time, by the rules of docs/messages.md and RFC 6962, and with no code of the service."""

import base64
import hashlib
import json

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


class Roots:
    """The root of a tree at each size that it ever had."""

    def __init__(self):
        self.known = [hashlib.sha256(b"").digest()]
        # The largest complete subtrees from left to right, with their heights.
        self._peaks = []

    def append(self, entry):
        """Add an entry."""
        height, one = 0, hashlib.sha256(b"\0" + entry).digest()
        while self._peaks and self._peaks[-1][0] == height:
            one = _node(self._peaks.pop()[1], one)
            height += 1
        self._peaks.append((height, one))
        root = self._peaks[-1][1]
        for _, left in reversed(self._peaks[:-1]):
            root = _node(left, root)
        self.known.append(root)

    def after(self, entries):
        """Return the root with further entries, which are not kept."""
        grown = Roots()
        grown.known, grown._peaks = self.known[-1:], list(self._peaks)
        for entry in entries:
            grown.append(entry.encode())
        return grown.known[-1]


def _node(left, right):
    return hashlib.sha256(b"\1" + left + right).digest()


class LedgerBook:
    """Follows the ledger's topic, record by record. There is one key, and no list of keys.

    lines: the entries.
    strays: number of records that are not part of it.
    """

    def __init__(self, key):
        self._name, digits, encoded = key.split("+", 2)
        self._hash = bytes.fromhex(digits)
        self._key = Ed25519PublicKey.from_public_bytes(base64.b64decode(encoded)[1:])
        self.lines = []
        self.strays = 0
        self._roots = Roots()
        self._pending = None
        self._signed = set()

    @property
    def root(self):
        """The root of the tree."""
        return self._roots.known[-1]

    def take(self, value):
        """Take in the next record; return the entries that it adds."""
        try:
            fields = json.loads(value or b"null")
            if "draft" in fields:
                return self._draft(self._opened(fields["draft"]), fields["entries"])
            return self._checkpoint(self._opened(fields["checkpoint"]))
        except (ValueError, LookupError, TypeError, InvalidSignature):
            self.strays += 1
            return []

    def contradictions(self):
        """Return the checkpoints that were signed and are not of this tree, whether they count or not."""
        known = self._roots.known
        return [
            f"a checkpoint was signed for {size} entries that is not that of the ledger"
            for size, root in sorted(self._signed)
            if size >= len(known) or known[size] != root
        ]

    def _opened(self, note):
        """Return the lines of a note's text. Raises ValueError, InvalidSignature unless the key has signed it."""
        text, _, signatures = note.rpartition("\n\n")
        for line in signatures.splitlines():
            dash, name, encoded = line.split(" ")
            data = base64.b64decode(encoded)
            if (dash, name, data[:4]) == ("—", self._name, self._hash):
                self._key.verify(data[4:], f"{text}\n".encode())
                return text.split("\n")
        raise ValueError("the key has not signed this")

    def _draft(self, said, lines):
        title, *rest = said
        root = self._roots.after(lines)
        after = [self._name, str(len(self.lines) + len(lines)), base64.b64encode(root).decode()]
        if title != "streamtopic draft" or rest != [str(len(self.lines)), *after] or self._pending is not None:
            raise ValueError("this is not the next page")
        self._pending = root, lines
        return []

    def _checkpoint(self, said):
        origin, size, encoded = said
        root = base64.b64decode(encoded)
        self._signed.add((int(size), root))
        if self._pending is None or origin != self._name or root != self._pending[0]:
            raise ValueError("this is not the checkpoint of the next page")
        _, lines = self._pending
        if int(size) != len(self.lines) + len(lines):
            raise ValueError("this is not the checkpoint of the next page")
        self._pending = None
        for line in lines:
            self._roots.append(line.encode())
        self.lines += lines
        return lines
