"""Files of documents by their kind: what is read, and what the user is told of all else."""

import bz2
import gzip
import json
import lzma
import os
import tempfile
from pathlib import Path

import pytest

from streamtopic.cli import main
from streamtopic.documents.corpus import Document
from streamtopic.documents.document_files import load_file
from streamtopic.errors import UsageError

TABLE = 'id,text,label,label.lang\n1,"two lines\nof text",sport,en\nb,other words,,\n'
EXPECTED = [
    Document("1", "two lines\nof text", {"label": "sport", "lang": "en"}),
    Document("b", "other words", {}),
]


@pytest.fixture(params=["a.csv", "a.csv.gz", "a.tsv", "bom.csv"])
def table(request, tmp_path):
    """The same two documents as each kind of table."""
    path = tmp_path / request.param
    text = TABLE.replace(",", "\t") if ".tsv" in request.param else TABLE
    data = text.encode("utf-8-sig" if "bom" in request.param else "utf-8")
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def test_tables_are_read_by_their_columns(table):
    """CSV, with tabs, packed, and with Excel's mark: the same documents with their labels."""
    told = []
    corpus = load_file(table, lambda *done: told.append(done))
    assert corpus.documents == EXPECTED
    assert corpus.problems == []


def test_a_folder_is_a_document_a_file(tmp_path):
    """Ids are paths, folders are labels; binary data, links and hidden files are no documents."""
    (tmp_path / "sport").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "sport" / "one.txt").write_text("a match", "utf-8")
    (tmp_path / "two.md").write_text("\ufeffsome words", "utf-8")
    (tmp_path / ".git" / "config").write_text("hidden", "utf-8")
    (tmp_path / "link.txt").symlink_to(tmp_path / "two.md")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0")
    (tmp_path / "latin.txt").write_bytes("caf\xe9".encode("latin-1"))
    (tmp_path / "long.txt").write_text("x" * 1_000_001, "utf-8")
    corpus = load_file(tmp_path)
    assert corpus.documents == [
        Document("sport/one.txt", "a match", {"folder": "sport"}),
        Document("two.md", "some words"),
    ]
    assert [(problem.where, problem.reason) for problem in corpus.problems] == [
        ("file latin.txt", "not UTF-8"),
        ("file long.txt", "`text` is longer than 1000000 bytes"),
        ("file picture.png", "it is not a text but binary data"),
    ]


def test_a_bad_row_is_named_and_the_others_are_read(tmp_path):
    """Too few cells, no id, bytes that are not UTF-8: each with the line that it ends in."""
    path = tmp_path / "a.csv"
    path.write_bytes(b'id,text\na,one\nb\n,no id\nc,caf\xe9\n\nd,"two\nlines"\ne,last\n')
    found = load_file(path)
    assert [document.id for document in found.documents] == ["a", "d", "e"]
    assert [(problem.where, problem.reason) for problem in found.problems] == [
        ("line 3", "1 cells, where the header has 2"), ("line 4", "`id` is missing"), ("line 5", "not UTF-8"),
    ]  # fmt: skip


def test_people_and_times_of_a_table_are_kept(tmp_path):
    """Without its subjects, a document could not be found when one of them asks to be forgotten."""
    (tmp_path / "a.csv").write_text(
        'id,text,ts,subjects\na,one,2026-01-31T12:00Z,"[""Zoë"", ""b""]"\nb,two,1769860800000,\nc,three,,Zoë\n', "utf-8"
    )
    written = load_file(tmp_path / "a.csv")
    noon_ms = 1_769_860_800_000
    assert written.documents == [
        Document("a", "one", {}, noon_ms, ("Zoë", "b")),
        Document("b", "two", {}, noon_ms),
    ]
    assert [problem.reason for problem in written.problems] == ["`subjects` is not a list of strings"]


