"""Suppression, a request that stays: documents of an id or a person that was forgotten are refused from then on.

The operator holds a secret. Under it each id and each subject has a digest, and each record has a code (MAC). So
neither the log nor Redis tells who is suppressed, and nobody without the secret can suppress or lift.

A record of the requests topic has a key that is made of the digest, so compaction keeps the newest. Each names the time
at which it was made: an older one, sent again by anybody, changes nothing.

A refused add gets a tombstone, which takes its text out of the log. Its header names the add, under the secret as well,
so a recount knows which adds before its end were refused.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

from streamtopic.errors import InvalidEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SUPPRESSED", "Suppression", "SuppressionKey", "suppressed"]

SUPPRESSED = "suppressed"
"""The reason code of an add whose id or subject is suppressed."""

_HEADER = "st-suppressed"
_DIGEST_BYTES = 16
_CODE_BYTES = 16
# No request has such an id: ids of requests have no colon.
_KEY = re.compile(rb"st:suppress:([0-9a-f]{32})")
_VALUE = re.compile(rb"(suppress|lift):([0-9]{1,16}):([0-9a-f]{32})")
_REFUSED = re.compile(rb"([0-9]{1,19}):([0-9a-f]{32})")

# They keep the uses of one secret apart.
_MODEL = b"st suppression 1"
_DOCUMENT = b"st supp document"
_SUBJECT = b"st supp subject"
_RECORD = b"st supp code"
_REFUSAL = b"st supp refusal"
_NAME = b"st supp name"


@dataclass(frozen=True, slots=True)
class Suppression:
    """What the operator said last about an id or a subject.

    digest: of the id or the subject, 16 bytes.
    suppressed: whether it is suppressed; else it was lifted.
    made_ms: when the operator said so, milliseconds since 1970.
    """

    digest: bytes
    suppressed: bool
    made_ms: int

    @property
    def key(self) -> bytes:
        """The key of its record in the requests topic."""
        return b"st:suppress:" + self.digest.hex().encode()

    @staticmethod
    def digest_in(key: bytes | None) -> bytes:
        """Return the digest in the key of a record of the requests topic, b"" if it is not about a suppression."""
        found = _KEY.fullmatch(key or b"")
        return b"" if found is None else bytes.fromhex(found[1].decode())

    def outranks(self, other: Suppression | None) -> bool:
        """Return whether it holds in the place of another one of the same digest."""
        # Of two that were made in the same millisecond the one that suppresses holds, in whatever order they come.
        return other is None or (self.made_ms, self.suppressed) > (other.made_ms, other.suppressed)


@dataclass(frozen=True, slots=True)
class SuppressionKey:
    """The operator's secret, for one model.

    secret: at least 32 bytes that nobody can guess.
    model: name of the model. A record for one model is refused by all others.
    """

    secret: bytes = field(repr=False)
    model: str
    _key: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        whole = blake2b(self.secret).digest()
        derived = blake2b(self.model.encode(), key=whole, digest_size=32, person=_MODEL).digest()
        object.__setattr__(self, "_key", derived)

    @property
    def fingerprint(self) -> str:
        """The name of this key, 16 hexadecimal digits: it tells nobody the key."""
        return self._digest(b"", _NAME, 8).hex()

    def of_document(self, document: bytes) -> bytes:
        """Return the digest of a document's id."""
        return self._digest(document, _DOCUMENT, _DIGEST_BYTES)

    def of_subject(self, subject: str) -> bytes:
        """Return the digest of a subject."""
        return self._digest(subject.encode(), _SUBJECT, _DIGEST_BYTES)

    def value(self, said: Suppression) -> bytes:
        """Return the value of a suppression's record; the same suppression gives the same bytes."""
        text = b"%s:%d" % (b"suppress" if said.suppressed else b"lift", said.made_ms)
        return text + b":" + self._digest(said.digest + text, _RECORD, _CODE_BYTES).hex().encode()

    def read(self, key: bytes | None, value: bytes | None) -> Suppression | None:
        """Return what a record says; None for everything that the holder of this key did not write for this model."""
        digest, said = Suppression.digest_in(key), _VALUE.fullmatch(value or b"")
        if not digest or said is None:
            return None
        found = Suppression(digest, said[1] == b"suppress", int(said[2]))
        return found if hmac.compare_digest(self.value(found), said[0]) else None

    def refusal(self, partition: int, offset: int) -> tuple[tuple[str, bytes], ...]:
        """Return the headers of the tombstone that the service writes after a suppressed add at this place."""
        code = self._digest(b"%d:%d" % (partition, offset), _REFUSAL, _CODE_BYTES)
        return ((_HEADER, b"%d:%s" % (offset, code.hex().encode())),)

    def refused(self, partition: int, value: bytes | None, headers: Sequence[tuple[str, bytes]]) -> int | None:
        """Return the offset of the add that a tombstone of the service belongs to; None for any other record."""
        if value is not None or len(headers) != 1:
            return None
        ((name, value),) = headers
        place = _REFUSED.fullmatch(value) if name == _HEADER else None
        if place is None:
            return None
        offset = int(place[1])
        ((_, own),) = self.refusal(partition, offset)
        return offset if hmac.compare_digest(own, value) else None

    def _digest(self, text: bytes, purpose: bytes, size: int) -> bytes:
        return blake2b(text, key=self._key, digest_size=size, person=purpose).digest()


def suppressed() -> InvalidEvent:
    """Return the refusal of an add whose id or subject is suppressed."""
    return InvalidEvent("suppressed", "the id or a subject of the document is suppressed: `streamtopic lift` lifts it")
