"""Topics as people arrange them: trees, merges, searches and pictures follow from the model alone."""

import io
import json

import numpy as np
import pytest
from scipy.cluster import hierarchy

from streamtopic.errors import UsageError
from streamtopic.topics.arrange import TopicTree, merge_topics, pyldavis_data, search_topics

R, N = 7, 40
WORDS = [f"w{k:02d}" for k in range(N)]


@pytest.fixture
def model():
    """Topics A (n, r) with shares z, two of them nearly the same."""
    rng = np.random.default_rng(5)
    A = rng.dirichlet(np.full(N, 0.2), R).T
    A[:, 4] = 0.95 * A[:, 1] + 0.05 * A[:, 4]
    shares = rng.dirichlet(np.full(R, 3.0))
    return A, shares


def test_the_tree_is_one_of_scipy_s(model):
    """Its linkage is valid and rises, and scipy cuts it into the same groups."""
    tree = TopicTree.of(*model)
    assert hierarchy.is_valid_linkage(tree.linkage)
    assert hierarchy.is_monotonic(tree.linkage)
    for count in range(1, R + 1):
        mine = tree.groups(count)
        theirs = hierarchy.cut_tree(tree.linkage, count)[:, 0]
        assert [*map(tuple, mine[:, None] == mine)] == [*map(tuple, theirs[:, None] == theirs)]
    assert sorted(tree.order.tolist()) == list(range(R))


def test_the_first_merge_loses_least(model):
    """The first merge is the pair with the least Jensen-Shannon divergence, weighted by the topics' shares."""
    A, shares = model
    losses = {}
    for a in range(R):
        for b in range(a + 1, R):
            z = shares[[a, b]]
            middle = (A[:, a] * z[0] + A[:, b] * z[1]) / z.sum()
            parts = [np.where(A[:, k] > 0, A[:, k] * np.log2(A[:, k] / middle), 0).sum() for k in (a, b)]
            losses[a, b] = float(z @ parts)
    first = TopicTree.of(A, shares).linkage[0]
    pair = min(losses, key=losses.get)
    assert tuple(first[:2].astype(int)) == pair == (1, 4)
    assert first[2] == pytest.approx(losses[pair])


def test_split_is_the_inverse_of_the_last_merge(model):
    """Splitting the group that was merged last gives the arrangement of one group more."""
    tree = TopicTree.of(*model)
    for count in range(1, R):
        coarse, fine = tree.groups(count), tree.groups(count + 1)
        merged = next(g for g in range(count) if len(np.unique(fine[coarse == g])) == 2)
        assert np.array_equal(tree.split(coarse, merged), fine)
    with pytest.raises(UsageError, match="does not join"):
        tree.split(tree.groups(R), 0)
    with pytest.raises(UsageError, match="ask from 1 to 7"):
        tree.groups(R + 1)


def test_merging_keeps_the_words_of_the_corpus(model):
    """Merged columns are on the simplex, and words have the same probabilities as before."""
    A, shares = model
    merged, left = merge_topics(A, shares, TopicTree.of(A, shares).groups(3))
    assert np.allclose(merged.sum(axis=0), 1)
    assert np.allclose(merged @ left, A @ shares)
    assert np.array_equal(merge_topics(A, shares, np.arange(R))[1], shares)
    with pytest.raises(UsageError, match="one group for each topic"):
        merge_topics(A, shares, [0, 2])


def test_search_finds_the_topics_of_a_word(model):
    """Shares of a word sum to 1 over its topics, fall, and follow Bayes; an unknown word is refused with a remedy."""
    A, shares = model
    hits = search_topics(A, shares, WORDS, "w07")
    assert sum(hit.of_word for hit in hits) == pytest.approx(1)
    assert [hit.of_word for hit in hits] == sorted((hit.of_word for hit in hits), reverse=True)
    best = hits[0]
    assert best.of_word == pytest.approx(A[7, best.topic] * shares[best.topic] / (A[7] @ shares))
    assert best.of_topic == A[7, best.topic]
    assert best.rank == 1 + (A[:, best.topic] > A[7, best.topic]).sum()
    with pytest.raises(UsageError, match="look alike are w07"):
        search_topics(A, shares, WORDS, "w077")


def test_a_picture_needs_no_document(model):
    """The data are JSON with pyLDAvis's columns; bars, totals and shares agree with the model."""
    A, shares = model
    data = json.loads(json.dumps(pyldavis_data(A, shares, WORDS, 10_000, terms=8)))
    assert {*data} == {"mdsDat", "tinfo", "token.table", "R", "lambda.step", "plot.opts", "topic.order"}
    order = np.array(data["topic.order"]) - 1
    assert np.allclose(np.array(data["mdsDat"]["Freq"]) / 100, shares[order])
    assert (np.diff(data["mdsDat"]["Freq"]) <= 0).all()
    info = data["tinfo"]
    assert {*info} == {"Term", "Freq", "Total", "Category", "logprob", "loglift"}
    assert {len(column) for column in info.values()} == {len(info["Term"])}
    assert info["Category"].count("Default") == data["R"] == 8
    for term, freq, total, category in zip(*(info[k] for k in ("Term", "Freq", "Total", "Category")), strict=True):
        word = WORDS.index(term)
        assert total == pytest.approx(1e4 * (A[word] @ shares))
        if category != "Default":
            topic = order[int(category.removeprefix("Topic")) - 1]
            assert freq == pytest.approx(1e4 * A[word, topic] * shares[topic])
    table = data["token.table"]
    for term in {*table["Term"]}:
        shown = [f for f, t in zip(table["Freq"], table["Term"], strict=True) if t == term]
        assert sum(shown) == pytest.approx(1, abs=0.2)


def test_pyldavis_draws_it(model):
    """The library itself writes its page of the data, with the bars of every topic, and saves them as JSON."""
    pyldavis = pytest.importorskip("pyLDAvis")
    data = pyldavis_data(*model, WORDS, 10_000, terms=8)
    # Given open files, since it leaves those open that it opens by a name.
    page, saved = io.StringIO(), io.StringIO()
    pyldavis.save_html(data, page)
    assert data.to_json() in page.getvalue()
    pyldavis.save_json(data, saved)
    assert json.loads(saved.getvalue()) == data
    # Its own type, made of frames, writes the same text.
    frame = pytest.importorskip("pandas").DataFrame
    parts = (frame(data["mdsDat"]), frame(data["tinfo"]), frame(data["token.table"]))
    own = pyldavis.PreparedData(*parts, data["R"], data["lambda.step"], data["plot.opts"], data["topic.order"])
    assert own.to_json() == data.to_json()


def test_a_topic_without_a_share_is_drawn(model):
    """Its place on the map is finite, and so are the bars of all topics."""
    A, shares = model
    shares = np.where(np.arange(R) == 2, 0.0, shares)
    data = pyldavis_data(A, shares / shares.sum(), WORDS, 10_000, terms=8)
    for numbers in (data["mdsDat"]["x"], data["mdsDat"]["y"], data["tinfo"]["logprob"], data["tinfo"]["loglift"]):
        assert np.isfinite(numbers).all()


def test_one_topic_has_no_map():
    """A single topic makes a tree of itself, and is refused as a map."""
    A, shares = np.full((4, 1), 0.25), np.ones(1)
    tree = TopicTree.of(A, shares)
    assert tree.groups(1).tolist() == tree.order.tolist() == [0]
    with pytest.raises(UsageError, match="two of them"):
        pyldavis_data(A, shares, WORDS[:4], 100)
