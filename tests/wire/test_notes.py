"""Signed notes and cosignatures, held against the examples of C2SP."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosigning import SECONDS, cosignature, witness
from streamtopic.errors import InvalidRelease, SettingsError, UnknownKey
from streamtopic.signed import COSIGNATURE, PublicKey, SigningKey, cosigned, open_note, sign_note
from streamtopic.signed.signing_keys import key_hash, read_note, signature_line

# The examples in c2sp.org/signed-note.
EXAMPLE_KEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
EXAMPLE_SIGNATURE = "Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM="
EXAMPLE = f"This is an example message.\n\n— example.com/foo {EXAMPLE_SIGNATURE}\n"
KEY = SigningKey.from_seed(bytes(32), "example.org/news")
OTHER = SigningKey.from_seed(b"o" * 32, "example.org/news")
TEXT = "one\n\ntwo — three\n"


def test_the_example_of_the_specification_verifies():
    """A key and a note that others made read as they say; the key prints as it was written."""
    key = PublicKey.load(EXAMPLE_KEY)
    assert str(key) == EXAMPLE_KEY
    assert open_note(EXAMPLE, [KEY.public, key]) == ("This is an example message.\n", key)


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])).map(lambda text: f"{text}\n"))
def test_any_text_of_printable_letters_can_be_signed(text):
    """Whatever its empty lines and dashes, it reads back as it was."""
    note = sign_note(text, KEY)
    assert open_note(note, [KEY.public]) == (text, KEY.public)


def test_signatures_of_others_stand_beside_and_prove_nothing():
    """One known key is enough; unknown ones are passed over; without a known key nothing is opened."""
    note = sign_note(TEXT, OTHER) + sign_note(TEXT, KEY).removeprefix(f"{TEXT}\n")
    for known in ([KEY.public], [OTHER.public], [KEY.public, OTHER.public]):
        text, signer = open_note(note, known)
        assert text == TEXT
        assert signer in known
    with pytest.raises(UnknownKey, match=KEY.public.key_id):
        open_note(sign_note(TEXT, OTHER), [KEY.public])
    with pytest.raises(UnknownKey, match="no key is known"):
        open_note(note, [])


@pytest.mark.parametrize(
    "note",
    [
        "",
        "\n\n",
        TEXT,
        f"{TEXT}\n",
        f"{TEXT}\nsignature\n",
        f"{TEXT}\n— name\n",
        f"{TEXT}\n—  AAAAAAAA\n",
        f"{TEXT}\n— name AAAA\n",
        f"{TEXT}\n— name !!!!!!!!\n",
        f"{TEXT}\n— name AAAAAAB=\n",
        EXAMPLE.removesuffix("\n"),
        EXAMPLE.replace("\n", "\r\n"),
        EXAMPLE.replace("example message", "example\tmessage"),
        EXAMPLE.replace("\n\n", "\n"),
        f"{TEXT}\n" + "— name AAAAAAAA\n" * 65,
        "x" * (64 << 10) + f"\n\n{EXAMPLE}",
    ],
)
def test_texts_that_are_no_notes_are_refused(note):
    """Without lines of signatures, malformed, with control characters, or too long."""
    with pytest.raises(InvalidRelease, match="signed note"):
        read_note(note)


@pytest.mark.parametrize(
    "line",
    [
        lambda key: cosignature(key, "another text\n"),
        lambda key: cosignature(key, TEXT, said=SECONDS + 1),
        lambda key: cosignature(key, TEXT, kind=b"\x01"),
        lambda key: cosignature(key, TEXT, name="witness.example/w2"),
        lambda key: sign_note(TEXT, key).rpartition("\n\n")[2],
        lambda key: signature_line(key.name, key_hash(key.name, b"\x04" + key.public.raw), key.sign(TEXT.encode())),
    ],
    ids=["text", "time", "type", "name", "plain signature", "without a time"],
)
def test_other_signatures_are_no_cosignatures(line):
    """Of another text, time, type or name, or without the words that keep cosignatures apart."""
    key, known = witness()
    note = sign_note(TEXT, KEY) + line(key)
    for one in (known, PublicKey("witness.example/w2", bytes(32), COSIGNATURE)):
        assert not cosigned(note, one)


def test_a_witness_reads_from_its_verifier_key():
    """Only an Ed25519 key of a witness is one; keys of logs and of other algorithms are refused."""
    key, known = witness()
    encoded = base64.b64encode(b"\x04" + key.public.raw).decode()
    assert PublicKey.parse(f"{key.name}+{known.hash.hex()}+{encoded}", COSIGNATURE) == known
    later = b"\x06" + bytes(1312)
    for text in (
        str(key.public),
        f"{key.name}+{known.hash.hex()}",
        f"{key.name}+00000000+{encoded}",
        f"other+{known.hash.hex()}+{encoded}",
        f"w+{key_hash('w', later).hex()}+{base64.b64encode(later).decode()}",
        "",
    ):
        with pytest.raises(SettingsError):
            PublicKey.parse(text, COSIGNATURE)
