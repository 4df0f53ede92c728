"""What must be true after any faults, told from the records of the documents topic alone.

Plain dictionaries and Python's own integers: nothing here is shared with the code that counts and stores.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamtopic.lab.faults.reading import LONGEST_KEY, home, understand

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streamtopic.lab.faults.reading import Asked, Passage

__all__ = ["Away", "Counted", "Deletion", "Live", "Oracle", "PartitionBook", "Span", "count"]

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
    """A delete that must have one receipt: its request id and salt, and what it ended, if there was a document."""

    request: str
    span: Span | None
    salt: bytes


@dataclass(frozen=True, slots=True)
class Away:
    """A record in another partition than its key's. asked: whether it is a delete; time_ms: when it was appended."""

    document: bytes
    partition: int
    offset: int
    home: int
    asked: bool
    time_ms: int


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

    def live_at(self, cut: int) -> list[Span]:
        """Return the documents that the records before `cut` leave."""
        return [span for span in self.spans if span.holds(cut)]


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts of the live documents: ordered pairs (first word not after the second); documents, tokens and documents
    in which it is heavy, by word.
    """

    pairs: dict[tuple[str, str], int]
    frequency: dict[str, int]
    tokens: dict[str, int]
    heavy: dict[str, int]
    documents: int


class Oracle:
    """Follows the documents topic, record by record."""

    def __init__(self, partitions: int) -> None:
        self.books = [PartitionBook() for _ in range(partitions)]
        self.away: list[Away] = []
        self.newest: dict[bytes, int] = {}

    def take(
        self,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes]],
        time_ms: int = 0,
    ) -> None:
        """Take the next record of a partition in. time_ms: when it was appended, by the broker's clock."""
        book = self.books[partition]
        book.next_offset = offset + 1
        asked = understand(key, value, headers)
        belongs = partition if key is None else home(key, len(self.books))
        elsewhere = belongs != partition
        if key is not None:
            self._place(key, Away(key, partition, offset, belongs, asked.kind == "delete", time_ms), asked.kind)
        if asked.kind == "refused" or (asked.kind == "add" and elsewhere):
            book.refused.add(offset)
            book.totals["rejected"] += 1
            _refuse(book, key, offset, asked, here=key is not None and not elsewhere)
        elif asked.kind == "nothing" or key is None:
            return
        elif elsewhere:
            # What the service sends home for it is a record of its own there.
            book.totals["forwarded"] += 1
        elif asked.kind == "add":
            _add(book, key, Live(offset, asked.passages, asked.labels))
        else:
            _delete(book, key, offset, asked)

    def reach(self, partition: int, offset: int) -> None:
        """Take notice that there is no record before this offset that was not taken in."""
        book = self.books[partition]
        book.next_offset = max(book.next_offset, offset)

    def missing(self) -> list[Away]:
        """Return what came to another partition than its key's, and never took effect where it belongs.

        A delete must have become a record there, or met one that is newer; of a refused change nobody waits for a
        receipt, so it need only have ended the document.
        """
        return [
            away
            for away in self.away
            if self.newest.get(away.document, -1) < away.time_ms
            and (away.asked or away.document in self.books[away.home].live)
        ]

    def _place(self, key: bytes, record: Away, kind: str) -> None:
        """Note which of the records of a key are at home, and which are not and must take effect there."""
        if record.home == record.partition:
            self.newest[key] = max(self.newest.get(key, 0), record.time_ms)
        elif kind != "nothing" and 0 < len(key) <= LONGEST_KEY:
            self.away.append(record)

    def counts(self) -> Counted:
        """Count the live documents of all partitions."""
        return count(live for book in self.books for live in book.live.values())


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


def _delete(book: PartitionBook, key: bytes, offset: int, asked: Asked) -> None:
    have = book.live.pop(key, None)
    book.totals["not_found" if have is None else "deleted"] += 1
    book.deletions[offset] = Deletion(asked.request, _end(book, key, offset), asked.salt)


def _refuse(book: PartitionBook, key: bytes | None, offset: int, asked: Asked, *, here: bool) -> None:
    """End what a refused record's id held; it has a receipt where the record asks for one."""
    have = book.live.pop(key, None) if key is not None else None
    span = _end(book, key, offset) if have is not None and key is not None else None
    if have is not None:
        book.totals["deleted_by_refusal"] += 1
    if asked.request and (here or have is not None):
        book.deletions[offset] = Deletion(asked.request, span, asked.salt)


def _end(book: PartitionBook, key: bytes, offset: int) -> Span | None:
    span = book.open.pop(key, None)
    if span is not None:
        span.end = offset
    return span


def count(documents: Iterable[Live]) -> Counted:
    """Count documents one by one: h_i h_j w for two words of a passage, h_i (h_i - 1) w for one.

    w = 2^30 f(L) / (L (l - 1)), L tokens of the document and l of the passage. A word is heavy in a document where it
    is a tenth of its tokens or more.
    """
    pairs: dict[tuple[str, str], int] = {}
    frequency, tokens, heavy, number = Counter[str](), Counter[str](), Counter[str](), 0
    for document in documents:
        number += 1
        held = Counter[str]()
        for _, words in document.passages:
            held.update(words)
        tokens.update(held)
        frequency.update(held.keys())
        heavy.update(word for word, times in held.items() if 10 * times >= document.length)
        for length, words in document.passages:
            weight = _weight(length, document.length)
            present = sorted(words)
            for k, first in enumerate(present):
                for second in present[k:]:
                    times = words[first] * (words[second] - (first == second))
                    if times * weight:
                        pairs[first, second] = pairs.get((first, second), 0) + times * weight
    return Counted(pairs, dict(frequency), dict(tokens), dict(heavy), number)


def _weight(length: int, total: int) -> int:
    """Return the weight of a passage's pairs; total: tokens of its document."""
    if length < 2:
        return 0
    # The passage has length / total of the document's mass, for length (length - 1) pairs.
    mass, pairs = (min(total, _CAP) << _SHIFT) * length, total * length * (length - 1)
    # Rounded to the nearest, halves upwards.
    return (2 * mass + pairs) // (2 * pairs)
