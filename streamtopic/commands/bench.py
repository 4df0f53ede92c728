"""`streamtopic bench`: measure on this machine."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from streamtopic.commands.common_arguments import command, whole_number
from streamtopic.console import say, say_json, show, show_error, table
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamtopic.bench import Figure, Result
    from streamtopic.commands.common_arguments import Subparsers

__all__ = ["register", "run"]

_NUMBERS = {
    "posts": "made-up posts of planted topics, in place of documents (benchmark `peers`)",
    "topics": "topics to learn (benchmarks `twin`, `peers`, `quality`, `hostile`)",
    "words": "most words of the vocabulary (benchmark `private`)",
    "epsilon": "of all versions of a period together (benchmark `private`)",
    "versions": "versions of a period (benchmark `private`)",
    "draws": "forget sets of each kind (`twin`, `updates`, `quality`), deletions (`difference`, `private`)",
    "halves": "halvings for quality on unseen documents, 0 for none (benchmarks `peers`, `quality`)",
    "samples": "samples of nine tenths for the spread of our quality (benchmarks `peers`, `quality`)",
    "largest": "documents at most (benchmarks `updates`, `ingest-million`, `scale`)",
    "minutes": "how long; 0: one chain, that of the seed (benchmark `chains`)",
    "seed": "seed of random draws (`twin`, `updates`, `quality`, `chains`, `hostile`)",
}


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(subparsers, "bench", run, "measure speed and memory on this machine", instance=False)
    parser.add_argument("name", nargs="?", metavar="NAME", help="which benchmark")
    parser.add_argument("--case", metavar="CASE", action="append", help="only this case of it; may be repeated")
    parser.add_argument("--list", action="store_true", help="list the benchmarks")
    parser.add_argument(
        "--documents",
        metavar="FILE",
        help="JSON lines, gzip too (`twin`, `peers`, `quality`, `hostile`; default: installed docstrings)",
    )
    parser.add_argument("--rule", metavar="RULE", help="vocabulary rule: own, all, stop or 5%% (benchmark `peers`)")
    parser.add_argument(
        "--folder",
        metavar="DIR",
        help="keep there the state that is built once (benchmark `updates`; default: a temporary one)",
    )
    for name, about in _NUMBERS.items():
        parser.add_argument(f"--{name}", type=whole_number(0), metavar="N", help=about)


def run(args: argparse.Namespace) -> int:
    """Run a benchmark and print its figures."""
    from streamtopic import bench

    if args.list:
        known = bench.names()
        _print_known(known, as_json=args.json)
        return 0
    if args.name is None:
        raise UsageError("which benchmark? `streamtopic bench --list` shows them")
    # Only options that were given: each benchmark has defaults of its own, and refuses options that it does not have.
    given = {name: getattr(args, name) for name in ("documents", "rule", "folder", *_NUMBERS)}
    options = {name: value for name, value in given.items() if value is not None}
    result = bench.run(args.name, args.case or (), lambda case: _say(f"{args.name}: {case} ..."), options)
    if args.json:
        say_json(asdict(result))
    else:
        show(bench.text(result) or _text(result))
    return 0


def _print_known(known: Mapping[str, str], *, as_json: bool) -> None:
    if as_json:
        say_json(known)
        return
    for name, about in known.items():
        say(f"{name:20} {about}")


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
