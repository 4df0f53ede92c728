"""Suppression: ids and subjects that were forgotten, and that are refused when they are sent again.

The operator holds a secret. Under it each id and each subject has a digest, and each record that suppresses or lifts
has a code (MAC). So neither the log nor Redis tells who is suppressed, and nobody without the secret can suppress or
lift.

A record is written to every partition, under a key that is made of the digest. Compaction keeps the newest record of a
key, which says all that holds now. Each record names the time at which it was made. An older one, sent again by
anybody, changes nothing.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from hashlib import blake2b

import msgpack

from streamtopic.errors import InvalidEvent, SettingsError, StateCorrupt

__all__ = [
    "SUPPRESSED",
    "SUPPRESSION_HEADER",
    "SUPPRESSION_KEY",
    "Suppression",
    "SuppressionKey",
    "check_suppression_key",
    "digest_in",
    "is_suppression_key",
    "suppressed",
]

SUPPRESSION_KEY = b"st:suppress:"
"""Keys of the documents topic that begin with it belong to suppressions, in models that have them, and are no ids."""

SUPPRESSION_HEADER = "st-suppressed"
"""Header of the tombstone that the service writes behind a suppressed add. Where no document has the id any more, such
a tombstone is no deletion and has no receipt."""

SUPPRESSED = "suppressed"
"""The reason code of an add whose id or subject is suppressed."""

_FORMAT = 1
_DIGEST_BYTES = 16
_CODE_BYTES = 32
_SUPPRESS, _LIFT = "suppress", "lift"
# A record of the future would outrank all that the operator writes until then.
_AHEAD_MS = 86_400_000
_MOST_MS = 1 << 53

# They keep the uses of one secret apart.
_MODEL = b"st suppression 1"
_DOCUMENT = b"st supp document"
_SUBJECT = b"st supp subject"
_CODE = b"st supp code"
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
        """The key of its record in the documents topic."""
        return SUPPRESSION_KEY + self.digest.hex().encode()

    def outranks(self, other: Suppression | None) -> bool:
        """Return whether it holds in the place of another one of the same digest."""
        # Of two that were made in the same millisecond the one that suppresses holds, in whatever order they come.
        return other is None or (self.made_ms, self.suppressed) > (other.made_ms, other.suppressed)

    def pack(self) -> bytes:
        """Return its value in the state of a partition."""
        return b"%d:%d" % (self.suppressed, self.made_ms)

    @classmethod
    def unpack(cls, digest: bytes, value: bytes) -> Suppression:
        """Undo `pack`. Raises StateCorrupt."""
        try:
            said, made_ms = value.split(b":")
            return cls(digest, said == b"1", int(made_ms))
        except ValueError:
            raise StateCorrupt("a suppression in the state cannot be read: run `streamtopic rebuild`") from None


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
        return blake2b(b"", key=self._key, digest_size=8, person=_NAME).hexdigest()

    def of_document(self, document: bytes) -> bytes:
        """Return the digest of a document's id."""
        return blake2b(document, key=self._key, digest_size=_DIGEST_BYTES, person=_DOCUMENT).digest()

    def of_subject(self, subject: str) -> bytes:
        """Return the digest of a subject."""
        return blake2b(subject.encode(), key=self._key, digest_size=_DIGEST_BYTES, person=_SUBJECT).digest()

    def value(self, suppression: Suppression) -> bytes:
        """Return the value of a suppression's record; the same suppression gives the same bytes."""
        operation = _SUPPRESS if suppression.suppressed else _LIFT
        fields = {"op": operation, "format": _FORMAT, "made": suppression.made_ms, "mac": self._code(suppression)}
        return bytes(msgpack.packb(fields))

    def read(self, key: bytes, value: bytes | None, written_ms: int | None = None) -> Suppression:
        """Return what a record under a key of suppressions says.

        key, value: of the record.
        written_ms: time of the record, milliseconds since 1970; None to accept any time in it.

        Raises InvalidEvent for everything that the holder of this key did not write for this model.
        """
        digest = digest_in(key)
        if digest is None:
            raise InvalidEvent("suppression", "keys that begin with st:suppress: belong to suppressions")
        fields = _fields(value)
        operation = fields.get("op")
        made_ms = fields.get("made")
        code = fields.get("mac")
        # Anybody may write here: a list as the operation has no hash, so no set is asked for it.
        known = isinstance(operation, str) and operation in {_SUPPRESS, _LIFT}
        if fields.get("format") != _FORMAT or not known:
            raise InvalidEvent("suppression", f"the record is not a suppression of format {_FORMAT}")
        if type(made_ms) is not int or not 0 <= made_ms <= _MOST_MS or not isinstance(code, bytes):
            raise InvalidEvent("suppression", "the suppression lacks its time or its code")
        found = Suppression(digest, operation == _SUPPRESS, made_ms)
        if not hmac.compare_digest(code, self._code(found)):
            raise InvalidEvent("suppression", "the code of the suppression is not of this model's key")
        if written_ms is not None and made_ms > written_ms + _AHEAD_MS:
            raise InvalidEvent(
                "suppression", "the suppression was made a day after it was written: set the operator's clock right"
            )
        return found

    def _code(self, suppression: Suppression) -> bytes:
        """Return the code that only the holder of the key can make."""
        said = b"%s:%s" % (suppression.digest, suppression.pack())
        return blake2b(said, key=self._key, digest_size=_CODE_BYTES, person=_CODE).digest()


def check_suppression_key(wanted: str, key: SuppressionKey | None) -> None:
    """Raise SettingsError where a state was counted with another key of suppressions than this one.

    wanted: fingerprint of the state's key, "" for a state without suppressions.
    key: of this process, None without one.
    """
    have = "" if key is None else key.fingerprint
    if wanted != have:
        raise SettingsError(
            f"the state was counted with key {wanted or 'none'} of suppressions, this process has {have or 'none'}: "
            "name the key's file in the setting `suppression_key`, or restore it from your backup; without it those "
            "who were forgotten could come back"
        )


def is_suppression_key(key: bytes | None) -> bool:
    """Return whether a record's key belongs to suppressions, in a model that has them."""
    return key is not None and key.startswith(SUPPRESSION_KEY)


def digest_in(key: bytes) -> bytes | None:
    """Return the digest in a key of suppressions, None where it holds none."""
    digits = key.removeprefix(SUPPRESSION_KEY)
    try:
        digest = bytes.fromhex(digits.decode("ascii"))
    except ValueError:
        return None
    # Other spellings of the same digest would be other keys to compaction.
    same = digest.hex().encode() == digits
    return digest if same and len(digest) == _DIGEST_BYTES else None


def suppressed() -> InvalidEvent:
    """Return the refusal of an add whose id or subject is suppressed."""
    return InvalidEvent("suppressed", "the id or a subject of the document is suppressed: `streamtopic lift` lifts it")


def _fields(value: bytes | None) -> dict[object, object]:
    """Return the map in a record's value, {} for anything else."""
    # A whole record takes about 80 bytes, so nothing long is parsed.
    if value is None or len(value) > 1_000:
        return {}
    try:
        found = msgpack.unpackb(value)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        return {}
    return found if isinstance(found, dict) else {}
