"""A partition that is driven without a log, and what it must be, in plain Python: live documents, recounted."""

from dataclasses import dataclass, field

import numpy as np

from added_documents import added_documents
from campaign.oracle import Life, count
from crashes import copied, put_back
from streamtopic.state import Applied, DocumentChanges, ModelSettings, PartitionWriter
from streamtopic.state.meta import POSITIONS


@dataclass
class LiveDocuments:
    """Documents by id: (offset, passages, labels)."""

    documents: dict = field(default_factory=dict)

    def recount(self):
        """Return (documents, frequency, tokens, heavy, pairs) by word, from the definition."""
        lives = [Life(name, passages, labels, offset) for name, (offset, passages, labels) in self.documents.items()]
        found = count(lives)
        return found.documents, dict(found.frequency), dict(found.tokens), dict(found.heavy), dict(found.pairs)


def as_words(source, counts=None):
    """Return a count source in the same form."""
    words = list(source.words)
    counts = source.restrict(np.arange(len(words))) if counts is None else counts
    rows = [row for row in range(len(words)) for _ in range(counts.indptr[row], counts.indptr[row + 1])]
    pairs = {(words[a], words[b]): int(value) for a, b, value in zip(rows, counts.columns, counts.values, strict=True)}
    frequency = {word: int(n) for word, n in zip(words, source.frequency, strict=True) if n}
    tokens = {word: int(n) for word, n in zip(words, source.tokens, strict=True) if n}
    heavy = {word: int(n) for word, n in zip(words, source.heavy, strict=True) if n}
    return source.documents, frequency, tokens, heavy, pairs


def plain(stored, words):
    """Return {id: (passages, labels)} of what was read, in its order."""
    batch, found = stored.batch, {}
    for k, document in enumerate(stored.ids):
        passages = []
        for row in np.flatnonzero(batch.owners == k):
            span = slice(batch.indptr[row], batch.indptr[row + 1])
            held = dict(zip((words[w] for w in batch.words[span]), batch.counts[span].tolist(), strict=True))
            passages.append((int(batch.lengths[row]), held))
        found[document] = (tuple(passages), dict(stored.labels[k]))
    return found


def words_by_id(vocabulary):
    """Return the words of live documents by id."""
    words, numbers, totals = vocabulary.words_to_keep()
    return {number: word for number, word, live in zip(numbers.tolist(), words, totals[0], strict=True) if live}


def difference(after, before):
    """Return after - before of two recounts, zeros left out."""
    parts = [after[0] - before[0]]
    for new, old in zip(after[1:], before[1:], strict=True):
        parts.append({k: d for k in {*new, *old} if (d := new.get(k, 0) - old.get(k, 0))})
    return tuple(parts)


class Run:
    """One partition driven by steps, beside the reference."""

    def __init__(self, connection, model):
        self.connection, self.model = connection, model
        self.live = LiveDocuments()
        self.offset = 0
        self.pending = {}
        self.open()
        self.saved = self._whole()

    def open(self):
        self.state = PartitionWriter.open(self.connection, self.model, 0, ModelSettings(1, 256))

    def add(self, number, passages, labels=None):
        document = f"d{number}".encode()
        self.live.documents[document] = (self.offset, passages, labels or {})
        self.pending[document] = (document, self.offset, passages, labels or {})
        self.offset += 1

    def delete(self, number):
        document = f"d{number}".encode()
        self.live.documents.pop(document, None)
        self.pending[document] = None
        self.offset += 1

    def plan(self):
        """Return what waits as one flush."""
        state, keys = self.state, self.state.keys
        if state.connection.call("HMGET", keys.meta, "fence", "facts") != [
            state.fence.encode(),
            POSITIONS.pack(state.meta),
        ]:
            self.state.reload()
        stored, _ = self.state.documents(self.pending)
        added = added_documents(self.state, *filter(None, self.pending.values()))
        return self.state.plan(DocumentChanges(self.offset, added, stored))

    def flush(self):
        assert self.state.commit(self.plan()) == Applied()
        self.pending = {}

    def sum(self):
        self.flush()
        assert self.state.sum_changes() == Applied()

    def reopen(self):
        self.flush()
        self.open()

    def save(self):
        self.flush()
        self.saved = self._whole()

    def set_back(self):
        """Put the partition and the reference back to what was saved, as a Redis does that starts from a snapshot."""
        keys, documents, self.offset = self.saved
        put_back(self.connection, keys, f"{self.state.keys.tag}*")
        self.live.documents = documents.copy()

    def dump(self):
        """Return all keys of the partition."""
        return copied(self.connection, f"{self.state.keys.tag}*")

    def _whole(self):
        """Return all keys, and what the reference knows of them."""
        return self.dump(), self.live.documents.copy(), self.offset
