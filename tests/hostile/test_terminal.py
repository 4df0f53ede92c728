"""Nothing that others write moves the cursor, turns the writing or forges a line at the operator's terminal."""

import json
import logging
import random
import re
from pathlib import Path

import msgpack
import pytest

from streamtopic.cli import main
from streamtopic.console import log_to_stderr
from streamtopic.streams import FileLog, Message

PACKAGE = Path(__file__).parents[2] / "streamtopic"
# Moves the cursor, sets the title, clears the screen, turns the writing, forges a line, ends a line for some.
EVIL = [
    "\x1b]0;owned\x07", "\x1b[2J", "\u202eevil", "\x9b31m", "one\rtwo", "one\ntwo", "one\u2028two", "\x7f",
    "\u2066", "\ufeff", "\u200f", "\udb40\udc01".encode("utf-16", "surrogatepass").decode("utf-16"),
]  # fmt: skip
DOCUMENTS = 60


@pytest.fixture(scope="module")
def instance(tmp_path_factory):
    """An instance whose ids, words, request ids and refused records are all hostile, with two versions."""
    folder = tmp_path_factory.mktemp("terminal") / "instance"
    folder.mkdir()
    settings = "topics = 2\nmin_df = 1\nmax_df = 1.0\nmax_forget_lag = 0.0\n"
    (folder / "streamtopic.toml").write_text(settings, encoding="utf-8")
    assert main(["init", "--dir", str(folder), "--json"]) == 0
    rng = random.Random(4)
    halves = [*EVIL[::2], "a"], [*EVIL[1::2], "b"]
    adds = []
    for number in range(DOCUMENTS):
        words = rng.sample(halves[number % 2], 4)
        value = msgpack.packb({"op": "add", "counts": {f"{word}{k}": 2 for k, word in enumerate(words)}})
        adds.append(Message(f"{rng.choice(EVIL)}-{number}".encode(), value))
    refused = [Message(f"refused{word}".encode(), b"{") for word in EVIL]
    refused.append(Message(b"refused\xff\x1b[2J", b"{"))
    with FileLog(folder / "log") as log:
        log.append_many("default.documents", [*adds, *refused])
    assert main(["unlearn", "--dir", str(folder), "--json"]) == 0
    gone = [Message(message.key, None, (("request", EVIL[k].encode()),)) for k, message in enumerate(adds[:4])]
    with FileLog(folder / "log") as log:
        log.append_many("default.documents", gone)
    assert main(["unlearn", "--dir", str(folder), "--json"]) == 0
    return folder


def _harmless(text):
    return [character for character in text if character != "\n" and not character.isprintable()] == []


COMMANDS = [
    ["status"],
    ["topics"],
    ["versions"],
    ["rejected"],
    ["doctor"],
    ["verify"],
    *[["receipt", request] for request in EVIL[:2]],
    ["receipt", "default/0/0\x1b[2J"],
    ["delete", "nobody\x1b[2J\u202e"],
    ["unlearn"],
]


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("command", COMMANDS, ids=ascii)
def test_no_command_prints_a_control_character(instance, capsys, command, as_json):
    """Whatever words, ids and requests hold; as JSON they are all there, escaped."""
    capsys.readouterr()
    status = main([*command, "--dir", str(instance), *(["--json"] if as_json else [])])
    shown = capsys.readouterr()
    assert status in {0, 1}, shown.err
    assert _harmless(shown.out)
    assert _harmless(shown.err)
    assert "unexpected" not in shown.err
    if as_json and shown.out:
        assert shown.out.isascii()
        json.loads(shown.out)


def test_a_page_holds_no_control_character(instance, tmp_path, capsys):
    """Nothing on it turns the writing around a word."""
    page = tmp_path / "model.html"
    main(["export", "--to", str(page), "--verify", "--dir", str(instance)])
    assert _harmless(capsys.readouterr().out)
    assert not set(page.read_text(encoding="utf-8")) & set("\x1b\x07\x9b\x7f\u202e\u2066\u200f")


@pytest.mark.parametrize(
    "arguments", [["demo\x1b[2J"], ["status", "--dir", "/no\x1b[2J\u202e"], ["add", "no\x1b[2J", "--dir", "x"]]
)
@pytest.mark.parametrize("debug", [[], ["--debug"]])
def test_errors_print_no_control_character(capsys, arguments, debug):
    """Wrong arguments, errors and tracebacks quote what was given, escaped."""
    assert main([*arguments, *debug])
    assert _harmless(capsys.readouterr().err)


@pytest.mark.parametrize("detailed", [False, True])
def test_log_lines_are_printable_and_single(capsys, monkeypatch, detailed):
    """A message or an exception that quotes a record forges no second line."""
    root = logging.RootLogger(logging.WARNING)
    monkeypatch.setattr(logging, "root", root)
    monkeypatch.setattr(logging.Logger, "root", root)
    logger = logging.Manager(root).getLogger("streamtopic.test")
    log_to_stderr(detailed=detailed)
    logger.warning("document %s refused", "\x1b[2J one\ntwo \u202e")
    try:
        int("\x1b[2Jno")
    except ValueError:
        logger.exception("failed")
    err = capsys.readouterr().err
    assert _harmless(err)
    assert "one\\ntwo" in err
    assert err.splitlines()[0].endswith("refused") or len(err.splitlines()[0]) > 20


def test_nothing_prints_but_the_console():
    """A new print would be unfiltered: it goes through console.py. Children of benchmarks write to pipes."""
    # The one fixed line of __main__ is for the time before the console is loaded.
    allowed = {"console.py", "__main__.py"}
    # Asking whether it is a terminal, flushing, and giving a child's stream away print nothing.
    harmless = ("isatty", "flush", "fileno", "subprocess", "error.st", "done.st")
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        if name in allowed or name.startswith("bench/"):
            continue
        for line in path.read_text("utf-8").splitlines():
            writes = re.search(r"\bprint\(|\bsys\.(__)?std(out|err)", line)
            if writes and not any(word in line for word in harmless):
                found.append(f"{name}: {line.strip()}")
    assert found == []
