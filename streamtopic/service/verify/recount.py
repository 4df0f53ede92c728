"""Counting again from the log alone, with none of the code that keeps the counts, to compare with what is kept.

recount            documents to counts, in memory
documents_in_log   the documents that a log leaves alive
Recounts           the counts and labelled documents that a version covers, from the log
compare            how far two models are apart
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from streamtopic.counts import Cooccurrence, Counts, DocumentBatch, Passage, Weighting, count
from streamtopic.errors import InvalidEvent
from streamtopic.events import Add, Heartbeat, decode_record, document_of
from streamtopic.service.schedule.payload import Labelled, labelled_by_task
from streamtopic.streams import MURMUR2, pages, partition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from streamtopic.events import Passages
    from streamtopic.service.schedule.payload import TaskOptions
    from streamtopic.service.verify.sources import Sources
    from streamtopic.streams import EventLog, Record

__all__ = [
    "Difference",
    "DocumentsInLog",
    "Numbering",
    "Recount",
    "Recounts",
    "compare",
    "cut_of",
    "documents_in_log",
    "recount",
]

# Documents that are counted at a time, so that their pairs fit into memory.
BATCH = 4_000
STRIDE = 1_000


def recount(documents: Iterable[Passages], weighting: Weighting) -> Counts:
    """Count documents from scratch, in memory, over all their words.

    documents: passages of each document, (L, word counts) where L counts every token.
    """
    numbering = Numbering()
    return numbering.count([numbering.number(passages) for passages in documents], weighting)


class Numbering:
    """Gives words numbers as they come. Documents over numbers take a tenth of the memory of their words."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def number(self, passages: Passages) -> tuple[Passage, ...]:
        """Return a document over numbers, for `count`."""
        return tuple(self._numbered(length, counts) for length, counts in passages)

    def _numbered(self, length: int, counts: Mapping[str, int]) -> Passage:
        ids = self._ids
        numbers = [ids.setdefault(word, len(ids)) for word in counts]
        return Passage(length, np.array(numbers, np.int32), np.array(list(counts.values()), np.int32))

    def count(self, documents: Sequence[Sequence[Passage]], weighting: Weighting) -> Counts:
        """Count documents that were numbered here, over the words that they hold, in the order of words."""
        words, place = self._places(documents)
        parts = []
        for start in range(0, len(documents), BATCH):
            rows = [_all_placed(passages, place) for passages in documents[start : start + BATCH]]
            parts.append(count(DocumentBatch.build(rows), len(words), weighting))
        return Counts(words, Cooccurrence.sum(parts, len(words)))

    def batch(self, documents: Sequence[Sequence[Passage]]) -> tuple[list[str], DocumentBatch]:
        """Return documents that were numbered here as one batch, over the words that they hold, in their order."""
        words, place = self._places(documents)
        return words, DocumentBatch.build([_all_placed(passages, place) for passages in documents])

    def _places(self, documents: Sequence[Sequence[Passage]]) -> tuple[list[str], npt.NDArray[np.int32]]:
        used = np.zeros(len(self._ids), np.bool_)
        for passages in documents:
            for passage in passages:
                used[passage.words] = True
        words = sorted(word for word, number in self._ids.items() if used[number])
        place = np.full(len(self._ids), -1, np.int32)
        place[[self._ids[word] for word in words]] = np.arange(len(words), dtype=np.int32)
        return words, place


def _all_placed(passages: Sequence[Passage], place: npt.NDArray[np.int32]) -> list[Passage]:
    return [_placed(passage, place) for passage in passages]


def _placed(passage: Passage, place: npt.NDArray[np.int32]) -> Passage:
    words = place[passage.words]
    order = np.argsort(words)
    return Passage(passage.length, words[order], passage.counts[order])


@dataclass(frozen=True, slots=True)
class DocumentsInLog:
    """The documents that a log leaves alive before some offsets, by partition and id, over numbers of words.

    alive: the passages of each document.
    labels: task to class, of each document that has labels.
    added: offset of the record that added each document.
    numbering: gives the words of `alive` back.
    whole: whether the log still holds every record before the offsets, so that nothing was erased.
    """

    alive: Mapping[tuple[int, str], Sequence[Passage]]
    labels: Mapping[tuple[int, str], Mapping[str, str]]
    added: Mapping[tuple[int, str], int]
    numbering: Numbering
    whole: bool

    def added_before(self, offsets: Mapping[int, int]) -> Self:
        """Return only the documents that were added before these offsets, by partition."""
        alive = {key: body for key, body in self.alive.items() if self.added[key] < offsets.get(key[0], 0)}
        return replace(self, alive=alive)

    def recount(self, weighting: Weighting) -> Counts:
        """Count them from scratch."""
        return self.numbering.count(list(self.alive.values()), weighting)


def documents_in_log(
    log: EventLog,
    topic: str,
    offsets: Mapping[int, int],
    progress: Callable[[int, int | None], None],
    partitioner: str = MURMUR2,
) -> DocumentsInLog:
    """Read the documents that the log leaves alive before these offsets, with the events' own codec.

    offsets: partition to the offset at which reading ends. partitioner: name of the hash by which keys belong to
    partitions. A record in another partition than that of its key adds no document there.
    """
    total, done = sum(offsets.values()), 0
    alive: dict[tuple[int, str], Sequence[Passage]] = {}
    labels: dict[tuple[int, str], Mapping[str, str]] = {}
    added: dict[tuple[int, str], int] = {}
    numbering, partitions = Numbering(), log.partitions(topic)
    whole = True
    for partition, end in offsets.items():
        expected = 0
        for record in _records(log, topic, partition, end):
            whole &= record.offset == expected
            expected = record.next_offset
            # A producer with another hash wrote the record to the wrong partition: ingest does not count it there.
            here = not record.key or partition_of(record.key, partitions, partitioner) == partition
            if here:
                _apply(record, alive, labels, added, numbering)
            if expected % STRIDE == 0:
                progress(done + expected, total)
        whole &= expected == end
        done += end
        progress(done, total)
    return DocumentsInLog(alive, labels, added, numbering, whole)


