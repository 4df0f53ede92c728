"""`streamtopic bench`: measure on this machine."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from streamtopic.commands.common_arguments import (
    answer,
    command,
    option,
)
from streamtopic.console import show_error, table
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from streamtopic.bench import Result

__all__ = ["COMMANDS"]


@command(
    option("NAME", "which benchmark", nargs="?"),
    option("OPTION=VALUE", "an option of it, such as documents=FILE (JSON lines, gzip too)", nargs="*", dest="options"),
    option("--case CASE", "only this case of it; may be repeated", action="append"),
    option("--list", "list the benchmarks, with their options and defaults"),
    instance=False,
)
def _bench(args: argparse.Namespace) -> int:
    """Measure speed and memory on this machine."""
    from streamtopic import bench

    if args.list:
        known = bench.names()
        return answer(args, known, *(f"{name:20} {about}" for name, about in known.items()))
    if args.name is None:
        raise UsageError("which benchmark? `streamtopic bench --list` shows them")
    options: dict[str, str] = {}
    for given in args.options:
        chosen, _, value = given.partition("=")
        options[chosen] = value
    result = bench.run(args.name, args.case or (), lambda case: _say(f"{args.name}: {case} ..."), options)
    return answer(args, asdict(result), block=_text(result))


def _say(message: str) -> None:
    # A case may take minutes: a person wants to know which one runs, and a pipe gets the result alone.
    if sys.stderr.isatty():
        show_error(message)


def _text(result: Result) -> str:
    """Return a row for each figure, with a column for each case."""
    from streamtopic.bench import Figure

    rows: dict[tuple[str, str, str], dict[str, float]] = {}
    for case in result.cases:
        for figure in (*case.figures, Figure("peak memory of the process", case.peak_memory / 1e6, "MB")):
            cells = rows.setdefault((figure.name, figure.unit, figure.target), {})
            cells[case.case] = float(figure.value)
    cases = [case.case for case in result.cases]
    lines = []
    for (name, unit, target), cells in rows.items():
        lines.append([name, *map(cells.get, cases), unit, target])
    return f"{result.machine}\n\n{table(['figure', *cases, 'unit', 'target'], lines)}"


COMMANDS = (_bench,)
