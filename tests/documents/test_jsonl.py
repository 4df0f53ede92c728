"""Reading JSON lines: every line is a document or a problem with its number."""

import gzip

import pytest

from streamtopic.documents.corpus import MAX_LINE, Document, load_jsonl, read_jsonl
from streamtopic.errors import UsageError


def _write(path, *lines):
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


GOOD = b'{"id": "a", "text": "some words"}'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"text": "x"}', "`id` is missing"),
        (b'{"id": "", "text": "x"}', "the record has no key"),
        (b'{"id": true, "text": "x"}', "`id` is missing, or neither"),
        (b'{"id": NaN, "text": "x"}', "`id` is missing, or neither"),
        (b'{"id": "st:heartbeat", "text": "x"}', "reserved"),
        (b'{"id": "a", "text": "\\ud800"}', "surrogate"),
        (b'{"id": "a", "text": "\xff"}', "not UTF-8"),
        (b"[" * 100_000, "not JSON"),
        (b'{"id": %s, "text": "x"}' % (b"9" * 5000), "not JSON"),
        (b'{"id": "a", "text": "%s"}' % (b"x" * 1_000_001), "longer than 1000000 bytes"),
        (b" " * MAX_LINE + b"{}", f"longer than {MAX_LINE} bytes"),
    ],
    ids=range(13),
)
def test_a_bad_line_is_reported_with_its_number_and_skipped(tmp_path, line, reason):
    """One bad line costs that line only."""
    path = _write(tmp_path / "d.jsonl", GOOD, b"", line, b'{"id": "b", "text": "more"}')
    found = load_jsonl(path)
    assert [document.id for document in found.documents] == ["a", "b"]
    assert [problem.line for problem in found.problems] == [3]
    assert reason in found.problems[0].reason


def test_integer_ids_are_strings_and_labels_are_kept(tmp_path):
    """What a file may say about a document arrives."""
    lines = [
        b'{"id": 7, "text": "x", "label": "sport"}',
        b'{"id": 8, "text": "x", "labels": {"a": "b"}}',
        b'{"id": 9, "text": "x", "label": ["p", "q"]}',
        b'{"id": 10, "text": "x", "label": ["earn"]}',
        b'{"id": 11, "text": "x", "label": []}',
        b'{"id": 12, "text": "x", "label": 3.0, "labels": {"a": 2.0}}',
        b'{"id": 13, "text": "x", "label": 3.5, "labels": {"a": NaN}}',
        b'{"id": 14, "counts": {"x": 2}}',
    ]
    found = load_jsonl(_write(tmp_path / "d.jsonl", *lines))
    assert [(d.id, dict(d.labels)) for d in found.documents] == [
        ("7", {"label": "sport"}),
        ("8", {"a": "b"}),
        ("9", {}),
        ("10", {"label": "earn"}),
        ("11", {}),
        ("12", {"label": "3", "a": "2"}),
        ("13", {}),
        ("14", {}),
    ]
    assert (found.documents[0].text, found.documents[-1].text) == ("x", {"x": 2})


def test_the_last_document_of_an_id_counts(tmp_path):
    """Duplicates are replacements and are counted."""
    path = _write(tmp_path / "d.jsonl", GOOD, b'{"id": "b", "text": "x"}', b'{"id": "a", "text": "new words"}')
    found = load_jsonl(path)
    assert found.documents == [Document("b", "x"), Document("a", "new words")]
    assert found.replaced == 1


def test_packed_files_are_told_by_their_bytes(tmp_path):
    """A gzip file is read whatever its name."""
    path = tmp_path / "d.jsonl"
    path.write_bytes(gzip.compress(GOOD + b"\n"))
    assert load_jsonl(path).documents == [Document("a", "some words")]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"{}\n", b"\x1f\x8b", b"\x00\x01\x02", b"PAR1\xff\xfe\n"])
def test_a_file_with_nothing_usable_is_a_usage_error(tmp_path, content):
    """Exit 2 and one line, which says what is expected."""
    path = tmp_path / "d.jsonl"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="no usable document") as caught:
        load_jsonl(path)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_and_a_folder_are_usage_errors(tmp_path):
    """The message names the path."""
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(UsageError, match="cannot read"):
            load_jsonl(path)


def test_a_byte_order_mark_and_windows_line_ends_do_not_matter(tmp_path):
    """Files made on other systems are read as they are meant."""
    path = tmp_path / "d.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD + b"\r\n" + b'{"id": "b", "text": "x"}')
    assert [item.id for item in read_jsonl(path)] == ["a", "b"]
