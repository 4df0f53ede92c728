"""`streamtopic rebuild`: count the log anew into Redis."""

from __future__ import annotations

import argparse
import dataclasses
import time
from typing import TYPE_CHECKING

from streamtopic.commands.common_arguments import command, instance_settings
from streamtopic.console import duration, progress, say, say_json
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.service.rebuild_state import Present

__all__ = ["register", "run"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(subparsers, "rebuild", run, "make the state in Redis anew from the log")
    parser.add_argument(
        "--yes", action="store_true", help="take away the state that exists, and lead in place of others"
    )


def run(args: argparse.Namespace) -> int:
    """Count the whole log anew; without --yes, refuse where Redis holds counts already."""
    from streamtopic.service.app import Service
    from streamtopic.service.rebuild_state import present, rebuild

    start = time.perf_counter()
    with Service(instance_settings(args)) as service:
        # The lock of a folder says for certain whether a process runs it. Of a service's processes Redis knows only the
        # scheduler that leads: the refusal below names all, and --yes is the operator's word that they are stopped.
        if service.settings.dir is not None and not service.leads:
            raise UsageError(f"a process runs the instance in {service.settings.dir}: stop it first")
        found = present(service)
        if found is not None and not args.yes:
            raise UsageError(_what_goes(found))
        with progress("rebuilding", "records", quiet=args.json) as update:
            made = rebuild(service, update)
    seconds = time.perf_counter() - start
    if args.json:
        say_json(dataclasses.asdict(made) | {"seconds": round(seconds, 3)})
        return 0
    say(
        f"{made.documents} documents counted from {made.records} records in {made.partitions} partition(s), "
        f"{duration(seconds)}; {made.waiting} deletions wait for their receipt"
    )
    say("the next version will be a new base model; `streamtopic verify` compares the counts with the log")
    return 0


def _what_goes(found: Present) -> str:
    leads = f"; a scheduler leads ({found.leader})" if found.leader else ""
    return (
        f"Redis holds counts of {found.documents} documents in {found.partitions} partition(s){leads}: stop all "
        "`ingest`, `schedule` and `run` processes, then repeat with --yes"
    )
