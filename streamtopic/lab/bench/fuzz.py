"""Damaged and invented input for every decoder, which must answer or refuse with an error of this package.

`DECODERS` is the list; a new decoder is one line in it. Signed content is damaged inside and signed again, with the key
that the reader trusts: a signature says who wrote something, not that it makes sense.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import msgpack
import numpy as np

from streamtopic.console import printable
from streamtopic.documents.events import decode_record
from streamtopic.documents.suppression import Suppression, SuppressionKey, digest_in
from streamtopic.errors import InvalidRelease, StreamtopicError
from streamtopic.signed import (
    Assembler,
    Completion,
    Envelope,
    Head,
    KeyList,
    ModelDeletion,
    Payload,
    Receipt,
    Revoked,
    SigningKey,
    Statement,
    audit,
    deletion_line,
    open_completion,
    open_deletion,
    open_deletion_line,
    open_keys,
    open_receipt,
    open_release,
    open_statement,
    pack,
    seal,
    seal_completion,
    seal_deletion,
    seal_keys,
    seal_receipt,
    seal_release,
    seal_statement,
    to_messages,
    unpack,
    unseal,
)
from streamtopic.streams import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["DECODERS", "Decoder", "Finding", "fuzz", "one_input", "sample_envelope", "try_every_place"]

_KEY = SigningKey.from_bytes(bytes(range(32)))
_OPERATOR = SuppressionKey(bytes(range(32)), "default")
_SUPPRESSION = Suppression(_OPERATOR.of_subject("somebody"), suppressed=True, made_ms=1_700_000_000_000)
_EXTREMES: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), 2**64 - 1, 0.0, -0.0, 5e-324, 1e308, 1.5,
    math.nan, math.inf, -math.inf, "", "a", "\x00", "\ud800", "\u202e", "\x1b[2J", "a" * 300, "NaN", "1e999",
    "9" * 5000,
    b"", b"\xff", [], [[]], [None], {}, {"": None}, {"data": b"", "dtype": "<f4", "shape": []},
    {"data": b"\0" * 8, "dtype": "<f8", "shape": [1, -1]}, {"data": b"\0" * 8, "dtype": "<i8", "shape": [2**40, 2**40]},
    {"data": b"\0" * 4, "dtype": "<f4", "shape": ["1"]}, {"data": b"\0" * 4, "dtype": [], "shape": 1},
    np.zeros(0), np.zeros(()), np.zeros(2, np.float32), np.zeros((2, 2), np.int64),
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Decoder:
    """A decoder of bytes that others write.

    form: how input is damaged: `msgpack` or `json`, as a tree of values and as bytes; `sealed`, the parts of a signed
    container, which is signed again. sample: sound input, in bytes. read: decodes it, and uses all of what it decoded.
    """

    name: str
    form: str
    sample: Callable[[], bytes]
    read: Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Finding:
    """An exception of another package: the decoder, the seed of its input, and where it was raised."""

    decoder: str
    seed: int
    error: str

    def __str__(self) -> str:
        return f"{self.decoder}, seed {self.seed}: {self.error}"


def fuzz(seconds: float, seed: int = 0) -> tuple[dict[str, int], list[Finding]]:
    """Try every decoder in turn until the time is over; return inputs tried and accepted by each, and the findings."""
    tried = {f"{decoder.name}: {what}": 0 for decoder in DECODERS for what in ("tried", "accepted")}
    findings: dict[tuple[str, str], Finding] = {}
    end = time.monotonic() + seconds
    number = seed
    while time.monotonic() < end or number < seed + len(DECODERS):
        decoder = DECODERS[number % len(DECODERS)]
        accepted, error = one_input(decoder, number)
        tried[f"{decoder.name}: tried"] += 1
        tried[f"{decoder.name}: accepted"] += accepted
        if error is not None:
            findings.setdefault((decoder.name, error), Finding(decoder.name, number, error))
        number += 1
    return tried, [*findings.values()]


def one_input(decoder: Decoder, seed: int) -> tuple[bool, str | None]:
    """Give a decoder the input of a seed; return whether it was accepted, and an exception of another package."""
    return _outcome(decoder, _damaged(decoder, Random(seed)))


def try_every_place(decoder: Decoder) -> tuple[int, list[Finding]]:
    """Put every extreme value, and nothing, in every place of a sample; return the number of inputs, and the findings.

    Chance needs many inputs until it meets one place with one value. The seed of a finding is the number of its input.
    """
    findings: dict[str, Finding] = {}
    number = 0
    for number, data in enumerate(_every_place(decoder), 1):
        error = _outcome(decoder, data)[1]
        if error is not None:
            findings.setdefault(error, Finding(decoder.name, number, error))
    return number, [*findings.values()]


def _every_place(decoder: Decoder) -> Iterator[bytes]:
    data = _sample(decoder)
    if decoder.form == "json":
        yield from map(_as_json, _replacements(json.loads(data)))
    elif decoder.form == "msgpack":
        yield from map(_as_msgpack, _replacements(msgpack.unpackb(data)))
    else:
        kind = msgpack.unpackb(data)["kind"]
        parts = unseal(kind, data, _KEY.public)
        for name, part in parts.items():
            for replacement in _replacements(unpack(part)):
                yield seal(kind, parts | {name: _packed(replacement)}, _KEY)


def _replacements(value: Any) -> Iterator[Any]:  # noqa: ANN401 - a tree of decoded values of any type
    yield from _EXTREMES
    places = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    for place in places:
        copy = value.copy()
        del copy[place]
        yield copy
        for replacement in _replacements(value[place]):
            copy = value.copy()
            copy[place] = replacement
            yield copy


def _packed(value: object) -> bytes:
    # Content without a canonical form is signed all the same: the reader must refuse it by itself.
    try:
        return pack(value)
    except (TypeError, ValueError, OverflowError):
        return _as_msgpack(value)


def _outcome(decoder: Decoder, data: bytes) -> tuple[bool, str | None]:
    try:
        decoder.read(data)
    except StreamtopicError:
        return False, None
    except Exception as error:  # noqa: BLE001 - any exception is the finding
        place = traceback.extract_tb(error.__traceback__)[-1]
        return False, printable(
            f"{type(error).__name__}: {str(error)[:80]} ({Path(place.filename).name}:{place.lineno})"
        )
    return True, None


def _damaged(decoder: Decoder, rng: Random) -> bytes:
    data = _sample(decoder)
    if rng.random() < 0.1:
        return _damaged_bytes(data, rng)
    match decoder.form:
        case "json":
            return _as_json(_changed(json.loads(data), rng))
        case "msgpack":
            return _as_msgpack(_changed(msgpack.unpackb(data), rng))
    kind = msgpack.unpackb(data)["kind"]
    parts = unseal(kind, data, _KEY.public)
    name = rng.choice(sorted(parts))
    damaged = parts | {name: _resigned(parts[name], rng)}
    if rng.random() < 0.02:
        del damaged[name]
    return seal(kind, damaged, _KEY)


def _resigned(part: bytes, rng: Random) -> bytes:
    if rng.random() < 0.1:
        return _damaged_bytes(part, rng)
    # Input that is not canonical is refused at once and tests nothing behind that, so most of it is canonical.
    try:
        return pack(_changed(unpack(part), rng))
    except (TypeError, ValueError, OverflowError, InvalidRelease):
        return _as_msgpack(_changed(msgpack.unpackb(part), rng))


def _damaged_bytes(data: bytes, rng: Random) -> bytes:
    if rng.random() < 0.2:
        return rng.randbytes(rng.randrange(64))
    damaged = bytearray(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.3 else data)
    for _ in range(rng.randrange(1, 4) if damaged else 0):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    return bytes(damaged)


def _changed(value: Any, rng: Random) -> Any:  # noqa: ANN401 - a tree of decoded values of any type
    """Change one to three places of a tree."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        value = _change(value, rng)
    return value


