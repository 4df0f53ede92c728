"""Whatever a decoder is given, it answers, or refuses with an error of this package: also what is validly signed."""

import dataclasses
import os

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz import DECODERS, damaged, every_place, outcome

EXAMPLES = int(os.environ.get("FUZZ_INPUTS", "4000")) // len(DECODERS)

each_decoder = pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)


@each_decoder
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_damaged_input_raises_no_foreign_exception(decoder, data):
    """One to three changes of a sound sample, of its bytes or of its values."""
    assert outcome(decoder, data.draw(damaged(decoder))) is None


@each_decoder
def test_no_value_in_any_place_raises_a_foreign_exception(decoder):
    """One place at a time, each with every extreme value, arrays included, and with nothing; signed again."""
    outcomes = [outcome(decoder, data) for data in every_place(decoder)]
    assert {error for error in outcomes if error is not None} == set()
    assert len(outcomes) > 100


@each_decoder
def test_sound_input_is_accepted(decoder):
    """Else the fuzz would only try how well nonsense is refused."""
    decoder.read(decoder.sample())


def test_a_foreign_exception_is_found():
    """A decoder that lets one through is caught, with the place where it was raised."""
    broken = dataclasses.replace(DECODERS[0], read=lambda data: msgpack.unpackb(data)["op"])
    assert "KeyError" in outcome(broken, msgpack.packb({}))
