"""The evidence as one page of HTML that needs nothing else: no network, no program, no second file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from streamtopic.service.evidence.markup import Markup, element, join, prose, text
from streamtopic.service.evidence.page_model import about, genuine, tasks, topics
from streamtopic.service.evidence.page_numbers import capacity, conditions, numbers
from streamtopic.service.evidence.page_record import attached, checked, forgotten, limits, promised, steps
from streamtopic.service.evidence.style import STYLE

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DATA", "page"]

DATA = "evidence"
"""Id of the element that holds the evidence as JSON."""

_SECTIONS = (
    ("what", "What this version is", about),
    ("genuine", "How to tell that it is genuine", genuine),
    ("promise", "What is promised", promised),
    ("checks", "What was checked", checked),
    ("forgotten", "What was forgotten", forgotten),
    ("numbers", "The numbers", numbers),
    ("capacity", "Deletion capacity", capacity),
    ("conditions", "Conditions of the proof", conditions),
    ("tasks", "Tasks", tasks),
    ("topics", "Topics", topics),
    ("audit", "Audit", attached),
    ("limits", "What is not promised", limits),
    ("repeat", "How to repeat each check", steps),
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(evidence: Mapping[str, Any]) -> str:
    """Return the page: a function of what `gather` returned, whether or not that went through JSON.

    The same evidence is in it as JSON, so that `reopen` can check the page as well as the plain file.
    """
    built = [(name, title, section(evidence)) for name, title, section in _SECTIONS]
    present = [(name, title, content) for name, title, content in built if content is not None]
    heading = f"Evidence: version {evidence['version']} of {evidence['model']}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("title", heading),
        element("style", Markup(STYLE)),
    )
    body = element(
        "body",
        element("header", element("h1", heading), _verdict(evidence)),
        _contents([(name, title) for name, title, _ in present]),
        element("main", join(_section(*parts) for parts in present)),
        _footer(evidence),
        _data(evidence),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _section(name: str, title: str, content: Markup) -> Markup:
    heading = element("h2", title, id=f"{name}-title")
    return element("section", heading, content, id=name, aria_labelledby=f"{name}-title")


def _verdict(evidence: Mapping[str, Any]) -> Markup:
    outcomes = [finding["passed"] for finding in evidence["findings"]]
    failed, unknown = outcomes.count(False), outcomes.count(None)
    lines = [f"{outcomes.count(True)} of {len(outcomes)} checks passed."]
    if failed:
        lines.insert(0, f"{failed} {'check' if failed == 1 else 'checks'} failed. Do not rely on this version.")
    if unknown:
        lines.append(f"{unknown} {'is' if unknown == 1 else 'are'} open: the table says why, and what to do about it.")
    if not evidence["verified"]:
        lines.append("Nothing was counted or learned again for this page: with `--verify` it says what came of that.")
    if evidence["envelope"].get("covered") is False:
        lines.append("Conditions of the paper's proof are not met here, so its promise is not proved for this version.")
    state = "bad" if failed else "open" if unknown or evidence["envelope"].get("covered") is False else ""
    paragraphs = [element("p", prose(line)) for line in lines]
    return element("div", *paragraphs, class_=f"verdict {state}".strip(), role="status")


def _contents(names: list[tuple[str, str]]) -> Markup:
    links = [element("li", element("a", title, href=f"#{name}")) for name, title in names]
    return element("nav", element("ul", *links), aria_label="Contents")


def _footer(evidence: Mapping[str, Any]) -> Markup:
    made = f"Made {evidence['made']} by {evidence['program']}. This page proves nothing by itself: "
    return element("footer", element("p", made + "the signature does, and the checks that you repeat."))


def _data(evidence: Mapping[str, Any]) -> Markup:
    """Return the evidence for programs. Its text cannot end the element, since it holds no angle bracket."""
    written = json.dumps(evidence, allow_nan=False)
    for character in "<>&":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return Markup(f'<script type="application/json" id="{text(DATA)}">{written}</script>')
