"""Documents whose vocabulary grows by Heaps' law, V = K N^beta words after N tokens, without an end.

A word's rank is drawn from a Pareto law, P(rank > k) = (1 + k / scale)^-(1/beta - 1), so that frequencies fall like
rank^-1/beta and distinct words grow like N^beta (Lü, Zhang and Zhou, 2010). Half of a document's tokens follow a law
that all documents share, and half are words of one of its two topics. With these parameters K is about 33 at beta 0.55:
a million documents of 21 tokens have 376,000 words.

`python -m streamtopic.bench.heaps FOLDER STEP DOCUMENTS TOKENS` appends the documents of a step to its log.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from streamtopic.streams import Message

__all__ = ["BETA", "append", "deletes", "draw", "identity"]

BETA = 0.55
TOPICS = 50
_SHARED_SCALE, _OWN_SCALE = 300.0, 10.0
_MAIN = 0.7
_BATCH = 2_000
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def draw(documents: int, seed: list[int], tokens: int) -> npt.NDArray[np.int64]:
    """Return the word numbers of each token, (documents, tokens)."""
    rng = np.random.default_rng(seed)
    shape = documents, tokens
    main, second = rng.integers(0, TOPICS, (documents, 1)), rng.integers(0, TOPICS, (documents, 1))
    topic = np.where(rng.random(shape) < _MAIN, main, second)
    own = rng.random(shape) < 0.5
    scale = np.where(own, _OWN_SCALE, _SHARED_SCALE)
    ranks = (scale * ((1.0 - rng.random(shape)) ** (-BETA / (1 - BETA)) - 1)).astype(np.int64)
    found: npt.NDArray[np.int64] = ranks * (TOPICS + 1) + np.where(own, 1 + topic, 0)
    return found


def identity(step: int, document: int) -> str:
    """Return a document's id."""
    return f"{step}-{document:07d}"


def append(folder: Path, step: int, documents: int, tokens: int) -> None:
    """Append a step's documents to the topic `bench.documents` of a log in files."""
    from streamtopic.streams import FileLog, TopicNames

    log, topic = FileLog(folder), TopicNames("bench").documents
    for start in range(0, documents, 20 * _BATCH):
        numbers = draw(min(20 * _BATCH, documents - start), [step, start], tokens)
        for messages in _messages(step, start, numbers):
            log.append_many(topic, messages)


def deletes(step: int, documents: int, share: int) -> list[Message]:
    """Return deletes of every share-th document of a step."""
    from streamtopic.documents.events import encode_delete

    return [encode_delete(identity(step, k), f"r-{step}-{k}") for k in range(0, documents, share)]


def _messages(step: int, start: int, numbers: npt.NDArray[np.int64]) -> Iterator[list[Message]]:
    from streamtopic.documents.events import encode_add

    distinct, places = np.unique(numbers, return_inverse=True)
    names = np.array([_name(number) for number in distinct.tolist()], object)
    rows = names[places.reshape(numbers.shape)].tolist()
    for first in range(0, len(rows), _BATCH):
        some = enumerate(rows[first : first + _BATCH], start=start + first)
        yield [encode_add(identity(step, k), text=" ".join(row)) for k, row in some]


def _name(number: int) -> str:
    """Return a word of at least two letters."""
    letters = _LETTERS[number % 26]
    while number >= 26 or len(letters) < 2:
        number //= 26
        letters += _LETTERS[number % 26]
    return letters


if __name__ == "__main__":
    append(Path(sys.argv[1]), *map(int, sys.argv[2:]))
