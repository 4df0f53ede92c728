"""`deletions` and `receipt`: requests that wait, traces of those that are through, receipts and their proofs."""

from __future__ import annotations

import argparse
import dataclasses
from datetime import datetime
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import (
    answer,
    command,
    file_errors,
    open_instance,
    option,
    settle,
)
from streamtopic.console import aligned, instant, number_of, table_of, warn
from streamtopic.errors import CheckFailed, StreamtopicError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streamtopic.service.opened import Opened
    from streamtopic.signed import Logged
    from streamtopic.state.deletion_requests import DeletionRequest

__all__ = ["COMMANDS", "readable"]


@command(
    option("REQUEST", "request id, as `delete` printed it, or the receipt's own id (MODEL/PARTITION/OFFSET)"),
    option("--salt SALT", "salt that the delete was sent with"),
    option("--document ID", "show only receipts that are provably about this document"),
    option("--proof FILE", "write the receipt with its proof, to be checked without the service"),
)
def _receipt(args: argparse.Namespace) -> int:
    """Show the receipts of a deletion, or write the proof of one.

    Status 1 while there is no receipt.
    """
    from streamtopic.signed import RequestReceipt

    with open_instance(args) as service:
        found = _asked_for(service, args)
        whole = [logged for logged in found if isinstance(logged.entry, RequestReceipt)]
        receipts = [logged for logged in found if logged not in whole]
        if args.proof is not None:
            # The receipt of a request says more than those of its documents.
            _write_proof(service, whole or receipts, args)
        requests = [dataclasses.asdict(logged.entry) for logged in whole]
        # With --json all are shown; for a person the receipt of a request says more than those of its documents.
        shown = receipts if args.json or not requests else []
        fields = [_fields(service, logged) for logged in shown]
    proof = None if args.proof is None else str(args.proof)
    lines = _lines(requests, fields, proof)
    told = {"receipts": fields, "requests": requests, "proof": proof}
    return answer(args, told, *lines)


def _lines(requests: Sequence[dict[str, Any]], receipts: Sequence[dict[str, Any]], proof: str | None) -> Iterator[str]:
    """Yield receipts as a person reads them. proof: the file that was written."""
    for request in requests:
        yield f"a request of {number_of(request['documents'], 'document')}, each with a receipt of its own (--json)"
        yield from aligned(request)
    for number, one in enumerate(receipts):
        if number:
            yield ""
        yield from aligned(readable(one))
    if proof is not None:
        yield ""
        yield f"{proof} proves it: check it with `streamtopic verify {proof} --key signing.pub`"


def _asked_for(service: Opened, args: argparse.Namespace) -> list[Logged]:
    """Return the receipts that the arguments name. Raises CheckFailed if there are none."""
    from streamtopic.service.requests.request_door import receipts_of_request
    from streamtopic.state.deletions import LinkKeys

    links = LinkKeys(service.connection, service.settings.model)
    found = receipts_of_request(service.ledger, links, args.request, args.salt)
    if not found:
        raise CheckFailed(
            f"there is no receipt for request {args.request}: its deletion waits to be counted or for the first "
            "version without the document (`streamtopic status` shows both), or there is no such request. Give the "
            "request id that `streamtopic delete` printed, and not the id of a document; `streamtopic deletions list "
            "--all` shows requests that were held"
        )
    if args.document is None:
        return found
    keys = {} if args.salt is not None else links.all()
    about = [logged for logged in found if _is_about(service, logged, args, keys)]
    if not about:
        raise CheckFailed(
            f"no receipt of {args.request} is provably about document {args.document!r}: another document, "
            "another salt, or the key of its month is destroyed"
        )
    return about


def _is_about(service: Opened, logged: Logged, args: argparse.Namespace, keys: Mapping[str, bytes]) -> bool:
    """Return whether a receipt is provably about --document. keys: of the months, used if there is no --salt."""
    from streamtopic.service.instance import secret
    from streamtopic.signed import Receipt, service_document_salt, service_salt

    receipt = logged.entry
    if not isinstance(receipt, Receipt):
        return False
    if args.salt is not None:
        return receipt.is_about(args.document, args.salt)
    if receipt.month not in keys:
        return False
    own = service_salt(keys[receipt.month], receipt.id)
    return receipt.is_about(args.document, service_document_salt(secret(service.settings, "receipt.key"), own))


def _write_proof(service: Opened, found: Sequence[Logged], args: argparse.Namespace) -> None:
    """Write the proof of a receipt to a file. Raises UsageError for several receipts."""
    if len(found) > 1:
        raise UsageError(
            f"{args.request} has {len(found)} receipts, and a file proves one: name the receipt by its id, or give "
            "--document"
        )
    proof = service.ledger.proof(found[0].index)
    # A file that cannot be verified must not be given to a requester.
    proof.verify(service.keys)
    with file_errors("write", args.proof):
        args.proof.write_text(proof.text, encoding="utf-8")


