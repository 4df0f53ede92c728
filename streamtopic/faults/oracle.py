"""What must be true after any faults, told from the records of the documents topic alone.

Plain dictionaries and Python's own integers: nothing here is shared with the code that counts and stores.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamtopic.faults.reading import home, understand

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streamtopic.faults.reading import Passage

__all__ = ["Counted", "Deletion", "Live", "Oracle", "PartitionBook", "Span", "count"]

_CAP, _SHIFT = 256, 30


@dataclass(frozen=True, slots=True)
class Live:
    """A live document: the offset that added it, passages (L, word counts), labels."""

    offset: int
    passages: tuple[Passage, ...]
    labels: dict[str, str]

    @property
    def length(self) -> int:
        """Tokens."""
        return sum(length for length, _ in self.passages)


@dataclass(slots=True)
class Span:
    """A document's life: offsets of the record that added it and of the one that ended it (None: it lives)."""

    document: bytes
    begin: int
    end: int | None = None

    def holds(self, cut: int) -> bool:
        """Whether the counts of all records before `cut` hold the document."""
        return self.begin < cut and (self.end is None or self.end >= cut)


@dataclass(frozen=True, slots=True)
class Deletion:
    """A delete that must have one receipt: its request id, whether there was a document, and what it ended."""

    request: str
    span: Span | None
    length: int


@dataclass(slots=True)
class PartitionBook:
    """What one partition's records come to."""

    next_offset: int = 0
    live: dict[bytes, Live] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    open: dict[bytes, Span] = field(default_factory=dict)
    deletions: dict[int, Deletion] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    totals: Counter[str] = field(default_factory=Counter)
    origins: set[bytes] = field(default_factory=set)

    def live_at(self, cut: int) -> list[Span]:
        """Return the documents that the records before `cut` leave."""
        return [span for span in self.spans if span.holds(cut)]


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts of the live documents: ordered pairs (first word not after the second), documents and tokens by word."""

    pairs: dict[tuple[str, str], int]
    frequency: dict[str, int]
    tokens: dict[str, int]
    documents: int


class Oracle:
    """Follows the documents topic, record by record."""

    def __init__(self, partitions: int) -> None:
        self.books = [PartitionBook() for _ in range(partitions)]

    def take(
        self,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes]],
    ) -> None:
        """Take the next record of a partition in."""
        book = self.books[partition]
        book.next_offset = offset + 1
        asked = understand(key, value, headers)
        if asked.kind == "refused":
            book.refused.add(offset)
            book.totals["rejected"] += 1
        elif asked.kind == "nothing" or key is None:
            return
        elif home(key, len(self.books)) != partition:
            book.totals["moved"] += 1
        elif _is_repetition(book, dict(headers).get("st-origin")):
            book.totals["repeated"] += 1
        elif asked.kind == "add":
            _add(book, key, Live(offset, asked.passages, asked.labels))
        else:
            _delete(book, key, offset, asked.request)

    def counts(self) -> Counted:
        """Count the live documents of all partitions."""
        return count(live for book in self.books for live in book.live.values())


def _is_repetition(book: PartitionBook, origin: bytes | None) -> bool:
    """Whether a record that was sent home from another partition has come before."""
    if origin is None:
        return False
    known = origin in book.origins
    book.origins.add(origin)
    return known


def _add(book: PartitionBook, key: bytes, new: Live) -> None:
    have = book.live.get(key)
    if have is not None and (have.passages, have.labels) == (new.passages, new.labels):
        book.totals["unchanged"] += 1
        return
    book.totals["added" if have is None else "replaced"] += 1
    _end(book, key, new.offset)
    book.live[key] = new
    book.open[key] = Span(key, new.offset)
    book.spans.append(book.open[key])


def _delete(book: PartitionBook, key: bytes, offset: int, request: str) -> None:
    have = book.live.pop(key, None)
    book.totals["not_found" if have is None else "deleted"] += 1
    book.deletions[offset] = Deletion(request, _end(book, key, offset), 0 if have is None else have.length)


def _end(book: PartitionBook, key: bytes, offset: int) -> Span | None:
    span = book.open.pop(key, None)
    if span is not None:
        span.end = offset
    return span


def count(documents: Iterable[Live]) -> Counted:
    """Count documents one by one: h_i h_j w for two words, h_i (h_i - 1) w for one, w = 2^30 f(L) / (L (L - 1))."""
    pairs: dict[tuple[str, str], int] = {}
    frequency, tokens, number = Counter[str](), Counter[str](), 0
    for document in documents:
        number += 1
        frequency.update({word for _, words in document.passages for word in words})
        for length, words in document.passages:
            tokens.update(words)
            weight = _weight(length)
            present = sorted(words)
            for k, first in enumerate(present):
                for second in present[k:]:
                    times = words[first] * (words[second] - (first == second))
                    if times * weight:
                        pairs[first, second] = pairs.get((first, second), 0) + times * weight
    return Counted(pairs, dict(frequency), dict(tokens), number)


def _weight(length: int) -> int:
    if length < 2:
        return 0
    pairs = length * (length - 1)
    # Rounded to the nearest, halves upwards.
    return (2 * (min(length, _CAP) << _SHIFT) + pairs) // (2 * pairs)
