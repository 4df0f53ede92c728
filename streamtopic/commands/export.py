"""`streamtopic export`: write a published model to a file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamtopic.commands.options import command, instance_settings
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamtopic.commands.options import Subparsers
    from streamtopic.release import Release

__all__ = ["register", "run"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(subparsers, "export", run, "write a published model to a .npz or .json file")
    parser.add_argument("number", type=int, metavar="VERSION", help="which version")
    parser.add_argument("--to", type=Path, required=True, metavar="FILE", help="a name that ends in .npz or .json")


def run(args: argparse.Namespace) -> int:
    """Write the verified release, noised as published."""
    from streamtopic.service.runner import Service

    writers = {".npz": _npz, ".json": _json}
    if args.to.suffix not in writers:
        raise UsageError(f"cannot write {args.to.name}: end the name in {' or '.join(writers)}")
    settings = instance_settings(args)
    with Service(settings) as service:
        release = service.release(args.number)
    try:
        writers[args.to.suffix](release, args.to)
    except OSError as error:
        raise UsageError(f"cannot write {args.to}: {error.strerror}") from None
    report = {
        "version": release.version,
        "to": str(args.to),
        "words": len(release.words),
        "topics": 0 if release.payload.A is None else release.envelope.r,
        "heads": list(release.heads),
    }
    print(json.dumps(report) if args.json else _told(report))
    return 0


def _told(report: Mapping[str, Any]) -> str:
    parts = [f"{report['words']} words"]
    parts.append(f"{report['topics']} topics" if report["topics"] else "no topics, which are withheld")
    if report["heads"]:
        parts.append(f"heads of {', '.join(report['heads'])}")
    return f"version {report['version']}: {', '.join(parts)}, written to {report['to']}"


def _npz(release: Release, path: Path) -> None:
    import numpy as np

    arrays: dict[str, Any] = {"words": np.array(release.words)}
    if release.payload.A is not None:
        arrays |= {"A": release.A, "R": release.R, "shares": release.shares}
    if release.heads:
        # Tasks have names of any script, so arrays are told by number: that of the task among `heads`.
        arrays["heads"] = np.array(release.heads)
    for number, task in enumerate(release.heads):
        head = release.head(task)
        parts = {"topics": np.array(head.topics), "classes": np.array(head.classes), "B": release.task_weights(task)}
        arrays |= {f"head_{number}_{name}": array for name, array in parts.items()}
        if head.w is not None:
            arrays[f"head_{number}_w"] = head.w
    # Through a file of our own, because savez appends .npz to names it does not like.
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


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
    found: dict[str, Any] = {name: list(getattr(head, name)) for name in ("topics", "classes")}
    found |= {"documents": head.documents, "B": release.task_weights(task).tolist()}
    return found if head.w is None else found | {"w": head.w.tolist()}
