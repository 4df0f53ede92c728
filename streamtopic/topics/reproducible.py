"""Dense linear algebra in a fixed order: the same input gives the same bits on any machine, by any number of threads.

A decision that two computations must make alike is made by these functions. Passes over Q are shared by threads, as
many as there are cores; a result never depends on their number. In the functions for linear algebra every operation is
an IEEE double addition, subtraction, product, quotient or square root, rounded to nearest. Operations follow each other
as written here, without a library for linear algebra, without fused products and sums, and without sums that are taken
apart. Inner loops run over columns that do not depend on each other. A compiler may put several side by side, which
changes no bit. `check_arithmetic` makes sure.

    check_arithmetic   the machine and the compiler keep to this, or an error
    product            A B
    cholesky           G = L L^T
    solve_lower        L X = B
    leading_pairs      largest eigenvalues of a symmetric matrix, and their vectors
    each, each_span    parts of a pass, each done by one thread; chunks and even_spans cut it
"""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np

from streamtopic.compiled import kernel
from streamtopic.counts.arrays import Float
from streamtopic.errors import UnreliableArithmetic

__all__ = [
    "CORES",
    "check_arithmetic",
    "cholesky",
    "chunks",
    "each",
    "each_span",
    "even_spans",
    "known_answers",
    "leading_pairs",
    "product",
    "solve_lower",
    "workers",
]

_STEPS = 1000
_ANSWERS = (
    "0x1.4bf133e4f2512p-1",
    "0x1.635f8bc44055cp+8",
    "0x1.334adbeab2cccp+10",
    "0x0.0p+0",
    "0x0.0000400000010p-1022",
    "0x1.0000000000002p+53",
)


def check_arithmetic() -> None:
    """Compute numbers whose answers are known, some thousand operations, and compare every bit. Cost: microseconds.

    Raises UnreliableArithmetic if an answer differs.
    """
    # Each time again: a library that is loaded later may switch the processor to flush small numbers to zero.
    found = tuple(float(value).hex() for value in known_answers(_STEPS))
    if found != _ANSWERS:
        pairs = zip(found, _ANSWERS, strict=True)
        differ = sum(one != other for one, other in pairs)
        raise UnreliableArithmetic(
            f"floating point on this machine differs from IEEE 754 in {differ} of {len(_ANSWERS)} answers, so anchors "
            "could differ from those of other machines: run without fast-math options, flush-to-zero or an emulator "
            "that fuses products and sums, or on another machine"
        )


def known_answers(steps: int) -> Float:
    """Return six numbers that show by their bits how this machine computes, (6,).

    0: a chaotic sequence by products, differences, quotients and square roots: one other rounding changes every bit.
    1: a long sum of products in order.
    2: sums side by side, then in order.
    3: a * b - c, which is 0 unless fused.
    4: a product below the normal range.
    5: an integer that lies halfway between two doubles.
    """
    answers = np.empty(6)
    values, lanes = np.empty(steps), np.zeros(16)
    near_one, square = 1.0 + 2.0**-30, 1.0 + 2.0**-29
    _known_answers(3.9375, 0.1, near_one, square, 2.0**-520, 2**53 + 3, values, lanes, answers)
    return answers


@kernel
def _known_answers(
    rate: float, start: float, near_one: float, square: float, tiny: float, odd: int,
    values: Float, lanes: Float, answers: Float,
) -> None:  # fmt: skip
    """Compute the six numbers. values, lanes: memory, (steps,) and 16 zeros."""
    # Every number comes in as an argument: the compiler would compute with constants itself.
    steps = len(values)
    x = start
    for k in range(steps):
        u = rate * x * (1.0 - x)
        root = np.sqrt(u)
        x = root * (u / root)
        values[k] = x
    total = 0.0
    for k in range(steps):
        total += values[k] * values[steps - 1 - k]
    for k in range(steps - 16):
        for t in range(16):
            lanes[t] += values[k] * values[k + t]
    beside = 0.0
    for t in range(16):
        beside += lanes[t] / (t + 1.0)
    answers[0], answers[1], answers[2] = x, total, beside
    answers[3] = near_one * near_one - square
    answers[4] = tiny * (tiny * near_one)
    answers[5] = float(odd)


def product(A: Float, B: Float) -> Float:
    """Return A B, (a, b), for A (a, k) and B (k, b) in C order. Each entry is summed in the order of k."""
    shape = (A.shape[0], B.shape[1])
    out = np.zeros(shape)
    _add_product(A, B, out)
    return out


