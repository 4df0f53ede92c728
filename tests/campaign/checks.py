"""Checks of Redis and of everything published against the oracle. Each returns its findings, [] if all is well."""

from collections import Counter

import numpy as np

from campaign.people_checks import said_of

_SHOWN = 5
_TOTALS = (
    "added",
    "replaced",
    "unchanged",
    "deleted",
    "not_found",
    "rejected",
    "deleted_by_refusal",
    "forwarded",
)


def check_counts(oracle, reader):
    """Compare every pair, every word and every counter, bit for bit."""
    expected = oracle.counts()
    words, whole = reader.read(lambda counts: (counts.words, counts.restrict(np.arange(len(counts.words)))))
    rows = np.repeat(np.arange(whole.n_words), np.diff(whole.indptr)).tolist()
    stored = zip(rows, whole.columns.tolist(), whole.values.tolist(), strict=True)
    # The oracle names a pair with its lesser word first, and so does an upper triangle over sorted words.
    pairs = {(words[row], words[column]): value for row, column, value in stored}
    findings = _differences("pair", expected.pairs, pairs)
    for what, want, have in (
        ("documents with", expected.frequency, whole.frequency),
        ("tokens of", expected.tokens, whole.tokens),
        ("documents heavy with", expected.heavy, whole.heavy),
    ):
        findings += _differences(what, want, dict(zip(words, have.tolist(), strict=True)))
    if whole.documents != expected.documents:
        findings.append(f"{whole.documents} documents are counted, {expected.documents} live")
    for partition, meta in reader.positions().items():
        book = oracle.books[partition]
        if meta.documents != len(book.live):
            findings.append(
                f"partition {partition} says {meta.documents} live documents, the log says {len(book.live)}"
            )
        have = {name: meta.totals.get(name, 0) for name in _TOTALS}
        findings += _differences(f"total of partition {partition},", {n: book.totals[n] for n in _TOTALS}, have)
    return findings


def check_documents(oracle, stored):
    """Check that Redis keeps records of exactly the live documents: a deleted document is physically gone.

    stored: partition to the ids in Redis.
    """
    findings = []
    for partition, book in enumerate(oracle.books):
        have, want = stored[partition], set(book.live)
        findings += _some(f"partition {partition} keeps a document that is gone:", have - want)
        findings += _some(f"partition {partition} lost a document:", want - have)
    return findings


def check_forwards(oracle):
    """Check that each delete in a foreign partition took effect where it belongs."""
    return _some("it never took effect in the partition of its key:", oracle.missing())


def check_rejected(oracle, witness):
    """Check that exactly the refused records were reported."""
    want = {(partition, offset) for partition, book in enumerate(oracle.books) for offset in book.refused}
    return [
        *_some("a refused record was not reported:", want - witness.rejected),
        *_some("a record was reported that must not be refused:", witness.rejected - want),
    ]


def check_receipts(oracle, witness):
    """Check that each deletion has one true receipt, and that the document is gone from the receipt's version on."""
    want = {(p, offset): one for p, book in enumerate(oracle.books) for offset, one in book.deletions.items()}
    findings = _some("a deletion has no receipt:", want.keys() - witness.receipts.keys())
    findings += _some("a receipt is for no deletion:", witness.receipts.keys() - want.keys())
    cuts = {version: entry.cut for version, entry in witness.entries.items()}
    wrong = []
    for place in want.keys() & witness.receipts.keys():
        deletion, receipt = want[place], witness.receipts[place]
        if receipt.found != (deletion.life is not None) or bool(receipt.link) != bool(deletion.request):
            wrong.append(f"{receipt.id} says {receipt.found} of {deletion}")
        # The requester can tell that this is the receipt of the deletion, and nobody if no salt was sent.
        known = deletion.request and deletion.salt
        if receipt.request != (said_of(deletion.request, deletion.salt) if known else ""):
            wrong.append(f"{receipt.id} is not that of {deletion}")
        if deletion.life is not None:
            wrong += [
                f"{receipt.id} says gone from version {receipt.version} on, version {version} holds the document"
                for version, cut in cuts.items()
                if version >= receipt.version and deletion.life.holds(cut.get(place[0], 0))
            ]
        if receipt.version not in cuts:
            wrong.append(f"{receipt.id} names version {receipt.version}, which nobody published")
    return findings + _some("receipt", wrong)