def _change(value: Any, rng: Random) -> Any:  # noqa: ANN401 - as above
    inside = isinstance(value, dict | list) and len(value) > 0 and rng.random() < 0.9
    if not inside:
        return _other(value, rng)
    copy = value.copy()
    place = rng.choice(list(copy)) if isinstance(copy, dict) else rng.randrange(len(copy))
    how = rng.random()
    if how < 0.1:
        del copy[place]
    elif how < 0.15 and isinstance(copy, dict):
        copy[rng.choice(["", "unknown", "\x00", "1" * 40, *map(str, copy)])] = copy[place]
    elif how < 0.2 and isinstance(copy, list):
        copy.insert(place, copy[rng.randrange(len(copy))])
    else:
        copy[place] = _change(copy[place], rng)
    return copy


def _other(value: Any, rng: Random) -> Any:  # noqa: ANN401 - as above
    """Return another value: of the same type as often as of another."""
    near: list[Any] = []
    if isinstance(value, bool):
        near = [not value]
    elif isinstance(value, int | float):
        near = [value + 1, -value, value * 2, value * 1e9, float(value)]
    elif isinstance(value, str):
        near = [value + "x", value[:-1], value.upper(), "\x1b" + value]
    elif isinstance(value, np.ndarray):
        # An earlier change may have left an array without an axis, which cannot be cut.
        rows = np.atleast_1d(value)
        near = [
            rows[:-1],
            value.T,
            rows[::-1],
            value.astype("<i8"),
            value.astype("<f8"),
            value.reshape(-1),
            value * 0,
        ]
    return rng.choice(near) if near and rng.random() < 0.5 else rng.choice(_EXTREMES)


