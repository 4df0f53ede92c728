"""Upgrades: two versions of the program share a state, its layout is raised and taken back, and no other is touched.

`made_before_rows.tar.gz` is the folder of an instance that the program before layout 4 made: two partitions, a model,
an update, and changes since. It was made by that program, and is never made anew.
"""

import dataclasses
import json
import tarfile
from pathlib import Path

import msgpack
import numpy as np
import pytest

from streamtopic.cli import main
from streamtopic.documents.corpus import Document
from streamtopic.documents.events import encode_add, encode_delete, encode_delete_subject
from streamtopic.errors import StateMismatch, UsageError
from streamtopic.formats import STATE
from streamtopic.service.app import Service, silent
from streamtopic.service.inspection.examination import examine_state
from streamtopic.service.upkeep import upgrade_state as module
from streamtopic.service.upkeep.backup import backup, contents
from streamtopic.service.upkeep.rebuild_state import rebuild
from streamtopic.service.upkeep.upgrade_state import found_layouts, step_back, upgrade
from streamtopic.service.verify import passed, relearned, release_findings
from streamtopic.settings import load
from streamtopic.state import PartitionWriter, meta
from streamtopic.state.redis_keys import ModelKeys
from streamtopic.streams import Message

WORDS = [["apple", "banana", "cherry", "damson"], ["iron", "copper", "silver", "gold"]]
TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PARTITIONS = 2


