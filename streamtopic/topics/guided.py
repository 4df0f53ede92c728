"""Guided topics: topics that seed words stand for, chosen by people in place of a search.

The row of a guided topic is the harmonic mean of its seeds' rows of Qbar, entry by entry, brought to sum 1. A word has
a share in it only if all seeds meet it. Source: Lund et al. 2017, "Tandem Anchoring: a Multiword Anchor Approach for
Interactive Topic Modeling". There the mean is not brought to sum 1.

The row is defined as integers that follow from the counts by IEEE operations in a fixed order. So it is a function of
the retained counts, with the same bits on every path and machine, as rows of found anchors are. A guided topic does not
need a certificate of its own: the certificate of the model treats its row as exact, and it is.

    tandem_rows   the guided topics that the counts still hold, with their rows
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from streamtopic.counts import SymmetricCounts
from streamtopic.counts.arrays import Int64, Positions
from streamtopic.topics.learner_options import GuidedTopic, LearnerOptions
from streamtopic.topics.products import dense_rows

__all__ = ["GuidedRows", "tandem_rows"]

# Parts of 1 in which entries of a row are counted: entries and sums of them are exact in a double.
_PARTS = 2.0**40


@dataclass(frozen=True, slots=True, eq=False)
class GuidedRows:
    """The guided topics of a model.

    topics: those that go on, each with the seeds that are words of the model.
    rows: (g, n) integers, one row a topic, none of them empty.
    notes: a sentence for each topic that has ended or lacks a seed.
    """

    topics: tuple[GuidedTopic, ...]
    rows: Int64
    notes: tuple[str, ...] = ()


def tandem_rows(q: SymmetricCounts, mass: Int64, words: Sequence[str], options: LearnerOptions) -> GuidedRows:
    """Return the guided topics and their rows.

    q: Q, in which words without mass may be left of earlier counts.
    mass: (n,) row sums.
    words: (n,) the words of Q, ascending by code point.
    options: they name the guided topics.

    A topic goes on with the seeds that are left. It ends where no seed is left, where no word meets all of them, or
    where an earlier topic has the same ones.
    Cost: the entries of the seeds' rows, and n for each seed.
    """
    topics = []
    rows = []
    notes = []
    taken: dict[tuple[int, ...], str] = {}
    for topic in options.guided:
        places = _places(words, mass, topic.seeds)
        row = _tandem(q, mass, np.array(places, np.intp))
        ended = _why_ended(places, row, taken)
        if ended:
            notes.append(f"guided topic {topic.name} has ended: {ended}")
            continue
        if len(places) < len(topic.seeds):
            notes.append(f"guided topic {topic.name} goes on with {len(places)} of {len(topic.seeds)} seeds")
        taken[tuple(places)] = topic.name
        left = tuple(words[k] for k in places)
        topics.append(replace(topic, seeds=left))
        rows.append(row)
    stacked = np.array(rows, np.int64).reshape(len(rows), q.n)
    return GuidedRows(tuple(topics), stacked, tuple(notes))


def _places(words: Sequence[str], mass: Int64, seeds: Sequence[str]) -> list[int]:
    """Return the ascending positions of the seeds that are words of the model."""
    found = set()
    for seed in seeds:
        at = bisect_left(words, seed)
        if at < len(words) and words[at] == seed and mass[at] > 0:
            found.add(at)
    return sorted(found)


def _tandem(q: SymmetricCounts, mass: Int64, seeds: Positions) -> Int64:
    """Return the harmonic mean of the seeds' rows of Qbar in parts of 2^-40, (n,)."""
    rows = dense_rows(q, seeds)
    met = (rows > 0).all(axis=0)
    inverse = np.zeros(q.n)
    # Seed after seed, since a library may add up several of them in another order.
    for row, own in zip(rows, mass[seeds], strict=True):
        inverse[met] += float(own) / row[met]
    mean = np.zeros(q.n)
    if len(seeds):
        mean[met] = len(seeds) / inverse[met]
    return np.rint(mean * _PARTS).astype(np.int64)


def _why_ended(places: Sequence[int], row: Int64, taken: dict[tuple[int, ...], str]) -> str:
    """Say why a topic has ended; "" where it goes on. taken: the seeds of earlier topics, and their names."""
    if not places:
        return "none of its seeds is a word of the model"
    if not row.any():
        return "no word meets all of its seeds"
    same = taken.get(tuple(places))
    if same is not None:
        return f"the seeds that are left are those of {same}"
    return ""
