"""HTML of a report: as that of pictures, but what cannot be seen is shown, since it may have been meant to deceive."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from streamtopic.pictures import markup
from streamtopic.pictures.markup import Markup, tag

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Markup", "element", "facts", "join", "prose", "shown", "table", "text"]

# Controls, surrogates, line separators, and what cannot be seen or turns a line around; joiners are part of words.
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_KEPT = "\n\t\u200c\u200d"


def text(value: object) -> Markup:
    """Return a value as text: escaped, and with characters that cannot be seen or turn the line around made visible."""
    return value if isinstance(value, Markup) else markup.text("".join(map(_visible, str(value))))


def element(name: str, /, *children: object, **attributes: str) -> Markup:
    """Return an element. Attributes are escaped as text is; `class_` stands for class, `aria_label` for aria-label."""
    return tag(name, *map(text, children), **{key: text(value) for key, value in attributes.items()})


def prose(words: str) -> Markup:
    """Return a sentence as text, what it has between backticks as code."""
    pieces = words.split("`")
    if len(pieces) % 2 == 0:
        return text(words)
    return markup.join(element("code", piece) if k % 2 else text(piece) for k, piece in enumerate(pieces))


def join(parts: Iterable[Markup]) -> Markup:
    """Return one after another, a line each."""
    return markup.join(parts, "\n")


def table(head: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> Markup:
    """Return a table whose columns have headers, as a screen reader needs them."""
    top = element("tr", *(element("th", title, scope="col") for title in head))
    body = [element("tr", *(element("td", cell) for cell in row)) for row in rows]
    named = [element("caption", caption)] if caption else []
    whole = element("table", *named, element("thead", top), element("tbody", *body))
    # A table that is too wide scrolls by itself, so the keyboard must reach it and a screen reader must name it.
    label = caption or ", ".join(filter(None, head))
    return element("div", whole, class_="wide", tabindex="0", role="region", aria_label=label)


def facts(rows: Iterable[tuple[str, object]]) -> Markup:
    """Return names and values, as a list of definitions."""
    return element("dl", *(part for name, value in rows for part in (element("dt", name), element("dd", value))))


def shown(value: object) -> str:
    """Write a value for a person: figures in at most six digits, a dash for what is not there."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(shown(item) for item in value) or "-"
    return str(value)


def _visible(character: str) -> str:
    if unicodedata.category(character) in _HIDDEN and character not in _KEPT:
        return f"\\u{{{ord(character):x}}}"
    return character