def documents(first, count):
    """Return documents of two subjects."""
    texts = [" ".join(WORDS[n % 2][(n // 2 + k) % 4] for k in range(3)) for n in range(first, first + count)]
    return [Document(f"d{first + n}", text, {}) for n, text in enumerate(texts)]


@pytest.fixture
def folder(tmp_path):
    """The instance that the program of layout 3 made."""
    with tarfile.open(Path(__file__).with_name("made_before_rows.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "before"


@pytest.fixture
def service(folder):
    """A service on that instance."""
    # Changes wait, so that deletions with a trace do too.
    with Service(load({"dir": folder, "update_after": 1.0})) as service:
        yield service


def digest(service):
    """Return the digest of all counts in Redis."""
    snapshot = service.reader.snapshot()
    return snapshot.restrict(np.arange(len(snapshot.words))).digest(snapshot.words)


def change(service, first):
    """Add documents, and delete one with the trace of a request."""
    service.add(documents(first, 12))
    service.send([encode_delete(f"d{first - 20}", f"r{first}", trace=TRACE)])
    service.settle()


def change_in_rows(service, first):
    """Change it, and go on until rows wait: the flush of a change may be the one that makes a merge due."""
    change(service, first)
    for number in range(first + 12, first + 18):
        if b"STR1" in kinds(service):
            return
        service.add(documents(number, 1))
        service.settle()


def partitions(service):
    """Yield the keys of each partition."""
    for partition in range(PARTITIONS):
        yield ModelKeys("before").partition(partition)


def entries(service):
    """Return all values of the manifests."""
    found = [service.connection.call("HVALS", keys.manifest) for keys in partitions(service)]
    return [value.decode() for values in found for value in values]


def kinds(service):
    """Return the kinds of all strings of segments that count."""
    found = set()
    for keys in partitions(service):
        for name, value in service.connection.call("HGETALL", keys.manifest).items():
            number = int(value.split(b":")[2])
            found |= {service.connection.call("GET", keys.segment(name.decode(), k))[:4] for k in range(number)}
    return found


def waiting(service):
    """Return all deletions that wait for their receipt."""
    return [forget for partition in range(PARTITIONS) for forget in service.reader.forgets(partition).read(0)]


def as_layout_3(service):
    """Assert that a program of layout 3 reads everything that is written."""
    assert all(value.count(":") == 4 for value in entries(service))
    # Pairs, heads, and the passages that such a program wrote beside pairs.
    assert kinds(service) <= {b"STH3", b"STC2", b"STP1"}
    assert all(forget.trace == b"" for forget in waiting(service))
    assert found_layouts(service).all == {3}


def sound(service):
    """Assert that the counts are those of the log, and that the model and its newest version follow from them."""
    findings = [*relearned(service.verify())]
    findings += release_findings(service.sources, service.state.releases(1)[0][0])
    assert passed(findings), findings


def test_a_state_of_the_version_before_is_read_and_goes_on_in_its_own_layout(service):
    """Nothing is written that the version before takes for damage, so both may work on it in turn."""
    assert service.status()["documents"] == 42
    as_layout_3(service)
    change(service, 46)
    as_layout_3(service)
    service.settle(requested="unlearn")
    sound(service)
    as_layout_3(service)


def test_an_upgrade_changes_what_is_written_and_no_count(service):
    """The new layout holds rows and traces; what was counted before stays as it is."""
    change(service, 46)
    before = digest(service)
    done = upgrade(service, silent)
    assert (done.before.all, done.after.all) == ({3}, {4})
    assert digest(service) == before
    change_in_rows(service, 60)
    assert any(value.count(":") == 5 for value in entries(service))
    assert b"STR1" in kinds(service)
    assert TRACE in {forget.trace for forget in waiting(service)}
    service.settle(requested="unlearn")
    sound(service)


def test_a_step_back_leaves_a_state_that_the_version_before_reads(service):
    """Rows become the pairs that they count, traces go, and every count stays."""
    upgrade(service, silent)
    change_in_rows(service, 46)
    before = digest(service)
    assert b"STR1" in kinds(service)
    done = step_back(service, silent)
    assert done.segments
    assert done.traces == 1
    as_layout_3(service)
    assert digest(service) == before
    service.settle(requested="unlearn")
    sound(service)
    as_layout_3(service)


@pytest.mark.parametrize("where", ["announce_layout", "set_layout"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_upgrade_can_be_killed_anywhere_and_repeated(service, monkeypatch, where, when):
    """Between two partitions both layouts are there: each writer writes its own, and counts go on."""
    act = getattr(module, where)
    calls = []

    def killed(*arguments, **more):
        calls.append(arguments)
        # The second partition: one is through by then.
        last = where == "announce_layout" or len(calls) == PARTITIONS
        if when == "after" or not last:
            act(*arguments, **more)
        if last:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, where, killed)
        with pytest.raises(KeyboardInterrupt):
            upgrade(service, silent)
    change(service, 46)
    upgrade(service, silent)
    assert found_layouts(service).all == {4}
    change(service, 60)
    service.settle(requested="unlearn")
    sound(service)


@pytest.mark.parametrize("where", ["announce_layout", "remove_rows", "remove_traces", "set_layout"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_step_back_can_be_killed_anywhere_and_repeated(service, monkeypatch, where, when):
    """A partition that still holds rows has the number that keeps the version before out."""
    upgrade(service, silent)
    change(service, 46)
    before = digest(service)
    act = getattr(module, where)

    def killed(*arguments, **more):
        if when == "after":
            act(*arguments, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, where, killed)
        with pytest.raises(KeyboardInterrupt):
            step_back(service, silent)
    for keys in partitions(service):
        values = service.connection.call("HVALS", keys.manifest)
        if any(value.count(b":") == 5 for value in values):
            assert service.connection.call("HGET", keys.meta, "schema") == b"4"
    step_back(service, silent)
    as_layout_3(service)
    assert digest(service) == before


def test_a_writer_of_the_version_before_ends_at_its_next_write(service, monkeypatch):
    """It was running when the layout was raised: its commit is Stale, and reading again names both numbers."""
    keys = ModelKeys("before").partition(0)
    with monkeypatch.context() as patch:
        patch.setattr(meta, "STATE", dataclasses.replace(STATE, written=3, read=(3,)))
        old = PartitionWriter.open(
            service.connection,
            "before",
            0,
            partitions=PARTITIONS,
            weighting=service.fixed.weighting,
            limits=service.state.settings.limits,
        )
        flush = old.plan(module_changes(old))
        upgrade(service, silent)
        with pytest.raises(StateMismatch, match=r"layout 4, written by streamtopic .*reads 3"):
            old.apply(module_changes(old))
        assert old.commit(flush).reason == "the manifest has changed"
    assert service.connection.call("HGET", keys.meta, "next") == str(old.meta.next_offset).encode()


def module_changes(writer):
    """Return a change that moves the offset alone."""
    from streamtopic.state.flush import Changes

    return Changes(next_offset=writer.meta.next_offset + 1)


def test_a_state_of_the_version_after_next_is_refused_by_every_part(service, tmp_path):
    """The text names the program that wrote it, both numbers and the remedies; nothing is written."""
    _ = service.ingests
    settings = ModelKeys("before").named("settings")
    file = tmp_path / "saved.backup"
    service.state.settings = dataclasses.replace(service.state.settings, layout=5)
    backup(service, file, b"a long passphrase")
    service.connection.call("HSET", settings, "schema", 5, "program", "0.9.1")
    for keys in partitions(service):
        service.connection.call("HSET", keys.meta, "schema", 5, "program", "0.9.1")
    held = {name: service.connection.call("DUMP", name) for name in service.connection.names("*")}
    fixed = service.fixed
    for use in (
        lambda: type(service.state).open(service.connection, "before", fixed),
        lambda: type(service.state).find(service.connection, "before"),
        lambda: PartitionWriter.open(service.connection, "before", 0, partitions=PARTITIONS, weighting=fixed.weighting),
        service.reader.positions,
        lambda: found_layouts(service),
        lambda: upgrade(service, silent),
        lambda: step_back(service, silent),
        lambda: contents(file, b"a long passphrase"),
    ):
        with pytest.raises(StateMismatch, match=r"layout 5.*reads 3 and 4: use the version.*rebuild") as error:
            use()
        assert "written by" in str(error.value)
    assert {name: service.connection.call("DUMP", name) for name in service.connection.names("*")} == held


def test_a_backup_keeps_the_layout_of_its_state(service, tmp_path):
    """A restore brings it back as it was, so that the version before can still have it."""
    file = tmp_path / "saved.backup"
    backup(service, file, b"a long passphrase")
    assert contents(file, b"a long passphrase").model == "before"
    assert service.state.settings.layout == 3


def test_a_model_without_a_state_needs_no_upgrade(tmp_path):
    """The command says which layout it will have, and makes nothing."""
    with Service(load({"dir": tmp_path, "model": "new"})) as service:
        with pytest.raises(UsageError, match="gets layout 4"):
            upgrade(service, silent)
        service.add(documents(0, 4))
        service.settle()
        assert found_layouts(service).all == {4}


def test_a_state_from_before_subjects_stays_one_without_until_it_is_counted_anew(folder):
    """Its adds are counted as the version before counts them, and nobody is told that a person is forgotten."""
    named = [encode_add(f"n{k}", text="apple iron cherry", subjects=["ann"]) for k in range(4)]
    # The version before does not look at the field, whatever is in it.
    odd = Message(b"odd", msgpack.packb({"op": "add", "text": "gold tin iron", "subjects": 5}))
    with Service(load({"dir": folder})) as service:
        service.send([*named, odd])
        service.settle()
        assert service.status()["documents"] == 47
        sound(service)
        (warning,) = [found for found in examine_state(service) if found.name == "subjects"]
        assert warning.level == "warn"
        assert "rebuild" in warning.remedy
        with pytest.raises(UsageError, match="older than subjects"):
            service.delete_subjects(["ann"])
        # One that another producer sends is refused, so no receipt says that it was carried out.
        service.send(encode_delete_subject("ann", "r1", b"0123456789abcdef", PARTITIONS))
        service.settle()
        assert service.status()["documents"] == 47
    with Service(load({"dir": folder})) as service:
        rebuild(service, silent)
        service.settle()
        # Counted with subjects: the odd add is refused, and the request is carried out.
        assert service.status()["documents"] == 42
        assert not [found for found in examine_state(service) if found.name == "subjects"]
        sound(service)
        with pytest.raises(UsageError, match="the version before does not know"):
            step_back(service, silent)


def test_a_document_of_a_state_from_before_subjects_is_deleted_with_its_request(folder, capsys):
    """Whoever deletes is told the request and the salt, without which nobody finds the receipt."""
    assert main(["delete", "d5", "--dir", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["sent"], len(told["requests"]), len(told["salts"])) == (1, 1, 1)
