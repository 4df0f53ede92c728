"""The stages of a retrain and of an update: their functions, and the least work of each.

Work is counted from the arguments of a function, with the bytes of an entry from the arrays themselves. Each piece of
work that no method can do without counts once, and data in the cache does not count as moved. So a stage at 1 could not
be faster on this machine, and for a stage at 5 a better method, or better code, can be found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streamtopic.bench.profile import Stage
from streamtopic.bench.rates import Work

if TYPE_CHECKING:
    import numpy.typing as npt

    from streamtopic.counts import Cooccurrence, SymmetricCounts
    from streamtopic.topics.update_rows import Change, OuterChange

__all__ = ["CORRELATIONS", "RETRAIN", "UPDATE"]

Args = tuple[Any, ...]


def _held(counts: Cooccurrence) -> int:
    """Return the bytes of all entries."""
    return int(counts.columns.nbytes + counts.values.nbytes)


def _entry(counts: SymmetricCounts) -> float:
    """Return the bytes of an entry, on average: wide entries have some of their bytes in another array."""
    return counts.nbytes / max(counts.entries, 1)


def _lengths(q: SymmetricCounts, rows: npt.NDArray[np.intp] | None) -> npt.NDArray[np.int64]:
    sizes = np.diff(q.indptr)
    return np.asarray(sizes if rows is None else sizes[rows], np.int64)


def _mirror(args: Args, result: SymmetricCounts) -> Work:
    """Return the bytes read, one triangle of a source, and the bytes written, both triangles."""
    return Work(memory=_held(args[0].cooccurrence) + result.nbytes)


def _row_sums(args: Args, _: object) -> Work:
    return Work(memory=args[0].nbytes)


def _scaled(args: Args, result: npt.NDArray[np.float64]) -> Work:
    """Return the entries of the candidates' rows, and the dense matrix once."""
    q, candidates = args[0], args[2]
    return Work(memory=int(_lengths(q, candidates).sum()) * _entry(q) + result.nbytes)


def _directions(args: Args, result: tuple[npt.NDArray[np.float64], ...]) -> Work:
    """Return one product with the directions found: without it, nobody knows that they are the leading ones."""
    c, wanted = len(args[0]), result[2].shape[1]
    return Work(memory=8.0 * c * c, dense=2.0 * c * c * wanted)


def _greedy(args: Args, _: object) -> Work:
    """Return the work of taking a direction off all rows and measuring the rest, for each anchor."""
    c, r = args[0].shape
    return Work(thin=6.0 * c * r * r)


def _mixtures(args: Args, _: object) -> Work:
    """Return the products of all candidates with the anchors."""
    c, r = args[0].shape
    return Work(thin=2.0 * c * r * r)


def _farthest(args: Args, _: object) -> Work:
    """Return the norms of all candidates' rows, and their products with the anchors' rows."""
    q, candidates, r = args[0], args[1], args[3]
    entries = int(_lengths(q, candidates).sum())
    return Work(memory=entries * _entry(q), thin=2.0 * entries * (r + 1))


def _product(args: Args, result: npt.NDArray[np.float64]) -> Work:
    q, thin = args[0], args[1]
    entries = int(_lengths(q, args[2] if len(args) > 2 else None).sum())
    return Work(memory=entries * _entry(q) + thin.nbytes + result.nbytes, thin=2.0 * entries * thin.shape[1])


def _solve(args: Args, result: npt.NDArray[np.float64]) -> Work:
    """Return one gradient of each row, and one factorisation of G on the row's support."""
    r = args[0].shape[0]
    support = np.count_nonzero(result, axis=1).astype(float)
    return Work(thin=float((2 * r * support + support**3 / 3).sum()))


def _grouped(args: Args, result: npt.NDArray[np.int64]) -> Work:
    q, group = args[0], args[1]
    return Work(memory=int(_lengths(q, np.flatnonzero(group >= 0)).sum()) * _entry(q) + result.nbytes)


def _anchors_gram(args: Args, _: object) -> Work:
    counts, thin = args[0], args[1]
    return Work(memory=counts.nbytes + thin.nbytes, dense=2.0 * counts.shape[0] ** 2 * counts.shape[1])