def _as_json(value: object) -> bytes:
    return json.dumps(value, default=str).encode(errors="surrogatepass")


def _as_msgpack(value: object) -> bytes:
    try:
        return bytes(msgpack.packb(value, unicode_errors="surrogatepass", default=str))
    except (ValueError, OverflowError):
        return b"\xc1"


def _record(value: bytes | None, key: bytes = b"doc", timestamp_ms: int = 0) -> Record:
    return Record("default.documents", 0, 5, key, value, (), timestamp_ms)


def _read_event(data: bytes) -> None:
    decode_record(_record(data))


def _read_suppression(data: bytes) -> None:
    record = _record(data, _SUPPRESSION.key, _SUPPRESSION.made_ms)
    decode_record(record, suppression=_OPERATOR)


def _map_of(data: bytes) -> dict[Any, Any] | None:
    """Return the map in bytes that only this file writes, None for anything else."""
    try:
        fields = msgpack.unpackb(data, strict_map_key=False, raw=False, unicode_errors="replace")
    except (ValueError, TypeError, msgpack.UnpackException):
        return None
    return fields if isinstance(fields, dict) else None


def _read_operator_suppression(data: bytes) -> None:
    # The program does not read these bytes: they carry a key and two times to a record with the operator's code.
    fields = _map_of(data)
    if fields is None:
        return
    key, made_ms, written_ms = (fields.get(name) for name in ("key", "made", "written"))
    if not isinstance(key, bytes) or not isinstance(made_ms, int) or not isinstance(written_ms, int):
        return
    said = Suppression(digest_in(key) or b"", bool(fields.get("suppressed")), made_ms)
    event = decode_record(_record(_OPERATOR.value(said), key, written_ms), suppression=_OPERATOR)
    # Keys outside of the prefix, and those of other control records, are no suppressions.
    if isinstance(event, Suppression) and Suppression.unpack(event.digest, event.pack()) != event:
        raise AssertionError("the state does not keep what the record says")


def _read_rejection(data: bytes) -> None:
    from streamtopic.commands.looking import _rejection_fields
    from streamtopic.service.ingest.rejections import parse_rejection

    # A producer chooses the time of its records as well.
    times = Random(len(data)).choice([0, -1, 2**63 - 1, -(2**63), 1_700_000_000_000])
    found = parse_rejection(_record(data, timestamp_ms=times))
    if found is not None:
        json.dumps(_rejection_fields(found), allow_nan=False)


def _read_release(data: bytes) -> None:
    from streamtopic.service.publish.published import heads_of, topics_of
    from streamtopic.service.verify.evidence import signed_facts

    release = open_release(data, _KEY.public)
    facts = (str(release.guarantee), signed_facts(release.envelope), heads_of(release, 3), dict(release.quality))
    json.dumps(facts, allow_nan=False)
    if release.payload.A is not None:
        json.dumps(topics_of(release, 3), allow_nan=False)
        release.transform(["w00000 w00001"])


def _read_receipt(data: bytes) -> None:
    from streamtopic.commands.receipts import readable
    from streamtopic.service.publish.published import receipt_fields

    receipt = open_receipt(data, _KEY.public)
    fields = receipt_fields(receipt)
    json.dumps(fields, allow_nan=False)
    readable(receipt, fields)


def _read_completion(data: bytes) -> None:
    completion = open_completion(data, _KEY.public)
    json.dumps([completion.id, list(completion.ends), completion.covers(open_receipt(_receipt(), _KEY.public))])


