"""`streamtopic bench`: measure on this machine."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from streamtopic.commands.common_arguments import answer, command
from streamtopic.console import show_error, table
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from streamtopic.bench import Figure, Result
    from streamtopic.commands.common_arguments import Subparsers

__all__ = ["register", "run"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(subparsers, "bench", run, "measure speed and memory on this machine", instance=False)
    parser.add_argument("name", nargs="?", metavar="NAME", help="which benchmark")
    parser.add_argument(
        "options",
        nargs="*",
        metavar="OPTION=VALUE",
        help="an option of it, such as documents=FILE (JSON lines, gzip too)",
    )
    parser.add_argument("--case", metavar="CASE", action="append", help="only this case of it; may be repeated")
    parser.add_argument("--list", action="store_true", help="list the benchmarks, with their options and defaults")


def run(args: argparse.Namespace) -> int:
    """Run a benchmark and print its figures."""
    from streamtopic import bench

    if args.list:
        known = bench.names()
        return answer(args, known, *(f"{name:20} {about}" for name, about in known.items()))
    if args.name is None:
        raise UsageError("which benchmark? `streamtopic bench --list` shows them")
    options: dict[str, str] = {}
    for given in args.options:
        option, _, value = given.partition("=")
        options[option] = value
    result = bench.run(args.name, args.case or (), lambda case: _say(f"{args.name}: {case} ..."), options)
    return answer(args, asdict(result), block=bench.text(result) or _text(result))


def _say(message: str) -> None:
    # A case may take minutes: a person wants to know which one runs, and a pipe gets the result alone.
    if sys.stderr.isatty():
        show_error(message)


def _text(result: Result) -> str:
    rows = [[case.case, *_cells(figure)] for case in result.cases for figure in case.figures]
    rows += [[case.case, "peak memory", f"{case.peak_memory / 1e6:.0f}", "MB", ""] for case in result.cases]
    rows += [["(ratio)", *_cells(figure)] for figure in result.ratios]
    return f"{result.machine}\n\n{table(['case', 'figure', 'value', 'unit', 'target'], rows)}"


def _cells(figure: Figure) -> list[str]:
    # Four digits of a large number would be written with an exponent, which nobody compares at a glance.
    value = f"{figure.value:,.4g}" if abs(figure.value) < 1e4 else f"{figure.value:,.0f}"
    return [figure.name, value, figure.unit, figure.target]
