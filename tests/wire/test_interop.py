"""Code that nobody here wrote verifies our ledger, and ours verifies what that code signs."""

import dataclasses
import json
import subprocess
from pathlib import Path

import ledger_vectors
import pytest
from sent_records import Sent

import go_programs
from ledger_maker import LedgerMaker
from streamtopic.errors import InvalidRelease
from streamtopic.signed import (
    COSIGNATURE,
    Checkpoint,
    LedgerProof,
    PublicKey,
    SigningKey,
    cosigned,
    open_note,
    sign_note,
)
from streamtopic.signed.checkpoints import text_of
from waiting import flipped

ENTRIES = 600
VECTORS = json.loads(ledger_vectors.FILE.read_text("utf-8"))


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


@pytest.fixture(scope="module")
def ledger():
    """A ledger of 600 receipts, in pages of all sizes from one entry: its maker and all its checkpoints."""
    maker, checkpoints = LedgerMaker(Sent()), []
    page = 1
    while maker.ledger.size < ENTRIES:
        first = maker.ledger.size
        maker.append(*(maker.receipt(offset) for offset in range(first, min(first + page, ENTRIES))))
        checkpoints.append(maker.ledger.checkpoint)
        page += 1
    return maker, checkpoints


def growths(maker, checkpoints):
    """The proof of each growth from an earlier checkpoint to a later one."""
    sizes = [size_of(checkpoint) for checkpoint in checkpoints]
    pairs = [(old, new) for new in range(len(sizes)) for old in range(new + 1)]
    paths = [[text_of(one) for one in maker.tree.consistency(sizes[old], sizes[new])] for old, new in pairs]
    return [{"old": old, "new": new, "path": path} for (old, new), path in zip(pairs, paths, strict=True)]


def size_of(checkpoint):
    """The size that a checkpoint names."""
    return int(checkpoint.split("\n")[1])


def asked(ledger, **changes):
    """All that is to be verified of a ledger."""
    maker, checkpoints = ledger
    proofs = [maker.proof(index) for index in range(ENTRIES)]
    whole = {"key": str(maker.key.public), "lines": maker.lines, "checkpoints": checkpoints, "proofs": proofs}
    return whole | {"growths": growths(*ledger)} | changes


def test_go_verifies_a_whole_ledger(go, ledger):
    """Every checkpoint, root, growth and receipt, by Go's own sumdb/note and sumdb/tlog."""
    found = go("verify", given=asked(ledger))
    assert {name: len(verdicts) for name, verdicts in found.items()} == {
        "Checkpoints": len(ledger[1]),
        "Roots": len(ledger[1]),
        "Growths": len(ledger[1]) * (len(ledger[1]) + 1) // 2,
        "Proofs": ENTRIES,
    }
    assert {verdict for verdicts in found.values() for verdict in verdicts} == {""}


def test_go_refuses_what_we_refuse(go, ledger):
    """Changed bytes of checkpoints, paths and proofs: both sides agree on each of them."""
    maker, checkpoints = ledger
    proof = maker.proof(77).encode()
    changed = [flipped(proof, place).decode(errors="replace") for place in range(len(proof))]
    notes = [checkpoints[3].encode(), *(flipped(checkpoints[3].encode(), place) for place in range(9, 60))]
    given = asked(ledger, proofs=changed, checkpoints=[note.decode(errors="replace") for note in notes], growths=[])
    found = go("verify", given=given)
    assert found["Checkpoints"][0] == ""
    assert all(found["Checkpoints"][1:])
    # Go passes over the bits behind the last byte of a text in base64: of entry, hashes and signature.
    assert sum(verdict == "" for verdict in found["Proofs"]) <= 3
    for text in changed:
        with pytest.raises(InvalidRelease):
            LedgerProof.parse(text).verify(maker.keys())


def test_go_refuses_a_ledger_that_has_changed_its_past(go, ledger):
    """Signed by the right key: a fork of the first ten entries does not grow into the others."""
    _, checkpoints = ledger
    fork = LedgerMaker(Sent())
    fork.append(*(fork.receipt(1000 + offset) for offset in range(10)))
    place = next(place for place, one in enumerate(checkpoints) if size_of(one) == 10)
    forged = [*checkpoints[:place], fork.ledger.checkpoint, *checkpoints[place + 1 :]]
    found = go("verify", given=asked(ledger, checkpoints=forged, proofs=[]))
    assert set(found["Checkpoints"]) == {""}
    assert found["Roots"][place]
    asked_growths = growths(*ledger)
    touched = [(one["old"] == place) != (one["new"] == place) for one in asked_growths]
    assert [bool(verdict) for verdict in found["Growths"]] == touched


def test_go_verifies_the_test_vectors(go):
    """The file in the docs: its ledger, its receipt and its release."""
    whole, receipt, release = (VECTORS[name] for name in ("ledger", "receipt", "release"))
    checkpoints = [receipt["proof"].partition("\n\n")[2]]
    given = {"key": receipt["key"], "lines": [one["line"] for one in VECTORS["entries"]], "checkpoints": checkpoints}
    found = go("verify", given=given | {"growths": [], "proofs": [receipt["proof"], release["proof"]]})
    assert found == {"Checkpoints": [""], "Roots": [""], "Growths": None, "Proofs": ["", ""]}
    assert whole["root"] in checkpoints[0]


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
    assert cosigned(made["Cosigned"], [witness]) == {"witness.example/w1"}
    assert cosigned(made["Note"], [witness]) == frozenset()
    other = dataclasses.replace(witness, raw=bytes(32))
    assert cosigned(made["Cosigned"], [other]) == frozenset()