def _errors(args: Args, _: object) -> Work:
    part = args[0]
    n, r = part.C.shape
    return Work(memory=part.C.nbytes + part.product.nbytes, dense=2.0 * n * r * r)


def _internal(_: Args, result: Cooccurrence) -> Work:
    """Return the entries of the change, read and written once."""
    return Work(memory=2.0 * _held(result))


def _apply(_: Args, result: Change) -> Work:
    """Return the entries of the change in both triangles, read and written once."""
    return Work(memory=2.0 * result.delta.nbytes)


def _reach(args: Args, result: OuterChange | None) -> Work:
    """Return the entries of the rows of the passages' words, once for each passage that holds the word."""
    if result is None:
        return Work()
    q, passages = args[0], args[2]
    read = int(_lengths(q, passages.words).sum())
    return Work(memory=read * _entry(q) + result.reach.nbytes, thin=2.0 * read)


def _product_shift(args: Args, result: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]) -> Work:
    """Return dQ V, and the entries of the rows that V' - V has entries in, each times as many of those."""
    q, delta, before, thin = args
    lengths, r, outer = _lengths(q, thin.rows), before.shape[1], thin.outer
    explained = outer is not None and outer.whole
    changed = len(outer.passages.words) if explained else delta.entries
    flops = 2.0 * changed * r
    flops += 2.0 * float(lengths @ np.count_nonzero(thin.moved, axis=1))
    memory = int(lengths.sum()) * _entry(q) + result[0].nbytes + (0 if explained else delta.nbytes)
    return Work(memory=memory, thin=flops, dense=0.0 if outer is None else 2.0 * q.n * outer.reach.shape[1] * r)


_SEARCH = (
    Stage("scaled matrix", "topics.anchors", "_scaled", _scaled, whole=True),
    Stage("directions", "topics.anchors", "_directions", _directions, whole=True),
    Stage("directions", "topics.learner", "coordinates"),
    Stage("search", "topics.learner", "choose_anchors", _greedy, whole=True),
    Stage("search", "topics.learner", "farthest_rows", _farthest, whole=True),
    Stage("super-anchors", "topics.learner", "super_anchors", _mixtures, whole=True),
)

_MODEL = (
    Stage("product", "topics.mixtures", "times", _product, numbered=True, whole=True),
    Stage("anchors' Gram", "topics.mixtures", "gram", _anchors_gram, whole=True),
    Stage("solve", "topics.mixtures", "solve_rows", _solve, numbered=True),
    Stage("certificate", "topics.mixtures", "Mixtures.certificate", _errors, whole=True),
    Stage("certificate", "topics.fit", "topic_columns", whole=True),
)

RETRAIN = (
    Stage("restrict and mirror", "counts.count_sources", "Counts.symmetric", _mirror, whole=True),
    Stage("row sums", "counts.symmetric", "SymmetricCounts.row_sums", _row_sums),
    *_SEARCH,
    Stage("anchors' rows", "topics.learner", "grouped_rows", _grouped, whole=True),
    *_MODEL,
)
"""Of `streamtopic.topics.learner.learn` with the certificate."""

UPDATE = (
    Stage("words", "topics.update", "choose_words", whole=True),
    Stage("words", "topics.fit", "TopicFit.held", whole=True),
    Stage("delta", "topics.update", "_internal", _internal, whole=True),
    Stage("delta", "topics.update", "_apply", _apply, whole=True),
    Stage("reach", "topics.update", "outer_change", _reach, whole=True),
    *_SEARCH,
    Stage("search", "topics.update", "confirmed_anchors", whole=True),
    Stage("product shift", "topics.update_rows", "product_shift", _product_shift, whole=True),
    Stage("anchors' rows", "topics.update_rows", "grouped_rows", _grouped, whole=True),
    Stage("product", "topics.update_rows", "times", _product, numbered=True, whole=True),
    Stage("anchors' Gram", "topics.update_rows", "gram", _anchors_gram, whole=True),
    Stage("anchors' rows", "topics.update", "carried"),
    Stage("anchors' rows", "topics.update", "regrouped"),
    *_MODEL,
)
"""Of `streamtopic.topics.update.update` with the certificate."""

CORRELATIONS = (Stage("R's pass", "topics.fit", "times_within", _product, whole=True),)
"""Of `streamtopic.topics.display.topic_correlations`."""
