"""The benchmark from documents to a model: what it draws, what it reads, and that it adds up."""

import math

import numpy as np
import pytest

from streamtopic.bench.cases import fit
from streamtopic.bench.drawn import SavedCounts, drawn, forget_sets, post_lengths
from streamtopic.bench.runner import measure
from streamtopic.bench.synthetic import counted, planted
from streamtopic.counts import Weighting, count


@pytest.fixture(scope="module")
def posts(tmp_path_factory):
    """A folder of a few posts."""
    folder = tmp_path_factory.mktemp("posts")
    drawn("posts", folder, 300, 200, 4, 40)
    return folder


def test_text_holds_the_words_that_were_counted(posts):
    """Reading the lines gives the documents of the matrix, but for the names of words."""
    matrix, text = fit._matrix(posts, 200), fit._text(posts)
    assert text.shape[0] == 300
    assert np.array_equal(matrix.sum(axis=1), text.sum(axis=1))
    for row in (0, 100, 299):
        assert sorted(matrix[[row]].data.tolist()) == sorted(text[[row]].data.tolist())
    assert sorted(matrix.sum(axis=0)[matrix.sum(axis=0) > 0]) == sorted(text.sum(axis=0))


def test_lengths_have_the_mean_and_the_tail_of_posts():
    """The mean is the one asked for; half of the posts are far below it, and some are long."""
    lengths = post_lengths(20_000, 66, 1)
    assert abs(lengths.mean() / 66 - 1) < 0.05
    assert 0.5 < np.median(lengths) / 66 < 0.7
    assert lengths.max() > 15 * 66
    assert lengths.min() >= 2


def test_saved_counts_are_the_counts(tmp_path):
    """Counts that are read in panels restrict, touch and mirror like those in memory, and forget sets are theirs."""
    drawn("counts", tmp_path, 300, 90, 4, 40, 256, 3, 5)
    saved, held = SavedCounts.opened(tmp_path), counted(planted(300, 90, 4, 40), 90, Weighting())
    keep, chosen = np.arange(0, 90, 2), np.arange(45) % 3 == 0
    for a, b in (
        (saved.restrict(keep), held.restrict(keep)),
        (saved.touching(keep, chosen), held.touching(keep, chosen)),
    ):
        for name in ("indptr", "columns", "values", "frequency", "tokens", "heavy"):
            assert np.array_equal(getattr(a, name), getattr(b, name)), name
    assert all(np.array_equal(a, b) for a, b in zip(saved.symmetric(keep).rows, held.symmetric(keep).rows, strict=True))
    sets = forget_sets(tmp_path)
    assert sets.documents == 15
    rest = held.cooccurrence - count(sets.span(5, 10), 90, Weighting())
    assert min(rest.values.min(), rest.frequency.min(), rest.tokens.min()) >= 0


@pytest.mark.parametrize("kind", ["matrix", "text"])
def test_stages_add_up(kind):
    """Stages sum to the whole, peak memory holds the program, and every figure is finite."""
    found = {
        figure["name"]: figure["value"]
        for figure in measure("fit", kind, {"posts": 400, "words": 150, "topics": 4})["figures"]
    }
    assert all(math.isfinite(value) for value in found.values())
    stages = list(found)[: list(found).index("documents to model")]
    assert {"check and turn", "keep", "count and matrix", "anchors", "topics"} < {*stages}
    assert sum(found[name] for name in stages) == pytest.approx(found["documents to model"])
    assert 0 < found["memory of the program itself"] < found["peak memory"] + 2
