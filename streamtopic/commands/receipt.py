"""`streamtopic receipt`: what happened to one deletion."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import command, instance_settings
from streamtopic.console import instant, say, say_json
from streamtopic.errors import CheckFailed

if TYPE_CHECKING:
    from streamtopic.client import Receipts
    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.service.assembly import Parts
    from streamtopic.signed import Receipt

__all__ = ["register", "run", "shown"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(subparsers, "receipt", run, "show what happened to a deletion")
    parser.add_argument(
        "name",
        metavar="REQUEST",
        help="request id, as `delete` printed it, or the receipt's own id (MODEL/PARTITION/OFFSET)",
    )
    parser.add_argument("--salt", metavar="SALT", help="salt that the delete was sent with")
    parser.add_argument("--document", metavar="ID", help="show only receipts that are provably about this document")


def run(args: argparse.Namespace) -> int:
    """Print every receipt of the request; status 1 while there is none."""
    from streamtopic.client import Receipts
    from streamtopic.commands.forms import other_forms
    from streamtopic.service.assembly import Parts
    from streamtopic.service.published import receipt_fields

    with Parts(instance_settings(args)) as parts:
        receipts = Receipts(parts.log, model=parts.settings.model, public_key=parts.keys)
        found = _find(parts, receipts, args.name, args.salt)
        if not found:
            other = next((form for form in other_forms(args.name) if _find(parts, receipts, form, args.salt)), None)
            if other is not None:
                raise CheckFailed(
                    f"there is no receipt for {args.name}; one exists whose request id differs only in Unicode normal "
                    f"form: {other!a}, not {args.name!a}"
                )
            raise CheckFailed(_why_none(parts, args.name))
        if args.document is not None:
            found = [receipt for receipt in found if _is_about(parts, receipt, args.document, args.salt)]
            if not found:
                raise CheckFailed(
                    f"no receipt of {args.name} is provably about document {args.document!r}: another document, "
                    "another salt, or the key of its month is destroyed"
                )
        traces = [_traces(parts, receipts, receipt) for receipt in found]
    fields = [receipt_fields(receipt) | more for receipt, more in zip(found, traces, strict=True)]
    if args.json:
        say_json(fields[0] | {"receipts": fields})
        return 0
    for number, receipt in enumerate(found):
        width = max(map(len, fields[number]))
        if number:
            say()
        for name, value in shown(receipt, fields[number]).items():
            say(f"{name.replace('_', ' '):{width}}  {value}")
    return 0


def _traces(parts: Parts, receipts: Receipts, receipt: Receipt) -> dict[str, Any]:
    """Return when the traces of a deletion had gone, as signed where it is complete, else as far as Redis knows."""
    from streamtopic.state.residue_ledger import ResidueState, Stage

    completion = receipts.completion(receipt)
    if completion is not None:
        signed = completion.reached.get(receipt.partition, {})
        reached = {stage.value: signed.get(stage.value) for stage in Stage}
    else:
        residue = ResidueState(parts.connection, parts.settings.model).read()
        known = residue.reached(receipt.partition, receipt.offset)
        reached = {stage.value: at for stage, at in known.items()}
    # It is known to the millisecond; marks say by when at the latest.
    reached[Stage.SUBTRACTED] = receipt.applied
    return {"residue": reached, "completion": None if completion is None else completion.id}


def _find(parts: Parts, receipts: Receipts, name: str, salt: str | None) -> list[Receipt]:
    """Look a receipt up by its id, or all of a request: by the requester's salt, else by the service's own keys."""
    from streamtopic.state.receipt_state import LinkKeys

    named = receipts.get(name)
    if named is not None:
        return [named]
    found = receipts.find(name, salt=salt)
    if salt is None:
        found += receipts.linked(name, LinkKeys(parts.connection, parts.settings.model).all())
    return found


def _is_about(parts: Parts, receipt: Receipt, document: str, salt: str | None) -> bool:
    from streamtopic.signed import service_document_salt, service_salt
    from streamtopic.state.receipt_state import LinkKeys

    if salt is not None:
        return receipt.is_about(document, salt)
    secret, keys = parts.receipt_secret, LinkKeys(parts.connection, parts.settings.model).all()
    if receipt.month in keys:
        own = service_salt(keys[receipt.month], receipt.id)
        return receipt.is_about(document, service_document_salt(secret, own))
    return receipt.is_about(document, secret)


def shown(receipt: Receipt, fields: dict[str, Any]) -> dict[str, Any]:
    """Return a receipt's fields as a person reads them."""
    times = {name: instant(fields[name]) for name in ("received", "applied")}
    plain = {name: "-" if value in {None, ""} else value for name, value in fields.items() if name != "residue"}
    traces = {f"residue {stage}": _reached(at) for stage, at in fields.get("residue", {}).items()}
    return plain | traces | times | {"found": "yes" if receipt.found else "no such document"}


def _reached(time_ms: int | None) -> str:
    return "not yet" if time_ms is None else instant(time_ms, "seconds")


def _why_none(parts: Parts, name: str) -> str:
    """Say whether the deletion is known but waits, which only Redis can tell."""
    from streamtopic.signed import receipt_id

    for partition in parts.reader.positions():
        offset, stream = 0, parts.reader.forgets(partition)
        while page := stream.read(offset):
            offset = page[-1].offset + 1
            for forget in page:
                if name in {forget.request, receipt_id(parts.settings.model, partition, forget.offset)}:
                    return (
                        f"deletion {name} is counted out; its receipt comes with the first version without the document"
                    )
    return (
        f"there is no receipt for {name}: the deletion is not counted yet (`streamtopic status` shows the lag), or "
        "nobody asked for it under this name"
    )
