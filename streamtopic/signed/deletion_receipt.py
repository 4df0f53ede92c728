"""What is signed about deletions: a receipt for each one, and what ties many of them together.

    Receipt          one deletion
    Completion       nothing is left of many deletions
    SubjectReceipt   all documents of one subject, deleted by one request: it covers the receipts of all of them

Receipts and completions are the links of one chain (`receipt_chain`). A receipt never names the document: whoever reads
the topic must not be able to try ids until a digest fits. So the digests of request id and document id are salted. The
requester draws the salt and can check the receipt with it. Without one the service salts with a key of the month, which
is destroyed on schedule. From then on nobody can tell which document the receipt is about.
"""

import dataclasses
import hashlib
import hmac
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamtopic import formats
from streamtopic.errors import InvalidRelease
from streamtopic.signed.sealed import Sealed, fitting, open_sealed, pack, seal, unpack_fields
from streamtopic.signed.signing_keys import SigningKey, Verifier
from streamtopic.streams import Message

__all__ = [
    "COMPLETIONS",
    "SUBJECT_RECEIPT",
    "Completion",
    "Link",
    "Receipt",
    "Salt",
    "SubjectReceipt",
    "covered_digest",
    "document_digest",
    "open_any",
    "open_completion",
    "open_receipt",
    "open_subject_receipt",
    "plain_request_digest",
    "receipt_id",
    "request_digest",
    "runs",
    "salt_bytes",
    "seal_completion",
    "seal_receipt",
    "seal_subject_receipt",
    "service_document_salt",
    "service_salt",
    "subject_receipt_id",
    "to_message",
]

RECEIPT_FORMAT = formats.RECEIPT.written
COMPLETION_FORMAT = formats.COMPLETION.written
SUBJECT_RECEIPT_FORMAT = 1
RECEIPT = "receipt"
COMPLETION = "completion"
SUBJECT_RECEIPT = "subject receipt"
"""The kind of the container of a covering receipt."""

Salt = str | bytes

COMPLETIONS = -1
"""Stands for a partition where completions have their place in the chain of receipts."""

# Formats that are read, with the fields of each that a receipt does not have any more.
_DROPPED = {2: {"length"}, RECEIPT_FORMAT: set[str]()}
# These are infinite where a certificate cannot be had or a budget is used up; canonical bytes hold no infinities.
_UNBOUNDED = ("certificate", "cumulative_epsilon")
_LARGEST = (1 << 63) - 1
# One spelling for each number: int() would also take "01" or "+1", and two names would be one partition.
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")


