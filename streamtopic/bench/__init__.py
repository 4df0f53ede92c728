"""Benchmarks: `streamtopic bench NAME`.

A benchmark is a module in `streamtopic.bench.cases` (underscores in its name are dashes on the command line) with

    CASES: Mapping[str, Callable[..., list[Figure]]]    what is measured; each case runs in a process of its own
    OPTIONS: Mapping[str, int | str]                    optional; keyword arguments of every case, with their defaults
    def ratios(figures) -> list[Figure]                 optional; figures: case to name to value, of this run
    def text(result) -> str                             optional; what to print in place of lists of figures

and a docstring whose first line says what it measures. Modules import what is heavy inside their functions.

If OPTIONS have `folder` with the default "", all cases of a run are given the same new one, which goes with the run:
for state that is built once.
"""

from streamtopic.bench.figures import Figure
from streamtopic.bench.runner import CaseResult, Result, machine, names, run, text

__all__ = ["CaseResult", "Figure", "Result", "machine", "names", "run", "text"]
