"""The entries of a ledger: each is one line of canonical JSON.

    version    Envelope        a version was made, with the digest of its bytes and what it guarantees
    receipt    Receipt         one deletion
    request    RequestReceipt  all that one request deleted
    erased     Erased          nothing is left of many deletions
    alive      Alive           the time, the newest version and all withdrawn ones
    keys       Keys            the keys that sign from now on
    end        End             the model was deleted

An entry stays for ever, so none holds a word, and none names a document: whoever reads the ledger must not be able to
try ids until a digest fits. So the digests of request id and document id are salted. The requester draws the salt and
can check the receipt with it. Without one the service salts with a key of the month, which is destroyed on schedule.
From then on nobody can tell which document the receipt is about.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Union

from pydantic import Discriminator, Field, Tag

from streamtopic.errors import InvalidRelease
from streamtopic.signed.canonical import (
    Place,
    Runs,
    RunsText,
    Unbounded,
    Whole,
    parse,
    plain,
    written,
)
from streamtopic.words.text import TOKENISER

__all__ = [
    "Alive",
    "End",
    "Entry",
    "Envelope",
    "Erased",
    "Keys",
    "Kind",
    "Receipt",
    "RequestReceipt",
    "Salt",
    "document_digest",
    "line_of",
    "link_digest",
    "names_of",
    "parse_line",
    "receipt_id",
    "request_digest",
    "request_receipt_id",
    "salt_bytes",
    "service_document_salt",
    "service_salt",
]

Kind = Literal["retrain", "unlearn"]
Salt = str | bytes

_DIGEST = re.compile(r"([0-9a-f]{64})?")
# Milliseconds from 1970 to the year 10000, from which on no calendar of Python can show a time.
_END = 253_402_300_800_000


@dataclass(frozen=True, slots=True)
class Envelope:
    """Facts about a version.

    version: its number, from 1.
    kind: how it was made; `made_by` in JSON, since `kind` names the kind of an entry there.
    parent: number of the version before; 0 for the first.
    base: number of the retrain that it descends from.
    release: SHA-256 of its bytes, hexadecimal.
    cut: partition to the offset up to which its records are in the model.
    m, n, r: documents, words, topics. In private mode m has noise, and `forgotten`, `capacity` and `counted` are 0.
    sigma: standard deviation of the noise of A; if A is withheld, the largest one of the heads.
    tolerance: error of A that was allowed.
    certificate: error of A that is claimed. In certified mode it is the tolerance. Under the theorem tolerance is
        Delta, and this is infinite, since nothing is certified.
    forgotten: deletions since the base.
    capacity: deletions that the base bears, by `capacity_rule`.
    cumulative_epsilon: epsilon spent since the base, at `delta`; in private mode by all periods so far.
    withdrawn: versions that this one replaces, because they hold forgotten documents.
    created: milliseconds since 1970.
    scale, slack: terms by which its epsilon composes with that of other versions (`privacy/accounting.py`).
    counted: documents accepted until the cut; a service continues from it.
    ratio: norm of the noise over norm of the model.
    covered: whether every condition of the paper's proof held; None if the guarantee does not rest on conditions.
    commitment: to the counts that it was made from, which only a holder of the noise key can test.
    tokeniser: name of what made words of texts: TOKENISER, or the producers' own.
    excluded: SHA-256 of the words that the settings exclude, ascending and a line each; "" if no word is excluded.
    """

    model: str
    version: Whole
    kind: Annotated[Kind, Field(alias="made_by")]
    parent: Whole
    base: Whole
    cut: Mapping[Place, Whole]
    m: Whole
    n: Whole
    r: Whole
    guarantee: Literal["certified", "theorem", "private"]
    epsilon: float
    delta: float
    sigma: float
    tolerance: float
    certificate: Unbounded
    forgotten: Whole
    capacity: Whole
    capacity_rule: str
    cumulative_epsilon: Unbounded
    withdrawn: tuple[Whole, ...]
    created: Whole
    release: str = ""
    scale: float = 0.0
    slack: float = 0.0
    counted: Whole = 0
    ratio: float = 0.0
    covered: bool | None = None
    commitment: str = ""
    tokeniser: str = TOKENISER
    excluded: str = ""

    def __post_init__(self) -> None:
        """Raise InvalidRelease for facts that contradict themselves."""
        if not all(_DIGEST.fullmatch(digest) for digest in (self.release, self.commitment, self.excluded)):
            raise InvalidRelease(f"version {self.version}: its release, commitment or excluded words are no digest")
        if self.version < 1 or not all(0 < version < self.version for version in self.withdrawn):
            raise InvalidRelease(f"version {self.version}: it withdraws versions that are not before it")
        if not 0 <= self.created < _END:
            raise InvalidRelease(f"version {self.version}: it was not created in the years 1970 to 9999")


@dataclass(frozen=True, slots=True)
class Receipt:
    """One deletion.

    model, partition, offset: place of the delete's record, which names the receipt.
    request: digest of the request id under the requester's salt; "" without a request id or without a salt.
    document: salted digest of the document id.
    link: digest of the request id for the service itself, under its key of the month; "" without a request id.
    month: which key that is, such as "2026-11".
    received, applied: milliseconds since 1970.
    found: whether there was such a document.
    version: first version without the document; its entry in the same ledger says what it guarantees.
    """

    model: str
    partition: Whole
    offset: Whole
    request: str
    document: str
    link: str
    month: str
    received: Whole
    applied: Whole
    found: bool
    version: Whole

    @property
    def id(self) -> str:
        """Name of the receipt."""
        return receipt_id(self.model, self.partition, self.offset)

    def is_about(self, document: str | bytes, salt: Salt) -> bool:
        """Whether this is the receipt of a document. False for any other salt than the one it was made with."""
        name = document.encode(errors="replace") if isinstance(document, str) else document
        digest = document_digest(salt_bytes(salt), self.model, name)
        # A comparison that stops at the first difference would tell by its time how much of a guess is right.
        return hmac.compare_digest(digest.encode(), self.document.encode(errors="replace"))


@dataclass(frozen=True, slots=True)
class RequestReceipt:
    """All documents that one request deleted. Each of them has a receipt of its own as well.

    id: name of the receipt.
    model: name of the model.
    request, link, month: as of Receipt.
    received: when the request came, milliseconds since 1970.
    documents: number of documents.
    version: the first version without any of them; 0 if there was no document.
    """

    id: str
    model: str
    request: str
    link: str
    month: str
    received: Whole
    documents: Whole
    version: Whole


@dataclass(frozen=True, slots=True)
class Erased:
    """Nothing is left of many deletions: those before `ends` in their partition whose receipts are before this entry.

    created: milliseconds since 1970.
    ends: partition to the offset before which its deletions are complete.
    reached: partition to stage to the time when all these deletions had reached it, milliseconds since 1970.
    attested: stages for which the operator vouches.
    """

    created: Whole
    ends: Mapping[Place, Whole]
    reached: Mapping[Place, Mapping[str, Whole]]
    attested: tuple[str, ...] = ()

    def covers(self, receipt: Receipt) -> bool:
        """Whether the deletion of a receipt that is before this entry is complete."""
        return receipt.offset < self.ends.get(receipt.partition, 0)


@dataclass(frozen=True, slots=True)
class Alive:
    """What a reader of the ledger's tail has to know.

    made: milliseconds since 1970.
    interval: milliseconds within which the service promises the next one; 0 if it promises no other.
    newest: number of the newest version; 0 before the first.
    withdrawn: versions that must not be used: after years these are nearly all that ever were.
    """

    made: Whole
    interval: Whole
    newest: Whole
    withdrawn: RunsText = field(default_factory=Runs)

    def __post_init__(self) -> None:
        """Raise InvalidRelease for versions that are not there."""
        edges = self.withdrawn.edges
        if edges and not 1 <= edges[0] <= edges[-1] <= self.newest:
            raise InvalidRelease("an entry of the ledger withdraws versions that are not there")


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys that sign from now on. note: a list that the root key has signed (`seal_keys`)."""

    note: str


