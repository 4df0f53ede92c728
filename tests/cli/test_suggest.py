"""`streamtopic topics suggest`, on a file and on a kept instance."""

import json

import pytest

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
    """The recommended row is marked, and impossible numbers are shown with why."""
    arguments = ["--topics", "4,900", "--trials", "1"]
    status, out, err = program("topics", "suggest", "--documents", sample_file, *KEEP_ALL, *arguments)
    assert status == 0, err
    lines = out.splitlines()
    assert lines[0] == "600 documents, sample.jsonl"
    assert any(line.startswith("4 *") for line in lines)
    assert any(line.strip().startswith("900 topics: ") and "the documents are too few" in line for line in lines)
    assert "the 4 topics" in lines
    assert lines[-1].startswith("recommended: 4 topics")
    assert "line 301" in err  # the bad line of the file
