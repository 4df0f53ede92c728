"""Documents made to be hard to forget, and the bits that nothing but the kept documents may decide."""

import itertools

import numpy as np
import pytest

from streamtopic.audit.chosen_documents import (
    MOST_SETS,
    crafted_documents,
    crafted_sets,
    exact_differences,
    forget,
    hardest,
)
from streamtopic.bench.chains import described
from streamtopic.bench.synthetic import counted, planted
from streamtopic.counts import Cooccurrence, Counts, DocumentBatch, Passage, count
from streamtopic.counts.compact import pack
from streamtopic.topics.display import topic_correlations
from streamtopic.topics.learner import learn
from streamtopic.topics.learner_options import LearnerOptions
from streamtopic.topics.products import times
from streamtopic.topics.update import Updated, update

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


def test_crafted_documents_are_documents():
    """They hold words of the corpus, are no longer than a document may be, and pull at the anchors."""
    counts = corpus()
    fit = learn(counts, options())
    made = crafted_documents(counts, fit)
    for passage in itertools.chain(*made.values()):
        assert len(passage.words) > 1
        assert passage.length == passage.counts.sum() <= 8_192
        assert np.all(np.diff(passage.words) > 0)
    pulled = {counts.words[k] for k in made["two anchors side by side"][0].words}
    assert pulled <= set(fit.anchors)
    parts = [{*passage.words.tolist()} for passage in made["a text of several passages"]]
    assert len(parts) == 3
    assert {counts.words[k] for k in set.intersection(*parts)} == {*fit.anchors}


def with_documents(counts, documents, given):
    """Learn counts with some documents."""
    part = count(DocumentBatch.build(documents), len(counts.words), given.weighting)
    return learn(Counts(counts.words, counts.cooccurrence + part), given)


def test_words_enter_as_documents_are_forgotten():
    """A set puts frequent words above the threshold, so that they come back when it goes; nothing of it is left."""
    counts, given = corpus(), LearnerOptions(n_topics=4, max_df=0.25)
    retrained = learn(counts, given)
    documents = crafted_sets(counts, retrained)["words that enter as they are forgotten"]
    assert len({*retrained.words} - {*with_documents(counts, documents, given).words}) >= 2
    tried = forget(counts, retrained, documents, "entering", options=given)
    assert tried.different == ()
    assert tried.gap <= 1e-12
    assert "words that enter as they are forgotten" not in crafted_sets(counts, learn(counts, options()))


def test_memberships_tip_as_documents_are_forgotten():
    """A set moves words between super-anchors, which move back when it goes; nothing of it is left then."""
    counts = corpus()
    retrained = learn(counts, options())
    sets = crafted_sets(counts, retrained)
    assert len(sets) <= MOST_SETS
    documents = sets["words that lean to another topic"]
    held = described(with_documents(counts, documents, options()))
    assert held.words == retrained.words
    assert held.sets != described(retrained).sets
    tried = forget(counts, retrained, documents, "tipping", options=options())
    assert tried.different == ()
    assert tried.gap <= 1e-12


def test_a_word_that_repeats_itself_comes_back_as_documents_are_forgotten():
    """Twelve documents that one word fills take it out of the vocabulary; nothing of that is left in the end."""
    given = LearnerOptions(n_topics=4, max_df=1.0)
    counts = counted(planted(1_500, 1_200, 4, 60, seed=3), 1_200, given.weighting)
    retrained = learn(counts, given)
    documents = crafted_sets(counts, retrained)["a word that repeats itself until they are forgotten"]
    assert len(documents) == 12
    held = with_documents(counts, documents, given)
    (left,) = {*retrained.words} - {*held.words}
    (passage,) = documents[0]
    place = list(counts.words).index(left)
    assert passage.words[np.argmax(passage.counts)] == place
    assert counts.cooccurrence.heavy[place] == 0
    assert left in with_documents(counts, documents[:9], given).words
    tried = forget(counts, retrained, documents, "filled", options=given)
    assert tried.different == ()
    assert tried.gap <= 1e-12


def test_a_text_of_several_passages_is_forgotten_as_one_document():
    """Its passages share one document's mass, and words of all of them are counted once; nothing of it is left."""
    counts, given = corpus(), options()
    retrained = learn(counts, given)
    text = crafted_documents(counts, retrained)["a text of several passages"]
    held = with_documents(counts, [text], given)
    assert held.documents == counts.documents + 1
    assert sum(passage.length for passage in text) > 8_192
    added = sum(held.mass.tolist()) - sum(retrained.mass.tolist())
    assert abs(added / 2**30 - 256) < 1
    tried = forget(counts, retrained, [text], "text", options=given)
    assert tried.different == ()
    assert tried.gap <= 1e-12


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
    assert isinstance(outcome, Updated)
    unlearned, retrained = outcome.fit, learn(counts, small)
    assert unlearned.words == retrained.words
    first, second = (topic_correlations(fit, retrained.A) for fit in (unlearned, retrained))
    assert first.R.tobytes() == second.R.tobytes()
    assert first.shares.tobytes() == second.shares.tobytes()


def test_a_stored_zero_is_no_term_of_a_sum():
    """A product with Q is the same bits whether forgotten pairs are stored as 0 or not stored at all."""
    counts = corpus()
    fit = learn(counts, options())
    thin = np.random.default_rng(0).uniform(size=(fit.q.n, 4))
    expected = times(fit.q, thin)
    generator = np.random.default_rng(1)
    indptr, columns, values = [0], [], []
    for row in range(fit.q.n):
        held = slice(fit.q.indptr[row], fit.q.indptr[row + 1])
        pairs = dict.fromkeys(generator.integers(0, fit.q.n, 40).tolist(), 0)
        pairs |= dict(zip(fit.q.columns[held].tolist(), fit.q.values[held].tolist(), strict=True))
        columns += sorted(pairs)
        values += [pairs[column] for column in sorted(pairs)]
        indptr.append(len(columns))
    padded = type(fit.q)(
        fit.q.n, pack(fit.q.n, np.array(indptr, np.int64), np.array(columns, np.int32), np.array(values, np.int64))
    )
    assert padded.entries > fit.q.entries
    assert times(padded, thin).tobytes() == expected.tobytes()


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


def test_a_residue_in_the_counts_is_caught(monkeypatch):
    """Where unlearning forgets to subtract, what is published bare differs and the try says so."""
    counts = corpus()
    retrained = learn(counts, options())
    document = crafted_documents(counts, retrained)["the rarest words of the vocabulary"]
    part = count(DocumentBatch.build([document]), len(counts.words), options().weighting)
    held = learn(Counts(counts.words, counts.cooccurrence + part), options())
    monkeypatch.setattr("streamtopic.audit.chosen_documents._without", lambda *_: (held, ""))
    assert forget(counts, retrained, [document], "kept", options=options()).different
