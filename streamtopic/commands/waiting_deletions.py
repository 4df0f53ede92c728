"""`streamtopic deletions`: requests for deletions that wait."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import command, instance_settings
from streamtopic.console import instant, number_of, say, say_json, show, table, warn
from streamtopic.errors import StreamtopicError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.service.app import Service
    from streamtopic.state.deletion_requests import DeletionRequest

__all__ = ["register"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(subparsers, "deletions", _run, "list, approve or cancel requests for deletions")
    parser.add_argument("action", choices=["list", "approve", "cancel"], help="what to do")
    parser.add_argument("requests", nargs="*", metavar="REQUEST", help="approve, cancel: ids of requests")
    parser.add_argument("--all", action="store_true", help="approve: every paused request; list: ended ones too")


def _run(args: argparse.Namespace) -> int:
    """List, approve or cancel, also on a service that runs."""
    from streamtopic.service.app import Service

    _refuse_other(args)
    with Service(instance_settings(args)) as service:
        if args.action == "list":
            return _list(service, args)
        return _change(service, args)


def _refuse_other(args: argparse.Namespace) -> None:
    """Raise UsageError for arguments that the action does not have."""
    if args.action == "list" and args.requests:
        raise UsageError("`deletions list` takes no ids of requests")
    if args.action == "cancel" and args.all:
        raise UsageError("--all is for `deletions approve` and `deletions list`, not for cancel")
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
    show(table(["request", "state", "documents", "received", "due"], rows))
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
    }


def _row(request: DeletionRequest) -> list[str]:
    times = [instant(request.received_ms), instant(request.due_ms)]
    named = f"of {number_of(request.subjects, 'subject')}" if request.subjects else str(request.documents)
    return [request.id, request.state.value, named, *times]


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