def _records(log: EventLog, topic: str, partition: int, end: int) -> Iterator[Record]:
    for page in pages(log, topic, partition, log.begin(topic, partition), end):
        yield from (record for record in page if record.offset < end)


def _apply(
    record: Record,
    alive: dict[tuple[int, str], Sequence[Passage]],
    labels: dict[tuple[int, str], Mapping[str, str]],
    added: dict[tuple[int, str], int],
    numbering: Numbering,
) -> None:
    try:
        event = decode_record(record)
    except InvalidEvent:
        event = None
    document = document_of(record.key)
    if document is None or isinstance(event, Heartbeat):
        return
    # A record that is refused ends what its id held, as a delete does.
    key = record.partition, document
    before, had = alive.pop(key, None), labels.pop(key, {})
    if isinstance(event, Add):
        alive[key] = numbering.number(event.passages)
        if event.labels:
            labels[key] = event.labels
        # An identical add changes nothing, so the document was still added by the record before.
        if before is None or had != event.labels or not _alike(before, alive[key]):
            added[key] = record.offset


def _alike(one: Sequence[Passage], other: Sequence[Passage]) -> bool:
    return len(one) == len(other) and all(
        a.length == b.length and dict(zip(a.words, a.counts, strict=True)) == dict(zip(b.words, b.counts, strict=True))
        for a, b in zip(one, other, strict=True)
    )


@dataclass(frozen=True, slots=True)
class Recount:
    """Counts and labelled documents at a cut. whole: whether the log still holds every record before the cut."""

    counts: Counts
    labelled: Labelled
    whole: bool

    def over(self, words: Sequence[str]) -> Labelled:
        """Return the labelled documents over a model's words."""
        return Labelled({task: documents.over(words) for task, documents in self.labelled.by_task.items()})


class Recounts:
    """Counts of the documents that the log leaves alive at a cut, each made once."""

    def __init__(self, sources: Sources, update: Callable[[int, int | None], None]) -> None:
        self._sources = sources
        self._update = update
        self._made: dict[object, Recount] = {}
        self.options = sources.learner
        self.tasks = sources.options.tasks

    def of(self, record: Mapping[str, Any]) -> Recount:
        """Return the counts that a version covers."""
        cut, base = cut_of(record), None
        # In the paper's mode an update covers its base model's documents that are left, and no later ones.
        if record.get("guarantee") == "theorem" and record["kind"] == "unlearn":
            base = dict(self._sources.state.releases()).get(record["base"])
        return self.at(cut) if base is None else self.at(cut, cut_of(base))

    def at(self, cut: Mapping[int, int], added: Mapping[int, int] | None = None) -> Recount:
        """Return the counts at a cut; added: only of documents that were added before these offsets."""
        key = tuple(sorted(cut.items())), tuple(sorted((added or {}).items()))
        if key not in self._made:
            self._made[key] = self._counted(cut, added)
        return self._made[key]

    def _counted(self, cut: Mapping[int, int], added: Mapping[int, int] | None) -> Recount:
        sources = self._sources
        found = documents_in_log(sources.log, sources.names.documents, cut, self._update, sources.partitioner)
        found = found if added is None else found.added_before(added)
        labelled = _labelled(found.alive, found.labels, found.numbering, self.tasks)
        return Recount(found.recount(self.options.weighting), labelled, found.whole)


def cut_of(record: Mapping[str, Any]) -> dict[int, int]:
    """Return a version's cut: partition to the offset up to which its records are in it."""
    return {int(partition): offset for partition, offset in record["cut"].items()}


def _labelled(
    alive: Mapping[tuple[int, str], Sequence[Passage]],
    labels: Mapping[tuple[int, str], Mapping[str, str]],
    numbering: Numbering,
    options: TaskOptions,
) -> Labelled:
    """Return the labelled documents of a log by id, over their own words, as they would be read from Redis.

    alive, labels: by partition and id; numbering: what the passages of `alive` were numbered by.
    """
    chosen = [key for key in alive if not options.tasks.keys().isdisjoint(labels.get(key, {}))]
    # A head is a function of the documents in this order, bit for bit.
    chosen.sort(key=lambda key: key[1].encode())
    words, batch = numbering.batch([alive[key] for key in chosen])
    return Labelled(labelled_by_task(batch, [labels[key] for key in chosen], words, options))


@dataclass(frozen=True, slots=True)
class Difference:
    """The distance of two models: the largest difference of A's entries over all words of both."""

    max_abs_difference: float
    words_equal: bool


class Topics(Protocol):
    """A model before noise: words (n,) ascending, A (n, r)."""

    @property
    def words(self) -> tuple[str, ...]:
        """Its words."""

    @property
    def A(self) -> npt.NDArray[np.float64]:  # noqa: N802 -- the paper's symbol
        """Words given topics."""


def compare(one: Topics, other: Topics) -> Difference:
    """Compare two models before noise, topic by topic: both models sort their topics by anchor word."""
    words = sorted({*one.words, *other.words})
    place = {word: k for k, word in enumerate(words)}
    topics = max(one.A.shape[1], other.A.shape[1])
    gap = np.zeros((len(words), topics))
    for fit, sign in ((one, 1.0), (other, -1.0)):
        gap[[place[word] for word in fit.words], : fit.A.shape[1]] += sign * fit.A
    return Difference(float(np.abs(gap).max(initial=0.0)), one.words == other.words)
