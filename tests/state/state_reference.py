"""What the state must be, in plain Python: live documents, recounted from nothing."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np

from streamtopic.counts import Weighting


@dataclass
class LiveDocuments:
    """Documents by id: (offset, passages, labels)."""

    weighting: Weighting = field(default_factory=Weighting)
    documents: dict = field(default_factory=dict)

    def recount(self, before=None):
        """Return (documents, frequency, tokens, heavy, pairs) by word, from the definition, for offsets before one."""
        frequency, tokens, heavy, pairs, number = Counter(), Counter(), Counter(), defaultdict(int), 0
        for offset, passages, _ in self.documents.values():
            if before is not None and offset >= before:
                continue
            number += 1
            held, total = Counter(), sum(length for length, _ in passages)
            for _, words in passages:
                held.update(words)
            frequency.update(set(held))
            tokens.update(held)
            heavy.update({word for word, times in held.items() if 10 * times >= total})
            most = 2 if self.weighting.cap > 1 else total
            limited = [{word: min(times, most) for word, times in words.items()} for _, words in passages]
            counted = [
                length - sum(words.values()) + sum(held.values())
                for (length, words), held in zip(passages, limited, strict=True)
            ]
            weights = self.weighting.weights(counted, [sum(counted)] * len(counted)).tolist()
            for held, weight in zip(limited, weights, strict=True):
                for a in held:
                    for b in held:
                        if a < b:
                            pairs[a, b] += weight * held[a] * held[b]
                    pairs[a, a] += weight * held[a] * (held[a] - 1)
        pairs = {pair: value for pair, value in pairs.items() if value}
        return number, dict(frequency), dict(tokens), dict(heavy), pairs


def as_words(source, counts=None):
    """Return a count source in the same form."""
    words = list(source.words)
    counts = source.restrict(_all(words)) if counts is None else counts
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
    words, numbers, totals = vocabulary.held()
    return {number: word for number, word, live in zip(numbers.tolist(), words, totals[0], strict=True) if live}


def difference(after, before):
    """Return after - before of two recounts, zeros left out."""
    parts = [after[0] - before[0]]
    for new, old in zip(after[1:], before[1:], strict=True):
        parts.append({k: d for k in {*new, *old} if (d := new.get(k, 0) - old.get(k, 0))})
    return tuple(parts)


def _all(words):
    import numpy as np

    return np.arange(len(words))
