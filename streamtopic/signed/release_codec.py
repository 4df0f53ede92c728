"""The bytes of a release: its payload, which the guarantee covers. Its facts are an entry of the ledger (Envelope).

A payload that contradicts the facts is neither published nor opened (`check_release`).
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopic.errors import InvalidRelease
from streamtopic.signed.entries import Envelope, fitting, reading_fields
from streamtopic.tensors import parts, unpacked

__all__ = ["Head", "Payload", "check_release", "pack_payload", "unpack_payload"]

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

# Types that arrays travel in.
DTYPES = {"A": "<f4", "R": "<f4", "shares": "<f8", "w": "<f8", "B": "<f4"}
# How far shares of words in a topic, and of topics, may be from 1 in sum.
_NEAR_ONE = 1e-3
# R is stored in single precision, so its smallest eigenvalue may fall below 0 by this share of its norm.
_FLOAT32 = 2.0**-22


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """A task's classifier: a document of word shares x (n,) is of the class with the largest x^T B.

    topics: (k,), anchor words of the topics that it rests on.
    classes: (C,), ascending.
    documents: number of labelled documents that it was fitted on.
    w: (k, C) float64, B = A[:, topics] w; None if A is withheld.
    B: (n, C) float32 with noise, if A is withheld; else None.
    """

    topics: tuple[str, ...]
    classes: tuple[str, ...]
    documents: int
    w: Float64 | None = None
    B: Float32 | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Payload:
    """The model as published; everything in it was computed after noise.

    If A is withheld there are words and heads only, with noise on all heads together.

    words: (n,), sorted by code point.
    A: (n, r) float32, words given topics, columns on the simplex.
    R: (r, r) float32, topic-topic covariance.
    shares: (r,) float64, of topics.
    top_words: words of each topic in display order.
    quality: name to value, such as npmi and diversity.
    heads: task to head.
    anchors: (r,), name of each topic: its anchor word, or the name of a guided topic. Names of guided topics come last.
    guided: name of each guided topic to those of its seeds that are words of the model; () for one that has ended.
    """

    words: tuple[str, ...]
    A: Float32 | None = None
    R: Float32 | None = None
    shares: Float64 | None = None
    top_words: tuple[tuple[str, ...], ...] = ()
    quality: Mapping[str, float] = field(default_factory=dict)
    heads: Mapping[str, Head] = field(default_factory=dict)
    anchors: tuple[str, ...] = ()
    guided: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def pack_payload(payload: Payload, envelope: Envelope) -> bytes:
    """Return the bytes of a release, in the safetensors format. Raises as `check_release`.

    Equal payloads have equal bytes. Fields that are no arrays are texts of JSON, heads among them; an array of a head
    has a name such as heads/TASK/w.
    """
    check_release(payload, envelope)
    arrays, fields = _divided(payload)
    heads = {}
    for task, head in payload.heads.items():
        own, heads[task] = _divided(head)
        arrays |= {f"heads/{task}/{name}": array for name, array in own.items()}
    fields["heads"] = heads
    texts = {name: _json(value) for name, value in fields.items()}
    return b"".join(parts(arrays, texts))


def _divided(part: Payload | Head) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Return the arrays that are there, each in the type that it travels in, and the other fields."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    others: dict[str, Any] = {}
    for name in (one.name for one in dataclasses.fields(part)):
        value = getattr(part, name)
        if name not in DTYPES:
            others[name] = dict(value) if isinstance(value, Mapping) else value
        elif value is not None:
            arrays[name] = np.asarray(value, DTYPES[name])
    return arrays, others


def _json(value: object) -> str:
    return json.dumps(
        value, default=np.generic.item, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True
    )


def unpack_payload(data: bytes, envelope: Envelope) -> Payload:
    """Undo `pack_payload`. Raises InvalidRelease for other bytes, and as `check_release`."""
    with reading_fields("release"):
        arrays, texts = unpacked(data)
        fields = {name: json.loads(text) for name, text in texts.items()}
        for name in ("words", "anchors"):
            fields[name] = tuple(fields[name])
        fields["top_words"] = tuple(map(tuple, fields["top_words"]))
        fields["guided"] = {name: tuple(seeds) for name, seeds in fields["guided"].items()}
        fields["heads"] = {task: _head(task, head, arrays) for task, head in fields["heads"].items()}
        payload = fitting(Payload, fields | arrays)
        # Two encodings of one payload would give two digests of it. A field that is missing shows here as well.
        if pack_payload(payload, envelope) != data:
            raise ValueError("its bytes are not in canonical form")
    return payload


def _head(task: str, fields: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Head:
    """Return the head of a task. Its arrays are taken off `arrays`."""
    names = [name for name in ("w", "B") if f"heads/{task}/{name}" in arrays]
    own = {name: arrays.pop(f"heads/{task}/{name}") for name in names}
    tuples = {name: tuple(fields[name]) for name in ("topics", "classes")}
    return fitting(Head, fields | tuples | own)


def check_release(payload: Payload, envelope: Envelope) -> None:
    """Raise InvalidRelease unless payload and envelope fit each other, and the numbers are those of a model."""
    # In this order, since each check relies on the ones before: heads are checked against words and anchors.
    problem = (
        _certificate_problem(envelope)
        or _words_problem(payload, envelope)
        or _model_problem(payload, envelope)
        or _heads_problem(payload)
    )
    if problem is not None:
        raise InvalidRelease(f"release {envelope.version}: {problem}")


def _certificate_problem(envelope: Envelope) -> str | None:
    # In this form a NaN is refused too.
    if envelope.guarantee == "certified" and not envelope.certificate <= envelope.tolerance:
        return "its certificate is above the tolerance that its noise is made for"
    return None


def _words_problem(payload: Payload, envelope: Envelope) -> str | None:
    if len(payload.words) != envelope.n or not _ascending(payload.words):
        return f"its words are not {envelope.n} sorted, distinct words"
    if len(payload.anchors) != envelope.r:
        return f"it names {len(payload.anchors)} anchors of {envelope.r} topics"
    return None


def _model_problem(payload: Payload, envelope: Envelope) -> str | None:
    if payload.A is None:
        return _withheld_problem(payload)
    n = envelope.n
    r = envelope.r
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
    return _numbers_problem(payload)


def _numbers_problem(payload: Payload) -> str | None:
    """Return which numbers are not those of a model, None if all are."""
    A, R, shares = (np.asarray(array, np.float64) for array in (payload.A, payload.R, payload.shares))
    # Sums of float32, each rounded to the grid of the noise.
    if A.min() < 0 or np.abs(A.sum(axis=0) - 1).max() > _NEAR_ONE:
        return "a column of A does not hold shares of words"
    if shares.min() < 0 or abs(shares.sum() - 1) > _NEAR_ONE:
        return "the shares of its topics do not sum to 1"
    rounding = _FLOAT32 * len(R) * max(1.0, float(np.linalg.norm(R)))
    least = np.linalg.eigvalsh((R + R.T) / 2).min()
    if np.abs(R - R.T).max() > rounding or least < -rounding:
        return "R is not positive semidefinite"
    return None


def _withheld_problem(payload: Payload) -> str | None:
    # Each of these was computed from A, and would give part of it away.
    extra = [name for name in ("R", "shares") if getattr(payload, name) is not None]
    if extra or payload.top_words:
        return f"it has {', '.join(extra) or 'top words'} without A"
    return None if payload.heads else "it has neither topics nor heads"


def _heads_problem(payload: Payload) -> str | None:
    for task, head in payload.heads.items():
        problem = _head_problem(head, payload)
        if problem is not None:
            return f"the head of task {task!r} {problem}"
    return None


def _head_problem(head: Head, payload: Payload) -> str | None:
    withheld = payload.A is None
    if len(head.classes) < 2 or not _ascending(head.classes) or head.documents < len(head.classes):
        return "does not have at least two sorted, distinct classes with a document each"
    distinct = set(head.topics)
    if not distinct or len(distinct) < len(head.topics) or not distinct <= set(payload.anchors):
        return "rests on topics that are repeated or not in the model"
    # A head has w if A is published, and B in place of a withheld one, never both.
    array, other = (head.B, head.w) if withheld else (head.w, head.B)
    shape = (len(payload.words) if withheld else len(head.topics), len(head.classes))
    if array is None or other is not None or array.shape != shape:
        return f"does not fit {len(payload.words)} words, its topics and its classes"
    return None if np.isfinite(array).all() else "has entries that are not finite numbers"


def _ascending(words: Sequence[str]) -> bool:
    return all(a < b for a, b in pairwise(words))
