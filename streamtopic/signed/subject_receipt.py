"""The covering receipt of a request to forget a subject: it ties the receipts of all its documents together.

It stands in the receipts topic beside the chain, since a reader of before would take a link of an unknown kind for a
lost one. Nothing rests on it alone: each document has its own receipt in the chain, and this one names them by their
numbers and by one digest of them all.
"""

import dataclasses
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamtopic.errors import InvalidRelease
from streamtopic.signed.deletion_receipt import Salt, request_digest, service_salt
from streamtopic.signed.sealed import fitting, open_sealed, pack, seal, unpack_fields
from streamtopic.signed.signing_keys import SigningKey, Verifier
from streamtopic.streams import Message

__all__ = [
    "SUBJECT_RECEIPT",
    "SubjectReceipt",
    "covered_digest",
    "open_subject_receipt",
    "runs",
    "seal_subject_receipt",
    "subject_receipt_id",
    "subject_receipt_message",
]

SUBJECT_RECEIPT = "subject receipt"
"""The kind of the container."""

FORMAT = 1


@dataclass(frozen=True, slots=True)
class SubjectReceipt:
    """All documents of one subject, deleted by one request.

    id: name of the receipt, and its key in the receipts topic.
    model: name of the model.
    request: salted digest of the request id.
    link: digest of the request id for the service itself, under its key of the month.
    month: which key that is, such as "2026-11".
    received: when the request came, milliseconds since 1970.
    documents: number of documents, each of which has a receipt.
    version: the first version without any of them; 0 where there was no document.
    receipts: first and last number in the chain of each run of their receipts, ascending: (first, last, first, ...).
    digest: SHA-256 of the digests of these receipts one behind the other, hexadecimal (`covered_digest`).
    """

    id: str
    model: str
    request: str
    link: str
    month: str
    received: int
    documents: int
    version: int
    receipts: tuple[int, ...]
    digest: str
    format: int = FORMAT

    def is_of(self, request: str, salt: Salt) -> bool:
        """Whether this is the receipt of a request that was sent with this salt."""
        return bool(request) and hmac.compare_digest(request_digest(request, salt), self.request)

    def is_linked(self, request: str, keys: Mapping[str, bytes]) -> bool:
        """Whether this is the receipt of a request, for the holder of the service's keys.

        keys: month to key. False once the key of the month is destroyed.
        """
        if self.month not in keys or not request:
            return False
        salt = service_salt(keys[self.month], self.id)
        return hmac.compare_digest(request_digest(request, salt), self.link)

    def sequences(self) -> Iterable[int]:
        """Yield the numbers of the covered receipts in the chain, ascending."""
        edges = zip(self.receipts[::2], self.receipts[1::2], strict=True)
        for first, last in edges:
            yield from range(first, last + 1)

    def problem(self, digests: Mapping[int, str]) -> str | None:
        """Return why the receipts in the chain are not those that this one covers, None where they are.

        digests: number of a receipt in the chain to the digest of its sealed bytes; it may hold further ones.
        """
        missing = sum(number not in digests for number in self.sequences())
        if missing:
            return f"{missing} of the {self.documents} receipts that {self.id} covers are missing"
        if covered_digest(digests[number] for number in self.sequences()) != self.digest:
            return f"the receipts in the chain are not those that {self.id} covers"
        return None


def runs(numbers: Iterable[int]) -> tuple[int, ...]:
    """Return ascending numbers as the first and the last of each run of neighbours: (first, last, first, ...)."""
    found = list[int]()
    for number in numbers:
        if found and number == found[-1] + 1:
            found[-1] = number
        else:
            found += [number, number]
    return tuple(found)


def covered_digest(digests: Iterable[str]) -> str:
    """Return the digest of receipts, hexadecimal. digests: of their sealed bytes, in the order of the chain."""
    total = hashlib.sha256(b"streamtopic covered receipts\0")
    for digest in digests:
        total.update(bytes.fromhex(digest))
    return total.hexdigest()


def subject_receipt_id(model: str, name: bytes) -> str:
    """Return the id of the receipt of a request. name: of the request in the service's state."""
    # Senders choose the key that is a part of it, and it may hold what it should not.
    named = hashlib.sha256(b"streamtopic subject request\0" + name).hexdigest()
    return f"{model}/subject/{named[:32]}"


def seal_subject_receipt(receipt: SubjectReceipt, key: SigningKey) -> bytes:
    """Return the signed bytes of a receipt: equal receipts have equal bytes."""
    fields = dataclasses.asdict(receipt) | {"receipts": list(receipt.receipts)}
    return seal(SUBJECT_RECEIPT, {"receipt": pack(fields)}, key)


def open_subject_receipt(data: bytes, key: Verifier) -> SubjectReceipt:
    """Return the receipt in signed bytes. Raises InvalidRelease unless `key` signed exactly these bytes."""
    sealed = open_sealed(SUBJECT_RECEIPT, data, key)
    fields = unpack_fields(sealed.parts.get("receipt", b""))
    if fields.get("format") != FORMAT:
        raise InvalidRelease(f"a {SUBJECT_RECEIPT} of another format than {FORMAT}: update this program")
    receipts = fields.get("receipts")
    if isinstance(receipts, list):
        fields = fields | {"receipts": tuple(receipts)}
    receipt = fitting(SubjectReceipt, fields)
    _check_runs(receipt)
    # A key list that revokes a key names the chain's receipts only, so none of these counts any more.
    key.admit(sealed.key, SUBJECT_RECEIPT, 0, sealed.digest)
    return receipt


def subject_receipt_message(receipt: SubjectReceipt, data: bytes) -> Message:
    """Return the record of a sealed receipt, for the receipts topic."""
    return Message(receipt.id.encode(), data, partition=0)


def _check_runs(receipt: SubjectReceipt) -> None:
    """Raise InvalidRelease unless the runs ascend and hold as many receipts as there are documents."""
    firsts = receipt.receipts[::2]
    lasts = receipt.receipts[1::2]
    # Each run ends before the next one begins, and the first begins at 1 or later.
    before = (0, *lasts)
    ascending = all(end < first for end, first in zip(before, firsts, strict=False))
    sound = ascending and len(firsts) == len(lasts) and all(map(int.__le__, firsts, lasts))
    if not sound:
        raise InvalidRelease("a signed subject receipt has malformed fields (receipts): update this program")
    if sum(lasts) - sum(firsts) + len(firsts) != receipt.documents:
        raise InvalidRelease("a signed subject receipt covers another number of documents than it names")
