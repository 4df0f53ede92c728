"""Phrases of a service's topics: one pass over the texts that the log holds of the documents that are counted now.

Redis holds no order of words, so phrases are counted from the log, when somebody asks. Nothing is kept for them. A
document that was deleted is not among those that Redis counts, so its record is not looked at, whether or not the log
still holds it.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streamtopic.documents.events import text_in
from streamtopic.errors import InvalidEvent, UsageError
from streamtopic.signed import Release
from streamtopic.sources import Dialect
from streamtopic.state import Connection, Reader, Snapshot
from streamtopic.state.documents import document_ids
from streamtopic.streams import EventLog, Record, pages
from streamtopic.topics.phrases import TOP_WORDS, Pair, PhraseFinder, PhraseReport, choose_phrases
from streamtopic.words.text import spaced, tokenize

__all__ = ["DocumentsTopic", "PhraseCounts", "count_phrases", "read_phrases"]

# A service that ingests all the time would never be read at one point; after so many readings the last one is shown.
_READINGS = 3

_LiveIds = Mapping[int, frozenset[bytes]]
Update = Callable[[int, int | None], None]
"""Called with the number of records read so far, and their total."""


@dataclass(frozen=True, slots=True)
class DocumentsTopic:
    """Where texts are.

    log, name: the log, and the name of its topic of documents.
    dialect: of the records.
    """

    log: EventLog
    name: str
    dialect: Dialect


@dataclass(frozen=True, slots=True)
class PhraseCounts:
    """Numbers of documents, all at one point.

    pairs: documents that hold each pair of words side by side.
    frequency: documents that hold each word. Documents that were sent as counts are among them.
    whole: whether no document came or went while the ids of documents were read.
    """

    pairs: Mapping[Pair, int]
    frequency: Mapping[str, int]
    whole: bool


def read_phrases(
    connection: Connection, reader: Reader, topic: DocumentsTopic, release: Release, top: int, update: Update
) -> PhraseReport:
    """Return the phrases of a version's topics, in the documents that are counted now.

    top: the most phrases of a topic.
    update: told how many records of the log were read, of how many.

    Raises UsageError where the version shows no words of topics, StateCorrupt, ComponentUnreachable.
    """
    if not release.top_words:
        raise UsageError(
            f"version {release.version} shows no words of its topics, so there is nothing to make phrases of: set "
            'publish = "topics", or ask for another version'
        )
    topics = [spaced(words[:TOP_WORDS]) for words in release.top_words]
    found = count_phrases(connection, reader, topic, PhraseFinder(topics), update)
    chosen = choose_phrases(topics, found.pairs, found.frequency, top=top)
    return PhraseReport(release.version, chosen, found.whole)


def count_phrases(
    connection: Connection, reader: Reader, topic: DocumentsTopic, finder: PhraseFinder, update: Update
) -> PhraseCounts:
    """Count the pairs of neighbours in the documents that are counted now. Raises as `read_phrases`.

    The numbers depend on the documents alone: on the newest record of each, which no compaction removes.
    """
    for _ in range(_READINGS):
        snapshot = reader.snapshot()
        live = _live_ids(connection, snapshot)
        whole = sum(map(len, live.values())) == snapshot.documents
        if whole:
            break
    frequencies = zip(snapshot.words, snapshot.frequency.tolist(), strict=True)
    frequency = {word: documents for word, documents in frequencies if word in finder.words}
    pairs = Counter[Pair]()
    total = sum(snapshot.offsets.values())
    done = 0
    for partition, end in snapshot.offsets.items():
        newest = _newest_pairs(topic, partition, end, live[partition], finder)
        for own in newest.values():
            pairs.update(own)
        done += end
        update(done, total)
    return PhraseCounts(pairs, frequency, whole)


def _live_ids(connection: Connection, snapshot: Snapshot) -> _LiveIds:
    """Return the ids of the documents that a snapshot counts, by partition."""
    found: dict[int, set[bytes]] = {partition: set() for partition in snapshot.offsets}
    for partition, ids in document_ids(connection, snapshot):
        found[partition].update(ids)
    return {partition: frozenset(ids) for partition, ids in found.items()}


def _newest_pairs(
    topic: DocumentsTopic, partition: int, end: int, live: frozenset[bytes], finder: PhraseFinder
) -> dict[bytes, frozenset[Pair]]:
    """Return the pairs in the newest text of each live document of a partition, of those that have pairs.

    end: offset at which reading ends.
    live: ids of the partition's documents.
    """
    newest: dict[bytes, frozenset[Pair]] = {}
    begin = topic.log.begin(topic.name, partition)
    for page in pages(topic.log, topic.name, partition, begin, end):
        # The last page may reach beyond the end.
        for record in (record for record in page if record.offset < end):
            own = _own(topic.dialect, record)
            # Without a value a record ends its document, or only another key of it, and then the document goes on.
            if own is not None and own.value is not None and own.key in live:
                found = finder.pairs(tokenize(text_in(own.value) or ""))
                newest.pop(own.key, None)
                if found:
                    newest[own.key] = found
    return newest


def _own(dialect: Dialect, record: Record) -> Record | None:
    """Return a record in the service's own dialect, None for one that was refused. Raises ComponentUnreachable."""
    try:
        return dialect.translate(record)
    except InvalidEvent:
        return None
