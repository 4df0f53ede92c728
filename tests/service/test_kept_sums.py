"""The co-occurrence counts in Redis: written by the leader, folded with the changes, read by a leader that starts."""

import numpy as np
import pytest
from three_topics import leaning

from embedded_service import embedded
from streamtopic.counts import SymmetricCounts
from streamtopic.service.schedule import modeller as modelling
from streamtopic.service.schedule import scheduler as scheduling
from streamtopic.service.verify import passed
from streamtopic.state import DocumentCounts
from streamtopic.state.stored_counts import CountsStore, SummedCounts

DOCUMENTS = leaning(60)


@pytest.fixture
def opened(tmp_path):
    """Open an instance that serves deletions at once, and checks each update that it carried over."""
    return lambda: embedded(tmp_path, self_check=0)


def sums_of(instance):
    """The counts in Redis."""
    return CountsStore(instance.connection, instance.settings.model)


def sums_are_counted(instance):
    """Compare the sums and what changed since with a count of the documents, over all words."""
    counts = instance.reader.counts()
    every = np.arange(len(counts.words))
    summed = SummedCounts.of(counts, sums_of(instance).read()).symmetric(every).upper()
    counted = counts.symmetric(every).upper()
    for part in ("indptr", "columns", "values"):
        assert np.array_equal(getattr(summed, part), getattr(counted, part))


def test_a_leader_that_starts_does_not_count_the_documents(opened, monkeypatch):
    """Its first update learns from the sums, and is what a count of the documents gives."""
    with opened() as instance:
        instance.add(DOCUMENTS)
        instance.settle()
    counted = []
    real = DocumentCounts.symmetric
    monkeypatch.setattr(DocumentCounts, "symmetric", lambda self, keep: counted.append(len(keep)) or real(self, keep))
    monkeypatch.setattr(scheduling, "check_is_due", lambda *_: False)
    with opened() as instance:
        instance.delete(["doc-003", "doc-008"])
        instance.settle()
        assert (counted, instance.versions()[-1]["kind"]) == ([], "unlearn")
        fit = instance.scheduler.modeller.last
        cold = modelling.learn(instance.reader.counts(), fit.options)
        assert (fit.words, fit.anchors) == (cold.words, cold.anchors)
        assert np.array_equal(fit.A, cold.A)


def test_false_sums_make_no_version(opened):
    """The check of an update that rests on them finds it, verify finds them, and a retraining writes them anew."""
    with opened() as instance:
        instance.add(DOCUMENTS)
        instance.settle()
        stored = sums_of(instance).read()
        counts = instance.reader.counts()
        stored.upper.values[0] += 1
        with instance.scheduler.leading() as lease:
            sums_of(instance).write(stored.words, SymmetricCounts.of(stored.upper), counts, lease)
        assert not passed(instance.verify())
    with opened() as instance:
        instance.delete(["doc-003"])
        instance.settle()
        last = instance.versions()[-1]
        assert (last["kind"], instance.status()["self_check"]["passed"]) == ("unlearn", False)
        sums_are_counted(instance)
        assert passed(instance.verify())


def test_a_model_is_learned_cold_if_the_changes_since_are_gone(opened, monkeypatch):
    """Nobody knows then what came and went; the documents that are left tell all the same."""
    updates = []
    monkeypatch.setattr(modelling, "update", lambda *given: updates.append(given))
    with opened() as instance:
        instance.add(DOCUMENTS)
        instance.settle()
        instance.delete(["doc-003", "doc-008"])
        for ingest in instance.ingests:
            list(ingest.drain())
            # The second generation of changes that begins removes the one with the deletions.
            ingest.state.sum_changes()
            ingest.state.sum_changes()
        instance.settle()
        assert updates == []
        assert instance.scheduler.modeller.last.documents == 58
