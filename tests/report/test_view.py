import dataclasses

import numpy as np
import pytest

from streamtopic import AnchorTopics
from streamtopic.errors import InvalidRelease, UsageError
from streamtopic.report.model_view import ModelView, correlations, similar_order, strongest, view_of


def view(A, R):
    """A view with shares that belong to R."""
    z = R.sum(axis=1) / R.sum()
    top = tuple(tuple(int(k) for k in np.argsort(-column)[:3]) for column in A.T)
    return ModelView(tuple(f"w{k}" for k in range(len(A))), A, R, z, top)


def test_correlations_are_those_of_two_words_topics():
    """With topics that share no word they are the correlations of topic indicators drawn by theta, exactly."""
    rng = np.random.default_rng(0)
    theta = rng.dirichlet(np.full(3, 0.4), 500)
    A = np.zeros((9, 3))
    for topic in range(3):
        A[3 * topic : 3 * topic + 3, topic] = rng.dirichlet(np.ones(3))
    R = theta.T @ theta / 500
    z = R.sum(axis=1)
    covariance = R - np.outer(z, z)
    scale = np.sqrt(np.diag(covariance))
    expected = covariance / np.outer(scale, scale)
    np.fill_diagonal(expected, 1.0)
    assert correlations(view(A, R)) == pytest.approx(expected, abs=1e-12)


def test_topics_that_overlap_do_not_seem_to_avoid_each_other():
    """R of two topics of nearly the same words is negative between them; their words do meet."""
    shared = np.array([0.5, 0.5, 0.0, 0.0])
    A = np.stack([shared, 0.9 * shared + [0, 0, 0.1, 0], [0.0, 0.0, 0.0, 1.0]], axis=1)
    R = np.array([[0.5, -0.2, 0.0], [-0.2, 0.5, 0.0], [0.0, 0.0, 0.4]])
    found = correlations(view(A, R))
    assert found[0, 1] > 0 > found[0, 2]


@pytest.mark.parametrize(
    "R", [np.zeros((3, 3)), np.eye(3), np.full((3, 3), 1 / 9), np.diag([1.0, 0.0, 0.0])], ids=["0", "I", "even", "one"]
)
def test_correlations_of_degenerate_models_are_numbers(R):
    """No mass, no variance, topics that never occur: entries stay within -1 and 1 and never are nan."""
    A = np.full((4, 3), 0.25)
    shares = np.full(3, 1 / 3)
    found = correlations(ModelView(("a", "b", "c", "d"), A, R, shares, ((0,),) * 3))
    assert np.isfinite(found).all()
    assert np.abs(found).max() <= 1
    assert np.array_equal(found, found.T)


def test_a_release_and_its_view_agree(make_release):
    """Shown words, shares and matrices are the release's own, in its numbering."""
    release = make_release()
    shown = view_of(release)
    assert shown.top_words(2, 4) == release.top_words[2][:4]
    assert np.array_equal(shown.A, release.A)
    assert [shown.shares[k] for k in shown.order] == sorted(release.shares, reverse=True)
    here = shown.here(1)
    joint = release.A * release.shares
    word = release.words.index(shown.top_words(1)[0])
    assert here[0] == pytest.approx(joint[word, 1] / joint[word].sum())


def test_what_must_not_be_shown_is_refused(make_release, make_head):
    """Withdrawn releases and withheld topics are errors, and so is what is no model or was not fitted."""
    release = make_release()
    with pytest.raises(InvalidRelease, match="withdrawn"):
        view_of(dataclasses.replace(release, is_withdrawn=lambda _: True))
    with pytest.raises(InvalidRelease, match="withholds"):
        view_of(make_release(withheld=True, heads={"t": make_head(release, withheld=True)}))
    for thing in (AnchorTopics(), None, "model"):
        with pytest.raises(UsageError, match="neither a Release nor a fitted AnchorTopics"):
            view_of(thing)


def test_an_estimator_has_a_view_with_its_words():
    """A fitted AnchorTopics is shown with the names given, those it was fitted with, or numbers of columns."""
    rng = np.random.default_rng(1)
    topics = rng.dirichlet(np.full(60, 0.05), 3)
    X = np.array([rng.multinomial(40, theta @ topics) for theta in rng.dirichlet(np.full(3, 0.2), 200)])
    model = AnchorTopics(3, min_df=1, max_df=1.0).fit(X)
    names = [f"word{k}" for k in range(60)]
    shown = view_of(model, names)
    assert [shown.top_words(k) for k in range(3)] == [tuple(words) for words in model.topics(names)]
    assert np.allclose(shown.A, model.components_[:, [names.index(word) for word in shown.words]].T)
    assert np.linalg.eigvalsh(shown.R).min() > -1e-9
    assert view_of(model).words[0].startswith("x")
    with pytest.raises(UsageError, match="2 names for 60 columns"):
        view_of(model, ["a", "b"])


def test_similar_topics_become_neighbours():
    """The order is a permutation that puts two groups side by side."""
    groups = np.array([0, 1, 0, 1, 0, 1])
    related = np.where(groups[:, None] == groups[None], 0.8, -0.2)
    order = similar_order(related)
    assert sorted(order) == list(range(6))
    assert len({tuple(groups[order][:3]), tuple(groups[order][3:])}) == 2
    assert similar_order(np.eye(2)) == [0, 1]


def test_the_strongest_pairs_are_named():
    """Pairs in words are those with the largest values of a sign, and none where nothing is notable."""
    related = np.array([[1.0, 0.3, -0.4], [0.3, 1.0, 0.01], [-0.4, 0.01, 1.0]])
    assert strongest(related, [5, 6, 7], 1) == [(5, 6, 0.3)]
    assert strongest(related, [5, 6, 7], -1) == [(5, 7, -0.4)]
