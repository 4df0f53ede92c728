"""A release as fields and as signed bytes: the payload, which the guarantee covers, and the envelope beside it.

A release that contradicts itself is neither signed nor opened (`check_release`).
"""

import dataclasses
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from streamtopic.errors import InvalidRelease, UsageError
from streamtopic.formats import RELEASE, refusal
from streamtopic.signed.sealed import (
    container_of,
    fitting,
    open_sealed,
    pack,
    reading_fields,
    seal,
    statement_digest,
    unpack,
    unpack_fields,
)
from streamtopic.signed.signing_keys import SigningKey, Verifier

__all__ = [
    "FORMAT",
    "REVISION",
    "Envelope",
    "Head",
    "Kind",
    "OpenedParts",
    "Payload",
    "check_release",
    "open_parts",
    "pack_envelope",
    "release_digest",
    "seal_release",
    "sealed_again",
    "unpack_envelope",
]

FORMAT = RELEASE.written
REVISION = 1
"""Of the learner's decisions and its certificate: 1 is proved in docs/proof.md. Older versions do not name one."""

Kind = Literal["retrain", "unlearn"]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

KIND = "release"
PARTS = {"envelope", "payload"}
# Types that arrays travel in.
DTYPES = {"A": "<f4", "R": "<f4", "shares": "<f8", "w": "<f8", "B": "<f4"}
# These are infinite where a certificate cannot be had or a budget is used up; canonical bytes hold no infinities.
UNBOUNDED = ("margin", "certificate", "cumulative_epsilon")

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
# Milliseconds from 1970 to the year 10000, from which on no calendar of Python can show a time.
_END = 253_402_300_800_000


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """A task's classifier: a document of word shares x (n,) is of the class with the largest x^T B.

    topics: (k,), anchor words of the topics that it rests on.
    classes: (C,), ascending.
    documents: number of labelled documents that it was fitted on.
    w: (k, C) float64, B = A[:, topics] w; None where A is withheld.
    B: (n, C) float32 with noise, where A is withheld; else None.
    """

    topics: tuple[str, ...]
    classes: tuple[str, ...]
    documents: int
    w: Float64 | None = None
    B: Float32 | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Payload:
    """The model as published; everything in it was computed after noise.

    Where A is withheld there are words and heads only, with noise on all heads together.

    words: (n,), sorted by code point.
    A: (n, r) float32, words given topics, columns on the simplex.
    R: (r, r) float32, topic-topic covariance.
    shares: (r,) float64, of topics.
    top_words: words of each topic in display order.
    quality: name to value, such as npmi and diversity.
    heads: task to head.
    """

    words: tuple[str, ...]
    A: Float32 | None = None
    R: Float32 | None = None
    shares: Float64 | None = None
    top_words: tuple[tuple[str, ...], ...] = ()
    quality: Mapping[str, float] = field(default_factory=dict)
    heads: Mapping[str, Head] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Envelope:
    """Facts about a version.

    version: its number, from 1.
    kind: how it was made.
    parent: number of the version before; 0 for the first.
    base: number of the retrain that it descends from.
    cut: partition to the offset up to which its records are in the model.
    m, n, r: documents, words, topics.
    sigma: standard deviation of the noise of A; where A is withheld, the largest one of the heads.
    tolerance: error of A that was allowed.
    certificate: error of A that is claimed. In certified mode it is the tolerance. Under the theorem tolerance is
        Delta, and this is infinite, since nothing is certified.
    anchors: (r,), name of each topic: its anchor word, or the name of a guided topic. Names of guided topics come last.
    margin: the least lead of an anchor, rounded down to a power of two.
    forgotten: deletions since the base.
    capacity: deletions that the base bears, by `capacity_rule`.
    cumulative_epsilon: epsilon spent since the base, at `delta`.
    withdrawn: versions that this one replaces, because they hold forgotten documents.
    created: milliseconds since 1970.
    scale, slack: terms by which its epsilon composes with that of other versions (`privacy/accounting.py`).
    epoch: last epoch of the base; a service continues from it.
    counted: documents accepted until the cut; a service continues from it.
    ratio: norm of the noise over norm of the model.
    covered: whether every condition of the paper's proof held; None where the guarantee does not rest on conditions.
    revision: see REVISION; 0 if it names none.
    previous: digest of the version before (`Release.digest`); "" if it was not known, or in an older version.
    commitment: to the counts that it was made from, which only a holder of the noise key can test; "" in an older
        version.
    guided: name of each guided topic to those of its seeds that are words of the model; () for one that has ended.
    """

    model: str
    version: int
    kind: Kind
    parent: int
    base: int
    cut: Mapping[int, int]
    m: int
    n: int
    r: int
    guarantee: Literal["certified", "theorem"]
    epsilon: float
    delta: float
    sigma: float
    tolerance: float
    certificate: float
    anchors: tuple[str, ...]
    margin: float
    forgotten: int
    capacity: int
    capacity_rule: str
    cumulative_epsilon: float
    withdrawn: tuple[int, ...]
    created: int
    scale: float = 0.0
    slack: float = 0.0
    epoch: int = 0
    counted: int = 0
    ratio: float = 0.0
    covered: bool | None = None
    revision: int = 0
    previous: str = ""
    commitment: str = ""
    guided: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    format: int = FORMAT

    @property
    def bound(self) -> bool:
        """Whether it commits to its counts and may name the version before; versions of an older program do neither."""
        return bool(self.commitment)

    @property
    def unproven(self) -> bool:
        """Whether its guarantee rests on a certificate from before certificates were proven."""
        return self.guarantee == "certified" and self.revision < REVISION


