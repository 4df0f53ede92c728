"""Each promise on the page leads to a test that exists and to commands that the program has."""

import ast
import re
import shlex
from pathlib import Path

import pytest

from streamtopic.cli import build_parser

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
LINKS = re.findall(r"\[`(test_\w+\.py)::(\w+)`\]\(\.\./([\w/]+\.py)\)", PAGE)
COMMANDS = re.findall(r"`(streamtopic [^`]+)`", PAGE) + re.findall(r"^(streamtopic .*)$", PAGE, re.MULTILINE)


def _tests(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("link", LINKS, ids=lambda link: link[1])
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


def test_the_commands_of_a_report_are_commands():
    """What a report tells a stranger to run is what the program takes."""
    from streamtopic.service.evidence.claims import steps_of

    for _, command, _ in steps_of(3):
        assert callable(build_parser().parse_args(shlex.split(command)[1:]).run)


@pytest.mark.parametrize("row", [line for line in PAGE.splitlines() if line.startswith("| ") and "](../tests" in line])
def test_each_promise_in_a_table_has_three_parts(row):
    """Promise, what it rests on, and what shows it; nothing is promised without the last."""
    promise, ground, shown = (part.strip() for part in row.strip("|").split(" | "))
    assert promise
    assert ground
    assert "test_" in shown or "`streamtopic" in shown
