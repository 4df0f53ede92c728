"""A small change as outer products: everything that follows from it is what follows from its pairs."""

import numpy as np
import pytest

from streamtopic.counts import Counts, DocumentBatch, SignedPassages, count
from streamtopic.topics import update as update_module
from streamtopic.topics import update_rows
from streamtopic.topics.certificate import gamma
from streamtopic.topics.learner import learn
from streamtopic.topics.products import product_roundings, times
from streamtopic.topics.update import Updated, update
from streamtopic.topics.update_rows import outer_change


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
        bound = (part.relative * part.product.max(axis=1) + part.error) * (1 + 1e-12)
        assert (apart <= bound[:, None] + own).all()
        assert bound[fit.live].max() <= 1e-8 * cold.max()
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
