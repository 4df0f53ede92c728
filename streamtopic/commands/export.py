"""`streamtopic export`: write a published model to a file."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import command, file_errors, instance_settings, whole_number
from streamtopic.commands.topics_shown import add_slices, slice_unit
from streamtopic.console import say, say_json
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.service.app import Service
    from streamtopic.signed import Release
    from streamtopic.topics.over_time import SliceReport

__all__ = ["register", "run"]


@dataclass(frozen=True, slots=True)
class _Before:
    """What a file shows beside the version: earlier versions, and figures of the documents that were asked for.

    standing: the newest of those that still stand, oldest first.
    withdrawn: numbers of those that were withdrawn.
    slices: topics of the documents over time or by class.
    """

    standing: tuple[Release, ...] = ()
    withdrawn: tuple[int, ...] = ()
    slices: SliceReport | None = None


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
        help="a name that ends in .npz, .json, .html (pictures) or .release (as published, and a file with its proof)",
    )
    add_slices(parser)


def run(args: argparse.Namespace) -> int:
    """Write the verified release, noised as published."""
    from streamtopic.service.app import Service

    write = _WRITERS.get(args.to.suffix)
    if write is None:
        raise UsageError(f"cannot write {args.to.name}: end the name in .npz, .json, .html or .release")
    settings = instance_settings(args)
    unit = slice_unit(args.over, settings)
    page = args.to.suffix == ".html"
    if (unit or args.by) and not page:
        raise UsageError(
            f"a {args.to.suffix} file holds no slices: write a page (.html), or use `streamtopic topics --over --json`"
        )
    with Service(settings) as service:
        release = service.release(args.number)
        slices = service.slices(args.number, unit, args.by) if unit or args.by else None
        # The other formats hold one version: only for a page is the whole topic read.
        before = _before(service, release) if page else _Before()
        before = replace(before, slices=slices)
    with file_errors("write", args.to):
        write(release, args.to, before)
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


def _npz(release: Release, path: Path, _: _Before) -> None:
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


def _json(release: Release, path: Path, _: _Before) -> None:
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


def _before(service: Service, release: Release) -> _Before:
    """Return the versions before a release."""
    from streamtopic.service.publish.published import read_earlier

    standing, withdrawn = read_earlier(service.log, service.state, service.keys, release.version)
    return _Before(standing, withdrawn)


def _html(release: Release, path: Path, before: _Before) -> None:
    from streamtopic.report.model_page import model_page

    page = model_page(release, before.standing, before.withdrawn, before.slices)
    path.write_text(page, encoding="utf-8")


def _release(release: Release, path: Path, _: _Before) -> None:
    path.write_bytes(release.data())
    path.with_name(f"{path.name}.tlog-proof").write_text(release.proof, encoding="utf-8")


_WRITERS: dict[str, Callable[[Release, Path, _Before], None]] = {
    ".npz": _npz,
    ".json": _json,
    ".html": _html,
    ".release": _release,
}
