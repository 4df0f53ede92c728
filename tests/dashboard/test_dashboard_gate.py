"""Who may read and act: hosts, origins, sizes, the token and visits, against those who lie about them."""

import ipaddress
import json
import logging
import signal
import socket
import subprocess
import sys
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from dashboard_client import HOSTILE, TOKEN, served

from silent_crowd import crowd
from streamtopic.cli import main
from streamtopic.dashboard.dashboard_server import TlsFiles, access_of
from streamtopic.dashboard.gate import MOST_BYTES, Access, Visits
from streamtopic.errors import SettingsError
from streamtopic.monitoring.endpoint import is_loopback
from streamtopic.monitoring.logs import JsonLines
from streamtopic.service.app import Service
from streamtopic.service.ingest.rejections import rejections
from streamtopic.settings import Settings, load


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "localhost.evil.example", "", "127.0.0.1.evil", "[", HOSTILE[:9]]
)
def test_a_strange_name_is_not_answered(ask, host):
    """A page whose name a stranger points at this machine reads nothing, and its name is not repeated."""
    reply = ask("/", Host=host)
    assert reply.status in {400, 421}
    assert "documents" not in reply.text
    assert not host or host not in reply.text


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9", "[::1]:80", "10.1.2.3"])
def test_own_names_are_answered(ask, host):
    """This machine, and addresses in numbers, which nobody can point elsewhere."""
    assert ask("/login", Host=host).status == 200


def test_a_name_can_be_given(prepared):
    """Behind a proxy the operator names the server."""
    with served(prepared.settings, Access(None, reading=False), frozenset({"topics.example"})) as ask:
        assert ask("/login", Host="topics.example:8443").status == 200
        assert ask("/login", Host="other.example").status == 421


@pytest.mark.parametrize(
    "sent",
    [b"", b"G", b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\ntok"],
    ids=["", "letter", "half"],
)
@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"], ids=["same", "other"])
def test_silent_connections_shut_nobody_out(prepared, sent, source):
    """80 connections that never send a whole request come again and again; an ordinary client is always answered."""
    with served(prepared.settings, Access(None, reading=False)) as ask, crowd(ask.port, sent=sent, source=source):
        assert [ask("/login").status for _ in range(40)] == [200] * 40


def test_silent_connections_shut_nobody_out_of_tls(prepared, tmp_path):
    """A crowd that never agrees on TLS has no protocol yet, and its places are counted all the same."""
    certificate = _certificate(tmp_path)
    with served(prepared.settings, Access(None, reading=False), certificate=certificate) as ask, crowd(ask.port):
        assert [ask("/login").status for _ in range(20)] == [200] * 20


def test_a_request_has_one_length(ask):
    """With Content-Length and Transfer-Encoding a proxy may see one request and the server two: it sees none."""
    head = f"POST /login HTTP/1.1\r\nHost: 127.0.0.1:{ask.port}\r\nOrigin: {ask.address}\r\n"
    second = f"GET /login HTTP/1.1\r\nHost: 127.0.0.1:{ask.port}\r\n\r\n"
    body = f"Content-Length: {5 + len(second)}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{second}"
    with socket.create_connection(("127.0.0.1", ask.port)) as connection, connection.makefile("rb") as replies:
        connection.sendall((head + body).encode())
        said = replies.read()
    assert said.startswith(b"HTTP/1.1 400 ")
    assert said.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("path", ["/login", "/deletions", "/rejected/retry", "/requests/decide"])
def test_a_form_of_many_fields_is_answered_as_any_other(ask, path, caplog):
    """Nobody without a visit makes the dashboard fail, whatever a form of the allowed length holds."""
    many = "&".join(f"token={k}" for k in range(600))
    assert ask(path, body=many).status in {200, 403}
    assert "Traceback" not in caplog.text


def test_a_visitor_that_leaves_in_the_middle_is_no_error(ask, caplog):
    """Half a form and a broken connection leave nothing in the log."""
    head = f"POST /login HTTP/1.1\r\nHost: 127.0.0.1:{ask.port}\r\nOrigin: {ask.address}\r\nContent-Length: 99\r\n"
    with socket.create_connection(("127.0.0.1", ask.port)) as left:
        left.sendall(f"{head}\r\nhalf".encode())
    for _ in range(3):
        assert ask("/login").status == 200
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize(
    "origin", [None, "null", "http://evil.example", "http://127.0.0.1:1", "", "ftp://127.0.0.1", "http://["]
)
def test_a_foreign_form_is_refused(ask, origin, prepared):
    """A form that another site, another port or a hidden origin sent does nothing, whatever cookie comes with it."""
    cookie = ask.login()
    form = ask("/rejected", Cookie=cookie).form
    forms = {"/login": {"token": TOKEN}, "/deletions": {"request": prepared.done}, "/rejected/retry": {"form": form}}
    for path, fields in forms.items():
        reply = ask(path, fields, Origin=origin, Cookie=cookie)
        assert reply.status == 403
        assert "set-cookie" not in reply.headers


@pytest.mark.parametrize("token", ["", "guessed-token", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), HOSTILE])
def test_a_wrong_token_opens_nothing(ask, token):
    """It is refused in words, is not repeated on the page, and sets no cookie."""
    reply = ask("/login", {"token": token})
    assert reply.status == 403
    assert "That is not the token." in reply.text
    assert "set-cookie" not in reply.headers
    assert not token or token not in reply.text


