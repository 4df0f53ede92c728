"""Files of documents by their kind: JSON lines, CSV, and folders of texts.

load_file   a file or folder, by its name
read_csv    rows with the columns id and text
read_folder    one document a file

A row or file that cannot be used becomes a `Problem` with its place, and the others are read.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from streamtopic.documents.corpus import MAX_TEXT, Corpus, Document, Problem, check_encoding, document_in, load_jsonl
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ["load_file", "read_csv", "read_folder"]

_TABLES = {".csv": ",", ".tsv": "\t"}
# Characters of one cell: the csv module takes 131,072 by default, and a text may be longer.
_MAX_CELL = 4 << 20
_LABEL = "label."
_FIELDS = ("id", "text", "label", "ts", "subjects")
_ROWS = 1_000
_GZIP = b"\x1f\x8b"
# Programs that write a column of whole numbers with gaps write 5.0 for 5.
_WHOLE = re.compile(r"\d+(\.0*)?", re.ASCII)
# It follows the last line of a table, and is a row of its own unless a quote is open there.
_END = "st:end"
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}


def load_file(path: Path, update: Callable[[int, int | None], None] = lambda *_: None) -> Corpus:
    """Return the documents of a file, or of a folder of texts.

    path: a folder; a table that ends in .csv or .tsv, perhaps with .gz after it; or JSON lines.
    update: told how many documents were read so far.

    Raises UsageError if it cannot be read or holds no usable document.
    """
    if path.is_dir():
        return _collected(path, read_folder(path), update, "expected files of text in UTF-8")
    kind = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if kind.lower() in _TABLES:
        rows = read_csv(path, _TABLES[kind.lower()])
        return _collected(path, rows, update, "expected the columns id and text")
    return load_jsonl(path)


def _collected(
    path: Path, items: Iterable[Document | Problem], update: Callable[[int, int | None], None], expected: str
) -> Corpus:
    """Return the documents of a source. Raises UsageError if it has none; expected: what it should have."""
    try:
        corpus = Corpus.collect(path.name, _told(items, update))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    if not corpus.documents:
        problems = [f"; {problem.where}: {problem.reason}" for problem in corpus.problems[:1]]
        first = "".join(problems)
        raise UsageError(f"{path} holds no usable document{first}: {expected}")
    return corpus


def _told(
    items: Iterable[Document | Problem], update: Callable[[int, int | None], None]
) -> Iterator[Document | Problem]:
    """Yield items, and tell how many there were."""
    for done, item in enumerate(items, 1):
        yield item
        if done % _ROWS == 0:
            update(done, None)


def read_csv(path: Path, delimiter: str = ",") -> Iterator[Document | Problem]:
    """Yield the document or problem of each row of a table in UTF-8, plain or gzip.

    path: of the file. Its first line names the columns: `id`, `text`, and perhaps `label`, or `label.TASK` each, `ts`,
        and `subjects`, whose cells are lists in JSON.
    delimiter: between cells.
    Raises UsageError for a table without these columns, OSError.
    """
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
        file.seek(0)
        check_encoding(path, file)
        data = cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if packed else file
        # Bytes that are not UTF-8 become halves of surrogate pairs, so that only their own row is refused.
        lines = io.TextIOWrapper(data, "utf-8-sig", "surrogateescape", newline="")
        before = csv.field_size_limit(_MAX_CELL)
        try:
            ended: list[bool] = []
            rows = csv.reader(_with_end(lines, ended), delimiter=delimiter)
            yield from _rows(path, rows, ended)
        finally:
            csv.field_size_limit(before)


def _with_end(lines: Iterable[str], ended: list[bool]) -> Iterator[str]:
    """Yield the lines of a table and then _END, which is noted in `ended`: a text may end with the same letters."""
    yield from lines
    ended.append(True)
    yield _END


def _rows(path: Path, rows: Any, ended: list[bool]) -> Iterator[Document | Problem]:  # noqa: ANN401 -- csv names no type of a reader
    """Yield the document or problem of each row after the header. Raises UsageError for a header without columns."""
    try:
        names: list[str] = next(rows, [])
        _check_columns(path, names)
        for cells in rows:
            if ended and cells == [_END]:
                return
            if not cells:
                continue
            if ended:
                yield Problem(
                    rows.line_num - 1, "a quote is open up to the end of the file: this row, or an earlier one"
                )
                return
            if len(cells) != len(names):
                yield Problem(rows.line_num, f"{len(cells)} cells, where the header has {len(names)}")
                continue
            row = _row(names, cells)
            yield _document(row, rows.line_num)
    # The rows before the damage are good.
    except (csv.Error, EOFError, gzip.BadGzipFile, zlib.error) as error:
        yield Problem(rows.line_num, f"the rest of the file cannot be read: {error}")


def _row(names: Iterable[str], cells: Iterable[str]) -> dict[str, object]:
    """Return a row of a CSV file with its values; an empty cell is None, but for the text."""
    row: dict[str, object] = {}
    for name, cell in zip(names, cells, strict=True):
        row[name] = cell if cell or name == "text" else None
        # A cell has no type of its own.
        if name == "ts" and _WHOLE.fullmatch(cell):
            row[name] = int(cell.partition(".")[0])
        elif name == "subjects" and cell:
            row[name] = _list_in(cell)
    return row


def _list_in(cell: str) -> object:
    """Return the value of JSON in a cell; what is not JSON stays text, which the row is refused for."""
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return cell


def _check_columns(path: Path, names: Iterable[str]) -> None:
    """Raise UsageError if a table lacks the columns of a document."""
    have = [name for name in names if name != _END]
    twice = [name for name in ("id", "text") if have.count(name) > 1]
    if twice:
        raise UsageError(f"{path} has two columns {twice[0]}: rename one of them")
    if len(have) == 1:
        _check_separator(path, have[0])
    missing = [name for name in ("id", "text") if name not in have]
    if missing:
        shown = ", ".join(have[:10]) or "none"
        lacks = " and no column ".join(missing)
        raise UsageError(f"{path} has no column {lacks} (it has: {shown}): rename its columns")


def _check_separator(path: Path, line: str) -> None:
    """Raise UsageError if the first line of a table has other separators than its name says."""
    for separator, named in _SEPARATORS.items():
        if {"id", "text"} <= set(line.split(separator)):
            raise UsageError(f"{path} has {named} between its columns: put commas there, or tabs in a file *.tsv")


def _document(row: Mapping[str, object], number: int, place: str = "") -> Document | Problem:
    """Return the document of a row, or its problem. An empty label is no label."""
    present = {name: value for name, value in row.items() if value is not None}
    given = {name: value for name, value in present.items() if value != "" or name == "text"}
    tasks = [name for name in given if name.startswith(_LABEL)]
    labels = {name.removeprefix(_LABEL): given[name] for name in tasks}
    fields = {name: given[name] for name in _FIELDS if name in given}
    found = document_in(fields | {"labels": labels}, number, place)
    if isinstance(found, Problem) and "surrogate" in found.reason:
        return Problem(number, "not UTF-8", place)
    return found


def read_folder(path: Path) -> Iterator[Document | Problem]:
    """Yield the document or problem of each file in a folder, in the order of their names.

    The id of a document is the file's path in the folder. The folder that it is in becomes the label `folder`. Files
    whose names begin with a dot, and links, are left out. Files and folders that cannot be read are problems. Raises
    OSError for the folder itself.
    """
    closed: list[OSError] = []
    files = []
    for folder, _, names in os.walk(path, onerror=closed.append):
        files += [Path(folder, name) for name in names]
    for error in closed:
        if Path(error.filename) == path:
            raise error
        place = f"folder {Path(error.filename).relative_to(path)}"
        yield Problem(1, f"it cannot be read: {error.strerror}", place)
    for file in sorted(files):
        parts = file.relative_to(path).parts
        hidden = any(part.startswith(".") for part in parts)
        if hidden or file.is_symlink() or not file.is_file():
            continue
        yield _text_file(file, parts)


def _text_file(file: Path, parts: tuple[str, ...]) -> Document | Problem:
    """Return the document of a file, or its problem; parts: of its path in the folder."""
    name = "/".join(parts)
    place = f"file {name}"
    try:
        with file.open("rb") as opened:
            # One byte more than a text may have, so that a longer file is noticed without being read.
            content = opened.read(MAX_TEXT + 1)
    except OSError as error:
        return Problem(1, f"it cannot be read: {error.strerror}", place)
    if b"\0" in content:
        return Problem(1, "it is not a text but binary data", place)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        # The limit may have cut a character in two.
        reason = "not UTF-8" if len(content) <= MAX_TEXT else f"longer than {MAX_TEXT} bytes"
        return Problem(1, reason, place)
    folder = "/".join(parts[:-1])
    labels = {"folder": folder} if len(parts) > 1 else {}
    fields = {"id": name, "text": text, "labels": labels}
    return document_in(fields, 1, place)
