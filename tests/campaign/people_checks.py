"""Checks of requests to forget a person against the oracle: who must be gone, and what their receipts count.

Everything follows from the documents topic: the records of the requests, the tombstones that end them, and the deletes
in between. Each check returns its findings, [] if all is well.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from campaign.oracle import Deletion, Oracle, PersonRequest
    from campaign.witness import Witness
    from streamtopic.signed import SubjectReceipt

__all__ = ["LONGEST_HOLD_MS", "check_people", "deletions_of", "open_people", "said_of"]

LONGEST_HOLD_MS = 300_000
"""So long a request holds a version back, as docs/messages.md says."""

Place = tuple[int, int]
"""Partition and offset of a record."""


def said_of(request: str, salt: bytes) -> str:
    """Return how receipts name a request: HMAC-SHA256 by the words of docs/messages.md, hexadecimal."""
    return hmac.new(salt, b"streamtopic request\0" + request.encode(), hashlib.sha256).hexdigest()


def deletions_of(oracle: Oracle) -> dict[str, dict[Place, Deletion]]:
    """Return request id to the deletions under it, by their places."""
    found: dict[str, dict[Place, Deletion]] = {}
    for partition, book in enumerate(oracle.books):
        for offset, deletion in book.deletions.items():
            found.setdefault(deletion.request, {})[partition, offset] = deletion
    return found


def open_people(oracle: Oracle, witness: Witness) -> list[str]:
    """Return what requests to forget a person still wait for; [] where all have ended and have their receipt."""
    covered = {receipt.request for receipt, _ in witness.covering.values()}
    every = range(len(oracle.books))
    found = []
    for asked in oracle.people.values():
        lasting = [partition for partition in every if partition not in asked.closed]
        if lasting:
            found.append(f"a request to forget {asked.subject} lasts in partitions {lasting}")
        elif said_of(asked.request, asked.salt) not in covered:
            found.append(f"a request to forget {asked.subject} has no receipt")
    return found


def check_people(oracle: Oracle, witness: Witness) -> list[str]:
    """Check that forgotten people are gone, each in one version, and that their receipts count what was deleted."""
    receipts = {receipt.request: (receipt, index) for receipt, index in witness.covering.values()}
    deletions = deletions_of(oracle)
    findings = []
    for asked in oracle.people.values():
        findings += _still_there(oracle, asked)
        own = {place: one for place, one in deletions.get(asked.request, {}).items() if one.salt == asked.salt}
        findings += _parted(asked, own, witness)
        name = said_of(asked.request, asked.salt)
        if name not in receipts:
            findings.append(f"the request {asked.request} to forget {asked.subject} has no receipt")
            continue
        receipt, index = receipts.pop(name)
        findings += _coverage(asked, receipt, index, own, witness)
        findings += _in_newest(asked, own, witness)
    findings += [f"{receipt.id} is that of a request that nobody made" for receipt, _ in receipts.values()]
    return findings


def _still_there(oracle: Oracle, asked: PersonRequest) -> list[str]:
    """Return the documents that named the person before the request ended, and that live."""
    found = []
    for partition, closed in asked.closed.items():
        for document, live in oracle.books[partition].live.items():
            if live.named.get(asked.subject, closed) < closed:
                found.append(
                    f"{document!r} is about {asked.subject}, who was forgotten at {partition}/{closed}, and lives"
                )
    return found


def _parted(asked: PersonRequest, own: Mapping[Place, Deletion], witness: Witness) -> list[str]:
    """Return the versions that lack some of a person's documents and hold others: they must leave in one version.

    own: the deletions under its request id and salt.
    """
    lives = {}
    for (partition, offset), one in own.items():
        # A request that is sent a second time deletes what has come since the end of the first.
        if one.span is not None and offset < asked.covered.get(partition, 0):
            lives[partition, offset] = one.span
    found = []
    for number, envelope in sorted(witness.entries.items()):
        gone = any(offset < envelope.cut.get(partition, 0) for partition, offset in lives)
        held = [place for place, span in lives.items() if span.holds(envelope.cut.get(place[0], 0))]
        # A request holds a version back for so long, and no longer.
        if gone and held and envelope.created - asked.asked_ms < LONGEST_HOLD_MS:
            found.append(
                f"version {number} parts the documents of {asked.subject}: it holds {min(held)}, and lacks others"
            )
    return found


def _coverage(
    asked: PersonRequest, receipt: SubjectReceipt, index: int, own: Mapping[Place, Deletion], witness: Witness
) -> list[str]:
    """Compare a receipt with the deletions of its request.

    index: number of entries before the receipt.
    own: the deletions under its request id and salt.
    """
    found = {place for place, one in own.items() if one.span is not None and place[1] > asked.opened.get(place[0], -1)}
    # What the same request has deleted when it was sent a second time, its first receipt need not count.
    must = {(partition, offset) for partition, offset in found if offset < asked.covered.get(partition, 0)}
    findings = [
        f"{receipt.id} stands before the receipt of {place}, which its request has deleted"
        for place in sorted(must)
        if witness.places.get(place, index) >= index
    ]
    if not len(must) <= receipt.documents <= len(found):
        findings.append(f"{receipt.id} counts {receipt.documents} documents, its request has deleted {len(must)}")
    least, most = (
        max((witness.receipts[place].version for place in places & witness.receipts.keys()), default=0)
        for places in (must, found)
    )
    if not least <= receipt.version <= most:
        findings.append(f"{receipt.id} says gone from version {receipt.version} on, its receipts say {most}")
    return findings


def _in_newest(asked: PersonRequest, own: Mapping[Place, Deletion], witness: Witness) -> list[str]:
    """Return the documents that a request has deleted and that the newest version holds."""
    if not witness.entries:
        return []
    number = max(witness.entries)
    cut = witness.entries[number].cut
    held = [place for place, one in own.items() if one.span is not None and one.span.holds(cut.get(place[0], 0))]
    return [f"version {number} holds the document at {place}, deleted for {asked.subject}" for place in sorted(held)]
