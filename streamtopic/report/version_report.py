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
    """Return the page: a function of the values that `gather` returned, whether or not these went through JSON.

    The page holds the same evidence as JSON, so that `read_report` can check the page as well as the plain file.
    """
    tasks = evidence["tasks"]
    optional = {
        "conditions": evidence["conditions"]["checks"],
        "tasks": tasks["heads"] or tasks["unfitted"],
        "topics": evidence["topics"],
        "audit": evidence["audit"] is not None,
    }
    outcomes = [finding["passed"] for finding in evidence["findings"]]
    spending = evidence["spending"]
    return render(
        "report.html",
        title=f"Evidence: version {evidence['version']} of {evidence['model']}",
        sections={name: title for name, title in _SECTIONS.items() if optional.get(name, True)},
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

    versions: with `cumulative_epsilon`, None where no bound is left. Returns None where no version has a bound.
    """
    values = [version["cumulative_epsilon"] for version in versions]
    bounded = [version for version in versions if version["cumulative_epsilon"] is not None]
    if not bounded:
        return None
    first, last = versions[0], bounded[-1]
    said = (
        f"Cumulative unlearning epsilon from {first['cumulative_epsilon'] or 0:.3g} at version {first['version']} to "
        f"{last['cumulative_epsilon']:.3g} at version {last['version']}, of a budget of {budget:g}"
    )
    points = [f"version {v['version']} ({v['kind']}): {v['cumulative_epsilon'] or 0:.4g}" for v in versions]
    # Five percent more than the budget, so that its line does not lie on the upper edge.
    series = Series("", values, "across: version", at_least=0.0, at_most=1.05 * budget, limit=(budget, "budget"))
    names = [str(version["version"]) for version in versions]
    marks = line_chart(series, names, points, left=0, top=0, width=_WIDTH - 8, height=_HEIGHT - 24)
    return Picture("spending", "Cumulative unlearning epsilon by version", said, _WIDTH, _HEIGHT, list(marks))


def _embedded(evidence: Mapping[str, Any]) -> Markup:
    """Return the evidence for programs. The text cannot end the element around it: it holds no angle bracket."""
    # JSON is in ASCII by default, so the filter of `render` changes no character of it.
    written = json.dumps(evidence, allow_nan=False)
    for character in "<>&":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return Markup(written)  # noqa: S704  see above
