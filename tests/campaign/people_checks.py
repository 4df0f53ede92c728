"""Checks of requests against the oracle: what must be gone, and what their receipts count.

Everything follows from the topics: the records of the requests, the tombstones with their request ids, and the ledger.
Each check returns its findings, [] if all is well.
"""

import hashlib
import hmac

LONGEST_HOLD_MS = 300_000
"""So long a request holds a version back, as docs/messages.md says."""


def said_of(request, salt):
    """Return how receipts name a request: HMAC-SHA256 by the words of docs/messages.md, hexadecimal."""
    return hmac.new(salt, b"streamtopic request\0" + request.encode(), hashlib.sha256).hexdigest()


def open_demands(oracle, witness):
    """Return what requests still wait for; [] if all have their receipt, and the log forgets whom they named."""
    found = []
    for demand in oracle.demands.values():
        if said_of(demand.request, demand.salt) not in witness.covering:
            found.append(f"request {demand.request} has no receipt")
        elif not demand.erased:
            found.append(f"request {demand.request} has no tombstone, and the log keeps whom it names")
    return found


def check_people(oracle, witness):
    """Check that what requests name is gone, in one version each, and that their receipts count what they deleted."""
    findings = open_demands(oracle, witness)
    known = {said_of(demand.request, demand.salt): demand for demand in oracle.demands.values()}
    deletions, lives = _deletions(oracle), _lives(oracle)
    for name, demand in known.items():
        own = deletions.get((demand.request, demand.salt), {})
        findings += _parted(demand, own, witness)
        if name in witness.covering:
            findings += _coverage(name, own, witness)
            findings += _still_there(demand, own, lives, witness)
    strange = [receipt.id for name, (receipt, _) in witness.covering.items() if name not in known]
    return findings + [f"{receipt} is that of a request that nobody made" for receipt in strange]


def _deletions(oracle):
    """Return request id and salt to the deletions under them, by their places."""
    found = {}
    for partition, book in enumerate(oracle.books):
        for offset, deletion in book.deletions.items():
            found.setdefault((deletion.request, deletion.salt), {})[partition, offset] = deletion
    return found


def _lives(oracle):
    """Return the lives of documents about people, with their partitions."""
    return [(partition, life) for partition, book in enumerate(oracle.books) for life in book.lives if life.about]


def _still_there(demand, own, lives, witness):
    """Return the documents that came before the request was counted, and that live or are in a version after it.

    own: the deletions under its request id and salt.
    lives: of documents about people, with their partitions.
    """
    # It is counted later than that: all partitions count on until they have passed the last of its tombstones.
    counted_ms = max([demand.asked_ms, *(one.time_ms for one in own.values())])
    receipt, _ = witness.covering[said_of(demand.request, demand.salt)]
    later = {number: entry.cut for number, entry in witness.entries.items() if number >= receipt.version > 0}
    found = []
    for partition, life in lives:
        named = [subject for subject in demand.subjects if life.about.get(subject, counted_ms) < counted_ms]
        if not named:
            continue
        what = f"{life.document!r} is about {named[0]}, whom request {demand.request} has forgotten, and"
        if life.end is None:
            found.append(f"{what} lives")
        held = [number for number, cut in later.items() if life.holds(cut.get(partition, 0))]
        found += [f"{what} version {number} holds it" for number in held[:1]]
    return found


def _parted(demand, own, witness):
    """Return the versions that lack some documents of a request and hold others: they must leave in one version.

    own: the deletions under its request id and salt.
    """
    lives = {place: one.life for place, one in own.items() if one.life is not None}
    begun_ms = min((one.time_ms for one in own.values()), default=0)
    found = []
    for number, envelope in sorted(witness.entries.items()):
        gone = any(offset < envelope.cut.get(partition, 0) for partition, offset in lives)
        held = [place for place, life in lives.items() if life.holds(envelope.cut.get(place[0], 0))]
        # A request holds a version back for so long, and no longer.
        if gone and held and envelope.created - begun_ms < LONGEST_HOLD_MS:
            found.append(
                f"version {number} parts the documents of request {demand.request}: it holds {min(held)}, and lacks "
                "others"
            )
    return found


def _coverage(name, own, witness):
    """Compare the receipt of a request with its deletions.

    name: of the request in receipts.
    own: the deletions under its request id and salt.
    """
    receipt, index = witness.covering[name]
    found = {place for place, one in own.items() if one.life is not None}
    findings = [
        f"{receipt.id} comes before the receipt of {place}, which its request has deleted"
        for place in sorted(found)
        if witness.places.get(place, index) >= index
    ]
    if receipt.documents != len(found):
        findings.append(f"{receipt.id} counts {receipt.documents} documents, its request has deleted {len(found)}")
    version = max((witness.receipts[place].version for place in found & witness.receipts.keys()), default=0)
    if receipt.version != version:
        findings.append(f"{receipt.id} says gone from version {receipt.version} on, its receipts say {version}")
    return findings
