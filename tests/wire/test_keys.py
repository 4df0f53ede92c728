"""Keys in the form of signed notes, and secrets, in files of their own."""

import stat

import pytest

from streamtopic.errors import SettingsError
from streamtopic.signed import PublicKey, SigningKey, check_origin, load_secret, new_secret

NAME = "example.org/news"
ZERO = SigningKey.from_seed(bytes(32), NAME)


def test_key_files(tmp_path):
    """A pair is written once, the private half for its owner alone, and both read back."""
    private, public = tmp_path / "keys" / "signing.key", tmp_path / "keys" / "signing.pub"
    made = SigningKey.generate(NAME)
    made.save(private)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (private, public)] == [0o600, 0o644]
    key = SigningKey.load(private)
    assert (key.name, key.public) == (NAME, made.public)
    sources = [public, str(public), public.read_text(), f"  {made.public}\n", made.public]
    assert {PublicKey.load(source) for source in sources} == {made.public}
    with pytest.raises(SettingsError, match="File exists"):
        SigningKey.generate(NAME).save(private)
    with pytest.raises(SettingsError, match=r"other\.key is missing .*other\.pub: restore it from your backup, "):
        made.save(public.rename(public.with_name("other.pub")).with_suffix(".key"))
    assert {file.name for file in private.parent.iterdir()} == {"signing.key", "other.pub"}
    private.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        SigningKey.load(private)


@pytest.mark.parametrize(
    "source",
    [
        "missing.pub",
        "",
        "short",
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",
        "00" * 32,
        str(ZERO.public).replace(NAME, "example.org/mail"),
        str(ZERO.public)[:-4],
        f"{ZERO.public}AAAA",
        f"{NAME}+00000000+{str(ZERO.public).rpartition('+')[2]}",
        "example.org/w+d9d2a24c+BAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    ],
)
def test_whatever_is_no_public_key_is_refused(source):
    """A key of another form, name, hash or kind is refused with what to give instead."""
    with pytest.raises(SettingsError, match="streamtopic keys new"):
        PublicKey.load(source)


@pytest.mark.parametrize(
    "change",
    [
        lambda _: "",
        lambda text: text.removeprefix("PRIVATE+KEY+"),
        lambda text: text.replace(NAME, "example.org/mail"),
        lambda text: text[:-6] + "\n",
        lambda _: "-----BEGIN PRIVATE KEY-----\n",
        lambda text: "\ufffd" + text,
    ],
)
def test_damaged_private_keys_are_refused(change, tmp_path):
    """A file that was cut, or whose name was edited, signs nothing."""
    path = tmp_path / "signing.key"
    ZERO.save(path)
    path.write_text(change(path.read_text()))
    with pytest.raises(SettingsError, match=r"signing\.key"):
        SigningKey.load(path)


@pytest.mark.parametrize(
    ("name", "fits"),
    [("news", True), ("example.org/news", True), ("a/b/news", True), ("oldnews", False), ("news/b", False)],
)
def test_a_key_is_of_the_model_that_its_name_ends_in(name, fits):
    """Two models under one origin would sign two histories of one ledger."""
    key = SigningKey.from_seed(bytes(32), name)
    for half in (key, key.public):
        if fits:
            check_origin(half, "news")
        else:
            with pytest.raises(SettingsError, match=r"keys new --name example\.org/news"):
                check_origin(half, "news")


def test_secret_files(tmp_path):
    """A secret is random, written once, and refused if others can read it."""
    path = tmp_path / "noise.key"
    secret = new_secret(path)
    assert load_secret(path) == secret
    assert len(secret) == 32
    assert new_secret(tmp_path / "other.key") != secret
    with pytest.raises(SettingsError, match="File exists"):
        new_secret(path)
    path.write_text("zz")
    with pytest.raises(SettingsError, match="hexadecimal"):
        load_secret(path)
    path.write_text("00")
    with pytest.raises(SettingsError, match="shorter"):
        load_secret(path)
    path.chmod(0o640)
    with pytest.raises(SettingsError, match="chmod 600"):
        load_secret(path)
