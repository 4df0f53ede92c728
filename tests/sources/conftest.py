"""A schema registry that answers as Confluent's does, over HTTP, for tests of records in Avro."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class Registry:
    """A schema registry: `register` gives numbers, `away` makes it fail, `asked` counts its answers.

    other: status and body that stand in place of each answer; None without them.
    """

    def __init__(self):
        self.schemas, self.asked, self.away, self.login, self.other = {}, 0, False, None, None
        registry = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self):
                registry.answer(self)

            def log_message(self, *_):
                """Nothing: a test prints what it needs."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, request):
        self.asked += 1
        wanted = None if self.login is None else "Basic " + base64.b64encode(self.login.encode()).decode()
        found = self.schemas.get(request.path.rpartition("/")[2]) if request.path.startswith("/schemas/ids/") else None
        status = 503 if self.away else 200 if found else 404
        if wanted is not None and request.headers.get("Authorization") != wanted:
            status = 401
        body = json.dumps(found if status == 200 else {"error_code": 40403, "message": "Schema not found"}).encode()
        if self.other is not None:
            status, body = self.other
        request.send_response(status)
        request.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def register(self, number, schema, **others):
        self.schemas[str(number)] = {"schema": json.dumps(schema), **others}
        return number

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def registry():
    """A registry of this test alone, on a port of its own."""
    server = Registry()
    yield server
    server.close()
