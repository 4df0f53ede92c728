"""The docstrings of Python's standard library and of installed packages, as documents; nothing is imported."""

from __future__ import annotations

import ast
import sysconfig
import warnings
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopic.corpus import Corpus, Document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["PACKAGES", "load_docstrings", "module_docstrings"]

PACKAGES = ("numpy", "scipy", "sklearn")  # streamtopic requires them, so every machine has them
MIN_WORDS = 10  # shorter ones say little more than the name
_SKIPPED = {"tests", "test", "site-packages", "dist-packages", "idlelib", "lib2to3", "_vendor", "externals"}
_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def load_docstrings(packages: tuple[str, ...] = PACKAGES, progress: Callable[[int, int], None] | None = None) -> Corpus:
    """Collect docstrings of at least 10 words, ids like `numpy.linalg.svd`, in a fixed order, each text once.

    Their label `library` is the package, or `python` for Python's own modules. `progress` is called with files done and
    files in all. Two processes parse: it is all Python's own parser, about 10 MB of source a second.
    """
    files = list(_files(packages))
    documents: dict[str, Document] = {}
    texts: set[str] = set()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for done, found in enumerate(pool.map(_docstrings_of, files, chunksize=32), 1):
            for name, text in found:
                if text not in texts and name not in documents:
                    texts.add(text)
                    package = name.partition(".")[0]
                    labels = {"library": package if package in packages else "python"}
                    documents[name] = Document(name, text, labels)
            if progress is not None:
                progress(done, len(files))
    return Corpus("docstrings of installed packages", list(documents.values()))


def module_docstrings(source: bytes, module: str) -> list[tuple[str, str]]:
    """Names and docstrings of a module and of the public classes and functions in it; empty where it does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's code
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    nodes: list[tuple[str, ast.Module | _Definition]] = [(module, tree), *_definitions(tree, module)]
    found = ((name, ast.get_docstring(node)) for name, node in nodes)
    return [(name, text) for name, text in found if text and len(text.split()) >= MIN_WORDS]


def _definitions(parent: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, _Definition]]:
    for node in parent.body:
        if isinstance(node, _Definition) and not node.name.startswith("_"):
            name = f"{prefix}.{node.name}"
            yield name, node
            if isinstance(node, ast.ClassDef):
                yield from _definitions(node, name)


def _docstrings_of(file: tuple[str, str]) -> list[tuple[str, str]]:
    path, module = file
    try:
        source = Path(path).read_bytes()
    except OSError:
        return []
    return module_docstrings(source, module) if b'"""' in source else []


def _files(packages: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Paths of source files and their dotted module names, sorted within each root."""
    roots = [(Path(sysconfig.get_path("stdlib")), "")]
    for package in packages:
        spec = find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            roots.append((Path(spec.submodule_search_locations[0]), package))
    for root, package in roots:
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            if not any(part in _SKIPPED or part.startswith(("test_", "_test")) for part in parts):
                # numpy/linalg/_linalg.py defines what users call numpy.linalg.svd
                public = [part for part in (package, *parts) if part and not part.startswith("_")]
                if public:
                    yield str(path), ".".join(public)
