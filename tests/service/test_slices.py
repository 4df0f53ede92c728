"""Topics over time and by class in a service: exact under deletion, and the same as those of a twin."""

import numpy as np
import pytest
from embedded_service import embedded
from three_topics import TOPICS, never_saw

from streamtopic.documents.corpus import Document
from streamtopic.errors import StateMismatch, UsageError
from streamtopic.service.app import silent
from streamtopic.service.inspection.slices import SliceView, slice_sums
from streamtopic.service.verify import passed
from streamtopic.topics.over_time import ShareEstimator

DAY_MS = 86_400_000
START_MS = 20_454 * DAY_MS  # 1 January 2026


def corpus(number=200, seed=0):
    """Texts of five months, in which harbour grows and garden falls, with a label of the town that they come from."""
    rng = np.random.default_rng(seed)
    documents = []
    for k in range(number):
        month = k % 5
        weights = np.array([5.0 - month, 3.0, 1.0 + month])
        shares = rng.dirichlet(weights / weights.sum())
        words = [str(rng.choice(TOPICS[str(rng.choice(list(TOPICS), p=shares))])) for _ in range(40)]
        labels = {"town": ["north", "south"][k % 2]} if k % 7 else {}
        time_ms = START_MS + month * 31 * DAY_MS + 1000 * k
        documents.append(Document(f"doc-{k:03d}", " ".join(words), labels, time_ms if k % 11 else None))
    return documents


DOCUMENTS = corpus()
GONE = {document.id for document in DOCUMENTS[3:60:4]}
REST = [document for document in DOCUMENTS if document.id not in GONE]


def service(folder, **more):
    """An embedded instance with slices, which serves deletions at once."""
    return embedded(folder, **{"keep_days": True, "partitions": 2, **more})


def sums(instance, view):
    """The slices of an instance, and the sums over their documents through a fixed model of its words."""
    counts = instance.reader.counts()
    words = sorted(word for topic in TOPICS.values() for word in topic)
    A = np.array([[1.0 + (word in topic) * 9 for topic in TOPICS.values()] for word in words])
    estimator = ShareEstimator.of(A / A.sum(axis=0), np.full(3, 1 / 3))
    return slice_sums(counts, words, estimator, view)


def assert_same(one, other):
    """Two results of `sums` are the same to the bit."""
    assert one[0].pairs == other[0].pairs
    for name in ("documents", "lengths", "squared_lengths", "mixed", "squares"):
        assert getattr(one[1], name).tobytes() == getattr(other[1], name).tobytes()
    assert (one[1].counts.toarray() == other[1].counts.toarray()).all()


VIEWS = [SliceView("month", None), SliceView(None, "town"), SliceView("quarter", "town")]


def test_service_and_twin_show_the_same_slices(tmp_path, key):
    """Slices that forgot documents are, bit for bit, those of a service that never saw them, also after a rebuild."""
    with service(tmp_path / "saw", noise_key=key) as saw:
        saw.add(DOCUMENTS)
        saw.settle()
        before = saw.slices(None, "month", None)
        saw.delete(sorted(GONE))
        saw.settle()
        assert saw.versions()[-1]["kind"] == "unlearn"
    with service(tmp_path / "never", noise_key=key) as never:
        never_saw(never, REST)
        twins = [sums(never, view) for view in VIEWS]
        twin = [never.slices(None, view.unit, view.task).as_json() for view in VIEWS]
    with service(tmp_path / "saw", noise_key=key) as saw:
        for view, other in zip(VIEWS, twins, strict=True):
            assert_same(sums(saw, view), other)
        shown = [saw.slices(None, view.unit, view.task).as_json() for view in VIEWS]
        assert shown == twin
        assert shown[0] != before.as_json()
        assert passed(saw.verify())
        saw.rebuild(silent)
        for view, other in zip(VIEWS, twins, strict=True):
            assert_same(sums(saw, view), other)


def test_days_are_fixed_when_a_model_is_created(tmp_path):
    """A state without days is not taken for one with them; the error names the remedy, and a rebuild gives days."""
    with service(tmp_path, keep_days=False) as instance:
        instance.add(DOCUMENTS)
        instance.settle()
        with pytest.raises(UsageError, match="no document has a day"):
            instance.slices(None, "month", None)
        # Classes need no day.
        assert len(instance.slices(None, None, "town").found) == 2
    with (
        service(tmp_path) as instance,
        pytest.raises(StateMismatch, match=r"keep_days false and not true\), .*: set keep_days = false, .*rebuild"),
    ):
        instance.settle()
    with service(tmp_path, keep_days=True) as instance:
        instance.rebuild(silent)
        instance.settle()
        assert instance.slices(None, "year", None).found.times == ("2026",)
