"""One deletion by its request id or receipt id: its receipts, the traces that are left, or why there is no receipt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtopic.signed import receipt_id
from streamtopic.state.deletions import LinkKeys
from streamtopic.state.residue_ledger import ResidueState, Stage

if TYPE_CHECKING:
    from streamtopic.client import Receipts
    from streamtopic.service.assembly import Parts
    from streamtopic.signed import Receipt, SubjectReceipt
    from streamtopic.state.deletions import Forget

__all__ = ["covering_of_request", "receipts_of_request", "traces_of_receipt", "waiting_deletion"]


def receipts_of_request(parts: Parts, receipts: Receipts, name: str, salt: str | None) -> list[Receipt]:
    """Return the receipt with this id, else the receipts of this request.

    salt: the requester's own; None: the keys of the months are tried, which only the service has.

    Raises SettingsError where the user of Redis may not read the keys of the months.
    """
    named = receipts.get(name)
    if named is not None:
        return [named]
    found = receipts.find(name, salt=salt)
    if salt is None:
        found += receipts.linked(name, LinkKeys(parts.connection, parts.settings.model).all())
    return found


def covering_of_request(parts: Parts, receipts: Receipts, name: str, salt: str | None) -> SubjectReceipt | None:
    """Return the receipt that covers all documents of a subject that this request asked for, None without one.

    salt: as of `receipts_of_request`, and raises as it does.
    """
    if salt is not None:
        return receipts.covering(name, salt=salt)
    return receipts.covering_linked(name, LinkKeys(parts.connection, parts.settings.model).all())


def traces_of_receipt(parts: Parts, receipts: Receipts, receipt: Receipt) -> tuple[dict[Stage, int | None], str | None]:
    """Return when the traces of a deletion were gone, and the id of the completion that signs it.

    The times are signed where the deletion is complete, else as far as Redis knows; None for a stage that is ahead.
    The id is None before the completion.
    """
    completion = receipts.completion(receipt)
    reached: dict[Stage, int | None]
    if completion is not None:
        signed = completion.reached.get(receipt.partition, {})
        reached = {stage: signed.get(stage.value) for stage in Stage}
    else:
        residue = ResidueState(parts.connection, parts.settings.model).read()
        reached = residue.reached(receipt.partition, receipt.offset)
    # The receipt knows this time to the millisecond; marks say by when at the latest.
    reached[Stage.SUBTRACTED] = receipt.applied
    return reached, None if completion is None else completion.id


def waiting_deletion(parts: Parts, name: str) -> tuple[int, Forget] | None:
    """Return partition and entry of a deletion that is counted and waits for its receipt, None without one.

    name: request id, or the id that the receipt will have.
    """
    for partition in parts.reader.positions():
        offset = 0
        stream = parts.reader.forgets(partition)
        while page := stream.read(offset):
            offset = page[-1].offset + 1
            for forget in page:
                if name in {forget.request, receipt_id(parts.settings.model, partition, forget.offset)}:
                    return partition, forget
    return None
