"""A privacy tool asks over HTTP to forget a person: OpenDSR request, signed callbacks, and the receipt that covers all.

pip install '.[demo,dashboard]' && python docs/examples/privacy_request.py
"""

import base64
import json
import subprocess
import sys
import tempfile
import threading
import urllib.request
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Queue
from uuid import uuid4

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from streamtopic.client import DocumentProducer, Receipts
from streamtopic.local import Authority, LocalRedis
from streamtopic.service.app import Service
from streamtopic.service.requests.deletion_lookup import covering_of_request
from streamtopic.settings import Settings

WORDS = ("rose tulip soil seed garden", "oven flour butter dough bread", "mast tide crew rope harbour")
GATEWAY = """
model = "{model}"
redis_url = "{redis}"
gateway_domain = "privacy.example"
gateway_certificate = "{pair}"
gateway_key = "{pair}"
gateway_identities = "email=subject"
gateway_private_callbacks = true      # for this machine alone: a tool elsewhere is called over HTTPS
"""
callbacks: Queue[tuple[str, bytes]] = Queue()


class PrivacyTool(BaseHTTPRequestHandler):
    """Keeps each callback with its signature."""

    def do_POST(self) -> None:
        """Take a callback."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        callbacks.put((self.headers["X-OpenDSR-Signature"], body))
        self.send_response(202)
        self.end_headers()


def ask(address: str, body: dict[str, object] | None = None) -> bytes:
    """Return what the gateway answers; with a body the request is a POST."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read()


def forget(service: Service, gateway: str, tool: str) -> str:
    """Ask to forget a person, and follow the request to its end; return its id."""
    name, now = str(uuid4()), datetime.now(UTC).isoformat()
    person = {"identity_type": "email", "identity_value": "ada@example.com", "identity_format": "raw"}
    body = {"subject_request_id": name, "subject_request_type": "erasure", "submitted_time": now}
    ask(f"{gateway}requests", body | {"subject_identities": [person], "status_callback_urls": [tool]})
    print("asked:", json.loads(ask(f"{gateway}requests/{name}"))["request_status"])
    service.settle()  # `streamtopic run` does this all the time
    print("polled:", json.loads(ask(f"{gateway}requests/{name}"))["request_status"])
    certificate = x509.load_pem_x509_certificate(ask(f"{gateway}cert.pem"))
    for _ in ("in_progress", "completed"):
        signature, said = callbacks.get(timeout=60)
        certificate.public_key().verify(base64.b64decode(signature), said, ec.ECDSA(hashes.SHA256()))  # raises
        print("called back:", json.loads(said)["request_status"], "(signature checked)")
    return name


def main(folder: Path, redis: str, tool: str) -> None:
    """Learn from 300 letters by 30 people, forget one of them, and check the receipt."""
    settings = Settings(dir=folder, redis_url=redis, topics=3, min_df=1, max_df=1.0, max_forget_lag=0, partitions=3)
    pair = Authority.opened(folder / "authority").issue("gateway", ["privacy.example"])
    (folder / "gateway.toml").write_text(GATEWAY.format(model=settings.model, redis=redis, pair=pair))
    command = [
        sys.executable,
        *["-m", "streamtopic", "gateway", "--port", "0", "--json", "--config"],
        folder / "gateway.toml",
    ]
    with Service(settings) as service, DocumentProducer(service.log, model=settings.model) as producer:
        for k in range(300):
            author = "ada@example.com" if k % 30 == 7 else f"customer-{k % 30}"
            producer.add(f"letter-{k}", text=f"{WORDS[k % 3]} {WORDS[k % 3].split()[k % 5]}", subjects=[author])
        service.settle()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
            try:
                name = forget(service, json.loads(running.stdout.readline())["address"], tool)
            finally:
                running.terminate()
        receipts = Receipts(service.log, model=settings.model, public_key=service.public_key)
        covering = covering_of_request(service, receipts, name, None)
        print(f"receipt: {covering.documents} documents, none is in version {covering.version}")
        print("checked:", receipts.problem(covering) or "each document has its own receipt")


if __name__ == "__main__":
    server = HTTPServer(("127.0.0.1", 0), PrivacyTool)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as temporary, LocalRedis() as local:
        main(Path(temporary), local.url, f"http://127.0.0.1:{server.server_port}/told")
    server.shutdown()
