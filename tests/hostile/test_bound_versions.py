"""Versions and receipts are entries of one tree: whoever drops, doubles or swaps one is noticed by `verify`."""

import dataclasses

import pytest
from three_topics import leaning

from embedded_service import embedded
from ledger_maker import LedgerMaker, envelope_of
from streamtopic.privacy.keystream import VersionNoise
from streamtopic.service.verify.ledger_checks import read_ledger
from streamtopic.streams import FileLog, Message


@pytest.fixture
def files(tmp_path):
    """A base and an update without one document, in a log in files alone."""
    with embedded(tmp_path / "own", min_df=1, min_share=0.0, capacity={"share": 0.5}, keep_versions=9) as running:
        running.add(leaning(60))
        running.settle()
        running.delete(["doc-001"])
        running.settle()
        yield running


@pytest.fixture
def maker(tmp_path):
    """A ledger without a service."""
    with FileLog(tmp_path / "ledger") as log:
        yield LedgerMaker(log)


def found_in(instance, version=None):
    """What `verify` finds, by name."""
    return {one.name: one for one in instance.verify(version=version)}


def whole(maker, keys=None):
    """The ledger of a maker as an auditor reads it, and whether it is one tree and its receipts are borne out."""
    read = read_ledger(maker.log, keys or maker.keys())
    tree, receipts = read.findings()
    return read, tree, receipts


@pytest.mark.parametrize(("lost", "said"), [((0, 2), "lacks entries 0 to 0"), ((2, 4), "lacks entries 1 to 2")])
def test_entries_that_the_topic_has_lost_are_named(maker, lost, said):
    """At the begin, as retention cuts it, or between: a ledger that is read whole says which entries are missing."""
    records = []
    for entries in ([maker.made(1)[1]], [maker.receipt(3), maker.receipt(4)], [maker.receipt(5)]):
        pair = maker.records(entries)
        maker.take(*pair)
        records += pair
    maker.send(*[record for place, record in enumerate(records) if place not in range(*lost)])
    _, tree, _ = whole(maker)
    assert tree.passed is False
    assert said in tree.detail


def test_a_second_entry_of_a_version_is_noticed(maker):
    """Whoever holds the signing key and says something else of a version, or of an older one, contradicts himself."""
    maker.publish(2)
    for number in (2, 1):
        maker.append(dataclasses.replace(maker.made(number)[1], m=7))
    read, tree, _ = whole(maker)
    assert tree.passed is False
    assert "entry 1 is of version 2, and one of version 2 comes before it" in tree.detail
    assert "entry 2 is of version 1" in tree.detail
    assert read.versions[2].m == 20


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"offset": 3}, "receipt news/0/3 is in the ledger twice"),
        ({"version": 2}, "names version 2, which is not before it"),
        ({"offset": 10}, "names version 1, which was cut before it"),
        ({"offset": 3, "partition": 7}, "names version 1, which was cut before it"),
    ],
)
def test_a_receipt_that_is_not_borne_out_is_noticed(maker, changes, said):
    """Twice for one deletion, of a version that is not there, or of one that was cut before its deletion."""
    maker.publish(1)
    maker.append(maker.receipt(3))
    maker.append(maker.receipt(**({"offset": 4} | changes)))
    _, tree, receipts = whole(maker)
    assert (tree.passed, receipts.passed) == (True, False)
    assert said in receipts.detail


def test_a_deletion_without_a_receipt_is_noticed(files):
    """Whoever takes a deletion out of Redis before it has its receipt drops it in silence; the log still has it."""
    files.delete(["doc-002"])
    files.count()
    found = found_in(files)
    assert found["missing receipts"].passed is True
    stream = files.reader.forgets(0)
    stream.drop(stream.read())
    found = found_in(files)["missing receipts"]
    assert found.passed is False
    assert "1 deletions in the log" in found.detail
    assert "rebuild" in found.remedy


def test_bytes_of_a_withdrawn_version_that_come_again_are_noticed(files):
    """Its number is withdrawn for ever, so whoever appends its old records puts forgotten documents back."""
    assert found_in(files)["withdrawal"].passed is True
    records = files.log.read(files.names.releases, 0, 0)
    again = [Message(one.key, one.value, one.headers, partition=0) for one in records if one.key.startswith(b"1/")]
    files.log.append_many(files.names.releases, [one for one in again if one.value is not None])
    found = found_in(files)["withdrawal"]
    assert found.passed is False
    assert "not yet erased: 1" in found.detail


def test_the_commitment_is_to_the_counts_in_the_log(files, monkeypatch):
    """A version that commits to other counts than those of its documents fails `verify`, whatever else it holds."""
    with monkeypatch.context() as patch:
        patch.setattr(VersionNoise, "commitment", lambda *_: "0" * 64)
        files.delete(["doc-002"])
        files.settle()
    found = found_in(files)
    assert found["version"].passed is True
    assert found["commitment"].passed is False


def test_an_entry_about_another_model_is_noticed(maker):
    """A ledger is of one model."""
    maker.publish(1)
    maker.append(dataclasses.replace(envelope_of(2), model="olds"))
    assert "is about model olds" in whole(maker)[1].detail