def test_a_visit_s_cookie_goes_nowhere_else(ask):
    """No script reads it, and no other site makes a browser send it."""
    said = ask("/login", {"token": TOKEN}).headers["set-cookie"].lower()
    assert "httponly" in said
    assert "samesite=strict" in said
    assert "domain" not in said


def _certificate(folder):
    """Write a certificate for this machine that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    own = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    signed = builder.add_extension(own, critical=False).sign(key, hashes.SHA256())
    made = TlsFiles(folder / "certificate.pem", folder / "key.pem")
    made.certificate.write_bytes(signed.public_bytes(Encoding.PEM))
    made.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return made


def test_with_a_certificate_a_visit_is_for_tls_alone(prepared, tmp_path):
    """The pages come over TLS that a reader can verify, and the cookie never goes in the clear."""
    with served(prepared.settings, Access(TOKEN, reading=True), certificate=_certificate(tmp_path)) as ask:
        reply = ask("/login", {"token": TOKEN})
        assert "secure" in reply.headers["set-cookie"].lower()
        assert ask("/", Cookie=reply.cookie).status == 200


def test_an_act_needs_a_visit_and_its_form(ask):
    """No cookie, a cookie of nobody, no form, the form of another visit: nothing is sent again."""
    cookie, other = ask.login(), ask.login()
    form = ask("/rejected", Cookie=other).form
    invented = cookie.partition("=")[0] + "=invented"
    for fields, given in (({"form": form}, None), ({"form": form}, invented), ({}, cookie), ({"form": form}, cookie)):
        reply = ask("/rejected/retry", fields, Cookie=given)
        assert reply.status == 403
        assert "Log in first." in reply.text
    assert ask("/rejected/retry").status == 405


def test_a_retry_sends_refused_records_again(ask, refused_again, prepared):
    """It does what `streamtopic rejected retry` does, tells the outcome once, and a reload repeats nothing."""
    refused_again("again-1")
    cookie = ask.login()
    with Service(prepared.settings) as service:
        before = service.log.end(service.names.documents, 0)
    reply = ask("/rejected/retry", {"form": ask("/rejected", Cookie=cookie).form}, Cookie=cookie)
    assert (reply.status, reply.headers["location"]) == (303, "/rejected")
    page = ask("/rejected", Cookie=cookie).text
    assert "<dt>sent again</dt><dd>1</dd>" in page
    assert "Retried" not in ask("/rejected", Cookie=cookie).text
    with Service(prepared.settings) as service:
        assert service.log.end(service.names.documents, 0) == before + 1
        assert any(one.document == b"again-1" for one in rejections(service.log, service.names))


def test_a_visit_ends(ask):
    """After logging out its cookie and its form are worth nothing."""
    cookie = ask.login()
    form = ask("/rejected", Cookie=cookie).form
    assert ask("/logout", {}, Cookie=cookie).status == 303
    assert ask("/rejected/retry", {"form": form}, Cookie=cookie).status == 403
    assert 'name="form"' not in ask("/rejected", Cookie=cookie).text


def test_visits_end_by_themselves():
    """After half a day, and the oldest where there are too many."""
    now = [0.0]
    visits = Visits(lambda: now[0])
    first = visits.begin()
    assert visits.find(first) is not None
    others = [visits.begin() for _ in range(300)]
    assert visits.find(first) is None
    now[0] += 12 * 3600
    assert visits.find(others[-1]) is None


def test_reading_can_need_the_token_too(prepared):
    """With a token set, no page but the one to log in says anything; a lookup does not either."""
    with served(prepared.settings, Access(TOKEN, reading=True)) as ask:
        for path in ("/", "/deletions", "/topics/2/pictures", "/health"):
            reply = ask(path)
            assert (reply.status, reply.headers["location"], reply.text) == (303, "/login", "")
        assert ask("/deletions", {"request": prepared.done}).status == 303
        assert ask("/", Cookie=ask.login()).status == 200


@pytest.mark.parametrize("length", [str(MOST_BYTES + 1), "99999999999999", "-1", "x", None])
def test_a_huge_form_is_not_read(ask, length):
    """A form that is too long, or of a length that is not said, is refused before its body is read."""
    reply = ask("/login", body="token=x" if length is None else "", method="POST", Content_Length=length)
    assert reply.status in {400, 413}


@pytest.mark.parametrize("method", ["PUT", "DELETE", "TRACE", "OPTIONS", "PATCH"])
def test_other_methods_are_refused(ask, method):
    """Pages are read, and forms are sent."""
    assert ask("/", method=method).status == 405


@pytest.mark.parametrize("text", [HOSTILE, "aZ" * 1500, "\x00\x01", "%s{{7*7}}", "../../etc/passwd"])
def test_nothing_that_is_typed_comes_back(ask, text):
    """An id, a salt, an address and a query of a stranger are on no page."""
    quoted = "".join(f"%{byte:02x}" for byte in text[:500].encode())
    replies = [
        ask("/deletions", {"request": text, "salt": text}),
        ask("/deletions", {"request": "x", text: text}),
        ask(f"/{quoted}"),
        ask(f"/topics?version={quoted}"),
        ask(f"/?live={quoted}&{quoted}=1"),
    ]
    for reply in replies:
        assert reply.status in {200, 404}
        assert text not in reply.text
        assert "onerror" not in reply.text


@pytest.mark.parametrize("path", ["/", "/style.css", "/nothing", "/login", "/topics/2/pictures"])
def test_every_answer_has_the_headers(ask, path):
    """Nothing is kept, framed, guessed or loaded from elsewhere; pages with scripts allow their own file alone."""
    headers = ask(path).headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-inline" not in policy.partition("style-src 'unsafe-inline'")[2]
    assert ("'unsafe-inline'" in policy) == path.endswith("/pictures")
    assert "server" not in headers


def test_refusals_also_have_the_headers(ask):
    """A stranger's name or form gets them as well."""
    for reply in (ask("/", Host="evil.example"), ask("/login", {"token": "x"}, Origin="null")):
        assert reply.headers["x-frame-options"] == "DENY"


