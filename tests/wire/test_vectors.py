"""The test vectors in the docs are those of this program, and code of others agrees with them."""

import base64
import json
import shutil
import subprocess

import ledger_vectors
import pytest
from safetensors import safe_open

from streamtopic.signed import (
    KeyRing,
    Ledger,
)
from streamtopic.signed.checkpoints import hash_of
from waiting import flipped

VERIFIER = ledger_vectors.FILE.with_name("verify.mjs")
VECTORS = json.loads(ledger_vectors.FILE.read_text("utf-8"))
# Asks the verifier about each proof of a list: "" for one that verifies, or what it says.
ASK = """
import { readFileSync } from "node:fs";
const [module, texts, key] = JSON.parse(readFileSync(0, "utf8"));
const { verifyProof, readKey } = await import(module);
const said = (text) => { try { verifyProof(text, readKey(key)); return ""; } catch (error) { return error.message; } };
console.log(JSON.stringify(texts.map(said)));
"""
# Reads the words, the numbers of A and its shape.
READ = """
import { readFileSync } from "node:fs";
const [module, file] = JSON.parse(readFileSync(0, "utf8"));
const { readVersion } = await import(module);
const { fields, arrays } = readVersion(readFileSync(file));
console.log(JSON.stringify([fields.words, [...arrays.A.numbers], arrays.A.shape]));
"""


@pytest.fixture(scope="module")
def node():
    """Runs Node.js; returns the status and both outputs."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("the ledger and programs of others: needs node")

    def run(*arguments, given=""):
        command = [program, *map(str, arguments)]
        done = subprocess.run(command, check=False, input=given, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def files(tmp_path):
    """The receipt, the release and the key of the vectors, as `streamtopic` writes them."""
    receipt, release = VECTORS["receipt"], VECTORS["release"]
    (tmp_path / "mine.tlog-proof").write_text(receipt["proof"], "utf-8")
    (tmp_path / "model.safetensors").write_bytes(base64.b64decode(release["bytes"]))
    (tmp_path / "model.safetensors.tlog-proof").write_text(release["proof"], "utf-8")
    (tmp_path / "words.txt").write_text("".join(f"{word}\n" for word in release["words"]), "utf-8")
    (tmp_path / "signing.pub").write_text(receipt["key"] + "\n", "utf-8")
    return tmp_path


def test_the_file_is_what_this_program_makes():
    """A format that changes shows here: `python tests/wire/ledger_vectors.py` writes the file anew."""
    assert ledger_vectors.FILE.read_text("utf-8") == ledger_vectors.text()


def test_a_reader_knows_what_the_file_says():
    """Of a topic with strays, a rotation and a revoked key; read again once the revocation is known."""
    said = VECTORS["ledger"]
    ring = KeyRing.load(said["key"], "news")
    for outdated in (True, False):
        ledger = Ledger(ring)
        for value in said["records"]:
            ledger.take(value.encode())
        assert (ledger.size, ledger.root, ledger.strays) == (said["size"], hash_of(said["root"]), said["strays"])
        assert ledger.outdated is outdated
    assert [index for index in range(ledger.size) if ledger.is_void(index)] == said["void"]
    assert (ledger.newest, sorted(ledger.withdrawn)) == (said["newest"], said["withdrawn"])


ABOUT = ["--document", "d-7", "--request", "r-7", "--salt", VECTORS["receipt"]["salt"]]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ([], ""),
        (ABOUT, ""),
        (ABOUT[2:], ""),
        (["--document", "d-8", *ABOUT[4:]], "about another document"),
        ([*ABOUT[:2], "--salt", "0123456789abcdee"], "about another document"),
        (["--request", "r-8", *ABOUT[4:]], "of another request"),
        (ABOUT[:2], "by its salt only"),
        (["--offline", "yes"], "is not an option"),
    ],
)
def test_javascript_verifies_a_receipt(node, files, options, why):
    """By file and key, and for its own document, request and salt alone; else it says why not."""
    status, said, problem = node(VERIFIER, "receipt", files / "mine.tlog-proof", files / "signing.pub", *options)
    assert (status, said.startswith("receipt news/0/7: entry 2 of ")) == ((1, False) if why else (0, True))
    assert why in problem


def test_javascript_verifies_a_release(node, files):
    """Its bytes by the proof beside them; not by that of a receipt, nor with a byte changed, nor with other words."""
    path = files / "model.safetensors"
    status, said, problem = node(VERIFIER, "release", path, files / "signing.pub")
    assert (status, problem) == (0, "")
    assert said.startswith("version 1 of news: certified, epsilon 1")
    sound = path.read_bytes()
    path.write_bytes(flipped(sound))
    status, _, problem = node(VERIFIER, "release", path, files / "signing.pub")
    assert (status, "not those of the version" in problem) == (1, True)
    path.write_bytes(sound)
    (files / "words.txt").write_text("today\nnews\n", "utf-8")
    status, _, problem = node(VERIFIER, "release", path, files / "signing.pub")
    assert (status, "other words" in problem) == (1, True)
    (files / "model.safetensors.tlog-proof").write_text(VECTORS["receipt"]["proof"], "utf-8")
    status, _, problem = node(VERIFIER, "release", path, files / "signing.pub")
    assert (status, "not that of a version" in problem) == (1, True)


def test_javascript_and_safetensors_read_a_release(node, files):
    """Words and numbers are those of the vectors."""
    said = VECTORS["release"]
    with safe_open(files / "model.safetensors", framework="numpy") as file:
        assert json.loads(file.metadata()["release"])["words"] == said["words"]
        assert file.get_tensor("A").ravel().tolist() == said["A"]
    asked = json.dumps([VERIFIER.as_uri(), str(files / "model.safetensors")])
    status, found, problem = node("--input-type=module", "-e", READ, given=asked)
    assert (status, problem) == (0, "")
    assert json.loads(found) == [said["words"], said["A"], [2, 1]]


def test_javascript_refuses_what_we_refuse(node):
    """Every changed byte of a proof, a proof that is cut, and one under another key."""
    proof, key = VECTORS["receipt"]["proof"].encode(), VECTORS["receipt"]["key"]
    changed = [flipped(proof, place).decode(errors="replace") for place in range(len(proof))]
    changed += [proof[:end].decode(errors="replace") for end in range(0, len(proof), 7)]
    for texts, under, accepted in ((changed, key, 0), ([proof.decode()], key, 1), ([proof.decode()], other(), 0)):
        asked = json.dumps([VERIFIER.as_uri(), texts, under])
        status, said, problem = node("--input-type=module", "-e", ASK, given=asked)
        assert (status, problem) == (0, "")
        assert json.loads(said).count("") == accepted


def other():
    """The first key, which has not signed the proofs."""
    return VECTORS["keys"][0]["public"]
