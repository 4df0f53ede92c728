"""Each promise on the page leads to a test that exists and to commands that the program has."""

import ast
import base64
import dataclasses
import re
from pathlib import Path

import pytest

from ledger_maker import LedgerMaker, envelope_of
from streamtopic.signed import Alive, End, Envelope, Erased, Head, Keys, Payload, Receipt, RequestReceipt, line_of
from streamtopic.streams import FileLog

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
THREATS = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
LINKS = re.findall(r"\[`(test_\w+\.py)::(\w+)`\]\(\.\./([\w/]+\.py)\)", PAGE)
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


def test_a_proof_is_checked_without_this_program(tmp_path, monkeypatch):
    """The lines on the page, run as they stand, accept a proof in a ledger of any size and refuse a changed one."""
    from cryptography.exceptions import InvalidSignature

    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    maker = LedgerMaker(FileLog(tmp_path / "log"))
    Path("version-12").mkdir()
    Path("signing.pub").write_text(f"{maker.key.public}\n")

    def checked(proof):
        Path("version-12/model.safetensors.tlog-proof").write_text(proof)
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


PUBLISHED = (Payload, Head, Envelope, Receipt, RequestReceipt, Erased, Alive, Keys, End)


def test_each_published_field_is_in_the_table():
    """Fields of a release and of every entry are in it, each once, and no other: a new one is thought of."""
    _, _, after = PAGE.partition("### What each published number is made of\n")
    rows = re.findall(r"^\| (`.*?) \|", after.partition("\n### ")[0], re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    fields = {field.name for kind in PUBLISHED for field in dataclasses.fields(kind)}
    assert sorted(named) == sorted(fields)
