"""Checkpoints, and proofs that stand alone in a file."""

import base64
import dataclasses

import pytest

from ledger_maker import key_of
from streamtopic.errors import InvalidRelease, UnknownKey
from streamtopic.signed import (
    Checkpoint,
    KeyList,
    KeyRing,
    LedgerProof,
    Revoked,
    seal_keys,
    sign_note,
)
from streamtopic.signed.checkpoints import text_of

ROOT = bytes(range(32))
CHECKPOINT = Checkpoint("test/news", 5, ROOT)


@pytest.fixture
def proofs(maker):
    """Proofs of eleven receipts in three pages, under the last checkpoint."""
    for first in (0, 4, 8):
        maker.append(*(maker.receipt(offset) for offset in range(first, min(first + 4, 11))))
    return [maker.proof(index) for index in range(11)]


def test_a_checkpoint_is_three_lines():
    """Origin, size and root, as any tool of C2SP reads them."""
    assert CHECKPOINT.text == f"test/news\n5\n{base64.b64encode(ROOT).decode()}\n"
    assert Checkpoint.parse(CHECKPOINT.text) == CHECKPOINT
    assert Checkpoint.parse(f"a\n0\n{text_of(ROOT)}\n").size == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "test/news\n5\n",
        CHECKPOINT.text[:-1],
        f"{CHECKPOINT.text}\n",
        f"{CHECKPOINT.text}an extension\n",
        CHECKPOINT.text.replace("\n5\n", "\n05\n"),
        CHECKPOINT.text.replace("\n5\n", "\n-5\n"),
        CHECKPOINT.text.replace("\n5\n", "\n+5\n"),
        CHECKPOINT.text.replace("\n5\n", "\n\u0665\n"),
        CHECKPOINT.text.replace("\n5\n", "\n\n"),
        CHECKPOINT.text.replace("\n5\n", f"\n{1 << 62}\n"),
        CHECKPOINT.text.replace("\n5\n", f"\n{'9' * 5000}\n"),
        CHECKPOINT.text.replace("=\n", "\n"),
        f"test/news\n5\n{base64.b64encode(bytes(31)).decode()}\n",
        f"test/news\n5\n{base64.b64encode(bytes(33)).decode()}\n",
        f"test/news\n5\n{base64.b64encode(bytes(32)).decode()[:-2]}B=\n",
    ],
)
def test_other_texts_are_no_checkpoints(text):
    """A number and a hash have one spelling, and there are no lines that nobody audits."""
    with pytest.raises(InvalidRelease):
        Checkpoint.parse(text)


def test_a_checkpoint_is_of_the_ledger_that_its_key_signs(maker):
    """A key of the same bytes may sign other notes; its name must be the origin."""
    note = sign_note(CHECKPOINT.text, maker.key)
    assert Checkpoint.open(note, maker.keys()) == (CHECKPOINT, maker.key.public)
    for text in (
        CHECKPOINT.text.replace("test/news", "test/mail"),
        CHECKPOINT.text.replace("test/news", "elsewhere/news"),
    ):
        with pytest.raises(InvalidRelease, match="ledger"):
            Checkpoint.open(sign_note(text, maker.key), maker.keys())
    with pytest.raises(UnknownKey):
        Checkpoint.open(sign_note(CHECKPOINT.text, key_of("news", 1)), maker.keys())


def test_any_changed_byte_of_a_proof_is_detected(maker, proofs):
    """Entry, index, path and checkpoint: no byte of the file can be changed, left out or added unseen."""
    data = proofs[6].encode()
    keys = maker.keys()
    for place in range(len(data)):
        flipped = [bytes([data[place] ^ flip]) for flip in (1, 4, 128)]
        for other in (*flipped, b"", data[place : place + 1] * 2):
            changed = data[:place] + other + data[place + 1 :]
            if changed == data:
                continue
            with pytest.raises(InvalidRelease):
                LedgerProof.parse(changed.decode(errors="replace")).verify(keys)
    for cut in range(len(data)):
        with pytest.raises(InvalidRelease):
            LedgerProof.parse(data[:cut].decode(errors="replace")).verify(keys)


def test_a_proof_of_a_void_entry_is_refused(maker, proofs):
    """Entries that a thief may have signed do not count, though the tree has them."""
    first, second, root = maker.key, key_of("news", 2), key_of("news", 9)
    ring = KeyRing.load(root.public, "news")
    keys = KeyList("test/news", 1, 0, first.public).rotated(second.public, 1)
    ring.take(seal_keys(keys.without(Revoked(first.public, 4, 8, 2)), root))
    # The old checkpoint is signed by the revoked key alone.
    with pytest.raises(UnknownKey, match="revoked"):
        LedgerProof.parse(proofs[0]).verify(ring)
    checkpoint = sign_note(Checkpoint.parse(proofs[0].split("\n\n")[1] + "\n").text, second)
    for index, text in enumerate(proofs):
        proof = dataclasses.replace(LedgerProof.parse(text), checkpoint=checkpoint)
        if 4 <= index < 8:
            with pytest.raises(InvalidRelease, match="is void"):
                proof.verify(ring)
        else:
            assert proof.verify(ring).index == index
