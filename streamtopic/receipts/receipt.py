"""Deletion receipts: what was done about one deletion, signed, without saying whose document it was."""

import dataclasses
import hashlib
import hmac
import math
from dataclasses import dataclass
from typing import Any

from streamtopic.errors import InvalidRelease
from streamtopic.signing import PublicKey, SigningKey, pack, seal, unpack, unseal
from streamtopic.streams import Message

__all__ = ["Receipt", "document_digest", "open_receipt", "receipt_id", "request_digest", "seal_receipt", "to_message"]

FORMAT = 2
KIND = "receipt"


@dataclass(frozen=True, slots=True)
class Receipt:
    """One deletion.

    sequence: its number in the model's chain of receipts, from 1; previous: digest of the sealed bytes of the one
    before ("" for the first). model, partition, offset: of the delete's record, which name the receipt. request: digest
    of the request id ("" for none); document: keyed digest of the document id. received, applied: milliseconds since
    1970. found: whether there was such a document; length: its tokens L. version: the first without it; mode: the
    guarantee's kind; the rest are that version's, epsilon and cumulative_epsilon at its delta.
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
    length: int
    version: int
    mode: str
    certificate: float
    sigma: float
    epsilon: float
    delta: float
    cumulative_epsilon: float
    capacity_used: int
    capacity_left: int
    format: int = FORMAT

    @property
    def id(self) -> str:
        """Name of the receipt, and its key in the receipts topic."""
        return receipt_id(self.model, self.partition, self.offset)


def receipt_id(model: str, partition: int, offset: int) -> str:
    """Id of the receipt for the delete at this place of the documents topic."""
    return f"{model}/{partition}/{offset}"


def request_digest(request: str) -> str:
    """How a receipt names a request id; "" for none."""
    return hashlib.sha256(b"streamtopic request\0" + request.encode()).hexdigest() if request else ""


def document_digest(secret: bytes, model: str, document: bytes) -> str:
    """How a receipt names a document: only the holder of `secret` can tell which one it is."""
    message = b"streamtopic document\0" + model.encode() + b"\0" + document
    return hmac.new(secret, message, hashlib.sha256).hexdigest()


def seal_receipt(receipt: Receipt, key: SigningKey) -> bytes:
    """Signed bytes of a receipt: a function of its arguments."""
    fields: dict[str, Any] = dataclasses.asdict(receipt)
    fields |= {name: None for name in ("certificate", "cumulative_epsilon") if fields[name] == math.inf}
    return seal(KIND, {"receipt": pack(fields)}, key)


def open_receipt(data: bytes, key: PublicKey) -> Receipt:
    """The receipt in signed bytes. Raises InvalidRelease unless `key` signed exactly these bytes."""
    parts = unseal(KIND, data, key)
    try:
        fields = unpack(parts["receipt"])
        if fields["format"] != FORMAT:
            raise InvalidRelease(f"a receipt of format {fields['format']}: this program reads {FORMAT}, update it")
        fields |= {name: math.inf for name in ("certificate", "cumulative_epsilon") if fields[name] is None}
        return Receipt(**fields)
    except (KeyError, TypeError) as error:
        raise InvalidRelease(f"a signed receipt has malformed fields ({error}): update this program") from error


def to_message(receipt: Receipt, data: bytes) -> Message:
    """Record of a sealed receipt."""
    return Message(receipt.id.encode(), data, partition=0)
