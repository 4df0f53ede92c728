"""`streamtopic residue`: the traces that deletions have left, and the operator's word that they are gone."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import TYPE_CHECKING

from streamtopic.commands.common_arguments import command, instance_settings
from streamtopic.console import instant, say, say_json
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.service.assembly import Parts
    from streamtopic.state.residue_ledger import Residue

__all__ = ["register", "run"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(subparsers, "residue", run, "show the traces of deletions, or attest that they are gone")
    parser.add_argument("action", nargs="?", choices=["show", "attest"], default="show", help="default: show")
    parser.add_argument(
        "--until",
        metavar="TIME",
        help="attest: nothing is left that was written before this time (`now`, or 2026-01-31T12:00Z)",
    )
    parser.add_argument(
        "--stage",
        choices=["aof", "snapshots"],
        default="snapshots",
        help="attest: of which files: Redis's append-only files, those of replicas too, or all snapshots and backups "
        "(default: snapshots)",
    )


def run(args: argparse.Namespace) -> int:
    """Show how many deletions wait for which stage; with `attest`, note the operator's word first."""
    from streamtopic.service.assembly import Parts
    from streamtopic.state.residue_ledger import ResidueState, Stage

    with Parts(instance_settings(args)) as parts:
        store = ResidueState(parts.connection, parts.settings.model)
        if args.action == "attest":
            store.attest(Stage(args.stage), _time_ms(args.until, parts))
        residue = store.read()
    if args.json:
        from streamtopic.service.publish.erasure import residue_fields

        say_json(residue_fields(residue))
        return 0
    _show(residue)
    return 0


def _show(residue: Residue) -> None:
    from streamtopic.service.publish.erasure import waiting_by_stage

    for stage, waiting in waiting_by_stage(residue).items():
        if not waiting.documents:
            say(f"{stage:10}  nothing waits")
            continue
        since = "" if waiting.since_ms is None else f", the oldest since {instant(waiting.since_ms, 'seconds')}"
        say(f"{stage:10}  {waiting.documents} documents wait{since}")
    for stage, time_ms in residue.attested.items():
        say(f"{stage:10}  attested until {instant(time_ms, 'seconds')}")
    if residue.forbidden:
        say(f"aof         the service may not have it written anew: {residue.forbidden}")


def _time_ms(text: str | None, parts: Parts) -> int:
    """Return milliseconds since 1970. Raises UsageError for a text that is not a time, and for a time to come."""
    now_ms = int(parts.clock() * 1000)
    if text is None:
        raise UsageError("until when? give --until TIME, for instance --until 2026-01-31T12:00Z")
    if text == "now":
        return now_ms
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--until {text}: expected `now` or a time such as 2026-01-31T12:00Z") from None
    # The time goes into a signed completion: a guess at the zone could make it hours too late, and untrue.
    if found.tzinfo is None:
        raise UsageError(f"--until {text}: say in which time zone, for instance {text}Z")
    time_ms = int(found.timestamp() * 1000)
    # A deletion that is counted before then would be attested although its backup is still to be written.
    if time_ms > now_ms:
        raise UsageError(f"--until {text} is still to come: attest what is so now")
    return time_ms
