"""Who waits for the compiler is told once; who does not wait hears nothing."""

import itertools
import logging

import numba
import pytest

from streamtopic import compiled
from streamtopic.compiled import compiling_is_said


@pytest.fixture(autouse=True)
def _unsaid(monkeypatch):
    """As in a process that has said nothing yet."""
    monkeypatch.setattr(compiled._Notice, "said", False)


def compile_some(module, step, caplog):
    """Compile two functions of a module under a clock that goes on by `step` at each look; return what was said."""
    ticks = itertools.count(0, step)
    with caplog.at_level(logging.INFO, "streamtopic"), compiling_is_said(lambda: next(ticks)):
        for k in range(2):

            def more(value, k=k):
                return value + k

            more.__module__ = module
            numba.njit(more)(1)
    return [record.message for record in caplog.records]


def test_a_long_compilation_is_said_once(caplog):
    """One notice, however many functions are compiled after it."""
    (said,) = compile_some("streamtopic.topics.some", 3, caplog)
    assert "compiling for this machine" in said


@pytest.mark.parametrize(("module", "step"), [("streamtopic.topics.some", 0.01), ("somebody", 3)])
def test_short_compilations_and_those_of_others_are_not_said(module, step, caplog):
    """A new type of array costs a second, and functions of other packages are not ours to explain."""
    assert compile_some(module, step, caplog) == []


def test_what_is_compiled_already_is_not_said(caplog):
    """Calls of a function that is there are silent, however long they take."""
    function = numba.njit(lambda value: value + 1)
    function(1)
    ticks = itertools.count(0, 9)
    with caplog.at_level(logging.INFO, "streamtopic"), compiling_is_said(lambda: next(ticks)):
        function(2)
    assert caplog.records == []
