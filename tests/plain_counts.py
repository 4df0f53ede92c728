"""Pair counts as plain values, which are equal if documents, words and pairs are, whatever numbers the words have."""

import numpy as np

from streamtopic.counts import Weighting, count


def plain_counts(counts, words):
    """Return documents, the statistics of the words that they hold, and the value of each pair of words."""
    words = np.asarray(words, object)
    statistics = zip(words, *(column.tolist() for column in counts.statistics), strict=True)
    rows = np.repeat(words, np.diff(counts.indptr))
    pairs = zip(map(frozenset, zip(rows, words[counts.columns], strict=True)), counts.values.tolist(), strict=True)
    return counts.documents, {word: numbers for word, *numbers in statistics if numbers[0]}, dict(pairs)


def all_counts(counts):
    """Return the plain counts of all words of counts in Redis."""
    return plain_counts(counts.restrict(np.arange(len(counts.words))), counts.words)


def counts_in_log(found):
    """Return the plain counts of the documents that a recount of a log found alive."""
    words, batch = found.numbering.batch(list(found.alive.values()))
    return plain_counts(count(batch, len(words), Weighting(256)), words)
