"""Parts of the page about what was done and found: promise, checks, deletions, audit, limits, commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamtopic.service.evidence.markup import Markup, element, facts, join, prose, shown, table
from streamtopic.service.evidence.page_model import moment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["attached", "checked", "forgotten", "limits", "promised", "steps"]

_OUTCOMES = {True: ("passed", "good"), False: ("FAILED", "bad"), None: ("open", "open")}
_SOURCES = {
    "signed": "the signed release itself",
    "log": "the log's signed records",
    "records": "what the service keeps in Redis",
    "relearned": "counting and learning again from the log",
    "audit": "the attached audit",
}
_LISTED = 25


def promised(evidence: Mapping[str, Any]) -> Markup:
    """State the claim and what it rests on."""
    claim = evidence["claim"]
    return join(
        [
            element("blockquote", element("p", claim["statement"])),
            element("h3", "It rests on"),
            _list(claim["assumptions"]),
        ]
    )


def checked(evidence: Mapping[str, Any]) -> Markup:
    """List every check, what it rests on, and what to do about one that did not pass."""
    rows = [
        [
            element("span", _OUTCOMES[finding["passed"]][0], class_=_OUTCOMES[finding["passed"]][1]),
            element("code", finding["name"], class_="name"),
            join([element("div", prose(part)) for part in (finding["detail"], finding["remedy"]) if part]),
            _SOURCES.get(finding["source"], finding["source"]),
        ]
        for finding in evidence["findings"]
    ]
    parts = [table(["", "check", "what was found, and what to do", "rests on"], rows)]
    if not evidence["verified"]:
        told = "Nothing was counted or learned again for this page; `streamtopic report --verify` does both."
        parts.append(element("p", prose(told), class_="soft"))
    return join(parts)


def forgotten(evidence: Mapping[str, Any]) -> Markup:
    """Count the deletions that this version reflects, and those that wait; name no document."""
    found = evidence["forgotten"]
    this, chain, waiting = found["this_version"], found["chain"], found["waiting"]
    rows = [
        ("receipts that name this version", f"{this['receipts']}, of which {this['found']} found a document"),
        ("asked for", _span(this["first_received"], this["last_received"])),
        ("subtracted, the last", moment(this["last_applied"])),
        ("longest from request to subtraction", f"{this['slowest'] / 1000:.1f} s"),
        ("tokens in the documents found", shown(this["tokens"])),
        ("deletions without a receipt yet", _waiting(waiting)),
        ("records that are not counted yet", shown(waiting["lag"])),
        ("receipts of this model in all", shown(chain["receipts"])),
        ("newest receipt", f"number {chain['last']}"),
        ("digest of the newest receipt", element("code", shown(chain["head"]))),
    ]
    parts = [
        element(
            "p", "A receipt names the first version without the document, and no document by its id.", class_="soft"
        ),
        facts(rows),
    ]
    if len(found["since_base"]) > 1:
        parts.append(_by_version(found["since_base"]))
    if found["receipts"]:
        parts.append(_receipts(found["receipts"], this["receipts"]))
    return join(parts)


def attached(evidence: Mapping[str, Any]) -> Markup | None:
    """Show the result of an audit; nothing without one."""
    audit = evidence["audit"]
    if audit is None:
        return None
    told = (
        "An audit attacks the mechanism that made this version, on deletions made up for the purpose, and bounds "
        "epsilon from below; it says nothing of this version's own bytes."
    )
    result = audit["result"]
    claim, model = (result.get(name) if isinstance(result.get(name), dict) else {} for name in ("claim", "model"))
    rows = [
        ("outcome", "passed" if result["passed"] else "FAILED"),
        ("claim", _named(claim)),
        ("epsilon is at least", shown(result.get("epsilon_lower"))),
        ("at confidence", shown(result.get("confidence"))),
        ("made on", _named(model)),
        ("faults that were missed", shown(result.get("missed"))),
        ("file, SHA-256", element("code", audit["sha256"])),
    ]
    tables = [_played(result[name], caption, head) for name, caption, head in _PLAYED if _rows(result.get(name))]
    return join([element("p", told), facts(rows), *tables])


_DRAWN = {"name": "", "claim": "claim", "epsilon_lower": "at least", "distinguisher": "told by", "draws": "draws"}
_PLAYED = (
    (
        "documents",
        "Documents made to be hard to forget, each unlearned and compared with a retraining",
        {"name": "", "how": "how", "gap": "gap in A", "different": "differs", "different_if_kept": "if kept, differs"},
    ),
    ("games", "Attacks on the noise as it is; within the claim they pass", _DRAWN | {"passed": "passed"}),
    ("controls", "The same with a fault built in, which must be caught", _DRAWN | {"caught": "caught"}),
)


def _played(items: Sequence[Mapping[str, Any]], caption: str, head: Mapping[str, str]) -> Markup:
    """Show the columns that matter; all of them are in the page's data."""
    rows = [[_short(item.get(name)) for name in head] for item in items]
    return table(list(head.values()), rows, caption)


def _named(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {shown(value)}" for name, value in values.items()) or "-"


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else shown(value)


def limits(evidence: Mapping[str, Any]) -> Markup:
    """Say what is not promised."""
    return _list(evidence["limits"])


def steps(evidence: Mapping[str, Any]) -> Markup:
    """List the commands by which a stranger repeats each check."""
    items = [
        element(
            "li",
            element("div", step["shows"]),
            element("div", element("code", step["command"])),
            element("div", "needs ", prose(step["needs"]), class_="soft"),
        )
        for step in evidence["steps"]
    ]
    return element("ol", *items, class_="steps")


def _by_version(versions: Sequence[Mapping[str, Any]]) -> Markup:
    rows = [
        [
            shown(one["version"]),
            shown(one["receipts"]),
            shown(one["found"]),
            _span(one["first_received"], one["last_received"]),
        ]
        for one in versions
    ]
    return table(["first version without", "receipts", "documents found", "asked for"], rows, "Since the base")


def _receipts(receipts: Sequence[Mapping[str, Any]], total: int) -> Markup:
    rows = [
        [
            shown(receipt["sequence"]),
            element("span", moment(receipt["received"]).removesuffix(" UTC"), class_="name"),
            element("span", moment(receipt["applied"]).removesuffix(" UTC"), class_="name"),
            "yes" if receipt["found"] else "no such",
            element("code", receipt["sha256"][:12], class_="name"),
            element("code", receipt["document"][:12], class_="name"),
        ]
        for receipt in receipts[:_LISTED]
    ]
    caption = "Receipts of this version"
    if len(rows) < total:
        caption += f": {len(rows)} of {total}; streamtopic receipts export gives all"
    head = ["number", "asked for (UTC)", "subtracted (UTC)", "found", "digest", "document, keyed digest"]
    return table(head, rows, caption)


def _waiting(waiting: Mapping[str, Any]) -> str:
    if not waiting["deletions"]:
        return "none"
    held = "an unknown number" if waiting["held"] is None else waiting["held"]
    return f"{waiting['deletions']}, the oldest of {moment(waiting['oldest'])}; {held} of documents in this version"


def _span(first: int, last: int) -> str:
    return moment(first) if first == last else f"{moment(first)} to {moment(last)}"


def _list(items: Sequence[str]) -> Markup:
    return element("ul", *(element("li", prose(item)) for item in items))


def _rows(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)
