"""`streamtopic versions`: the published models."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import command, instance_settings
from streamtopic.console import say_json, show

if TYPE_CHECKING:
    from streamtopic.commands.common_arguments import Subparsers

__all__ = ["register", "run", "table_of"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    command(subparsers, "versions", run, "list the published models and what they guarantee")


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
    from streamtopic.console import duration, number, table

    rows = [
        [
            v["version"],
            v["kind"] + (" (withdrawn)" if v.get("withdrawn") else ""),
            v["documents"],
            v["forgotten"],
            f"({number(v['epsilon'])}, {number(v['delta'])})",
            number(v["sigma"]),
            number(v["certificate"]),
            {True: "yes", False: "no", None: "-"}[v["anchors_verified"]],
            "-" if v["seconds"] is None else duration(v["seconds"]),
        ]
        for v in versions
    ]
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
    if any(v["heads"] or v["unfitted"] for v in versions):
        head.append("heads")
        for row, v in zip(rows, versions, strict=True):
            row.append(", ".join([*v["heads"], *(f"no {task}" for task in v["unfitted"])]) or "-")
    return table(head, rows)
