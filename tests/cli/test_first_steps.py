"""The commands of the first pages, in the order in which a newcomer types them, on a corpus of the newcomer's own."""

import json
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# The documents that the pages delete.
IDS = ["some-id", "another-id", "news/1"]
# `run` has no end, and `audit` takes minutes. Both have tests of their own.
ENDLESS = ("run", "audit")


def _commands(page, headings):
    text = (ROOT / page).read_text(encoding="utf-8")
    for heading in headings:
        section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        for line in re.findall(r"^streamtopic .*$", section, re.MULTILINE):
            words = shlex.split(line)
            if words[1] not in ENDLESS:
                yield words[1:]


@pytest.fixture
def newcomer(sample, tmp_path, monkeypatch):
    """Two files of documents in a folder of one's own; the second has more than 5 % of the first."""
    documents = [json.loads(line) for line in sample]
    for number, name in enumerate(IDS):
        documents[number]["id"] = name
    lines = [json.dumps(document) for document in documents]
    monkeypatch.chdir(tmp_path)
    Path("news.jsonl").write_text("\n".join(lines[:600]) + "\n", encoding="utf-8")
    Path("more.jsonl").write_text("\n".join(lines[600:]) + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("page", "headings"),
    [("README.md", ["Keep an instance"]), ("docs/quickstart.md", ["Your own documents", "Delete one, and prove it"])],
    ids=["README", "quickstart"],
)
@pytest.mark.usefixtures("newcomer")
def test_each_command_of_a_first_page_works_after_the_one_before(program, page, headings):
    """Typed as they are, with the id that `delete` printed, all end with status 0, and leave the files they name."""
    commands = list(_commands(page, headings))
    assert len(commands) >= 8
    request = "REQUEST"
    for words in commands:
        status, out, err = program(*[request if word == "REQUEST" else word for word in words])
        assert status == 0, (words, err)
        printed = re.search("request ([0-9a-f]{24})", out)
        request = printed[1] if printed else request
    written = [words[words.index("--to") + 1] for words in commands if "--to" in words]
    assert written
    assert all(Path(name).stat().st_size for name in written)
