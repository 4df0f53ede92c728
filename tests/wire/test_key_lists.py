"""Lists of keys, which the root key signs, and the ring of keys that a reader trusts."""

import dataclasses

import pytest

from streamtopic.errors import InvalidRelease, UnknownKey, UsageError
from streamtopic.signed import KeyList, KeyRing, Revoked, SigningKey, open_keys, seal_keys, sign_note

NAME = "example.org/news"
ROOT = SigningKey.from_seed(b"r" * 32, NAME)
KEYS = [SigningKey.from_seed(bytes([number]) * 32, NAME) for number in range(4)]
FIRST = KeyList(NAME, 1, 1000, KEYS[0].public)
SECOND = FIRST.rotated(KEYS[1].public, 2000)
THIRD = SECOND.without(Revoked(KEYS[0].public, 5, 9, 3000))


def ring(source=ROOT, *also):
    """The keys of a reader of the model `news`."""
    return KeyRing.load(source.public, "news", [key.public for key in also])


def note(keys, root=ROOT):
    """A list as a signed note."""
    return seal_keys(keys, root)


@pytest.mark.parametrize("keys", [FIRST, SECOND, THIRD, THIRD.rotated(KEYS[2].public, 4000)])
def test_a_list_reads_back(keys):
    """Every key, number and time of it; the same list has the same bytes."""
    assert open_keys(note(keys), ROOT.public) == keys
    assert note(keys) == note(keys)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("streamtopic keys", "streamtopic draft"),
        ('"origin":"example.org/news"', '"origin":"example.org/mail"'),
        ('"sequence":3', '"sequence":03'),
        ('"sequence":3', '"sequence":"3"'),
        ('"sequence":3', f'"sequence":{1 << 62}'),
        ('"created":3000,', ""),
        ('"current":"', '"current":"x'),
        ('"first":5,', ""),
        ("{", "{ "),
    ],
)
def test_signed_nonsense_is_no_list(old, new):
    """The root key says who wrote it, and not that it makes sense."""
    text = note(THIRD).rpartition("\n\n")[0] + "\n"
    assert old in text
    with pytest.raises(InvalidRelease, match="key list"):
        open_keys(sign_note(text.replace(old, new, 1), ROOT), ROOT.public)


def test_a_key_comes_once_and_goes_for_ever():
    """A new key is not in the list, and only one that signed before can be revoked."""
    assert SECOND.trusted == (KEYS[1].public, KEYS[0].public)
    assert THIRD.trusted == (KEYS[1].public,)
    for known in (KEYS[0], KEYS[1]):
        with pytest.raises(UsageError, match="in the key list already"):
            THIRD.rotated(known.public, 4000)
    for key in (KEYS[1], KEYS[0], KEYS[3]):
        with pytest.raises(UsageError, match="cannot be revoked"):
            THIRD.without(Revoked(key.public, 0, 9, 4000))


def test_an_older_list_brings_no_key_back():
    """Anybody may write an old list again; equal and older numbers change nothing."""
    keys = ring()
    assert [keys.take(note(one)) for one in (FIRST, THIRD, SECOND, FIRST, THIRD)] == [True, True, False, False, False]
    assert keys.trusted == (KEYS[1].public,)
    for one in (SECOND, THIRD):
        assert not keys.take(note(dataclasses.replace(one, current=KEYS[3].public)))
    assert keys.keys == THIRD


def test_lists_of_others_are_refused():
    """Of another root, of another model, or of a ledger of the same model under another origin."""
    keys = ring()
    with pytest.raises(UnknownKey):
        keys.take(note(FIRST, KEYS[0]))
    mail = SigningKey.from_seed(bytes(32), "example.org/mail").public
    with pytest.raises(InvalidRelease, match=r"of ledger example\.org/mail"):
        keys.take(note(KeyList("example.org/mail", 1, 0, mail)))
    keys.take(note(FIRST))
    elsewhere = SigningKey.from_seed(bytes(32), "example.com/news").public
    with pytest.raises(InvalidRelease, match=r"not of example\.org/news"):
        keys.take(note(KeyList("example.com/news", 9, 0, elsewhere)))


def test_a_ring_is_given_as_a_key_in_any_form():
    """As `PublicKey.load` takes it, or as a ring, which stays the same object."""
    keys = KeyRing.load(str(ROOT.public), "news")
    assert keys.pinned == ROOT.public
    assert KeyRing.load(keys, "news") is keys