@kernel
def _add_product(A: Float, B: Float, out: Float) -> None:
    """Add A B to `out` in the order of k.

    Triangular systems and reflections are made of these sums, so that one small kernel is compiled for all.
    """
    for i in range(A.shape[0]):
        row = out[i]
        for k in range(A.shape[1]):
            factor = A[i, k]
            other = B[k]
            for j in range(len(row)):
                row[j] += factor * other[j]


def cholesky(G: Float, shift: float = 0.0, least: float = 0.0) -> tuple[Float, int]:
    """Return the lower triangle L with L L^T = G - shift I (r, r), and how many pivots are good.

    G: in C order; only its lower triangle counts.
    least: a pivot is good if it is above this share of its diagonal entry of G.
    There are r of them if the matrix is positive definite, and `least` is 0. Rows of L are 0 from the first other pivot
    on.
    """
    L = np.zeros(G.shape)
    return L, int(_factor(G, shift, least, L))


@kernel
def _factor(G: Float, shift: float, least: float, L: Float) -> int:
    """Write the factor to L, zeros at first. Return how many rows it has."""
    for i in range(len(G)):
        for j in range(i):
            total = G[i, j]
            for k in range(j):
                total -= L[i, k] * L[j, k]
            L[i, j] = total / L[j, j]
        pivot = G[i, i] - shift
        for k in range(i):
            pivot -= L[i, k] * L[i, k]
        # Also if it is not a number.
        if not pivot > least * G[i, i]:
            for k in range(i):
                L[i, k] = 0.0
            return i
        L[i, i] = np.sqrt(pivot)
    return len(G)


@np.errstate(all="ignore")
def solve_lower(L: Float, B: Float) -> Float:
    """Return X with L X = B, (r, c), for B (r, c) and a lower triangle L (r, r) whose diagonal holds no zero."""
    X = np.array(B, np.float64, order="C")
    for i in range(len(L)):
        _add_product(-L[i : i + 1, :i], X[:i], X[i : i + 1])
        X[i] /= L[i, i]
    return X


def _sum_in_order(terms: Float) -> Any:
    """Return the sum of `terms` (k,), each added to the sum of those before it."""
    # Other sums of numpy add numbers in pairs, and which ones depends on the shape. A running sum has one order only.
    return np.cumsum(terms)[-1]


def leading_pairs(H: Float, wanted: int) -> tuple[Float, Float]:
    """Return the `wanted` largest eigenvalues of a symmetric H (k, k), descending, and their vectors as columns.

    Householder's reduction makes H tridiagonal, and implicit QL steps make that diagonal. Equal values keep the order
    in which they are found. A value that does not settle in 60 steps is taken as it is.
    """
    reduced = np.array(H, np.float64)
    # Vectors are rows on the way: a rotation reads and writes two of them, whose numbers then lie side by side.
    vectors = np.eye(len(H))
    with np.errstate(all="ignore"):
        diagonal, beside = _tridiagonal(reduced, vectors)
    _tridiagonal_values(diagonal, beside, vectors)
    order = np.argsort(-diagonal, kind="stable")[:wanted]
    return diagonal[order], np.ascontiguousarray(vectors[order].T)


def _tridiagonal(H: Float, vectors: Float) -> tuple[Float, Float]:
    """Reduce H to T = V H V^T in place, V in `vectors`. Return the diagonal of T and its neighbour, (k,) each."""
    k = len(H)
    beside = np.zeros(k)
    for first in range(1, k - 1):
        # A reflection of the words from `first` on takes column first - 1 to a multiple of their first unit vector.
        column = first - 1
        v = H[first:, column].copy()
        length = np.sqrt(_sum_in_order(v * v))
        if length == 0.0:
            continue
        # The sign for which the next difference adds two sizes, and loses no digits.
        target = -length if v[0] > 0.0 else length
        v[0] -= target
        size = _sum_in_order(v * v)
        beside[column] = target
        if size == 0.0:
            continue
        factor = 2.0 / size
        _reflect_both_sides(H[first:, first:], v, factor)
        _reflect(vectors[first:], v, factor)
    if k > 1:
        beside[k - 2] = H[k - 1, k - 2]
    return H.diagonal().copy(), beside


