"""`streamtopic export`: write a published model to a file."""

from __future__ import annotations

import argparse
import json
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import command, instance_settings
from streamtopic.console import say, say_json
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.service.app import Service
    from streamtopic.signed import Release

__all__ = ["register", "run"]

MOST_BEFORE = 12  # versions that a page follows topics over


@dataclass(frozen=True, slots=True)
class _Before:
    """Earlier versions that still stand, the last of them, and the numbers of those that were withdrawn.

    A withdrawn version stays readable until the log is compacted, but what it has and a later one has not was
    forgotten.
    """

    standing: tuple[Release, ...] = ()
    withdrawn: tuple[int, ...] = ()


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(subparsers, "export", run, "write a published model to a .npz, .json or .html file")
    parser.add_argument("number", type=int, metavar="VERSION", help="which version")
    parser.add_argument(
        "--to",
        type=Path,
        required=True,
        metavar="FILE",
        help="a name that ends in .npz, .json or .html (pictures)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the verified release, noised as published."""
    from streamtopic.service.app import Service

    writers: dict[str, Callable[[Release, Path, _Before], None]] = {".npz": _npz, ".json": _json, ".html": _html}
    if args.to.suffix not in writers:
        raise UsageError(f"cannot write {args.to.name}: end the name in .npz, .json or .html")
    settings = instance_settings(args)
    with Service(settings) as service:
        release = service.release(args.number)
        before = _before(service, release) if args.to.suffix == ".html" else _Before()
    try:
        writers[args.to.suffix](release, args.to, before)
    except OSError as error:
        raise UsageError(f"cannot write {args.to}: {error.strerror}") from None
    report = {
        "version": release.version,
        "to": str(args.to),
        "words": len(release.words),
        "topics": 0 if release.payload.A is None else release.envelope.r,
        "heads": list(release.heads),
    }
    if args.json:
        say_json(report)
    else:
        say(_told(report))
    return 0


def _told(report: Mapping[str, Any]) -> str:
    parts = [f"{report['words']} words"]
    parts.append(f"{report['topics']} topics" if report["topics"] else "no topics, which are withheld")
    if report["heads"]:
        parts.append(f"heads of {', '.join(report['heads'])}")
    return f"version {report['version']}: {', '.join(parts)}, written to {report['to']}"


def _npz(release: Release, path: Path, _: _Before) -> None:
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
    found: dict[str, Any] = {name: list(getattr(head, name)) for name in ("topics", "classes")}
    found |= {"documents": head.documents, "B": release.task_weights(task).tolist()}
    return found if head.w is None else found | {"w": head.w.tolist()}


def _before(service: Service, release: Release) -> _Before:
    gone = {number for number in service.state.withdrawn() if number < release.version}
    standing: deque[Release] = deque(maxlen=MOST_BEFORE)
    for one in service.releases():
        if one.version < release.version and one.version not in gone:
            standing.append(one)
    return _Before(tuple(standing), tuple(sorted(gone)))


def _html(release: Release, path: Path, before: _Before) -> None:
    from streamtopic.report.model_page import model_page

    path.write_text(model_page(release, before.standing, before.withdrawn), encoding="utf-8")
