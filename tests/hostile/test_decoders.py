"""Whatever a decoder is given, it answers, or refuses with an error of this package: also what is validly signed."""

import dataclasses
import os

import msgpack
import pytest

from fuzz import DECODERS, fuzz, outcome, try_every_place

INPUTS = int(os.environ.get("FUZZ_INPUTS", "4000"))


def test_damaged_input_raises_no_foreign_exception():
    """Seeded: the same inputs in each run."""
    assert fuzz(INPUTS, seed=1) == []


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda one: one.name)
def test_no_value_in_any_place_raises_a_foreign_exception(decoder):
    """One place at a time, each with every extreme value, arrays included, and with nothing; signed again."""
    tried, findings = try_every_place(decoder)
    assert findings == set()
    assert tried > 100


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)
def test_sound_input_is_accepted(decoder):
    """Else the fuzz would only try how well nonsense is refused."""
    decoder.read(decoder.sample())


def test_a_foreign_exception_is_found():
    """A decoder that lets one through is caught, with the place where it was raised."""

    def careless(data):
        return msgpack.unpackb(data)["op"]

    broken = dataclasses.replace(DECODERS[0], read=careless)
    assert "KeyError" in outcome(broken, msgpack.packb({}))
