"""Pages of the site that show files of the repository: `mkdocs` calls the functions by their names.

Pages link to tests, examples and configuration by relative paths, as a repository browser follows them. These files
are not part of the site, so each becomes a page of its own, with an anchor at each test that a link names.
"""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
LANGUAGES = {".py": "python", ".sh": "bash", ".acl": "text"}
# A link: its label, and a path with one of these endings. Labels such as `test_x.py::test_y` name what to jump to.
LINK = re.compile(r"\[(?P<label>[^\]]+)\]\((?P<path>[\w./-]+\.(?:py|sh|acl))\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file that a link of any page leads to."""
    named: dict[Path, set[str]] = {}
    for page in files.documentation_pages():
        for link in LINK.finditer(page.content_string):
            found = _target(page.src_uri, link)
            named.setdefault(found, set()).add(_anchor(link))
    for path, anchors in named.items():
        files.append(File.generated(config, _page_of(path), content=_shown(path, anchors - {""})))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to files of the repository to their pages."""
    del config, files
    depth = page.file.src_uri.count("/")

    def led(link: re.Match[str]) -> str:
        anchor = _anchor(link)
        place = "../" * depth + _page_of(_target(page.file.src_uri, link))
        return f"[{link['label']}]({place}{'#' if anchor else ''}{anchor})"

    return LINK.sub(led, markdown)


def _target(page: str, link: re.Match[str]) -> Path:
    """Path of the linked file, from the top of the repository."""
    return (DOCS / page).parent.joinpath(link["path"]).resolve().relative_to(ROOT)


def _anchor(link: re.Match[str]) -> str:
    return link["label"].strip("`").partition("::")[2]


def _page_of(path: Path) -> str:
    return f"source/{path.as_posix()}.md"


def _shown(path: Path, anchors: set[str]) -> str:
    """Return the page's Markdown: the file in blocks, each named function at the start of one, below its anchor."""
    text = (ROOT / path).read_text("utf-8")
    lines = text.splitlines()
    starts = {0: ""}
    if anchors:
        starts |= {line: name for name, line in _first_lines(text).items() if name in anchors}
    parts = [f"---\nsearch:\n  exclude: true\n---\n\n# {path.as_posix()}\n"]
    edges = [*sorted(starts), len(lines)]
    for begin, end in itertools.pairwise(edges):
        if starts[begin]:
            parts.append(f'<a id="{starts[begin]}"></a>\n')
        block = "\n".join(lines[begin:end])
        parts.append(f'``````{LANGUAGES[path.suffix]} linenums="{begin + 1}"\n{block}\n``````\n')
    return "\n".join(parts)


def _first_lines(source: str) -> dict[str, int]:
    """Functions of a module by name: index of the first line, decorators among them."""
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return {node.name: min(part.lineno for part in [node, *node.decorator_list]) - 1 for node in functions}
