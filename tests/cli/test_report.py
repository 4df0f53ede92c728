"""What an auditor gets about a version: the page, its JSON, and checking either with a public key alone."""

import json
import re
import shutil
from pathlib import Path

import pytest

from streamtopic.documents.corpus import Document
from streamtopic.pages.rendering import policy
from streamtopic.pages.version_page import version_page
from streamtopic.service.app import Service
from streamtopic.settings import load, write
from streamtopic.streams import FileLog
from strict_html import Strict

GONE = ["doc-3", "doc-17", "doc-40"]
HOSTILE = "\"'><script>alert(1)</script><!-- & \u202e\x1b[31m </script> `x`"
SETTINGS = {"topics": 4, "max_df": 1.0, "max_forget_lag": 0.0, "capacity": {"share": 0.05}}


@pytest.fixture(scope="module")
def made(sample, tmp_path_factory):
    """An instance of 300 documents with two versions, the second without three of them."""
    folder = tmp_path_factory.mktemp("report") / "instance"
    settings = load({"dir": folder, **SETTINGS})
    folder.mkdir()
    write(settings, folder / "streamtopic.toml")
    with Service(settings) as service:
        lines = [json.loads(line) for line in sample[:300]]
        service.add([Document(line["id"], line["text"], {}) for line in lines])
        service.settle()
        service.delete([*GONE, "nobody"])
        assert service.settle().receipts == 4
    return folder


@pytest.fixture(scope="module")
def facts(made, tmp_path_factory):
    """The evidence about version 2, as JSON has it."""
    from streamtopic.cli import main

    path = tmp_path_factory.mktemp("facts") / "two.json"
    assert main(["export", "--evidence", "2", "--dir", str(made), "--to", str(path), "--json"]) == 0
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture
def copy(made, tmp_path):
    """The instance, to be harmed."""
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture
def report(program, made, tmp_path):
    """Write a report of the instance: (evidence, what the command printed)."""

    def run(*arguments, status=0, folder=made):
        path = tmp_path / "report.json"
        path.unlink(missing_ok=True)
        found, out, err = program("export", "--evidence", *arguments, "--dir", folder, "--to", path, "--json")
        assert found == status, out + err
        return (json.loads(path.read_text(encoding="utf-8")), json.loads(out)) if out else err

    return run


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
    assert parsed.tags["script"] == 1
    assert ("script", "type", "application/json") in parsed.attributes
    assert [value for value in parsed.values("content") if "default-src" in value] == [policy()]
    ids = parsed.values("id")
    assert len(set(ids)) == len(ids)
    assert {href.removeprefix("#") for href in parsed.values("href")} - set(ids) == {"data:,"}


def _replaced(value, words):
    if isinstance(value, dict):
        return {key: _replaced(item, words) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, words) for item in value]
    return words if isinstance(value, str) else value


def test_hostile_words_stay_words(facts):
    """Whatever text stands anywhere in the evidence, the page has the same elements and runs nothing."""
    facts = facts | {
        "tasks": {
            "heads": [
                {"task": "t", "topics": ["w"], "classes": ["a", "b"], "documents": 3, "sigma": 1.0, "ratio": None}
            ],
            "unfitted": {HOSTILE: "gone"},
            "words": {HOSTILE: {HOSTILE: ["w"]}},
        },
        "conditions": {
            "checks": [{"name": "n", "value": 1.0, "relation": "<", "bound": 2.0, "source": "s", "holds": False}],
            "constants": {HOSTILE: 1.0},
            "vacuity": "v",
        },
    }
    keep = {"anchors": [HOSTILE], "envelope": facts["envelope"]}
    plain = Strict(version_page(_replaced(facts, "word") | keep))
    hostile = version_page(_replaced(facts, HOSTILE) | keep)
    attacked = Strict(hostile)
    code = {"code"}  # text between backticks is shown as code, nothing else is made of text
    assert [tag for tag in attacked.shape if tag not in code] == [tag for tag in plain.shape if tag not in code]
    assert "\u202e" not in hostile
    assert "\x1b" not in hostile
    assert any("\\u{202e}" in text for _, text in attacked.text)


