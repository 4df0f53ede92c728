"""The benchmark of twins: it measures every kind of forget set, and it fails where a model remembers."""

import math

import numpy as np
import pytest

from streamtopic.bench import twins
from streamtopic.bench.cases import twin
from streamtopic.errors import CheckFailed
from streamtopic.topics.update import Updated

SMALL = {"topics": 3, "draws": 2, "seed": 1}


@pytest.mark.parametrize("learner", ["default", "paper"])
def test_every_kind_is_measured(learner, documents):
    """Each kind of forget set has its size, its retrains and its difference to the twin, below 1e-12."""
    found = {figure.name: figure for figure in twin.CASES[learner](documents=documents, **SMALL)}
    assert found["documents"].value == 240
    for kind in twins.KINDS:
        assert found[f"{kind}: documents forgotten"].value >= 1
        assert found[f"{kind}: retrains"].unit == "of 2"
        assert found[f"{kind}: other anchors"].unit == "of 2"
        assert found[f"{kind}: difference"].value <= 1e-12
    assert found["all documents of an anchor: other anchors"].value == 2
    assert found["10 % of documents: documents forgotten"].value == 24
    assert found["one class: documents forgotten"].value == 80
    assert found["one after another: retrains"].unit == "of 20"
    assert found["one after another: difference at the end"].value <= 1e-12
    assert all(math.isfinite(figure.value) for figure in found.values())


@pytest.mark.parametrize("broken", ["counts", "update"])
def test_a_model_that_remembers_fails(broken, documents, monkeypatch):
    """If a document stays in the counts, or the update leaves the model as it was, the benchmark ends with status 1."""
    if broken == "update":
        monkeypatch.setattr(twins, "update", lambda fit, *_: Updated(fit))
    else:
        plain = twins.count

        def forgetful(batch, n, weighting):
            kept = batch.documents - (batch.documents < 120)
            return plain(batch.take(np.arange(kept)), n, weighting)

        monkeypatch.setattr(twins, "count", forgetful)
    with pytest.raises(CheckFailed, match="differs from its twin"):
        twin.CASES["paper"](documents=documents, **SMALL)