@dataclass(frozen=True, slots=True)
class Receipt:
    """One deletion.

    sequence: number in the model's chain of receipts, from 1.
    previous: digest of the sealed bytes of the link before; "" for the first.
    model, partition, offset: place of the delete's record, which names the receipt.
    request: salted digest of the request id; "" if there was no request id.
    document: salted digest of the document id.
    received, applied: milliseconds since 1970.
    found: whether there was such a document.
    version: first version without the document.
    mode, certificate, sigma, epsilon, delta, cumulative_epsilon: the guarantee of that version; epsilons at its delta.
    capacity_used, capacity_left: deletions since the base of that version, and how many more the base bears.
    release: digest that names that version (`Release.digest`); "" for a version of an older program.
    commitment: that version's commitment to its counts; "" for a version of an older program.
    link: digest of the request id for the service itself, under its key of the month.
    month: which key that is, such as "2026-11".
    format: 2 for a receipt of an older program: its request digest has no salt, and it has no link.
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
    format: int = RECEIPT_FORMAT

    @property
    def id(self) -> str:
        """Name of the receipt, and its key in the receipts topic."""
        return receipt_id(self.model, self.partition, self.offset)

    def is_about(self, document: str | bytes, salt: Salt) -> bool:
        """Whether this is the receipt of a document. False for any other salt than the one it was made with."""
        name = document.encode(errors="replace") if isinstance(document, str) else document
        digest = document_digest(salt_bytes(salt), self.model, name)
        # A comparison that stops at the first difference would tell by its time how much of a guess is right.
        return hmac.compare_digest(digest, self.document)

    def is_of(self, request: str, salt: Salt) -> bool:
        """Whether this is the receipt of a request that was sent with this salt."""
        return _is_of(self, request, salt)

    def is_linked(self, request: str, keys: Mapping[str, bytes]) -> bool:
        """Whether this is the receipt of a request, for the holder of the service's keys.

        keys: month to key. False once the key of the month is destroyed.
        """
        return _is_linked(self, request, keys)


@dataclass(frozen=True, slots=True)
class Completion:
    """The end of many deletions: nothing is left of their documents.

    It covers the deletions before `ends` in their partition whose receipts stand earlier in the chain.

    sequence, previous: as of a receipt, in the same chain.
    model: as of a receipt.
    number: of the completion, from 1.
    created: milliseconds since 1970.
    ends: partition to the offset before which its deletions are complete.
    reached: partition to stage to the time when all these deletions had reached it, milliseconds since 1970.
    attested: stages for which the operator vouches.
    """

    sequence: int
    previous: str
    model: str
    number: int
    created: int
    ends: Mapping[int, int]
    reached: Mapping[int, Mapping[str, int]]
    attested: tuple[str, ...] = ()
    format: int = field(default=COMPLETION_FORMAT)

    @property
    def id(self) -> str:
        """Name of the completion, and its key in the receipts topic."""
        return f"{self.model}/completed/{self.number}"

    @property
    def partition(self) -> int:
        """The place of completions in the chain, where a receipt has its partition."""
        return COMPLETIONS

    @property
    def offset(self) -> int:
        """The place among completions, where a receipt has its offset."""
        return self.number

    def covers(self, receipt: Receipt) -> bool:
        """Whether the deletion of a receipt of the same chain is complete."""
        return receipt.sequence < self.sequence and receipt.offset < self.ends.get(receipt.partition, 0)


Link = Receipt | Completion
"""One record of the chain."""


def receipt_id(model: str, partition: int, offset: int) -> str:
    """Return the id of the receipt for the delete at this place of the documents topic."""
    return f"{model}/{partition}/{offset}"


def salt_bytes(salt: Salt) -> bytes:
    """Return a salt as it was sent: text in UTF-8."""
    return salt.encode(errors="replace") if isinstance(salt, str) else salt


def service_salt(key: bytes, receipt: str) -> bytes:
    """Return the salt that the service draws for a receipt whose requester sent none.

    key: that of the month. receipt: id of the receipt.
    """
    # The prefix and the one of each digest keep values under the same key apart.
    return hmac.digest(key, b"streamtopic salt\0" + receipt.encode(), "sha256")


def service_document_salt(secret: bytes, salt: bytes) -> bytes:
    """Return the salt of a document's digest, where the requester sent none.

    secret: of the service, kept outside Redis. salt: of the receipt (`service_salt`).
    """
    # The key of the month lies in Redis, so that key alone must not be enough to try document ids.
    return hmac.digest(secret, salt, "sha256")


def request_digest(request: str, salt: Salt) -> str:
    """Return the digest by which a receipt names a request id, hexadecimal; "" if there is no request id."""
    if not request:
        return ""
    message = b"streamtopic request\0" + request.encode(errors="replace")
    return hmac.new(salt_bytes(salt), message, hashlib.sha256).hexdigest()


def plain_request_digest(request: str) -> str:
    """Return the digest by which receipts of format 2 name a request id, hexadecimal; "" if there is no request id."""
    if not request:
        return ""
    return hashlib.sha256(b"streamtopic request\0" + request.encode(errors="replace")).hexdigest()


def document_digest(salt: bytes, model: str, document: bytes) -> str:
    """Return the digest by which a receipt names a document, hexadecimal."""
    # In format 2 the salt is the service's secret, for all documents alike.
    message = b"streamtopic document\0" + model.encode() + b"\0" + document
    return hmac.new(salt, message, hashlib.sha256).hexdigest()


def seal_receipt(receipt: Receipt, key: SigningKey) -> bytes:
    """Return the signed bytes of a receipt: equal receipts have equal bytes."""
    fields: dict[str, Any] = dataclasses.asdict(receipt)
    fields |= {name: None for name in _UNBOUNDED if fields[name] == math.inf}
    return seal(RECEIPT, {RECEIPT: pack(fields)}, key)


def seal_completion(completion: Completion, key: SigningKey) -> bytes:
    """Return the signed bytes of a completion: equal completions have equal bytes."""
    fields: dict[str, Any] = dataclasses.asdict(completion)
    # Keys of canonical maps are text.
    ends = completion.ends.items()
    fields["ends"] = {str(partition): end for partition, end in ends}
    reached = completion.reached.items()
    fields["reached"] = {str(partition): dict(stages) for partition, stages in reached}
    fields["attested"] = list(completion.attested)
    return seal(COMPLETION, {COMPLETION: pack(fields)}, key)


def open_any(data: bytes, key: Verifier) -> "Link | SubjectReceipt":
    """Return the receipt of any kind, or the completion, in signed bytes.

    Raises InvalidRelease unless `key` signed exactly these bytes.
    """
    sealed = open_sealed(RECEIPT, data, key, COMPLETION, SUBJECT_RECEIPT)
    if sealed.kind == SUBJECT_RECEIPT:
        return _read_subject_receipt(sealed, key)
    return _read_receipt(sealed, key) if sealed.kind == RECEIPT else _read_completion(sealed, key)


def open_receipt(data: bytes, key: Verifier) -> Receipt:
    """Return the receipt in signed bytes. Raises InvalidRelease unless `key` signed exactly these bytes."""
    return _read_receipt(open_sealed(RECEIPT, data, key), key)


def open_completion(data: bytes, key: Verifier) -> Completion:
    """Return the completion in signed bytes. Raises InvalidRelease unless `key` signed exactly these bytes."""
    return _read_completion(open_sealed(COMPLETION, data, key), key)


def to_message(receipt: "Link | SubjectReceipt", data: bytes) -> Message:
    """Return the record of a sealed receipt of any kind, or of a completion, for the receipts topic."""
    return Message(receipt.id.encode(), data, partition=0)


def _read_receipt(sealed: Sealed, key: Verifier) -> Receipt:
    """Return the receipt in verified parts. Raises InvalidRelease where it is malformed or of a revoked key."""
    receipt = _receipt(unpack_fields(sealed.parts.get(RECEIPT, b"")))
    _admit(receipt, sealed, key)
    return receipt


def _read_completion(sealed: Sealed, key: Verifier) -> Completion:
    """Return the completion in verified parts. Raises as `_read_receipt`."""
    completion = _completion(unpack_fields(sealed.parts.get(COMPLETION, b"")))
    _admit(completion, sealed, key)
    return completion


def _admit(link: Link, sealed: Sealed, key: Verifier) -> None:
    # A revoked key still counts for the links of the chain up to a number, receipts and completions alike.
    key.admit(sealed.key, RECEIPT, link.sequence, sealed.digest)


_RECEIPT_TYPES = {field.name: field.type for field in dataclasses.fields(Receipt)}
_RECEIPT_REQUIRED = {field.name for field in dataclasses.fields(Receipt) if field.default is dataclasses.MISSING}
_COMPLETION_FIELDS = {field.name for field in dataclasses.fields(Completion)}


def _receipt(fields: object) -> Receipt:
    version = fields.get("format") if isinstance(fields, dict) else None
    if not isinstance(fields, dict) or not isinstance(version, int) or version not in _DROPPED:
        raise InvalidRelease(formats.refusal(formats.RECEIPT, version))
    dropped = _DROPPED[version]
    kept = {name: value for name, value in fields.items() if name not in dropped}
    unbounded = [name for name in _UNBOUNDED if name in kept and kept[name] is None]
    kept |= dict.fromkeys(unbounded, math.inf)
    missing = _RECEIPT_REQUIRED - kept.keys()
    unknown = kept.keys() - _RECEIPT_TYPES.keys()
    if missing or unknown:
        names = ", ".join(sorted(missing | unknown))
        raise InvalidRelease(f"a signed receipt has missing or unknown fields ({names[:200]}): update this program")
    wrong = [name for name, value in kept.items() if not _has_type(_RECEIPT_TYPES[name], value)]
    if wrong:
        raise InvalidRelease(f"a signed receipt has malformed fields ({', '.join(wrong)}): update this program")
    return Receipt(**kept)


def _has_type(kind: object, value: object) -> bool:
    # Exact types, since a bool is an int in Python.
    if kind is int:
        return _is_number(value)
    if kind is float:
        return type(value) in {int, float}
    return type(value) is kind


def _completion(fields: object) -> Completion:
    version = fields.get("format") if isinstance(fields, dict) else None
    if not isinstance(fields, dict) or version != COMPLETION_FORMAT:
        raise InvalidRelease(formats.refusal(formats.COMPLETION, version))
    numbers = [fields.get(name) for name in ("sequence", "number", "created")]
    texts = [fields.get("previous"), fields.get("model")]
    texts_sound = all(isinstance(text, str) for text in texts)
    sound = texts_sound and all(map(_is_number, numbers))
    if set(fields) != _COMPLETION_FIELDS or not sound:
        raise InvalidRelease("a signed completion has missing, unknown or malformed fields: update this program")
    attested = fields["attested"]
    if not isinstance(attested, list) or not all(isinstance(stage, str) for stage in attested):
        raise InvalidRelease("a signed completion has a malformed field (attested): update this program")
    ends = _by_partition(fields["ends"])
    reached = _by_partition(fields["reached"])
    ends_sound = all(map(_is_number, ends.values()))
    if not ends_sound or not all(map(_is_dated, reached.values())):
        raise InvalidRelease("a signed completion has a malformed field (ends or reached): update this program")
    return Completion(**fields | {"ends": ends, "reached": reached, "attested": tuple(attested)})


def _by_partition(found: object) -> dict[int, Any]:
    if not isinstance(found, dict) or not all(map(_PARTITION.fullmatch, found)):
        raise InvalidRelease("a signed completion has a malformed field (ends or reached): update this program")
    return {int(name): value for name, value in found.items()}


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST


def _is_dated(stages: object) -> bool:
    return isinstance(stages, dict) and all(map(_is_number, stages.values()))


@dataclass(frozen=True, slots=True)
class SubjectReceipt:
    """All documents of one subject, deleted by one request: the covering receipt of the request.

    It stands in the receipts topic beside the chain, since a reader of before would take a link of an unknown kind for
    a lost one. Nothing rests on it alone: each document has its own receipt in the chain, and this one names them by
    their numbers and by one digest of them all. A request for several subjects has one for each, which may name
    documents of the others.

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
    format: int = SUBJECT_RECEIPT_FORMAT

    def is_of(self, request: str, salt: Salt) -> bool:
        """Whether this is the receipt of a request that was sent with this salt."""
        return _is_of(self, request, salt)

    def is_linked(self, request: str, keys: Mapping[str, bytes]) -> bool:
        """Whether this is the receipt of a request, for the holder of the service's keys.

        keys: month to key. False once the key of the month is destroyed.
        """
        return _is_linked(self, request, keys)

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


