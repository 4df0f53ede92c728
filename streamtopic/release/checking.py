"""A release that contradicts itself is neither signed nor opened."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from streamtopic.errors import InvalidRelease
from streamtopic.release.fields import Envelope, Head, Payload

__all__ = ["check_release"]


def check_release(payload: Payload, envelope: Envelope) -> None:
    """Raise InvalidRelease unless the parts of a release fit each other, and all its numbers are numbers."""
    problem = _words(payload, envelope) or _model(payload, envelope) or _heads(payload, envelope)
    if problem is not None:
        raise InvalidRelease(f"release {envelope.version}: {problem}")


def _words(payload: Payload, envelope: Envelope) -> str | None:
    if envelope.version < 1 or not all(0 < version < envelope.version for version in envelope.withdrawn):
        return "withdraws versions that are not before it"
    if len(payload.words) != envelope.n or not _ascending(payload.words):
        return f"its words are not {envelope.n} sorted, distinct words"
    return None


def _model(payload: Payload, envelope: Envelope) -> str | None:
    n, r = envelope.n, envelope.r
    shapes = {"A": (n, r), "R": (r, r), "shares": (r,)}
    if payload.A is None:
        extra = [name for name in ("R", "shares") if getattr(payload, name) is not None]
        if extra or payload.top_words:
            return f"{', '.join(extra) or 'top words'} without A"
        return None if payload.heads else "holds neither topics nor heads"
    for name, shape in shapes.items():
        array = getattr(payload, name)
        if np.shape(array) != shape:
            return f"{name} does not fit {n} words and {r} topics"
        if not np.isfinite(array).all():
            return f"{name} holds what is no number"
    return None


def _heads(payload: Payload, envelope: Envelope) -> str | None:
    for task, head in payload.heads.items():
        problem = _head(head, envelope, withheld=payload.A is None)
        if problem is not None:
            return f"the head of task {task!r} {problem}"
    return None


def _head(head: Head, envelope: Envelope, *, withheld: bool) -> str | None:
    if len(head.classes) < 2 or not _ascending(head.classes) or head.documents < len(head.classes):
        return "has no two sorted, distinct classes with a document each"
    if not head.topics or len(set(head.topics)) < len(head.topics) or not set(head.topics) <= set(envelope.anchors):
        return "rests on topics that the model has not"
    array, other = (head.B, head.w) if withheld else (head.w, head.B)
    rows = envelope.n if withheld else len(head.topics)
    if array is None or other is not None or array.shape != (rows, len(head.classes)):
        return f"does not fit {envelope.n} words, its topics and its classes"
    return None if np.isfinite(array).all() else "holds what is no number"


def _ascending(words: Sequence[str]) -> bool:
    return all(a < b for a, b in pairwise(words))
