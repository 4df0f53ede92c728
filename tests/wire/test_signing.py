import os
import stat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from streamtopic.errors import InvalidRelease, SettingsError
from streamtopic.signed import (
    PublicKey,
    SigningKey,
    load_secret,
    new_secret,
    new_signing_key,
    pack,
    seal,
    unpack,
    unseal,
)

finite = st.floats(allow_nan=False, allow_infinity=False)
leaves = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | finite | st.text() | st.binary()
trees = st.recursive(leaves, lambda v: st.lists(v) | st.dictionaries(st.text(), v), max_leaves=8)
KEY = SigningKey.from_bytes(bytes(32))


def turned(value):
    """The same value with all maps in another order."""
    if isinstance(value, dict):
        return {key: turned(value[key]) for key in reversed(value)}
    return [turned(item) for item in value] if isinstance(value, list) else value


@given(trees)
@settings(max_examples=200, deadline=None)
def test_a_value_has_one_encoding(value):
    """What is packed reads back, and its bytes do not depend on the order of keys."""
    assert unpack(pack(value)) == value
    assert pack(turned(value)) == pack(value)


@given(arrays(st.sampled_from([np.float32, np.float64, np.int32, np.int64]), (3, 4), elements=st.integers(-99, 99)))
@settings(max_examples=50, deadline=None)
def test_arrays_have_one_encoding(array):
    """Memory layout and byte order do not show in the bytes; dtype, shape and values come back."""
    data = pack(array)
    assert pack(np.asfortranarray(array)) == data == pack(array.astype(array.dtype.newbyteorder(">")))
    back = unpack(data)
    assert (back.dtype, back.shape, back.tolist()) == (array.dtype, array.shape, array.tolist())
    assert pack(array.reshape(4, 3)) != data


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), {1: 2}, {2, 3}, np.array(["a"]), np.zeros(2, complex), object()]
)
def test_values_without_one_encoding_are_refused(value):
    """What compares to nothing, or has several encodings, is never signed."""
    with pytest.raises(TypeError):
        pack(value)


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_unpack_takes_any_bytes(data):
    """Any bytes are a canonical value or InvalidRelease."""
    try:
        value = unpack(data)
    except InvalidRelease:
        return
    assert pack(value) == data


@pytest.mark.parametrize(
    "data",
    [
        b"\xcc\x01",
        b"\x82\xa1b\x01\xa1a\x02",
        b"\xca\x00\x00\x00\x00",
        b"\x83\xa4data\xc4\x00\xa5dtype\xa3<f8\xa5shape\x91\xff",
        b"\x83\xa4data\xc4\x00\xa5dtype\xa3|O8\xa5shape\x90",
        b"\x91" * 2000,
        b"\x01\x01",
    ],
)
def test_other_encodings_of_a_value_are_refused(data):
    """Long forms, unsorted keys, narrow floats, odd arrays, deep nesting and trailing bytes are not canonical."""
    with pytest.raises(InvalidRelease):
        unpack(data)


def test_any_changed_byte_is_detected():
    """Changing, cutting or adding a byte anywhere in a sealed container makes it invalid."""
    data = seal("test", {"a": b"content", "b": b"more"}, KEY)
    assert unseal("test", data, KEY.public) == {"a": b"content", "b": b"more"}
    for place in range(len(data)):
        for flip in (1, 128):
            changed = bytearray(data)
            changed[place] ^= flip
            with pytest.raises(InvalidRelease):
                unseal("test", bytes(changed), KEY.public)
    for changed in (data[:-1], data + b"\0", b""):
        with pytest.raises(InvalidRelease):
            unseal("test", changed, KEY.public)


def test_a_signature_is_bound_to_its_kind_and_key():
    """A container does not pass for another kind, nor under another key."""
    data = seal("test", {"a": b"content"}, KEY)
    with pytest.raises(InvalidRelease, match="not a 'receipt'"):
        unseal("receipt", data, KEY.public)
    with pytest.raises(InvalidRelease, match="key"):
        unseal("test", data, SigningKey.generate().public)
    assert seal("test", {"a": b"content"}, KEY) == data


def test_key_files(tmp_path):
    """A pair is written once, the private half for its owner alone, and both read back."""
    private, public = tmp_path / "keys" / "signing.pem", tmp_path / "keys" / "signing.pub"
    key_id = new_signing_key(private, public)
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    key = SigningKey.load(private)
    sources = [public, str(public), public.read_text(), public.read_bytes(), key.public.raw, key.public.raw.hex()]
    assert {PublicKey.load(source) for source in sources} == {key.public}
    assert PublicKey.load(key.public).key_id == key_id
    with pytest.raises(SettingsError):
        new_signing_key(private, public)
    assert "PRIVATE" not in repr(key)
    private.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        SigningKey.load(private)


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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can own a file as a mounted secret is owned")
@pytest.mark.parametrize(("mode", "accepted"), [(0o440, True), (0o444, False), (0o460, False), (0o640, True)])
def test_a_mounted_secret_lets_its_reader_in_by_the_group(tmp_path, monkeypatch, mode, accepted):
    """A file of root may be read by the group of a process that is not root, as Kubernetes mounts it."""
    path = tmp_path / "noise.key"
    secret = new_secret(path)
    path.chmod(mode)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    if accepted:
        assert load_secret(path) == secret
    else:
        with pytest.raises(SettingsError, match="chmod 600"):
            load_secret(path)


@pytest.mark.parametrize(
    "source", ["missing.pub", b"short", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"]
)
def test_bad_public_keys_are_settings_errors(source):
    """Whatever is no public key is refused with what to give instead."""
    with pytest.raises(SettingsError, match="streamtopic keys new"):
        PublicKey.load(source)
