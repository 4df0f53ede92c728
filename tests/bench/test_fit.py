"""The benchmark from documents to a model: what it draws, what it reads, and that it adds up."""

import math

import numpy as np
import pytest

from streamtopic.bench.drawn import SavedCounts, drawn, forget_sets
from streamtopic.bench.runner import measure
from streamtopic.bench.synthetic import counted, planted
from streamtopic.counts import Weighting, count


@pytest.fixture(scope="module")
def posts(tmp_path_factory):
    """A folder of a few posts."""
    folder = tmp_path_factory.mktemp("posts")
    drawn("posts", folder, 300, 200, 4, 40)
    return folder


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
