"""`streamtopic topics --phrases`, and the same in the files that `export` writes."""

import json
import random

import pytest

from streamtopic.cli import main

WORDS = (["rose", "tulip", "soil", "seed", "bloom"], ["oven", "flour", "butter", "knead", "roast"])


@pytest.fixture(scope="module")
def instance(tmp_path_factory):
    """Arguments that name an instance of two topics, in which a phrase of each stands in many documents."""
    rng = random.Random(4)
    path = tmp_path_factory.mktemp("phrases")
    with (path / "documents.jsonl").open("w", encoding="utf-8") as file:
        for k in range(150):
            # A word of no topic stands before the phrase, so the words at random rarely make another one.
            words = [*rng.choices(WORDS[k % 2], k=6), f"w{k}", *WORDS[k % 2][1:3]]
            file.write(json.dumps({"id": k, "text": " ".join(words)}) + "\n")
    config = path / "streamtopic.toml"
    config.write_text('dir = "instance"\ntopics = 2\nmax_df = 1.0\n', encoding="utf-8")
    where = ["--config", str(config)]
    assert main(["init", *where]) == 0
    assert main(["add", str(path / "documents.jsonl"), *where]) == 0
    assert main(["run", "--once", *where]) == 0
    return where


def test_phrases_as_json_and_for_a_person(instance, capsys):
    """Each topic has its phrases with their numbers, and only where they are asked for."""
    capsys.readouterr()
    assert main(["topics", "--phrases", "--json", *instance]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["phrases"] == {"floor": 20, "whole": True}
    found = [phrase for topic in told["topics"] for phrase in topic["phrases"]]
    assert {"words": ["tulip", "soil"], "documents": 75} in found
    assert min(phrase["documents"] for phrase in found) >= 20
    assert main(["topics", "--phrases", *instance]) == 0
    shown = capsys.readouterr().out
    assert "tulip soil (75)" in shown
    assert "without noise" in shown
    assert main(["topics", "--json", *instance]) == 0
    told = json.loads(capsys.readouterr().out)
    assert "phrases" not in told
    assert all("phrases" not in topic for topic in told["topics"])


def test_files_hold_phrases_only_where_they_are_asked_for(instance, capsys, tmp_path):
    """A page warns that its figures are exact, JSON has the numbers, and a table of arrays refuses."""
    page, data = tmp_path / "page.html", tmp_path / "page.json"
    assert main(["export", "1", "--to", str(page), *instance]) == 0
    assert "#phrases" not in page.read_text("utf-8")
    assert main(["export", "1", "--to", str(page), "--phrases", *instance]) == 0
    text = page.read_text("utf-8")
    assert "#phrases" in text
    assert "tulip soil" in text
    assert "only to readers who may see the documents" in text
    assert main(["export", "1", "--to", str(data), *instance]) == 0
    assert "phrases" not in json.loads(data.read_text("utf-8"))
    assert main(["export", "1", "--to", str(data), "--phrases", *instance]) == 0
    told = json.loads(data.read_text("utf-8"))["phrases"]
    assert told["floor"] == 20
    assert {"words": ["tulip", "soil"], "documents": 75} in [phrase for own in told["topics"] for phrase in own]
    capsys.readouterr()
    assert main(["export", "1", "--to", str(tmp_path / "page.npz"), "--phrases", *instance]) == 2
    assert "write a page (.html) or a .json file" in capsys.readouterr().err


def test_phrases_and_slices_are_asked_for_apart(instance, capsys):
    """One table is shown at a time, and the error says so."""
    assert main(["topics", "--phrases", "--by", "label", *instance]) == 2
    assert "one after the other" in capsys.readouterr().err
