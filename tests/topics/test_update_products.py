"""Products that are carried over changes: how far they are from those of the counts, and what is claimed of that."""

from dataclasses import replace

import numpy as np
import pytest

from streamtopic.counts import Cooccurrence, Counts, DocumentBatch, count
from streamtopic.topics import products
from streamtopic.topics.certificate import gamma
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.learner import learn
from streamtopic.topics.products import dense_rows, product_roundings, times
from streamtopic.topics.update import update


@pytest.mark.parametrize("learner", ["default", "paper"])
def test_the_error_of_carried_products_is_bounded(make_planted, monkeypatch, learner):
    """After several updates products are as near to those from counts as their bound says, and that is near."""
    monkeypatch.setattr(products, "_WIDE", 1)
    planted = make_planted(documents=700, n=240, r=4, length=25)
    options = planted.options(learner, min_df=1)
    now = planted.counts(options)
    fit = learn(now, options)
    carried = left = 0
    for gone in np.random.default_rng(4).permutation(700)[:8].tolist():
        change = count(
            DocumentBatch.build([planted.documents[gone]]), len(now.words), options.weighting, np.full(1, -1)
        )
        now = Counts(now.words, now.cooccurrence + change)
        outcome = update(fit, now, Counts(now.words, change))
        assert isinstance(outcome, TopicFit), outcome
        left += len(fit.words) - len(outcome.words)
        fit = outcome
        part = fit.mixtures
        thin = np.ascontiguousarray((part.anchor_counts * fit.squares).T)
        assert part.thin.tobytes() == thin.tobytes()
        assert np.array_equal(part.anchor_mass, part.anchor_counts.sum(axis=1))
        cold = times(fit.q, thin)
        own = gamma(product_roundings(np.diff(fit.q.indptr), fit.q.n))[:, None] * cold
        apart = np.abs(part.product - cold)
        bound = (part.relative * part.product.max(axis=1) + part.error) * (1 + 1e-12)
        assert (apart <= bound[:, None] + own).all()
        assert bound.max() <= 1e-8 * cold.max()
        carried += bool(part.error.any()) and bool(apart.any())
    assert carried >= 3
    assert left > 0


def test_the_pairs_of_words_that_leave_are_in_the_error(planted, monkeypatch):
    """What is taken off a product for a word that leaves was rounded like all else, and the bound says so."""
    monkeypatch.setattr(products, "_WIDE", 1)
    options = planted.options()
    source = planted.counts(options)
    fit = learn(source, options)
    others = np.setdiff1d(np.arange(fit.q.n), fit.choice)
    leaves = int(others[np.argmin(fit.mass[others])])
    frequency = source.frequency.copy()
    frequency[source.words.index(fit.words[leaves])] = 0
    now = Counts(source.words, replace(source.cooccurrence, frequency=frequency))
    outcome = update(fit, now, Counts(source.words, Cooccurrence.zero(len(source.words))))
    assert isinstance(outcome, TopicFit), outcome
    stays = np.delete(np.arange(fit.q.n), leaves)
    assert outcome.words == tuple(fit.words[k] for k in stays)
    sizes = dense_rows(fit.q, np.array([leaves]))[0, stays] * fit.mixtures.thin[leaves].max()
    assert (outcome.mixtures.error >= 2.0**-53 * sizes).all()
    assert sizes.any()
