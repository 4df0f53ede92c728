"""Damaged and invented input for every decoder, for so many minutes: only this package's own exceptions are allowed.

A finding is printed with its seed: `streamtopic bench fuzz --minutes 0 --seed SEED` repeats it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtopic.lab.bench.figures import Figure

if TYPE_CHECKING:
    from streamtopic.lab.bench.runner import Option

__all__ = ["CASES", "OPTIONS"]

OPTIONS: dict[str, Option] = {"minutes": 1, "seed": 0}
"""minutes: how long (0: one input for each decoder); seed: of the first input."""


def _case(minutes: int, seed: int) -> list[Figure]:
    """All decoders in turn."""
    from streamtopic.console import show_error
    from streamtopic.errors import CheckFailed
    from streamtopic.lab.bench.fuzz import fuzz

    tried, findings = fuzz(60.0 * minutes, seed)
    if findings:
        for finding in findings:
            show_error(str(finding))
        again = f"streamtopic bench fuzz --minutes 0 --seed {findings[0].seed}"
        raise CheckFailed(f"{len(findings)} exceptions that are not this package's: `{again}` repeats the first")
    return [Figure(name, number, "inputs") for name, number in tried.items()]


CASES = {"fuzz": _case}
