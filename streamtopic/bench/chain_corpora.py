"""Small corpora on which an updated model has differed from a fresh one, or could differ.

Each kind is a function of a generator that returns a Pool: documents, and how to learn from them. Corpora are tiny, so
that thousands of chains run in minutes. They are rich in ties, in rows that are nearly the same, and in words at a
threshold: there decisions are hard.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from streamtopic.counts import MAX_LENGTH, Cooccurrence, DocumentBatch, count
from streamtopic.topics.learner_options import GuidedTopic, LearnerOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    Int64 = npt.NDArray[np.int64]
    Float = npt.NDArray[np.float64]

__all__ = ["KINDS", "Pool", "cyclic_images", "kind_of"]

_TOPICS = (1, 2, 2, 3, 3, 4, 5, 6, 8, 12, 20, 35, 50)


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Documents that come and go, and the options of a learner of them.

    names: (n,) words, ascending.
    batch: the documents, over positions of words.
    units: (documents,) the unit of each; documents of a unit come and go together.
    """

    names: tuple[str, ...]
    batch: DocumentBatch
    units: Int64
    options: LearnerOptions

    @property
    def size(self) -> int:
        """How many units there are."""
        return int(self.units.max()) + 1

    def counts(self, inside: npt.NDArray[np.bool_]) -> Cooccurrence:
        """Return the counts of some units over all words. inside: (size,)."""
        chosen = np.flatnonzero(inside[self.units])
        return count(self.batch.take(chosen), len(self.names), self.options.weighting)

    def holding(self, word: int) -> Int64:
        """Return the units that have a document with this word."""
        rows = np.repeat(np.arange(len(self.batch.lengths)), np.diff(self.batch.indptr))
        return np.unique(self.units[self.batch.owners[rows[self.batch.words == word]]])


def kind_of(seed: int) -> str:
    """Return the kind of the chain with this seed; kinds take turns."""
    return tuple(KINDS)[seed % len(KINDS)]


def cyclic_images(rng: np.random.Generator, order: int, bases: Int64, block: int, links: int) -> Int64:
    """Return documents and their images under a permutation of words of this order, (bases, order, words).

    bases: (documents, order * (block + links) + shared) word counts: `order` blocks, as many groups of words that link
    a block to the next one, and shared words, which the permutation leaves in place. Words of one block, the links to
    it and the shared ones have the same counts as their images, so a link leans to its two blocks alike. rng: gives
    words an order in which images are not side by side.
    """
    own, linking = order * block, order * (block + links)
    places = np.arange(bases.shape[1])
    step = places.copy()
    step[:own] = (places[:own] + block) % own
    if links:
        step[own:linking] = own + (places[own:linking] - own + links) % (linking - own)
    images = [bases]
    for _ in range(order - 1):
        moved = np.zeros_like(bases)
        moved[:, step] = images[-1]
        images.append(moved)
    shuffled: Int64 = np.stack(images, axis=1)[:, :, rng.permutation(bases.shape[1])]
    return shuffled


