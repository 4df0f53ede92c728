"""Topics as people arrange them: merged and split in a tree, found by a word, and as the data of a picture.

    TopicTree      which topics are alike, from single topics to one; groups and split: an arrangement of it
    merge_topics   an arrangement as a smaller matrix of topics
    search_topics  the topics that a word is in
    pyldavis_data  what pyLDAvis draws, as MapData, without a document

Everything follows from A and the shares of topics, so it reveals nothing beyond a model that was released. Merged
topics are for display: the model keeps its own, and an update or a deletion changes those.

Notation: A (n, r) columns on the simplex, z (r,) shares with sum 1, W = A diag(z) their joint distribution.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import leaves_list
from scipy.special import xlogy

from streamtopic.counts.arrays import Float, Int64, Positions
from streamtopic.errors import UsageError

__all__ = ["MapData", "TopicHit", "TopicTree", "merge_topics", "pyldavis_data", "search_topics"]

# The weights of probability against lift that a picture offers.
_STEP = 0.01
_BARS = ("Term", "Category", "Freq", "Total", "logprob", "loglift")


def merge_topics(A: Float, shares: Float, groups: npt.ArrayLike) -> tuple[Float, Float]:
    """Return the topics of groups, (n, g), and their shares, (g,): means of their topics, weighted by shares.

    groups: (r,) the group of each topic, from 0 on without a gap.
    Raises UsageError if the groups do not fit the topics. A group without a share gets the plain mean.
    """
    group = np.asarray(groups, np.intp)
    count = int(group.max(initial=-1)) + 1
    fits = group.shape == shares.shape and group.min(initial=0) >= 0
    if not fits or len(np.unique(group)) < count:
        raise UsageError(f"{len(group)} topics for {len(shares)}: give one group for each topic, numbered from 0")
    numbers = np.arange(count)
    member = (group[:, None] == numbers).astype(float)
    merged_shares = shares @ member
    has_share = merged_shares[group] > 0
    weights = np.where(has_share, shares, 1.0)
    columns = (A * weights) @ member
    totals = weights @ member
    return np.asarray(columns / totals), np.asarray(merged_shares)


@dataclass(frozen=True, slots=True, eq=False)
class TopicTree:
    """Topics in a tree: the two that are most alike are merged, again and again.

    linkage: (r - 1, 4) as in scipy.cluster.hierarchy: the two clusters that merge, the height, and the topics below.
        Clusters 0 ... r - 1 are the topics, and cluster r + k is the result of merge k. The height is the information
        about words, in bits for each word occurrence, that this merge and all before it have lost.

    A merge of topics a and b loses (z_a + z_b) times their Jensen-Shannon divergence, weighted by z_a and z_b. So small
    topics merge early, and a large topic stays apart (Slonim and Tishby 1999, "Agglomerative Information Bottleneck").
    Ties go to the first pair.
    """

    linkage: Float

    @classmethod
    def of(cls, A: Float, shares: Float) -> "TopicTree":
        """Build the tree. Cost: n r^2.

        A: (n, r). shares: (r,).
        """
        r = len(shares)
        joint = A * shares
        cluster = np.arange(r)
        sizes = np.ones(r)
        losses = [_losses(joint, k) for k in range(r)]
        lost = np.array(losses)
        np.fill_diagonal(lost, np.inf)
        linkage = np.zeros((max(r - 1, 0), 4))
        height = 0.0
        for step in range(r - 1):
            least = int(np.argmin(lost))
            a, b = divmod(least, r)
            height += max(float(lost[a, b]), 0.0)
            pair = sorted((int(cluster[a]), int(cluster[b])))
            sizes[a] += sizes[b]
            linkage[step] = *pair, height, sizes[a]
            joint[:, a] += joint[:, b]
            cluster[a] = r + step
            # The place of b stays empty.
            joint[:, b] = 0.0
            lost[b] = lost[:, b] = np.inf
            there = np.isfinite(lost[a])
            anew = _losses(joint, a)[there]
            lost[a, there] = anew
            lost[there, a] = anew
        return cls(linkage)

    @property
    def topics(self) -> int:
        """How many topics there are, r."""
        return len(self.linkage) + 1

    @property
    def order(self) -> Positions:
        """The topics in the order of the leaves, (r,): topics that are alike are together."""
        if self.topics < 2:
            return np.arange(self.topics)
        return np.asarray(leaves_list(self.linkage), np.intp)

    def members(self, cluster: int) -> Positions:
        """Return the topics of a cluster, ascending."""
        found = list[int]()
        waiting = [cluster]
        while waiting:
            one = waiting.pop()
            if one < self.topics:
                found.append(one)
            else:
                waiting += self._halves(one)
        return np.array(sorted(found), np.intp)

    def groups(self, count: int) -> Int64:
        """Return the group of each topic, (r,), for an arrangement of `count` groups, numbered by their first topics.

        Raises UsageError if there are not that many topics.
        """
        if not 1 <= count <= self.topics:
            raise UsageError(f"{count} groups of {self.topics} topics: ask from 1 to {self.topics}")
        group = np.arange(self.topics)
        for step in range(self.topics - count):
            topics = self.members(self.topics + step)
            group[topics] = topics[0]
        return _numbered(group)

    def split(self, groups: npt.ArrayLike, group: int) -> Int64:
        """Return an arrangement with one of its groups split as the tree splits it: the inverse of the last merge.

        groups: (r,) as `groups` or `split` gave them.
        Raises UsageError if the group holds one topic or is not a cluster of the tree.
        """
        before = np.asarray(groups, np.int64)
        topics = np.flatnonzero(before == group)
        merged = range(self.topics, self.topics + len(self.linkage))
        for cluster in merged:
            if np.array_equal(self.members(cluster), topics):
                _, second = self._halves(cluster)
                after = before.copy()
                new_group = before.max() + 1
                after[self.members(second)] = new_group
                return _numbered(after)
        raise UsageError(f"group {group} holds {len(topics)} topics that the tree does not join: split a merged group")

    def _halves(self, cluster: int) -> tuple[int, int]:
        """Return the two clusters that a cluster was merged from."""
        merge = self.linkage[cluster - self.topics]
        return int(merge[0]), int(merge[1])


def _losses(joint: Float, k: int) -> Float:
    """Return the bits that a merge of column k with each column would lose, (r,). joint: W (n, r)."""
    together = joint + joint[:, [k]]
    own = _content(joint)
    merged = _content(together)
    lost = own + own[k] - merged
    return np.asarray(lost / np.log(2))


def _content(joint: Float) -> Float:
    """Return sum of W log W less z log z for each column, (r,)."""
    z = joint.sum(axis=0)
    of_words = xlogy(joint, joint).sum(axis=0)
    return np.asarray(of_words - xlogy(z, z))


def _numbered(group: Int64) -> Int64:
    """Return groups numbered from 0 on by their first topics."""
    _, first, inverse = np.unique(group, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    return np.asarray(rank[inverse], np.int64)


@dataclass(frozen=True, slots=True)
class TopicHit:
    """A topic that a word is in.

    topic: its position.
    of_word: the share of the word's occurrences that is in this topic.
    of_topic: the share of the topic's occurrences that is this word.
    rank: the word's place among those of the topic by probability, from 1 on.
    """

    topic: int
    of_word: float
    of_topic: float
    rank: int


def search_topics(A: Float, shares: Float, words: Sequence[str], word: str) -> tuple[TopicHit, ...]:
    """Return the topics that a word is in, those first that hold most of it.

    A: (n, r). shares: (r,). words: (n,) the words of A's rows.
    Raises UsageError for a word that the model does not have, with words that look alike.
    """
    if word not in words:
        alike = get_close_matches(word, words, 3)
        remedy = f"words that look alike are {', '.join(alike)}" if alike else "take a word of the model"
        raise UsageError(f"{word!r} is not a word of this model: {remedy}")
    position = list(words).index(word)
    row = A[position]
    joint = row * shares
    ranks = 1 + np.count_nonzero(row < A, axis=0)
    total = max(float(joint.sum()), np.finfo(float).tiny)
    hits = []
    for k in np.argsort(-joint, kind="stable").tolist():
        share = float(row[k])
        if share > 0:
            of_word = float(joint[k]) / total
            hit = TopicHit(k, of_word, share, int(ranks[k]))
            hits.append(hit)
    return tuple(hits)


class MapData(dict[str, Any]):
    """What pyLDAvis draws: its `save_html(data, "map.html")` and `display` take it in place of their `PreparedData`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the data in lists."""
        return dict(self)

    def to_json(self) -> str:
        """Return the data as the text that is in a page."""
        return json.dumps(self)


def pyldavis_data(A: Float, shares: Float, words: Sequence[str], tokens: float, terms: int = 30) -> MapData:
    """Return what pyLDAvis draws, in place of its `PreparedData`.

    A: (n, r). shares: (r,), not negative, sum 1. words: (n,) the words of A's rows.
    tokens: word occurrences in all; frequencies are shares of it.
    terms: bars of a topic.
    Raises UsageError for fewer than two topics. Source: Sievert and Shirley 2014, "LDAvis".
    """
    r = len(shares)
    if r < 2:
        raise UsageError("a map of topics needs two of them: fit more topics")
    order = np.argsort(-shares, kind="stable")
    columns = A[:, order]
    joint = columns * shares[order]
    p = joint.sum(axis=1)
    live = np.flatnonzero(p)
    columns = columns[live]
    joint = joint[live]
    p = p[live]
    shown = [words[k] for k in live.tolist()]
    terms = min(terms, len(live))
    info, chosen = _term_table(columns, joint, p, shown, tokens, terms)
    x, y = _map(columns).T.tolist()
    numbers = list(range(1, r + 1))
    percent = (100 * shares[order]).tolist()
    options = {"xlab": "PC1", "ylab": "PC2"}
    token_table = _token_table(joint, p, shown, tokens, chosen)
    topics = (order + 1).tolist()
    places = {"x": x, "y": y, "topics": numbers, "cluster": [1] * r, "Freq": percent}
    data = {
        "mdsDat": places,
        "tinfo": info,
        "token.table": token_table,
        "R": terms,
        "lambda.step": _STEP,
        "plot.opts": options,
        "topic.order": topics,
    }
    return MapData(data)


def _map(columns: Float) -> Float:
    """Return places of topics in the plane, (r, 2), by classical scaling of their Jensen-Shannon distances."""
    # Twice the loss of a merge of equal shares is the divergence itself.
    half = columns / 2
    r = columns.shape[1]
    found = [_losses(half, k) for k in range(r)]
    divergence = np.maximum(np.array(found), 0.0)
    centring = np.eye(r) - 1 / r
    inner = -0.5 * centring @ divergence @ centring
    symmetric = (inner + inner.T) / 2
    values, vectors = np.linalg.eigh(symmetric)
    # Eigenvalues ascend, and the last two directions hold most.
    scales = np.sqrt(np.maximum(values[-2:], 0.0))
    places = vectors[:, -2:] * scales
    return np.asarray(places[:, ::-1])


def _term_table(
    columns: Float, joint: Float, p: Float, words: Sequence[str], tokens: float, terms: int
) -> tuple[dict[str, list[Any]], Positions]:
    """Return the bars of all topics and of each, and the words that are in any of them, ascending."""
    z = joint.sum(axis=0)
    with np.errstate(divide="ignore"):
        logprob = np.log(columns)
        loglift = logprob - np.log(p)[:, None]
    given = joint / p[:, None]
    information = xlogy(given, given) - xlogy(given, z)
    saliency = p * information.sum(axis=1)
    by_saliency = np.argsort(-saliency, kind="stable")
    salient = by_saliency[:terms]
    falling = np.arange(terms, 0.0, -1.0)
    frequency = p * tokens
    table: dict[str, list[Any]] = {name: [] for name in _BARS}
    most = frequency[salient]
    _add_bars(table, words, salient, "Default", (most, most, falling, falling))
    chosen = [salient]
    for topic in range(joint.shape[1]):
        own = logprob[:, topic]
        lift = loglift[:, topic]
        bars = _any_relevant(own, lift, terms)
        chosen.append(bars)
        counts = joint[bars, topic] * tokens
        numbers = (counts, frequency[bars], own[bars], lift[bars])
        category = f"Topic{topic + 1}"
        _add_bars(table, words, bars, category, numbers)
    return table, np.unique(np.concatenate(chosen))


def _add_bars(
    table: dict[str, list[Any]], words: Sequence[str], bars: Positions, category: str, numbers: Sequence[Float]
) -> None:
    """Add the bars of a category to the table, words at some positions. numbers: of each bar, as _BARS orders them."""
    table["Term"] += [words[k] for k in bars.tolist()]
    table["Category"] += [category] * len(bars)
    for name, column in zip(_BARS[2:], numbers, strict=True):
        table[name] += column.tolist()


def _any_relevant(logprob: Float, loglift: Float, terms: int) -> Positions:
    """Return the words that are among the first of a topic for some weight of probability against lift, ascending."""
    there = np.flatnonzero(np.isfinite(logprob))
    own = logprob[there]
    lift = loglift[there]
    found = set()
    weights = np.linspace(0.0, 1.0, round(1 / _STEP) + 1)
    for weight in weights.tolist():
        relevance = weight * own + (1 - weight) * lift
        by_relevance = np.argsort(-relevance, kind="stable")
        first = by_relevance[:terms]
        found.update(there[first].tolist())
    return np.array(sorted(found), np.intp)


def _token_table(
    joint: Float, p: Float, words: Sequence[str], tokens: float, chosen: Positions
) -> dict[str, list[Any]]:
    """Return the share of each chosen word in each topic in which it occurs about once or more."""
    by_word = sorted(chosen.tolist(), key=words.__getitem__)
    table: dict[str, list[Any]] = {"Topic": [], "Freq": [], "Term": []}
    for word in by_word:
        counts = np.rint(joint[word] * tokens)
        there = np.flatnonzero(counts)
        table["Topic"] += (there + 1).tolist()
        of_word = p[word] * tokens
        shares = counts[there] / of_word
        table["Freq"] += shares.tolist()
        table["Term"] += [words[word]] * len(there)
    return table
