from itertools import pairwise

import pytest

from streamtopic.pages.charts import ChartPanel, Curve, scatter, ticks


def _classes(root, name):
    return [element for element in root.iter() if name in (element.get("class") or "").split()]


def test_curves_and_points_are_drawn_under_their_names(read_picture):
    """A field for each panel, a mark for each point that has a place, a line for what is joined, every name once."""
    curves = [
        Curve("<update>", [(1e4, 0.2), (1e5, 0.3), (1e6, 0.0)], joined=True),
        Curve("retrain", [(1e4, 0.6), (1e5, 1.0)], look=1, joined=True),
        Curve("linear", [(1e4, 0.1), (1e5, 1.0)], dashed=True),
    ]
    alone = [Curve(f"model {k}", [(2.0**k, 0.3)], look=k) for k in range(3)]
    picture = scatter(
        "Cost & more",
        "what is seen",
        [ChartPanel("m", "documents", "s", curves, True, True), ChartPanel("p", "s", "NPMI", alone)],
    )
    root = read_picture(picture.svg())
    assert (root[0].text, root[1].text) == ("Cost & more", "what is seen")
    assert (len(_classes(root, "mark")), len(_classes(root, "warm"))) == (3, 3)
    assert [len(_classes(root, name)) for name in ("mark-line", "warm-line", "dashed", "plain")] == [1, 1, 1, 1]
    said = [element.text for element in _classes(root, "clear")]
    assert sorted(said) == sorted(["<update>", "retrain", "linear", "model 0", "model 1", "model 2"])


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
