"""`streamtopic export`: write a published model to a file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopic.commands.options import command, instance_settings
from streamtopic.errors import UsageError

if TYPE_CHECKING:
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
    report = {"version": release.version, "to": str(args.to), "words": len(release.words), "topics": release.A.shape[1]}
    print(
        json.dumps(report)
        if args.json
        else "version {version}: {words} words, {topics} topics, written to {to}".format(**report)
    )
    return 0


def _npz(release: Release, path: Path) -> None:
    import numpy as np

    # Through a file of our own, because savez appends .npz to names it does not like.
    with path.open("wb") as file:
        np.savez_compressed(file, words=np.array(release.words), A=release.A, R=release.R, shares=release.shares)


def _json(release: Release, path: Path) -> None:
    found = {
        "version": release.version,
        "words": list(release.words),
        "A": release.A.tolist(),
        "R": release.R.tolist(),
        "shares": release.shares.tolist(),
        "top_words": [list(words) for words in release.top_words],
        "quality": dict(release.quality),
    }
    path.write_text(json.dumps(found), encoding="utf-8")
