"""The program's frame: help, exit statuses, one-line errors."""

import subprocess
import sys

import pytest

from streamtopic import errors
from streamtopic.cli import build_parser, main
from streamtopic.console import plain
from streamtopic.signed import SigningKey

KEY = str(SigningKey.from_seed(bytes(32), "test/default").public)


def test_a_disk_that_takes_no_more_is_named_with_status_3(tmp_path):
    """What the operating system refuses is one line with its reason, and not called unexpected."""
    command = f"{sys.executable} -m streamtopic init --dir {tmp_path / 'instance'}"
    # No file may be longer than nothing, so each write is refused by the kernel.
    done = subprocess.run(
        ["/bin/sh", "-c", f"ulimit -f 0; exec {command}"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "the operating system refuses: File too large; mend that, then run the command again" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["status"], "--dir"),
        (["status", "--dir", "/nowhere/at/all"], "/nowhere/at/all"),
        (["status", "--config", "/nowhere.toml"], "/nowhere.toml"),
        (["status", "--dir", ".", "--set", "topics"], "NAME=VALUE"),
        (["status", "--dir", ".", "--set", "topcs=3"], "did you mean `topics`"),
        (["demo", "--documents", "/nowhere.jsonl"], "/nowhere.jsonl"),
        (["bench", "nonsense"], "bench --list"),
        (["topics", "--top", "0", "--dir", "."], "'0' is not a whole number from 1 to 20"),
        (["serve", "--port", "70000", "--dir", "."], "from 0 to 65535"),
        (["demo", "--set", "epsilon=-1"], "`epsilon` (command line)"),
        (["demo", "--set", "max-df=2"], "setting `max_df` (command line)"),
        (["bench", "ingest-million", "largest=-3"], "whole number from"),
        (["demo", "--delete", "1%"], "'1%' is not a whole number from 0"),
        (["add"], "FILE"),
        (["nonsense"], "invalid choice"),
        (["verify", "/nowhere"], "--key"),
        (["verify", "/nowhere", "--key", KEY], "/nowhere"),
        (["verify", "r.json", "--strict", "--key", KEY], "by itself"),
        (["export", "2", "--dir", "."], "--to"),
        (["export", "2", "--verify", "--to", "model", "--dir", "."], "ends in .html"),
        (["topics", "suggest", "--topics", "5,x"], "not a list of numbers"),
        (["topics", "suggest", "--trials", "-1"], "'-1' is not a whole number from 0"),
        (["audit", "--draws", "10"], "draws is 10"),
        (["audit", "--seed", "-1"], "'-1' is not a whole number from 0"),
        (["audit", "--set", "epsilon=0.01"], "give so many yourself"),
        (["audit", "--documents", "no such file"], "no such file"),
        (["audit", "--documents", "no such file", "--dir", "."], "give one of them"),
        (["demo", "--documents", "/nowhere.jsonl", "--keep", "."], "is not empty"),
        (["verify", "/nowhere", "--key", "nowhere.pub"], "give signing.pub"),
    ],
)
def test_errors_are_one_line_that_names_the_thing(arguments, named, capsys):
    """Status 2, no traceback, and the remedy in the line."""
    assert main(arguments) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert named in shown


@pytest.mark.parametrize("command", ["status", "serve"])
def test_a_folder_of_something_else_does_not_become_an_instance(tmp_path, capsys, command):
    """Whoever looks into a folder without an instance is told so. Its files and its mode stay as they are."""
    tmp_path.chmod(0o755)
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    assert main([command, "--dir", str(tmp_path)]) == 2
    assert "there is no instance" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert tmp_path.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("more", [[], ["--debug"]])
def test_debug_shows_the_traceback(more, capsys):
    """Only for those who ask."""
    assert main(["status", *more]) == 2
    assert ("Traceback" in capsys.readouterr().err) is bool(more)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.CheckFailed("x"), 1),
        (errors.UsageError("x"), 2),
        (errors.ComponentUnreachable("x"), 3),
        (ZeroDivisionError("x\ny"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_each_kind_of_error_has_its_status(monkeypatch, capsys, error, status):
    """Scripts can tell a failed check from wrong usage and from a server that is away."""

    def fail(_args):
        raise error

    parser = build_parser()
    args = parser.parse_args(["bench"])
    args.run = fail
    monkeypatch.setattr("streamtopic.cli.Parser.parse_args", lambda *_: args)
    assert main([]) == status
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("value", "shown"),
    [(43200.0, "43,200"), (1455.7, "1,456"), (1.45521, "1.455"), (8.449e-07, "8.449e-07"), (1e15, "1e+15"), ([], "-")],
)
def test_a_value_of_json_is_written_for_a_person(value, shown):
    """A figure has four digits, or is a whole number if it has more; a dash is nothing."""
    assert plain(value) == shown
