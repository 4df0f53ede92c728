"""Guided topics: seed words stand for a topic, and if nothing is left of it, it ends alike on every path."""

import numpy as np
import pytest
from dense_counts import dense_counts
from sklearn.base import clone

from streamtopic import AnchorTopics, TextCounts, TextTopics
from streamtopic.topics.guided import tandem_rows
from streamtopic.topics.learner_options import GuidedTopic, LearnerOptions

# Fits that end a topic on purpose are said.
pytestmark = pytest.mark.filterwarnings("ignore:guided topic .* has ended")

TOPICS, WORDS, DOCUMENTS = 5, 60, 900
SEEDS = {"first": [0, 1, 2], "second": [12, 13]}


@pytest.fixture(scope="module")
def planted():
    """Documents of five topics with twelve words of their own each, one or two topics a document."""
    rng = np.random.default_rng(7)
    own = np.full((TOPICS, WORDS), 0.2 / WORDS)
    for topic in range(TOPICS):
        own[topic, 12 * topic : 12 * topic + 12] += 0.8 / 12
    mixtures = rng.dirichlet(np.full(TOPICS, 0.1), DOCUMENTS)
    return np.array([rng.multinomial(40, shares @ own) for shares in mixtures])


def guided(n_topics=TOPICS, seeds=SEEDS, **options):
    """An estimator whose vocabulary is all columns."""
    return AnchorTopics(n_topics, min_df=1, min_share=0, max_df=1.0, guided=seeds, **options)


def same_model(one, other):
    """Assert that two models have equal decisions, and probabilities within the sum of their certificates."""
    assert one.topic_names_ == other.topic_names_
    assert one.guided_notes_ == other.guided_notes_
    assert np.array_equal(one.anchors_, other.anchors_)
    apart = np.linalg.norm(one.components_ - other.components_)
    assert apart <= one.certificate_ + other.certificate_ <= 1e-9


def test_row_is_the_harmonic_mean():
    """Entries are the harmonic mean of the seeds' shares, and 0 where one of the seeds never meets the word."""
    Q = np.array([[2, 4, 2, 0], [4, 2, 1, 3], [2, 1, 0, 2], [0, 3, 2, 1]])
    q = dense_counts(Q)
    options = LearnerOptions(2, guided=(GuidedTopic("t", ("a", "b")),))
    made = tandem_rows(q, Q.sum(axis=1), ("a", "b", "c", "d"), options)
    Qbar = Q / Q.sum(axis=1, keepdims=True)
    wanted = [2 / (1 / Qbar[0, k] + 1 / Qbar[1, k]) for k in range(3)]
    assert np.allclose(made.rows[0] / 2.0**40, [*wanted, 0.0], atol=2.0**-40)
    assert not made.remarks


def test_guided_topics_are_those_of_their_seeds(planted):
    """A guided topic finds the planted topic of its seeds, and the others are found beside it, one each."""
    model = guided().fit(planted)
    assert model.topic_names_[-2:] == ("first", "second")
    assert model.anchors_[-2:].tolist() == [-1, -1]
    best = model.components_.argmax(axis=1) // 12
    assert best[-2:].tolist() == [0, 1]
    assert sorted(best.tolist()) == [0, 1, 2, 3, 4]
    assert model.certificate_ <= 1e-9
    assert model.guided_notes_ == ()


@pytest.mark.parametrize("seed", range(8))
def test_a_few_deletions_leave_the_model_of_the_other_documents(seed):
    """Most columns of the solution are carried over, those of guided topics as well, each to its own topic."""
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(600, 0.15), 6)
    shares = rng.dirichlet(np.full(6, 0.2), 1500)
    X = np.array([rng.multinomial(30, words) for words in shares @ topics])
    model = AnchorTopics(6, min_df=1, max_df=1.0, guided={"one": [0, 1]})
    gone = 1 + seed % 3
    updated, fresh = clone(model).fit(X).unlearn(X[:gone]), model.fit(X[gone:])
    assert updated.topic_names_ == fresh.topic_names_
    assert np.abs(updated.components_ - fresh.components_).max() <= 1e-9


def test_two_topics_left_with_the_same_seeds_are_one(planted):
    """Of two guided topics whose seeds have become the same the first goes on, so no deletion is refused."""
    seeds = {"one": [2, 0], "two": [2, 1]}
    holds = (planted[:, 0] > 0) | (planted[:, 1] > 0)
    model = guided(seeds=seeds).fit(planted).unlearn(planted[holds])
    assert model.topic_names_[-1] == "one"
    assert model.guided_notes_[-1] == "guided topic two has ended: the seeds that are left are those of one"


def test_a_guided_topic_that_ends_at_once_is_said_with_its_cause():
    """`fit` warns at the line that called it: how many documents hold each seed, the limit, and what to do."""
    texts = ["car engine wheel road", "car engine brake wheel", "car dog fur paw", "car dog tail paw"] * 40
    counts = TextCounts()
    X = counts.fit_transform(texts)
    model = AnchorTopics(2, min_df=1, max_df=0.5, guided={"cars": ["car"]})
    said = r"guided topic cars has ended: none .*; car is in 160 documents, 100.0% of them, more than max_df \(50.0%\)"
    with pytest.warns(UserWarning, match=said) as caught:
        model.fit(X)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match=said) as caught:
        TextTopics(**model.get_params()).fit(texts)
    assert caught[0].filename == __file__
    rare = AnchorTopics(2, min_df=3, max_df=1.0, guided={"first": [0]})
    with pytest.warns(UserWarning, match=r"; x0 is in 1 documents, 0.6% of them, fewer than min_df \(3\)"):
        rare.fit(np.hstack([np.eye(160, 1, dtype=int), X.toarray()]))