def _read_statement(data: bytes) -> None:
    json.dumps(asdict(open_statement(data, _KEY.public)), allow_nan=False)


def _read_deletion(data: bytes) -> None:
    json.dumps(asdict(open_deletion(data, _KEY.public)), allow_nan=False)


def _read_deletion_line(data: bytes) -> None:
    open_deletion_line(data.decode("utf-8", "replace"), _KEY.public)


def _read_keys(data: bytes) -> None:
    keys = open_keys(data, _KEY.public)
    revoked = [(entry.key.key_id, entry.revoked, entry.receipts) for entry in keys.revoked]
    json.dumps([keys.sequence, keys.created, keys.current.key_id, revoked], allow_nan=False)


def _read_exported(data: bytes) -> None:
    audit([data.decode("utf-8", "replace")], _KEY.public)


def _read_report(data: bytes) -> None:
    from streamtopic.report.version_report import read_report
    from streamtopic.service.verify import as_json

    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(data)
        file.flush()
        json.dumps(as_json(read_report(Path(file.name)).check(_KEY.public)), allow_nan=False)


def _read_page(data: bytes) -> None:
    _read_report(b'<script type="application/json" id="evidence">' + data.replace(b"<", b" ") + b"</script>")


def _read_audit(data: bytes) -> None:
    from streamtopic.service.verify import read_audit

    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(data)
        file.flush()
        json.dumps(read_audit(Path(file.name)).finding(sample_envelope()).detail)


def _read_chunk(data: bytes) -> None:
    # The program does not read these bytes: they carry the parts of a record to the decoder.
    fields = _map_of(data)
    if fields is None:
        return
    given = {str(name): value for name, value in fields.items() if isinstance(value, bytes)}
    headers = tuple((name, value) for name, value in given.items() if name not in {"key", "value"})
    Assembler().take(Record("t", 0, 0, given.get("key"), given.get("value"), headers, 0))


@cache
def _sample(decoder: Decoder) -> bytes:
    return decoder.sample()


def sample_envelope() -> Envelope:
    """Return a sound envelope."""
    return Envelope(
        model="news", version=3, kind="unlearn", parent=2, base=1, cut={0: 10, 1: 12}, m=20, n=6, r=2,
        guarantee="certified", epsilon=1.0, delta=1e-6, sigma=8.5e-7, tolerance=1e-7, certificate=5e-11,
        anchors=("w00000", "w00001"), margin=0.01, forgotten=1, capacity=5, capacity_rule="fixed",
        cumulative_epsilon=1.0, withdrawn=(2,), created=1_700_000_000_000,
    )  # fmt: skip


def _release() -> bytes:
    words = tuple(f"w{number:05d}" for number in range(6))
    A = np.random.default_rng(0).dirichlet(np.ones(6), 2).T.astype(np.float32)
    head = Head(words[:2], ("no", "yes"), 10, w=np.ones((2, 2)))
    payload = Payload(
        words,
        A,
        np.asarray(np.eye(2) / 2, np.float32),
        np.full(2, 0.5),
        (words[:3], words[3:]),
        {"npmi": 0.25},
        {"task": head},
    )
    return seal_release(payload, sample_envelope(), _KEY)


def _receipt() -> bytes:
    values = {
        "sequence": 1, "previous": "", "model": "news", "partition": 0, "offset": 7, "request": "",
        "document": "d" * 64,
        "received": 1_700_000_000_000, "applied": 1_700_000_000_001, "found": True, "length": 7, "version": 3,
        "mode": "certified", "certificate": 5e-11, "sigma": 8.5e-7, "epsilon": 1.0, "delta": 1e-6,
        "cumulative_epsilon": 1.0, "capacity_used": 1, "capacity_left": 4,
    }  # fmt: skip
    known = Receipt.__dataclass_fields__
    return seal_receipt(Receipt(**{name: value for name, value in values.items() if name in known}), _KEY)  # type: ignore[arg-type]


def _completion() -> bytes:
    reached = {0: {"subtracted": 1_700_000_000_000, "log": 1_700_000_000_001}}
    completion = Completion(2, "d" * 64, "news", 1, 1_700_000_000_002, {0: 8}, reached, ("snapshots",))
    return seal_completion(completion, _KEY)


