"""A model as pages and figures show it."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from streamtopic import AnchorTopics, plots
from streamtopic.errors import InvalidRelease, UsageError
from streamtopic.pages.model_view import (
    ModelView,
    correlations,
    history_of,
    map_of,
    view_of,
)
from streamtopic.pages.plots import Curve, line_chart, ticks


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


def withdrawn(_):
    """What a subscriber says of a release that must not be used any more."""
    raise InvalidRelease("it is withdrawn")


def test_what_must_not_be_shown_is_refused(make_release, make_head):
    """Withdrawn releases and withheld topics are errors, and so is what is no model or was not fitted."""
    release = make_release()
    with pytest.raises(InvalidRelease, match="withdrawn"):
        view_of(dataclasses.replace(release, check=withdrawn))
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
    assert [shown.top_words(k) for k in range(3)] == [row.words for row in sorted(model.topic_info(names))]
    assert np.allclose(shown.A, model.components_[:, [names.index(word) for word in shown.words]].T)
    assert np.linalg.eigvalsh(shown.R).min() > -1e-9
    assert view_of(model).words[0].startswith("x")
    with pytest.raises(UsageError, match="2 names for 60 columns"):
        view_of(model, ["a", "b"])


def renumbered(release, order, version):
    """The same model with its topics in another order, as another version."""
    payload = release.payload
    order = list(order)
    changed = dataclasses.replace(
        payload,
        A=payload.A[:, order],
        R=payload.R[np.ix_(order, order)],
        shares=payload.shares[order],
        top_words=tuple(payload.top_words[k] for k in order),
        anchors=tuple(payload.anchors[k] for k in order),
    )
    return dataclasses.replace(
        release, payload=changed, envelope=dataclasses.replace(release.envelope, version=version)
    )


def test_a_topic_that_came_later_has_no_share_before(make_release):
    """Its path begins with it, and the others go on."""
    one = make_release(r=5, n=80)
    fewer = renumbered(one, [2, 0, 4], 1)
    found = history_of([fewer, renumbered(one, range(5), 2)])
    shares = {path["topic"]: path["shares"] for path in found["paths"]}
    assert [shares[topic][0] for topic in range(5)] == pytest.approx(
        [one.shares[0], 0, one.shares[2], 0, one.shares[4]]
    )
    assert [step["kept"] for step in found["steps"]] == [None, 1.0]


@pytest.mark.parametrize(("n", "r"), [(3, 1), (4, 2), (400, 130)])
def test_the_map_has_the_largest_topics_apart(make_release, n, r):
    """At most 100 topics, with names for 40, each named with up to three neighbours, and none on another."""
    found = map_of(view_of(make_release(n=n, r=r)))
    nodes = found["nodes"]
    assert len(nodes) == min(r, 100)
    assert sum(bool(node["name"]) for node in nodes) == min(r, 40)
    assert all(node["nearest"].count("(") == min(3, r - 1) for node in nodes)
    places = np.array([[node["x"], node["y"]] for node in nodes])
    apart = np.abs(places[:, None] - places[None]).max(axis=2)
    assert (apart + 1e9 * np.eye(len(nodes)) > 20).all()


@pytest.mark.parametrize("r", [1, 2, 7, 50])
def test_each_figure_has_the_words(make_release, read_picture, r):
    """Any release with topics can be drawn, and its words are in the figure."""
    release = make_release(r=r, n=60)
    other = make_release(r=r, n=60, version=2, seed=1)
    for figure in (plots.topic_map(release), plots.correlations(release)):
        said = "".join(read_picture(figure.svg()).itertext())
        assert release.top_words[0][0] in said
    said = "".join(read_picture(plots.shares([release, other]).svg()).itertext())
    assert any(words[0] in said for words in other.top_words)


def test_what_must_not_be_drawn_is_refused(make_release):
    """A withdrawn release among others, none at all, and amounts below one are errors."""
    release = make_release()
    gone = dataclasses.replace(release, check=withdrawn)
    with pytest.raises(InvalidRelease, match="withdrawn"):
        plots.shares([gone, make_release(version=2)])
    with pytest.raises(UsageError, match="nothing to show"):
        plots.shares([])
    with pytest.raises(UsageError, match="at least 1"):
        plots.shares([release], most=0)


def _classes(root, name):
    return [element for element in root.iter() if name in (element.get("class") or "").split()]


def test_curves_are_drawn_under_their_names(read_picture):
    """Each point has a mark, each curve a line and its name; a curve to compare with is dashed, without marks."""
    curves = [
        Curve("<update>", [(1, 0.2), (2, 0.3), (3, 0.0)]),
        Curve("retrain", [(1, 0.6), (3, 1.0)], look=1),
        Curve("alone", [(2, 0.5)], look=2),
        Curve("limit", [(1, 0.1), (3, 1.0)], dashed=True),
    ]
    root = read_picture(line_chart("Cost & more", "what is seen", curves, across="version", up="s").svg())
    assert (root[0].text, root[1].text) == ("Cost & more", "what is seen")
    assert [len(_classes(root, name)) for name in ("mark", "warm", "plain")] == [3, 2, 1]
    assert [len(_classes(root, name)) for name in ("mark-line", "warm-line", "dashed")] == [1, 1, 1]
    assert sorted(element.text for element in _classes(root, "clear")) == ["<update>", "alone", "limit", "retrain"]


@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 1), (0, 0.043), (-0.2, 0.37), (0, 0), (5, 5), (0.61, 0.63), (0, 123456), (-1, -0.5), (0, 1e-9)],
)
def test_ticks_are_few_round_and_cover(low, high):
    """An axis has two to six evenly spaced marks around all values; whole ones for numbers of versions."""
    marks = ticks(low, high)
    assert 2 <= len(marks) <= 6
    assert marks[0] <= low + 1e-9 * abs(low)
    assert marks[-1] >= high - 1e-9 * abs(high)
    assert len({f"{b - a:.6g}" for a, b in pairwise(marks)}) == 1
    assert all(mark == int(mark) for mark in ticks(low, high, whole=True))
