"""`backup` and `restore` as an operator calls them: a lost Redis and lost keys, one command, then `verify`."""

import json
import shutil

import pytest

from streamtopic.cli import main


@pytest.fixture
def instance(sample_file, tmp_path):
    """An instance with two versions and three receipts, and a passphrase beside it."""
    folder = tmp_path / "instance"
    keep = ["--keep", str(folder), "--set", "max_df=1", "--set", "capacity_share=0.05"]
    assert main(["demo", "--documents", str(sample_file), "--topics", "4", "--delete", "3", "--json", *keep]) == 0
    secret = tmp_path / "passphrase"
    secret.write_text("correct horse battery\n")
    secret.chmod(0o600)
    return folder


@pytest.fixture
def on(program, instance, tmp_path):
    """Run a command on the instance with JSON output: (status, object or error text)."""

    def run(command, *arguments):
        if command in {"backup", "restore"}:
            arguments = (*arguments, "--passphrase-file", tmp_path / "passphrase")
        status, out, err = program(command, *arguments, "--dir", instance, "--json")
        return status, json.loads(out) if out else err

    return run


def test_a_lost_redis_and_lost_keys_come_back(on, instance, tmp_path):
    """Documents that were deleted after the backup stay deleted, and every check of `verify` passes."""
    file = tmp_path / "saved.backup"
    status, made = on("backup", file)
    assert status == 0, made
    assert {"signing.pem", "noise.key", "receipt.key", "signing.pub"} <= set(made["keys"])
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
    """A wrong passphrase, an open passphrase file and a state that is there: each is named, with status 1 or 2."""
    file, secret = tmp_path / "saved.backup", tmp_path / "passphrase"
    assert on("backup", file)[0] == 0
    status, error = on("restore", file)
    assert (status, "already holds a state" in error) == (2, True)
    secret.write_text("another passphrase")
    status, error = on("restore", file)
    assert (status, "passphrase is wrong" in error) == (1, True)
    secret.chmod(0o644)
    status, error = on("backup", tmp_path / "second")
    assert (status, "chmod 600" in error) == (2, True)
    secret.chmod(0o600)
    secret.write_text("short")
    assert "12 or more" in on("backup", tmp_path / "second")[1]
    assert not (tmp_path / "second").exists()


class _Typed:
    """A terminal at which somebody types a line."""

    def __init__(self, line):
        self.line = line

    def isatty(self):
        return True

    def readline(self):
        return self.line


def test_a_model_goes_only_under_its_own_name(program, instance, tmp_path, monkeypatch):
    """Another name changes nothing; the right one leaves the statement, the receipts and the public key."""
    file = tmp_path / "deleted.json"
    monkeypatch.setattr("sys.stdin", _Typed("demo-2\n"))
    status, _, error = program("delete-model", file, "--dir", instance)
    assert (status, "nothing was deleted" in error) == (2, True)
    assert program("status", "--dir", instance)[0] == 0
    monkeypatch.setattr("sys.stdin", _Typed("default\n"))
    status, out, error = program("delete-model", file, "--dir", instance)
    assert (status, f"{file} is the last statement" in out) == (0, True), error
    assert not (instance / "redis").exists()
    assert sorted(path.name for path in (instance / "keys").iterdir()) == ["complete", "signing.pub"]
    status, out, _ = program("delete-model", file, "--verify", "--public-key", instance / "keys" / "signing.pub")
    assert (status, "ok    model default was deleted" in out) == (0, True)
    file.write_text(file.read_text().replace("signed", "sealed"))
    assert program("delete-model", file, "--verify", "--public-key", instance / "keys" / "signing.pub")[0] == 1
