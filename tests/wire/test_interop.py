"""Code that nobody here wrote verifies our ledger, and ours verifies what that code signs."""

import dataclasses
import json
import subprocess
from pathlib import Path

import pytest

import go_programs
from ledger_maker import LedgerMaker
from memory_log import MemoryLog
from streamtopic.signed import (
    COSIGNATURE,
    Checkpoint,
    PublicKey,
    SigningKey,
    cosigned,
    open_note,
    sign_note,
)
from streamtopic.signed.checkpoints import text_of
from waiting import flipped

ENTRIES = 600


@pytest.fixture(scope="module")
def go(tmp_path_factory):
    """The program of ./interop: asked with a command and an input, it answers in JSON."""
    program = go_programs.built(Path(__file__).parent / "interop", tmp_path_factory.mktemp("interop"))

    def ask(*arguments, given=None):
        text = None if given is None else json.dumps(given)
        done = subprocess.run([program, *arguments], check=False, input=text, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return ask


def test_go_verifies_a_whole_ledger(go):
    """Every checkpoint, root, growth and receipt, by Go's own sumdb/note and sumdb/tlog; a changed byte is refused."""
    maker, checkpoints, sizes = LedgerMaker(MemoryLog()), [], []
    while maker.ledger.size < ENTRIES:
        # In pages of all sizes from one entry.
        first, page = maker.ledger.size, len(sizes) + 1
        maker.append(*(maker.receipt(offset) for offset in range(first, min(first + page, ENTRIES))))
        checkpoints.append(maker.ledger.checkpoint)
        sizes.append(maker.ledger.size)
    growths = []
    for new, size in enumerate(sizes):
        for old in range(new + 1):
            path = list(map(text_of, maker.tree.consistency(sizes[old], size)))
            growths.append({"old": old, "new": new, "path": path})
    proofs = [maker.proof(index) for index in range(ENTRIES)]
    given = {"key": str(maker.key.public), "lines": maker.lines, "checkpoints": checkpoints, "growths": growths}
    changed = flipped(proofs[77].encode(), 200).decode(errors="replace")
    found = go("verify", given=given | {"proofs": [*proofs, changed]})
    assert found["Proofs"].pop()
    assert {name: len(verdicts) for name, verdicts in found.items()} == {
        "Checkpoints": len(sizes), "Roots": len(sizes), "Growths": len(growths), "Proofs": ENTRIES
    }  # fmt: skip
    assert {verdict for verdicts in found.values() for verdict in verdicts} == {""}


def test_we_verify_what_go_signs(go, tmp_path):
    """A key that Go made opens its note, reads as a file of ours, and signs the same bytes."""
    text = Checkpoint("example.org/news", 3, bytes(32)).text
    made = go("example.org/news", text)
    public = PublicKey.load(made["Public"])
    assert open_note(made["Note"], [public]) == (text, public)
    path = tmp_path / "signing.key"
    path.write_text(made["Private"] + "\n")
    path.chmod(0o600)
    key = SigningKey.load(path)
    assert key.public == public
    assert sign_note(text, key) == made["Note"]
    copy = tmp_path / "again.key"
    key.save(copy)
    assert copy.read_text() == path.read_text()


def test_we_count_what_a_witness_of_go_signs(go):
    """Its cosignature verifies under the key that it prints."""
    text = Checkpoint("example.org/news", 3, bytes(32)).text
    made = go("example.org/news", text)
    witness = PublicKey.parse(made["Witness"], COSIGNATURE)
    assert witness.name == "witness.example/w1"
    assert cosigned(made["Cosigned"], witness)
    assert not cosigned(made["Note"], witness)
    other = dataclasses.replace(witness, raw=bytes(32))
    assert not cosigned(made["Cosigned"], other)
