"""A release to signed bytes and back."""

import dataclasses
import math
from typing import Any

import numpy as np

from streamtopic.errors import InvalidRelease
from streamtopic.release.fields import FORMAT, Envelope, Payload
from streamtopic.release.release import Release
from streamtopic.signing import PublicKey, SigningKey, pack, seal, unpack, unseal

__all__ = ["open_release", "pack_envelope", "seal_release", "unpack_envelope"]

KIND = "release"
ARRAYS = {"A": "<f4", "R": "<f4", "shares": "<f8", "B": "<f4"}
# These are infinite where a certificate cannot be had or a budget is used up; canonical bytes hold no infinities.
UNBOUNDED = ("margin", "certificate", "cumulative_epsilon")


def seal_release(payload: Payload, envelope: Envelope, key: SigningKey) -> bytes:
    """Signed bytes of a release: a function of its arguments. Raises InvalidRelease for one that contradicts itself."""
    _check(payload, envelope)
    return seal(KIND, {"envelope": pack_envelope(envelope), "payload": _pack_payload(payload)}, key)


def open_release(data: bytes, key: PublicKey) -> Release:
    """The release in signed bytes. Raises InvalidRelease unless `key` signed exactly these bytes, and they fit."""
    parts = unseal(KIND, data, key)
    if set(parts) != {"envelope", "payload"}:
        raise InvalidRelease("a release has a payload and an envelope; this has other parts")
    try:
        envelope, payload = unpack_envelope(parts["envelope"]), _payload(unpack(parts["payload"]))
        _check(payload, envelope)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidRelease(f"a signed release has malformed fields ({error}): update this program") from error
    return Release(payload, envelope)


def _pack_payload(payload: Payload) -> bytes:
    fields = {field.name: getattr(payload, field.name) for field in dataclasses.fields(payload)}
    for name, dtype in ARRAYS.items():
        fields[name] = None if fields[name] is None else np.asarray(fields[name], dtype)
    return pack({name: value for name, value in fields.items() if value is not None})


def pack_envelope(envelope: Envelope) -> bytes:
    """Canonical bytes of an envelope, unsigned."""
    fields: dict[str, Any] = dataclasses.asdict(envelope)
    fields["cut"] = {str(partition): offset for partition, offset in envelope.cut.items()}
    fields |= {name: None for name in UNBOUNDED if fields[name] == math.inf}
    return pack(fields)


def _payload(fields: dict[str, Any]) -> Payload:
    for name in ("words", "classes"):
        fields[name] = tuple(fields[name])
    fields["top_words"] = tuple(tuple(words) for words in fields["top_words"])
    return Payload(**fields)


def unpack_envelope(data: bytes) -> Envelope:
    """Undo `pack_envelope`. Raises InvalidRelease for another format, KeyError or TypeError for missing fields."""
    fields: dict[str, Any] = unpack(data)
    if fields["format"] != FORMAT:
        raise InvalidRelease(f"a release of format {fields['format']}: this program reads {FORMAT}, update it")
    fields["cut"] = {int(partition): offset for partition, offset in fields["cut"].items()}
    fields |= {name: math.inf for name in UNBOUNDED if fields[name] is None}
    for name in ("anchors", "withdrawn"):
        fields[name] = tuple(fields[name])
    return Envelope(**fields)


def _check(payload: Payload, envelope: Envelope) -> None:
    n, r = envelope.n, envelope.r
    shapes = {"A": (n, r), "R": (r, r), "shares": (r,), "B": (n, len(payload.classes))}
    wanted = {"B"} if payload.B is not None else {"A", "R", "shares"}
    wrong = [name for name, shape in shapes.items() if np.shape(getattr(payload, name)) != shape and name in wanted]
    extra = [name for name in shapes if name not in wanted and getattr(payload, name) is not None]
    if wrong or extra:
        raise InvalidRelease(
            f"release {envelope.version}: {', '.join(wrong + extra)} does not fit {n} words and {r} topics"
        )
    if len(payload.words) != n or any(a >= b for a, b in zip(payload.words, payload.words[1:], strict=False)):
        raise InvalidRelease(f"release {envelope.version}: its words are not {n} sorted, distinct words")
    if envelope.version < 1 or not all(0 < version < envelope.version for version in envelope.withdrawn):
        raise InvalidRelease(f"release {envelope.version}: withdraws versions that are not before it")
