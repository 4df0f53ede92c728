"""Sources of documents: JSON lines, or the docstrings of installed packages.

A line that cannot be used becomes a `Problem` with its number; the run goes on.
"""

from __future__ import annotations

import gzip
import json
import os
import sysconfig
import warnings
import zlib
from dataclasses import dataclass, field
from dis import get_instructions
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from inspect import CO_OPTIMIZED, cleandoc
from itertools import islice, pairwise
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import IO, TYPE_CHECKING, Any, cast

from streamtopic.documents.events import Document, check_add
from streamtopic.errors import InvalidEvent, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = [
    "PACKAGES",
    "Corpus",
    "Document",
    "Problem",
    "load_corpus",
    "load_docstrings",
    "load_jsonl",
    "module_docstrings",
    "read_jsonl",
]

MAX_LINE = 8 << 20  # a text of 1,000,000 bytes with every byte escaped as \uXXXX, and room to spare

PACKAGES = ("numpy", "scipy", "sklearn")  # streamtopic requires them, so every machine has them
MIN_WORDS = 10  # shorter docstrings add little to the name
_SKIPPED = {"tests", "test", "site-packages", "dist-packages", "idlelib", "lib2to3", "_vendor", "externals"}
_HEAD = 20  # instructions; one of the first ten or so stores the docstring


@dataclass(frozen=True, slots=True)
class Problem:
    """A line that was skipped.

    line: its number, from 1.
    reason: in words.
    """

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents of one source, in order and with distinct ids.

    name: of the source.
    problems: lines that were skipped.
    replaced: number of earlier versions of documents that were dropped.
    """

    name: str
    documents: list[Document]
    problems: list[Problem] = field(default_factory=list)
    replaced: int = 0


def load_jsonl(path: Path) -> Corpus:
    """Read a whole file. Of documents with the same id the last one stays, at its own place.

    Raises UsageError if the file cannot be read or holds no usable document.
    """
    documents: dict[str, Document] = {}
    problems: list[Problem] = []
    replaced = 0
    for item in read_jsonl(path):
        if isinstance(item, Problem):
            problems.append(item)
            continue
        # Taken out first: a dictionary keeps the place of a key that it has.
        replaced += documents.pop(item.id, None) is not None
        documents[item.id] = item
    if not documents:
        first = f"; line {problems[0].line}: {problems[0].reason}" if problems else ""
        raise UsageError(
            f'{path} holds no usable document{first}: expected JSON lines such as {{"id": "a", "text": "some words"}} '
            "(docs/records.md makes them of tables and folders)"
        )
    return Corpus(path.name, list(documents.values()), problems, replaced)


def load_corpus(documents: str) -> Corpus:
    """Return the documents of a JSONL file, or the docstrings of installed packages for ""."""
    return load_jsonl(Path(documents)) if documents else load_docstrings()


def read_jsonl(path: Path) -> Iterator[Document | Problem]:
    """Yield the document or problem of each line of a JSONL file; blank lines are skipped.

    path: of the file, plain or gzip, which its first bytes tell.
    Raises UsageError if the file cannot be opened.
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
        lines: IO[bytes] = file
        if packed:
            lines = cast("IO[bytes]", gzip.GzipFile(fileobj=file))
        yield from _lines(lines)


def _lines(file: IO[bytes]) -> Iterator[Document | Problem]:
    """Yield the document or problem of each line that is not blank."""
    number = 0
    while True:
        number += 1
        try:
            line = file.readline(MAX_LINE)
            oversized = _is_cut(line)
            if oversized:
                _skip_line(file)
        # A gzip file can be damaged anywhere; the lines before the damage are good.
        except (EOFError, OSError, zlib.error) as error:
            yield Problem(number, f"the rest of the file cannot be read: {error}")
            return
        if not line:
            return
        # Windows programs put a byte order mark in front of a file.
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if oversized:
            yield Problem(number, f"longer than {MAX_LINE} bytes")
        elif line.strip():
            yield _parse_line(line, number)


def _is_cut(piece: bytes) -> bool:
    """Return whether a line goes on after a piece that `readline` returned."""
    return len(piece) == MAX_LINE and not piece.endswith(b"\n")


def _skip_line(file: IO[bytes]) -> None:
    """Read the rest of a line."""
    # In pieces, so that memory stays bounded however long the line is.
    while _is_cut(file.readline(MAX_LINE)):
        pass


def _parse_line(line: bytes, number: int) -> Document | Problem:
    """Read one line as a document, or return the reason why it cannot be one."""
    try:
        record = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        return Problem(number, "not UTF-8")
    except (ValueError, RecursionError) as error:
        return Problem(number, f"not JSON: {error}")
    if not isinstance(record, dict):
        return Problem(number, f"not a JSON object but {type(record).__name__}")
    try:
        return _document_in(record)
    except (InvalidEvent, ValueError) as error:
        return Problem(number, str(error))


def _document_in(record: Mapping[str, Any]) -> Document:
    """Return the document of a record, within the limits of the documents topic. Raises InvalidEvent, ValueError.

    record: `id`, `text` or `counts`, and perhaps `label` or `labels`, `subjects`. A field `subject` is the title
        of a mail, and left alone.
    """
    name = record.get("id")
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise ValueError(f"`id` is missing, or neither a string nor an integer but {type(name).__name__}")  # noqa: TRY004  all are reported alike
    named = {field: record[field] for field in ("text", "counts", "subjects") if record.get(field) not in (None, [])}
    return check_add(str(name), {**named, "labels": _labels(record)})


