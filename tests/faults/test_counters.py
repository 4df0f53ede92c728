"""What the processes have counted, held against the log."""

from collections import Counter
from types import SimpleNamespace

import pytest

from campaign import counters
from campaign.counters import Counters

PARTITIONS = 2
SOUND = {
    ("streamtopic_records_total", (("outcome", "added"),)): 5.0,
    ("streamtopic_records_total", (("outcome", "deleted"),)): 2.0,
    ("streamtopic_rejected_total", (("reason", "format"),)): 1.0,
    ("streamtopic_receipts_total", ()): 2.0,
    ("streamtopic_releases_total", ()): 1.0,
    ("streamtopic_partitions", ()): 2.0,
    ("streamtopic_partitions_owned", ()): 2.0,
    ("streamtopic_leader", ()): 1.0,
    ("streamtopic_documents", ()): 3.0,
}


@pytest.fixture
def shown():
    """What one process shows, which a test may change."""
    return dict(SOUND)


@pytest.fixture
def log():
    """What the log says, which a test may change: five adds, two deletes, one refusal, one version."""
    first = SimpleNamespace(totals=Counter(added=3, deleted=1), live={"a": 1, "b": 2})
    second = SimpleNamespace(totals=Counter(added=2, deleted=1), live={"c": 3})
    witness = SimpleNamespace(reasons={(0, 4): "format"}, receipts={(0, 1): None, (1, 2): None}, entries={1: None})
    return SimpleNamespace(oracle=SimpleNamespace(books=[first, second]), witness=witness)


@pytest.fixture
def compared(shown, log, monkeypatch):
    """The comparison, which does not wait."""
    monkeypatch.setattr(counters, "_PATIENCE", 0.0)
    return Counters(SimpleNamespace(shown=lambda: [shown]), log, PARTITIONS)


def test_processes_that_count_what_happened_have_no_difference(compared):
    """Records by outcome, refusals by reason, receipts, versions and gauges agree."""
    assert compared.differences() == []


@pytest.mark.parametrize("series", SOUND, ids=lambda series: " ".join([series[0], *(value for _, value in series[1])]))
def test_each_number_that_is_too_small_is_found(compared, shown, series):
    """A process that leaves out one record, refusal, receipt, version or document disagrees with the log."""
    shown[series] -= 1
    assert compared.differences()


def test_only_the_work_since_the_begin_is_compared(compared, shown, log):
    """What a killed process took with it before is no difference; what is missing after it is one."""
    deleted = ("streamtopic_records_total", (("outcome", "deleted"),))
    shown[deleted] = 0.0
    compared.begin()
    assert compared.differences() == []
    log.oracle.books[0].totals["deleted"] += 1
    assert compared.differences() == ["processes counted 0 records deleted, the log says 1"]
