"""Threads: BLAS on one of them from several places at once, and LAPACK beside the interpreter."""

import threading

import numpy as np
import pytest
from scipy.linalg import LinAlgError, eigh
from threadpoolctl import threadpool_info

from streamtopic.topics.lapack import largest_pairs
from streamtopic.topics.threads import CORES, leaving_one, one_thread, workers


def blas_threads():
    """Return how many threads each BLAS library would use."""
    return sorted(found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas")


def test_the_first_to_enter_sees_to_one_thread():
    """Those who enter later, here or elsewhere, find one thread and leave it so; afterwards it is as before."""
    before = blas_threads()
    found = []

    def other():
        with one_thread():
            found.append(blas_threads())
        found.append(blas_threads())

    with one_thread():
        with one_thread():
            assert set(blas_threads()) == {1}
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert set(blas_threads()) == {1}
    assert all(set(numbers) == {1} for numbers in found)
    assert blas_threads() == before


def test_a_failure_inside_gives_the_threads_back():
    """What fails inside leaves the number of threads as it was, and the cores."""
    before = blas_threads()
    with pytest.raises(ZeroDivisionError), one_thread(), leaving_one():
        1 / 0  # noqa: B018  the failure
    assert blas_threads() == before
    assert workers() == CORES


def test_leaving_a_core_is_a_matter_of_the_own_thread():
    """A thread that leaves a core to another one starts fewer workers; the other is not held back."""
    found = []
    with leaving_one():
        thread = threading.Thread(target=lambda: found.append(workers()))
        thread.start()
        thread.join()
        assert workers() == max(1, CORES - 1)
    assert found == [CORES]


@pytest.mark.parametrize(("c", "wanted"), [(1, 1), (4, 4), (60, 7)])
def test_largest_pairs_are_those_of_scipy(c, wanted):
    """The same routine of the same library: the same bits, and the matrix given is left alone."""
    rows = np.random.default_rng(c).standard_normal((c, c + 3))
    gram = rows @ rows.T
    kept = gram.copy()
    values, vectors = largest_pairs(gram, wanted)
    with one_thread():
        expected = eigh(gram, subset_by_index=[c - wanted, c - 1])
        again = largest_pairs(gram, wanted)
    assert np.allclose(values, expected[0], rtol=1e-12)
    assert again[0].tobytes() == expected[0].tobytes()
    assert again[1].tobytes() == expected[1].tobytes()
    assert np.allclose(gram @ vectors, vectors * values, atol=1e-10 * values[-1])
    assert gram.tobytes() == kept.tobytes()
    assert largest_pairs(gram, wanted, overwrite=True)[0].tobytes() == values.tobytes()
    assert c == 1 or gram.tobytes() != kept.tobytes()


def test_a_matrix_without_numbers_is_refused():
    """What LAPACK cannot decompose is an error, never a result."""
    with pytest.raises((LinAlgError, ValueError)):
        largest_pairs(np.full((5, 5), np.nan), 2)


def test_other_threads_go_on_during_a_decomposition():
    """The interpreter is not held while eigenpairs are found: another thread counts on meanwhile."""
    rows = np.random.default_rng(0).standard_normal((500, 500))
    gram = rows @ rows.T
    done = threading.Event()

    def decompose():
        largest_pairs(gram, 20)
        done.set()

    thread = threading.Thread(target=decompose)
    thread.start()
    turns = 0
    while not done.is_set():
        turns += 1
    thread.join()
    assert turns > 200
