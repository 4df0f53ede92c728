"""`streamtopic deletions`: requests for deletions that wait, and the traces of those that are through."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import answer, command, instance_settings, moment
from streamtopic.console import instant, number_of, table, warn
from streamtopic.errors import StreamtopicError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.service.app import Service
    from streamtopic.state.deletion_requests import DeletionRequest
    from streamtopic.state.residue_ledger import Residue

__all__ = ["register"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(
        subparsers,
        "deletions",
        _run,
        "list, approve or cancel requests for deletions; show the traces of deletions, or attest that they are gone",
    )
    parser.add_argument("action", choices=["list", "approve", "cancel", "residue", "attest"], help="what to do")
    parser.add_argument("requests", nargs="*", metavar="REQUEST", help="approve, cancel: ids of requests")
    parser.add_argument("--all", action="store_true", help="approve: every paused request; list: ended ones too")
    parser.add_argument(
        "--until",
        metavar="TIME",
        help="attest: nothing is left that was written before this time (`now`, or 2026-01-31T12:00Z)",
    )
    parser.add_argument(
        "--stage",
        choices=["file", "backups"],
        default="backups",
        help="attest: of which files: Redis's append-only files, those of replicas too, or all snapshots and backups "
        "(default: backups)",
    )


def _run(args: argparse.Namespace) -> int:
    """List, approve or cancel, also on a service that runs; or show and attest what is left."""
    _refuse_other(args)
    if args.action in {"residue", "attest"}:
        return _residue(args)
    from streamtopic.service.app import Service

    with Service(instance_settings(args)) as service:
        if args.action == "list":
            return _list(service, args)
        return _change(service, args)


def _refuse_other(args: argparse.Namespace) -> None:
    """Raise UsageError for arguments that the action does not have."""
    if args.action not in {"approve", "cancel"} and args.requests:
        raise UsageError(f"`deletions {args.action}` takes no ids of requests")
    if args.action not in {"approve", "list"} and args.all:
        raise UsageError(f"--all is for `deletions approve` and `deletions list`, not for {args.action}")
    if args.action == "approve" and bool(args.requests) is args.all:
        raise UsageError("which requests? give their ids, or --all for every paused request")
    if args.action == "cancel" and not args.requests:
        raise UsageError("which requests? give their ids, as `streamtopic deletions list` shows them")


def _list(service: Service, args: argparse.Namespace) -> int:
    found = service.door.requests.open()
    if args.all:
        found = [*service.door.requests.ended(), *found]
    told = {"requests": [_fields(request) for request in found]}
    if not found:
        return answer(args, told, "no requests" if args.all else "no open requests")
    rows = [_row(request) for request in found]
    return answer(args, told, block=table(["request", "state", "documents", "received", "due"], rows))


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
    told = {"requests": [_fields(request) for request in changed]}
    return answer(args, told, f"{done} {number_of(len(changed), 'request')}, for {_named(changed)}")


def _named(requests: Sequence[DeletionRequest]) -> str:
    """Return what requests are about, for a person."""
    documents = sum(request.documents for request in requests)
    subjects = sum(request.subjects for request in requests)
    parts = [number_of(documents, "document")] if documents or not subjects else []
    if subjects:
        parts.append(f"all documents of {number_of(subjects, 'subject')}")
    return " and ".join(parts)


def _residue(args: argparse.Namespace) -> int:
    """Show how many deletions wait for which stage; to attest, note the operator's word first."""
    from streamtopic.service.app import Service
    from streamtopic.service.publish.erasure import residue_fields
    from streamtopic.state.residue_ledger import ResidueState, Stage

    with Service(instance_settings(args)) as service:
        store = ResidueState(service.connection, service.settings.model)
        if args.action == "attest":
            store.attest(Stage(args.stage), _time_ms(args.until, int(service.clock() * 1000)))
        residue = store.read()
    return answer(args, residue_fields(residue), *_residue_lines(residue))


def _residue_lines(residue: Residue) -> Iterator[str]:
    from streamtopic.service.publish.erasure import waiting_by_stage

    for stage, waiting in waiting_by_stage(residue).items():
        if not waiting.documents:
            yield f"{stage:10}  nothing waits"
            continue
        since = "" if waiting.since_ms is None else f", the oldest since {instant(waiting.since_ms, 'seconds')}"
        wait = "waits" if waiting.documents == 1 else "wait"
        yield f"{stage:10}  {number_of(waiting.documents, 'document')} {wait}{since}"
    for stage, time_ms in residue.attested.items():
        yield f"{stage:10}  attested until {instant(time_ms, 'seconds')}"
    if residue.forbidden:
        yield f"file        the service may not have it rewritten: {residue.forbidden}"


def _time_ms(text: str | None, now_ms: int) -> int:
    """Return milliseconds since 1970. Raises UsageError for a text that is not a time, and for a time to come."""
    if text is None:
        raise UsageError("until when? give --until TIME, for instance --until 2026-01-31T12:00Z")
    if text == "now":
        return now_ms
    # The time goes into the ledger: hours too late, it would be untrue.
    time_ms = moment(text, "--until", wanted="`now` or a time")
    # A deletion that is counted before then would be attested although its backup is still to be written.
    if time_ms > now_ms:
        raise UsageError(f"--until {text} is still to come: give a time that is over")
    return time_ms
