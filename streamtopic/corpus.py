"""Where documents come from: JSON lines, or the docstrings of installed packages.

A line that cannot be used is a `Problem` with its number, never the end of the run.
"""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, cast

from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

__all__ = ["Corpus", "Document", "Problem", "load_jsonl", "parse_line", "read_jsonl"]

MAX_ID = 512  # bytes of UTF-8, as in the documents topic
RESERVED_ID = "st:heartbeat"  # key of the service's own records in the documents topic
MAX_TEXT = 1_000_000  # bytes of UTF-8, as in the documents topic
MAX_LINE = 8 << 20  # a text of 1,000,000 bytes with every byte escaped as \uXXXX, and room to spare


@dataclass(frozen=True, slots=True)
class Document:
    """One document: `id`, its `text`, and classes by task (`labels`)."""

    id: str
    text: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Problem:
    """A line (counted from 1) that was skipped, and why."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents of one source, in order and with distinct ids; `replaced` counts earlier versions that were dropped."""

    name: str
    documents: list[Document]
    problems: list[Problem] = field(default_factory=list)
    replaced: int = 0

    @classmethod
    def collect(cls, name: str, items: Iterable[Document | Problem]) -> Corpus:
        """Gather items; of documents with the same id the last one stays, at its own place."""
        documents: dict[str, Document] = {}
        problems: list[Problem] = []
        replaced = 0
        for item in items:
            if isinstance(item, Problem):
                problems.append(item)
                continue
            replaced += documents.pop(item.id, None) is not None
            documents[item.id] = item
        return cls(name, list(documents.values()), problems, replaced)


def load_jsonl(path: Path) -> Corpus:
    """Read a whole file. Raises `UsageError` where it cannot be read or holds nothing usable."""
    corpus = Corpus.collect(path.name, read_jsonl(path))
    if not corpus.documents:
        first = f"; line {corpus.problems[0].line}: {corpus.problems[0].reason}" if corpus.problems else ""
        raise UsageError(
            f'{path} holds no usable document{first}: expected JSON lines such as {{"id": "a", "text": "some words"}}'
        )
    return corpus


def read_jsonl(path: Path) -> Iterator[Document | Problem]:
    """Yield what each line of a JSONL file holds, gzip or not (told by its first bytes). Blank lines are skipped.

    Raises `UsageError` where the file cannot be opened.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    with file:
        try:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from None
        yield from _lines(cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if packed else file)


def _lines(file: IO[bytes]) -> Iterator[Document | Problem]:
    number = 0
    while True:
        number += 1
        try:
            line = file.readline(MAX_LINE)
            whole = len(line) < MAX_LINE or line.endswith(b"\n")
            while not whole:
                whole = len(rest := file.readline(MAX_LINE)) < MAX_LINE or rest.endswith(b"\n")
                line = b"oversized"
        except (EOFError, OSError, zlib.error) as error:
            yield Problem(number, f"the rest of the file cannot be read: {error}")
            return
        if not line:
            return
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if line == b"oversized":
            yield Problem(number, f"longer than {MAX_LINE} bytes")
        elif line.strip():
            yield parse_line(line, number)


def parse_line(line: bytes, number: int) -> Document | Problem:
    """Read one line as a document, or say why it is none."""
    try:
        record = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        return Problem(number, "not UTF-8")
    except (ValueError, RecursionError) as error:
        return Problem(number, f"not JSON: {error}")
    if not isinstance(record, dict):
        return Problem(number, f"not a JSON object but {type(record).__name__}")
    try:
        return Document(_id(record.get("id")), _text(record.get("text")), _labels(record))
    except ValueError as error:
        return Problem(number, str(error))


def _id(value: object) -> str:
    if value is None:
        raise ValueError("`id` is missing")
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"`id` is neither a string nor an integer but {type(value).__name__}")  # noqa: TRY004  as _text
    text = str(value)
    if not 1 <= _size(text, "id") <= MAX_ID:
        raise ValueError(f"`id` is not 1 to {MAX_ID} bytes long")
    if text == RESERVED_ID:
        raise ValueError(f"`id` {RESERVED_ID} is reserved")
    return text


def _text(value: object) -> str:
    if value is None:
        raise ValueError("`text` is missing")
    if not isinstance(value, str):
        raise ValueError(f"`text` is not a string but {type(value).__name__}")  # noqa: TRY004  all are reported alike
    if _size(value, "text") > MAX_TEXT:
        raise ValueError(f"`text` is longer than {MAX_TEXT} bytes")
    return value


def _size(value: str, name: str) -> int:
    try:
        return len(value.encode())
    except UnicodeEncodeError:
        raise ValueError(f"`{name}` holds half a surrogate pair, which is no character") from None


def _labels(record: Mapping[str, object]) -> dict[str, str]:
    """Classes by task: `labels` where it is an object, and one `label` as the task `label`.

    A list of one label is that label; a list of several is more than a classifier of one class can use: left out.
    """
    labels = record.get("labels")
    found = {str(k): str(v) for k, v in labels.items() if isinstance(v, str | int)} if isinstance(labels, dict) else {}
    label = record.get("label")
    if isinstance(label, list) and len(label) == 1:
        (label,) = label
    if isinstance(label, str | int):
        found.setdefault("label", str(label))
    return found
