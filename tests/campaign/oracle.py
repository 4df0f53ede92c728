"""Derives the truth, whatever faults there were, from the records of documents and of requests alone.

It uses plain dictionaries and Python's own integers, and shares nothing with the code that counts and stores.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from campaign.reading import LONGEST_KEY, demanded, home, understand

if TYPE_CHECKING:
    from campaign.reading import Passage


_CAP, _SHIFT = 256, 30


@dataclass(frozen=True, slots=True)
class Live:
    """A live document.

    passages: (L, word counts) each, where L is the number of all tokens.
    labels: task to class.
    """

    passages: tuple[Passage, ...]
    labels: dict[str, str]

    @property
    def length(self):
        """Number of tokens."""
        return sum(length for length, _ in self.passages)


@dataclass(slots=True)
class Span:
    """The life of a document.

    document: its id.
    begin: offset of the record that added it.
    end: offset of the record that ended it; None while it lives.
    about: each person whom it is about to the time of the record that first said so, milliseconds since 1970.
    """

    document: bytes
    begin: int
    end: int | None = None
    about: dict[str, int] = field(default_factory=dict)

    def holds(self, cut):
        """Whether the counts of all records before `cut` hold the document."""
        return self.begin < cut and (self.end is None or self.end >= cut)


@dataclass(frozen=True, slots=True)
class Deletion:
    """A deletion that must have one receipt.

    request: its request id; "" if it has none.
    span: the life that it ended; None if there was no document.
    salt: that the requester sent; empty if there was none.
    document: the id that it names.
    time_ms: when it was appended, milliseconds since 1970.
    """

    request: str
    span: Span | None
    salt: bytes
    document: bytes = b""
    time_ms: int = 0


@dataclass(frozen=True, slots=True)
class Away:
    """A delete in another partition than the one of its key.

    document: its key.
    partition, offset: its place.
    home: the partition of its key.
    time_ms: when it was appended, milliseconds since 1970.
    """

    document: bytes
    partition: int
    offset: int
    home: int
    time_ms: int


@dataclass(slots=True)
class PartitionBook:
    """The result of one partition's records.

    next_offset: where reading continues.
    live: id to live document.
    spans: the lives of all documents that there ever were.
    open: id to the life that lasts.
    deletions: offset to the deletion at it.
    refused: offsets of records that are refused.
    totals: kind of effect to number of records.
    """

    next_offset: int = 0
    live: dict[bytes, Live] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    open: dict[bytes, Span] = field(default_factory=dict)
    deletions: dict[int, Deletion] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    totals: Counter[str] = field(default_factory=Counter)

    def live_at(self, cut):
        """Return the lives that last after the records before `cut`."""
        return [span for span in self.spans if span.holds(cut)]


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts of the live documents.

    pairs: (word, word), the lesser word first, to the sum of weights.
    frequency: word to number of documents.
    tokens: word to number of tokens.
    heavy: word to number of documents in which it is heavy.
    documents: their number.
    """

    pairs: dict[tuple[str, str], int]
    frequency: dict[str, int]
    tokens: dict[str, int]
    heavy: dict[str, int]
    documents: int


class Oracle:
    """Follows the topics of documents and of requests, record by record.

    books: by partition.
    away: deletes in other partitions than those of their keys.
    newest: key to the time of the newest record in its own partition.
    demands: requests by their ids.
    misplaced: keys of the records by which ingest asks for deletions in other partitions, without those that have a
        tombstone.
    """

    def __init__(self, partitions):
        self.books = [PartitionBook() for _ in range(partitions)]
        self.away = []
        self.newest = {}
        self.demands = {}
        self.misplaced = set()

    def take(self, partition, offset, key, value, headers, time_ms=0):
        """Take in the next record of a partition of the documents topic.

        time_ms: when it was appended, by the broker's clock, milliseconds since 1970.
        """
        book = self.books[partition]
        book.next_offset = offset + 1
        asked = understand(key, value, headers)
        belongs = partition if key is None else home(key, len(self.books))
        elsewhere = belongs != partition
        if key is not None:
            self._place(key, Away(key, partition, offset, belongs, time_ms), asked.kind)
        if asked.kind == "refused" or (asked.kind == "add" and elsewhere):
            book.refused.add(offset)
            book.totals["rejected"] += 1
            _refuse(book, key, offset, asked, time_ms, here=key is not None and not elsewhere)
        elif asked.kind == "nothing" or key is None:
            return
        elif elsewhere:
            # The service sends a tombstone to the partition of the key, which takes effect there.
            book.totals["forwarded"] += 1
        elif asked.kind == "add":
            about = dict.fromkeys(asked.subjects, time_ms)
            _add(book, key, Live(asked.passages, asked.labels), Span(key, offset, about=about))
        else:
            _delete(book, key, offset, asked, time_ms)

    def take_request(self, key, value, time_ms):
        """Take in the next record of the requests topic. A tombstone ends nothing, since anybody may write one."""
        name = (key or b"").decode(errors="replace")
        if name.startswith("misplaced-"):
            (self.misplaced.discard if value is None else self.misplaced.add)(name)
        demand = None if value is None else demanded(key, value, time_ms)
        if demand is not None:
            # The first one under an id counts.
            self.demands.setdefault(name, demand)
        if name in self.demands:
            self.demands[name].erased = value is None

    def reach(self, partition, offset):
        """Note that every record before this offset was taken in."""
        # The last offsets of a partition may have no record: compaction and transactions leave gaps.
        book = self.books[partition]
        book.next_offset = max(book.next_offset, offset)

    def missing(self):
        """Return the deletes in foreign partitions that never took effect in the partitions of their keys."""
        # Each must have become a record there, or met one that is newer.
        return [away for away in self.away if self.newest.get(away.document, -1) < away.time_ms]

    def _place(self, key, record, kind):
        """Note whether a record is in the partition of its key, or must take effect there."""
        if record.home == record.partition:
            self.newest[key] = max(self.newest.get(key, 0), record.time_ms)
        elif kind == "delete" and 0 < len(key) <= LONGEST_KEY:
            self.away.append(record)

    def counts(self):
        """Count the live documents of all partitions."""
        return count(live for book in self.books for live in book.live.values())


