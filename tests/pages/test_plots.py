"""Figures for notebooks: `from streamtopic import plots`."""

import dataclasses

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


def withdrawn(_):
    """What a subscriber says of a release that must not be used any more."""
    raise InvalidRelease("it is withdrawn")


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