def test_the_evidence_is_what_happened(facts, program, made):
    """Counts, receipts and epsilon are those that the other commands tell."""
    assert facts["passed"] is True
    assert facts["complete"] is True
    assert facts["verified"] is False
    assert (facts["envelope"]["m"], facts["envelope"]["forgotten"]) == (297, 3)
    assert facts["forgotten"]["receipts"] == 3
    since = [(one["version"], one["receipts"]) for one in facts["forgotten"]["since_base"]]
    assert since == [(1, 1), (2, 3)]  # the first version was already one without `nobody`
    assert facts["forgotten"]["waiting"] == {"deletions": 0, "held": 0, "oldest": None, "lag": 0}
    ledger = json.loads(program("status", "--dir", made, "--json")[1])["ledger"]
    assert (facts["forgotten"]["ledger"]["entries"], facts["forgotten"]["ledger"]["receipts"]) == (ledger["size"], 4)
    versions = json.loads(program("versions", "--dir", made, "--json")[1])["versions"]
    told = [(v["version"], v["cumulative_epsilon"], v["withdrawn"]) for v in versions]
    spent = [(v["version"], v["cumulative_epsilon"], v["withdrawn"]) for v in facts["spending"]["versions"]]
    assert spent == told
    assert (facts["envelope"]["capacity"], facts["envelope"]["capacity_rule"]) == (15, "share")


def test_no_document_is_named(facts, made):
    """Neither ids nor texts of documents are in a report, forgotten or not."""
    written = json.dumps(facts)
    assert not re.search(r"doc-\d", written)
    assert "nobody" not in written
    assert str(made) not in written


@pytest.mark.parametrize(
    ("path", "value", "caught"),
    [
        (("envelope", "epsilon"), 0.01, "facts"),
        (("envelope", "forgotten"), 0, "facts"),
        (("version",), 3, "facts"),
        (("envelope", "release"), "00" * 32, "facts"),
        (("proof", "index"), 0, "facts"),
        (("proof", "public_key"), "example.org/other+00000000+AAAA", "facts"),
        (("proof", "tlog_proof"), "not a proof", "proof"),
    ],
)
def test_a_forged_report_is_caught(program, made, facts, tmp_path, path, value, caught):
    """The entry in the ledger cannot be changed without failing the check."""
    forged = json.loads(json.dumps(facts))
    inner = forged
    for name in path[:-1]:
        inner = inner[name]
    assert inner[path[-1]] != value
    inner[path[-1]] = value
    file = tmp_path / "forged.json"
    file.write_text(json.dumps(forged), encoding="utf-8")
    status, out, _ = program("verify", file, "--key", made / "keys" / "signing.pub", "--json")
    assert status == 1
    assert caught in {one["name"] for one in json.loads(out)["checks"] if one["passed"] is False}


def test_a_page_that_shows_other_than_its_data_is_caught(program, made, facts, tmp_path):
    """Words changed on the page alone, where people read, fail the check as well."""
    file, key = tmp_path / "page.html", made / "keys" / "signing.pub"
    file.write_text(version_page(facts).replace("<dd>297</dd>", "<dd>300</dd>"), encoding="utf-8")
    status, out, _ = program("verify", file, "--key", key, "--json")
    assert (status, [one["name"] for one in json.loads(out)["checks"] if one["passed"] is False]) == (1, ["page"])
    other = facts | {"program": "streamtopic 9.9"}
    file.write_text(version_page(other).replace("<dd>297</dd>", "<dd>300</dd>"), encoding="utf-8")
    status, out, _ = program("verify", file, "--key", key, "--json")
    assert (status, [one["name"] for one in json.loads(out)["checks"] if one["passed"] is None]) == (0, ["page"])


def test_verify_is_evidence(program, made, copy):
    """Each check says what it rests on and what to do; what a compacted log holds is enough for all of them."""
    status, out, _ = program("verify", "--dir", made, "--json", "--strict")
    found = json.loads(out)
    assert (status, found["passed"], found["complete"], found["version"]) == (0, True, True, 2)
    names = [check["name"] for check in found["checks"]]
    assert len(set(names)) == len(names)
    assert {"ledger", "receipts", "missing receipts", "counts", "version", "noise"} <= set(names)
    assert {check.keys() == {"name", "passed", "detail", "remedy"} for check in found["checks"]} == {True}
    with FileLog(copy / "log") as log:
        assert log.compact("default.documents") > 0
    status, out, _ = program("verify", "--dir", copy, "--json")
    found = json.loads(out)
    assert (status, found["passed"], found["complete"]) == (0, True, True)


def test_the_fields_are_those_of_the_page_on_guarantees(facts):
    """Programs depend on the names, so the page lists each, and none besides."""
    text = (Path(__file__).parents[2] / "docs" / "guarantees.md").read_text(encoding="utf-8")
    rows = text.partition("| field | holds |")[2].partition("\n\n")[0].splitlines()[2:]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[0])} == facts.keys()
