"""`streamtopic export`: write a published model to a file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import command, file_errors, instance_settings, whole_number
from streamtopic.commands.topics_shown import add_slices, slice_unit
from streamtopic.console import say, say_json
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.signed import Release

__all__ = ["register", "run"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(subparsers, "export", run, "write a published model to a .npz, .json, .html or .release file")
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


def run(args: argparse.Namespace) -> int:
    """Write the verified release, noised as published."""
    from streamtopic.service.app import Service

    page = args.to.suffix == ".html"
    if not page and args.to.suffix not in _WRITERS:
        raise UsageError(f"cannot write {args.to.name}: end the name in .npz, .json, .html or .release")
    settings = instance_settings(args)
    unit = slice_unit(args.over, settings)
    if (unit or args.by) and not page:
        raise UsageError(
            f"a {args.to.suffix} file holds no slices: write a page (.html), or use `streamtopic topics --over --json`"
        )
    written = ""
    with Service(settings) as service:
        release = service.release(args.number)
        if page:
            from streamtopic.pages.version_page import version_facts, version_page

            slices = service.slices(args.number, unit, args.by) if unit or args.by else None
            written = version_page(version_facts(service, release.version, slices=slices, public=True))
    with file_errors("write", args.to):
        if page:
            args.to.write_text(written, encoding="utf-8")
        else:
            _WRITERS[args.to.suffix](release, args.to)
    topics = 0 if release.payload.A is None else release.envelope.r
    report = {
        "version": release.version,
        "to": str(args.to),
        "words": len(release.words),
        "topics": topics,
        "heads": list(release.heads),
    }
    if args.json:
        say_json(report)
        return 0
    found = f"{topics} topics" if topics else "no topics, which are withheld"
    parts = [f"{len(release.words)} words", found]
    if release.heads:
        tasks = ", ".join(release.heads)
        parts.append(f"heads of {tasks}")
    contents = ", ".join(parts)
    say(f"version {release.version}: {contents}, written to {args.to}")
    return 0


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
    # Where topics are withheld there is no w: B alone has noise.
    return found if head.w is None else found | {"w": head.w.tolist()}


def _release(release: Release, path: Path) -> None:
    path.write_bytes(release.data())
    path.with_name(f"{path.name}.tlog-proof").write_text(release.proof, encoding="utf-8")


_WRITERS: dict[str, Callable[[Release, Path], None]] = {
    ".npz": _npz,
    ".json": _json,
    ".release": _release,
}
