"""`backup` and `restore` as an operator calls them: a lost Redis and lost keys, one command, then `verify`."""

import json
import shutil
import subprocess
import sys

import pytest

from streamtopic.cli import main


@pytest.fixture
def instance(sample_file, tmp_path):
    """An instance with two versions and three receipts."""
    folder = tmp_path / "instance"
    keep = ["--keep", str(folder), "--set", "max_df=1", "--set", "capacity_share=0.05"]
    assert main(["demo", "--documents", str(sample_file), "--topics", "4", "--delete", "3", "--json", *keep]) == 0
    return folder


@pytest.fixture
def on(program, instance):
    """Run a command on the instance with JSON output: (status, object or error text)."""

    def run(command, *arguments):
        status, out, err = program(command, *arguments, "--dir", instance, "--json")
        return status, json.loads(out) if out else err

    return run


def test_a_lost_redis_and_lost_keys_come_back(on, instance, tmp_path):
    """Documents that were deleted after the backup stay deleted, and every check of `verify` passes."""
    file = tmp_path / "saved.backup"
    status, made = on("backup", file)
    assert status == 0, made
    assert {"signing.key", "noise.key", "receipt.key", "signing.pub"} <= set(made["keys"])
    status, _ = on("delete", "doc-9")
    assert status == 0
    shutil.rmtree(instance / "redis")
    shutil.rmtree(instance / "keys")
    status, restored = on("restore", file)
    assert status == 0, restored
    assert (restored["records"], restored["documents"]) == (1, made["documents"] - 1)
    status, checks = on("verify")
    assert (status, checks["passed"]) == (0, True), checks


def test_a_refusal_leaves_an_instance_as_it_was(on, instance, tmp_path):
    """A state that is there, a damaged file and a name that is taken: each is named, with status 1 or 2."""
    file = tmp_path / "saved.backup"
    assert on("backup", file)[0] == 0
    status, error = on("restore", file)
    assert (status, "already holds a state" in error) == (2, True)
    status, error = on("backup", file)
    assert (status, "never overwritten" in error) == (2, True)
    file.write_bytes(file.read_bytes()[:5000])
    status, error = on("restore", file)
    assert (status, "changed or cut" in error) == (1, True)


def test_a_backup_goes_through_pipes(instance, tmp_path):
    """Nothing but the backup is on standard output, and `restore -` reads it from a pipe."""
    start = [sys.executable, "-m", "streamtopic"]
    saved = subprocess.run([*start, "backup", "-", "--dir", instance], stdout=subprocess.PIPE, check=True).stdout
    shutil.rmtree(instance / "redis")
    restored = subprocess.run(
        [*start, "restore", "-", "--dir", instance, "--json"], input=saved, stdout=subprocess.PIPE, check=True
    )
    assert json.loads(restored.stdout)["records"] == 0


def test_a_folder_without_its_log_is_left_as_it_was(program, on, tmp_path):
    """The line says what to bring back; nothing makes an empty log in its place, or keys that nobody knows."""
    file, bare = tmp_path / "saved.backup", tmp_path / "bare"
    assert on("backup", file)[0] == 0
    bare.mkdir()
    for _ in range(2):
        status, _, error = program("restore", file, "--dir", bare)
        assert (status, "bring the folder's log/" in error) == (2, True)
        (bare / "streamtopic.toml").touch()
    assert [path.name for path in bare.iterdir()] == ["streamtopic.toml"]


def test_a_key_that_was_rotated_after_the_backup_stays(program, on, instance, tmp_path):
    """A newer key list names it: a lost Redis comes back beside it. A key that no list names is refused."""
    file, root = tmp_path / "saved.backup", tmp_path / "offline" / "root.key"
    assert on("backup", file)[0] == 0
    assert program("keys", "new", "--root", "--to", root.parent)[0] == 0
    old = (instance / "keys" / "signing.key").read_bytes()
    for act in ("publish", "rotate"):
        assert on("keys", act, "--root-key", root)[0] == 0
    rotated = (instance / "keys" / "signing.key").read_bytes()
    assert rotated != old
    shutil.rmtree(instance / "redis")
    assert program("keys", "new", "--to", tmp_path / "strange")[0] == 0
    shutil.copy(tmp_path / "strange" / "signing.key", instance / "keys" / "signing.key")
    status, error = on("restore", file)
    assert (status, "signing.key is not the key in the backup" in error) == (2, True)
    (instance / "keys" / "signing.key").write_bytes(rotated)
    status, restored = on("restore", file)
    assert (status, restored["keys"]) == (0, []), restored
    assert on("doctor")[0] == 0


def test_a_backup_from_before_the_root_key_brings_no_key_back_in_silence(program, on, instance, tmp_path):
    """Its signing key may be revoked by now: the restore warns, and the doctor fails until root.pub is there."""
    file, root = tmp_path / "saved.backup", tmp_path / "offline" / "root.key"
    assert on("backup", file)[0] == 0
    assert program("keys", "new", "--root", "--to", root.parent)[0] == 0
    assert on("keys", "publish", "--root-key", root)[0] == 0
    for lost in ("redis", "keys"):
        shutil.rmtree(instance / lost)
    status, _, error = program("restore", file, "--dir", instance, "--json")
    assert (status, "a key list of a root key that is not known here" in error) == (0, True)
    status, found = on("doctor")
    (failed,) = [finding for finding in found["findings"] if finding["level"] == "fail"]
    assert (status, failed["name"], "root.pub" in failed["remedy"]) == (1, "public_key", True)
    shutil.copy(root.with_suffix(".pub"), instance / "keys" / "root.pub")
    assert on("doctor")[0] == 0


class _Typed:
    """A terminal at which somebody types a line."""

    def __init__(self, line):
        self.line = line

    def isatty(self):
        return True

    def readline(self):
        return self.line


def test_a_model_goes_only_under_its_own_name(program, instance, tmp_path, monkeypatch):
    """Another name changes nothing; the right one leaves the ledger, the proof of its end, and the public key."""
    file = tmp_path / "end.tlog-proof"
    monkeypatch.setattr("sys.stdin", _Typed("demo-2\n"))
    status, _, error = program("delete-model", file, "--dir", instance)
    assert (status, "nothing was deleted" in error) == (2, True)
    assert program("status", "--dir", instance)[0] == 0
    monkeypatch.setattr("sys.stdin", _Typed("default\n"))
    status, out, error = program("delete-model", file, "--dir", instance)
    assert (status, f"{file} proves the end" in out) == (0, True), error
    assert not (instance / "redis").exists()
    assert sorted(path.name for path in (instance / "keys").iterdir()) == ["complete", "signing.pub"]
    status, out, _ = program("delete-model", file, "--verify", "--key", instance / "keys" / "signing.pub")
    assert (status, "ok    model default was deleted" in out) == (0, True)
    file.write_text(file.read_text().replace("index ", "index 1"))
    assert program("delete-model", file, "--verify", "--key", instance / "keys" / "signing.pub")[0] == 1
