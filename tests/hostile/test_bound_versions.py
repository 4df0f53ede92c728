"""A version names the one before it, and a receipt its version, by their very bytes; whoever swaps one is noticed."""

import base64
import dataclasses
import json

import pytest

from streamtopic.documents.corpus import Document
from streamtopic.errors import InvalidRelease, SettingsError
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.report.version_report import read_report
from streamtopic.service.app import Service
from streamtopic.service.verify import gather, release_findings
from streamtopic.settings import Settings
from streamtopic.signed import (
    ChainHead,
    digest_of,
    open_receipt,
    open_release,
    pack,
    release_digest,
    seal,
    seal_receipt,
    seal_release,
    to_message,
    to_messages,
    unpack,
    unseal,
)

THEMES = [[f"w{theme}{letter}" for letter in "abcdefghijkl"] for theme in range(3)]
PLAIN = {"topics": 3, "min_df": 1, "min_share": 0.0, "max_df": 1.0, "capacity_share": 0.5, "max_forget_lag": 0.0}


def corpus(number=60):
    """Documents of three themes, each with words of the next."""
    for k in range(number):
        words = THEMES[k % 3] * 2 + THEMES[(k + 1) % 3][: k % 5] + [THEMES[k % 3][k % 12]] * (k % 7)
        yield Document(f"doc-{k:03d}", " ".join(words))


@pytest.fixture(params=["files", "kafka"])
def service(request, tmp_path):
    """Three versions, a base and two updates, each with a deletion, in a log in files and on a real broker."""
    more = {}
    if request.param == "kafka":
        servers = request.getfixturevalue("kafka_server").servers
        more = {"kafka": servers, "model": f"bound-{tmp_path.name[:40]}"}
    with Service(Settings(dir=tmp_path / "own", **PLAIN, **more)) as running:
        running.add(corpus())
        running.settle()
        for gone in ("doc-001", "doc-002"):
            running.delete([gone])
            running.settle()
        assert [version["kind"] for version in running.versions()] == ["retrain", "unlearn", "unlearn"]
        yield running


@pytest.fixture
def files(tmp_path):
    """The same in a log in files alone."""
    with Service(Settings(dir=tmp_path / "own", **PLAIN, keep_versions=9)) as running:
        running.add(corpus())
        running.settle()
        running.delete(["doc-001"])
        running.settle()
        yield running


def findings(instance, version):
    """What is found about a version without learning again, by name."""
    return {one.name: one for one in release_findings(instance.sources, version)}


def test_versions_and_receipts_name_bytes(service):
    """Each version repeats the digest of the one before, each receipt that of its version, and all is checked."""
    known = {version: dict(service.state.releases())[version]["digest"] for version in (1, 2, 3)}
    newest = service.release(3)
    assert newest.digest == known[3]
    assert newest.envelope.previous == known[2]
    assert len(newest.envelope.commitment) == 64
    receipts = service.receipts()
    assert [(receipt.version, receipt.release) for receipt in receipts] == [(2, known[2]), (3, known[3])]
    assert receipts[1].commitment == newest.envelope.commitment
    found = findings(service, 3)
    assert (found["chain"].passed, found["bound receipts"].passed, found["record"].passed) == (True, True, True)
    checks = {check.name: check.passed for check in service.verify().checks}
    assert checks["commitment"] is True


def test_a_version_that_is_gone_is_known_by_its_digest(files):
    """Version 1 was withdrawn and compacted away: its digest is known from the chain, and nothing has failed."""
    files.log.compact(files.names.releases, tombstones_ms=0)
    found = findings(files, 2)
    assert found["chain"].passed is True
    assert "not available any more, their digests are known from the chain: 1" in found["chain"].detail


def test_a_version_that_was_put_in_place_of_another_is_noticed(files):
    """Whoever holds the signing key and signs another version 1 breaks the chain that version 2 continues."""
    instance = files
    instance.delete(["doc-002"])
    instance.settle()
    release = instance.release(3)
    other = dataclasses.replace(
        release.envelope, version=2, parent=1, previous=release.envelope.previous, withdrawn=(), kind="unlearn"
    )
    data = seal_release(release.payload, other, instance.signing_key)
    instance.log.append_many(instance.names.releases, to_messages(2, data))
    instance.log.compact(instance.names.releases, tombstones_ms=0)
    found = findings(instance, 3)
    assert release_digest(data) != release.envelope.previous
    assert found["chain"].passed is False
    assert "names another version 2" in found["chain"].detail
    assert found["bound receipts"].passed is False


