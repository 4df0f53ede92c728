"""Derives the truth, whatever faults there were, from the records of documents and of requests alone.

It uses plain dictionaries and Python's own integers, and shares nothing with the code that counts and stores.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from campaign.reading import demanded, home, understand

if TYPE_CHECKING:
    from campaign.reading import Passage


# Binary places of a weight, by the tokens from which on a longer document has no more mass.
_SHIFTS = {256: 30, 1: 36}


@dataclass(slots=True)
class Life:
    """The life of a document.

    document: its id.
    passages: (L, word counts) each, where L is the number of all tokens.
    labels: task to class.
    begin: offset of the record that added it.
    end: offset of the record that ended it; None while it lives.
    about: each person whom it is about to the time of the record that first said so, milliseconds since 1970.
    """

    document: bytes
    passages: tuple[Passage, ...]
    labels: dict[str, str]
    begin: int
    end: int | None = None
    about: dict[str, int] = field(default_factory=dict)

    @property
    def length(self):
        """Number of tokens."""
        return sum(length for length, _ in self.passages)

    def holds(self, cut):
        """Whether the counts of all records before `cut` hold the document."""
        return self.begin < cut and (self.end is None or self.end >= cut)


@dataclass(frozen=True, slots=True)
class Deletion:
    """A deletion that must have one receipt.

    request: its request id; "" if it has none.
    salt: that the requester sent; empty if there was none.
    life: that it ended; None if there was no document.
    time_ms: when it was appended, milliseconds since 1970.
    """

    request: str
    salt: bytes
    life: Life | None
    time_ms: int


@dataclass(slots=True)
class PartitionBook:
    """The result of one partition's records.

    next_offset: where reading continues.
    live: id to live document.
    lives: of all documents that there ever were.
    deletions: offset to the deletion at it.
    refused: offsets of records that are refused.
    totals: kind of effect to number of records.
    """

    next_offset: int = 0
    live: dict[bytes, Life] = field(default_factory=dict)
    lives: list[Life] = field(default_factory=list)
    deletions: dict[int, Deletion] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    totals: Counter[str] = field(default_factory=Counter)

    def add(self, new):
        """Take in the content of a document."""
        have = self.live.get(new.document)
        # An identical add leaves the document as old as it was, so a version before it holds it still.
        if have is not None and (have.passages, have.labels) == (new.passages, new.labels):
            self.totals["unchanged"] += 1
            # Whom a document is about may change without its content, from this record on.
            have.about = {subject: have.about.get(subject, since) for subject, since in new.about.items()}
            return
        self.totals["added" if have is None else "replaced"] += 1
        self.end(new.document, new.begin)
        self.live[new.document] = new
        self.lives.append(new)

    def delete(self, key, offset, asked, time_ms):
        """Take in a delete."""
        life = self.end(key, offset)
        self.totals["not_found" if life is None else "deleted"] += 1
        self.deletions[offset] = Deletion(asked.request, asked.salt, life, time_ms)

    def refuse(self, key, offset, asked, time_ms, *, here):
        """End the document of a refused record; the end has a receipt if the record asks for one.

        here: whether this is the partition of its key.
        """
        self.refused.add(offset)
        self.totals["rejected"] += 1
        life = self.end(key, offset)
        self.totals["deleted_by_refusal"] += life is not None
        if asked.request and (here or life is not None):
            self.deletions[offset] = Deletion(asked.request, asked.salt, life, time_ms)

    def end(self, key, offset):
        """End the life of a document at an offset; return it, None if there is none."""
        life = self.live.pop(key, None)
        if life is not None:
            life.end = offset
        return life


@dataclass(slots=True)
class Counted:
    """Counts of the live documents.

    pairs: (word, word), the lesser word first, to the sum of weights.
    frequency: word to number of documents.
    tokens: word to number of tokens.
    heavy: word to number of documents in which it is heavy.
    documents: their number.
    """

    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    frequency: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    heavy: Counter[str] = field(default_factory=Counter)
    documents: int = 0


class Oracle:
    """Follows the topics of documents and of requests, record by record.

    books: by partition.
    demands: requests by their ids.
    misplaced: keys of the records by which ingest asks for deletions in other partitions, without those that have a
        tombstone.
    """

    def __init__(self, partitions):
        self.books = [PartitionBook() for _ in range(partitions)]
        self.demands = {}
        self.misplaced = set()
        # Deletes in other partitions than those of their keys: key, partition, offset and time.
        self._away = []
        # Key to the time of the newest record in its own partition.
        self._newest = {}

    def take(self, partition, offset, key, value, headers, time_ms=0):
        """Take in the next record of a partition of the documents topic.

        time_ms: when it was appended, by the broker's clock, milliseconds since 1970.
        """
        book = self.books[partition]
        book.next_offset = offset + 1
        asked = understand(key, value, headers)
        here = key is not None and home(key, len(self.books)) == partition
        if here:
            self._newest[key] = max(self._newest.get(key, 0), time_ms)
        elif asked.kind == "delete":
            self._away.append((key, partition, offset, time_ms))
        match asked.kind:
            case "add" if here:
                about = dict.fromkeys(asked.subjects, time_ms)
                book.add(Life(key, asked.passages, asked.labels, offset, about=about))
            case "delete" if here:
                book.delete(key, offset, asked, time_ms)
            case "delete":
                # The service sends a tombstone to the partition of the key, which takes effect there.
                book.totals["forwarded"] += 1
            case "add" | "refused":
                book.refuse(key, offset, asked, time_ms, here=here)

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
        return [
            f"{key!r} at {partition}/{offset}"
            for key, partition, offset, time_ms in self._away
            if self._newest.get(key, -1) < time_ms
        ]

    def counts(self):
        """Count the live documents of all partitions."""
        return count(live for book in self.books for live in book.live.values())


def count(documents, cap=256):
    """Return the counts of documents: g_i g_j w for two words of a passage, g_i (g_i - 1) w for one word.

    g: how often a word is in the passage, twice at most unless `cap` is 1. w = 2^shift f(L) / (L (G - 1)) for G counted
    tokens of the passage, and L of the document. A word is heavy in a document if it is a tenth of them or more.
    """
    found = Counted()
    for document in documents:
        found.documents += 1
        held = Counter()
        for _, words in document.passages:
            held.update(words)
        found.tokens.update(held)
        found.frequency.update(held.keys())
        found.heavy.update(word for word, times in held.items() if 10 * times >= document.length)
        _count_pairs(document.passages, cap, found.pairs)
    return found


def _count_pairs(passages, cap, pairs):
    """Add the pairs of a document's passages to `pairs`."""
    each = [{word: times if cap == 1 else min(times, 2) for word, times in words.items()} for _, words in passages]
    limited = [
        length - sum(words.values()) + sum(counted.values())
        for (length, words), counted in zip(passages, each, strict=True)
    ]
    for counted, counted_tokens in zip(each, limited, strict=True):
        weight = _weight(counted_tokens, sum(limited), cap)
        present = sorted(counted)
        for k, first in enumerate(present):
            for second in present[k:]:
                times = counted[first] * (counted[second] - (first == second))
                if times * weight:
                    pairs[first, second] += times * weight


def _weight(tokens, total, cap):
    """Return the weight of a passage's pairs.

    tokens: those of the passage that count in pairs.
    total: those of its document.
    """
    # One token has no pair.
    if tokens < 2:
        return 0
    # The passage has tokens / total of the document's mass, for tokens (tokens - 1) pairs.
    mass, pairs = min(total, cap) << _SHIFTS[cap], total * (tokens - 1)
    # Rounded to the nearest, halves upwards, in integers of any size: a float would round a second time.
    return (2 * mass + pairs) // (2 * pairs)
