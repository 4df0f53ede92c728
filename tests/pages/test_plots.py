"""Pictures of pages: axes and curves."""

from itertools import pairwise

import pytest

from streamtopic.pages.plots import Curve, line_chart, ticks


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
