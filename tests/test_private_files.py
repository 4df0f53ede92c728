"""Files that must be whole, private, and there after a power failure."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamtopic.errors import SettingsError
from streamtopic.security.private_files import new_file, open_to_others
from streamtopic.service.instance import make_keys
from streamtopic.settings import load


def _two_at_once(path):
    with new_file(path) as slow:
        slow.write(b"begun first, ")
        with new_file(path) as quick:
            quick.write(b"ended first")
        slow.write(b"ended second")


def _fail_halfway(path):
    with new_file(path) as file:
        file.write(b"half")
        raise ZeroDivisionError


def test_the_first_writer_that_ends_gives_the_name(tmp_path):
    """Of two that write at once, the file of the first stays as it is, and the second one is refused."""
    path = tmp_path / "saved"
    with pytest.raises(FileExistsError):
        _two_at_once(path)
    assert path.read_bytes() == b"ended first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_failed_leaves_nothing(tmp_path):
    """Neither the name nor a part of the file is there, so that a second attempt finds the place free."""
    path = tmp_path / "saved"
    with pytest.raises(ZeroDivisionError):
        _fail_halfway(path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_its_rights_are_those_that_were_asked_for(tmp_path, mode):
    """Also while it is written: nobody reads a secret in a file that is not whole yet."""
    with new_file(tmp_path / "saved", mode):
        (part,) = tmp_path.iterdir()
        assert part.stat().st_mode & 0o777 == mode
    assert (tmp_path / "saved").stat().st_mode & 0o777 == mode


@pytest.mark.parametrize(
    ("mode", "owner", "opened"),
    [
        (0o600, 1000, False),
        (0o640, 1000, True),
        (0o604, 1000, True),
        (0o440, 0, False),
        (0o660, 0, True),
        (0o644, 0, True),
    ],
)
def test_a_secret_is_for_its_owner_or_mounted_for_the_group(tmp_path, monkeypatch, mode, owner, opened):
    """Kubernetes mounts a secret of root's that the group of its reader may read, and nobody may write."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(Path, "stat", lambda _: SimpleNamespace(st_mode=mode, st_uid=owner))
    assert open_to_others(tmp_path / "secret") is opened


def test_content_then_name_reach_the_disk(tmp_path, monkeypatch):
    """A file whose name is not on the disk is gone after a power failure, so its folder is written as well."""
    synced = []

    def noted(descriptor):
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        assert (tmp_path / "saved").exists() == (len(synced) == 2)

    monkeypatch.setattr(os, "fsync", noted)
    with new_file(tmp_path / "saved") as file:
        file.write(b"whole")
    content, folder = synced
    assert (content.parent, folder) == (tmp_path, tmp_path)


@pytest.mark.parametrize("name", ["signing.key", "noise.key", "receipt.key"])
def test_a_lost_key_of_an_instance_is_not_made_again(tmp_path, name):
    """A second key would look like a forger, or draw other noise; before all keys were made there is no harm."""
    settings = load({"dir": tmp_path})
    make_keys(settings)
    (tmp_path / "keys" / name).unlink()
    with pytest.raises(SettingsError, match="restore it from your backup"):
        make_keys(settings)
    for made in ("complete", "signing.pub"):
        (tmp_path / "keys" / made).unlink()
    make_keys(settings)
    assert (tmp_path / "keys" / name).exists()


def test_a_lost_signing_key_leaves_its_public_half_as_it_is(tmp_path):
    """Before all keys were made too: readers may have the public half, so its owner decides, and nothing is written."""
    settings = load({"dir": tmp_path})
    make_keys(settings)
    keys = tmp_path / "keys"
    for lost in ("complete", "signing.key"):
        (keys / lost).unlink()
    with pytest.raises(SettingsError, match=r"signing\.key is missing .*or move the public half away"):
        make_keys(settings)
    assert not (keys / "signing.key").exists()
    (keys / "signing.pub").rename(keys / "old.pub")
    make_keys(settings)
    assert (keys / "complete").exists()
