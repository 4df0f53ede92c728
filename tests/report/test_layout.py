import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon

from streamtopic.report.model_view import classical_scaling, divergences, place_topics, spread


@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_divergences_are_those_of_jensen_and_shannon(r, seed):
    """Each entry is scipy's, symmetric, 0 on the diagonal; words that a topic lacks are no trouble."""
    rng = np.random.default_rng(seed)
    A = rng.dirichlet(np.full(8, 0.2), r).T
    A[A < 0.02] = 0.0
    A /= A.sum(axis=0)
    found = divergences(A)
    expected = [[jensenshannon(A[:, i], A[:, j], base=2) ** 2 if i != j else 0.0 for j in range(r)] for i in range(r)]
    assert found == pytest.approx(np.array(expected), abs=1e-12)


def test_topics_without_a_common_word_are_one_apart():
    """The distance goes from 0, the same words, to 1, none in common."""
    A = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]])
    assert divergences(A)[0, 1] == 1.0
    assert place_topics(A[:, [0, 0]]).distances[0, 1] == 0.0


def test_points_in_a_plane_come_back():
    """Distances that two axes can show are shown exactly, and said to be."""
    points = np.random.default_rng(1).normal(size=(7, 2))
    squares = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    found, shown = classical_scaling(squares)
    assert ((found[:, None] - found[None]) ** 2).sum(axis=2) == pytest.approx(squares)
    assert shown == pytest.approx(1.0)


def test_an_embedding_of_divergences_has_no_negative_part():
    """Square roots of divergences are Euclidean, so the shares of the axes are honest."""
    A = np.random.default_rng(2).dirichlet(np.full(50, 0.1), 12).T
    squares = divergences(A)
    centred = squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean()
    assert np.linalg.eigvalsh(-centred / 2).min() > -1e-12
    assert 0 < place_topics(A).shown < 1


@pytest.mark.parametrize("r", [1, 2, 3])
def test_few_topics_have_places_too(r):
    """One topic, two, and identical ones are placed without a division by nothing."""
    for A in (np.eye(4)[:, :r], np.full((4, r), 0.25)):
        plan = place_topics(A)
        assert np.isfinite(plan.positions).all()
        assert plan.positions.shape == (r, 2)
        assert 0 <= plan.shown <= 1 + 1e-12


def _overlaps(places, sizes):
    gap = np.abs(places[:, None] - places[None])
    need = (sizes[:, None] + sizes[None]) / 2
    return ((gap < need - 1e-3).all(axis=2) & ~np.eye(len(places), dtype=bool)).sum()


@given(st.integers(1, 40), st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=30)
def test_boxes_part_and_stay_on_the_canvas(count, seed, together):
    """Wherever boxes begin, even all in one place, none overlap afterwards and none leave the canvas."""
    rng = np.random.default_rng(seed)
    sizes = rng.uniform([30, 20], [110, 60], (count, 2))
    width, height = 960.0, max(400.0, 3.5 * sizes.prod(axis=1).sum() / 960)
    centres = np.full((count, 2), 200.0) if together else rng.uniform(0, [width, height], (count, 2))
    places = spread(centres, sizes, width, height)
    assert _overlaps(places, sizes) == 0
    assert (places - sizes / 2 >= -1e-9).all()
    assert (places + sizes / 2 <= np.array([width, height]) + 1e-9).all()


def test_boxes_that_do_not_meet_stay_where_they_are():
    """Nothing moves without a reason."""
    centres = np.array([[100.0, 100.0], [300.0, 100.0], [100.0, 300.0]])
    assert spread(centres, np.full((3, 2), 50.0), 400.0, 400.0) == pytest.approx(centres, abs=0.01)
