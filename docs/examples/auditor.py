"""An auditor's check: a receipt and a version of a service, with the public key alone, without Kafka or Redis.

pip install '.[demo]' && python docs/examples/auditor.py
"""

import base64
import contextlib
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

SUBJECTS = ("rose tulip soil seed garden", "oven flour butter dough bread", "mast tide crew rope harbour")
FILE, KEY = "receipt.tlog-proof", ("--key", "signing.pub")
VERSION = "model/model.safetensors.tlog-proof"


def streamtopic(*arguments: str) -> str:
    """Run a command of streamtopic and return its output; fail where the command fails."""
    command = [sys.executable, "-m", "streamtopic", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def operator() -> str:
    """Make a model, forget a document, hand over a proof, a model and a key; return the salt of the deletion."""
    texts = [" ".join(SUBJECTS[k % 3].split() * 3 + [SUBJECTS[(k + 1) % 3].split()[k % 5]]) for k in range(90)]
    lines = [json.dumps({"id": f"doc-{k}", "text": text}) for k, text in enumerate(texts)]
    Path("documents.jsonl").write_text("\n".join(lines))
    settings = ["--topics", "3", "--set", "max_df=1.0", "--set", "capacity.share=0.1"]
    streamtopic("demo", "--documents", "documents.jsonl", *settings, "--delete", "2", "--keep", "service")
    (request,) = json.loads(streamtopic("delete", "doc-89", "--dir", "service", "--json"))["requests"]
    streamtopic("receipt", request["id"], "--salt", request["salt"], "--proof", FILE, "--dir", "service")
    streamtopic("export", "--to", "model", "--dir", "service")
    Path("signing.pub").write_bytes(Path("service/keys/signing.pub").read_bytes())
    return request["salt"]


def auditor(salt: str) -> None:
    """Check both proofs with streamtopic, and then without it."""
    print(streamtopic("verify", FILE, *KEY, "--document", "doc-89", "--salt", salt), end="")
    print(streamtopic("verify", VERSION, *KEY), end="")
    for file in (FILE, VERSION):
        entry = signed(Path(file).read_text(), Path("signing.pub").read_text().strip())
        print(f"signed: {entry['kind']} of version {entry['version']}")


def signed(proof: str, key: str) -> dict:
    """Return the entry in a proof, whose hashes lead to the root that the key has signed."""
    (_, extra, index, *path), (_, size, root), signatures = (part.split("\n") for part in proof.split("\n\n"))
    public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key.split("+", 2)[2])[1:])
    text = proof.split("\n\n")[1] + "\n"
    public.verify(base64.b64decode(signatures[0].split()[2])[4:], text.encode())  # raises InvalidSignature
    entry = base64.b64decode(extra.split()[1])
    place, last, digest = int(index.split()[1]), int(size) - 1, hashlib.sha256(b"\0" + entry).digest()
    for other in map(base64.b64decode, path):
        left = place % 2 or place == last
        digest = hashlib.sha256(b"\1" + (other + digest if left else digest + other)).digest()
        while left and place and not place % 2:
            place, last = place // 2, last // 2
        place, last = place // 2, last // 2
    return json.loads(entry) if (last, digest) == (0, base64.b64decode(root)) else sys.exit("FAIL  another root")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        auditor(operator())
