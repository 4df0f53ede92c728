"""Learning from counts: what is found, and what every odd corpus ends in."""

from types import SimpleNamespace

import numpy as np
import pytest

from streamtopic import TextTopics
from streamtopic.counts import Cooccurrence, Counts, DocumentBatch, Passage, Weighting, count
from streamtopic.errors import CannotLearn
from streamtopic.topics.learner import candidate_positions, choose_words, learn
from streamtopic.topics.learner_options import LearnerOptions


def counts_of(texts):
    """Count texts whose words stand between spaces."""
    words = sorted({word for text in texts for word in text.split()})
    rows = []
    for text in texts:
        found, amounts = np.unique([words.index(w) for w in text.split()], return_counts=True)
        rows.append([Passage(int(amounts.sum()), found.astype(np.int32), amounts.astype(np.int32))])
    return Counts(words, count(DocumentBatch.build(rows), len(words), Weighting(256)))


@pytest.mark.parametrize("learner", ["default", "paper"])
@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        (Counts([], Cooccurrence.zero(0)), "documents"),
        (counts_of(["one two", "three four"]), "candidates"),
        (counts_of(["alone", "alone"] * 5), "pairs"),
        (counts_of(["one two", "one three"] * 9), "rank"),
        (counts_of(["once upon"]), "candidates"),
    ],
)
def test_corpora_without_topics_say_why(learner, counts, reason):
    """Empty, one-word, too small and repeated corpora end in CannotLearn with the reason, not in NaN."""
    with pytest.raises(CannotLearn) as error:
        learn(counts, LearnerOptions(n_topics=3, learner=learner, min_df=1))
    assert error.value.reason == reason
    assert "add" in str(error.value) or "fewer" in str(error.value) or "need" in str(error.value)


def test_words_in_too_many_documents_name_the_limit():
    """Where words are frequent enough and all too frequent, the remedy is not to add documents or lower min_df."""
    counts = counts_of(["one two three", "one two four"] * 40)
    with pytest.raises(CannotLearn, match="raise max_df"):
        learn(counts, LearnerOptions(n_topics=2, min_df=1))


def test_words_without_partner_are_left_out():
    """A kept word that never meets another kept word has no row and leaves no NaN."""
    texts = ["red green blue", "red green blue sea", "sea sky wave", "wave sea sky red"] * 60 + ["lonely lonely2"] * 60
    source = counts_of([t.replace("lonely2", f"rare{k}") for k, t in enumerate(texts)])
    fit = learn(source, LearnerOptions(n_topics=2, min_df=4, max_df=1.0))
    assert "lonely" not in fit.words
    assert np.isfinite(fit.A).all()


def chosen(frequency, documents, options):
    """Choose among so few words that nothing but their frequencies counts."""
    return choose_words(SimpleNamespace(frequency=frequency, documents=documents), options)


def test_small_corpora_keep_their_words():
    """max_df never asks for fewer than 20 documents, min_df never for more than 2 % of them."""
    frequency = np.array([1, 2, 20, 30])
    keep, anchors = chosen(frequency, 30, LearnerOptions(n_topics=2))
    assert keep.tolist() == [0, 1, 2]
    assert anchors.tolist() == [False, True, True]


def test_ceiling_of_the_vocabulary_raises_the_least_frequency():
    """More words than max_words raise the threshold until they fit; the rarest go first."""
    frequency = np.arange(1, 101)
    keep, _ = chosen(frequency, 10_000, LearnerOptions(n_topics=2, min_df=1, max_words=30))
    assert len(keep) <= 30
    assert frequency[keep].min() > frequency[np.setdiff1d(np.arange(100), keep)].max()


@pytest.mark.parametrize(("learner", "most", "found"), [("default", 3, [0, 1, 3]), ("paper", 3, [0, 1, 2, 3, 4])])
def test_the_most_frequent_words_may_be_anchors(learner, most, found):
    """Of equally frequent ones the first; the published learner knows no such bound."""
    frequency, frequent = np.array([5, 9, 5, 7, 5, 9]), np.arange(6) < 5
    options = LearnerOptions(n_topics=2, learner=learner, max_candidates=most)
    assert candidate_positions(frequency, frequent, options).tolist() == found


@pytest.mark.parametrize("learner", ["default", "paper"])
@pytest.mark.parametrize("documents", [1, 2, 5])
def test_a_few_documents_are_refused_in_plain_words(learner, documents):
    """The error says that documents are too few and what to do, without a word of how anchors are searched."""
    texts = [
        "the engine of the car",
        "a car on the road",
        "the cat and the dog",
        "a dog and its paw",
        "bread in the oven",
    ]
    estimator = TextTopics(10, learner=learner)
    with pytest.raises(ValueError, match=r"^the documents are too few .*: add documents") as caught:
        estimator.fit(texts[:documents])
    assert not {"span", "directions", "rank", "candidate", "anchors", "rows"} & {*str(caught.value).split()}