def _planted(rng: np.random.Generator) -> Pool:
    """Random planted topics, some with anchor words."""
    n, topics = int(rng.integers(12, 120)), _topics(rng)
    documents = int(rng.integers(20, 300))
    held = _drawn(rng, _mixed(rng, documents, _columns(rng, n, max(topics, 2))), _lengths(rng, documents))
    return _pool(rng, held, _options(rng, min(topics, n // 2)))


def _mirrored(rng: np.random.Generator) -> Pool:
    """Parts that are images of each other under a permutation of words; words between two parts lean to both alike."""
    order, inner = int(rng.choice([2, 2, 2, 2, 3, 4])), int(rng.choice([1, 1, 1, 2, 3]))
    block, links, shared = int(rng.integers(2 + inner, 90 // order)), int(rng.integers(0, 5)), int(rng.integers(0, 9))
    n, bases = order * (block + links) + shared, int(rng.integers(10, 150))
    columns = np.zeros((n, inner))
    # Frequent anchors that stay the same while rare words leave: zeros that are left of those must decide nothing.
    columns[:block] = rng.dirichlet(np.geomspace(1.0, 0.1, block), inner).T
    columns[:inner] = np.eye(inner) * float(rng.choice([0.1, 0.3, 0.6]))
    own = order * block
    for at in (slice(own, own + links), slice(own + (order - 1) * links, own + order * links)):
        columns[at] += 0.2 / max(links, 1)
    columns[n - shared :] += 0.2 / max(shared, 1)
    if rng.random() < 0.3:
        # Some documents are of two parts.
        columns[block : 2 * block] += 0.1 * columns[:block]
    held = _drawn(rng, _mixed(rng, bases, columns / columns.sum(axis=0)), _lengths(rng, bases))
    images = cyclic_images(rng, order, held, block, links)
    units = np.repeat(np.arange(bases), order)
    topics = order * inner if rng.random() < 0.9 else int(rng.integers(1, order * inner + 2))
    options = _options(rng, topics, max_df=1.0, anchor_min_df=float(rng.choice([0.05, 0.1, 0.2])))
    return _pool(rng, images.reshape(-1, n), options, units=units, shuffle=False)


def _duplicated(rng: np.random.Generator) -> Pool:
    """Words that always come together with another one, as often: equal rows."""
    n, topics, documents = int(rng.integers(8, 50)), _topics(rng), int(rng.integers(20, 200))
    held = _drawn(rng, _mixed(rng, documents, _columns(rng, n, max(topics, 2))), _lengths(rng, documents))
    twins = rng.choice(n, int(rng.integers(1, n + 1)), replace=False)
    return _pool(rng, np.hstack([held, held[:, twins]]), _options(rng, min(topics, n // 2)))


def _near_singular(rng: np.random.Generator) -> Pool:
    """Documents of a few patterns that are nearly the same: there are fewer directions than topics are asked for."""
    n, patterns, documents = int(rng.integers(10, 60)), int(rng.integers(1, 5)), int(rng.integers(20, 200))
    length = int(rng.choice([40, 200, 1_000, 6_000]))
    shapes = np.round(length * _columns(rng, n, patterns).T).astype(np.int64)
    held = shapes[rng.integers(0, patterns, documents)]
    others = rng.random(documents) < rng.choice([0.05, 0.3, 1.0])
    some = np.flatnonzero(others)
    held[some, rng.integers(0, n, len(some))] += rng.integers(1, 3, len(some))
    topics = patterns + int(rng.integers(0, 4))
    return _pool(rng, held, _options(rng, min(topics, n // 2), max_df=1.0))


def _giant(rng: np.random.Generator) -> Pool:
    """Documents of up to 8,192 tokens of one word, alone or with a few others, some of several passages."""
    n, topics, documents = int(rng.integers(12, 80)), _topics(rng), int(rng.integers(20, 150))
    held = _drawn(rng, _mixed(rng, documents, _columns(rng, n, max(topics, 2))), _lengths(rng, documents))
    rows, owners = [held], [np.arange(documents)]
    for _ in range(int(rng.integers(1, 8))):
        row = np.zeros(n, np.int64)
        row[rng.choice(n, int(rng.integers(0, 6)))] = 1
        word = rng.integers(0, n)
        row[word] = 0
        row[word] = int(rng.choice([300, 2_000, MAX_LENGTH])) - row.sum()
        passages = int(rng.choice([1, 1, 1, 3]))
        rows.append(np.repeat(row[None], passages, axis=0))
        owners.append(np.full(passages, documents))
        documents += 1
    return _pool(rng, np.vstack(rows), _options(rng, min(topics, n // 2)), owners=np.concatenate(owners))


def _two_words(rng: np.random.Generator) -> Pool:
    """Documents of two words: rows with few entries, many of them equal."""
    n, parts, documents = int(rng.integers(6, 60)), int(rng.integers(1, 6)), int(rng.integers(20, 300))
    home = rng.integers(0, parts, n)
    held = np.zeros((documents, n), np.int64)
    for row in held:
        first = rng.integers(0, n)
        same = np.flatnonzero(home == home[first])
        second = rng.choice(same) if rng.random() < 0.9 else rng.integers(0, n)
        row[first] += 1
        row[second] += 1
    topics = int(rng.integers(1, min(parts + 3, n // 2) + 1))
    return _pool(rng, held, _options(rng, topics, max_df=1.0, min_df=int(rng.choice([1, 1, 2]))))


def _one_document(rng: np.random.Generator) -> Pool:
    """Topics that one document makes nearly alone: its deletion takes a direction away."""
    lone, common, each = int(rng.integers(1, 8)), int(rng.integers(4, 30)), int(rng.integers(2, 8))
    documents, n = int(rng.integers(10, 100)), common + lone * each
    columns = np.zeros((n, 2))
    columns[:common] = _columns(rng, common, 2)
    held = _drawn(rng, _mixed(rng, documents, columns), _lengths(rng, documents))
    rows = []
    for k in range(lone):
        own = np.arange(common + k * each, common + (k + 1) * each)
        row = np.zeros(n, np.int64)
        row[own] = rng.integers(1, 20, each)
        if rng.random() < 0.7:
            row[rng.integers(0, common)] += 1
        rows.append(row)
        # An anchor is in two documents at least, so the second one holds little else.
        beside = np.zeros(n, np.int64)
        beside[rng.choice(own, int(rng.integers(1, each + 1)), replace=False)] = 1
        beside[rng.integers(0, common)] += 1
        rows.append(beside)
    options = _options(rng, int(rng.integers(1, lone + 3)), min_df=1, max_df=1.0, anchor_min_df=0.0)
    return _pool(rng, np.vstack([held, *rows]), options)


def _crossing(rng: np.random.Generator) -> Pool:
    """Words whose document frequency lies at a threshold: they enter and leave by additions and by deletions."""
    n, topics, documents = int(rng.integers(20, 120)), _topics(rng), int(rng.integers(60, 300))
    held = np.zeros((documents, n), np.int64)
    # Frequencies around both ends: at least 1 to 5 documents, and at most 20 of them or a share.
    around = np.where(rng.random(n) < 0.6, rng.integers(16, 28, n), rng.integers(1, 9, n)).clip(max=documents)
    home = rng.integers(0, max(topics, 2), n)
    subject = rng.integers(0, max(topics, 2), documents)
    for word in range(n):
        likely = np.where(subject == home[word], 12.0, 1.0)
        chosen = rng.choice(documents, int(around[word]), replace=False, p=likely / likely.sum())
        held[chosen, word] = rng.integers(1, 5, len(chosen))
    options = _options(
        rng,
        min(topics, n // 4),
        min_df=int(rng.choice([1, 2, 3, 5])),
        max_df=float(rng.choice([0.05, 0.08, 0.12])),
        anchor_min_df=float(rng.choice([0.0, 0.02, 0.05])),
        max_words=int(rng.choice([20_000, n, max(n // 2, 8)])),
    )
    return _pool(rng, held, options)


def _text(rng: np.random.Generator) -> Pool:
    """Text like docstrings: Zipf frequencies, words that come in bursts, lengths from 2 to 2,000 tokens."""
    n, topics, documents = int(rng.integers(60, 120)), _topics(rng), int(rng.integers(60, 300))
    zipf = 1.0 / (np.arange(n) + 2.0)
    lean = np.where(rng.random((n, max(topics, 2))) < 0.15, 12.0, 0.3)
    columns = zipf[:, None] * lean
    mixed = _mixed(rng, documents, columns / columns.sum(axis=0))
    burst = rng.gamma(0.3, size=mixed.shape) * mixed
    lengths = rng.lognormal(np.log(25), 1.0, documents).round().clip(2, 2_000).astype(np.int64)
    held = _drawn(rng, burst / burst.sum(axis=1, keepdims=True), lengths)
    options = _options(rng, min(topics, 24), max_df=float(rng.choice([0.05, 0.05, 0.2, 0.5])))
    return _pool(rng, held, options)


def _tiny(rng: np.random.Generator) -> Pool:
    """So few documents that a model can only just be learned, or cannot."""
    n, documents, topics = int(rng.integers(2, 13)), int(rng.integers(3, 20)), int(rng.integers(1, 5))
    held = rng.poisson(rng.uniform(0.1, 1.0), (documents, n))
    options = _options(rng, topics, min_df=1, max_df=1.0, anchor_min_df=0.0)
    return _pool(rng, held.astype(np.int64), options)


def _guided(rng: np.random.Generator) -> Pool:
    """Any other kind with guided topics, some of which have no words of their own or lose their seeds."""
    return _with_guides(rng, _UNGUIDED[int(rng.integers(len(_UNGUIDED)))](rng))


def _tiny_guided(rng: np.random.Generator) -> Pool:
    """Few documents and guided topics: often no word is a mixture of one, or all topics are guided and end."""
    n, documents = int(rng.integers(3, 16)), int(rng.integers(3, 25))
    held = rng.poisson(rng.uniform(0.1, 1.0), (documents, n))
    options = _options(rng, int(rng.integers(0, 3)), min_df=1, max_df=1.0, anchor_min_df=0.0)
    return _with_guides(rng, _pool(rng, held.astype(np.int64), options))


def _with_guides(rng: np.random.Generator, pool: Pool) -> Pool:
    """Return a pool whose topics are guided in part, or all of them."""
    rows = len(pool.batch.lengths)
    starts = pool.batch.indptr
    seeds = set[tuple[str, ...]]()
    for _ in range(int(rng.integers(1, 5))):
        row = int(rng.integers(rows))
        # Seeds of one document meet at first. Others may never meet.
        among = pool.batch.words[starts[row] : starts[row + 1]] if rng.random() < 0.7 else np.arange(len(pool.names))
        chosen = rng.choice(among, min(int(rng.integers(1, 5)), len(among)), replace=False)
        if len(chosen):
            seeds.add(tuple(sorted(pool.names[k] for k in chosen)))
    guided = tuple(GuidedTopic(f"guide {k}", own) for k, own in enumerate(sorted(seeds)))
    found = 0 if rng.random() < 0.2 and guided else min(pool.options.n_topics, int(rng.choice(_TOPICS)))
    topics = found + len(guided)
    most = max(pool.options.max_candidates, topics)
    options = replace(pool.options, learner="default", n_topics=topics, max_candidates=most, guided=guided)
    return replace(pool, options=options)


def _options(rng: np.random.Generator, topics: int, **fixed: Any) -> LearnerOptions:  # noqa: ANN401  options differ
    drawn: dict[str, Any] = {
        "learner": str(rng.choice(["default", "paper"], p=[0.7, 0.3])),
        "min_df": int(rng.choice([1, 2, 3, 5])),
        "max_df": float(rng.choice([1.0, 1.0, 0.5, 0.2, 0.05])),
        "anchor_min_df": float(rng.choice([0.0, 0.01, 0.05])),
        "max_candidates": max(int(rng.choice([2_000, 2_000, 20])), topics),
    }
    return LearnerOptions(n_topics=max(topics, 1), **{**drawn, **fixed})


def _pool(
    rng: np.random.Generator,
    held: Int64,
    options: LearnerOptions,
    *,
    owners: Int64 | None = None,
    units: Int64 | None = None,
    shuffle: bool = True,
) -> Pool:
    """Make a pool of word counts, (rows, n). owners: (rows,) document of each row; units: as in Pool."""
    rows, n = held.shape
    owners = np.arange(rows) if owners is None else owners
    documents = int(owners[-1]) + 1
    units = np.arange(documents) if units is None else units
    if shuffle:
        held = held[:, rng.permutation(n)]
    beyond = np.zeros(int(units.max()) + 1, np.int64)
    if rng.random() < 0.3:
        # Tokens of other words, the same number in all documents of a unit.
        beyond = rng.integers(0, 5, len(beyond))
    lengths = np.minimum(held.sum(axis=1) + beyond[units[owners]], MAX_LENGTH)
    row, word = np.nonzero(held)
    batch = DocumentBatch.whole(
        indptr=np.searchsorted(row, np.arange(rows + 1)).astype(np.int64),
        words=word.astype(np.int32),
        counts=held[row, word].astype(np.int32),
        lengths=lengths,
        owners=owners.astype(np.int32),
        documents=documents,
    )
    return Pool(tuple(f"w{k:03d}" for k in range(n)), batch, units, options)


def _topics(rng: np.random.Generator) -> int:
    return int(rng.choice(_TOPICS))


def _columns(rng: np.random.Generator, n: int, topics: int) -> Float:
    """Return topics as distributions over words, (n, topics); most have an anchor word."""
    columns = rng.dirichlet(np.full(n, float(rng.choice([0.1, 0.3, 1.0]))), topics).T
    anchored = min(topics, n // 2)
    columns[:anchored] = 0.0
    columns[np.arange(anchored), np.arange(anchored)] = 0.1
    return np.asarray(columns / columns.sum(axis=0))


def _mixed(rng: np.random.Generator, documents: int, columns: Float) -> Float:
    """Return the distribution of words in each document, (documents, n)."""
    shares = rng.dirichlet(np.full(columns.shape[1], float(rng.choice([0.05, 0.3]))), documents)
    return np.asarray(shares @ columns.T)


def _lengths(rng: np.random.Generator, documents: int) -> Int64:
    return rng.integers(2, int(rng.choice([12, 40, 120])), documents)


def _drawn(rng: np.random.Generator, mixed: Float, lengths: Int64 | Sequence[int]) -> Int64:
    chances = mixed / mixed.sum(axis=1, keepdims=True)
    return np.asarray(rng.multinomial(lengths, chances), np.int64)


_UNGUIDED = (
    _planted, _mirrored, _duplicated, _near_singular, _giant, _two_words, _one_document, _crossing, _text, _tiny,
)  # fmt: skip

KINDS: dict[str, Callable[[np.random.Generator], Pool]] = {
    "planted topics": _planted,
    "mirrored": _mirrored,
    "duplicated words": _duplicated,
    "near-singular anchors": _near_singular,
    "giant documents": _giant,
    "two-word documents": _two_words,
    "one-document topics": _one_document,
    "words at thresholds": _crossing,
    "text": _text,
    "tiny": _tiny,
    "guided topics": _guided,
    "guided topics of few documents": _tiny_guided,
}
"""Kinds of corpora by name, in the order in which seeds take turns."""