@dataclass(frozen=True, slots=True)
class OpenedParts:
    """Payload and envelope of a release that was verified.

    digest: names the release (`release_digest`).
    key: id of the key that signed it.
    signature: by that key.
    """

    payload: Payload
    envelope: Envelope
    digest: str
    key: str
    signature: bytes


def seal_release(payload: Payload, envelope: Envelope, key: SigningKey) -> bytes:
    """Return the signed bytes of a release; equal releases have equal bytes. Raises as `check_release`."""
    check_release(payload, envelope)
    return seal(KIND, _parts(payload, envelope), key)


def sealed_again(opened: OpenedParts) -> bytes:
    """Return the signed bytes that a release was opened from: the inverse of `open_parts`.

    Raises UsageError where the program that signed them wrote other bytes of the same fields.
    """
    parts = _parts(opened.payload, opened.envelope)
    if _digest(parts) != opened.digest:
        raise UsageError(
            f"release {opened.envelope.version} was signed by an older program, whose bytes this one does not write: "
            "take a later version"
        )
    return container_of(KIND, parts, opened.key, opened.signature)


def _parts(payload: Payload, envelope: Envelope) -> dict[str, bytes]:
    return {"envelope": pack_envelope(envelope), "payload": _pack_payload(payload)}


def open_parts(data: bytes, key: Verifier) -> OpenedParts:
    """Return payload and envelope in the signed bytes of a release.

    Raises InvalidRelease unless `key` signed exactly these bytes and they do not contradict themselves.
    """
    sealed = open_sealed(KIND, data, key)
    parts = sealed.parts
    if set(parts) != PARTS:
        raise InvalidRelease("a release has a payload and an envelope; this has other parts")
    with reading_fields("release"):
        envelope = unpack_envelope(parts["envelope"])
        payload = _unpack_payload(parts["payload"])
        check_release(payload, envelope)
    # Only now is the number known that a revoked key is asked about.
    key.admit(sealed.key, KIND, envelope.version, sealed.digest)
    return OpenedParts(payload, envelope, _digest(parts), sealed.key, sealed.signature)


def release_digest(data: bytes) -> str:
    """Return the digest that names the release in signed bytes, hexadecimal. The next release repeats it."""
    return _digest(unpack(data)["parts"])


def _digest(parts: Mapping[str, bytes]) -> str:
    # Of the signed bytes, and not of the whole container: envelope and digest of the payload are enough to compute it,
    # so a report proves it without the model.
    digests = {name: hashlib.sha256(part).digest() for name, part in parts.items()}
    return statement_digest(KIND, digests)


def pack_envelope(envelope: Envelope) -> bytes:
    """Return the canonical bytes of an envelope, unsigned."""
    fields: dict[str, Any] = dataclasses.asdict(envelope)
    # Keys of canonical maps are text.
    fields["cut"] = {str(partition): offset for partition, offset in envelope.cut.items()}
    fields |= {name: None for name in UNBOUNDED if fields[name] == math.inf}
    # A program that does not know guided topics reads versions without them.
    if not envelope.guided:
        del fields["guided"]
    return pack(fields)


def unpack_envelope(data: bytes) -> Envelope:
    """Undo `pack_envelope`. Raises InvalidRelease for another format, and for fields that are missing or malformed."""
    with reading_fields("envelope"):
        fields = unpack_fields(data)
        if fields["format"] != FORMAT:
            raise InvalidRelease(refusal(RELEASE, fields["format"]))
        cut = fields["cut"].items()
        fields["cut"] = {int(partition): offset for partition, offset in cut}
        fields |= {name: math.inf for name in UNBOUNDED if fields[name] is None}
        fields["anchors"] = tuple(fields["anchors"])
        guided = fields.get("guided", {}).items()
        fields["guided"] = {name: tuple(seeds) for name, seeds in guided}
        fields["withdrawn"] = tuple(fields["withdrawn"])
    return fitting(Envelope, fields)


def _pack_payload(payload: Payload) -> bytes:
    heads = {task: _present_fields(head) for task, head in payload.heads.items()}
    return pack(_present_fields(payload) | {"heads": heads})


