"""`streamtopic receipt`: the receipts of one deletion. `streamtopic receipts`: all of them, to be checked elsewhere."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamtopic.commands.changes import other_forms
from streamtopic.commands.common_arguments import command, file_errors, instance_settings, verifier_of
from streamtopic.console import instant, say, say_json, warn
from streamtopic.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from streamtopic.client import Receipts
    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.service.assembly import Parts
    from streamtopic.signed import Audit, Receipt, SubjectReceipt

__all__ = ["readable", "register"]

# One cut in the file breaks the chain at every later line: the first problems say where.
PROBLEMS_SHOWN = 10
# Receipts of a person's documents that are printed; --json gives all.
RECEIPTS_SHOWN = 10


def register(subparsers: Subparsers) -> None:
    """Add both commands."""
    one = command(subparsers, "receipt", _receipt, "show the receipts of a deletion")
    one.add_argument(
        "name",
        metavar="REQUEST",
        help="request id, as `delete` printed it, or the receipt's own id (MODEL/PARTITION/OFFSET)",
    )
    one.add_argument("--salt", metavar="SALT", help="salt that the delete was sent with")
    one.add_argument("--document", metavar="ID", help="show only receipts that are provably about this document")
    every = command(subparsers, "receipts", _receipts, "export all receipts, or verify an exported file offline")
    every.add_argument("action", choices=["export", "verify"], help="what to do")
    every.add_argument("file", nargs="?", type=Path, metavar="FILE", help="verify: the file that `export` wrote")
    every.add_argument("--to", type=Path, metavar="FILE", help="export: where to write one JSON object a line")
    every.add_argument("--public-key", metavar="KEY", help="verify: signing.pub, or the key in hexadecimal digits")
    every.add_argument("--key-list", type=Path, metavar="FILE", help="verify: keys.list, with root.pub as public key")
    every.add_argument(
        "--head", metavar="DIGEST", help="verify: a digest that `export` printed, now or earlier; the file must hold it"
    )


def _receipt(args: argparse.Namespace) -> int:
    """Print every receipt of the request; status 1 while there is none."""
    from streamtopic.client import Receipts
    from streamtopic.service.assembly import Parts
    from streamtopic.service.publish.published import receipt_fields
    from streamtopic.service.requests.deletion_lookup import covering_of_request

    with Parts(instance_settings(args)) as parts:
        receipts = Receipts(parts.log, model=parts.settings.model, public_key=parts.keys)
        covering = covering_of_request(parts, receipts, args.name, args.salt)
        nothing = covering is not None and not covering.documents
        found = [] if nothing else _asked_for(parts, receipts, args)
        problem = None if covering is None else receipts.problem(covering)
        shown = found if args.json or covering is None else found[:RECEIPTS_SHOWN]
        fields = [receipt_fields(receipt) | _traces(parts, receipts, receipt) for receipt in shown]
    of_subject = None if covering is None else dataclasses.asdict(covering) | {"problem": problem}
    if args.json:
        # Programs from before several receipts could fit read the fields of the first.
        first = fields[0] if fields else {}
        say_json(first | {"receipts": fields, "subject": of_subject})
        return 0 if problem is None else 1
    if covering is not None:
        _say_covering(covering, problem)
    for number, receipt in enumerate(shown):
        if number or covering is not None:
            say()
        width = max(map(len, fields[number]))
        for name, value in readable(receipt, fields[number]).items():
            say(f"{name.replace('_', ' '):{width}}  {value}")
    more = len(found) - len(shown)
    if more > 0:
        say()
        say(f"and {more} more receipts: --json shows all, `streamtopic receipts export` writes them")
    return 0 if problem is None else 1


def _say_covering(covering: SubjectReceipt, problem: str | None) -> None:
    """Print the receipt that covers all documents of a subject, and whether their receipts are there."""
    say(f"subject receipt  {covering.id}")
    say(f"documents        {covering.documents}")
    say(f"received         {instant(covering.received)}")
    say(f"version          {covering.version or '-'} is the first without any of them")
    say(f"{'FAIL' if problem else 'ok  '}             {problem or 'each document has its receipt in the chain'}")


def _asked_for(parts: Parts, receipts: Receipts, args: argparse.Namespace) -> list[Receipt]:
    """Return the receipts that the arguments name. Raises CheckFailed where there are none."""
    from streamtopic.service.requests.deletion_lookup import receipts_of_request

    found = receipts_of_request(parts, receipts, args.name, args.salt)
    if not found:
        for form in other_forms(args.name):
            if receipts_of_request(parts, receipts, form, args.salt):
                raise CheckFailed(
                    f"there is no receipt for {args.name}; one exists whose request id differs only in Unicode normal "
                    f"form: {form!a}, not {args.name!a}"
                )
        raise CheckFailed(_why_none(parts, args.name))
    if args.document is None:
        return found
    about = [receipt for receipt in found if _is_about(parts, receipt, args.document, args.salt)]
    if not about:
        raise CheckFailed(
            f"no receipt of {args.name} is provably about document {args.document!r}: another document, "
            "another salt, or the key of its month is destroyed"
        )
    return about


def _is_about(parts: Parts, receipt: Receipt, document: str, salt: str | None) -> bool:
    from streamtopic.signed import service_document_salt, service_salt
    from streamtopic.state.deletions import LinkKeys

    if salt is not None:
        return receipt.is_about(document, salt)
    secret = parts.receipt_secret
    keys = LinkKeys(parts.connection, parts.settings.model).all()
    if receipt.month in keys:
        own = service_salt(keys[receipt.month], receipt.id)
        return receipt.is_about(document, service_document_salt(secret, own))
    # Receipts from before the keys of the months were salted with the receipt key alone.
    return receipt.is_about(document, secret)


def _traces(parts: Parts, receipts: Receipts, receipt: Receipt) -> dict[str, Any]:
    """Return the traces of a deletion as JSON shows them."""
    from streamtopic.service.requests.deletion_lookup import traces_of_receipt

    reached, completion = traces_of_receipt(parts, receipts, receipt)
    return {"residue": {stage.value: at for stage, at in reached.items()}, "completion": completion}


def readable(receipt: Receipt, fields: dict[str, Any]) -> dict[str, Any]:
    """Return a receipt's fields as a person reads them."""
    shown = {name: "-" if value in {None, ""} else value for name, value in fields.items() if name != "residue"}
    for stage, time_ms in fields.get("residue", {}).items():
        shown[f"residue {stage}"] = "not yet" if time_ms is None else instant(time_ms, "seconds")
    for name in ("received", "applied"):
        shown[name] = instant(fields[name])
    shown["found"] = "yes" if receipt.found else "no such document"
    return shown


