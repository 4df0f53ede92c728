"""Callbacks come at least once, signed and in order, and never to an address that must not be reached through us."""

import datetime as dt
import socket
import ssl
import threading

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from streamtopic.errors import SettingsError, UsageError
from streamtopic.gateway import callback_sender
from streamtopic.gateway.callback_addresses import CallbackAddress, CallbackFailed, post
from streamtopic.gateway.callback_sender import GIVE_UP_MS, CallbackSender, SenderOptions
from streamtopic.gateway.response_signing import ResponseSigner
from streamtopic.state import Connection
from streamtopic.state.deletion_requests import DeletionRequests, RequestState

ID = "a7551968-d5d6-44b2-9831-815ac9017798"
PUBLIC = socket.getaddrinfo


def asked(gateway, url):
    """Take in a request with this callback, and let it be sent and completed."""
    gateway.door.receive(["doc"], name=ID, source="gateway", callbacks=(url,))
    for state in (RequestState.SENDING, RequestState.SENT, RequestState.COMPLETED):
        before = gateway.door.requests.get(ID)
        gateway.door.requests.move(before, before.moved(state, 1))


def statuses(requester):
    """The statuses that a requester was told."""
    import json

    return [json.loads(body)["request_status"] for _, body in requester.seen]


def test_a_requester_is_told_of_each_status_in_order(served, requester, verified):
    """Section 8.6: all fields, the signature over the body as sent, and nothing is left to send."""
    import json

    gateway = served()
    asked(gateway, requester.url)
    sender = gateway.sender()
    assert [sender.step(), sender.step(), sender.step()] == [1, 1, 0]
    assert statuses(requester) == ["in_progress", "completed"]
    certificate = gateway.ask("GET", "/cert.pem").body
    for headers, body in requester.seen:
        assert verified(certificate, headers, body)
        assert headers["content-type"] == "application/json"
        fields = json.loads(body)
        assert fields.keys() == {
            "controller_id", "expected_completion_time", "status_callback_url", "subject_request_id", "request_status",
        }  # fmt: skip
        assert (fields["status_callback_url"], fields["subject_request_id"]) == (requester.url, ID)
    assert gateway.door.requests.callbacks_waiting() == 0


@pytest.mark.parametrize("status", [500, 400, 302, 307])
def test_what_is_not_taken_is_tried_again(served, requester, status):
    """Later and later; a redirection is not followed; the later status waits for the earlier."""
    gateway = served()
    requester.status = status
    requester.headers = {"Location": requester.url + "/elsewhere"}
    asked(gateway, requester.url)
    sender = gateway.sender()
    assert sender.step() == 0
    assert sender.step() == 0
    assert len(requester.seen) == 1
    first, second = gateway.door.requests.callbacks()
    assert 8_000 <= first.next_ms - gateway.now[0] * 1000 <= 12_001
    assert (first.attempts, second.attempts) == (1, 0)
    gateway.now[0] += 13
    sender.step()
    (retried, _) = gateway.door.requests.callbacks()
    assert 16_000 <= retried.next_ms - gateway.now[0] * 1000 <= 24_001
    requester.status, requester.headers = 202, {}
    gateway.now[0] += 25
    assert sender.step() == sender.step() == 1
    assert statuses(requester) == ["in_progress"] * 3 + ["completed"]


def test_another_process_goes_on_where_one_was_killed(served, requester):
    """What was sent and not yet struck off is sent again."""
    gateway = served()
    asked(gateway, requester.url)
    sender = gateway.sender()
    sender._requests = type("Dying", (), {"callbacks": gateway.door.requests.callbacks, "drop": _killed})()
    with pytest.raises(KeyboardInterrupt):
        sender.step()
    gateway.sender().step()
    assert statuses(requester) == ["in_progress", "in_progress"]


def _killed(*_):
    raise KeyboardInterrupt


def test_after_three_days_a_callback_is_given_up(served):
    """A requester that is gone does not fill the outbox for ever."""
    gateway = served()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    asked(gateway, f"http://127.0.0.1:{port}/")
    gateway.sender().step()
    assert gateway.door.requests.callbacks_waiting() == 2
    gateway.now[0] += GIVE_UP_MS / 1000 + 60
    gateway.sender().step()
    gateway.sender().step()
    assert gateway.door.requests.callbacks_waiting() == 0


def outbox(gateway, requests, url):
    """Put five callbacks of each of so many requests into the outbox."""
    for number in range(requests):
        urls = tuple(f"{url}/{place}" for place in range(5))
        gateway.door.receive([f"doc-{number}"], name=f"r-{number}", source="gateway", callbacks=urls)
        before = gateway.door.requests.get(f"r-{number}")
        gateway.door.requests.move(before, before.moved(RequestState.SENDING, 1))


