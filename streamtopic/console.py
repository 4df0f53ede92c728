"""What a person sees at a terminal: lines, tables, progress bars, durations. Bars are quiet where nobody watches.

Everything that the program writes for a person or a pipe goes through `say`, `show`, `say_json`, `warn`, `doing` or
`log_to_stderr`, which let no control character of others through. tests/hostile/test_terminal.py looks for any that
does not.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from streamtopic.concealing import conceal

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterator, Sequence

__all__ = [
    "Update",
    "doing",
    "duration",
    "instant",
    "log_to_stderr",
    "number",
    "printable",
    "progress",
    "say",
    "say_json",
    "show",
    "show_error",
    "table",
    "warn",
]


class Update(Protocol):
    """How a piece of work tells how far it is; total None: not known."""

    def __call__(self, done: int, total: int | None = None, /) -> None:
        """Report."""


def _silent(_done: int, _total: int | None = None, /) -> None:
    """Show nothing."""


@contextmanager
def progress(title: str, unit: str, *, quiet: bool = False) -> Iterator[Update]:
    """Show a bar on standard error, at a terminal only; yields `update(done, total)`."""
    if quiet or not sys.stderr.isatty():
        yield _silent
        return
    from tqdm import tqdm

    with tqdm(desc=title, unit=f" {unit}", leave=False, dynamic_ncols=True, delay=0.3) as bar:

        def update(done: int, total: int | None = None, /) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield update


def doing(what: str) -> None:
    """Say at a terminal what is going on, in a line that the next output takes the place of; nothing clears it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{printable(what) + ' ...' if what else ''}")
        sys.stderr.flush()


def say(line: str = "") -> None:
    """Print one line on standard output; whatever `line` holds, it stays one line."""
    sys.stdout.write(printable(line) + "\n")
    sys.stdout.flush()


def show(block: str) -> None:
    """Print lines that were laid out here, such as a table; text of others in them was made one line before."""
    for line in block.split("\n"):
        sys.stdout.write(printable(line) + "\n")
    sys.stdout.flush()


def say_json(value: object) -> None:
    """Print a value as one line of JSON, in which everything that is not plain ASCII is escaped."""
    # JSON allows DEL as it is.
    sys.stdout.write(json.dumps(value).replace("\x7f", "\\u007f") + "\n")
    sys.stdout.flush()


def warn(message: str) -> None:
    """Print one line on standard error."""
    sys.stderr.write(f"streamtopic: {printable(conceal(message))}\n")


def show_error(block: str) -> None:
    """Print lines on standard error, such as a traceback."""
    for line in block.rstrip("\n").split("\n"):
        sys.stderr.write(printable(conceal(line)) + "\n")


def log_to_stderr(*, detailed: bool, lines: logging.Formatter | None = None) -> None:
    """Let what is logged go to standard error, as one line of printable text, a traceback as several.

    detailed: with time and place, from INFO on, as services log; else the bare text of warnings.
    lines: writes them in another form, which must be as careful.
    """
    import logging

    class Careful(logging.Formatter):
        """Escapes what others could have put into a message."""

        def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
            return printable(conceal(super().formatMessage(record)))

        def formatException(self, ei: object) -> str:  # noqa: N802 - logging's name
            text = super().formatException(ei)  # type: ignore[arg-type]
            return "\n".join(printable(conceal(line)) for line in text.split("\n"))

    if detailed:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(lines or Careful("%(asctime)s %(name)s: %(message)s"))
        logging.basicConfig(level=logging.INFO, handlers=[handler])
    elif logging.lastResort is not None:
        logging.lastResort.setFormatter(Careful("%(message)s"))


def printable(text: str) -> str:
    """Return text of others as a terminal may show it: what would move the cursor or turn the writing is escaped."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Lay out rows under a head; columns of numbers are aligned to the right."""
    # Escaped before widths are taken: what is escaped later would be longer than its column.
    cells = [_printable_row(row) for row in rows]
    columns = list(zip(head, *cells, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [bool(rows) and _all_numbers(rows, k) for k in range(len(head))]

    def line(row: Sequence[str]) -> str:
        parts = (cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right, strict=True))
        return "  ".join(parts).rstrip()

    return "\n".join([line(head), line(["-" * w for w in widths]), *map(line, cells)])


def _printable_row(row: Sequence[object]) -> list[str]:
    return [printable(str(cell)) for cell in row]


def _all_numbers(rows: Sequence[Sequence[object]], column: int) -> bool:
    return all(not isinstance(row[column], str) for row in rows)


def instant(milliseconds: int, timespec: str = "milliseconds") -> str:
    """Write a time, given in milliseconds since 1970; one that no calendar has, as the number that it is."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec=timespec)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"


def duration(seconds: float) -> str:
    """Write a duration with a unit that suits it."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def number(value: float | None) -> str:
    """Write a figure in at most four digits; a dash for None."""
    return "-" if value is None else f"{value:.4g}"