def test_logs_hold_events_and_nothing_typed(ask, prepared, caplog):
    """Visits, refusals and acts are events; no id, salt or token is in a line, whatever its form."""
    caplog.set_level(logging.DEBUG)
    cookie = ask.login()
    ask("/login", {"token": "a wrong one"})
    ask("/deletions", {"request": prepared.done, "salt": prepared.done.salt})
    ask("/rejected/retry", {"form": ask("/rejected", Cookie=cookie).form}, Cookie=cookie)
    lines = [JsonLines({}).format(record) + record.getMessage() for record in caplog.records]
    events = {json.loads(JsonLines({}).format(record))["event"] for record in caplog.records}
    assert {"dashboard_login", "dashboard_refused", "dashboard_retried"} <= events
    for secret in (TOKEN, "a wrong one", str(prepared.done), prepared.done.salt):
        assert not [line for line in lines if secret in line]


def test_others_read_with_a_token_alone(tmp_path):
    """A host that other machines reach needs the setting; this machine reads without, and acts with a drawn one."""
    with pytest.raises(SettingsError, match="dashboard_token"):
        access_of(Settings(dir=tmp_path), "0.0.0.0", drawn=True)  # noqa: S104  it is refused
    assert access_of(Settings(dir=tmp_path), "127.0.0.1", drawn=False) == Access(None, reading=False)
    drawn = access_of(Settings(dir=tmp_path), "::1", drawn=True)
    assert (len(drawn.token) >= 16, drawn.reading) == (True, False)
    given = access_of(load({"dashboard_token": TOKEN}), "10.0.0.1", drawn=True)
    assert (given.opens(TOKEN), given.reading) == (True, True)
    assert not Access(None, reading=False).opens("")
    with pytest.raises(SettingsError, match="dashboard_token"):
        load({"dashboard_token": "short"})