def test_many_callbacks_that_are_tried_later_hide_none_behind_them(served, requester):
    """A requester whose server is gone does not keep everybody else from being told."""
    gateway = served()
    outbox(gateway, 201, "http://127.0.0.1:9")
    requests = gateway.door.requests
    later = int(gateway.now[0] * 1000) + 60_000
    for callback in [*requests.callbacks(), *requests.callbacks(behind=requests.callbacks()[-1].entry)]:
        requests.postpone(callback, later)
    asked(gateway, requester.url)
    assert gateway.sender().step() == 1
    assert statuses(requester) == ["in_progress"]


def test_a_server_that_does_not_answer_is_asked_a_few_times_in_a_step(served, requester):
    """Each wait costs seconds, and others wait behind it."""
    gateway = served()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    outbox(gateway, 20, f"http://127.0.0.1:{port}")
    asked(gateway, requester.url)
    assert gateway.sender().step() == 1
    waiting = gateway.door.requests.callbacks()
    assert 1 <= sum(callback.attempts for callback in waiting) <= 50
    assert len(waiting) == 101


@pytest.mark.parametrize("status", [202, 500])
def test_a_slow_server_is_asked_a_few_times_in_a_step(served, requester, slow_requester, monkeypatch, status):
    """It answers, but others wait behind each of its answers: they are told in the same step, and it in the next."""
    monkeypatch.setattr(callback_sender, "_SLOW", 0.1)
    gateway = served()
    slow_requester.status = status
    outbox(gateway, 8, slow_requester.url)
    asked(gateway, requester.url)
    sender = gateway.sender()
    sender.step()
    assert statuses(requester) == ["in_progress"]
    first = len(slow_requester.seen)
    assert 1 <= first <= 16
    sender.step()
    assert len(slow_requester.seen) > first


def test_tls_is_checked(served, secure_requester, authority):
    """A requester with a certificate of an authority that is trusted is told; one without is not."""
    gateway = served()
    asked(gateway, secure_requester.url)
    assert gateway.sender().step() == 0
    assert secure_requester.seen == []
    gateway.now[0] += 60
    assert gateway.sender(context=authority.client_context()).step() == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://examplecontroller.com/",
        "ftp://examplecontroller.com/",
        "https:///path",
        "https://user:password@examplecontroller.com/",
        "https://examplecontroller.com/#fragment",
        "https://examplecontroller.com/ a",
        "https://examplecontroller.com/\r\nX: y",
        "https://exämple.com/",
        "https://[::1",
        "https://a..example/",
        "https://.example/",
        f"https://{'a' * 64}.example/",
        "https://a.example:99999/",
        "https://localhost/",
        "http://127.0.0.1/",
        "https://127.0.0.1/",
        "https://10.1.2.3/",
        "https://169.254.169.254/latest/meta-data",
        "https://192.168.0.1/",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://[64:ff9b::a00:1]/",
        "https://[2002:0a00:0001::1]/",
        "https://[fd00::1]/",
        "https://[fec0::1]/",
        "https://[64:ff9b:1::a00:1]/",
        "https://[::7f00:1]/",
        "https://[::ffff:0:7f00:1]/",
        "https://0.0.0.0/",
        "https://224.0.0.1/",
    ],
)
def test_addresses_that_are_refused(url):
    """Before anything is sent, and without repeating the address."""
    with pytest.raises(UsageError) as refused:
        CallbackAddress.parse(url, private=False)
    assert url not in str(refused.value)


def test_addresses_that_are_taken():
    """A public host by HTTPS; this machine without TLS only where private addresses are allowed."""
    found = CallbackAddress.parse("https://Example.com:8443/a?b=c", private=False)
    assert found == CallbackAddress(secure=True, host="example.com", port=8443, path="/a?b=c")
    assert CallbackAddress.parse("https://8.8.8.8/", private=False).port == 443
    for number in ("2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"):
        assert CallbackAddress.parse(f"https://[{number}]/", private=False).host == number
    assert CallbackAddress.parse("http://127.0.0.1:80/", private=True).secure is False
    assert CallbackAddress.parse("https://10.0.0.1/", private=True).path == "/"
    with pytest.raises(UsageError):
        CallbackAddress.parse("http://10.0.0.1/", private=True)


