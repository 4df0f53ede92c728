"""The `streamtopic` program: parse arguments, run one command, turn errors into one line and an exit status.

Exit status: 0 done, 1 a check failed, 2 wrong usage or settings, 3 a component cannot be reached.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from streamtopic import commands
from streamtopic.console import log_to_stderr, say, show_error, warn
from streamtopic.errors import ComponentUnreachable, StreamtopicError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["build_parser", "main"]


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Print the error with the remedy and leave with status 2."""
        show_error(f"{self.prog}: {' '.join(message.split())} (see {self.prog} --help)")
        self.exit(UsageError.exit_status)


# Objects that are made before Python looks for garbage among them, as long as a command runs.
_OBJECTS = 20_000


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole program. Each command sets `run`, a function of the parsed arguments."""
    parser = Parser(
        prog="streamtopic",
        description="Topic models over streams of documents that can forget.",
        epilog="Begin with `streamtopic demo`. `streamtopic COMMAND --help` describes a command.",
    )
    parser.set_defaults(debug=False)
    parser.add_argument("--version", action="store_true", help="print the version and leave")
    subparsers = parser.add_subparsers(metavar="COMMAND", title="commands")
    for add_to in commands.ALL:
        add_to(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status.

    argv: the arguments; None for the arguments of the process.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    parser = build_parser()
    try:
        args = parser.parse_args(arguments)
    except SystemExit as leaving:
        # argparse leaves by itself after an error, and after --help.
        return leaving.code if isinstance(leaving.code, int) else UsageError.exit_status
    if args.version:
        args.run = _print_version
    elif not hasattr(args, "run"):
        args.run = partial(_print_help, parser)
    return _run(args)


def _print_version(_: argparse.Namespace) -> int:
    from streamtopic import __version__

    say(f"streamtopic {__version__}")
    return 0


def _print_help(parser: argparse.ArgumentParser, _: argparse.Namespace) -> int:
    parser.print_help()
    return UsageError.exit_status


def _run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status; errors become one."""
    log_to_stderr(detailed=False)
    usual = gc.get_threshold()
    # Most commands take longer to load their modules than to work, and a sixth of that time was looking for garbage.
    gc.set_threshold(_OBJECTS)
    try:
        status = int(args.run(args))
        # Here, where a reader that has left can still be noticed.
        sys.stdout.flush()
    except StreamtopicError as error:
        return _fail(str(error), error, args, error.exit_status)
    except KeyboardInterrupt:
        warn("interrupted")
        # As shells count it: 128 and the number of the signal.
        return 130
    except BrokenPipeError:
        # The reader of our output has left; Python would complain once more when it flushes at exit.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        return 0
    except OSError as error:
        place = f" {error.filename}" if error.filename is not None else ""
        text = f"the operating system refuses{place}: {error.strerror or error}; mend that, then run the command again"
        return _fail(text, error, args, ComponentUnreachable.exit_status)
    except Exception as error:  # noqa: BLE001 - a person gets one line for any error, or the traceback on request
        text = f"unexpected {type(error).__name__}: {error}; run again with --debug for the traceback"
        return _fail(text, error, args, 1)
    finally:
        # A process that counts documents has chosen a threshold of its own.
        if gc.get_threshold()[0] == _OBJECTS:
            gc.set_threshold(*usual)
    return status


def _fail(message: str, error: Exception, args: argparse.Namespace, status: int) -> int:
    """Print the message, or the traceback for --debug, and return the status."""
    if args.debug:
        import traceback

        # Not raised: Python would print the characters of an error as they are, control characters included.
        lines = traceback.format_exception(error)
        show_error("".join(lines))
    else:
        warn(" ".join(message.split()))
    return status


if __name__ == "__main__":
    raise SystemExit(main())