@pytest.mark.parametrize(
    ("host", "alone"),
    [
        ("localhost", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("0.0.0.0", False),  # noqa: S104  it is asked about
        ("::", False),
        ("host.example", False),
    ],
)
def test_loopback_is_known(host, alone):
    """Only addresses that no other machine reaches."""
    assert is_loopback(host) == alone


def test_the_command_refuses_what_is_unsafe(tmp_path, capsys):
    """A host for others without a token, a certificate without its key, a port that is taken."""
    (tmp_path / "streamtopic.toml").touch()
    usual = ["dashboard", "--dir", str(tmp_path)]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for more, said in (
            (["--host", "0.0.0.0"], "dashboard_token"),  # noqa: S104  it is refused
            (["--certificate", "x.pem"], "belong together"),
            (["--port", str(taken.getsockname()[1])], "--port PORT"),
        ):
            assert main([*usual, *more]) == 2
            assert said in capsys.readouterr().err


def test_the_program_serves_until_it_is_told_to_stop(prepared, tmp_path):
    """It says where it is, answers there, logs no address, and SIGTERM ends it with status 0."""
    settings = prepared.settings
    variables = {"STREAMTOPIC_REDIS_URL": settings.redis_url.get_secret_value(), "PATH": "", "HOME": str(tmp_path)}
    variables |= {"PYTHONPATH": ":".join(sys.path), "STREAMTOPIC_TOPICS": "2", "STREAMTOPIC_DASHBOARD_TOKEN": TOKEN}
    words = [sys.executable, "-m", "streamtopic", "dashboard", "--dir", str(settings.dir), "--port", "0", "--json"]
    with subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = json.loads(process.stdout.readline())["address"]
            with urllib.request.urlopen(f"{address}login?asked=by-nobody", timeout=120) as reply:  # noqa: S310  it is ours
                assert reply.status == 200
            process.send_signal(signal.SIGTERM)
            said, logged = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 0, logged
    assert "by-nobody" not in said + logged
    assert TOKEN not in said + logged


def test_every_line_of_the_server_has_the_name_of_an_event():
    """A stranger who does not speak HTTP leaves no line, and a page that fails beside its own handler leaves one."""
    code = """
import socket, threading
from streamtopic.commands.dashboard import _log
from streamtopic.dashboard.dashboard_server import dashboard_server, listening
async def pages(scope, receive, send): raise RuntimeError("a secret")
_log("news")
with listening("127.0.0.1", 0) as listener:
    server = dashboard_server(pages, listener)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    lines = ["no HTTP", "GET / HTTP/1.1\\r\\nHost: a\\r\\nConnection: upgrade\\r\\nUpgrade: websocket"]
    for line in lines:
        with socket.create_connection(listener.getsockname()) as one:
            one.sendall(line.encode() + b"\\r\\n\\r\\n")
            one.recv(1000)
    server.should_exit = True
    thread.join(60)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    (line,) = map(json.loads, done.stderr.splitlines())
    assert (line["event"], line["error"]) == ("dashboard_failed", "RuntimeError")
    assert "secret" not in done.stderr
