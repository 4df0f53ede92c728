"""`streamtopic capacity`: how many deletions the current model bears, by rule, by formula and by trial."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import command, instance_settings, whole_number
from streamtopic.console import duration, number, printable, progress, say_json, show, table

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
        help="try deletions on copies of the model now; nothing is kept (setting capacity=calibrated does that)",
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
    if args.json:
        say_json(found)
        return 0
    for lines in _lines(found):
        show(lines)
    return 0


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield from _in_force(found)
    yield ""
    yield from _by_formula(found)
    yield ""
    yield from _by_trial(found)


def _in_force(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"base model    version {found['version']}: {found['base_documents']:,} documents"
    used = f"{found['used']:,} used, {found['left']:,} left"
    yield f"capacity      {found['capacity']:,} deletions by the rule `{found['rule']}`; {used}"
    if found["rule"] != found["rule_set"]:
        yield f"              the setting is `{found['rule_set']}` now, and counts from the next retrain on"
    if found["capacity"] == 0:
        yield "              every deletion of a document of the base is a retrain"
    yield (
        f"hard limit    {found['hard_limit']:,} deletions: one more could take the last document of the anchor word "
        f"{printable(found['rarest_anchor'])}"
    )
    names = {"a": "a", "gamma": "gamma", "p_sep": "p", "eps0": "eps0"}
    constants = {name: number(found["constants"][key]) for key, name in names.items()}
    shown = (f"{name} {value}" for name, value in constants.items())
    values = ", ".join(shown)
    sizes = f"m {found['documents']:,}, n {found['words']:,}, r {found['topics']}"
    yield f"constants     {sizes}, {values}"


def _by_formula(found: Mapping[str, Any]) -> Iterator[str]:
    guarantee = f"epsilon {found['epsilon']:g}, delta {found['delta']:g}"
    yield f"By formula, in documents, with c = {found['constant']:g}, {guarantee}:"
    base = found["formula"]
    rows = [["base (theorem 1)", *_terms(base), base["binds"], "", ""]]
    for name, head in found["heads"].items():
        if "reason" in head:
            rows.append([f"head {name}", "-", "-", "-", head["reason"], "", ""])
            continue
        ratio = f"{head['ratio']:.2f}"
        q = number(head["q"])
        rows.append([f"head {name} (theorem 3)", *_terms(head), head["binds"], q, ratio])
        # Theorem 3 takes n >= r^3, which is 125,000 words for 50 topics; these terms do not.
        general = head["general"]
        limit = number(general["limit"])
        rows.append([f"head {name} (any n)", "", "", limit, general["binds"], "", ""])
    condition = number(found["precondition"])
    rows.append(["condition of the proofs", "", "", condition, "", "", ""])
    yield table(["", "noise term", "utility term", "capacity", "binds", "q", "q / (1/ar)"], rows)
    for name, head in found["heads"].items():
        # Without this line a reader would conclude that a task of few topics bears no more than the base.
        if head.get("binds") == "utility" and head["ratio"] > head["gain"] + 1e-9:
            yield (
                f"The utility term 0.001 m / r^2 is the same for every task, and hides what head {name} gains: "
                f"{head['gain']:.2f} times in place of {head['ratio']:.2f}."
            )


def _terms(limits: Mapping[str, Any]) -> list[str]:
    return [number(limits[name]) for name in ("noise", "utility", "limit")]


def _by_trial(found: Mapping[str, Any]) -> Iterator[str]:
    tried = found["tried"]
    if tried is None:
        yield "By trial: not tried. `--calibrate` tries deletions now, the setting capacity=calibrated at each retrain."
        return
    aimed = "" if tried["aimed_limit"] is None else f", {tried['aimed_limit']:,} that aim at one topic"
    implied = number(tried["implied_constant"])
    yield (
        f"By trial: {tried['random_limit']:,} random deletions{aimed}: an estimate, for {tried['of']}. "
        f"Implied c {implied}."
    )
    of = "all" if tried["sampled"] == found["documents"] else f"{tried['sampled']:,} of {found['documents']:,}"
    end = "" if tried["complete"] else "; the bound on updates (capacity_updates) ended it, what passed by then stands"
    spent = duration(tried["seconds"])
    yield f"{tried['updates']} updates in {spent}, sets from {of} documents{end}."
    kinds = "random", "aimed"
    probes = [(kind, probe) for kind in kinds for probe in tried[kind]]
    rows = [_probe(kind, probe) for kind, probe in probes]
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
