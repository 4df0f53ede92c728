"""What an auditor gets about a version: its page, and its proof for a public key alone."""

import json
import re
import shlex

import pytest

from embedded_service import Service
from streamtopic.cli import build_parser, main
from streamtopic.pages.rendering import policy
from streamtopic.pages.version_page import version_facts, version_page
from streamtopic.settings import load
from streamtopic.signed import SigningKey
from strict_html import Strict

HOSTILE = "\"'><script>alert(1)</script><!-- & \u202e\x1b[31m </script> `x`"


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


@pytest.fixture(scope="module")
def grown(demo, sample, tmp_path_factory):
    """An instance with two versions that both stand: documents were added, none deleted."""
    folder, more = demo(0), tmp_path_factory.mktemp("grown") / "more.jsonl"
    more.write_text("\n".join(sample[600:]), encoding="utf-8")
    assert main(["add", str(more), "--dir", str(folder), "--json"]) == 0
    return folder


def test_pages_show_how_topics_moved_until_a_deletion_forbids_it(program, grown, tmp_path):
    """Standing versions are compared; after a deletion those before it are named, and no word of them is shown."""
    page = tmp_path / "page.html"
    status, out, err = program("export", 2, "--to", page, "--dir", grown, "--json")
    assert status == 0, err
    assert json.loads(out)["passed"] is True
    said = page.read_text(encoding="utf-8")
    assert "Version 2 of default" in said
    assert "counterparts since version 1" in said
    shown = json.loads(program("topics", "--version", 2, "--dir", grown, "--json")[1])["topics"]
    assert all(word in said for topic in shown for word in topic["words"])
    assert program("delete", "doc-1", "--dir", grown, "--json")[0] == 0
    status, _, err = program("export", 3, "--to", page, "--dir", grown)
    assert status == 0, err
    said = page.read_text(encoding="utf-8")
    assert "since they show words of forgotten documents: 1, 2." in said
    assert "counterparts since" not in said
    status, _, err = program("export", 2, "--to", page, "--dir", grown)
    assert (status, "withdrawn" in err) == (2, True)


def test_a_folder_of_other_files_is_left_alone(program, grown, tmp_path):
    """A model is written into a new folder, or over the model that is there."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("keep", "utf-8")
    status, _, err = program("export", "--to", tmp_path / "notes", "--dir", grown)
    assert (status, "other files, such as mine.txt" in err) == (2, True)
    assert [path.name for path in (tmp_path / "notes").iterdir()] == ["mine.txt"]