def _reflect_both_sides(H: Float, v: Float, factor: float) -> None:
    """Apply the reflection to rows and columns in place: H - v w^T - w v^T."""
    w = product(v[None], np.ascontiguousarray(H))[0] * factor
    inner = _sum_in_order(v * w) * (factor / 2.0)
    w -= inner * v
    H -= np.outer(v, w) + np.outer(w, v)


def _reflect(vectors: Float, v: Float, factor: float) -> None:
    """Apply the reflection I - factor v v^T to these rows in place."""
    sums = product(v[None], vectors)
    _add_product(-factor * v[:, None], sums, vectors)


@kernel
def _tridiagonal_values(diagonal: Float, beside: Float, vectors: Float) -> None:
    """Turn the diagonal of a tridiagonal matrix into its eigenvalues; `vectors` then has their rows in this order."""
    k = len(diagonal)
    for at in range(k):
        for _ in range(60):
            # The block that begins here ends where the next number beside the diagonal is lost in rounding.
            end = at
            while end < k - 1:
                size = abs(diagonal[end]) + abs(diagonal[end + 1])
                if abs(beside[end]) <= 1.1102230246251565e-16 * size:
                    break
                end += 1
            if end == at:
                break
            # Wilkinson's shift: of the leading two by two block the eigenvalue that is nearer to its first number.
            twice_beside = 2.0 * beside[at]
            half = (diagonal[at + 1] - diagonal[at]) / twice_beside
            root = np.sqrt(half * half + 1.0)
            bottom = half + root if half >= 0.0 else half - root
            apart = diagonal[end] - diagonal[at]
            bulge = apart + beside[at] / bottom
            sine, cosine, passed = 1.0, 1.0, 0.0
            whole = True
            for i in range(end - 1, at - 1, -1):
                f = sine * beside[i]
                b = cosine * beside[i]
                root = np.sqrt(f * f + bulge * bulge)
                beside[i + 1] = root
                # An underflow: the part that was passed on is taken back, and the step begins again.
                if root == 0.0:
                    diagonal[i + 1] -= passed
                    beside[end] = 0.0
                    whole = False
                    break
                sine = f / root
                cosine = bulge / root
                bulge = diagonal[i + 1] - passed
                twist = (diagonal[i] - bulge) * sine + 2.0 * cosine * b
                passed = sine * twist
                diagonal[i + 1] = bulge + passed
                bulge = cosine * twist - b
                upper = vectors[i + 1]
                lower = vectors[i]
                for j in range(k):
                    kept = upper[j]
                    upper[j] = sine * lower[j] + cosine * kept
                    lower[j] = cosine * lower[j] - sine * kept
            if whole:
                diagonal[at] -= passed
                beside[at] = bulge
                beside[end] = 0.0


def _usable() -> int:
    """Return how many cores this process may use."""
    # A container may allow fewer cores than the machine has; not every system can say so.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


CORES = max(1, min(8, _usable()))
"""Cores that this process may use, eight at most."""


def workers() -> int:
    """Return how many threads a pass that releases the interpreter should use."""
    return CORES


def each(work: Callable[..., object], parts: Iterable[Sequence[object]]) -> None:
    """Call a function with each of some lists of arguments, by all workers. The function releases the interpreter.

    An exception of one call is raised once the others are done.
    """
    tasks = list(parts)
    count = workers()
    if min(count, len(tasks)) <= 1:
        for part in tasks:
            work(*part)
        return
    with ThreadPoolExecutor(count) as pool:
        running = [pool.submit(work, *part) for part in tasks]
        # Asked for each result, since a pool keeps exceptions to itself.
        for task in running:
            task.result()


def each_span(work: Callable[..., object], same: Sequence[object], spans: Iterable[Sequence[object]]) -> None:
    """Call a function with the same arguments and each of some spans after them, as `each` does."""
    each(work, [(*same, *span) for span in spans])


def even_spans(n: int, parts: int) -> list[tuple[int, int]]:
    """Cut 0 ... n - 1 into spans, from start to stop, of about one length."""
    edges = np.linspace(0, n, parts + 1).astype(np.int64)
    return list(pairwise(edges.tolist()))


def chunks(n: int, size: int) -> list[tuple[int, int]]:
    """Cut 0 ... n - 1 into spans, from start to stop, of one size; the last one may be shorter."""
    starts = range(0, n, size)
    return [(start, min(start + size, n)) for start in starts]