@pytest.mark.parametrize("numbers", [["10.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["::ffff:192.168.0.1"]])
def test_a_name_that_leads_to_a_private_address_is_not_called(monkeypatch, numbers):
    """What a name leads to is looked at when it is called, and one private number among several is enough."""

    def lead(_host, port, **_):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (number, port)) for number in numbers]

    monkeypatch.setattr(socket, "getaddrinfo", lead)
    address = CallbackAddress.parse("https://rebound.example/", private=False)
    with pytest.raises(CallbackFailed, match="private"):
        address.resolve(private=False)


@pytest.mark.parametrize("host", ["a..example", ".example", "a" * 64 + ".example"])
def test_a_name_that_cannot_be_looked_up_is_a_callback_that_failed(host):
    """Python has an error of its own for it, which would end the sender, and with it the callbacks of everybody."""
    with pytest.raises(CallbackFailed, match="no such host"):
        CallbackAddress(secure=True, host=host, port=443, path="/").resolve(private=True)


def test_the_number_that_was_checked_is_called(monkeypatch, requester):
    """A name that leads elsewhere a moment later does not matter: it is looked up once."""
    looked = []
    port = int(requester.url.split(":")[2].split("/")[0])

    def lead(host, _port, **_):
        looked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    address = CallbackAddress(secure=False, host="name.example", port=port, path="/x")
    with monkeypatch.context() as patch:
        patch.setattr("streamtopic.gateway.callback_addresses.socket.getaddrinfo", _only("name.example", lead))
        post(address, b"{}", {}, private=True, context=ssl.create_default_context())
    assert looked == ["name.example"]
    assert requester.seen[0][0]["host"] == f"name.example:{port}"


def _only(name, lead):
    def look(host, port, *arguments, **named):
        return lead(host, port, **named) if host == name else PUBLIC(host, port, *arguments, **named)

    return look


def test_a_requester_that_drips_is_left(monkeypatch):
    """One byte in each turn does not hold the sender for longer than a callback may take."""
    monkeypatch.setattr("streamtopic.gateway.callback_addresses.LONGEST", 1.0)
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip():
            taken, _ = server.accept()
            with taken:
                try:
                    while not done.wait(0.2):
                        taken.sendall(b"H")
                except OSError:
                    return

        thread = threading.Thread(target=drip)
        thread.start()
        address = CallbackAddress(False, "127.0.0.1", server.getsockname()[1], "/")
        try:
            with pytest.raises(CallbackFailed, match="no answer"):
                post(address, b"{}", {}, private=True, context=ssl.create_default_context())
        finally:
            done.set()
            thread.join(10)


def test_a_certificate_must_fit(certified, tmp_path):
    """Another name, another key, an expired one, and a file that is no certificate are refused with the remedy."""
    certificate, key = certified("mine.example")
    _, other = certified("other.example")
    now = dt.datetime.now(dt.UTC)
    assert ResponseSigner.load("mine.example", certificate, key, now).self_signed is False
    with pytest.raises(SettingsError, match="gateway_domain"):
        ResponseSigner.load("elsewhere.example", certificate, key, now)
    with pytest.raises(SettingsError, match="belong together"):
        ResponseSigner.load("mine.example", certificate, other, now)
    with pytest.raises(SettingsError, match="renew"):
        ResponseSigner.load("mine.example", certificate, key, now + dt.timedelta(days=4000))
    (tmp_path / "x").write_text("nothing")
    with pytest.raises(SettingsError, match="PEM"):
        ResponseSigner.load("mine.example", tmp_path / "x", key, now)
    with pytest.raises(SettingsError, match="cannot be read"):
        ResponseSigner.load("mine.example", tmp_path / "y", key, now)


def test_a_key_of_rsa_signs_as_the_examples_do():
    """PKCS 1 v1.5 over SHA-256, in Base64."""
    import base64

    key = rsa.generate_private_key(65537, 2048)
    signer = ResponseSigner("a.example", b"", key, self_signed=False)
    key.public_key().verify(base64.b64decode(signer.sign(b"body")), b"body", padding.PKCS1v15(), hashes.SHA256())


def test_a_redis_that_is_away_is_told_once(signer, caplog):
    """Callbacks wait without a line for each attempt."""
    stop, looks = threading.Event(), []

    def now():
        # After twenty looks nothing is tried any more.
        looks.append(0)
        if len(looks) == 20:
            stop.set()
        return 0.0

    options = SenderOptions("controller", True, ssl.create_default_context())
    with Connection("redis://127.0.0.1:1/0") as connection:
        CallbackSender(DeletionRequests(connection, "away"), signer, options, now).run(stop, every=0.001)
    told = [record for record in caplog.records if getattr(record, "event", "") == "callbacks_wait"]
    assert (len(looks), len(told)) == (20, 1)
