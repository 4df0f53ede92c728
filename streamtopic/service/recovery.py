"""After Redis was set back: what was published counts, whatever Redis remembers of it."""

from collections.abc import Sequence

from streamtopic.release import Envelope
from streamtopic.service.published import PublishedVersion
from streamtopic.service.staging import ledger_entry, release_record
from streamtopic.state import Lease, ModelState, Stale

__all__ = ["account", "adopt"]


def adopt(state: ModelState, lease: Lease, published: Sequence[PublishedVersion]) -> list[int]:
    """Write the records of published versions that Redis does not know; which ones.

    A Redis that was restored to an earlier moment may have forgotten versions that subscribers hold. Their numbers
    must not be used again, their epsilon stays spent, and deletions since then are measured against them.
    """
    newest = state.releases(1)
    known = newest[0][0] if newest else 0
    adopted = []
    for one in published:
        envelope = one.envelope
        if envelope.version <= known:
            continue
        record = release_record(envelope, chunks=one.chunks, warm=False, reason="read back from the log", seconds=0.0)
        if isinstance(state.adopt(lease, envelope.version, release=record, ledger=ledger_entry(envelope, "")), Stale):
            break
        adopted.append(envelope.version)
    return adopted


def account(state: ModelState, rivals: Sequence[Envelope]) -> None:
    """Write what was spent on releases that stand in the log under another one's number: they were seen as well."""
    for envelope in rivals:
        state.account(envelope.version, str(envelope.created), ledger_entry(envelope, ""))
