"""Output for a person or a pipe: lines, tables, progress bars, durations. Bars are quiet if nobody watches.

All output of the program goes through `say`, `show`, `say_json`, `warn`, `doing` or `log_to_stderr`, which escape
control characters of others. tests/hostile/test_terminal.py searches for output that bypasses them.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from streamtopic.security.concealing import conceal

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterator, Mapping, Sequence


__all__ = [
    "Update",
    "aligned",
    "doing",
    "duration",
    "instant",
    "log_to_stderr",
    "number_of",
    "plain",
    "printable",
    "progress",
    "say",
    "say_json",
    "show",
    "show_error",
    "table",
    "table_of",
    "warn",
]


# Fields of JSON that are milliseconds since 1970.
_TIMES = frozenset(
    {"applied", "at", "attested", "changed", "created", "decided", "due", "looked", "made", "received", "since"}
)


# Larger figures are written with an exponent.
_LARGEST_PLAIN = 1e12


class Update(Protocol):
    """A function by which a piece of work reports its progress."""

    def __call__(self, done: int, total: int | None = None, /) -> None:
        """Report steps done, and steps in all; None for an unknown total."""


def _silent(_done: int, _total: int | None = None, /) -> None:
    """Show nothing."""


@contextmanager
def progress(title: str, unit: str, *, quiet: bool = False) -> Iterator[Update]:
    """Show a bar on standard error, at a terminal only; yields `update(done, total)`."""
    if quiet or not sys.stderr.isatty():
        yield _silent
        return
    from tqdm import tqdm

    # Shorter work ends before its bar would be drawn, so a terminal does not flicker.
    with tqdm(desc=title, unit=f" {unit}", leave=False, dynamic_ncols=True, delay=0.3) as bar:

        def update(done: int, total: int | None = None, /) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield update


def doing(what: str) -> None:
    """Show at a terminal what is going on, in a line that the next such line replaces; "" clears it."""
    if not sys.stderr.isatty():
        return
    line = f"{printable(what)} ..." if what else ""
    sys.stderr.write(f"\r\033[K{line}")
    sys.stderr.flush()


def say(line: str = "") -> None:
    """Print one line on standard output; line ends within it are escaped."""
    sys.stdout.write(printable(line) + "\n")
    # A pipe is buffered, and its reader may wait for this line.
    sys.stdout.flush()


def show(block: str) -> None:
    """Print lines that this program laid out, such as a table; text of others in them has been escaped before."""
    for line in block.split("\n"):
        sys.stdout.write(printable(line) + "\n")
    sys.stdout.flush()


def say_json(value: object) -> None:
    """Print a value as one line of JSON in plain ASCII; other characters are escaped."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def warn(message: str) -> None:
    """Print one line on standard error."""
    sys.stderr.write(f"streamtopic: {printable(conceal(message))}\n")


def show_error(block: str) -> None:
    """Print lines on standard error, such as a traceback."""
    for line in block.rstrip("\n").split("\n"):
        sys.stderr.write(printable(conceal(line)) + "\n")


def log_to_stderr(*, detailed: bool, lines: logging.Formatter | None = None) -> None:
    """Send log records to standard error: a message as one line of printable text, a traceback as several lines.

    detailed: whether to log as services do, from INFO on and with time and place; else the bare text of warnings.
    lines: writes detailed records in another form, which must escape as much.
    """
    import logging

    class Careful(logging.Formatter):
        """Escapes characters that others could have put into a message."""

        def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
            return printable(conceal(super().formatMessage(record)))

        def formatException(self, ei: object) -> str:  # noqa: N802 - logging's name
            text = super().formatException(ei)  # type: ignore[arg-type]
            lines = [printable(conceal(line)) for line in text.split("\n")]
            return "\n".join(lines)

    if detailed:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(lines or Careful("%(asctime)s %(name)s: %(message)s"))
        logging.basicConfig(level=logging.INFO, handlers=[handler])
    elif logging.lastResort is not None:
        logging.lastResort.setFormatter(Careful("%(message)s"))


def printable(text: str) -> str:
    """Return text of others as a terminal may show it: characters that move the cursor or turn a line are escaped."""
    if text.isprintable():
        return text
    characters = [c if c.isprintable() else ascii(c)[1:-1] for c in text]
    return "".join(characters)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Lay out rows of values of JSON under a head; columns of numbers are aligned to the right."""
    # Escaped before widths are taken, since an escaped character is wider.
    cells = [list(map(_shown, row, head)) for row in rows]
    columns = zip(head, *cells, strict=True)
    widths = [max(map(len, column)) for column in columns]
    right = [_all_numbers(rows, k) for k in range(len(head))]

    def line(row: Sequence[str]) -> str:
        parts = []
        for cell, width, to_the_right in zip(row, widths, right, strict=True):
            parts.append(cell.rjust(width) if to_the_right else cell.ljust(width))
        return "  ".join(parts).rstrip()

    ruler = ["-" * width for width in widths]
    return "\n".join([line(head), line(ruler), *map(line, cells)])


def _shown(value: object, name: str) -> str:
    return printable(plain(value, name))


def _all_numbers(rows: Sequence[Sequence[object]], column: int) -> bool:
    """Return whether a column holds numbers; false for a table without rows."""
    return bool(rows) and all(isinstance(row[column], int | float | None) for row in rows)


def table_of(records: Sequence[Mapping[str, object]], *names: str) -> str:
    """Lay out some fields of objects of JSON, an object a row."""
    head = [name.replace("_", " ") for name in names]
    return table(head, [list(map(record.get, names)) for record in records])


def aligned(fields: Mapping[str, object]) -> list[str]:
    """Return a line for each field of an object of JSON: its name, and its value in a column of its own."""
    width = max(map(len, fields))
    return [f"{name.replace('_', ' '):{width}}  {plain(value, name)}" for name, value in fields.items()]


def number_of(number: int, noun: str) -> str:
    """Write a number with its noun, which takes an s unless the number is 1."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def instant(milliseconds: int, timespec: str = "milliseconds") -> str:
    """Write a time in ISO 8601, UTC.

    milliseconds: since 1970. A time outside the calendar is written as this number.
    timespec: as in `datetime.isoformat`.
    """
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
        return moment.isoformat(timespec=timespec)
    # The last year is 9999, and platforms differ in what they raise beyond their own limits.
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"


def duration(seconds: float) -> str:
    """Write a duration with a unit that suits it."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min"


def plain(value: object, name: str = "") -> str:
    """Write a value of JSON for a person: parts of objects and lists in one line, a dash for nothing.

    name: of the field; some fields are milliseconds since 1970.
    """
    timed = name in _TIMES
    if isinstance(value, dict):
        # Times of several things have the names of the things.
        parts = [f"{key} {plain(part, name if timed else key)}" for key, part in value.items()]
        nested = any(isinstance(part, dict) for part in value.values())
        return ("; " if nested else ", ").join(parts) or "-"
    if isinstance(value, list | tuple):
        return "; ".join(map(plain, value)) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    # A number of things that were received is far below any time since 1970.
    if isinstance(value, int) and timed and value > 10**11:
        return instant(value, "seconds")
    if isinstance(value, float):
        # Four digits, or a whole number if it has more.
        return f"{value:,.0f}" if 1000 <= abs(value) < _LARGEST_PLAIN else f"{value:.4g}"
    return "-" if value is None or value == "" else str(value)
