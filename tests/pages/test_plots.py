"""Figures for notebooks: `from streamtopic import plots`."""

import dataclasses
import re

import pytest

from streamtopic import plots
from streamtopic.errors import InvalidRelease, UsageError


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


@pytest.mark.parametrize("r", [2, 6])
def test_squares_of_the_correlations_have_all_lines(make_release, read_picture, r):
    """Rows and columns, the last ones included; positive and negative differ in form as well as in colour."""
    root = read_picture(plots.correlations(make_release(r=r, n=60)).svg())
    assert sum(element.get("class") == "axis" for element in root.iter()) == 2 * (r + 1)
    shapes = {(element.tag.rpartition("}")[2], element.get("class")) for element in root.iter()}
    assert shapes & {("rect", "warm"), ("circle", "mark")} == set()


def test_a_figure_is_an_image_in_a_notebook(make_release):
    """Its style is that of the image alone, and no word of it is markup of the notebook."""
    shown = plots.topic_map(make_release(words={"<script>alert(1)</script>", *map(str, range(9))}))._repr_html_()
    assert re.fullmatch(r'<img alt="[^"<]*" src="data:image/svg\+xml;base64,[A-Za-z0-9+/=]+">\n', shown)


def test_what_must_not_be_drawn_is_refused(make_release):
    """Withdrawn releases, none at all, and amounts below one are errors."""
    release = make_release()
    gone = dataclasses.replace(release, is_withdrawn=lambda _: True)
    for draw in (plots.topic_map, plots.correlations):
        with pytest.raises(InvalidRelease, match="withdrawn"):
            draw(gone)
    with pytest.raises(InvalidRelease, match="withdrawn"):
        plots.shares([gone, make_release(version=2)])
    with pytest.raises(UsageError, match="nothing to show"):
        plots.shares([])
    with pytest.raises(UsageError, match="at least 1"):
        plots.shares([release], most=0)