def _is_of(receipt: Receipt | SubjectReceipt, request: str, salt: Salt) -> bool:
    # Two deletions without a request id have the same digest "", and are not each other's receipt.
    return bool(request) and hmac.compare_digest(request_digest(request, salt), receipt.request)


def _is_linked(receipt: Receipt | SubjectReceipt, request: str, keys: Mapping[str, bytes]) -> bool:
    if receipt.month not in keys or not request:
        return False
    # Under the key of the month, since the requester's own salt is not kept.
    salt = service_salt(keys[receipt.month], receipt.id)
    return hmac.compare_digest(request_digest(request, salt), receipt.link)


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
    return _read_subject_receipt(open_sealed(SUBJECT_RECEIPT, data, key), key)


def _read_subject_receipt(sealed: Sealed, key: Verifier) -> SubjectReceipt:
    """Return the covering receipt in verified parts. Raises as `_read_receipt`."""
    fields = unpack_fields(sealed.parts.get("receipt", b""))
    if fields.get("format") != SUBJECT_RECEIPT_FORMAT:
        raise InvalidRelease(
            f"a {SUBJECT_RECEIPT} of another format than {SUBJECT_RECEIPT_FORMAT}: update this program"
        )
    receipts = fields.get("receipts")
    if isinstance(receipts, list):
        fields = fields | {"receipts": tuple(receipts)}
    receipt = fitting(SubjectReceipt, fields)
    _check_runs(receipt)
    # A key list that revokes a key names the chain's receipts only, so none of these counts any more.
    key.admit(sealed.key, SUBJECT_RECEIPT, 0, sealed.digest)
    return receipt


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
