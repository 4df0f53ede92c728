"""`keys rotate` and `revoke` on an instance, and the files that are checked with the list offline."""

import pytest

from streamtopic.client import ModelSubscriber
from streamtopic.signed import KeyRing, LedgerReader, SigningKey
from streamtopic.streams import FileLog


@pytest.fixture
def root(program, tmp_path):
    """A root key, which lies elsewhere."""
    assert program("keys", "new", "--root", "--to", tmp_path / "offline")[0] == 0
    return tmp_path / "offline" / "root.key"


def ledger_of(instance, root):
    """Read the ledger as somebody who has the root key's public half."""
    keys = KeyRing.load(root.with_suffix(".pub"), "default")
    reader = LedgerReader(FileLog(instance / "log"), "default", keys)
    reader.catch_up()
    return reader.ledger


def versions_of(instance, root):
    """Receive the versions that are not withdrawn, as a new subscriber who has the root key's public half."""
    key = root.with_suffix(".pub")
    with ModelSubscriber(instance / "log", model="default", public_key=key, idle_seconds=0) as subscriber:
        return [release.version for release in subscriber]


def test_keys_are_listed_replaced_and_revoked(on, program, instance, root, tmp_path):
    """The instance goes on with the new key, the doctor is content, and a file verifies by root key and list."""
    first = SigningKey.load(instance / "keys" / "signing.key").public
    request = on("delete", "doc-9")["requests"][0]
    rotated = on("keys", "rotate", "--root-key", root)
    assert (instance / "keys" / "root.pub").read_text() == root.with_suffix(".pub").read_text()
    assert (rotated["sequence"], rotated["previous"]) == (2, [first.key_id])
    assert SigningKey.load(instance / "keys" / "signing.key").public.key_id == rotated["current"] != first.key_id
    assert SigningKey.load(instance / "keys" / f"signing-{first.key_id}.key").public == first
    assert on("doctor")["passed"] is True
    size = ledger_of(instance, root).size
    assert versions_of(instance, root) == [3]
    revoked = on("keys", "revoke", first.key_id, "--root-key", root)
    assert (revoked["sequence"], revoked["revoked"]) == (3, [first.key_id])
    ledger = ledger_of(instance, root)
    assert (ledger.gaps, ledger.size) == (set(), size + 1)
    # The proof of a version was made again, since a revoked key had signed it.
    assert on("verify")["passed"] is True
    assert versions_of(instance, root) == [3]
    assert [version["version"] for version in on("unlearn", "--retrain")["versions"]] == [4]
    assert on("doctor")["passed"] is True
    for name, salt in ((request["id"], request["salt"]), (on("receipt", "default/0/600")["receipts"][0]["id"], None)):
        file = tmp_path / "one.tlog-proof"
        on("receipt", name, *(["--salt", salt] if salt else []), "--proof", file)
        offline = ("verify", file, "--key", root.with_suffix(".pub"))
        assert program(*offline, "--key-list", instance / "keys" / "keys.list")[0] == 0
        assert program(*offline)[0] == 1


def test_entries_of_a_thief_are_void_from_where_it_is_said(on, instance, root):
    """`--from` names the first entry that does not count: a rebuild gives the deletions from there on receipts."""
    first = SigningKey.load(instance / "keys" / "signing.key").public
    on("keys", "rotate", "--root-key", root)
    (receipt,) = on("receipt", "default/0/602")["receipts"]
    on("keys", "revoke", first.key_id, "--from", receipt["index"], "--root-key", root)
    ledger = ledger_of(instance, root)
    assert ledger.is_void(receipt["index"])
    assert not ledger.is_void(receipt["index"] - 1)
    assert "no receipt" in on("receipt", "default/0/602", status=1)
    on("rebuild", "--yes")
    assert on("status")["receipts_waiting"] >= 1
    on("unlearn", "--retrain")
    (again,) = on("receipt", "default/0/602")["receipts"]
    assert again["index"] > receipt["index"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["rotate"], "--root-key"),
        (["revoke", "--root-key", "{root}"], "key id"),
        (["rotate", "0123", "--root-key", "{root}"], "key id"),
        (["revoke", "01234567", "--root-key", "{root}"], "no key list yet"),
        (["rotate", "--root-key", "/no/root.key"], "/no/root.key"),
    ],
)
def test_wrong_arguments_are_one_line_with_the_remedy(program, instance, root, arguments, says):
    """Nothing is signed."""
    status, _, err = program("keys", *[one.format(root=root) for one in arguments], "--dir", instance)
    assert (status, err.count("\n")) == (2, 1)
    assert says in err
    assert not (instance / "keys" / "keys.list").exists()


def test_an_instance_takes_its_keys_from_the_folder_of_the_settings(program, sample_file, tmp_path):
    """Keys that lie outside of the instance's folder are used there, and none is made inside."""
    elsewhere, place = tmp_path / "elsewhere", tmp_path / "instance"
    assert program("keys", "new", "--to", elsewhere)[0] == 0
    given = ("--dir", place, "--set", f"keys={elsewhere}", "--set", "topics=3", "--set", "max_df=1")
    status, _, err = program("add", sample_file, *given)
    assert status == 0, err
    assert program("receipt", "nobody", *given)[0] == 1
    assert not (place / "keys").exists()
