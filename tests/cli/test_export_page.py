"""`streamtopic export VERSION --to FILE.html`, over a story of adds and a deletion."""

import json

import pytest

from streamtopic.cli import main


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
