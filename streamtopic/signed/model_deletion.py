"""The last statement of a model: what was deleted, when, and where its chain of receipts ended."""

import base64
import binascii
import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from streamtopic.errors import InvalidRelease
from streamtopic.formats import DELETION_STATEMENT, refusal
from streamtopic.signed.sealed import open_sealed, pack, reading_fields, seal, unpack_fields
from streamtopic.signed.signing_keys import SigningKey, Verifier
from streamtopic.streams import Message

__all__ = [
    "ModelDeletion",
    "deletion_line",
    "deletion_message",
    "open_deletion",
    "open_deletion_line",
    "seal_deletion",
]

KIND = "deletion"


@dataclass(frozen=True, slots=True)
class ModelDeletion:
    """One deleted model.

    model: its name.
    made: milliseconds since 1970, before anything was removed.
    documents: number of live documents.
    version: number of the newest version; 0 where there was none.
    digest: SHA-256 of the sealed bytes of that version, hexadecimal; "" where there was none.
    receipts: number of the last link of the chain of receipts; 0 where there was none.
    head: digest of that link, which proves the whole chain; "" where there was none.
    waiting: number of deletions that were counted, or asked for by a request that waited, and had no receipt yet: they
        get none.
    receipts_kept: whether the receipts topic stays.
    """

    model: str
    made: int
    documents: int
    version: int
    digest: str
    receipts: int
    head: str
    waiting: int
    receipts_kept: bool
    format: int = DELETION_STATEMENT.written


_TYPES = {field.name: field.type for field in dataclasses.fields(ModelDeletion)}


def seal_deletion(deletion: ModelDeletion, key: SigningKey) -> bytes:
    """Return the signed bytes of the statement."""
    return seal(KIND, {KIND: pack(dataclasses.asdict(deletion))}, key)


def open_deletion(data: bytes, key: Verifier) -> ModelDeletion:
    """Return the statement in signed bytes. Raises InvalidRelease unless `key` signed exactly these bytes."""
    sealed = open_sealed(KIND, data, key)
    with reading_fields("statement of a deleted model"):
        fields = unpack_fields(sealed.parts[KIND])
        if fields["format"] not in DELETION_STATEMENT.read:
            raise InvalidRelease(refusal(DELETION_STATEMENT, fields["format"]))
        wrong = [name for name, kind in _TYPES.items() if type(fields[name]) is not kind]
        if wrong or set(fields) != set(_TYPES):
            raise ValueError(", ".join(wrong) or "fields that this program does not know")
        found = ModelDeletion(**fields)
    # A revoked key counts for no such statement: a thief could say that a model is gone.
    key.admit(sealed.key, KIND, found.made, sealed.digest)
    return found


def deletion_message(deletion: ModelDeletion, data: bytes) -> Message:
    """Return the record of a sealed statement, for the receipts topic: readers of receipts pass over it."""
    return Message(f"{deletion.model}/deleted".encode(), data, partition=0)


def deletion_line(deletion: ModelDeletion, data: bytes) -> str:
    """Return the statement as a line of JSON for a file; only `signed` is ever checked."""
    signed = base64.b64encode(data).decode()
    fields: dict[str, Any] = dataclasses.asdict(deletion)
    return json.dumps(fields | {"signed": signed})


def open_deletion_line(line: str, key: Verifier) -> ModelDeletion:
    """Return the statement in a line of a file. Raises InvalidRelease unless `key` signed it."""
    try:
        data = base64.b64decode(json.loads(line)["signed"], validate=True)
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error):
        raise InvalidRelease("this is not a statement that `streamtopic delete-model` wrote: give its file") from None
    return open_deletion(data, key)
