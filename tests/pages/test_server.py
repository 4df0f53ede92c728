"""Who may read: hosts, sizes, the token and connections, against those who lie about them."""

import base64
import json
import logging
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
from pages_client import HOSTILE, TOKEN, served

from certificates import issue
from silent_crowd import crowd
from streamtopic.cli import main
from streamtopic.monitoring.logs import JsonLines
from streamtopic.pages.gate import Access


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "localhost.evil.example", "", "127.0.0.1.evil", "[", HOSTILE[:9]]
)
def test_a_strange_name_is_not_answered(ask, host):
    """A page whose name a stranger points at this machine reads nothing, and its name is not repeated."""
    reply = ask("/", Host=host)
    assert reply.status in {400, 421}
    assert "documents" not in reply.text
    assert not host or host not in reply.text


@pytest.mark.parametrize(
    ("sent", "source"),
    [
        (b"", "127.0.0.1"),
        (b"POST /requests HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{", "127.0.0.2"),
    ],
    ids=["nothing", "half"],
)
def test_silent_connections_shut_nobody_out(prepared, sent, source):
    """80 connections that never send a whole request come again and again; an ordinary client is always answered."""
    with served(prepared.settings) as ask, crowd(ask.port, sent=sent, source=source):
        assert [ask("/livez").status for _ in range(40)] == [200] * 40


def test_silent_connections_shut_nobody_out_of_tls(prepared, tmp_path):
    """A crowd that never agrees on TLS has no protocol yet, and its places are counted all the same."""
    own = issue(tmp_path, "serve", "127.0.0.1")
    with served(prepared.settings, certificate=(own, own), trust=own.with_name("ca.pem")) as ask, crowd(ask.port):
        assert [ask("/livez").status for _ in range(20)] == [200] * 20


def test_a_request_has_one_length(ask):
    """With Content-Length and Transfer-Encoding a proxy may see one request and the server two: it sees none."""
    head = f"POST /requests HTTP/1.1\r\nHost: 127.0.0.1:{ask.port}\r\nAuthorization: Bearer {TOKEN}\r\n"
    second = f"GET /livez HTTP/1.1\r\nHost: 127.0.0.1:{ask.port}\r\n\r\n"
    body = f"Content-Length: {5 + len(second)}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{second}"
    with socket.create_connection(("127.0.0.1", ask.port)) as connection, connection.makefile("rb") as replies:
        connection.sendall((head + body).encode())
        said = replies.read()
    assert said.startswith(b"HTTP/1.1 400 ")
    assert said.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("method", ["PUT", "DELETE", "TRACE", "OPTIONS", "PATCH"])
def test_other_methods_are_refused(ask, method):
    """Pages are read, requests are sent, and no page takes a form, with the token or without."""
    assert ask("/", method=method).status == 405
    for path in ("/", "/deletions", "/versions", "/rejected", "/metrics"):
        assert ask(path, "token=x", token=TOKEN).status == 405


def test_reading_needs_the_token_once_it_is_set(prepared):
    """A program gives it as a header, a browser asks its user for it as a password; probes need none."""
    with served(prepared.settings, Access(TOKEN, reading=True)) as ask:
        for path in ("/", "/deletions", "/versions/2", "/rejected", "/metrics", "/requests/x", "/nothing"):
            reply = ask(path)
            assert (reply.status, reply.headers["www-authenticate"].startswith("Basic")) == (401, True)
            assert "documents" not in reply.text
        assert [ask(path).status for path in ("/livez", "/readyz")] == [200, 200]
        basic = base64.b64encode(f"anybody:{TOKEN}".encode()).decode()
        assert ask("/", token=TOKEN).status == 200
        assert ask("/", Authorization=f"Basic {basic}").status == 200
        wrong = base64.b64encode(b"anybody:guessed").decode()
        for given in (f"Basic {wrong}", "Basic ?", "Basic", f"Digest {TOKEN}", TOKEN, f"Bearer {TOKEN}x", HOSTILE[:9]):
            assert ask("/", Authorization=given).status == 401


@pytest.mark.parametrize("path", ["/", "/nothing", "/versions/2", "/livez", "/metrics"])
def test_every_answer_has_the_headers(ask, path):
    """Nothing is kept, framed, guessed, run or loaded, also if the answer is a refusal."""
    for reply in (ask(path), ask(path, Host="evil.example")):
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["x-frame-options"] == "DENY"
        policy = reply.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "server" not in reply.headers


@pytest.mark.parametrize("text", [HOSTILE, "aZ" * 1500, "\x00\x01", "%s{{7*7}}", "../../etc/passwd"])
def test_nothing_that_is_typed_comes_back(ask, text):
    """An address and a query of a stranger are on no page."""
    quoted = "".join(f"%{byte:02x}" for byte in text[:500].encode())
    for path in (f"/{quoted}", f"/versions/{quoted}", f"/?refresh={quoted}&{quoted}=1"):
        reply = ask(path)
        assert reply.status in {200, 404}
        assert text not in reply.text
        assert "onerror" not in reply.text


def test_logs_hold_events_and_nothing_typed(ask, caplog):
    """Refusals are events; no token is in a line, whatever its form."""
    caplog.set_level(logging.DEBUG)
    ask("/requests", "{}", token="a wrong one")
    ask("/requests", json.dumps({"documents": ["d9"]}), token=TOKEN)
    lines = [JsonLines({}).format(record) + record.getMessage() for record in caplog.records]
    events = {json.loads(JsonLines({}).format(record))["event"] for record in caplog.records}
    assert {"serve_refused", "serve_requested"} <= events
    for secret in (TOKEN, "a wrong one", "d9"):
        assert not [line for line in lines if secret in line]


def test_the_command_refuses_what_is_unsafe(tmp_path, capsys):
    """A host for others without a token, a certificate without its key, a port that is taken."""
    (tmp_path / "streamtopic.toml").touch()
    usual = ["serve", "--dir", str(tmp_path)]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for more, said in (
            (["--host", "0.0.0.0"], "serve_token"),  # noqa: S104  it is refused
            (["--certificate", "x.pem"], "belong together"),
            (["--port", str(taken.getsockname()[1])], "name a port"),
        ):
            assert main([*usual, *more]) == 2
            assert said in capsys.readouterr().err


def test_the_program_serves_until_it_is_told_to_stop(prepared, tmp_path):
    """It says where it is, answers there, logs no address, and SIGTERM ends it with status 0."""
    settings = prepared.settings
    variables = {"STREAMTOPIC_REDIS_URL": settings.redis_url.get_secret_value(), "PATH": "", "HOME": str(tmp_path)}
    variables |= {"PYTHONPATH": ":".join(sys.path), "STREAMTOPIC_TOPICS": "2", "STREAMTOPIC_SERVE_TOKEN": TOKEN}
    words = [sys.executable, "-m", "streamtopic", "serve", "--dir", str(settings.dir), "--port", "0", "--json"]
    with subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = json.loads(process.stdout.readline())["address"]
            with urllib.request.urlopen(f"{address}livez?asked=by-nobody", timeout=120) as reply:  # noqa: S310  ours
                assert reply.status == 200
            process.send_signal(signal.SIGTERM)
            said, logged = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 0, logged
    assert "by-nobody" not in said + logged
    assert TOKEN not in said + logged
