"""Completions are signed as receipts are, and a revoked key's count only up to the last link from before."""

import hashlib

import pytest

from streamtopic.errors import InvalidRelease
from streamtopic.signed import Completion, KeyList, KeyRing, Revoked, SigningKey, open_any, seal_completion

ROOT, NEW, STOLEN = (SigningKey.from_bytes(bytes([number]) * 32) for number in (1, 2, 3))


def test_of_a_revoked_key_only_completions_from_before_count():
    """The thief cannot say that nothing is left; what the service had said stays said."""
    sealed = [seal_completion(Completion(n, "", "news", n, 1, {0: n}, {0: {"log": 1}}), STOLEN) for n in (1, 2)]
    last = (1, hashlib.sha256(sealed[0]).hexdigest())
    keys = KeyList("news", 2, 1, NEW.public, (), (Revoked(STOLEN.public, {}, last, 1),))
    ring = KeyRing(ROOT.public, "news", keys=keys)
    assert open_any(sealed[0], ring).sequence == 1
    with pytest.raises(InvalidRelease, match="revoked"):
        open_any(sealed[1], ring)