def _fields(service: Opened, logged: Logged) -> dict[str, Any]:
    """Return a receipt with the traces of its deletion, as JSON shows it."""
    from streamtopic.service.requests.request_door import traces_of_receipt
    from streamtopic.state.deletions import ResidueState

    receipt: Any = logged.entry
    residue = ResidueState(service.connection, service.settings.model)
    reached, erased = traces_of_receipt(service.ledger, residue, logged)
    return {
        "id": receipt.id,
        "index": logged.index,
        **dataclasses.asdict(receipt),
        "residue": {stage.value: at for stage, at in reached.items()},
        "erased": erased,
    }


def readable(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a receipt's fields as a person reads them."""
    shown = {name: value for name, value in fields.items() if name != "residue"}
    for stage, time_ms in fields.get("residue", {}).items():
        shown[f"residue {stage}"] = "not yet" if time_ms is None else instant(time_ms, "seconds")
    return shown | {"found": "yes" if fields["found"] else "no such document"}


@command(
    option("list|approve|cancel|residue|attest", "what to do"),
    option("REQUEST", "approve, cancel: ids of requests", nargs="*"),
    option("--all", "approve: every paused request; list: ended ones too"),
    option("--until TIME", "attest: nothing is left that was written before it (`now`, or 2026-01-31T12:00Z)"),
    option(
        "--stage file|backups",
        "attest: of Redis's append-only files, of replicas too, or of all snapshots and backups (default: backups)",
        default="backups",
    ),
)
def _deletions(args: argparse.Namespace) -> int:
    """List, approve or cancel requests for deletions; show the traces of deletions, or attest that they are gone.

    Requests are changed on a service that runs, too.
    """
    _refuse_other(args)
    act = {"list": _list, "residue": _residue, "attest": _residue}.get(args.action, _change)
    with open_instance(args) as service:
        return act(service, args)


def _refuse_other(args: argparse.Namespace) -> None:
    """Raise UsageError for arguments that the action does not have."""
    if args.action not in {"approve", "cancel"} and args.request:
        raise UsageError(f"`deletions {args.action}` takes no ids of requests")
    if args.action not in {"approve", "list"} and args.all:
        raise UsageError(f"--all is for `deletions approve` and `deletions list`, not for {args.action}")
    if args.action == "approve" and bool(args.request) is args.all:
        raise UsageError("which requests? give their ids, or --all for every paused request")
    if args.action == "cancel" and not args.request:
        raise UsageError("which requests? give their ids, as `streamtopic deletions list` shows them")


def _list(service: Opened, args: argparse.Namespace) -> int:
    from streamtopic.service.requests.request_door import RequestDoor

    requests = RequestDoor(service).requests
    found = [*requests.ended(), *requests.open()] if args.all else requests.open()
    if not found:
        return answer(args, {"requests": []}, "no requests" if args.all else "no open requests")
    return _show(args, found)


def _show(args: argparse.Namespace, requests: Sequence[DeletionRequest], *lines: str) -> int:
    """Print requests, after lines that say what became of them."""
    found = [_request_fields(request) for request in requests]
    rows = table_of(found, "id", "state", "documents", "subjects", "received", "due")
    return answer(args, {"requests": found}, *lines, block=rows)


def _request_fields(request: DeletionRequest) -> dict[str, Any]:
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


def _change(service: Opened, args: argparse.Namespace) -> int:
    """Approve or cancel requests, one after the other. Raises as RequestDoor, after it has told what was done."""
    from streamtopic.service.requests.request_door import RequestDoor

    door = RequestDoor(service)
    change = door.approve if args.action == "approve" else door.cancel
    # A name that is given twice is one request.
    names = [request.id for request in door.paused()] if args.all else list(dict.fromkeys(args.request))
    done = {"approve": "approved", "cancel": "cancelled"}[args.action]
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
        settle(service, args)
    return _show(args, changed, f"{done} {number_of(len(changed), 'request')}:")


def _residue(service: Opened, args: argparse.Namespace) -> int:
    """Show how many deletions wait for which stage; to attest, note the operator's word first."""
    from streamtopic.service.inspection.facts import residue_fields
    from streamtopic.state.deletions import ResidueState, Stage

    store = ResidueState(service.connection, service.settings.model)
    if args.action == "attest":
        store.attest(Stage(args.stage), _time_ms(args.until, int(service.clock() * 1000)))
    found = residue_fields(store.read())
    return answer(args, found, *aligned(found))


def _time_ms(text: str | None, now_ms: int) -> int:
    """Return milliseconds since 1970. Raises UsageError for a text that is not a time, and for a time to come."""
    if text is None:
        raise UsageError("until when? give --until TIME, for instance --until 2026-01-31T12:00Z")
    if text == "now":
        return now_ms
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--until {text}: expected `now` or a time such as 2026-01-31T12:00Z") from None
    # The time goes into the ledger: a guess at the zone could be hours too late, and untrue.
    if found.tzinfo is None:
        raise UsageError(f"--until {text}: say in which time zone, for instance {found.isoformat()}Z")
    time_ms = int(found.timestamp() * 1000)
    # A deletion that is counted before then would be attested although its backup is still to be written.
    if time_ms > now_ms:
        raise UsageError(f"--until {text} is still to come: give a time that is over")
    return time_ms


COMMANDS = (_deletions, _receipt)
