"""`streamtopic deletions`: requests for deletions that wait, and documents that were deleted by mistake."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import command, instance_settings, moment
from streamtopic.console import instant, number_of, progress, say, say_json, show, table, warn
from streamtopic.errors import StreamtopicError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.service.app import Service
    from streamtopic.service.requests.undo_deletions import Undone
    from streamtopic.state.deletion_requests import DeletionRequest

__all__ = ["register"]

_SHOWN = 20


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(
        subparsers, "deletions", _run, "list, approve or cancel requests for deletions, or undo deletes of the log"
    )
    parser.add_argument("action", choices=["list", "approve", "cancel", "undo"], help="what to do")
    parser.add_argument("requests", nargs="*", metavar="REQUEST", help="approve, cancel: ids of requests")
    parser.add_argument("--all", action="store_true", help="approve: every paused request; list: ended ones too")
    parser.add_argument("--since", metavar="TIME", help="undo: deletes from this time on, such as 2026-01-31T12:00Z")
    parser.add_argument(
        "--offset",
        action="append",
        default=[],
        metavar="PARTITION/OFFSET",
        help="undo: deletes of a partition from this offset on; may be repeated",
    )
    parser.add_argument("--yes", action="store_true", help="undo: add the documents again, and not only count them")


def _run(args: argparse.Namespace) -> int:
    """List, approve, cancel or undo, also on a service that runs."""
    from streamtopic.service.app import Service

    _refuse_other(args)
    with Service(instance_settings(args)) as service:
        if args.action == "list":
            return _list(service, args)
        if args.action == "undo":
            return _undo(service, args)
        return _change(service, args)


def _refuse_other(args: argparse.Namespace) -> None:
    """Raise UsageError for arguments that the action does not have."""
    if args.action != "undo" and (args.since or args.offset or args.yes):
        raise UsageError(f"--since, --offset and --yes belong to `deletions undo`, not to `deletions {args.action}`")
    if args.action in {"list", "undo"} and args.requests:
        raise UsageError(f"`deletions {args.action}` takes no ids of requests")
    if args.action in {"cancel", "undo"} and args.all:
        raise UsageError(f"--all is for `deletions approve` and `deletions list`, not for {args.action}")
    if args.action == "approve" and bool(args.requests) is args.all:
        raise UsageError("which requests? give their ids, or --all for every paused request")
    if args.action == "cancel" and not args.requests:
        raise UsageError("which requests? give their ids, as `streamtopic deletions list` shows them")


def _list(service: Service, args: argparse.Namespace) -> int:
    found = service.door.requests.open()
    if args.all:
        found = [*service.door.requests.ended(), *found]
    if args.json:
        say_json({"requests": [_fields(request) for request in found]})
        return 0
    if not found:
        say("no requests" if args.all else "no open requests")
        return 0
    rows = [_row(request) for request in found]
    show(table(["request", "state", "documents", "received", "due", "source"], rows))
    return 0


def _fields(request: DeletionRequest) -> dict[str, Any]:
    """Return a request as JSON shows it; times are milliseconds since 1970, and None is not yet."""
    return {
        "id": request.id,
        "state": request.state.value,
        "documents": request.documents,
        "subjects": request.subjects,
        "received": request.received_ms,
        "due": request.due_ms,
        "changed": request.changed_ms,
        "sent": request.sent_ms or None,
        "expected": request.expected_ms or None,
        "approved": request.approved,
        "source": request.source,
    }


def _row(request: DeletionRequest) -> list[str]:
    times = [instant(request.received_ms), instant(request.due_ms)]
    named = f"of {number_of(request.subjects, 'subject')}" if request.subjects else str(request.documents)
    return [request.id, request.state.value, named, *times, request.source]


def _change(service: Service, args: argparse.Namespace) -> int:
    """Approve or cancel requests, one after the other."""
    door = service.door
    change = door.approve if args.action == "approve" else door.cancel
    # A name that is given twice is one request.
    names = [request.id for request in door.paused()] if args.all else list(dict.fromkeys(args.requests))
    done = "approved" if args.action == "approve" else "cancelled"
    changed: list[DeletionRequest] = []
    try:
        # The list keeps those that were changed before one fails.
        changed.extend(change(name) for name in names)
    except StreamtopicError:
        if changed:
            warn(f"{done} before the error: {', '.join(request.id for request in changed)}")
        raise
    if service.leads:
        # Nobody else moves the requests of an instance that nobody runs.
        service.settle()
    if args.json:
        say_json({"requests": [_fields(request) for request in changed]})
        return 0
    say(f"{done} {number_of(len(changed), 'request')}, for {_named(changed)}")
    return 0


def _named(requests: Sequence[DeletionRequest]) -> str:
    """Return what requests are about, for a person."""
    documents = sum(request.documents for request in requests)
    subjects = sum(request.subjects for request in requests)
    parts = [number_of(documents, "document")] if documents or not subjects else []
    if subjects:
        parts.append(f"all documents of {number_of(subjects, 'subject')}")
    return " and ".join(parts)


def _undo(service: Service, args: argparse.Namespace) -> int:
    """Add documents again that were deleted in a range of the log."""
    from streamtopic.service.requests.undo_deletions import undo

    starts = _starts(service, args)
    with progress("reading the log", "records", quiet=args.json) as update:
        undone = undo(service, starts, append=args.yes, update=update)
    settled = args.yes and undone.restored and service.leads
    if settled:
        service.settle()
    if args.json:
        say_json(undone.as_json() | {"appended": args.yes})
        return 0
    _show_undone(undone, appended=args.yes)
    return 0


def _show_undone(undone: Undone, *, appended: bool) -> None:
    was = "was" if len(undone.restored) == 1 else "were"
    verb = f"{was} added again" if appended else "can be added again: repeat with --yes"
    say(f"{number_of(len(undone.restored), 'deleted document')} {verb}")
    if undone.requested:
        say(
            f"{undone.requested} stay deleted: requests of `streamtopic deletions list --all` asked for it, they are "
            "about a person who was forgotten, or they are suppressed"
        )
    if undone.lost:
        say(f"{len(undone.lost)} have left the log and cannot be added again:")
        for document in undone.lost[:_SHOWN]:
            say(f"  {document}")
        if len(undone.lost) > _SHOWN:
            say(f"  and {len(undone.lost) - _SHOWN} more; --json lists all")


def _starts(service: Service, args: argparse.Namespace) -> dict[int, int]:
    """Return where the range begins, partition to offset. Raises UsageError."""
    if bool(args.since) is bool(args.offset):
        raise UsageError("from when on? give --since TIME, or --offset PARTITION/OFFSET for each partition")
    if args.since:
        from streamtopic.service.requests.undo_deletions import starts_at

        # Right to the zone: else documents could come back that were deleted on purpose hours before.
        return starts_at(service, moment(args.since, "--since"))
    return _starts_behind(service, args.offset)


def _starts_behind(service: Service, places: Sequence[str]) -> dict[int, int]:
    found = {}
    partitions = service.settings.partitions
    for place in places:
        partition, _, offset = place.partition("/")
        if not (partition.isdecimal() and offset.isdecimal() and int(partition) < partitions):
            raise UsageError(
                f"--offset {place}: expected PARTITION/OFFSET, such as 0/1200; partitions are 0 to {partitions - 1}"
            )
        if int(partition) in found:
            raise UsageError(f"--offset {place}: partition {partition} is named twice: give its earliest offset alone")
        end = service.log.end(service.names.documents, int(partition))
        if int(offset) > end:
            raise UsageError(f"--offset {place}: partition {partition} ends at offset {end}; give an earlier one")
        found[int(partition)] = int(offset)
    return found
