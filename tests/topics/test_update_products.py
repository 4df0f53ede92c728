"""A small change as outer products: everything that follows from it is what follows from its pairs."""

import numpy as np
import pytest

from streamtopic.counts import Counts, DocumentBatch, Passage, SignedPassages, SymmetricCounts, count
from streamtopic.counts.batch import Weighting
from streamtopic.topics import update as update_module
from streamtopic.topics import update_rows
from streamtopic.topics.certificate import gamma
from streamtopic.topics.learner import learn
from streamtopic.topics.products import product_roundings, times
from streamtopic.topics.update import Updated, update
from streamtopic.topics.update_rows import SparseRows, add_times_sparse, outer_change

N = 90
WEIGHTING = Weighting(256)


def batch(rng, documents, words=N, length=12):
    """Return documents of one passage over random words."""

    def passage():
        held = np.sort(rng.choice(words, length, replace=False)).astype(np.int32)
        counts = rng.integers(1, 4, length).astype(np.int32)
        return [Passage(int(counts.sum()), held, counts)]

    return DocumentBatch.build([passage() for _ in range(documents)])


class Corpus:
    """Counts before and after some documents went, and some came."""

    def __init__(self, seed, gone=3, came=0):
        self.rng = np.random.default_rng(seed)
        kept, out, into = batch(self.rng, 200), batch(self.rng, gone), batch(self.rng, came)
        signs = np.repeat([-1, 1], [gone, came])
        changed = DocumentBatch.joined(out, into)
        before = count(DocumentBatch.joined(kept, out), N, WEIGHTING)
        self.change = count(changed, N, WEIGHTING, signs)
        self.q = SymmetricCounts.of(before + self.change)
        self.before = SymmetricCounts.of(before)
        self.delta = SymmetricCounts.of(self.change)
        self.squares = np.exp2(self.rng.integers(-4, 5, N) / 4)
        passages = SignedPassages.of(changed, WEIGHTING, signs)
        self.outer = outer_change(self.q, self.squares, passages, 40, np.zeros(0, np.intp))
        assert self.outer is not None


def dense(q):
    """Return a symmetric matrix as it is."""
    upper = q.upper().upper.toarray()
    return upper + np.triu(upper, 1).T


@pytest.fixture(params=[(3, 0), (1, 0), (2, 2)], ids=["gone", "one", "both"])
def corpus(request):
    """Documents that went, or that came and went."""
    return Corpus(5, *request.param)


def test_the_change_is_its_outer_products(corpus):
    """X^T S X - diag(E) is dQ."""
    X, S = corpus.outer.X.toarray(), np.diag(corpus.outer.passages.weights)
    change = X.T @ S @ X - np.diag(corpus.outer.E)
    assert np.array_equal(change, np.triu(change) + np.triu(change, 1).T)
    assert np.array_equal(np.triu(change), corpus.change.upper.toarray())


def test_sparse_products_are_products():
    """Q S is what dense arithmetic gives, for rows of few and of many entries, and sizes cover its terms."""
    corpus = Corpus(8)
    S = corpus.rng.normal(size=(N, 21)) * (corpus.rng.random((N, 21)) < 0.1)
    S[17], S[40] = corpus.rng.normal(size=(2, 21))
    rows = np.flatnonzero(S.any(axis=1))
    out = np.ones((N, 21))
    sizes = add_times_sparse(corpus.q, SparseRows.of(rows, S[rows]), out)
    whole = dense(corpus.q)
    assert np.allclose(out - 1, whole @ S, rtol=0, atol=1e-12 * (whole @ np.abs(S)).max())
    assert (sizes * (1 + 1e-12) >= (whole @ np.abs(S)).max(axis=1)).all()


class World:
    """A planted corpus from which documents go and come, one change after the other."""

    def __init__(self, planted, options, size):
        self.planted, self.options = planted, options
        self.inside = list(range(size))
        self.counts = planted.counts(options, self.inside)

    def change(self, out, into=()):
        """Forget documents and learn others; return counts, their change, and the passages of it."""
        documents = [self.planted.documents[k] for k in (*out, *into)]
        changed, signs = DocumentBatch.build(documents), np.repeat([-1, 1], [len(out), len(into)])
        self.inside = sorted({*self.inside, *into} - {*out})
        delta = count(changed, len(self.counts.words), self.options.weighting, signs)
        self.counts = Counts(self.counts.words, self.counts.cooccurrence + delta)
        passages = SignedPassages.of(changed, self.options.weighting, signs)
        return self.counts, Counts(self.counts.words, delta), passages