def test_a_receipt_that_names_other_bytes_is_noticed(files):
    """A receipt in the chain whose digest is not that of its version fails, in the log and in a report's file."""
    (receipt,) = files.receipts()
    head = ChainHead(1, digest_of(seal_receipt(receipt, files.signing_key)))
    forged = dataclasses.replace(receipt, sequence=2, previous=head.digest, offset=10_000, release="0" * 64)
    files.log.append_many(files.names.receipts, [to_message(forged, seal_receipt(forged, files.signing_key))])
    found = findings(files, 2)
    assert found["receipts"].passed is True
    assert found["bound receipts"].passed is False


@pytest.mark.parametrize("ending", ["json", "html"])
def test_a_report_s_file_proves_what_it_binds(files, tmp_path, ending):
    """With the public key alone: receipts in the file are signed and name these very bytes; a swapped one is found."""
    from streamtopic.report.version_report import report_page

    evidence = gather(files.sources, 2)
    path = tmp_path / f"report.{ending}"

    def outcome():
        path.write_text(json.dumps(evidence) if ending == "json" else report_page(evidence))
        return {one.name: one.passed for one in read_report(path).check(files.public_key)}

    assert outcome()["bound"] is True
    assert all(outcome().values())
    (listed,) = evidence["forgotten"]["receipts"]
    receipt = open_receipt(base64.b64decode(listed["signed"]), files.public_key)
    for changes in ({"release": "0" * 64}, {"commitment": "0" * 64}, {"version": 1}):
        data = seal_receipt(dataclasses.replace(receipt, **changes), files.signing_key)
        listed |= {"signed": base64.b64encode(data).decode(), "sha256": digest_of(data)}
        assert outcome()["bound"] is False
    for broken in ("!", None, base64.b64encode(b"x").decode(), [], {"a": 1}):
        listed["signed"] = broken
        assert outcome()["bound"] is False
    evidence["forgotten"]["receipts"] = 7
    if ending == "json":
        assert outcome()["bound"] is False


def test_versions_of_an_older_program_are_called_not_bound(files, tmp_path):
    """They are read and served; what cannot be checked of them is open, with the reason, and has not failed."""
    release = files.release(2)
    older = dataclasses.replace(release.envelope, version=3, parent=2, previous="", commitment="", withdrawn=())
    data = seal_release(release.payload, older, files.signing_key)
    files.log.append_many(files.names.releases, to_messages(3, data))
    assert open_release(data, files.public_key).envelope.bound is False
    found = findings(files, 3)
    assert found["chain"].passed is None
    assert "not bound" in found["chain"].detail


def test_a_version_goes_on_from_what_the_log_holds(files):
    """Redis forgot which digest version 2 has, as a Redis of an older program: the next one names it all the same."""
    known = files.release(2).digest
    files.connection.call("DEL", "{st:default}:releases")
    files.delete(["doc-003"])
    files.settle()
    newest = files.release(None)
    assert (newest.version, newest.envelope.previous) == (3, known)
    assert findings(files, 3)["chain"].passed is True


def test_the_commitment_is_to_the_counts_in_the_log(files, monkeypatch):
    """A version that commits to other counts than those of its documents fails `verify`, whatever else it holds."""
    with monkeypatch.context() as patch:
        patch.setattr(NoiseKey, "commitment", lambda *_: "0" * 64)
        files.delete(["doc-002"])
        files.settle()
    checks = {check.name: check.passed for check in files.verify().checks}
    assert checks["newest version"] is True
    assert checks["commitment"] is False


@pytest.mark.parametrize("name", ["previous", "commitment"])
def test_signed_fields_of_wrong_types_are_refused(files, name):
    """Whatever stands in their place, also under a valid signature, a release is refused by our own error."""
    sealed = seal_release(files.release(2).payload, files.release(2).envelope, files.signing_key)
    parts = unseal("release", sealed, files.public_key)
    for wrong in (7, None, [], {}, b"x", "0" * 63, "G" * 64, "0" * 64 + "\n"):
        envelope = pack(unpack(parts["envelope"]) | {name: wrong})
        with pytest.raises(InvalidRelease):
            open_release(seal("release", parts | {"envelope": envelope}, files.signing_key), files.public_key)


@pytest.mark.parametrize("name", ["release", "commitment"])
def test_receipts_with_wrong_types_are_refused(files, name):
    """The same for a receipt, so that a report on it never fails otherwise."""
    (receipt,) = files.receipts()
    for wrong in (7, None, [], {}, b"x"):
        data = seal_receipt(dataclasses.replace(receipt, **{name: wrong}), files.signing_key)
        with pytest.raises(InvalidRelease):
            open_receipt(data, files.public_key)


def test_whoever_may_not_read_the_log_has_verified_nothing(files, monkeypatch):
    """A missing right is an error, and no finding that something was left out."""

    def refused(*_):
        raise SettingsError("the user lacks the right Read")

    monkeypatch.setattr(type(files.log), "read", refused)
    with pytest.raises(SettingsError, match="lacks the right"):
        findings(files, 2)
