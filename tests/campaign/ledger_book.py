"""Reads ledger and releases a second time, by docs/messages.md and RFC 6962, with no code of the service."""

import base64
import hashlib
import json

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def root_of(leaves):
    """Return the root over the hashes of entries."""
    if len(leaves) <= 1:
        return leaves[0] if leaves else hashlib.sha256(b"").digest()
    left = 1 << (len(leaves) - 1).bit_length() - 1
    return hashlib.sha256(b"\1" + root_of(leaves[:left]) + root_of(leaves[left:])).digest()


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
        self._leaves = []
        # Number of entries to the root that the tree had with them, for those that somebody asked for.
        self._roots = {}
        self._pending = None
        self._signed = set()

    def root(self, size):
        """Return the root with the first `size` entries, None if there are fewer."""
        if size not in self._roots and size <= len(self.lines):
            self._roots[size] = root_of(self._leaves[:size])
        return self._roots.get(size)

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
        return [
            f"a checkpoint was signed for {size} entries that is not that of the ledger"
            for size, root in sorted(self._signed)
            if self.root(size) != root
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
        leaves = [hashlib.sha256(b"\0" + line.encode()).digest() for line in lines]
        root = root_of(self._leaves + leaves)
        after = [self._name, str(len(self.lines) + len(lines)), base64.b64encode(root).decode()]
        if said != ["streamtopic draft", str(len(self.lines)), *after] or self._pending is not None:
            raise ValueError("this is not the next page")
        self._pending = after, lines, leaves
        return []

    def _checkpoint(self, said):
        _, size, encoded = said
        self._signed.add((int(size), base64.b64decode(encoded)))
        if self._pending is None or said != self._pending[0]:
            raise ValueError("this is not the checkpoint of the next page")
        _, lines, leaves = self._pending
        self._pending = None
        self.lines += lines
        self._leaves += leaves
        return lines


class ReleasesBook:
    """Follows the topic of releases. sent: number of a version to the SHA-256 of all bytes that were sent whole."""

    def __init__(self):
        self.sent = {}
        self._pieces = {}

    def take(self, key, value, headers):
        """Take in the next record. A proof, a tombstone and any other record that is no piece are passed over."""
        version, _, piece = key.decode().partition("/")
        if value is None or not piece.isdecimal():
            return
        named = dict(headers)
        pieces = self._pieces.setdefault((version, named["sha256"]), {})
        pieces[int(piece)] = value
        if len(pieces) == int(named["chunks"]):
            whole = self._pieces.pop((version, named["sha256"]))
            data = b"".join(whole[number] for number in range(len(whole)))
            self.sent.setdefault(int(version), set()).add(hashlib.sha256(data).hexdigest())
