"""`streamtopic export VERSION --to FILE.html`, over a story of adds and a deletion."""

import json

import pytest

from streamtopic.cli import main


@pytest.fixture(scope="module")
def grown(sample_file, sample, tmp_path_factory):
    """An instance with two versions that both stand: documents were added, none deleted."""
    root = tmp_path_factory.mktemp("grown")
    folder, more = root / "instance", root / "more.jsonl"
    demo = ["demo", "--documents", str(sample_file), "--topics", "4", "--delete", "0", "--set", "max_df=1", "--json"]
    assert main([*demo, "--keep", str(folder)]) == 0
    more.write_text("\n".join(sample[600:]), encoding="utf-8")
    assert main(["add", str(more), "--dir", str(folder), "--json"]) == 0
    return folder


def test_pages_show_how_topics_moved_until_a_deletion_forbids_it(program, grown, tmp_path):
    """Standing versions are compared; after a deletion those before it are named, and no word of them is shown."""
    page = tmp_path / "page.html"
    status, out, err = program("export", 2, "--to", page, "--dir", grown, "--json")
    assert status == 0, err
    assert json.loads(out)["topics"] == 4
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


def test_a_name_of_another_kind_is_refused(program, grown, tmp_path):
    """A name of a file, evidence in another form, and a folder of somebody's other files."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("keep", "utf-8")
    for given, why in (
        (["--to", tmp_path / "model.npz"], "without .npz"),
        (["--to", tmp_path / "report.pdf", "--evidence"], "in .json or .html"),
        (["--to", tmp_path / "notes"], "other files, such as mine.txt"),
    ):
        status, _, err = program("export", *given, "--dir", grown)
        assert (status, why in err) == (2, True)
    assert [path.name for path in (tmp_path / "notes").iterdir()] == ["mine.txt"]
