"""`streamtopic capacity`: how many deletions the current model bears, by rule and by formula."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import answer, command, instance_settings
from streamtopic.console import aligned, number, printable, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamtopic.commands.common_arguments import Subparsers

__all__ = ["register", "run"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    command(subparsers, "capacity", run, "show how many deletions the base model bears, by which rule, and why")


def run(args: argparse.Namespace) -> int:
    """Print the capacity of the current base model; nothing is changed."""
    from streamtopic.service.app import Service
    from streamtopic.service.inspection.capacity_facts import capacity_of

    with Service(instance_settings(args)) as service:
        found = capacity_of(service.settings, service.reader, service.situation)
    return answer(args, found, *_facts(found), "", block=_formulas(found))


def _facts(found: Mapping[str, Any]) -> list[str]:
    used = f"{found['used']:,} used, {found['left']:,} left"
    capacity = f"{found['capacity']:,} deletions by the rule `{found['rule']}`; {used}"
    if found["rule"] != found["rule_set"]:
        capacity += f"; the setting is `{found['rule_set']}` now, and counts from the next retrain on"
    if found["capacity"] == 0:
        capacity += "; every deletion of a document of the base is a retrain"
    rarest = f"the anchor word {printable(found['rarest_anchor'])}"
    sizes = f"m {found['documents']:,}, n {found['words']:,}, r {found['topics']}"
    constants = [f"{name.removesuffix('_sep')} {number(value)}" for name, value in found["constants"].items()]
    return aligned(
        {
            "base model": f"version {found['version']}: {found['base_documents']:,} documents",
            "capacity": capacity,
            "hard limit": f"{found['hard_limit']:,} deletions: one more could take the last document of {rarest}",
            "constants": ", ".join([sizes, *constants]),
        }
    )


def _formulas(found: Mapping[str, Any]) -> str:
    """Lay out the capacity by each formula; --json has their terms for any n too."""
    rows = [_formula_row("base (theorem 1)", found["formula"])]
    rows += [_formula_row(f"head {name} (theorem 3)", head) for name, head in found["heads"].items()]
    rows.append(["condition of the proofs", "", "", number(found["precondition"]), ""])
    guarantee = f"epsilon {found['epsilon']:g}, delta {found['delta']:g}"
    title = f"By formula, in documents, with c = {found['constant']:g}, {guarantee}:"
    return f"{title}\n{table(['', 'noise term', 'utility term', 'capacity', 'binds'], rows)}"


def _formula_row(name: str, terms: Mapping[str, Any]) -> list[str]:
    limits = [number(terms.get(term)) for term in ("noise", "utility", "limit")]
    return [name, *limits, terms.get("binds") or terms["reason"]]
