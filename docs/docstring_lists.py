"""An extension of mkdocstrings' reader: what a docstring lists in columns becomes a list of the page.

A package's docstring is a table of contents for whoever reads the code: a name, two spaces or more, its meaning.
Markdown would join these lines to one paragraph.
"""

import re

import griffe

FIRST = re.compile(r"(?P<name>\w+) {2,}(?P<text>\S.*)")
NEXT = re.compile(r"(?P<name>\w+) +(?P<text>\S.*)")  # the longest name of a column may leave one space


class DocstringLists(griffe.Extension):
    """Changes docstrings of modules as they are read."""

    def on_module(self, *, mod: griffe.Module, **others: object) -> None:
        """Turn the columns of a module's docstring into list items; lines that go on stay with their item."""
        del others
        if mod.docstring is not None:
            mod.docstring.value = "\n".join(_listed(mod.docstring.value.splitlines()))


def _listed(lines: list[str]) -> list[str]:
    found: list[str] = []
    within = False
    for line in lines:
        row = (NEXT if within else FIRST).fullmatch(line)
        if row:
            found += [] if within else [""]
            found.append(f"- `{row['name']}`: {row['text']}")
        else:
            found.append(f"  {line.strip()}" if within and line.startswith(" ") else line)
        within = row is not None or (within and line.startswith(" "))
    return found
