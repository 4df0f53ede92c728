"""Templates filled in by Jinja2, so that words of documents never become markup and never stay invisible."""

import hashlib
import unicodedata
from base64 import b64encode
from collections.abc import Mapping
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from streamtopic.console import instant, plain

__all__ = ["moment", "policy", "prose", "render", "shown"]

# Controls, format characters (which turn a line around), surrogates, separators of lines and paragraphs.
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
# A file cannot be read without line ends, and joiners are part of words in Persian and in Indic scripts.
_KEPT = "\n\t\u200c\u200d"
# XML forbids these two, and a picture must be XML with any words.
_FORBIDDEN = "\ufffe\uffff"


def render(template: str, /, **values: object) -> str:
    r"""Return a template filled in; every value is escaped, and hidden characters appear as \u{202e} does.

    template: name of a file of `templates/`.
    values: by their names in the template.
    """
    written = _environment().get_template(template).render(values)
    # The whole text is filtered, not each value: a value that a filter has joined to markup would escape the filter.
    return written.translate(_VISIBLE)


@cache
def policy() -> str:
    """Return what a browser may do with a page: it runs nothing, loads nothing, and takes our own style alone."""
    style = _environment().get_template("style.css").render()
    digest = b64encode(hashlib.sha256(style.encode()).digest()).decode()
    # The icon of a page is an empty one within the page.
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"


def shown(value: object) -> object:
    """Return a value as a person reads it, and markup as it is."""
    return value if hasattr(value, "__html__") else plain(value)


def prose(words: object) -> Markup:
    """Return a sentence with the parts between backticks as code."""
    pieces = str(words).split("`")
    if len(pieces) % 2 == 0:
        return escape(words)
    code = Markup("<code>{}</code>")
    parts = (code.format(piece) if k % 2 else piece for k, piece in enumerate(pieces))
    return Markup("").join(parts)


def moment(milliseconds: int | None) -> str:
    """Write a time, in milliseconds since 1970, to the second."""
    return instant(milliseconds, "seconds") if milliseconds else "-"


def _is_records(value: object) -> bool:
    """Return whether a value makes a table: a list of mappings."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("streamtopic.pages"),
        autoescape=True,
        # A misspelt name must fail in a test instead of leaving a gap on a page.
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # Templates are files of this package and do not change under a running program.
        auto_reload=False,
    )
    environment.globals |= {"policy": policy, "service": None}
    environment.filters |= {"moment": moment, "number": format, "prose": prose}
    environment.tests["records"] = _is_records
    return environment


class _Visible(dict[int, int | str]):
    """A table for str.translate that maps characters to themselves or to a visible code, and learns as they come."""

    def __missing__(self, code: int) -> int | str:
        character = chr(code)
        hidden = unicodedata.category(character) in _HIDDEN and character not in _KEPT
        self[code] = f"\\u{{{code:x}}}" if hidden or character in _FORBIDDEN else code
        return self[code]


_VISIBLE = _Visible()