def _labels(record: Mapping[str, object]) -> dict[str, str]:
    """Return classes by task: `labels` if it is an object, and one `label` as the task `label`."""
    found = {}
    labels = record.get("labels")
    if isinstance(labels, dict):
        for task, value in labels.items():
            if (named := _class_name(value)) is not None:
                found[str(task)] = named
    label = record.get("label")
    # A list of one label represents that label. A head predicts one class, so a list of several is left out.
    if isinstance(label, list) and len(label) == 1:
        (label,) = label
    if (named := _class_name(label)) is not None:
        found.setdefault("label", named)
    return found


def _class_name(value: object) -> str | None:
    """Return the class that a label names, None for a value that names none."""
    if isinstance(value, float) and value.is_integer():
        # A column of whole numbers in which some are missing.
        value = int(value)
    return str(value) if value != "" and isinstance(value, str | int) else None


def load_docstrings(packages: tuple[str, ...] = PACKAGES, progress: Callable[[int, int], None] | None = None) -> Corpus:
    """Collect docstrings of at least 10 words, ids like `numpy.linalg.svd`, in a fixed order, each text once.

    packages: names of installed packages; Python's own modules are read as well. A document's label `library` is its
        package, or `python`.
    progress: called with files done and files in all.
    """
    files = list(_files(packages))
    documents: dict[str, Document] = {}
    texts: set[str] = set()
    for done, (path, module) in enumerate(files, 1):
        for name, text in module_docstrings(path, module):
            if text not in texts and name not in documents:
                texts.add(text)
                package, _, _ = name.partition(".")
                library = package if package in packages else "python"
                documents[name] = Document(name, text, {"library": library})
        if progress is not None:
            progress(done, len(files))
    return Corpus("docstrings of installed packages", list(documents.values()))


def module_docstrings(path: Path, module: str) -> list[tuple[str, str]]:
    """Return names and docstrings of a module and of its public classes and functions; [] if it cannot be compiled.

    path: of its source. Python's own cache of compiled modules is used, which takes a tenth of the time of a parse.
    module: its dotted name.
    """
    try:
        # A search of bytes is much cheaper still.
        if b'"""' not in path.read_bytes():
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's code
            code = SourceFileLoader(module, str(path)).get_code(module)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    found = [] if code is None else ((name, _docstring(one)) for name, one in _definitions(code, module))
    return [(name, text) for name, text in found if text and len(text.split()) >= MIN_WORDS]


def _definitions(code: CodeType, module: str) -> Iterator[tuple[str, CodeType]]:
    """Yield a module or class and its public classes and functions, with dotted names; what a function holds is not."""
    yield (module if code.co_name == "<module>" else f"{module}.{code.co_qualname}"), code
    if _is_function(code):
        return
    for one in code.co_consts:
        # "<": comprehensions and lambdas.
        if isinstance(one, CodeType) and not one.co_name.startswith(("_", "<")):
            yield from _definitions(one, module)


def _docstring(code: CodeType) -> str | None:
    """Return the docstring of a module, class or function."""
    if _is_function(code):
        cells = tuple(CellType() for _ in code.co_freevars)
        text = FunctionType(code, {}, closure=cells).__doc__
        return None if text is None else cleandoc(text)
    if "__doc__" in code.co_names:
        # A module or class begins by storing its docstring.
        for value, one in pairwise(islice(get_instructions(code), _HEAD)):
            if (value.opname, one.opname, one.argval) == ("LOAD_CONST", "STORE_NAME", "__doc__"):
                return cleandoc(value.argval)
    return None


def _is_function(code: CodeType) -> bool:
    return bool(code.co_flags & CO_OPTIMIZED)


def _files(packages: tuple[str, ...]) -> Iterator[tuple[Path, str]]:
    """Yield paths of source files and their dotted module names, sorted within each root."""
    roots = [(Path(sysconfig.get_path("stdlib")), "")]
    for package in packages:
        spec = find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            folder = spec.submodule_search_locations[0]
            roots.append((Path(folder), package))
    for root, package in roots:
        for path in sorted(_sources(root)):
            # numpy/linalg/_linalg.py defines the function that users call numpy.linalg.svd.
            parts = path.relative_to(root).with_suffix("").parts
            public = [part for part in (package, *parts) if part and not part.startswith("_")]
            if public:
                yield path, ".".join(public)


def _sources(root: Path) -> Iterator[Path]:
    """Yield source files under a folder, without tests and copies of other packages."""
    for folder, folders, names in os.walk(root):
        # Installed packages may lie under the folder of Python's own modules: they are many.
        folders[:] = [name for name in folders if not _is_skipped(name)]
        for name in names:
            stem, dot, kind = name.rpartition(".")
            if dot and kind == "py" and not _is_skipped(stem):
                yield Path(folder, name)


def _is_skipped(name: str) -> bool:
    return name in _SKIPPED or name.startswith(("test_", "_test"))
