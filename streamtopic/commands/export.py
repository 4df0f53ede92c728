"""`streamtopic export`: write a published model, or the evidence about it, to a file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamtopic.commands.checking import print_findings
from streamtopic.commands.common_arguments import answer, command, file_errors, instance_settings, whole_number
from streamtopic.commands.topics_shown import add_slices, slice_unit
from streamtopic.console import progress
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.signed import Release

__all__ = ["register", "run"]


_FILES = (".npz", ".json", ".html", ".release")


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(subparsers, "export", run, "write a published model, or the evidence about it, to a file")
    parser.add_argument(
        "number", nargs="?", type=whole_number(1), metavar="VERSION", help="which version (default: the newest)"
    )
    parser.add_argument(
        "--to",
        type=Path,
        required=True,
        metavar="FILE",
        help="a name that ends in .npz, .json, .html (a page) or .release (as published, and a file with its proof)",
    )
    add_slices(parser)
    parser.add_argument(
        "--evidence",
        action="store_true",
        help="all evidence about the version in place of the model, as .html or .json, which `verify FILE` checks",
    )
    parser.add_argument("--verify", action="store_true", help="evidence: count and learn again, and add the findings")


def run(args: argparse.Namespace) -> int:
    """Write the verified release, noised as published, or the evidence; status 1 if a check of the evidence failed."""
    from streamtopic.service.app import Service

    _refuse_other(args)
    settings = instance_settings(args)
    unit = slice_unit(args.over, settings)
    with Service(settings) as service:
        # Fixed now: a version that is published while this one is verified must not take its place.
        number = args.number if args.number is not None else service.release(None).version
        facts = None
        if args.evidence or args.to.suffix == ".html":
            from streamtopic.pages.version_page import version_facts

            slices = service.slices(number, unit, args.by) if unit or args.by else None
            with progress("verifying", "records", quiet=args.json or not args.verify) as update:
                facts = version_facts(
                    service,
                    number,
                    update=update if args.verify else None,
                    slices=slices,
                    public=not args.evidence,
                )
        release = service.release(number)
    # Written if a check failed as well: that is the evidence which an auditor needs most.
    with file_errors("write", args.to):
        _write(args.to, release, facts)
    return _tell_model(args, release) if facts is None or not args.evidence else _tell_evidence(args, facts)


def _refuse_other(args: argparse.Namespace) -> None:
    """Raise UsageError for a file or for arguments that do not go together."""
    kinds = (".json", ".html") if args.evidence else _FILES
    if args.to.suffix not in kinds:
        raise UsageError(f"cannot write {args.to.name}: end the name in {', '.join(kinds[:-1])} or {kinds[-1]}")
    if args.verify and not args.evidence:
        raise UsageError("--verify is about evidence: give --evidence too")
    if (args.over or args.by) and args.to.suffix != ".html":
        raise UsageError(
            f"a {args.to.suffix} file holds no slices: write a page (.html), or use `streamtopic topics --over --json`"
        )


def _write(path: Path, release: Release, facts: dict[str, Any] | None) -> None:
    """Write a file. facts: those of the page, or of the evidence; None for the model itself."""
    if facts is None:
        _WRITERS[path.suffix](release, path)
        return
    from streamtopic.pages.version_page import version_page

    # Programs of others read this file, and JSON has no infinity: one that slipped through must not be written.
    page = path.suffix == ".html"
    written = version_page(facts) if page else json.dumps(facts, indent=1, allow_nan=False) + "\n"
    path.write_text(written, encoding="utf-8")


def _tell_evidence(args: argparse.Namespace, facts: dict[str, Any]) -> int:
    from streamtopic.service.verify import Finding

    told = {name: facts[name] for name in ("version", "passed", "complete", "findings")}
    if not args.json:
        print_findings([Finding(**finding) for finding in facts["findings"]])
    answer(args, {"to": str(args.to), **told}, f"version {facts['version']}: written to {args.to}")
    return 0 if facts["passed"] else 1


def _tell_model(args: argparse.Namespace, release: Release) -> int:
    topics = 0 if release.payload.A is None else release.envelope.r
    words = len(release.words)
    parts = [f"{words} words", f"{topics} topics" if topics else "no topics, which are withheld"]
    if release.heads:
        parts.append(f"heads of {', '.join(release.heads)}")
    return answer(
        args,
        {
            "version": release.version,
            "to": str(args.to),
            "words": words,
            "topics": topics,
            "heads": list(release.heads),
        },
        f"version {release.version}: {', '.join(parts)}, written to {args.to}",
    )


def _npz(release: Release, path: Path) -> None:
    import numpy as np

    arrays: dict[str, Any] = {"words": np.array(release.words)}
    if release.payload.A is not None:
        arrays |= {"A": release.A, "R": release.R, "shares": release.shares}
    if release.heads:
        # Tasks have names in any script, which are poor names of arrays: arrays have the task's number among `heads`.
        arrays["heads"] = np.array(release.heads)
    for number, task in enumerate(release.heads):
        head = release.head(task)
        arrays[f"head_{number}_topics"] = np.array(head.topics)
        arrays[f"head_{number}_classes"] = np.array(head.classes)
        arrays[f"head_{number}_B"] = release.task_weights(task)
        if head.w is not None:
            arrays[f"head_{number}_w"] = head.w
    np.savez_compressed(path, **arrays)


def _json(release: Release, path: Path) -> None:
    found: dict[str, Any] = {"version": release.version, "words": list(release.words)}
    if release.payload.A is not None:
        found |= {
            "A": release.A.tolist(),
            "R": release.R.tolist(),
            "shares": release.shares.tolist(),
            "top_words": [list(words) for words in release.top_words],
        }
    found["quality"] = dict(release.quality)
    found["heads"] = {task: _head(release, task) for task in release.heads}
    path.write_text(json.dumps(found), encoding="utf-8")


def _head(release: Release, task: str) -> dict[str, Any]:
    head = release.head(task)
    found: dict[str, Any] = {
        "topics": list(head.topics),
        "classes": list(head.classes),
        "documents": head.documents,
        "B": release.task_weights(task).tolist(),
    }
    # If topics are withheld there is no w: B alone has noise.
    return found if head.w is None else found | {"w": head.w.tolist()}


def _release(release: Release, path: Path) -> None:
    path.write_bytes(release.data())
    path.with_name(f"{path.name}.tlog-proof").write_text(release.proof, encoding="utf-8")


_WRITERS: dict[str, Callable[[Release, Path], None]] = {
    ".npz": _npz,
    ".json": _json,
    ".release": _release,
}
