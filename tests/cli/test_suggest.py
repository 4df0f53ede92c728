"""`streamtopic topics suggest`, on a file and on a kept instance."""

import json

import pytest

from streamtopic.cli import main

KEEP_ALL = ["--set", "max_df=1"]


@pytest.fixture
def suggest(program, sample_file):
    """Run the command on the sample file; what it printed as JSON, or its error."""

    def run(*arguments, status=0):
        found, out, err = program("topics", "suggest", "--documents", sample_file, *KEEP_ALL, "--json", *arguments)
        assert found == status, err
        return json.loads(out) if out else err

    return run


def test_it_finds_the_planted_subjects(suggest):
    """Four subjects were planted: four topics score well, last, and are recommended over none and many."""
    found = suggest("--topics", "2,4,40", "--trials", "2")
    assert found["documents"] == 600
    assert [candidate["topics"] for candidate in found["candidates"]] == [2, 4, 40]
    assert found["recommended"] == 4
    assert len(found["topics"]) == 4
    assert "4 topics" in found["reason"]
    best = found["candidates"][1]
    assert best["score"] == pytest.approx(best["coherence"] * best["diversity"])


def test_a_person_sees_a_table_and_the_reason(program, sample_file):
    """The recommended row is marked, other thresholds and impossible numbers are shown with why."""
    arguments = ["--topics", "4,900", "--trials", "1", "--thresholds"]
    status, out, err = program("topics", "suggest", "--documents", sample_file, *KEEP_ALL, *arguments)
    assert status == 0, err
    lines = out.splitlines()
    assert lines[0] == "600 documents, sample.jsonl"
    assert any(line.startswith("4 *") for line in lines)
    assert any(line.strip().startswith("900 topics: ") and "the documents are too few" in line for line in lines)
    assert any(line.startswith("max_df") for line in lines)
    assert "the 4 topics" in lines
    assert lines[-1].startswith("recommended: 4 topics")
    assert "line 301" in err  # the bad line of the file


def test_an_instance_suggests_what_its_documents_do(suggest, program, sample_file, tmp_path):
    """Counts and documents in Redis give the same answer as the file that they came from."""
    folder = tmp_path / "instance"
    demo = ["demo", "--documents", str(sample_file), "--topics", "4", "--delete", "0", "--json", "--keep", str(folder)]
    assert main([*demo, *KEEP_ALL]) == 0
    status, out, err = program("topics", "suggest", "--dir", folder, "--topics", "3,4", "--trials", "0", "--json")
    assert status == 0, err
    found, of_file = json.loads(out), suggest("--topics", "3,4", "--trials", "0")
    assert found.pop("source") == "model default"
    assert of_file.pop("source") == "sample.jsonl"
    assert found == of_file
    status, _, err = program("topics", "suggest", "--dir", folder, "--documents", sample_file)
    assert (status, "give one of them" in err) == (2, True)


def test_an_empty_instance_says_so(program, tmp_path):
    """Nothing to suggest for is an error that names where to look, and a missing folder one too."""
    status, _, err = program("topics", "suggest", "--dir", tmp_path / "nowhere")
    assert (status, "there is no instance" in err) == (2, True)
    folder = tmp_path / "empty"
    assert program("init", "--dir", folder)[0] == 0
    status, _, err = program("topics", "suggest", "--dir", folder)
    assert (status, "nothing is counted yet" in err) == (2, True)


def test_where_no_number_makes_a_model_the_status_says_so(suggest):
    """A check that finds nothing fails, with the reason in its output."""
    found = suggest("--topics", "900", "--trials", "0", status=1)
    assert found["recommended"] is None
    assert "no model can be made" in found["reason"]
