"""`streamtopic receipt`: what happened to one deletion."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from streamtopic.commands.options import command, instance_settings
from streamtopic.errors import CheckFailed

if TYPE_CHECKING:
    from streamtopic.commands.options import Subparsers
    from streamtopic.receipts import Receipt
    from streamtopic.service.parts import Parts

__all__ = ["register", "run", "shown"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(subparsers, "receipt", run, "show what happened to a deletion")
    parser.add_argument(
        "name",
        metavar="REQUEST",
        help="request id, as `delete` printed it, or the receipt's own id (MODEL/PARTITION/OFFSET)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the receipt; status 1 while there is none."""
    from streamtopic.client import Receipts
    from streamtopic.service.parts import Parts
    from streamtopic.service.report import receipt_fields

    with Parts(instance_settings(args)) as parts:
        receipts = Receipts(parts.log, model=parts.settings.model, public_key=parts.public_key)
        receipt = receipts.find(args.name) or receipts.get(args.name)
        if receipt is None:
            raise CheckFailed(_why_none(parts, args.name))
    fields = receipt_fields(receipt)
    if args.json:
        print(json.dumps(fields))
        return 0
    width = max(map(len, fields))
    for name, value in shown(receipt, fields).items():
        print(f"{name.replace('_', ' '):{width}}  {value}")
    return 0


def shown(receipt: Receipt, fields: dict[str, Any]) -> dict[str, Any]:
    """Return a receipt's fields as a person reads them."""
    times = {name: datetime.fromtimestamp(fields[name] / 1000, UTC).isoformat() for name in ("received", "applied")}
    plain = {name: "-" if value in {None, ""} else value for name, value in fields.items()}
    return plain | times | {"found": "yes" if receipt.found else "no such document"}


def _why_none(parts: Parts, name: str) -> str:
    """Say whether the deletion is known but waits, which only Redis can tell."""
    from streamtopic.receipts import receipt_id

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
