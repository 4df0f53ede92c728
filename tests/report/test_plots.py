import builtins
import dataclasses
import io
import subprocess
import sys

import numpy as np
import pytest

from streamtopic import AnchorTopics
from streamtopic.errors import InvalidRelease, UsageError
from streamtopic.report import plots
from streamtopic.topics.how_many_topics import Candidate, recommend


def drawn(figure):
    """Draw a figure; all its texts."""
    figure.savefig(io.BytesIO(), format="svg")
    return [text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text"))]


@pytest.mark.parametrize("r", [1, 2, 7])
def test_each_figure_is_drawn_without_a_warning(make_release, r):
    """Any release with topics can be drawn, and its words are in the figure."""
    release = make_release(r=r, n=60)
    words = release.top_words[0]
    assert set(words[:10]) <= set(drawn(plots.topics(release)))
    assert any(words[0] in text for text in drawn(plots.topic_map(release)))
    assert any(words[0] in text for text in drawn(plots.correlations(release)))
    two = make_release(r=r, n=60, version=2, seed=1)
    assert {"1", "2"} <= set(drawn(plots.shares([release, two])))


def test_dollar_signs_are_no_mathematics(make_release):
    """A word that matplotlib would typeset, or fail on, is shown as it is."""
    words = {"$\\frac{1}{0}$", "$x", "a_b^c", *(f"w{k}" for k in range(20))}
    release = make_release(words=words, r=3)
    for figure in (plots.topics(release), plots.topic_map(release), plots.correlations(release)):
        drawn(figure)
    drawn(plots.shares([release, make_release(words=words, r=3, version=2)]))


def test_an_estimator_can_be_drawn():
    """A fitted AnchorTopics is a model as well, with names for its columns."""
    rng = np.random.default_rng(1)
    topics = rng.dirichlet(np.full(60, 0.05), 3)
    X = np.array([rng.multinomial(40, theta @ topics) for theta in rng.dirichlet(np.full(3, 0.2), 200)])
    model = AnchorTopics(3, min_df=1, max_df=1.0).fit(X)
    names = [f"word{k}" for k in range(60)]
    assert any(text.startswith("word") for text in drawn(plots.topics(model, most=2, top=3, feature_names=names)))
    drawn(plots.topic_map(model, feature_names=names))


def test_a_suggestion_can_be_drawn():
    """Numbers that made no model leave a gap."""
    made = [Candidate(k, 0.05, 0.01, 100, 0.4, 0.9, 0.9, 0.5, 0.1) for k in (5, 10)]
    texts = drawn(plots.suggestion(recommend([*made, Candidate(99, 0.05, 0.01, reason="no")])))
    assert {"Coherence (NPMI)", "Words that last", "99"} <= set(texts)
    drawn(plots.suggestion(recommend([Candidate(9, 0.05, 0.01, reason="no")])))


def test_what_must_not_be_drawn_is_refused(make_release):
    """Withdrawn releases, none at all, and amounts below one are errors."""
    release = make_release()
    gone = dataclasses.replace(release, is_withdrawn=lambda _: True)
    for draw in (plots.topics, plots.topic_map, plots.correlations):
        with pytest.raises(InvalidRelease, match="withdrawn"):
            draw(gone)
    with pytest.raises(InvalidRelease, match="withdrawn"):
        plots.shares([gone, make_release(version=2)])
    with pytest.raises(UsageError, match="no release"):
        plots.shares([])
    with pytest.raises(UsageError, match="most is 0"):
        plots.topics(release, most=0)


def test_without_matplotlib_the_error_says_how_to_get_it(make_release, monkeypatch):
    """Matplotlib is an extra: its absence is one line with the remedy."""
    real = builtins.__import__

    def without(name, *more):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match="pip install"):
        plots.topics(make_release())


def test_matplotlib_is_loaded_on_first_use_only():
    """Importing the functions costs no picture library, and pyplot with its global state is never loaded."""
    program = "import sys, streamtopic.report.plots; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_labels_keep_their_order_and_a_distance():
    """Labels of nearly equal values do not lie over each other."""
    levels = plots._apart([0.5, 0.1, 0.5, 0.51], 0.1)
    assert levels == pytest.approx([0.5, 0.1, 0.6, 0.7])
