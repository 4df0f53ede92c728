"""`streamtopic topics suggest`, on a file and on a kept instance."""

KEEP_ALL = ["--set", "max_df=1"]


def test_a_person_sees_a_table_and_the_reason(program, sample_file):
    """The recommended number has its topics and the reason, and impossible numbers are shown with why."""
    arguments = ["--topics", "4,900", "--trials", "1"]
    status, out, err = program("topics", "suggest", "--documents", sample_file, *KEEP_ALL, *arguments)
    assert status == 0, err
    lines = out.splitlines()
    assert lines[0] == "600 documents, sample.jsonl"
    assert any(line.lstrip().startswith("900 ") and "the documents are too few" in line for line in lines)
    assert "the 4 topics" in lines
    assert lines[-1].startswith("recommended: 4 topics")
    assert "line 301" in err  # the bad line of the file
