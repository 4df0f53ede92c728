"""A release to signed bytes and back."""

import dataclasses
import hashlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from streamtopic.errors import InvalidRelease
from streamtopic.signed.canonical import fitting, pack, unpack
from streamtopic.signed.release import Release
from streamtopic.signed.release_fields import FORMAT, Envelope, Head, Payload, check_release
from streamtopic.signed.sealed import open_sealed, seal, statement_digest
from streamtopic.signed.signing_keys import SigningKey, Verifier

__all__ = ["open_release", "open_sealed_release", "pack_envelope", "release_digest", "seal_release", "unpack_envelope"]

KIND = "release"
ARRAYS = {"A": "<f4", "R": "<f4", "shares": "<f8", "w": "<f8", "B": "<f4"}
# These are infinite where a certificate cannot be had or a budget is used up; canonical bytes hold no infinities.
UNBOUNDED = ("margin", "certificate", "cumulative_epsilon")


def seal_release(payload: Payload, envelope: Envelope, key: SigningKey) -> bytes:
    """Signed bytes of a release: a function of its arguments. Raises InvalidRelease for one that contradicts itself."""
    check_release(payload, envelope)
    return seal(KIND, {"envelope": pack_envelope(envelope), "payload": _pack_payload(payload)}, key)


def open_release(data: bytes, key: Verifier) -> Release:
    """The release in signed bytes. Raises InvalidRelease unless `key` signed exactly these bytes, and they fit."""
    return open_sealed_release(data, key)[0]


def open_sealed_release(data: bytes, key: Verifier) -> tuple[Release, str]:
    """The release in signed bytes, and the id of the key that signed it. Raises as `open_release`."""
    sealed = open_sealed(KIND, data, key)
    parts = sealed.parts
    if set(parts) != {"envelope", "payload"}:
        raise InvalidRelease("a release has a payload and an envelope; this has other parts")
    try:
        envelope, payload = unpack_envelope(parts["envelope"]), _payload(unpack(parts["payload"]))
        check_release(payload, envelope)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidRelease(f"a signed release has malformed fields ({error}): update this program") from error
    key.admit(sealed.key, KIND, envelope.version, sealed.digest)
    return Release(payload, envelope, digest=_digest(parts)), sealed.key


def release_digest(data: bytes) -> str:
    """Return the digest that names the release in signed bytes, in hexadecimal.

    It is the SHA-256 of what is signed, so whoever has the envelope and the payload's digest alone can compute it.
    """
    return _digest(unpack(data)["parts"])


def _digest(parts: Mapping[str, bytes]) -> str:
    return statement_digest(KIND, {name: hashlib.sha256(part).digest() for name, part in parts.items()})


def _pack_payload(payload: Payload) -> bytes:
    return pack(_fields(payload) | {"heads": {task: _fields(head) for task, head in payload.heads.items()}})


def _fields(part: Payload | Head) -> dict[str, Any]:
    """Return what there is of a part, arrays in the type that they travel in."""
    fields = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    present = {name: value for name, value in fields.items() if value is not None}
    return {name: np.asarray(value, ARRAYS[name]) if name in ARRAYS else value for name, value in present.items()}


def pack_envelope(envelope: Envelope) -> bytes:
    """Canonical bytes of an envelope, unsigned."""
    fields: dict[str, Any] = dataclasses.asdict(envelope)
    fields["cut"] = {str(partition): offset for partition, offset in envelope.cut.items()}
    fields |= {name: None for name in UNBOUNDED if fields[name] == math.inf}
    return pack(fields)


def _payload(fields: dict[str, Any]) -> Payload:
    # Before there were heads, releases held an empty list of classes.
    if fields.get("classes") == []:
        del fields["classes"]
    fields["words"] = tuple(fields["words"])
    fields["top_words"] = tuple(tuple(words) for words in fields["top_words"])
    fields["heads"] = {task: _head(head) for task, head in fields.get("heads", {}).items()}
    return fitting(Payload, fields)


def _head(fields: dict[str, Any]) -> Head:
    return fitting(Head, fields | {name: tuple(fields[name]) for name in ("topics", "classes")})


def unpack_envelope(data: bytes) -> Envelope:
    """Undo `pack_envelope`. Raises InvalidRelease for another format, KeyError or TypeError for missing fields."""
    fields: dict[str, Any] = unpack(data)
    if fields["format"] != FORMAT:
        raise InvalidRelease(f"a release of format {fields['format']}: this program reads {FORMAT}, update it")
    fields["cut"] = {int(partition): offset for partition, offset in fields["cut"].items()}
    fields |= {name: math.inf for name in UNBOUNDED if fields[name] is None}
    for name in ("anchors", "withdrawn"):
        fields[name] = tuple(fields[name])
    return fitting(Envelope, fields)
