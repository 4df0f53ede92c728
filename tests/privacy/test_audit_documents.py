"""Documents made to be hard to forget, and the bits that nothing but the kept documents may decide."""

import numpy as np
import pytest

from streamtopic.audit.chosen_documents import exact_differences, hardest
from streamtopic.bench.synthetic import counted, planted
from streamtopic.counts import Cooccurrence, Counts, DocumentBatch, Passage, count
from streamtopic.topics.display import topic_correlations
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.learner import learn
from streamtopic.topics.learner_options import LearnerOptions
from streamtopic.topics.update import update

WORDS = 300


def options(learner="default"):
    """Four topics, every word that five documents hold."""
    return LearnerOptions(n_topics=4, max_df=1.0, learner=learner)


def corpus(learner="default", documents=500):
    """Counts of documents of four topics."""
    return counted(planted(documents, WORDS, 4, 60, seed=3), WORDS, options(learner).weighting)


@pytest.mark.parametrize("learner", ["default", "paper"])
def test_what_is_unlearned_differs_from_a_retraining_in_no_exact_part(learner):
    """Of each crafted document nothing is left in words, anchors, counts, shape and covariance, and 1e-12 in A."""
    retrained, tries = hardest(corpus(learner), options(learner))
    assert retrained.documents == 500
    assert len(tries) >= 6
    for one in tries:
        assert one.different == ()
        assert one.gap <= 1e-12
        assert one.moved > 1e-6
        assert one.kept
    assert tries[0].gap == max(one.gap for one in tries)


def scattered(counts, words=12):
    """A document of words of all subjects, most of which no other document holds together."""
    ids = np.linspace(0, len(counts.words) - 1, words).astype(np.int32)
    return Passage(words, ids, np.ones(words, np.int32))


def test_forgotten_pairs_leave_no_trace_in_last_bits():
    """Covariance and shares of one noised A are the same bytes for a model that held pairs which nobody holds now."""
    counts = corpus(documents=60)
    small = LearnerOptions(n_topics=3, max_df=1.0, min_df=1, anchor_min_df=0.2)
    part = count(DocumentBatch.build([[scattered(counts)]]), len(counts.words), small.weighting)
    fit = learn(Counts(counts.words, counts.cooccurrence + part), small)
    outcome = update(fit, counts, Counts(counts.words, Cooccurrence.zero(len(counts.words)) - part))
    assert isinstance(outcome, TopicFit)
    unlearned, retrained = outcome, learn(counts, small)
    assert unlearned.words == retrained.words
    first, second = (topic_correlations(fit, retrained.A) for fit in (unlearned, retrained))
    assert first.R.tobytes() == second.R.tobytes()
    assert first.shares.tobytes() == second.shares.tobytes()


def test_what_was_not_subtracted_is_named():
    """A model that kept the document, another count of documents, other words and other counts are each told."""
    counts = corpus()
    retrained = learn(counts, options())
    more = corpus(documents=501)
    kept = learn(more, options())
    assert {"documents", "counts"} <= set(exact_differences(kept, retrained, more, counts))
    fewer = learn(counts, LearnerOptions(n_topics=3, max_df=1.0))
    assert {"anchors", "shape"} <= set(exact_differences(fewer, retrained, counts, counts))
    assert exact_differences(retrained, retrained, counts, counts) == ()