@dataclass(frozen=True, slots=True)
class End:
    """The model was deleted.

    made: milliseconds since 1970, before anything was removed.
    documents: number of live documents.
    version: number of the newest version; 0 if there was none.
    waiting: number of deletions that were counted, or asked for by a request that waited, and had no receipt yet: they
        get none.
    ledger_kept: whether the ledger stays.
    """

    made: Whole
    documents: Whole
    version: Whole
    waiting: Whole
    ledger_kept: bool


Entry = Envelope | Receipt | RequestReceipt | Erased | Alive | Keys | End

_NAMES: dict[type[Entry], str] = {
    Envelope: "version",
    Receipt: "receipt",
    RequestReceipt: "request",
    Erased: "erased",
    Alive: "alive",
    Keys: "keys",
    End: "end",
}


def _name_in(fields: Any) -> str:  # noqa: ANN401 -- whatever JSON has
    return str(fields["kind"])


_TAGGED = tuple(Annotated[kind, Tag(name)] for kind, name in _NAMES.items())
_ENTRY: Any = Annotated[Union[_TAGGED], Discriminator(_name_in)]  # noqa: UP007 -- of a tuple


def line_of(entry: Entry) -> str:
    """Return the line of an entry: equal entries have equal lines."""
    return written(plain(entry) | {"kind": _NAMES[type(entry)]})


def parse_line(line: str) -> Entry:
    """Return the entry in a line. Raises InvalidRelease for a line that `line_of` never makes."""
    # One spelling for each value, so that an entry has one line and one hash.
    entry: Entry = parse(_ENTRY, line, "entry of the ledger", line_of)
    return entry


def names_of(entry: Entry) -> tuple[str, ...]:
    """Return the names by which an entry is found.

    A receipt has its id and the digests of its request, a version `version/NUMBER`, and `erased` has `erased/PARTITION`
    for each partition.
    """
    if isinstance(entry, Receipt | RequestReceipt):
        return tuple(filter(None, (entry.id, entry.link, entry.request)))
    if isinstance(entry, Erased):
        return tuple(f"erased/{partition}" for partition in entry.ends)
    if isinstance(entry, Envelope):
        return (f"version/{entry.version}",)
    return ()


def receipt_id(model: str, partition: int, offset: int) -> str:
    """Return the id of the receipt for the delete at this place of the documents topic."""
    return f"{model}/{partition}/{offset}"


def request_receipt_id(model: str, request: str) -> str:
    """Return the id of the receipt of a request. request: as of `request_digest`."""
    return f"{model}/request/{request[:32]}"


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
    """Return the salt of a document's digest, if the requester sent none.

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


def link_digest(key: bytes, request: str) -> str:
    """Return the digest by which the service finds the receipts of a request id; "" if there is no request id.

    key: that of the month.
    """
    return request_digest(request, hmac.digest(key, b"streamtopic link\0", "sha256"))


def document_digest(salt: bytes, model: str, document: bytes) -> str:
    """Return the digest by which a receipt names a document, hexadecimal."""
    message = b"streamtopic document\0" + model.encode() + b"\0" + document
    return hmac.new(salt, message, hashlib.sha256).hexdigest()
