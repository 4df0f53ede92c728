"""No password is printed, logged or raised, wherever it stands in an address and whatever it consists of."""

import itertools
from urllib.parse import quote

import pytest

from streamtopic.cli import main
from streamtopic.errors import StreamtopicError
from streamtopic.security.concealing import conceal, shown_address
from streamtopic.settings import load
from streamtopic.state import Connection

PARTS = "SECRET7"
# A reserved character between two parts, each of which must stay hidden.
PASSWORDS = [
    PARTS,
    *(f"{PARTS}{mark}{PARTS}" for mark in "/@?#%:&=[]!$' \"\\"),
    f"6379/{PARTS}",
    f"1/2?{PARTS}",
    "%40" + PARTS,
]
FORMS = [
    "redis://user:{}@127.0.0.1:1/0", "redis://:{}@127.0.0.1:1/0", "redis://{}@127.0.0.1:1", "rediss://user:{}@127.0.0.1:1/0",
    "redis://127.0.0.1:1/0?password={}", "redis://127.0.0.1:1/0?username=u&password={}", "unix:///no/such.sock?password={}",
    "unix://user:{}@/no/such.sock", "redis://127.0.0.1:1?db=0&PASSWORD={}&x=1", "{}",
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_an_address_is_shown_without_its_password(form):
    """Also where the address is malformed, so that nobody can say where the password ends."""
    for password in PASSWORDS:
        if ":" in password and form.startswith("redis://{}@"):
            continue  # what stands before a colon is a user's name
        shown = shown_address(form.format(password))
        assert PARTS not in shown, (form, password)
        assert PARTS not in conceal(f"cannot reach {form.format(quote(password, safe=''))}, try later") or form == "{}"


@pytest.mark.parametrize("form", [form for form in FORMS if form != "{}"])
def test_a_server_out_of_reach_does_not_name_the_password(form):
    """Whatever redis-py says of the address, its port or its parameters."""
    for password, encoded in itertools.product(PASSWORDS, (False, True)):
        if ":" in password and form.startswith("redis://{}@"):
            continue  # what stands before a colon is a user's name
        url = form.format(quote(password, safe="") if encoded else password)
        with pytest.raises(StreamtopicError) as found, Connection(url, timeout=0.01) as connection:
            connection.ping()
        assert PARTS not in str(found.value), (form, password)
        assert "\x00" not in str(found.value)


def test_an_encoded_password_arrives(tmp_path):
    """A server that asks for it lets in who writes it percent-encoded, and its refusal of another names neither."""
    from streamtopic.local.local_redis import LocalRedis

    with LocalRedis(tmp_path / "redis") as server, Connection(server.url) as connection:
        connection.call("CONFIG", "SET", "requirepass", "pa/ss@w%rd?")
        try:
            refused = pytest.raises(StreamtopicError)
            with refused as found, Connection(f"{server.url}?password=wrong{PARTS}") as other:
                other.ping()
            assert PARTS not in str(found.value)
        finally:
            with Connection(f"{server.url}?password=" + quote("pa/ss@w%rd?", safe="")) as entered:
                entered.call("CONFIG", "SET", "requirepass", "")


@pytest.mark.parametrize("command", [["status"], ["doctor"], ["doctor", "--json"], ["verify", "--debug"], ["init"]])
@pytest.mark.parametrize(
    "url", ["redis://u:{0}/{0}@127.0.0.1:1/0", "redis://127.0.0.1:1/0?password={0}", "redis://u:{0}@127.0.0.1:1"]
)
def test_no_command_prints_it(tmp_path, monkeypatch, capsys, command, url):
    """Errors, the doctor's findings and tracebacks go through the same function."""
    monkeypatch.setenv("STREAMTOPIC_REDIS_URL", url.format(PARTS))
    assert main([*command, "--dir", str(tmp_path / "instance")])
    shown = capsys.readouterr()
    assert PARTS not in shown.out + shown.err


@pytest.mark.parametrize("setting", ["redis_url", "kafka_sasl_password", "serve_token"])
def test_settings_do_not_show_it(setting):
    """Neither as text nor in an error about them."""
    loaded = load({setting: f"redis://u:{PARTS}@h:1/0"})
    assert PARTS not in repr(loaded) + str(loaded) + repr(getattr(loaded, setting))
    with pytest.raises(StreamtopicError) as found:
        load({setting: [PARTS]})
    assert PARTS not in str(found.value)


@pytest.mark.parametrize(
    "text",
    [
        f"password={PARTS}", f"password: {PARTS}", f"'sasl_plain_password': '{PARTS} {PARTS}'",
        f'"redis_password": "{PARTS}\\"{PARTS}"',
        f"sasl.jaas.config={PARTS}", f"PASSWD={PARTS},x=1", f"client_secret={PARTS}&x",
        f"at redis://u:{PARTS}@h:1/0: no",
        f"at redis://u:{PARTS}/{PARTS}@h:1/0: no", f"at https://h/p?token={PARTS}",
    ],
)  # fmt: skip
def test_text_is_concealed(text):
    """Log lines and tracebacks of other packages name settings beside their values."""
    assert PARTS not in conceal(text)


@pytest.mark.parametrize(
    "text",
    [
        "see https://streamtopic.local/docs",
        "secret /run/secrets/noise.key: shorter than 32 bytes",
        "check the user, password and ACL",
    ],
)
def test_other_text_stays(text):
    """Remedies that speak of passwords and pages stay readable."""
    assert conceal(text) == text
