"""TextCounts by scikit-learn's contract, and the service's model through it."""

import pickle
from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.base import clone

from streamtopic import AnchorTopics, TextCounts
from streamtopic.counts import DocumentBatch, Passage
from streamtopic.words.text import passages, tokenize

GROUPS = (
    ["rose", "tulip", "soil", "seed", "bloom", "compost", "spade", "hedge", "2004"],
    ["oven", "flour", "butter", "knead", "simmer", "roast", "spoon", "mp3", "機械学習"],
    ["mast", "tide", "crew", "cargo", "rope", "gull", "vessel", "Größe", "naïve"],
)
texts = st.lists(
    st.one_of(
        st.text(max_size=60),
        st.text(alphabet="abAB1 _-.é学ก\u0301", max_size=60),
        st.sampled_from(["", "x", "b" * 65 + " aa", "aa bb " * 5_000, "ää " * 9_000, "\ud800 ab"]),
    ),
    max_size=12,
)


@cache
def corpus(number=240, seed=0):
    """Texts that lean to one of three topics, in several scripts; some are empty, or longer than a passage."""
    rng = np.random.default_rng(seed)
    found = []
    for k in range(number):
        shares = rng.dirichlet([0.2] * 3)
        length = 9_000 if k % 80 == 7 else int(rng.integers(20, 50))
        words = [str(rng.choice(GROUPS[rng.choice(3, p=shares)])) for _ in range(length)]
        words += [f"only{k}", "z" * 70] * (k % 5 == 0)
        found.append("" if k % 60 == 9 else " ".join(words).upper() if k % 7 == 0 else ", ".join(words))
    return tuple(found)


def model(**more):
    """An estimator of three topics that keeps most words."""
    return AnchorTopics(**{"n_topics": 3, "min_df": 3, "max_df": 1.0, **more})


def counted(some):
    """Count texts as the service's own words and passages have them, over all words in order."""
    documents = [passages(text) for text in some]
    words = sorted({word for document in documents for _, held in document for word in held})
    place = {word: k for k, word in enumerate(words)}
    rows = [[_passage(length, held, place) for length, held in document] for document in documents]
    return words, DocumentBatch.build(rows)


def _passage(length, held, place):
    order = sorted(held)
    return Passage(
        length, np.array([place[word] for word in order], np.int32), np.array([held[word] for word in order], np.int32)
    )


def same_batch(one, other):
    """Whether two batches are equal in every array."""
    arrays = ("indptr", "words", "counts", "lengths", "owners", "documents")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays)


@settings(max_examples=40)
@given(texts)
def test_words_and_passages_are_those_of_the_service(some):
    """Whatever the texts: the columns are their words, the rows their passages, to the last token."""
    words, batch = counted(some)
    if not words:
        with pytest.raises(ValueError, match="no word"):
            TextCounts().fit(some)
        return
    vectoriser = TextCounts()
    X = vectoriser.fit_transform(iter(some))
    assert vectoriser.words_ == tuple(words)
    assert vectoriser.get_feature_names_out().tolist() == words
    assert X.shape == (len(some), len(words))
    assert same_batch(X.texts.batch, batch)
    assert not X.texts.unknown.any()
    assert same_batch(vectoriser.transform(some).texts.batch, batch)


@settings(max_examples=25)
@given(texts, texts)
def test_columns_that_are_there_keep_their_places(first, second):
    """New words come behind the others, in order, so the same texts keep their counts; without them they only count."""
    if not counted(first)[0]:
        return
    vectoriser = TextCounts().fit(first)
    before, old = vectoriser.transform(first), vectoriser.words_
    narrow = vectoriser.transform(second)
    words, batch = counted(second)
    missing = np.isin(words, old, invert=True)
    rows = np.repeat(batch.owners, np.diff(batch.indptr))
    expected = np.zeros(len(second), np.int64)
    np.add.at(expected, rows[missing[batch.words]], batch.counts[missing[batch.words]])
    assert np.array_equal(narrow.texts.unknown, expected)
    assert np.array_equal(narrow.texts.batch.lengths, batch.lengths)
    vectoriser = pickle.loads(pickle.dumps(vectoriser.partial_fit(second)))  # noqa: S301  made in this line
    assert vectoriser.words_ == (*old, *sorted({*words} - {*old}))
    assert same_batch(vectoriser.transform(first).texts.batch, before.texts.batch)
    assert not vectoriser.transform(second).texts.unknown.any()
    assert clone(vectoriser).get_params() == {}


