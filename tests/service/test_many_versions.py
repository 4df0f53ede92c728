"""A deletion costs the same after any number of versions, and finds each version that holds its document."""

import pytest
from embedded_service import embedded
from three_topics import leaning

from streamtopic.state import ModelState

DOCUMENTS = leaning()


@pytest.fixture
def read(monkeypatch):
    """How many records of versions were read so far, in one number of a list."""
    numbers = [0]
    records = ModelState._release_records

    def counting(state, reads):
        found = records(state, reads)
        numbers[0] += len(found)
        return found

    monkeypatch.setattr(ModelState, "_release_records", counting)
    return numbers


def test_a_deletion_reads_no_more_records_after_many_versions(tmp_path, read):
    """Of a service that made a version for each deletion, the last ones read as many records as early ones.

    The epsilon that a base model has spent is that of all its versions, so these are read: here at most five.
    """
    numbers = []
    with embedded(tmp_path, self_check="off", capacity={"rule": "fixed", "documents": 5}) as instance:
        instance.add(DOCUMENTS)
        instance.settle()
        for document in DOCUMENTS[:30]:
            before = read[0]
            instance.delete([document.id])
            instance.settle()
            numbers.append(read[0] - before)
        assert len(instance.versions()) == 31
    assert max(numbers[18:]) <= max(numbers[6:18])


def test_a_version_that_stood_between_withdrawn_ones_is_found_later(tmp_path):
    """A version without the document of the first deletion stands; the deletion of an older document withdraws it."""
    late = leaning(1, seed=9, prefix="late")
    with embedded(tmp_path, update_after=1e-9) as instance:
        instance.add(DOCUMENTS)
        instance.settle()
        instance.add(late)
        instance.settle()
        instance.delete([late[0].id])
        instance.settle()
        assert [version["withdrawn"] for version in instance.versions()] == [False, True, False]
        instance.delete([DOCUMENTS[3].id])
        instance.settle()
        assert [version["withdrawn"] for version in instance.versions()] == [True, True, True, False]
