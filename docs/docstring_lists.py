"""An extension of mkdocstrings' reader: columns and parameters of a docstring become lists of the page.

A package's docstring is a table of contents: a name, two spaces or more, its meaning. Other docstrings describe
parameters one a line: a name, a colon, its meaning. Markdown would join these lines to one paragraph.
"""

import re

import griffe

FIRST = re.compile(r"(?P<name>\w+) {2,}(?P<text>\S.*)")
NEXT = re.compile(r"(?P<name>\w+) +(?P<text>\S.*)")  # the longest name of a column may leave one space
PARAMETER = re.compile(r"(?P<names>[A-Za-z_]\w*(?:, [A-Za-z_]\w*)*) ?: (?P<text>\S.*)")
# A line that begins like this is about the whole, also directly below the parameters.
SENTENCE = re.compile(r"(Raises|Returns?|Source|Parameters)\b")
RULE = re.compile(r"-{3,}")


class DocstringLists(griffe.Extension):
    """Changes docstrings as they are read."""

    def on_object(self, *, obj: griffe.Object, **others: object) -> None:
        """Turn the columns of a module, and the parameters of anything else, into list items."""
        del others
        if obj.docstring is not None:
            lines = obj.docstring.value.splitlines()
            obj.docstring.value = "\n".join(_columns(lines) if obj.is_module else _parameters(lines))


def _columns(lines: list[str]) -> list[str]:
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


def _parameters(lines: list[str]) -> list[str]:
    found: list[str] = []
    within = False
    for line in lines:
        # Within a paragraph of prose, a line may begin with a word and a colon by chance.
        begins = within or (bool(found) and not found[-1])
        row = PARAMETER.fullmatch(line) if begins and not SENTENCE.match(line) else None
        if row:
            names = ", ".join(f"`{name}`" for name in row["names"].split(", "))
            found.append(f"- {names}: {row['text']}")
            within = True
        elif RULE.fullmatch(line) and found:
            # numpy's sections take the text behind a colon for a type, and ours is the meaning.
            found[-1:] = [f"**{found[-1]}**", ""]
        elif within and line and not SENTENCE.match(line):
            found.append(f"  {line.strip()}")
        else:
            found += ["", line] if within and line else [line]
            within = False
    return found
