"""Threads: all parts are done, by as many threads as there are cores, and a failure comes out."""

import threading

import pytest

from streamtopic.topics import reproducible
from streamtopic.topics.reproducible import each


@pytest.mark.parametrize("cores", [1, 3])
def test_every_part_is_done_once(monkeypatch, cores):
    """Each list of arguments is worked on once, whatever the number of cores; one core starts no thread."""
    monkeypatch.setattr(reproducible, "CORES", cores)
    done, by = [], set()

    def work(part, factor):
        done.append(part * factor)
        by.add(threading.current_thread())

    each(work, ((part, 2) for part in range(20)))
    assert sorted(done) == [2 * part for part in range(20)]
    assert (by == {threading.current_thread()}) == (cores == 1)


@pytest.mark.parametrize("cores", [1, 3])
def test_a_failure_of_a_part_comes_out(monkeypatch, cores):
    """What fails in a thread fails for the caller."""
    monkeypatch.setattr(reproducible, "CORES", cores)
    with pytest.raises(ZeroDivisionError):
        each(lambda part: 1 / part, [(1,), (0,), (2,)])
