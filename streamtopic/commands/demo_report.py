"""What the demo tells a person."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from streamtopic.commands import topics, versions
from streamtopic.console import duration, number

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["print_report"]


def print_report(report: dict[str, Any], keep: Path | None) -> None:
    """Print topics, what was forgotten, a receipt, the checks, versions, times and what to try next."""
    sections = {
        "Topics": topics.table_of(report["topics"]) if report["topics"] else "",
        "Heads": _heads(report["heads"], report["versions"][-1]["unfitted"]),
        "Forgotten": _forgotten(report),
        "Receipt of one deletion": _receipt(report["receipts"]["example"]),
        "Checks": _checks(report),
        "Versions": versions.table_of(report["versions"]),
        "Time": _times(report["seconds"]),
        "Try next": _next(keep, report["versions"][-1]["version"]),
    }
    for title, text in sections.items():
        if text:
            print(f"\n{title}\n{'=' * len(title)}\n{text}")


def _times(seconds: dict[str, float]) -> str:
    parts = (f"{stage.replace('_', ' ')} {duration(spent)}" for stage, spent in seconds.items())
    return textwrap.fill(", ".join(parts), 110)


def _forgotten(report: dict[str, Any]) -> str:
    examples, newest = ", ".join(report["examples"]), report["versions"][-1]
    return (
        f"{report['deleted']} of {report['documents']} documents, among them {examples}\n"
        f"{report['receipts']['count']} receipts; vocabulary {report['vocabulary']} words\n"
        f"version {newest['version']}: {newest['kind']}, because {newest['reason']}"
        if report["deleted"]
        else ""
    )


def _heads(heads: dict[str, dict[str, Any]], unfitted: dict[str, str]) -> str:
    lines = [topics.heads_table(heads), ""] if heads else []
    for task, head in heads.items():
        lines.append(
            f"{task}: fitted on {head['documents']} documents; of {head['unseen']} forgotten ones, which it has never "
            f"seen, {head['right']} are classed right"
        )
    lines += [f"{task}: no head, because {reason}" for task, reason in unfitted.items()]
    return "\n".join(lines)


def _receipt(receipt: dict[str, Any] | None) -> str:
    if not receipt:
        return ""
    width = max(map(len, receipt))
    return "\n".join(f"{name.replace('_', ' '):{width}}  {_short(value)}" for name, value in receipt.items())


def _short(value: object) -> str:
    if isinstance(value, float):
        return number(value)
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _checks(report: dict[str, Any]) -> str:
    twin, subscriber, quality = report["twin"], report["subscriber"], report["quality"]
    same = "the same words" if twin["words_equal"] else "OTHER WORDS"
    return "\n".join(
        [
            f"twin        a service that never saw the deleted documents learns {same};",
            f"            largest difference of its model before noise: {number(twin['max_abs_difference'])}",
            f"subscriber  {subscriber['received']} versions received, {subscriber['verified']} verified",
            f"quality     NPMI {number(quality['npmi'])}, diversity {number(quality['diversity'])}",
        ]
    )


def _next(keep: Path | None, newest: int) -> str:
    if keep is None:
        return (
            "streamtopic demo --documents FILE.jsonl --keep ./news   your own documents, kept to go on with\n"
            "streamtopic demo --json                                 the same for machines"
        )
    return "\n".join(
        [
            f"streamtopic status --dir {keep}",
            f"streamtopic topics --dir {keep} --top 5",
            f"streamtopic add MORE.jsonl --dir {keep}",
            f"streamtopic delete ID --dir {keep}",
            f"streamtopic verify --dir {keep}",
            f"streamtopic report --verify --to report.html --dir {keep}",
            f"streamtopic export {newest} --to model.npz --dir {keep}",
        ]
    )
