"""Few topics on docstrings: a service that forgot some publishes what one that never saw them would have."""

import numpy as np
import pytest

from embedded_service import Service
from streamtopic.documents.corpus import load_docstrings
from streamtopic.settings import Settings

EVERY, DOCUMENTS, FORGOTTEN = 10, 800, 20

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def documents():
    """Some docstrings of installed packages."""
    return load_docstrings().documents[::EVERY][:DOCUMENTS]


def opened(folder, topics):
    """An instance that serves deletions at once."""
    plain = {"max_forget_lag": 0.0, "capacity": {"rule": "fixed", "documents": 1000}}
    return Service(Settings(dir=folder, topics=topics, **plain))


@pytest.mark.parametrize("topics", [2, 3, 4, 5])
def test_a_service_that_forgot_docstrings_is_its_twin(tmp_path, topics, documents):
    """Twenty deletions let words enter the vocabulary: words, anchors, A before noise to 1e-12, and `verify` agrees."""
    gone = {documents[k].id for k in np.random.default_rng(4).choice(DOCUMENTS, FORGOTTEN, replace=False)}
    with opened(tmp_path / "saw", topics) as saw, opened(tmp_path / "never", topics) as never:
        saw.add(documents)
        saw.settle()
        before = {*saw.release(1).words}
        saw.delete(sorted(gone))
        saw.settle()
        release, fit = saw.release(2), saw.scheduler.modeller.last
        never.add([document for document in documents if document.id not in gone])
        never.settle()
        twin = never.scheduler.modeller.last
        assert {*twin.words} - before
        assert fit.words == twin.words
        assert release.anchors == never.release(1).anchors
        assert np.abs(fit.A - twin.A).max() <= 1e-12
        found = saw.verify()
        assert all(one.passed for one in found), found
