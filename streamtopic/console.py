"""What a person sees at a terminal: progress bars, tables, durations. Quiet where nobody watches."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Update", "doing", "duration", "number", "printable", "progress", "table", "warn"]


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
        sys.stderr.write(f"\r\033[K{what + ' ...' if what else ''}")
        sys.stderr.flush()


def warn(message: str) -> None:
    """Print one line on standard error."""
    sys.stderr.write(f"streamtopic: {message}\n")


def printable(text: str) -> str:
    """Return text of others as a terminal may show it: what would move the cursor or turn the writing is escaped."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Lay out rows under a head; columns of numbers are aligned to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max([len(title), *(len(row[k]) for row in cells)]) for k, title in enumerate(head)]
    right = [bool(rows) and all(not isinstance(row[k], str) for row in rows) for k in range(len(head))]

    def line(row: Sequence[str]) -> str:
        parts = (cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right, strict=True))
        return "  ".join(parts).rstrip()

    return "\n".join([line(head), line(["-" * w for w in widths]), *map(line, cells)])


def duration(seconds: float) -> str:
    """Write a duration with a unit that suits it."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def number(value: float | None) -> str:
    """Write a figure in at most four digits; a dash for None."""
    return "-" if value is None else f"{value:.4g}"
