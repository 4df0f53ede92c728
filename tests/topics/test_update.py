"""The twin: forgetting gives what never having seen would have given."""

import numpy as np
import pytest

from streamtopic.counts import Cooccurrence, Counts
from streamtopic.topics.display import topic_correlations
from streamtopic.topics.fit import TopicFit, fingerprint
from streamtopic.topics.learner import learn
from streamtopic.topics.update import NeedsRetrain, update

LEARNERS = ["default", "paper"]
KEY = bytes(range(32))


def forget(planted, options, gone, fit):
    """Update a fit of all documents to those that are not in `gone`."""
    everything, part = planted.counts(options), planted.counts(options, gone)
    words = everything.words
    now = Counts(words, everything.cooccurrence - part.cooccurrence)
    delta = Counts(words, Cooccurrence.zero(len(words)) - part.cooccurrence)
    return update(fit, now, delta), now


def same_model(fit, twin):
    """Assert that two fits are the same model within 1e-12, certified."""
    assert fit.words == twin.words
    assert fit.anchors == twin.anchors
    assert fit.documents == twin.documents
    assert np.abs(fit.A - twin.A).max() <= 1e-12
    assert fit.certificate.bound <= 1e-7


def test_forgotten_words_leave_the_vocabulary(make_planted):
    """A word that no live document holds is in no published model."""
    planted = make_planted()
    options = planted.options(min_df=1, anchor_min_df=0.05)
    fit = learn(planted.counts(options), options)
    frequency = planted.counts(options).frequency
    rare = int(np.argmin(np.where(frequency > 0, frequency, 10**9)))
    gone = [k for k, document in enumerate(planted.documents) if rare in document[0].words]
    assert planted.words[rare] in fit.words
    outcome, now = forget(planted, options, gone, fit)
    assert isinstance(outcome, TopicFit), outcome
    assert planted.words[rare] not in outcome.words
    assert now.frequency[rare] == 0


def test_digest_and_correlations_follow_the_counts_only(planted):
    """Updated and twin models have the same digest, and R and shares within rounding."""
    options = planted.options()
    outcomes = [forget(planted, options, [k], learn(planted.counts(options), options)) for k in range(4)]
    outcome, now = next(pair for pair in outcomes if isinstance(pair[0], TopicFit))
    twin = learn(now, options)
    place = {word: k for k, word in enumerate(now.words)}
    frequency = [int(now.frequency[place[word]]) for word in twin.words]
    assert fingerprint(outcome, frequency, ["a"], KEY) == fingerprint(twin, frequency, ["a"], KEY)
    assert fingerprint(twin, frequency, ["b"], KEY) != fingerprint(twin, frequency, ["a"], KEY)
    assert fingerprint(twin, frequency, ["a"], KEY[::-1]) != fingerprint(twin, frequency, ["a"], KEY)
    before = learn(planted.counts(options), options)
    assert fingerprint(before, frequency, ["a"], KEY) != fingerprint(twin, frequency, ["a"], KEY)
    one, other = topic_correlations(outcome, twin.A), topic_correlations(twin, twin.A)
    assert np.abs(one.R - other.R).max() < 1e-12
    assert one.R.sum() == pytest.approx(1, abs=0.05)
    assert np.linalg.eigvalsh(one.R).min() > -1e-12
    assert one.shares.sum() == pytest.approx(1)


def test_change_that_does_not_fit_asks_for_a_retrain(planted):
    """A delta that takes away more than there is never gives a model."""
    options = planted.options()
    fit = learn(planted.counts(options, range(300)), options)
    now = planted.counts(options, range(300))
    wrong = planted.counts(options)
    delta = Counts(wrong.words, Cooccurrence.zero(len(wrong.words)) - wrong.cooccurrence)
    outcome = update(fit, now, delta)
    assert isinstance(outcome, NeedsRetrain)


class Counted(Counts):
    """Counts that say what they were asked for."""

    def restrict(self, keep):  # noqa: ARG002  the protocol names it
        """Refuse to hand out all pairs."""
        raise AssertionError("an update must not read all counts")


@pytest.mark.parametrize("learner", LEARNERS)
def test_words_that_come_and_go_cost_their_own_pairs(planted, learner):
    """Over many changes words enter and leave; the model stays the twin's, and no update reads all counts."""
    # A ceiling within the planted frequencies: every few documents a word passes it in one way or the other.
    options = planted.options(learner, max_df=0.35)
    inside = list(range(560))
    counts = planted.counts(options, inside)
    fit = learn(counts, options)
    rng = np.random.default_rng(3)
    seen = []
    for step in range(14):
        outside = sorted({*range(600)} - {*inside})
        out = rng.choice(inside, 12, replace=False).tolist() if step % 2 else []
        into = [] if step % 2 else rng.choice(outside, 12, replace=False).tolist()
        inside = sorted({*inside, *into} - {*out})
        change = planted.counts(options, into).cooccurrence - planted.counts(options, out).cooccurrence
        counts = Counts(counts.words, counts.cooccurrence + change)
        before = set(fit.words)
        outcome = update(fit, Counted(counts.words, counts.cooccurrence), Counts(counts.words, change))
        twin = learn(counts, options)
        assert isinstance(outcome, TopicFit), outcome
        same_model(outcome, twin)
        seen.append((len({*twin.words} - before), len(before - {*twin.words})))
        fit = outcome
    assert any(entered for entered, _ in seen)
    assert any(left for _, left in seen)