def check_ledger(witness):
    """Check that the ledger is one tree, by the words of the docs and for a subscriber alike."""
    book, ledger = witness.book, witness.ledger
    findings = [*witness.findings, *_some("", book.contradictions())]
    if ledger.gaps:
        findings.append(f"the ledger lacks entries: {', '.join(ledger.missing)}")
    size = len(book.lines)
    if (size, book.root(size), book.strays) != (ledger.size, ledger.root, ledger.strays):
        findings.append(
            f"the ledger has {size} entries and {book.strays} strays by the docs, {ledger.size} and {ledger.strays} "
            "for a subscriber"
        )
    return findings


def check_versions(oracle, witness):
    """Check that versions follow each other, hold the documents before their cuts, and that epsilon only grows."""
    findings, entries, sent = [], witness.entries, witness.releases.sent
    if sorted(entries) != list(range(1, len(entries) + 1)):
        findings.append(f"versions {sorted(entries)} are not numbered without a gap")
    spent = {}
    for version, entry in sorted(entries.items()):
        if entry.parent != version - 1:
            findings.append(f"version {version} names {entry.parent} as the one before")
        before, epsilon = spent.get(entry.base, (0, 0.0))
        if entry.cumulative_epsilon <= epsilon:
            findings.append(f"epsilon did not grow: {epsilon} at {before}, {entry.cumulative_epsilon} at {version}")
        spent[entry.base] = version, entry.cumulative_epsilon
        held = sum(life.holds(entry.cut.get(p, 0)) for p, book in enumerate(oracle.books) for life in book.lives)
        if entry.m != held:
            findings.append(f"version {version} ({entry.kind}) holds {entry.m} documents, {held} lived at its cut")
        if not sent.get(version, set()) <= {entry.release}:
            findings.append(f"version {version} was sent with other bytes than its entry names")
    findings += [f"version {version} was sent without an entry" for version in sent.keys() - entries.keys()]
    # The bytes of an older one may have been lost with Redis; then a later one has taken its place.
    if entries and max(entries) not in sent:
        findings.append(f"the bytes of version {max(entries)}, the newest, were never sent")
    return findings


def check_subscribers(witness, subscribers):
    """Check that every subscriber got versions in order up to the newest, each with its published facts and bytes."""
    findings = []
    newest = max(witness.entries, default=0)
    for number, subscriber in enumerate(subscribers):
        findings += subscriber.findings
        if subscriber.refused:
            findings.append(f"subscriber {number} refused {subscriber.refused} releases")
        for version, (facts, digest) in subscriber.seen.items():
            entry = witness.entries.get(version)
            if entry != facts or entry.release != digest:
                findings.append(f"subscriber {number} holds a version {version} that differs from the published one")
        if max(subscriber.seen, default=0) != newest:
            findings.append(f"subscriber {number} is at version {max(subscriber.seen, default=0)}, not at {newest}")
    return findings


def _differences(what, want, have):
    wrong = [key for key in want.keys() | have.keys() if want.get(key, 0) != have.get(key, 0)]
    return _some("", [f"{what} {key}: {have.get(key, 0)} stored, {want.get(key, 0)} expected" for key in wrong])


def _some(what, found):
    """Return the first few of many findings of one kind."""
    texts = sorted(f"{what} {one}".strip() for one in Counter(found))
    return texts[:_SHOWN] + ([f"... and {len(texts) - _SHOWN} more like these"] if len(texts) > _SHOWN else [])
