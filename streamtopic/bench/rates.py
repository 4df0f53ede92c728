"""The speed of this machine on one thread, measured in the same run as the stages that are compared with it."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from streamtopic.bench.figures import Figure, best_of

__all__ = ["Rates", "Work", "measured_rates"]

Float = npt.NDArray[np.float64]
_REPEATS = 5
_TRIAD = 4_000_000
_DENSE = 1_500
_THIN_ROWS = 256
_THIN_TERMS = 400_000


@dataclass(frozen=True, slots=True)
class Work:
    """The least work of a stage: bytes to and from memory, flops of dense products and of sums of thin rows."""

    memory: float = 0.0
    dense: float = 0.0
    thin: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.memory + other.memory, self.dense + other.dense, self.thin + other.thin)


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes/s of memory, flops/s of a dense product, and flops/s of adding up thin rows that lie in the L2."""

    memory: float
    dense: float
    thin: float

    def bound(self, work: Work) -> tuple[float, str]:
        """Return the least seconds of some work, and the rate that binds it; moving and computing overlap."""
        computing = work.dense / self.dense + work.thin / self.thin
        moving = work.memory / self.memory
        if moving >= computing:
            return moving, "memory"
        return computing, "dense flops" if work.dense / self.dense >= work.thin / self.thin else "thin flops"

    def figures(self) -> list[Figure]:
        """Return the rates."""
        return [
            Figure("machine, memory (triad)", self.memory / 1e9, "GB/s"),
            Figure("machine, dense product", self.dense / 1e9, "Gflop/s"),
            Figure("machine, sums of thin rows in the L2", self.thin / 1e9, "Gflop/s"),
        ]


def measured_rates(r: int) -> Rates:
    """Measure; r: entries of a thin row. Cost: a second or two. BLAS must be limited to one thread by the caller."""
    rng = np.random.default_rng(0)
    a, b, c = (rng.random(_TRIAD) for _ in range(3))
    _triad(a, b, c)
    triad = best_of(_REPEATS, lambda: _triad(a, b, c))
    square, other = rng.random((2, _DENSE, _DENSE))
    dense = best_of(_REPEATS, lambda: square @ other)
    thin, columns = rng.random((_THIN_ROWS, r)), rng.integers(0, _THIN_ROWS, _THIN_TERMS).astype(np.int32)
    values, total = rng.integers(1, 1_000, _THIN_TERMS), np.zeros(r)
    _sum_thin(columns, values, thin, total)
    sums = best_of(_REPEATS, lambda: _sum_thin(columns, values, thin, total))
    return Rates(3 * 8 * _TRIAD / triad, 2 * _DENSE**3 / dense, 2.0 * _THIN_TERMS * r / sums)


@numba.njit(cache=True, nogil=True)
def _triad(a: Float, b: Float, c: Float) -> None:
    for k in range(len(a)):
        a[k] = b[k] + 3.0 * c[k]


@numba.njit(cache=True, nogil=True)
def _sum_thin(columns: npt.NDArray[np.int32], values: npt.NDArray[np.int64], thin: Float, total: Float) -> None:
    for k in range(len(columns)):
        value = float(values[k])
        factors = thin[columns[k]]
        for t in range(thin.shape[1]):
            total[t] += value * factors[t]
