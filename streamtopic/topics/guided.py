"""Guided topics: seed words represent a topic, chosen by people in place of the search for anchors.

The row of such a topic is the harmonic mean of its seeds' rows of Qbar, entry by entry, brought to sum 1. A word has a
share in it only if all seeds meet it. Source: Lund et al. 2017, "Tandem Anchoring: a Multiword Anchor Approach for
Interactive Topic Modeling". There the mean is not brought to sum 1. The row is made of integers, so the certificate of
the model treats it as exact, as it treats rows of found anchors.

A topic goes on with the seeds that are left. It ends, and the model has one row less, if

    no seed is left, or no word meets all of those that are left         `tandem_rows`
    an earlier topic has the same seeds left                             `tandem_rows`
    its row depends on those of earlier topics                           `independent_rows` in E; `ended_topics`
    no word is a mixture with a share of it, so it would have no mass    `ended_topics`

Each of these is decided in integers, or by arithmetic with the same bits on every path and machine, from the retained
counts alone. So a deletion ends a topic exactly if a model that never saw the documents does not have it.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from streamtopic.counts import SymmetricCounts
from streamtopic.counts.arrays import Float, Int64, Mask, Positions
from streamtopic.topics.learner_options import GuidedTopic, LearnerOptions
from streamtopic.topics.mixtures import independent, inner_products
from streamtopic.topics.products import dense_rows, times
from streamtopic.topics.simplex import solve_rows

__all__ = ["GuidedRows", "ended_topics", "tandem_rows"]

# Parts of 1 in which entries of a row are counted: entries and sums of them are exact in a double.
_PARTS = 2.0**40
# A topic goes on if one of its seeds, or of this many words that lean to it most, has this share of it or more.
_LEANING = 64
_LEAST_SHARE = 2.0**-7


@dataclass(frozen=True, slots=True, eq=False)
class GuidedRows:
    """The guided topics of a model.

    topics: those that go on, each with the seeds that are words of the model.
    rows: (g, n) integers, one row a topic, none of them empty.
    remarks: by name a sentence for each topic that has ended or lacks a seed.
    """

    topics: tuple[GuidedTopic, ...]
    rows: Int64
    remarks: Mapping[str, str] = field(default_factory=dict)

    def without(self, ended: Mask, reason: str) -> "GuidedRows":
        """Return the topics without those that have ended. ended: (g,)."""
        going_on = np.flatnonzero(~ended).tolist()
        remarks = dict(self.remarks)
        for k in np.flatnonzero(ended).tolist():
            name = self.topics[k].name
            remarks[name] = _has_ended(name, reason)
        topics = tuple(self.topics[k] for k in going_on)
        return GuidedRows(topics, self.rows[going_on], remarks)


def _has_ended(name: str, reason: str) -> str:
    return f"guided topic {name} has ended: {reason}"


def tandem_rows(q: SymmetricCounts, mass: Int64, words: Sequence[str], options: LearnerOptions) -> GuidedRows:
    """Return the guided topics and their rows.

    q: Q.
    mass: (n,) row sums.
    words: (n,) the words of Q, ascending by code point.
    options: they name the guided topics.
    Cost: the entries of the seeds' rows, and n for each seed.
    """
    topics = []
    rows = []
    remarks: dict[str, str] = {}
    taken: dict[tuple[int, ...], str] = {}
    for topic in options.guided:
        places = _places(words, topic.seeds)
        row = _tandem(q, mass, np.array(places, np.intp))
        reason = _why_ended(places, row, taken)
        if reason:
            remarks[topic.name] = _has_ended(topic.name, reason)
            continue
        declared = len(topic.seeds)
        if len(places) < declared:
            remarks[topic.name] = f"guided topic {topic.name} goes on with {len(places)} of {declared} seeds"
        taken[tuple(places)] = topic.name
        left = tuple(words[k] for k in places)
        topics.append(replace(topic, seeds=left))
        rows.append(row)
    stacked = np.array(rows, np.int64).reshape(len(rows), q.n)
    return GuidedRows(tuple(topics), stacked, remarks)


def ended_topics(
    q: SymmetricCounts, mass: Int64, squares: Float, words: Sequence[str], rows: Int64, guided: GuidedRows
) -> Mask:
    """Return which of the guided topics cannot be kept together with the other ones, (g,).

    q, mass, words: as in `tandem_rows`.
    squares: (n,) D^2.
    rows: N (r, n), the rows of all topics, those of guided ones last.
    guided: the guided topics.

    A topic cannot if its row depends on those before it as far as sums can tell, or if no word has a share of it. Words
    are asked as a cold start solves them: the seeds, and the words of which it makes most in relation to their mass.
    Cost: n r^2, and for each guided topic about 70 rows of Q times r.
    """
    r = len(rows)
    found = r - len(guided.topics)
    thin = np.ascontiguousarray((rows * squares).T)
    G = inner_products(rows, thin)
    ended = np.zeros(len(guided.topics), np.bool_)
    for k in range(len(ended)):
        going_on = found + np.flatnonzero(~ended[:k])
        those = np.concatenate([np.arange(found), going_on, [found + k]])
        ended[k] = not independent(G[np.ix_(those, those)])
    if ended.any():
        return ended
    own = rows.sum(axis=1)
    for k, topic in enumerate(guided.topics):
        asked = _leaning(guided.rows[k], mass, _places(words, topic.seeds))
        product = times(q, thin, rows=asked)
        B = product / mass[asked][:, None] / own
        shares = solve_rows(G, np.ascontiguousarray(B))
        ended[k] = shares[:, found + k].max() < _LEAST_SHARE
    return ended


def _leaning(row: Int64, mass: Int64, seeds: Sequence[int]) -> Positions:
    """Return the ascending positions of the seeds and of the words that lean to a topic most."""
    # Stable, so that of words that lean alike the first ones are taken on every machine.
    order = np.argsort(-(row / mass), kind="stable")[:_LEANING]
    return np.union1d(order, np.array(seeds, np.intp)).astype(np.intp)


def _places(words: Sequence[str], seeds: Sequence[str]) -> list[int]:
    """Return the ascending positions of the seeds that are words of the model."""
    found = set()
    for seed in seeds:
        at = bisect_left(words, seed)
        if at < len(words) and words[at] == seed:
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
    """Say why a topic has ended; "" if it goes on. taken: the seeds of earlier topics, and their names."""
    if not places:
        return "none of its seeds is a word of the model"
    if not row.any():
        return "no word meets all of its seeds"
    same = taken.get(tuple(places))
    if same is not None:
        return f"the seeds that are left are those of {same}"
    return ""
