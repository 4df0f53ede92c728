"""`streamtopic versions`: the published models."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import command, instance_settings
from streamtopic.console import duration, number, say_json, show, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamtopic.commands.common_arguments import Subparsers

__all__ = ["register", "run", "table_of"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    command(subparsers, "versions", run, "list the published versions and their guarantees")


def run(args: argparse.Namespace) -> int:
    """Print all versions, oldest first."""
    from streamtopic.service.app import Service

    with Service(instance_settings(args)) as service:
        versions = service.versions()
    if args.json:
        say_json({"versions": versions})
    else:
        show(table_of(versions) if versions else "no version has been published yet; `streamtopic status` says why")
    return 0


def table_of(versions: list[dict[str, Any]]) -> str:
    """Lay out versions for a person."""
    head = [
        "version",
        "kind",
        "documents",
        "forgotten",
        "(unlearning ε, δ)",
        "sigma",
        "certificate",
        "anchors verified",
        "time",
    ]
    rows = [_row(version) for version in versions]
    # Most models have no task: a column of dashes would make the table wider than a terminal for nothing.
    if any(version["heads"] or version["unfitted"] for version in versions):
        head.append("heads")
        for row, version in zip(rows, versions, strict=True):
            missing = [f"no {task}" for task in version["unfitted"]]
            row.append(", ".join([*version["heads"], *missing]) or "-")
    return table(head, rows)


def _row(version: Mapping[str, Any]) -> list[object]:
    withdrawn = " (withdrawn)" if version.get("withdrawn") else ""
    return [
        version["version"],
        version["kind"] + withdrawn,
        version["documents"],
        version["forgotten"],
        f"({number(version['epsilon'])}, {number(version['delta'])})",
        number(version["sigma"]),
        number(version["certificate"]),
        # A retrain chooses its anchors itself: there is nothing to verify, and "no" would read like a failure.
        "yes" if version["anchors_verified"] else "-",
        "-" if version["seconds"] is None else duration(version["seconds"]),
    ]
