"""RFC 6962, section 2.1, word for word and as slow: what the tree of the ledger is held against."""

import hashlib


def split(count):
    """The largest power of two below a number of entries."""
    power = 1
    while power * 2 < count:
        power *= 2
    return power


def root(entries):
    """MTH(D[n])."""
    if not entries:
        return hashlib.sha256(b"").digest()
    if len(entries) == 1:
        return hashlib.sha256(b"\x00" + entries[0]).digest()
    k = split(len(entries))
    return hashlib.sha256(b"\x01" + root(entries[:k]) + root(entries[k:])).digest()


def path(m, entries):
    """PATH(m, D[n]): the proof that entry m is in the tree."""
    if len(entries) == 1:
        return []
    k = split(len(entries))
    if m < k:
        return [*path(m, entries[:k]), root(entries[k:])]
    return [*path(m - k, entries[k:]), root(entries[:k])]


def proof(m, entries):
    """PROOF(m, D[n]): the proof that the tree begins with that of m entries."""
    return subproof(m, entries, whole=True)


def subproof(m, entries, *, whole):
    """SUBPROOF(m, D[n], b)."""
    if m == len(entries):
        return [] if whole else [root(entries)]
    k = split(len(entries))
    if m <= k:
        return [*subproof(m, entries[:k], whole=whole), root(entries[k:])]
    return [*subproof(m - k, entries[k:], whole=False), root(entries[:k])]