@pytest.mark.parametrize(
    ("seeds", "said"),
    [
        ({"t": []}, "has no seed"),
        ({"t": "car"}, "are one text"),
        ({"t": ["car"]}, "has no column"),
        ({"t": [0, 0]}, "names a seed twice"),
        ({"t": [WORDS]}, "is not one of 60"),
        ({"t": [None]}, "neither a word nor the number"),
        ({"t": [True]}, "neither a word nor the number"),
        ({"t": [1.0]}, "neither a word nor the number"),
        ({"t": 5}, "are a int: give a list"),
        ([[0, 1]], "a list: give a dict"),
        ({"t": [0], "u": [0]}, "other seeds"),
        ({str(k): [k] for k in range(TOPICS + 1)}, "at least the 6 guided topics"),
    ],
)
def test_seeds_that_cannot_be_are_refused(planted, seeds, said):
    """An error names the topic and the remedy."""
    with pytest.raises(ValueError, match=said):
        guided(seeds=seeds).fit(planted)


def test_the_published_learner_has_no_guides(planted):
    """Guided topics need the default learner."""
    with pytest.raises(ValueError, match='guided topics need "default"'):
        guided(learner="paper").fit(planted)


def test_all_topics_may_be_guided(planted):
    """Without a topic to find, the model is a function of the seeds and the counts."""
    seeds = {f"t{k}": [12 * k, 12 * k + 1] for k in range(TOPICS)}
    model = guided(seeds=seeds).fit(planted)
    assert model.components_.argmax(axis=1).tolist() == [row.argmax() for row in model.components_]
    assert (model.components_.argmax(axis=1) // 12).tolist() == list(range(TOPICS))
    gone = planted[:5]
    same_model(model.unlearn(gone), guided(seeds=seeds).fit(planted[5:]))


NO_WORD = "no word represents it next to the other topics"

# No word of these documents is a mixture with a share of the first topic.
WITHOUT_MASS = np.array(
    [
        [2, 1, 0, 1, 0, 0],
        [0, 0, 0, 2, 3, 0],
        [0, 1, 1, 0, 0, 0],
        [0, 3, 2, 1, 1, 0],
        [0, 3, 0, 3, 0, 2],
        [0, 2, 0, 0, 1, 0],
        [1, 0, 1, 0, 3, 2],
        [1, 1, 0, 1, 0, 0],
        [3, 0, 2, 1, 0, 0],
    ]
)
GUIDES = {"g0": [0, 4], "g1": [0, 1, 4]}


def of_few(topics, guides):
    """An estimator of all words, each of which may be an anchor."""
    return guided(topics, guides, anchor_min_df=0.0)


def sound(fitted):
    """Assert that a model has a finite bound, and rows and proportions on the simplex."""
    assert np.isfinite(fitted.certificate_)
    assert np.allclose(fitted.components_.sum(axis=1), 1)
    assert len(fitted.components_) == len(fitted.topic_names_) == len(fitted.topic_shares_) == len(fitted.anchors_)
    assert (fitted.topic_shares_ > 0).all()


def test_a_topic_that_loses_its_words_ends_by_a_deletion_and_comes_back():
    """Deleted documents end the topic as a fit without them does, and added ones bring it back."""
    more = np.array([[2, 0, 0, 0, 2, 0], [3, 0, 0, 0, 3, 0], [1, 0, 0, 0, 1, 0]])
    fitted = of_few(2, GUIDES).fit(np.concatenate([WITHOUT_MASS, more]))
    assert "g0" in fitted.topic_names_
    fitted.unlearn(more)
    never = of_few(2, GUIDES).fit(WITHOUT_MASS)
    assert fitted.topic_names_ == never.topic_names_ == ("g1",)
    assert fitted.guided_notes_ == never.guided_notes_ == (f"guided topic g0 has ended: {NO_WORD}",)
    assert fitted.transform(WITHOUT_MASS).shape == (9, 1)
    sound(fitted)
    assert np.abs(fitted.components_ - never.components_).max() <= 1e-12
    fitted.partial_fit(more)
    assert "g0" in fitted.topic_names_
    sound(fitted)


def test_all_topics_guided_and_all_ended_is_one_clear_error():
    """`fit` names the remedy; `unlearn` does as well, and leaves the model and its documents as they were."""
    guides = {"one": [0, 1], "two": [2, 3]}
    # Each seed has a word of its own, so no word meets two of them.
    apart = np.tile(np.hstack([2 * np.eye(4, dtype=int), np.eye(4, dtype=int)]), (3, 1))
    with pytest.raises(ValueError, match=r"no topic is left \(guided topic one has ended: .*other seeds"):
        of_few(2, guides).fit(apart)
    together = np.array([[2, 2, 0, 0, 1, 1, 0, 0], [0, 0, 2, 2, 0, 0, 1, 1]] * 2)
    fitted = of_few(2, guides).fit(np.concatenate([apart, together]))
    before = fitted.components_.copy()
    with pytest.raises(ValueError, match="no topic is left"):
        fitted.unlearn(together)
    assert fitted.n_documents_ == 16
    assert np.array_equal(fitted.components_, before)
    assert fitted.unlearn(together[:1]).n_documents_ == 15