@pytest.fixture
def used(monkeypatch):
    """How many words each update had beside its passages, None where it could not use them."""
    found = []

    def spied(*arguments):
        made = outer_change(*arguments)
        found.append(None if made is None or made.others is None else len(made.others))
        return made

    monkeypatch.setattr(update_rows, "_WIDE", 1)
    monkeypatch.setattr(update_module, "outer_change", spied)
    return found


@pytest.mark.parametrize("learner", ["default", "paper"])
def test_twin_by_passages(make_planted, used, learner):
    """Told of which passages a change is made, an update still gives the twin's model, though words enter and leave."""
    planted = make_planted(documents=700, n=200, r=5)
    options = planted.options(learner, max_df=0.35)
    world = World(planted, options, 600)
    fit, entered = learn(world.counts, options), 0
    rng = np.random.default_rng(2)
    for step in range(12):
        out = rng.choice(world.inside, 1 + step % 3, replace=False).tolist()
        outside = sorted({*range(700)} - {*world.inside})
        into = rng.choice(outside, step % 2, replace=False).tolist()
        before = {*fit.words}
        outcome = update(fit, *world.change(out, into))
        twin = learn(world.counts, options)
        assert isinstance(outcome, Updated), outcome
        entered += {*twin.words} != before
        assert outcome.fit.words == twin.words
        assert outcome.fit.anchors == twin.anchors
        assert np.abs(outcome.fit.A - twin.A).max() <= 1e-12
        assert outcome.fit.certificate.bound <= 1e-7
        fit = outcome.fit
    assert entered
    assert used.count(0) >= 2
    assert any(used)


@pytest.mark.parametrize("told", [True, False], ids=["passages", "pairs"])
@pytest.mark.parametrize("learner", ["default", "paper"])
def test_the_error_of_carried_products_is_bounded(make_planted, used, learner, told):
    """After several updates products are as near to those from counts as their bound says, and that is near."""
    planted = make_planted(documents=700, n=240, r=4, length=25)
    options = planted.options(learner, min_df=1)
    world = World(planted, options, 700)
    fit = learn(world.counts, options)
    rng = np.random.default_rng(4)
    carried = 0
    for _ in range(8):
        now, delta, passages = world.change([int(rng.choice(world.inside))])
        outcome = update(fit, now, delta, passages if told else None)
        assert isinstance(outcome, Updated), outcome
        fit = outcome.fit
        part = fit.mixtures
        thin = np.ascontiguousarray((part.anchor_counts * fit.squares).T)
        assert part.thin.tobytes() == thin.tobytes()
        assert np.array_equal(part.anchor_mass, part.anchor_counts.sum(axis=1))
        cold = times(fit.q, thin)
        own = gamma(product_roundings(np.diff(fit.q.indptr), fit.q.n))[:, None] * cold
        apart = np.abs(part.product - cold)
        assert (apart <= part.product_errors()[:, None] * (1 + 1e-12) + own).all()
        assert part.product_errors()[fit.live].max() <= 1e-8 * cold.max()
        carried += bool(part.error.any()) and bool(apart.any())
    assert carried >= 3
    assert (used.count(0) >= 3) == told


def test_estimators_forget_by_passages(used):
    """AnchorTopics tells its updates of which documents a change is made."""
    from streamtopic import AnchorTopics

    rng = np.random.default_rng(6)
    topics = rng.dirichlet(np.full(150, 0.05), 4)
    X = np.stack([rng.multinomial(30, rng.dirichlet(np.full(4, 0.1)) @ topics) for _ in range(500)])
    model = AnchorTopics(4, max_df=1.0, min_df=1).fit(X).unlearn(X[:2])
    assert used == [0]
    assert np.abs(model.components_ - AnchorTopics(4, max_df=1.0, min_df=1).fit(X[2:]).components_).max() <= 1e-12


def test_passages_of_another_change_do_no_harm(make_planted, used):
    """Told of passages that are not those of the change, an update goes by its pairs."""
    planted = make_planted(documents=400, n=120, r=4)
    options = planted.options()
    world, other = (World(planted, options, 400) for _ in range(2))
    now, delta, _ = world.change([7])
    _, _, wrong = other.change([8])
    outcome = update(learn(planted.counts(options), options), now, delta, wrong)
    assert used == []
    if isinstance(outcome, Updated):
        assert np.abs(outcome.fit.A - learn(now, options).A).max() <= 1e-12
        assert outcome.fit.certificate.bound <= 1e-7
    else:
        pytest.fail(outcome.reason)
