"""Arrays and texts as safetensors: they have one encoding, others read it, and all else is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from safetensors.numpy import load, save

from streamtopic.tensors import parts, unpacked

KINDS = (np.float32, np.float64, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
names = st.text().filter(lambda name: name != "__metadata__")
shapes = array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=3)
held = st.dictionaries(names, st.sampled_from(KINDS).flatmap(lambda kind: arrays(kind, shapes)), max_size=4)


def packed(arrays, texts):
    """All bytes."""
    return b"".join(parts(arrays, texts))


@given(held, st.dictionaries(st.text(), st.text(), max_size=3))
@settings(max_examples=100)
def test_a_value_has_one_encoding_that_others_read(value, texts):
    """Order, memory layout and byte order do not show in the bytes; the real package reads the same arrays."""
    data = packed(value, texts)
    turned = {
        name: np.asfortranarray(value[name].astype(value[name].dtype.newbyteorder(">"))) for name in [*value][::-1]
    }
    assert packed(turned, dict([*texts.items()][::-1])) == data
    back, said = unpacked(data)
    assert said == texts
    for read in (back, load(data)):
        assert read.keys() == value.keys()
        for name, array in value.items():
            assert (read[name].dtype, read[name].shape) == (array.dtype, array.shape)
            assert read[name].tobytes() == array.tobytes()


@given(st.binary(max_size=200) | held.map(lambda value: packed(value, {})), st.data())
@settings(max_examples=200)
def test_any_bytes_are_read_or_refused(data, draw):
    """Whatever is read is in its one form: bytes that somebody has changed, too."""
    changed = bytearray(data)
    for _ in range(draw.draw(st.integers(0, 3)) if data else 0):
        changed[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    try:
        found = unpacked(bytes(changed))
    except ValueError:
        return
    assert packed(*found) == changed


def test_another_form_and_other_types_are_refused():
    """The package writes no texts if it has none; a text of this kind has no form at all."""
    with pytest.raises(ValueError, match="not arrays and texts"):
        unpacked(save({"a": np.zeros(2)}))
    with pytest.raises(TypeError, match="no form"):
        packed({"a": np.array(["text"])}, {})