def _why_none(parts: Parts, name: str) -> str:
    """Say whether the deletion is known but waits for its receipt, which only Redis can tell."""
    from streamtopic.service.requests.deletion_lookup import waiting_deletion

    if waiting_deletion(parts, name) is not None:
        return f"deletion {name} is counted out; its receipt comes with the first version without the document"
    return (
        f"there is no receipt for {name}: the deletion is not counted yet (`streamtopic status` shows the lag), or "
        "nobody asked for it under this name"
    )


def _receipts(args: argparse.Namespace) -> int:
    """Export or verify; status 1 where a receipt is forged, missing or competes with another."""
    return _export(args) if args.action == "export" else _verify(args)


def _export(args: argparse.Namespace) -> int:
    from streamtopic.service.assembly import Parts
    from streamtopic.signed import ReceiptReader, export_line

    if args.to is None:
        raise UsageError("where to? give --to FILE")
    with Parts(instance_settings(args)) as parts:
        reader = ReceiptReader(parts.log, parts.settings.model, parts.keys)
        # The topic is read twice: which records are in the chain is certain only at its end, and to keep them all
        # until then would take memory that grows with the topic.
        count = reader.catch_up()
        with file_errors("write", args.to), args.to.open("w", encoding="ascii") as file:
            for receipt, record in reader.records():
                file.write(export_line(receipt, record.value or b"") + "\n")
            for covering, record in reader.covering_records():
                file.write(export_line(covering, record.value or b"") + "\n")
    head = reader.chain.head
    if args.json:
        fields = {"file": str(args.to), "receipts": count, "last": head.sequence, "head": head.digest}
        say_json(fields | {"skipped": reader.skipped})
        return 0
    say(f"{count} receipts written to {args.to}; number {head.sequence} has digest {head.digest or '-'}")
    if reader.skipped:
        warn(f"{reader.skipped} records of the topic are not receipts signed by this key and were passed over")
    return 0


def _verify(args: argparse.Namespace) -> int:
    from streamtopic.signed import audit

    if args.file is None:
        raise UsageError("which file? give one that `streamtopic receipts export` wrote")
    key = verifier_of(args)
    try:
        with file_errors("read", args.file), args.file.open(encoding="utf-8") as lines:
            found = audit(lines, key)
    except UnicodeDecodeError:
        raise UsageError(
            f"{args.file} is not a file of receipts: give one that `streamtopic receipts export` wrote"
        ) from None
    problems = list(found.problems)
    # A chain that was cut off at its end is whole in itself: only a digest from before tells.
    if args.head is not None and not _holds(found, args.head.strip().lower()):
        problems.append((0, "the chain does not hold the receipt that --head names: receipts are missing at the end"))
    if args.json:
        say_json(_audit_fields(found, problems))
        return 1 if problems else 0
    for line, problem in problems[:PROBLEMS_SHOWN]:
        say(f"FAIL  {f'line {line}: ' if line else ''}{problem}")
    if problems:
        raise CheckFailed(f"{args.file}: {len(problems)} problems in {found.receipts} receipts")
    say(
        f"ok    {found.receipts} receipts, signed by key {args.public_key}, {found.first} to {found.last} without a gap"
    )
    if found.covering:
        say(f"ok    {found.covering} subject receipts, each with the receipts of all its documents")
    say(f"ok    {found.completions} completions: nothing is left of {found.completed} deletions")
    return 0


def _holds(found: Audit, digest: str) -> bool:
    """Return whether a digest is that of a link of the chain, which may have grown since it was written down."""
    # "" stands before the first link: it is the digest of an empty chain only.
    return digest == found.head or (digest != "" and digest in found.digests.values())


def _audit_fields(found: Audit, problems: list[tuple[int, str]]) -> dict[str, Any]:
    return {
        "passed": not problems,
        "receipts": found.receipts,
        "completions": found.completions,
        "completed": found.completed,
        "subjects": found.covering,
        "first": found.first,
        "last": found.last,
        "head": found.head,
        "problems": [{"line": line, "problem": problem} for line, problem in problems],
    }