_MODEL_DELETION = ModelDeletion(
    model="news",
    made=1_700_000_000_000,
    documents=40,
    version=3,
    digest="d" * 64,
    receipts=4,
    head="e" * 64,
    waiting=1,
    receipts_kept=True,
)


def _statement() -> bytes:
    return seal_statement(Statement("news", 4, 1_700_000_000_000, 60_000, 3, "d" * 64, (2,)), _KEY)


def _deletion() -> bytes:
    return seal_deletion(_MODEL_DELETION, _KEY)


def _deletion_line() -> bytes:
    return deletion_line(_MODEL_DELETION, _deletion()).encode()


def _keys() -> bytes:
    old, stolen = (SigningKey.from_bytes(bytes([number]) * 32).public for number in (1, 2))
    revoked = Revoked(stolen, {1: "d" * 64}, (1, "d" * 64), 1_700_000_000_000)
    return seal_keys(KeyList("news", 3, 1_700_000_000_000, _KEY.public, (old,), (revoked,)), _KEY)


def _exported() -> bytes:
    from streamtopic.signed import export_line

    data = _receipt()
    return export_line(open_receipt(data, _KEY.public), data).encode()


def _report() -> bytes:
    from streamtopic.service.verify.claims import LIMITS, assumptions_of, statement_of
    from streamtopic.service.verify.evidence import FORMAT, PROGRAM, signed_facts
    from streamtopic.service.verify.proof import Proof

    envelope, data = sample_envelope(), _release()
    evidence = {
        "format": FORMAT, "program": PROGRAM, "model": "news", "version": 3, "envelope": signed_facts(envelope),
        "proof": Proof.of(data, _KEY.public).as_json(), "limits": list(LIMITS),
        "claim": {
            "guarantee": "certified", "published": "topics", "statement": statement_of("topics", envelope),
            "assumptions": list(assumptions_of("topics", envelope)),
        },
    }  # fmt: skip
    return json.dumps(evidence).encode()


def _event() -> bytes:
    labels = {"task": "class"}
    return bytes(msgpack.packb({"op": "add", "text": "one two three", "labels": labels, "ts": 5, "meta": [1]}))


def _counts_event() -> bytes:
    return json.dumps({"op": "add", "counts": {"one": 1, "two": 3}, "labels": {"task": "class"}, "ts": 5}).encode()


def _suppression() -> bytes:
    return _OPERATOR.value(_SUPPRESSION)


def _operator_suppression() -> bytes:
    made_ms = _SUPPRESSION.made_ms
    fields = {"key": _SUPPRESSION.key, "suppressed": True, "made": made_ms, "written": made_ms}
    return bytes(msgpack.packb(fields))


def _rejection() -> bytes:
    return bytes(msgpack.packb({"offset": 4, "partition": 0, "reason": "format", "topic": "default.documents"}))


def _chunk() -> bytes:
    message = to_messages(3, _release())[0]
    return bytes(msgpack.packb({"key": message.key, "value": message.value, **dict(message.headers)}))


DECODERS = (
    Decoder("event, text", "msgpack", _event, _read_event),
    Decoder("event, counts", "json", _counts_event, _read_event),
    Decoder("suppression", "msgpack", _suppression, _read_suppression),
    Decoder("suppression, with the operator's code", "msgpack", _operator_suppression, _read_operator_suppression),
    Decoder("rejection", "msgpack", _rejection, _read_rejection),
    Decoder("release", "sealed", _release, _read_release),
    Decoder("chunk of a release", "msgpack", _chunk, _read_chunk),
    Decoder("receipt", "sealed", _receipt, _read_receipt),
    Decoder("completion", "sealed", _completion, _read_completion),
    Decoder("statement", "sealed", _statement, _read_statement),
    Decoder("statement of a deleted model", "sealed", _deletion, _read_deletion),
    Decoder("statement of a deleted model, in a file", "json", _deletion_line, _read_deletion_line),
    Decoder("key list", "sealed", _keys, _read_keys),
    Decoder("exported receipt", "json", _exported, _read_exported),
    Decoder("report, .json", "json", _report, _read_report),
    Decoder("report, .html", "json", _report, _read_page),
    Decoder("audit", "json", lambda: b'{"passed": true, "epsilon_lower": 0.5, "claim": {"epsilon": 1.0}}', _read_audit),
)
"""Every decoder of what others wrote: a new one belongs here."""
