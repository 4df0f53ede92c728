"""The benchmark of twins: it measures every kind of forget set, and it fails where a model remembers."""

import numpy as np
import pytest

from streamtopic.bench import twins
from streamtopic.bench.cases import twin
from streamtopic.errors import CheckFailed
from streamtopic.topics.update import Updated

SMALL = {"topics": 3, "draws": 2, "seed": 1}


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
