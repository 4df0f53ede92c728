"""Whatever a decoder is given, it answers, or refuses with an error of this package: also what is validly signed."""

import dataclasses
import json
import math

import msgpack
import pytest

from fuzz import DECODERS, fuzz, one_input, try_every_place
from streamtopic.cli import main
from streamtopic.errors import InvalidRelease, StreamtopicError
from streamtopic.service.ingest.rejections import parse_rejection
from streamtopic.signed import Envelope, Payload, SigningKey, fitting
from streamtopic.streams import Record

# A longer run: `python tests/fuzz.py`.
INPUTS = 20_000


def test_damaged_input_raises_no_foreign_exception():
    """Seeded: the same inputs in each run."""
    tried, findings = fuzz(INPUTS, seed=1)
    assert findings == []
    for decoder in DECODERS:
        assert tried[f"{decoder.name}: tried"] > 20


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)
def test_no_value_in_any_place_raises_a_foreign_exception(decoder):
    """One place at a time, each with every extreme value, arrays included, and with nothing; signed again."""
    tried, findings = try_every_place(decoder)
    assert findings == []
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
    errors = [error for seed in range(200) if (error := one_input(broken, seed)[1])]
    assert any("KeyError" in error for error in errors)


@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "NaN", "1e999"])
@pytest.mark.parametrize("place", ["bytes", "version"])
def test_a_report_with_an_infinite_number_is_refused(tmp_path, capsys, number, place):
    """`verify` says so with status 1 or 2, in one line."""
    report = next(decoder for decoder in DECODERS if decoder.name == "report, .json")
    evidence = json.loads(report.sample())
    (evidence["proof"] if place == "bytes" else evidence)[place] = "HERE"
    path = tmp_path / "report.json"
    path.write_text(json.dumps(evidence).replace('"HERE"', number), encoding="utf-8")
    key = str(SigningKey.from_seed(bytes(range(32)), "test/news").public)
    assert main(["verify", str(path), "--key", key]) in {1, 2}
    assert "unexpected" not in capsys.readouterr().err


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 2**63, -1, None, "x", [1], {}])
@pytest.mark.parametrize("name", ["partition", "offset"])
def test_a_rejection_with_such_a_place_is_passed_over(name, value):
    """`rejected list` shows the others; the retry does not try to read there."""
    fields = {"partition": 0, "offset": 1, "reason": "format"} | {name: value}
    assert parse_rejection(Record("t", 0, 0, b"d", msgpack.packb(fields), (), 0)) is None


@pytest.mark.parametrize(
    "fields", [{"words": ["a"]}, {"words": (1,)}, {"words": ("a",), "A": [[1.0]]}, {"none": 1}, {}]
)
def test_signed_fields_have_their_types(fields):
    """A list for a tuple, a number for a word, a list for an array, an unknown field, a missing one."""
    with pytest.raises(InvalidRelease, match="payload"):
        fitting(Payload, fields)


@pytest.mark.parametrize(
    ("name", "value"), [("version", True), ("m", 2**62), ("epsilon", "1"), ("kind", "other"), ("cut", {"0": 1})]
)
def test_an_envelope_has_its_types(name, value):
    """A truth for a number, a number beyond 62 bits, text for a number, another kind, text for a partition."""
    from fuzz import sample_envelope

    sound = dataclasses.asdict(sample_envelope())
    assert fitting(Envelope, sound) == sample_envelope()
    with pytest.raises(StreamtopicError, match=name):
        fitting(Envelope, sound | {name: value})
