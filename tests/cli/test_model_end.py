"""`delete-model` as an operator calls it."""


class _Typed:
    """A terminal at which somebody types a line."""

    def __init__(self, line):
        self.line = line

    def isatty(self):
        return True

    def readline(self):
        return self.line


def test_a_model_goes_only_under_its_own_name(program, instance, tmp_path, monkeypatch):
    """Another name changes nothing; the right one leaves the ledger, the proof of its end, and the public key.

    The proof is about no document.
    """
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
    status, out, _ = program("verify", file, "--key", instance / "keys" / "signing.pub")
    assert (status, "ok    model default was deleted" in out) == (0, True)
    about = ("--document", "doc-1", "--salt", "0123456789abcdef")
    assert program("verify", file, "--key", instance / "keys" / "signing.pub", *about)[0] == 1
    file.write_text(file.read_text().replace("index ", "index 1"))
    assert program("verify", file, "--key", instance / "keys" / "signing.pub")[0] == 1
