"""An auditor's check: receipts and a report of a service, with the public key alone, without Kafka or Redis.

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

import msgpack
from cryptography.hazmat.primitives.serialization import load_pem_public_key

SUBJECTS = ("rose tulip soil seed garden", "oven flour butter dough bread", "mast tide crew rope harbour")


def streamtopic(*arguments: str) -> str:
    """Run a command of streamtopic and return its output; fail where the command fails."""
    command = [sys.executable, "-m", "streamtopic", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def operator() -> str:
    """Make a model, forget a document, hand over three files; return the digest of the newest receipt."""
    texts = [" ".join(SUBJECTS[k % 3].split() * 3 + [SUBJECTS[(k + 1) % 3].split()[k % 5]]) for k in range(90)]
    lines = [json.dumps({"id": f"doc-{k}", "text": text}) for k, text in enumerate(texts)]
    Path("documents.jsonl").write_text("\n".join(lines))
    settings = ["--topics", "3", "--set", "max_df=1.0", "--set", "capacity_share=0.1"]
    streamtopic("demo", "--documents", "documents.jsonl", *settings, "--delete", "2", "--keep", "service")
    streamtopic("report", "2", "--to", "report.json", "--dir", "service")
    exported = streamtopic("receipts", "export", "--to", "receipts.jsonl", "--dir", "service", "--json")
    Path("signing.pub").write_bytes(Path("service/keys/signing.pub").read_bytes())
    return json.loads(exported)["head"]


def auditor(head: str) -> None:
    """Check the chain of receipts to its end, and the report; then the release's signature without streamtopic."""
    print(streamtopic("receipts", "verify", "receipts.jsonl", "--public-key", "signing.pub", "--head", head), end="")
    print(streamtopic("report", "--check", "report.json", "--public-key", "signing.pub"), end="")

    proof = json.loads(Path("report.json").read_text())["proof"]
    envelope = base64.b64decode(proof["envelope"])
    digests = {"envelope": hashlib.sha256(envelope).digest(), "payload": bytes.fromhex(proof["payload_sha256"])}
    signed = b"streamtopic " + msgpack.packb({"kind": "release", "parts": digests})
    key = load_pem_public_key(Path("signing.pub").read_bytes())
    key.verify(base64.b64decode(proof["signature"]), signed)  # raises InvalidSignature
    facts = msgpack.unpackb(envelope)
    print(f"signed: version {facts['version']} of {facts['m']} documents, {facts['forgotten']} forgotten")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        auditor(operator())
