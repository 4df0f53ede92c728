"""Benchmarks: `streamtopic bench NAME`.

A benchmark is a module in `streamtopic.bench.cases` (underscores in its name are dashes on the command line) with

    CASES: Mapping[str, Callable[..., list[Figure]]]    what is measured; each case runs in a process of its own
    OPTIONS: Mapping[str, int | str]                    optional; keyword arguments of every case, with their defaults

and a docstring whose first line says what it measures. Modules import what is heavy inside their functions.
"""

from streamtopic.bench.figures import Figure
from streamtopic.bench.runner import CaseResult, Result, machine, names, run

__all__ = ["CaseResult", "Figure", "Result", "machine", "names", "run"]
