"""The `streamtopic` program: parse arguments, run one command, turn errors into one line and an exit status.

Exit status: 0 done, 1 a check failed, 2 wrong usage or settings, 3 a component cannot be reached.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from streamtopic import commands
from streamtopic.console import log_to_stderr, say, show_error, warn
from streamtopic.errors import StreamtopicError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["build_parser", "main"]


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Print the error with the remedy and leave with status 2."""
        show_error(f"{self.prog}: {' '.join(message.split())} (see {self.prog} --help)")
        self.exit(UsageError.exit_status)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole program; each command sets `run`, a function of the parsed arguments."""
    parser = Parser(
        prog="streamtopic",
        description="Topic models over streams of documents that can forget.",
        epilog="Begin with `streamtopic demo`. `streamtopic COMMAND --help` describes a command.",
    )
    parser.add_argument("--version", action="store_true", help="print the version and leave")
    subparsers = parser.add_subparsers(metavar="COMMAND", title="commands")
    for command in commands.ALL:
        command.register(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program with these arguments (those of the process if None) and return its exit status."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    parser = build_parser()
    try:
        args = parser.parse_args(arguments)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else UsageError.exit_status
    if args.version:
        from streamtopic import __version__

        say(f"streamtopic {__version__}")
        return 0
    if not hasattr(args, "run"):
        parser.print_help()
        return UsageError.exit_status
    return _run(args)


def _run(args: argparse.Namespace) -> int:
    log_to_stderr(detailed=False)
    try:
        status = int(args.run(args))
        sys.stdout.flush()
    except StreamtopicError as error:
        return _fail(str(error), error, args, error.exit_status)
    except KeyboardInterrupt:
        warn("interrupted")
        return 130
    except BrokenPipeError:
        # Whoever read our output has left; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - whatever it is, a person gets one line, or the traceback on request
        text = f"unexpected {type(error).__name__}: {error}; run again with --debug for the traceback"
        return _fail(text, error, args, 1)
    return status


def _fail(message: str, error: Exception, args: argparse.Namespace, status: int) -> int:
    if args.debug:
        import traceback

        # Not raised: Python would print whatever characters the error quotes.
        show_error("".join(traceback.format_exception(error)))
    else:
        warn(" ".join(message.split()))
    return status


if __name__ == "__main__":
    raise SystemExit(main())
