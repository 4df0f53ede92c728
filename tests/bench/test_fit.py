"""The benchmark from documents to a model: every figure is finite, and memory adds up."""

import math

import pytest

from streamtopic.bench.runner import measure


@pytest.mark.parametrize("kind", ["matrix", "text"])
def test_the_peak_holds_the_program(kind):
    """Peak memory holds the program, and every figure is finite."""
    measured = measure("fit", kind, {"posts": 400, "words": 150, "topics": 4})
    found = {figure["name"]: figure["value"] for figure in measured["figures"]}
    assert all(math.isfinite(value) for value in found.values())
    assert 0 < found["memory of the program itself"] < found["peak memory"] + 2
