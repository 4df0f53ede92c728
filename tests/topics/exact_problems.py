"""Small problems that are random or hard on purpose, each a fit whose A can be held against the exact one."""

from dataclasses import replace

import numpy as np
from dense_counts import dense_counts
from scipy.sparse import coo_array

from packed import dense_of, pack
from streamtopic.counts import Counts, DocumentBatch, Passage, SymmetricCounts, Weighting, count
from streamtopic.errors import CannotLearn
from streamtopic.topics.fit import TopicFit, Words
from streamtopic.topics.learner import learn
from streamtopic.topics.learner_options import LearnerOptions
from streamtopic.topics.mixtures import Mixtures
from streamtopic.topics.update import update

__all__ = ["KINDS", "problem", "two_words"]

_ROOTS = np.array([1.0, 1.1892071150027211, 1.4142135623730951, 1.681792830507429])


def problem(kind, seed):
    """Return a fit of this kind, or None where its seed gives none (too few independent rows)."""
    try:
        # Kinds draw from streams of their own, so that a new one changes none of the others.
        return KINDS[kind](np.random.default_rng([seed, *kind.encode()]))
    except CannotLearn:
        return None


def _weights(rng, mass):
    """Return D^2 of a mass, (n,): near p^-1/2, sometimes far from it."""
    steps = np.round(-2 * np.log2(mass / mass.sum(dtype=float))).astype(int)
    if rng.random() < 0.3:
        steps = steps + rng.integers(-6, 7, len(mass))
    return np.ldexp(_ROOTS[steps % 4], steps // 4)


def _fit(rng, Q, groups, start=None):
    """Return the fit of a dense Q with the sums of some groups of rows in place of anchors' rows."""
    Q = np.asarray(Q, np.int64)
    kept = np.flatnonzero(Q.any(axis=1))
    place = np.full(len(Q), -1)
    place[kept] = np.arange(len(kept))
    Q, groups = Q[np.ix_(kept, kept)], [place[group][place[group] >= 0] for group in groups]
    if any(len(group) == 0 for group in groups):
        return None
    return _of(rng, dense_counts(Q), np.array([Q[group].sum(axis=0) for group in groups]), start)


def _of(rng, q, N, start=None):
    mass, r = q.row_sums(), len(N)
    squares = np.ones(q.n) if rng.random() < 0.2 else _weights(rng, mass)
    made = Mixtures.cold(q, mass, squares, N, None if start is None else start(q.n, r))
    if not (made.C.T @ mass).all():
        return None
    return TopicFit(
        options=LearnerOptions(n_topics=r),
        words=Words(f"w{k:05d}" for k in range(q.n)),
        documents=1,
        q=q,
        mass=mass,
        squares=squares,
        candidates=np.arange(q.n),
        choice=np.arange(r),
        group=np.full(q.n, -1),
        mixtures=made,
    )


def _symmetric(rng, n, bits, density):
    upper = np.triu(rng.integers(1, 2**bits, (n, n)) * (rng.random((n, n)) < density))
    return upper + np.triu(upper, 1).T


def _mixed(rng, n, r, bits=6):
    """Return U^T S U for topics U (r, n) with anchors first: rows are mixtures of the first r, but for noise."""
    U = rng.integers(0, 2**bits, (r, n)) * (rng.random((r, n)) < 0.5)
    U[:, :r] = np.diag(rng.integers(1, 2**bits, r))
    S = np.diag(rng.integers(1, 40, r)) * 4 + _symmetric(rng, r, 3, 0.5)
    return U.T @ S @ U


def _sizes(rng):
    r = int(rng.integers(1, 6))
    return int(rng.integers(2 * r + 2, 30)), r


def _random(rng, start=None):
    n, r = _sizes(rng)
    Q = _symmetric(rng, n, int(rng.integers(2, 30)), rng.uniform(0.2, 1))
    words = rng.permutation(n)
    size = 1 if rng.random() < 0.5 else 2
    return _fit(rng, Q, [words[k * size : k * size + size] for k in range(r)], start)


def _planted(rng, start=None):
    n, r = _sizes(rng)
    noise = _symmetric(rng, n, int(rng.integers(2, 12)), 0.3)
    return _fit(rng, 64 * _mixed(rng, n, r) + noise, [[k] for k in range(r)], start)


def _wrong_start(rng):
    def start(n, r):
        rows = rng.dirichlet(np.full(r, 0.3), n)
        rows[rng.random(n) < 0.2] = 0.0
        return rows * (rng.random((n, r)) < 0.7)

    return (_random if rng.random() < 0.5 else _planted)(rng, start)


def _near_singular(rng):
    """Two anchors whose rows differ by a few units in a large number."""
    n, r = _sizes(rng)
    r = max(r, 2)
    Q = _symmetric(rng, n, int(rng.integers(4, 34)), 0.9)
    Q[1, :], Q[:, 1] = Q[0, :], Q[:, 0]
    Q[1, 1] = Q[0, 0]
    for _ in range(int(rng.integers(1, 4))):
        j = int(rng.integers(2, n))
        Q[1, j] += 1
        Q[j, 1] = Q[1, j]
    return _fit(rng, Q, [[k] for k in range(r)])


def _mirrored(rng):
    """Exchanging the halves of the vocabulary changes nothing."""
    n, r = int(rng.integers(3, 14)), 2 * int(rng.integers(1, 3))
    Q = _symmetric(rng, 2 * n, int(rng.integers(2, 20)), 0.6)
    swapped = np.concatenate([np.arange(n, 2 * n), np.arange(n)])
    Q += Q[np.ix_(swapped, swapped)]
    return _fit(rng, Q, [[k + side * n] for side in range(2) for k in range(r // 2)])


def _duplicated(rng):
    """Words that always stand together."""
    n, r = _sizes(rng)
    twice = rng.integers(0, n, 2 * n)
    twice[:r] = np.arange(r)
    return _fit(rng, _mixed(rng, n, r)[np.ix_(twice, twice)] + 1, [[k] for k in range(r)])


def _faces(rng):
    """Every row is exactly a mixture of anchors' rows, so that each multiplier is exactly 0."""
    n, r = _sizes(rng)
    return _fit(rng, _mixed(rng, n, r), [[k] for k in range(r)])


def _spanning(rng):
    """Masses from about 2^10 to 2^60: words meet only words of masses that are not too far from theirs."""
    n, r = _sizes(rng)
    exponents = np.sort(rng.integers(0, 27, n))
    near = np.abs(exponents[:, None] - exponents) <= rng.integers(2, 9)
    Q = near * _symmetric(rng, n, 4, 0.8) << exponents[:, None] + exponents
    return _fit(rng, Q, [[k] for k in rng.permutation(n)[:r]])


def _one_document_topic(rng):
    """A topic that is one short document beside others of thousands."""
    n, r = _sizes(rng)
    own = int(rng.integers(2, 5))
    Q = np.zeros((n + own, n + own), np.int64)
    Q[:n, :n] = _mixed(rng, n, r) << int(rng.integers(0, 36))
    Q[n:, n:] = _symmetric(rng, own, 2, 1.0)
    if rng.random() < 0.5:
        Q[n, 0] = Q[0, n] = 1
    return _fit(rng, Q, [*([k] for k in range(r)), [n]])


def _documents(rng, m, n, length):
    topics = rng.dirichlet(np.full(n, 0.2), 4)
    made = []
    for _ in range(m):
        amounts = rng.multinomial(max(2, rng.poisson(length)), rng.dirichlet(np.full(4, 0.3)) @ topics)
        held = np.flatnonzero(amounts)
        made.append([Passage(int(amounts.sum()), held.astype(np.int32), amounts[held].astype(np.int32))])
    return made


def _giant(rng):
    """One document of 8,192 times one word among others."""
    n, r = int(rng.integers(8, 25)), int(rng.integers(2, 5))
    other = int(rng.integers(1, n))
    amounts = np.array([8191, 1], np.int32)
    large = [Passage(8192, np.array([0, other], np.int32), amounts)]
    batch = DocumentBatch.build([large, *_documents(rng, 12, n, 12)])
    q = SymmetricCounts.of(count(batch, n, Weighting(256)))
    mass = q.row_sums()
    live = np.flatnonzero(mass)
    q = SymmetricCounts.of(q.upper(), live)
    words = np.concatenate([[0], 1 + rng.permutation(len(live) - 1)[: r - 1]])
    return _of(rng, q, dense_of(q)[words].astype(np.int64))


def two_words(rng, n=None):
    """Documents of two words each over many words, two topics; or all of a word and a topic's own: equal masses."""
    n = int(rng.integers(20, 200)) if n is None else n
    half = n // 2
    if rng.random() < 0.5:
        first, second = np.repeat([0, half], [half - 1, n - half - 1]), np.delete(np.arange(n), [0, half])
        amounts = np.full(len(first), int(rng.integers(1, 2**20)))
    else:
        first, second = rng.integers(0, n, (2, 3 * n))
        inside = np.where(first < half, second % half, half + second % (n - half))
        second = np.where(rng.random(3 * n) < 0.9, inside, second)
        amounts = rng.integers(1, 2**20, 3 * n)
    apart = first != second
    upper = coo_array((amounts[apart], (first[apart], second[apart])), shape=(n, n)).tocsr()
    both = upper + upper.T
    kept = np.flatnonzero(np.diff(both.indptr))
    both = both[kept][:, kept].tocsr()
    both.sort_indices()
    q = SymmetricCounts(
        len(kept), pack(len(kept), both.indptr.astype(np.int64), both.indices.astype(np.int32), both.data)
    )
    words = np.add(rng.integers(0, len(kept) // 2, (2, len(kept) // 8)), [[0], [len(kept) // 2]])
    words[:, 0] = 0, len(kept) // 2
    return _of(rng, q, np.array([dense_of(q)[np.unique(group)].sum(axis=0) for group in words], np.int64))


def _carried(rng):
    """A product that is off by as much as it is said to be."""
    fit = (_random if rng.random() < 0.3 else _planted)(rng)
    if fit is None:
        return None
    last = fit.mixtures
    off = 10.0 ** rng.uniform(-15, -6) * last.product.max(axis=1)
    last.product += off[:, None] * rng.choice([-1.0, 1.0], last.product.shape)
    # Adding rounds as well.
    last.error += off * (1 + 1e-9) + 1e-16 * last.product.max(axis=1)
    last.solve(fit.mass, None)
    return fit if (last.C.T @ fit.mass).all() else None


def _no_optimum(rng):
    """Rows of C that no solver would return: vertices, sums off by a little or much, zeros."""
    fit = (_random if rng.random() < 0.3 else _planted)(rng)
    if fit is None:
        return None
    C = fit.mixtures.C.copy()
    row, r = int(rng.integers(len(C))), C.shape[1]
    way = int(rng.integers(4))
    if way == 0:
        C[row] = np.eye(r)[rng.integers(r)]
    elif way == 1:
        C[row] *= 1 + 10.0 ** rng.uniform(-14, -2)
    elif way == 2:
        C *= 1 + rng.uniform(-1e-13, 1e-13, (len(C), 1))
    else:
        C[row] = 0.0
    fit.mixtures = replace(fit.mixtures, C=C)
    return fit if (C.T @ fit.mass).all() else None


def _learned(rng):
    """A whole fit from documents."""
    options = _options(rng)
    n = int(rng.integers(12, 30))
    return learn(_counted(_documents(rng, int(rng.integers(15, 40)), n, 14), n, options), options)


def _options(rng):
    learner = "paper" if rng.random() < 0.3 else "default"
    return LearnerOptions(int(rng.integers(2, 5)), learner, min_df=2, max_df=1.0)


def _counted(documents, n, options):
    words = [f"word{k:02d}" for k in range(n)]
    return Counts(words, count(DocumentBatch.build(documents), n, options.weighting))


def _updated(rng):
    """A fit that deletions and additions have gone through; words enter and leave."""
    options = _options(rng)
    n = int(rng.integers(12, 30))
    documents = _documents(rng, int(rng.integers(25, 50)), n, 12)
    inside = set(range(len(documents) - 6))
    now = _counted([documents[k] for k in sorted(inside)], n, options)
    fit = learn(now, options)
    for _ in range(6):
        gone = set(rng.choice(sorted(inside), int(rng.integers(2)), replace=False).tolist())
        come = set(rng.choice(sorted(set(range(len(documents))) - inside), 1).tolist())
        change = _counted([documents[k] for k in sorted(come)], n, options).cooccurrence
        change = change - _counted([documents[k] for k in sorted(gone)], n, options).cooccurrence
        inside = inside - gone | come
        now = Counts(now.words, now.cooccurrence + change)
        outcome = update(fit, now, Counts(now.words, change))
        updated = isinstance(outcome, TopicFit)
        fit = outcome if updated else learn(now, options)
    # A fit that was learned anew at last is of another kind.
    return fit if updated else None


KINDS = {
    "random": _random,
    "planted": _planted,
    "wrong start": _wrong_start,
    "near singular": _near_singular,
    "mirrored": _mirrored,
    "duplicated": _duplicated,
    "faces": _faces,
    "masses": _spanning,
    "one document": _one_document_topic,
    "giant": _giant,
    "two words": two_words,
    "carried": _carried,
    "no optimum": _no_optimum,
    "learned": _learned,
    "updated": _updated,
}
