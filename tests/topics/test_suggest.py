import dataclasses

import numpy as np
import pytest
from scipy.sparse import csr_array

from streamtopic.counts import Counts, DocumentBatch, count
from streamtopic.errors import UsageError
from streamtopic.topics.display import WordEvidence, diversity, npmi, top_words
from streamtopic.topics.how_many_topics import (
    Candidate,
    TrialPlan,
    recommend,
    suggest_for,
    suggest_topics,
)
from streamtopic.topics.learner import learn


@pytest.fixture(scope="module")
def corpus(planted):
    """Counts and documents of the planted corpus of four topics."""
    options = planted.options(max_df=0.4, anchor_min_df=0.02)
    return planted.counts(options), DocumentBatch.build(planted.documents), options


def suggested(corpus, seed=0, **more):
    """What is suggested for the corpus."""
    source, documents, options = corpus
    return suggest_topics(source, documents, options, np.random.default_rng(seed), **more)


def test_measures_are_those_of_the_model_that_is_learned(corpus):
    """A candidate describes the model that the service would learn: its words, coherence, diversity and shares."""
    source, documents, options = corpus
    for candidate in suggested(corpus, topics=(3, 5), plan=TrialPlan(0)).candidates:
        fit = learn(source, dataclasses.replace(options, n_topics=candidate.topics))
        at = np.searchsorted(np.array(source.words), np.array(fit.words))
        top = at[top_words(fit.A, WordEvidence.of(fit, source.frequency[at]), 10)]
        assert candidate.top_words == tuple(tuple(source.words[k] for k in topic) for topic in top)
        assert candidate.coherence == pytest.approx(npmi(top, documents), abs=1e-12)
        assert candidate.diversity == diversity(top)
        assert candidate.least_share == pytest.approx(fit.topic_masses.min())
        assert candidate.certificate == pytest.approx(fit.certificate.bound)
        assert (candidate.kept, candidate.steady) == (None, None)


@pytest.mark.parametrize("learner", ["default", "paper"])
def test_steady_agrees_with_a_fresh_fit(planted, learner):
    """A forget set counts as steady exactly where a model of the documents left has the same anchors."""
    options = planted.options(learner, n_topics=4)
    source, documents = planted.counts(options), DocumentBatch.build(planted.documents)
    plan = TrialPlan(trials=6, share=0.1)
    (found,) = suggest_topics(source, documents, options, np.random.default_rng(3), topics=(4,), plan=plan).candidates
    generator = np.random.default_rng(3)
    whole = learn(source, options).anchors
    same = []
    for _ in range(6):
        gone = documents.take(np.sort(generator.permutation(600)[:60]))
        left = source.cooccurrence - count(gone, len(source.words), options.weighting)
        same.append(learn(Counts(source.words, left), options).anchors == whole)
    assert found.steady == pytest.approx(np.mean(same))
    assert 0 < found.kept <= 1


def test_a_number_that_makes_no_model_says_why_and_others_go_on(corpus):
    """One impossible number is an outcome with a reason, and never recommended."""
    found = suggested(corpus, topics=(100, 4), plan=TrialPlan(1))
    assert [candidate.topics for candidate in found.candidates] == [4, 100]
    assert "the documents are too few" in found.candidates[1].reason
    assert found.recommended is found.candidates[0]
    nothing = suggested(corpus, topics=(110, 100), plan=TrialPlan(1))
    assert nothing.recommended is None
    assert nothing.reason.startswith("no model can be made: ")
    assert nothing.as_json()["recommended"] is None
    empty = corpus[1].take(np.zeros(0, np.intp))
    no_documents = Counts([], count(empty, 0, corpus[2].weighting)), empty, corpus[2]
    assert "no document" in suggested(no_documents, topics=(2,)).reason


def candidate(topics, coherence, kept=0.9, steady=1.0, **more):
    """A candidate of which every topic is different."""
    fields = {"words": 100, "coherence": coherence, "diversity": 1.0, "kept": kept, "steady": steady, **more}
    return Candidate(topics, **fields)


@pytest.mark.parametrize(
    ("found", "chosen", "said"),
    [
        ([candidate(5, 0.4), candidate(10, 0.37), candidate(20, 0.35)], 10, "within a tenth of the best, 0.40 at 5"),
        ([candidate(5, 0.4), candidate(10, 0.3)], 5, "the best score, 0.40"),
        ([candidate(5, 0.4, 0.5), candidate(10, 0.3)], 10, "5 scored higher, but too few"),
        ([candidate(5, 0.4, 0.5), candidate(10, 0.3, 0.7)], 10, "keep the most top words, 70%"),
        ([candidate(5, -0.2), candidate(10, -0.19)], 10, "the best score, -0.19"),
        ([candidate(5, -0.2), candidate(10, -0.3, diversity=0.1)], 5, "the best score, -0.20"),
        ([candidate(5, 0.4, steady=0.0)], 5, "expect a retrain"),
        ([candidate(5, 0.4, steady=0.6)], 5, "60% of the forget sets leave"),
        ([candidate(1, 0.4, None, None)], 1, "1 topic: the best"),
    ],
)
def test_the_recommendation_follows_its_rule(found, chosen, said):
    """The most topics within a tenth of the best score among those that last, and the reason says which case it was."""
    made = recommend(found)
    assert made.recommended.topics == chosen
    assert said in made.reason


def test_rows_of_counts_give_the_same_suggestion(corpus):
    """A matrix with its words, in whatever order, gives what the counts of its rows give."""
    source, documents, options = corpus
    shape = (documents.documents, len(source.words))
    X = csr_array((documents.counts, documents.words, documents.indptr), shape=shape)
    turned = np.random.default_rng(0).permutation(len(source.words))
    names = [source.words[k] for k in turned]
    plan = TrialPlan(2)
    one = suggest_for(X[:, turned], names, options, topics=(3, 4), plan=plan, seed=1)
    assert one == suggested(corpus, 1, topics=(3, 4), plan=plan)
    dense = suggest_for(X.toarray(), options=options, topics=(3,), plan=TrialPlan(0))
    assert dense.candidates[0].top_words[0][0].startswith("x")
    for bad in (["a"], ["a"] * len(names)):
        with pytest.raises(UsageError, match="names for"):
            suggest_for(X, bad)
    with pytest.raises(UsageError, match="negative"):
        suggest_for(-X)


def test_what_cannot_be_tried_is_refused(corpus):
    """No number, a number below 1, or documents that were not counted: an error that says so."""
    source, documents, options = corpus
    for topics in ((), (0,), (-3, 4)):
        with pytest.raises(UsageError, match="numbers of topics"):
            suggested(corpus, topics=topics)
    few = Counts(source.words, count(documents.take(np.arange(10)), len(source.words), options.weighting))
    with pytest.raises(UsageError, match="not those that were counted"):
        suggest_topics(few, documents, options, np.random.default_rng(0))