def _add(book, key, new, span):
    have = book.live.get(key)
    # An identical add leaves the document as old as it was, so a version before it holds it still.
    if have == new:
        book.totals["unchanged"] += 1
        # Whom a document is about may change without its content, from this record on.
        before = book.open[key].about
        book.open[key].about = {subject: before.get(subject, since) for subject, since in span.about.items()}
        return
    book.totals["added" if have is None else "replaced"] += 1
    _end(book, key, span.begin)
    book.live[key], book.open[key] = new, span
    book.spans.append(span)


def _delete(book, key, offset, asked, time_ms):
    have = book.live.pop(key, None)
    book.totals["not_found" if have is None else "deleted"] += 1
    book.deletions[offset] = Deletion(asked.request, _end(book, key, offset), asked.salt, key, time_ms)


def _refuse(book, key, offset, asked, time_ms, *, here):
    """End the document of a refused record; the end has a receipt if the record asks for one."""
    have = book.live.pop(key, None) if key is not None else None
    span = _end(book, key, offset) if have is not None and key is not None else None
    if have is not None:
        book.totals["deleted_by_refusal"] += 1
    if asked.request and (here or have is not None):
        book.deletions[offset] = Deletion(asked.request, span, asked.salt, key or b"", time_ms)


def _end(book, key, offset):
    span = book.open.pop(key, None)
    if span is not None:
        span.end = offset
    return span


def count(documents):
    """Return the counts of documents: g_i g_j w for two words of a passage, g_i (g_i - 1) w for one word.

    g: how often a word is in the passage, twice at most. w = 2^30 f(L) / (L (G - 1)) for G counted tokens of the
    passage, and L of the document. A word is heavy in a document if it is a tenth of them or more.
    """
    pairs = {}
    frequency, tokens, heavy, number = Counter[str](), Counter[str](), Counter[str](), 0
    for document in documents:
        number += 1
        held = Counter[str]()
        for _, words in document.passages:
            held.update(words)
        tokens.update(held)
        frequency.update(held.keys())
        heavy.update(word for word, times in held.items() if 10 * times >= document.length)
        # A word counts at most twice in the pairs of a passage.
        each = [{word: min(times, 2) for word, times in words.items()} for _, words in document.passages]
        limited = [
            length - sum(words.values()) + sum(counted.values())
            for (length, words), counted in zip(document.passages, each, strict=True)
        ]
        for (_, words), counted, counted_tokens in zip(document.passages, each, limited, strict=True):
            weight = _weight(counted_tokens, sum(limited))
            present = sorted(words)
            for k, first in enumerate(present):
                for second in present[k:]:
                    times = counted[first] * (counted[second] - (first == second))
                    if times * weight:
                        pairs[first, second] = pairs.get((first, second), 0) + times * weight
    return Counted(pairs, dict(frequency), dict(tokens), dict(heavy), number)


def _weight(tokens, total):
    """Return the weight of a passage's pairs.

    tokens: those of the passage that count in pairs.
    total: those of its document.
    """
    # One token has no pair.
    if tokens < 2:
        return 0
    # The passage has tokens / total of the document's mass, for tokens (tokens - 1) pairs.
    mass, pairs = min(total, _CAP) << _SHIFT, total * (tokens - 1)
    # Rounded to the nearest, halves upwards, in integers of any size: a float would round a second time.
    return (2 * mass + pairs) // (2 * pairs)
