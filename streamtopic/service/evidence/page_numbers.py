"""Parts of the page with figures: noise and epsilon, deletion capacity, conditions of the proof."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamtopic.service.evidence.chart import spending_chart
from streamtopic.service.evidence.markup import Markup, element, facts, join, shown, table

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["capacity", "conditions", "numbers"]

_LISTED = 40


def numbers(evidence: Mapping[str, Any]) -> Markup:
    """Show epsilon, noise and certificate of the version, and what all versions of its base spend together."""
    envelope, spending = evidence["envelope"], evidence["spending"]
    rows = [
        ("epsilon, delta of this version", f"{shown(envelope['epsilon'])}, {shown(envelope['delta'])}"),
        ("noise, standard deviation (sigma)", shown(envelope["sigma"])),
        ("norm of the noise over norm of the model", _ratio(envelope.get("ratio"))),
        *_distance(envelope),
        ("least lead of an anchor (margin)", _unbounded(envelope["margin"])),
        ("cumulative epsilon since the base", f"{_unbounded(envelope['cumulative_epsilon'])} at the same delta"),
        ("budget, after which a retraining is due", shown(spending["budget"])),
    ]
    parts = [facts(rows)]
    chart = spending_chart(spending["versions"], spending["budget"])
    if chart is not None:
        parts += [element("h3", "Cumulative epsilon by version"), chart]
    parts.append(_spent(spending["versions"]))
    return join(parts)


def _distance(envelope: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return how far the model before noise may lie from a retraining's: measured, or as the theorem has it."""
    if envelope["guarantee"] == "theorem":
        return [("distance to a retraining, by the theorem (Delta)", shown(envelope["tolerance"]))]
    return [
        ("error allowed before noise (tolerance)", shown(envelope["tolerance"])),
        ("error proved (certificate)", _unbounded(envelope["certificate"])),
    ]


def capacity(evidence: Mapping[str, Any]) -> Markup:
    """Show how many deletions the base bears, and by which rule."""
    found = evidence["capacity"]
    rows = [
        ("rule", found["rule"]),
        ("deletions that the base bears", shown(found["capacity"])),
        ("used", shown(found["used"])),
        ("left", shown(found["left"])),
    ]
    meaning = _NOISED if evidence["envelope"]["guarantee"] == "theorem" else _CHECKED
    parts = [facts(rows), element("p", f"{_RULES.get(found['rule'], '')} {meaning}".strip(), class_="soft")]
    if found["formula"] is not None:
        told = f"The paper's formula at c = 1 gives {shown(found['formula'])}. Its constant is unknown."
        parts.append(element("p", told, class_="soft"))
    if found["tried"]:
        parts += _tried(found["tried"])
    return join(parts)


def _tried(tried: Mapping[str, Any]) -> list[Markup]:
    """Show what was deleted on trial to find the capacity."""
    plain = [(name.replace("_", " "), shown(v)) for name, v in tried.items() if name not in {"random", "aimed"}]
    parts = [element("h3", "Deletions on trial"), element("p", _BEFORE_NOISE, class_="soft"), facts(plain)]
    head = ["documents", "trials", "borne", "moved, mean", "L1, mean", "top words kept"]
    for kind, caption in (("random", "Documents taken at random"), ("aimed", "Documents aimed at an anchor word")):
        rows = [
            [shown(probe.get(name)) for name in ("size", "tried", "borne", "moved", "l1", "overlap")]
            for probe in tried.get(kind) or []
        ]
        if rows:
            parts.append(table(head, rows, caption))
    return parts


_BEFORE_NOISE = (
    "These figures come from the model before noise, so they are outside the promise. They are for whoever audits the "
    "service, not for publication."
)
_CHECKED = "Whatever the rule, each update is checked by itself: one that is not certified becomes a retraining."
_NOISED = "The noise is for this many deletions, whatever number was forgotten; one more becomes a retraining."
_RULES = {
    "share": "A share of the base's documents: a choice of the operator.",
    "fixed": "A number: a choice of the operator.",
    "calibrated": "Measured by deleting documents from this base on trial: an estimate, not a proof, of how many "
    "deletions change little.",
    "theorem": "The paper's formula with the operator's constant c, which the paper gives no value.",
}


def conditions(evidence: Mapping[str, Any]) -> Markup | None:
    """Show each condition of the proof with its numbers; nothing where the guarantee rests on none."""
    found = evidence["conditions"]
    if not found["checks"]:
        return None
    rows = [
        [
            element("span", "holds", class_="good") if check.get("holds") else element("span", "FAILS", class_="bad"),
            shown(check.get("name")),
            f"{_unbounded(check.get('value'))} {shown(check.get('relation'))} {_unbounded(check.get('bound'))}",
            shown(check.get("source")),
        ]
        for check in found["checks"]
    ]
    held = sum(bool(check.get("holds")) for check in found["checks"])
    told = (
        f"{held} of {len(rows)} conditions hold. The proof needs all of them; constants that the paper hides in O(...) "
        "are taken as 1, so one that passes narrowly says little."
    )
    parts = [element("p", told), element("p", _BEFORE_NOISE, class_="soft")]
    parts.append(table(["", "condition", "numbers", "where the paper says so"], rows))
    if found["vacuity"]:
        parts.append(element("p", shown(found["vacuity"])))
    if found["constants"]:
        parts += [element("h3", "Constants"), facts((name, shown(value)) for name, value in found["constants"].items())]
    return join(parts)


def _spent(versions: list[Mapping[str, Any]]) -> Markup:
    rows = [
        [
            shown(v["version"]) + (" (withdrawn)" if v["withdrawn"] else ""),
            v["kind"],
            shown(v["forgotten"]),
            shown(v["epsilon"]),
            _unbounded(v["cumulative_epsilon"]),
        ]
        for v in versions[-_LISTED:]
    ]
    more = len(versions) - len(rows)
    caption = "Versions of this base; a withdrawn one was seen, so it counts"
    caption += f" ({more} older ones are in the page's data)" if more else ""
    return table(["version", "kind", "forgotten", "epsilon", "cumulative epsilon"], rows, caption)


def _ratio(ratio: float | None) -> str:
    if not ratio:
        return "-"
    return f"{ratio:.3g}" + (": there is nothing but noise to see" if ratio >= 1 else "")


def _unbounded(value: object) -> str:
    return "no bound" if value is None else shown(value)
