"""What an auditor gets about a version: its page, and its proof for a public key alone."""

import json
import re
import shlex

import pytest

from embedded_service import Service
from streamtopic.cli import build_parser
from streamtopic.pages.rendering import policy
from streamtopic.pages.version_page import version_facts, version_page
from streamtopic.settings import load
from streamtopic.signed import SigningKey
from strict_html import Strict


@pytest.fixture(scope="module")
def facts(made):
    """The facts on the page of version 2."""
    with Service(load({"dir": made})) as service:
        return version_facts(service, 2)


def test_a_page_is_whole_and_needs_nothing_else(facts):
    """Every tag is closed in order, links stay within the page, and nothing is loaded or run."""
    written = version_page(facts)
    parsed = Strict(written)
    assert written.startswith("<!doctype html>")
    # Hashes and signatures in base 64 may hold two slashes.
    plain = re.sub(r"[A-Za-z0-9+/]{40,}", "", written)
    assert not re.search(r"https?:|//[a-z]|url\(|@import|javascript:", plain)
    assert not parsed.tags.keys() & {"img", "iframe", "object", "form", "base", "input"}
    assert not [name for _, name, _ in parsed.attributes if name.startswith("on") or name in {"src", "style", "action"}]
    assert "script" not in parsed.tags
    assert [value for value in parsed.values("content") if "default-src" in value] == [policy()]
    ids = parsed.values("id")
    assert len(set(ids)) == len(ids)
    assert {href.removeprefix("#") for href in parsed.values("href")} - set(ids) == {"data:,"}


def test_no_document_is_named(facts, made):
    """Neither ids nor texts of documents are in a report, forgotten or not."""
    written = json.dumps(facts)
    assert not re.search(r"doc-\d", written)
    assert str(made) not in written


def test_a_model_is_proved_by_its_file(program, made, tmp_path):
    """The proof tells the version's facts; another model beside it, or another key, fails."""
    folder = tmp_path / "two"
    assert program("export", 2, "--to", folder, "--dir", made)[0] == 0
    check = ("verify", folder / "model.safetensors.tlog-proof", "--key", made / "keys" / "signing.pub")
    status, out, _ = program(*check, "--json")
    told = json.loads(out)
    assert (status, told["passed"], told["file"]) == (0, True, True)
    assert (told["version"], told["m"], told["forgotten"], told["capacity"]) == (2, 597, 3, 30)
    assert "ok    model.safetensors is this version" in program(*check)[1]
    model = folder / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1] + b"\0\1")
    status, out, _ = program(*check)
    assert (status, "FAIL  model.safetensors is not this version" in out) == (1, True)
    model.unlink()
    assert json.loads(program(*check, "--json")[1])["file"] is None
    other = SigningKey.from_seed(bytes(32), "streamtopic/default").public
    assert program(*check[:-1], str(other))[0] != 0


def test_a_page_is_written_with_what_was_checked(program, made, tmp_path):
    """With --verify everything is learned again; the commands on the page are ones that the program has."""
    page = tmp_path / "two.html"
    status, out, _ = program("export", 2, "--to", page, "--verify", "--dir", made, "--json")
    told = json.loads(out)
    assert (status, told["passed"], told["complete"]) == (0, True, True)
    assert {"ledger", "counts", "version", "noise"} <= {one["name"] for one in told["findings"]}
    commands = re.findall(r"<code>(streamtopic [^<]*)</code>", page.read_text("utf-8"))
    assert len(commands) == 6
    assert all(callable(build_parser().parse_args(shlex.split(one)[1:]).run) for one in commands)


def test_verify_is_evidence(program, made):
    """Each check says what it rests on and what to do."""
    status, out, _ = program("verify", "--dir", made, "--json", "--strict")
    found = json.loads(out)
    assert (status, found["passed"], found["complete"], found["version"]) == (0, True, True, 2)
    names = [check["name"] for check in found["checks"]]
    assert len(set(names)) == len(names)
    assert {"ledger", "receipts", "missing receipts", "counts", "version", "noise"} <= set(names)
    assert {check.keys() == {"name", "passed", "detail", "remedy"} for check in found["checks"]} == {True}
