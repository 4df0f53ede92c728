"""Signed notes: a text, and lines of signatures below it (c2sp.org/signed-note, c2sp.org/tlog-cosignature)."""

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass

from streamtopic.errors import InvalidRelease, UnknownKey
from streamtopic.signed.signing_keys import PublicKey, SigningKey, from_base64

__all__ = ["Note", "cosigned", "open_note", "read_note", "sign_note", "signature_line"]

_DASH = "— "
_MOST_SIGNATURES = 64
_LONGEST = 64 << 10
_SIGNATURE_BYTES = 64
_TIME_BYTES = 8
# Control characters, and halves of a character, which JSON may hold and UTF-8 may not.
_UNUSABLE = re.compile("[\x00-\x09\x0b-\x1f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Note:
    """A note as it was read; nothing in it is verified yet.

    text: with its last newline.
    signatures: name, hash of the key and bytes of each signature.
    """

    text: str
    signatures: tuple[tuple[str, bytes, bytes], ...]


def sign_note(text: str, *keys: SigningKey) -> str:
    """Return a text with the signatures of keys below it. text: ends in a newline."""
    lines = [signature_line(key.name, key.public.hash, key.sign(text.encode())) for key in keys]
    return f"{text}\n{''.join(lines)}"


def signature_line(name: str, key: bytes, signature: bytes) -> str:
    """Return the line of a signature. key: hash of the key."""
    return f"{_DASH}{name} {base64.b64encode(key + signature).decode()}\n"


def read_note(note: str) -> Note:
    """Return the parts of a note. Raises InvalidRelease for a text that is none."""
    text, blank, rest = note.rpartition("\n\n")
    lines = rest.splitlines()
    plain = len(note) <= _LONGEST and not _UNUSABLE.search(note)
    if not blank or not plain or not rest.endswith("\n") or not 0 < len(lines) <= _MOST_SIGNATURES:
        raise InvalidRelease("this is not a signed note: it has no lines of signatures")
    return Note(f"{text}\n", tuple(map(_signature, lines)))


def _signature(line: str) -> tuple[str, bytes, bytes]:
    name, space, encoded = line.removeprefix(_DASH).partition(" ")
    data = from_base64(encoded)
    if not line.startswith(_DASH) or not name or not space or len(data) <= 4:
        raise InvalidRelease("this is not a signed note: a line of a signature is malformed")
    return name, data[:4], data[4:]


def open_note(note: str, keys: Iterable[PublicKey]) -> tuple[str, PublicKey]:
    """Return the text of a note and the key among `keys` that signed it.

    Raises InvalidRelease for a signature of one of them that does not verify, UnknownKey if none of them signed.
    """
    found = read_note(note)
    signer = None
    by_name = {(key.name, key.hash): key for key in keys}
    for name, key_id, signature in found.signatures:
        key = by_name.get((name, key_id))
        if key is not None:
            key.verify(signature, found.text.encode())
            signer = signer or key
    if signer is None:
        names = ", ".join(f"{name} {key_id.hex()}" for name, key_id, _ in found.signatures[:3])
        known = ", ".join(f"{key.name} {key.key_id}" for key in by_name.values()) or "no key"
        raise UnknownKey(
            f"signed with {names[:300]}, and {known} is known here: give the key of the ledger, or its root key"
        )
    return found.text, signer


def cosigned(note: str, witnesses: Iterable[PublicKey]) -> frozenset[str]:
    """Return the names of those witnesses whose cosignature of a checkpoint verifies. Others are passed over.

    witnesses: their keys, of kind COSIGNATURE.
    """
    found = read_note(note)
    by_name = {(witness.name, witness.hash): witness for witness in witnesses}
    valid = set()
    for name, key_id, signature in found.signatures:
        witness = by_name.get((name, key_id))
        if witness is None or len(signature) != _TIME_BYTES + _SIGNATURE_BYTES:
            continue
        seconds = int.from_bytes(signature[:_TIME_BYTES])
        message = f"cosignature/v1\ntime {seconds}\n{found.text}".encode()
        try:
            witness.verify(signature[_TIME_BYTES:], message)
        except InvalidRelease:
            continue
        valid.add(name)
    return frozenset(valid)
