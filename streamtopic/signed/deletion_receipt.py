"""Deletion receipts: what was done about one deletion, signed, without saying whose document it was.

Whoever reads the topic must not be able to try ids until a digest fits. So the digests of request id and document id
are salted: the requester draws the salt and can check their own receipt with it. Without one the service salts with a
key of the month, which is destroyed on schedule; from then on nobody can say what the receipt is about.
"""

import dataclasses
import hashlib
import hmac
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamtopic.errors import InvalidRelease
from streamtopic.signed.canonical import pack, unpack
from streamtopic.signed.sealed import open_sealed, seal
from streamtopic.signed.signing_keys import SigningKey, Verifier
from streamtopic.streams import Message

__all__ = [
    "Receipt",
    "Salt",
    "document_digest",
    "open_receipt",
    "plain_request_digest",
    "receipt_id",
    "request_digest",
    "salt_bytes",
    "seal_receipt",
    "service_document_salt",
    "service_salt",
    "to_message",
]

FORMAT = 3
KIND = "receipt"
Salt = str | bytes

_DROPPED = {2: {"length"}, FORMAT: set[str]()}
"""Fields of each format that is read which a receipt has no longer."""

_LARGEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Receipt:
    """One deletion.

    sequence: its number in the model's chain of receipts, from 1; previous: digest of the sealed bytes of the one
    before ("" for the first). model, partition, offset: of the delete's record, which name the receipt. request: salted
    digest of the request id ("" for none); document: salted digest of the document id. received, applied: milliseconds
    since 1970. found: whether there was such a document. version: the first without it; mode: the guarantee's kind; the
    rest are that version's, epsilon and cumulative_epsilon at its delta.
    release: the digest that names that version (`Release.digest`); commitment: what it says of its counts; both "" for
    one of an older program.
    link: digest of the request id for the service itself, under its key of the month `month` (as "2026-11").
    format: 2 for a receipt of an older version, whose request digest has no salt, and which has no link.
    """

    sequence: int
    previous: str
    model: str
    partition: int
    offset: int
    request: str
    document: str
    received: int
    applied: int
    found: bool
    version: int
    mode: str
    certificate: float
    sigma: float
    epsilon: float
    delta: float
    cumulative_epsilon: float
    capacity_used: int
    capacity_left: int
    release: str = ""
    commitment: str = ""
    link: str = ""
    month: str = ""
    format: int = FORMAT

    @property
    def id(self) -> str:
        """Name of the receipt, and its key in the receipts topic."""
        return receipt_id(self.model, self.partition, self.offset)

    def is_about(self, document: str | bytes, salt: Salt) -> bool:
        """Whether this is the receipt of a document, which whoever drew the salt can tell; else False."""
        name = document.encode(errors="replace") if isinstance(document, str) else document
        return hmac.compare_digest(document_digest(salt_bytes(salt), self.model, name), self.document)

    def is_of(self, request: str, salt: Salt) -> bool:
        """Whether this is the receipt of a request that was sent with this salt."""
        return bool(request) and hmac.compare_digest(request_digest(request, salt), self.request)

    def is_linked(self, request: str, keys: Mapping[str, bytes]) -> bool:
        """Whether this is the receipt of a request, for the holder of the service's keys: month to key."""
        if self.month not in keys or not request:
            return False
        salt = service_salt(keys[self.month], self.id)
        return hmac.compare_digest(request_digest(request, salt), self.link)


def receipt_id(model: str, partition: int, offset: int) -> str:
    """Id of the receipt for the delete at this place of the documents topic."""
    return f"{model}/{partition}/{offset}"


def salt_bytes(salt: Salt) -> bytes:
    """Return a salt as it was sent: text in UTF-8."""
    return salt.encode(errors="replace") if isinstance(salt, str) else salt


def service_salt(key: bytes, receipt: str) -> bytes:
    """Salt of the receipt with this id, where the service must have one of its own. key: that of the month."""
    return hmac.digest(key, b"streamtopic salt\0" + receipt.encode(), "sha256")


def service_document_salt(secret: bytes, salt: bytes) -> bytes:
    """Salt of a document's digest, from the service's own salt of its receipt: Redis alone does not tell it."""
    return hmac.digest(secret, salt, "sha256")


def request_digest(request: str, salt: Salt) -> str:
    """How a receipt names a request id, for whoever knows the salt; "" for none."""
    if not request:
        return ""
    message = b"streamtopic request\0" + request.encode(errors="replace")
    return hmac.new(salt_bytes(salt), message, hashlib.sha256).hexdigest()


def plain_request_digest(request: str) -> str:
    """How receipts of format 2 name a request id; "" for none."""
    return hashlib.sha256(b"streamtopic request\0" + request.encode(errors="replace")).hexdigest() if request else ""


def document_digest(salt: bytes, model: str, document: bytes) -> str:
    """How a receipt names a document, for whoever knows the salt. In format 2 it was the service's secret."""
    message = b"streamtopic document\0" + model.encode() + b"\0" + document
    return hmac.new(salt, message, hashlib.sha256).hexdigest()


def seal_receipt(receipt: Receipt, key: SigningKey) -> bytes:
    """Signed bytes of a receipt: a function of its arguments."""
    fields: dict[str, Any] = dataclasses.asdict(receipt)
    fields |= {name: None for name in _UNBOUNDED if fields[name] == math.inf}
    return seal(KIND, {"receipt": pack(fields)}, key)


def open_receipt(data: bytes, key: Verifier) -> Receipt:
    """The receipt in signed bytes. Raises InvalidRelease unless `key` signed exactly these bytes, and nothing else."""
    sealed = open_sealed(KIND, data, key)
    fields = unpack(sealed.parts.get("receipt", b""))
    version = fields.get("format") if isinstance(fields, dict) else None
    if not isinstance(version, int) or version not in _DROPPED:
        read = " and ".join(map(str, _DROPPED))
        raise InvalidRelease(f"a receipt of format {str(version)[:20]}: this program reads {read}, update it")
    kept = {name: value for name, value in fields.items() if name not in _DROPPED[version]}
    kept |= {name: math.inf for name in _UNBOUNDED if name in kept and kept[name] is None}
    if not _REQUIRED <= kept.keys() <= _KINDS.keys():
        names = sorted((_REQUIRED - kept.keys()) | (kept.keys() - _KINDS.keys()))
        raise InvalidRelease(f"a signed receipt has missing or unknown fields ({', '.join(names)[:200]})")
    wrong = [name for name, value in kept.items() if not _is_sound(_KINDS[name], value)]
    if wrong:
        raise InvalidRelease(f"a signed receipt has malformed fields ({', '.join(wrong)}): update this program")
    receipt = Receipt(**kept)
    key.admit(sealed.key, KIND, receipt.sequence, sealed.digest)
    return receipt


def to_message(receipt: Receipt, data: bytes) -> Message:
    """Record of a sealed receipt."""
    return Message(receipt.id.encode(), data, partition=0)


_UNBOUNDED = ("certificate", "cumulative_epsilon")
_KINDS = {field.name: field.type for field in dataclasses.fields(Receipt)}
_REQUIRED = {field.name for field in dataclasses.fields(Receipt) if field.default is dataclasses.MISSING}


def _is_sound(kind: object, value: object) -> bool:
    """Whether a field holds what its type says: a whole number from 0 to 2^63 - 1, a number, text, or a truth value."""
    if kind is int:
        return type(value) is int and 0 <= value <= _LARGEST
    if kind is float:
        return type(value) in {int, float}
    return type(value) is kind
