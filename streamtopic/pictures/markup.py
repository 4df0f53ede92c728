"""Elements of HTML and SVG as text in which nothing that a document said can become markup.

Text and the values of attributes are escaped when an element is made; only what `tag` and `raw` return is taken as it
is. Characters that XML forbids become U+FFFD, so that a picture can be parsed whatever the words are.
"""

import re
from collections.abc import Iterable
from html import escape

__all__ = ["Markup", "join", "raw", "tag", "text"]

_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
# Direction marks of a word must not turn the text around it.
_TURNING = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_VOID = {"meta", "br", "hr", "col"}
_INLINE_TEXT = {"text", "tspan", "title", "desc", "td", "th", "span", "a", "li", "p", "dd", "dt", "caption", "summary"}


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def text(value: object) -> Markup:
    """Escape anything that is not markup."""
    if isinstance(value, Markup):
        return value
    return Markup(escape(_TURNING.sub("", _FORBIDDEN.sub("\ufffd", str(value)))))


def raw(value: str) -> Markup:
    """Take constant text of this program as it is: styles and doctypes, never words."""
    return Markup(value)


def join(parts: Iterable[object], between: str = "") -> Markup:
    """Put parts one behind the other."""
    return Markup(between.join(text(part) for part in parts))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """Return an element. Attributes: `_` for `-`, a trailing one dropped (`class_`); None leaves one out.

    Numbers are written with at most two decimals: finer than any screen.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(_number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    between = "" if name in _INLINE_TEXT or len(children) < 2 else "\n"
    return Markup(f"<{name}{written}>{join(children, between)}</{name}>")


def _number(value: object) -> object:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