def test_words_and_counts_are_taken_in_place_of_texts():
    """A list of a text's words is the same document as the text, and so are its counts if it is one passage."""
    lists = [tokenize(text) for text in (*corpus(30), "aa " * 9_000)]
    some = [" ".join(words) for words in lists]
    vectoriser = TextCounts().fit(some)
    expected = vectoriser.transform(some).texts.batch
    mixed = [text if k % 2 else words for k, (text, words) in enumerate(zip(some, lists, strict=True))]
    for given_words in (lists, mixed):
        own = TextCounts()
        assert same_batch(own.fit_transform(given_words).texts.batch, expected)
        assert own.words_ == vectoriser.words_
    counts = [Counter(words) if len(words) < 8_000 else words for words in lists]
    assert same_batch(vectoriser.transform(counts).texts.batch, expected)
    assert TextCounts().fit([["New York", "a", "", "x" * 65]]).words_ == ("New York", "a")


@pytest.mark.parametrize("learner", ["default", "paper"])
def test_texts_can_be_added_and_taken_away(learner):
    """Adding texts with new words, and forgetting others, gives the model of the texts that are left."""
    everything = list(corpus())
    counts = TextCounts()
    fitted = model(learner=learner).fit(counts.fit_transform(everything[:150]))
    for more in (everything[150:151], everything[151:]):
        fitted.partial_fit(counts.partial_fit(more).transform(more))
    for gone in (everything[3:4], everything[140:160]):
        fitted.unlearn(counts.transform(gone))
    rest = everything[:3] + everything[4:140] + everything[160:]
    vectoriser = TextCounts()
    never = model(learner=learner).fit(vectoriser.fit_transform(rest))
    columns, positions = fitted.word_places()
    others, _ = never.word_places()
    assert counts.words_ != tuple(sorted(counts.words_)), "columns are in the order in which they came"
    assert fitted.feature_names_in_[columns].tolist() == never.feature_names_in_[others].tolist()
    assert np.abs(fitted.components_[:, columns] - never.components_[:, others]).max() <= 1e-12
    assert [counts.words_[k] for k in fitted.anchors_] == [vectoriser.words_[k] for k in never.anchors_]
    assert fitted.topics() == never.topics()
    assert np.array_equal(fitted.counts_.frequency[positions], never.counts_.frequency[never.word_places()[1]])
    assert fitted.n_documents_ == len(rest)
    assert fitted.n_features_in_ == len(counts.words_)


@pytest.mark.filterwarnings("ignore:.* hold no word of the model:UserWarning")
def test_new_texts_are_inferred_whatever_columns_they_have():
    """Proportions are those of the known words: older, newer and pickled vectorisers give the same."""
    counts = TextCounts()
    everything = list(corpus())
    X = counts.fit_transform(everything[:200])
    fitted = pickle.loads(pickle.dumps(model().fit(X)))  # noqa: S301  made in this line
    theta = fitted.transform(X)
    counts.partial_fit(everything)
    grown = counts.transform(everything[:200])
    assert grown.shape[1] > X.shape[1]
    assert np.array_equal(fitted.transform(grown), theta)
    fitted.partial_fit(counts.transform(everything[200:]))
    assert np.array_equal(fitted.transform(X), fitted.transform(grown))
    # Apart from rounding: other documents of a block change the order of sums.
    np.testing.assert_allclose(fitted.transform(X[[5, 3]]), fitted.transform(X)[[5, 3]], rtol=1e-9)


def test_texts_without_counting_are_refused_with_the_remedy():
    """AnchorTopics names the vectoriser to someone who gives it texts, whatever holds them."""
    texts = ["car engine", "dog cat"] * 5
    for column in (texts, tuple(texts), np.array(texts), np.array(texts, object), "car engine"):
        with pytest.raises(ValueError, match=r"make_pipeline\(TextCounts\(\), AnchorTopics\(\)\)"):
            AnchorTopics(2).fit(column)


def test_rows_with_and_without_texts_do_not_mix():
    """Plain rows of the same columns have other lengths, so a model of texts refuses them, and the other way round."""
    counts = TextCounts()
    X = counts.fit_transform(corpus())
    of_texts, of_rows = model().fit(X), model().fit(csr_array(X))
    for change in ("partial_fit", "unlearn"):
        with pytest.raises(ValueError, match="does not know its texts"):
            getattr(of_texts, change)(csr_array(X)[:3])
        with pytest.raises(ValueError, match="rows that do not know their texts"):
            getattr(of_rows, change)(X[:3])
    other = TextCounts().fit_transform(["other words", "and words of other texts"])
    for change in ("partial_fit", "unlearn", "transform"):
        with pytest.raises(ValueError, match="columns are other words"):
            getattr(of_texts, change)(other)
    assert of_rows.fit(X).feature_names_in_.tolist() == list(counts.words_)
    assert not hasattr(of_rows.fit(csr_array(X)), "feature_names_in_")
