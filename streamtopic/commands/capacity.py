"""`streamtopic capacity`: how many deletions the current model bears, by rule, by formula and by trial."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import answer, command, instance_settings, whole_number
from streamtopic.console import aligned, duration, number, printable, progress, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamtopic.commands.common_arguments import Subparsers

__all__ = ["register", "run"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(
        subparsers, "capacity", run, "show how many deletions the base model bears, by which rule, and why"
    )
    parser.add_argument(
        "--calibrate",
        action="store_true",
        help="try deletions on copies of the model now; nothing is kept (setting capacity.rule=calibrated does that)",
    )
    parser.add_argument(
        "--trials", type=whole_number(1, 10_000), metavar="N", help="random forget sets of each size (default: 10)"
    )


def run(args: argparse.Namespace) -> int:
    """Print the capacity of the current base model; nothing is changed."""
    from streamtopic.service.app import Service
    from streamtopic.service.inspection.capacity_facts import CalibrationRequest, capacity_of

    request = CalibrationRequest(args.trials) if args.calibrate or args.trials else None
    quiet = args.json or request is None
    with Service(instance_settings(args)) as service, progress("trying deletions", "updates", quiet=quiet) as update:
        found = capacity_of(service, request, update)
    return answer(args, found, *_facts(found), "", block="\n\n".join([_formulas(found), *_trials(found)]))


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


def _trials(found: Mapping[str, Any]) -> Iterator[str]:
    tried = found["tried"]
    if tried is None:
        yield "By trial: not tried. `--calibrate` tries deletions now, `capacity.rule=calibrated` at each retrain."
        return
    aimed = "" if tried["aimed_limit"] is None else f", {tried['aimed_limit']:,} that aim at one topic"
    yield (
        f"By trial: {tried['random_limit']:,} random deletions{aimed}: an estimate, for {tried['of']}. Implied c "
        f"{number(tried['implied_constant'])}."
    )
    # How long it took goes with the bytes of the base model.
    spent = f" in {duration(tried['seconds'])}" if "seconds" in tried else ""
    end = "" if tried["complete"] else "; the bound on updates ended it, and the sizes that passed by then count"
    of = "all" if tried["sampled"] == found["documents"] else f"{tried['sampled']:,} of {found['documents']:,}"
    yield f"{tried['updates']} updates{spent}, sets from {of} documents{end}."
    rows = [_probe(kind, probe) for kind in ("random", "aimed") for probe in tried[kind]]
    head = ["forget sets", "documents", "tried", "borne", "entry moved", "L1", "top 10 kept", "first reason not borne"]
    if rows:
        yield table(head, rows)
    yield (
        f"Borne: anchors stay and no entry of A moves by more than {tried['utility']:g}; "
        f"{tried['probability']:.0%} of the sets must be."
    )


def _probe(kind: str, probe: Mapping[str, Any]) -> list[object]:
    means = [number(probe[name]) for name in ("moved", "l1", "overlap")]
    # Cut, so that the table fits a terminal; --json has the reasons whole.
    reason = probe["reasons"][0][:60] if probe["reasons"] else ""
    return [kind, probe["size"], probe["tried"], probe["borne"], *means, reason]
