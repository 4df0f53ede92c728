"""Canonical msgpack: a value has one encoding, and whatever else is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopic.errors import InvalidRelease
from streamtopic.signed import pack, unpack

finite = st.floats(allow_nan=False, allow_infinity=False)
leaves = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | finite | st.text() | st.binary()
trees = st.recursive(leaves, lambda v: st.lists(v) | st.dictionaries(st.text(), v), max_leaves=8)


def turned(value):
    """The same value with all maps in another order."""
    if isinstance(value, dict):
        return {key: turned(value[key]) for key in reversed(value)}
    return [turned(item) for item in value] if isinstance(value, list) else value


@given(trees)
@settings(max_examples=200)
def test_a_value_has_one_encoding(value):
    """What is packed reads back, and its bytes do not depend on the order of keys."""
    assert unpack(pack(value)) == value
    assert pack(turned(value)) == pack(value)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), {1: 2}, {2, 3}, np.array(["a"]), np.zeros(2, complex), object()]
)
def test_values_without_one_encoding_are_refused(value):
    """What compares to nothing, or has several encodings, is never signed."""
    with pytest.raises(TypeError):
        pack(value)


@given(st.binary(max_size=200))
@settings(max_examples=200)
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