@pytest.mark.parametrize(
    "end",
    [
        "",
        "\n",
        "\nb,two\nc,three",
    ],
)
def test_a_quote_that_is_never_closed_is_told(tmp_path, end):
    """All rows behind it would become part of one text without a word."""
    (tmp_path / "a.csv").write_text(f'id,text\nz,last\na,"one{end}', "utf-8")
    found = load_file(tmp_path / "a.csv")
    assert [document.id for document in found.documents] == ["z"]
    assert "a quote is open" in found.problems[0].reason


def test_what_may_not_be_read_is_told_and_the_others_are_read():
    """A file and a folder without the right to read them neither stop the others nor are left out in silence."""
    if os.geteuid() != 0:
        pytest.skip("only root can become a user without rights and come back")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        for part in ("open", "closed"):
            (folder / part).mkdir()
            (folder / part / "a.txt").write_text("some words", "utf-8")
        (folder / "open" / "b.txt").write_text("other words", "utf-8")
        (folder / "open" / "b.txt").chmod(0)
        (folder / "closed").chmod(0o700)
        os.seteuid(65534)
        try:
            found = load_file(folder)
        finally:
            os.seteuid(0)
    assert [document.id for document in found.documents] == ["open/a.txt"]
    assert sorted(problem.where for problem in found.problems) == ["file open/b.txt", "folder closed"]


BAD = {
    "columns.csv": (b"name,body\na,b\n", r"no column id and no column text \(it has: name, body\): rename"),
    "empty.csv": (b"", r"it has: none"),
    "rows.csv": (b"id,text\n", r"holds no usable document: expected the columns id and text"),
    "cut.csv.gz": (gzip.compress(TABLE.encode())[:20], r"rest of the file cannot be read"),
    "utf16.csv": ("id,text\na,one\n".encode("utf-16"), r"is UTF-16: .*iconv -f utf-16"),
    "utf16.jsonl": ('{"id": "a", "text": "b"}'.encode("utf-16"), r"is UTF-16: .*iconv -f utf-16"),
    "a.csv.xz": (lzma.compress(b"id,text\na,one\n"), r"packed by xz: .*xz -d"),
    "a.jsonl.bz2": (bz2.compress(b"{}"), r"packed by bzip2"),
    "a.jsonl.zst": (b"\x28\xb5\x2f\xfd\0\0", r"packed by zstd: .*zstd -d"),
    "a.zip": (b"PK\3\4" + bytes(30), r"is a zip file"),
    "semicolons.csv": (b"id;text;label\na;one;x\n", r"has semicolons between its columns"),
    "tabs.csv": (b"id\ttext\na\tone\n", r"has tabs between its columns.*\.tsv"),
    "twice.csv": (b"id,text,text\na,one,two\n", r"has two columns text: rename one"),
    "table.parquet": (b"PAR1\x15\x04", r"is a Parquet file: .* `pandas.read_parquet"),
    "big.csv": (b'id,text\na,"' + b"x" * (5 << 20) + b'"\n', r"rest of the file cannot be read: field larger"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_without_documents_says_what_was_expected(tmp_path, name):
    """One line with the file, the fault and the remedy."""
    content, message = BAD[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        load_file(path)


def test_add_takes_all_kinds_at_once(tmp_path, capsys, redis_server):
    """A table, JSON lines and a folder become documents of one instance; a bad row is skipped, and said so."""
    (tmp_path / "a.csv").write_text("id,text\n1,some words here\n2\n", "utf-8")
    (tmp_path / "b.jsonl").write_text(json.dumps({"id": "3", "text": "other words there"}), "utf-8")
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "c.txt").write_text("third words again", "utf-8")
    model = f"files{abs(hash(tmp_path))}"
    given = ["--dir", str(tmp_path / "instance"), "--set", f"redis_url={redis_server.url}", "--set", f"model={model}"]
    files = [str(tmp_path / name) for name in ("a.csv", "b.jsonl", "texts")]
    assert main(["add", *given, "--json", *files]) == 0
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert (report["sent"], report["skipped"], report["ingested"]["added"]) == (3, 1, 3)
    assert "line 3: 1 cells, where the header has 2; skipped" in printed.err