def _present_fields(part: Payload | Head) -> dict[str, Any]:
    """Return the fields that are not None, arrays in the type that they travel in."""
    present: dict[str, Any] = {}
    for name in (one.name for one in dataclasses.fields(part)):
        value = getattr(part, name)
        if value is not None:
            present[name] = np.asarray(value, DTYPES[name]) if name in DTYPES else value
    return present


def _unpack_payload(data: bytes) -> Payload:
    fields = unpack_fields(data, arrays=True)
    # Before there were heads, releases held an empty list of classes.
    if isinstance(fields.get("classes"), list) and not fields["classes"]:
        del fields["classes"]
    fields["words"] = tuple(fields["words"])
    fields["top_words"] = tuple(map(tuple, fields["top_words"]))
    fields["heads"] = {task: _unpack_head(head) for task, head in fields.get("heads", {}).items()}
    return fitting(Payload, fields)


def _unpack_head(fields: dict[str, Any]) -> Head:
    return fitting(Head, fields | {"topics": tuple(fields["topics"]), "classes": tuple(fields["classes"])})


def check_release(payload: Payload, envelope: Envelope) -> None:
    """Raise InvalidRelease unless payload and envelope fit each other, and every number is finite."""
    # In this order, since each check relies on the ones before: heads are checked against words and anchors.
    problem = (
        _chain_problem(envelope)
        or _words_problem(payload, envelope)
        or _model_problem(payload, envelope)
        or _heads_problem(payload, envelope)
    )
    if problem is not None:
        raise InvalidRelease(f"release {envelope.version}: {problem}")


def _chain_problem(envelope: Envelope) -> str | None:
    for name in ("previous", "commitment"):
        digest = getattr(envelope, name)
        if not isinstance(digest, str) or (digest and not _DIGEST.match(digest)):
            return f"its {name} is not a digest"
    if envelope.parent == 0 and envelope.previous:
        return "it has no parent, and yet names the digest of a version before it"
    return None


def _words_problem(payload: Payload, envelope: Envelope) -> str | None:
    if envelope.version < 1 or not all(0 < version < envelope.version for version in envelope.withdrawn):
        return "it withdraws versions that are not before it"
    if not 0 <= envelope.created < _END:
        return "its time of creation lies outside the years 1970 to 9999"
    if len(payload.words) != envelope.n or not _ascending(payload.words):
        return f"its words are not {envelope.n} sorted, distinct words"
    return None


def _model_problem(payload: Payload, envelope: Envelope) -> str | None:
    if payload.A is None:
        return _withheld_problem(payload)
    n = envelope.n
    r = envelope.r
    if len(envelope.anchors) != r:
        return f"it names {len(envelope.anchors)} anchors of {r} topics"
    shapes = {"A": (n, r), "R": (r, r), "shares": (r,)}
    for name, shape in shapes.items():
        array = getattr(payload, name)
        if np.shape(array) != shape:
            return f"{name} does not fit {n} words and {r} topics"
        if not np.isfinite(array).all():
            return f"{name} has entries that are not finite numbers"
    # A release may have topics without words to show them by.
    if len(payload.top_words) not in {0, r}:
        return f"it has top words of {len(payload.top_words)} topics, not {r}"
    return None


def _withheld_problem(payload: Payload) -> str | None:
    # Each of these was computed from A, and would give part of it away.
    extra = [name for name in ("R", "shares") if getattr(payload, name) is not None]
    if extra or payload.top_words:
        return f"it has {', '.join(extra) or 'top words'} without A"
    return None if payload.heads else "it has neither topics nor heads"


def _heads_problem(payload: Payload, envelope: Envelope) -> str | None:
    for task, head in payload.heads.items():
        problem = _head_problem(head, envelope, withheld=payload.A is None)
        if problem is not None:
            return f"the head of task {task!r} {problem}"
    return None


def _head_problem(head: Head, envelope: Envelope, *, withheld: bool) -> str | None:
    if len(head.classes) < 2 or not _ascending(head.classes) or head.documents < len(head.classes):
        return "does not have at least two sorted, distinct classes with a document each"
    distinct = set(head.topics)
    if not distinct or len(distinct) < len(head.topics) or not distinct <= set(envelope.anchors):
        return "rests on topics that are repeated or not in the model"
    # A head has w beside a published A, and B in place of a withheld one, never both.
    array, other = (head.B, head.w) if withheld else (head.w, head.B)
    shape = (envelope.n if withheld else len(head.topics), len(head.classes))
    if array is None or other is not None or array.shape != shape:
        return f"does not fit {envelope.n} words, its topics and its classes"
    return None if np.isfinite(array).all() else "has entries that are not finite numbers"


def _ascending(words: Sequence[str]) -> bool:
    return all(a < b for a, b in pairwise(words))
