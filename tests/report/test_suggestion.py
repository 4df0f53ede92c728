from itertools import pairwise

import pytest

from streamtopic.report.charts import Circle, Label, Picture, Series, line_chart, sparkline, svg, ticks
from streamtopic.report.suggestion_page import suggestion_page, suggestion_picture
from streamtopic.topics.how_many_topics import Candidate, recommend


def found(**more):
    """A suggestion among three numbers of which one makes no model."""
    made = [
        Candidate(topics, 0.05, 0.01, 100, coherence, 0.9, 0.95, 0.4, 0.02, 1e-12, (("a<b>", "b"),) * 2, **more)
        for topics, coherence in ((5, 0.4), (10, 0.39))
    ]
    return recommend([*made, Candidate(99, 0.05, 0.01, reason="too few <words>")])


def test_the_picture_stands_alone(read_picture):
    """An SVG with its own style, six charts, a point for each model that there is, and the choice marked in each."""
    root = read_picture(suggestion_picture(found()))
    names = [element.tag.rpartition("}")[2] for element in root.iter()]
    assert sum(element.get("class") == "strong" for element in root.iter()) == 6
    assert names.count("circle") == 12
    assert sum(element.get("class") == "chosen" for element in root.iter()) == 6
    assert "10 topics" in root[1].text


def test_the_page_says_all_in_words(read_page):
    """Reason, numbers and topics are in the text, what could not be tried with why."""
    said, _ = read_page(suggestion_page(found(), "a & b.jsonl", 1234))
    for expected in ("1,234 documents of a & b.jsonl", "10 topics: the most", "too few <words>", "a<b> b", "0.390"):
        assert expected in said


def test_nothing_found_is_shown_too(read_page, read_picture):
    """Where no number makes a model the picture is empty and the page says why."""
    nothing = recommend([Candidate(9, 0.05, 0.01, reason="no document")])
    read_picture(suggestion_picture(nothing))
    said, _ = read_page(suggestion_page(nothing, "x", 0))
    assert "No model can be made: no document" in said


@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 1), (0, 0.043), (-0.2, 0.37), (0, 0), (5, 5), (0.61, 0.63), (0, 123456), (-1, -0.5), (0, 1e-9)],
)
def test_ticks_are_few_round_and_cover(low, high):
    """An axis has two to six evenly spaced marks around all values."""
    marks = ticks(low, high)
    assert 2 <= len(marks) <= 6
    assert marks[0] <= low + 1e-9 * abs(low)
    assert marks[-1] >= high - 1e-9 * abs(high)
    steps = {f"{b - a:.6g}" for a, b in pairwise(marks)}
    assert len(steps) == 1


def test_charts_of_gaps_and_single_values_are_drawn(read_picture):
    """A missing value breaks the line; one value, or none, is no trouble."""
    for values in ([None, 1.0, None, 2.0], [3.0], [None], [0.0, 0.0]):
        chart = list(line_chart(Series("t", values), [str(k) for k in range(len(values))], left=0, top=0))
        assert sum(isinstance(mark, Circle) for mark in chart) == sum(value is not None for value in values)
        read_picture(svg(Picture("lines", "t", "d", 300, 200, chart)))
        read_picture(svg(sparkline(values, 0.0, "s")))


def test_values_beyond_the_usual_ends_stay_on_the_chart():
    """A negative coherence is drawn above the lower edge, with a mark below it."""
    chart = list(line_chart(Series("t", [-0.4, 0.2], at_least=0.0), ["5", "10"], left=0, top=0))
    points = [mark.y for mark in chart if isinstance(mark, Circle)]
    assert len(points) == 2
    assert max(points) <= 130.0
    assert "-0.4" in [mark.text for mark in chart if isinstance(mark, Label)]
