"""Runs a Python program with a wrong clock: `python skewed.py SECONDS -m MODULE ARGUMENTS`.

Only the time of day of this program is wrong. Its monotonic clocks are right, and so are those of broker and Redis.
"""

from __future__ import annotations

import runpy
import sys
import time

__all__: list[str] = []


def _skew(seconds: float) -> None:
    """Put the time of day forward, or back for negative seconds."""
    # Both functions, since a program that mixes them must not see two times.
    true, true_ns, nanoseconds = time.time, time.time_ns, int(seconds * 1e9)
    time.time = lambda: true() + seconds
    time.time_ns = lambda: true_ns() + nanoseconds


def _run(program: list[str]) -> None:
    if program[0] == "-m":
        sys.argv = program[1:]
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = program
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    _skew(float(sys.argv[1]))
    _run(sys.argv[2:])
