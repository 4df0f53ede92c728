"""Each promise on the page leads to a test that exists and to commands that the program has."""

import ast
import base64
import json
import re
import shlex
from pathlib import Path

import pytest

from ledger_maker import LedgerMaker, envelope_of
from streamtopic.cli import build_parser
from streamtopic.signed import line_of
from streamtopic.streams import FileLog

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
THREATS = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
LINKS = re.findall(r"\[`(test_\w+\.py)::(\w+)`\]\(\.\./([\w/]+\.py)\)", PAGE)
COMMANDS = re.findall(r"`(streamtopic [^`]+)`", PAGE) + re.findall(r"^(streamtopic .*)$", PAGE, re.MULTILINE)

THREAT_LINKS = re.findall(r"\[`(test_\w+\.py)::(\w+)`\]\(\.\./([\w/]+\.py)\)", THREATS)


def _tests(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("link", [*LINKS, *dict.fromkeys(THREAT_LINKS)], ids=lambda link: link[1])
def test_each_test_that_the_page_names_exists(link):
    """The file and the function are there, and the function says what it shows."""
    file, name, path = link
    assert Path(path).name == file
    assert name.startswith("test_")
    assert ast.get_docstring(_tests(path)[name])


def test_no_test_is_named_without_a_link():
    """Whatever looks like a test on the page is one of the links."""
    named = re.findall(r"test_\w+\.py::(\w+)", PAGE)
    assert sorted(named) == sorted(name for _, name, _ in LINKS)
    assert len(set(named)) >= 40


@pytest.mark.parametrize("line", sorted(set(COMMANDS)))
def test_each_command_that_the_page_names_is_one(line):
    """Whoever types what the page shows is understood."""
    assert callable(build_parser().parse_args(shlex.split(line)[1:]).run)


def test_a_report_is_checked_without_this_program(tmp_path, monkeypatch):
    """The lines on the page, run as they stand, accept a proof in a ledger of any size and refuse a changed one."""
    from cryptography.exceptions import InvalidSignature

    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    maker = LedgerMaker(FileLog(tmp_path / "log"))
    Path("signing.pub").write_text(f"{maker.key.public}\n")

    def checked(proof):
        Path("report.json").write_text(json.dumps({"proof": {"tlog_proof": proof}}))
        names = {}
        exec(compile(block, "guarantees.md", "exec"), names)  # noqa: S102  executing it is the point
        return names["facts"]

    for size in range(1, 12):
        maker.append(envelope_of(size))
        assert [checked(maker.proof(index))["version"] for index in range(size)] == list(range(1, size + 1))
    head, middle, rest = maker.proof(6).partition("\nindex ")
    forged = base64.b64encode(line_of(envelope_of(7, epsilon=0.5)).encode()).decode()
    with pytest.raises(AssertionError):
        checked(f"{head.splitlines()[0]}\nextra {forged}{middle}{rest}")
    with pytest.raises(InvalidSignature):
        checked(maker.proof(6).replace("\n11\n", "\n12\n"))


def test_the_commands_of_a_report_are_commands():
    """What a report tells a stranger to run is what the program takes."""
    from streamtopic.service.verify.claims import steps_of

    for _, command, _ in steps_of(3):
        assert callable(build_parser().parse_args(shlex.split(command)[1:]).run)


def _promises():
    """Each promise of the page: its paragraph, and the items below it."""
    for block in re.findall(r"^(\*\*.*?)(?=^\*\*|^#)", PAGE, re.DOTALL | re.MULTILINE):
        paragraph, _, below = block.partition("\n\n")
        items = [" ".join(item.split()) for item in ("\n" + below).split("\n- ")[1:]]
        yield " ".join(paragraph.split()), items


def test_promises_are_found():
    """No promise is lost by the form of the page: each is a paragraph with items below it."""
    assert len(list(_promises())) >= 39


@pytest.mark.parametrize(("paragraph", "items"), list(_promises()), ids=lambda part: str(part)[2:40])
def test_each_promise_has_a_ground_and_is_shown(paragraph, items):
    """A sentence promises, another says what that rests on, and each sentence below has one test or command for it."""
    promise, ground = re.fullmatch(r"\*\*([^*].*?)\*\* (.*\.)", paragraph).groups()
    assert promise.endswith(".")
    assert re.search(r"\b(rests on|holds for)\b", ground)
    assert items
    for item in items:
        sentence, shown = re.fullmatch(r"(.*) \((\[?`[^ ].*)\)\.", item).groups()
        assert sentence
        assert len(re.findall(r"test_\w+\.py::|`streamtopic ", shown)) == 1


def test_no_cell_of_a_table_is_a_page():
    """Tables hold what is looked up; what is read stands in sentences."""
    cells = [cell for line in PAGE.splitlines() if line.startswith("|") for cell in line.split(" | ")]
    assert max(map(len, cells)) <= 200
