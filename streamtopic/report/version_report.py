"""The report on one version for its auditor: one page of HTML that needs no network, no program, no second file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from streamtopic.report.charts import Picture, Series, line_chart
from streamtopic.report.rendering import render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["DATA", "report_page", "spending_picture"]

DATA = "evidence"
"""Id of the element that holds the evidence as JSON."""

_SECTIONS = {
    "what": "What this version is",
    "genuine": "How to tell that it is genuine",
    "promise": "What is promised",
    "checks": "What was checked",
    "forgotten": "What was forgotten",
    "numbers": "The numbers",
    "capacity": "Deletion capacity",
    "conditions": "Conditions of the proof",
    "tasks": "Tasks",
    "topics": "Topics",
    "audit": "Audit",
    "limits": "What is not promised",
    "repeat": "How to repeat each check",
}
_WIDTH, _HEIGHT = 640.0, 200.0


def report_page(evidence: Mapping[str, Any]) -> str:
    """Return the page, which holds the evidence as JSON too: `read_report` can check it like the plain file.

    evidence: the values that `gather` returned, as they are or read back from JSON.
    """
    tasks = evidence["tasks"]
    sections = dict(_SECTIONS)
    if not evidence["conditions"]["checks"]:
        del sections["conditions"]
    if not (tasks["heads"] or tasks["unfitted"]):
        del sections["tasks"]
    if not evidence["topics"]:
        del sections["topics"]
    if evidence["audit"] is None:
        del sections["audit"]
    outcomes = [finding["passed"] for finding in evidence["findings"]]
    spending = evidence["spending"]
    return render(
        "report.html",
        title=f"Evidence: version {evidence['version']} of {evidence['model']}",
        sections=sections,
        evidence=evidence,
        passed=outcomes.count(True),
        failed=outcomes.count(False),
        opened=outcomes.count(None),
        spending=spending_picture(spending["versions"], spending["budget"]),
        data=_embedded(evidence),
        data_id=DATA,
    )


def spending_picture(versions: Sequence[Mapping[str, Any]], budget: float) -> Picture | None:
    """Draw the cumulative unlearning epsilon of the versions of a base against the budget.

    versions: of a base, in order; their `cumulative_epsilon` is None where no bound is left.
    budget: greatest cumulative epsilon.
    Returns None where no version has a bound.
    """
    values = [version["cumulative_epsilon"] for version in versions]
    bounded = [version for version in versions if version["cumulative_epsilon"] is not None]
    if not bounded:
        return None
    last = bounded[-1]
    names = [str(version["version"]) for version in versions]
    said = (
        f"Cumulative unlearning epsilon from {values[0] or 0:.3g} at version {names[0]} to "
        f"{last['cumulative_epsilon']:.3g} at version {last['version']}, of a budget of {budget:g}"
    )
    points = []
    for version in versions:
        spent = version["cumulative_epsilon"] or 0
        points.append(f"version {version['version']} ({version['kind']}): {spent:.4g}")
    # Five percent more than the budget, so that its line does not lie on the upper edge.
    at_most = 1.05 * budget
    series = Series("", values, "across: version", at_least=0.0, at_most=at_most, limit=(budget, "budget"))
    marks = line_chart(series, names, points, left=0, top=0, width=_WIDTH - 8, height=_HEIGHT - 24)
    return Picture("spending", "Cumulative unlearning epsilon by version", said, _WIDTH, _HEIGHT, list(marks))


def _embedded(evidence: Mapping[str, Any]) -> Markup:
    """Return the evidence for programs."""
    # JSON is in ASCII by default, so the filter of `render` leaves it as it is.
    written = json.dumps(evidence, allow_nan=False)
    # Without angle brackets the text cannot end the element around it.
    for character in "<>&":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return Markup(written)  # noqa: S704  see above
