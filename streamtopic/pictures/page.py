"""A self-contained page: no network, no script, readable without style."""

from collections.abc import Sequence

from streamtopic.pictures.markup import Markup, join, raw, tag
from streamtopic.pictures.style import PAGE

__all__ = ["behind", "document", "figure", "ruled_table"]

# Nothing that a word could smuggle in would be loaded or run.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def document(title: str, body: Markup) -> str:
    """Return an HTML page of a body's elements."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", raw(PAGE)),
    )
    return raw("<!doctype html>\n") + tag("html", head, tag("body", tag("main", body)), lang="en") + "\n"


def figure(picture: Markup, caption: object) -> Markup:
    """Return a picture with what it shows in words below."""
    return tag("figure", picture, tag("figcaption", caption), class_="picture")


def behind(summary: str, content: Markup) -> Markup:
    """Return what unfolds on demand: the table behind a picture."""
    return tag("details", tag("summary", summary), tag("div", content, class_="wide"))


def ruled_table(caption: str, head: Sequence[object], rows: Sequence[Sequence[object]]) -> Markup:
    """Return a table; cells that are numbers, or read like one, are aligned to the right, the first of a row names it.

    A row with too few cells ends in one that spans the rest.
    """
    right = [bool(rows) and all(_numeric(row[k]) for row in rows if k < len(row)) for k in range(len(head))]

    def cells(row: Sequence[object]) -> Markup:
        last = len(row) - 1
        span = len(head) - last
        return join(
            tag(
                "td" if k else "th",
                cell,
                class_="n" if right[k] and not (k == last and span > 1) else None,
                scope=None if k else "row",
                colspan=span if k == last and span > 1 else None,
            )
            for k, cell in enumerate(row)
        )

    titles = join(tag("th", name, scope="col", class_="n" if right[k] else None) for k, name in enumerate(head))
    body = tag("tbody", *(tag("tr", cells(row)) for row in rows))
    return tag(
        "div",
        tag("table", tag("caption", caption, class_="soft"), tag("thead", tag("tr", titles)), body, class_="ruled"),
        class_="wide",
    )


def _numeric(cell: object) -> bool:
    if isinstance(cell, Markup):
        return False
    return str(cell).strip("+-%<, ").replace(",", "").replace(".", "").replace("e-", "").isdigit() or cell in {"-", ""}
