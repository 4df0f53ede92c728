"""Models side by side, as a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from streamtopic.bench.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streamtopic.bench.peers.score import Score
    from streamtopic.bench.runner import CaseResult, Option, Result

__all__ = ["spread", "text"]

COLUMNS: tuple[tuple[str, str, str, int], ...] = (
    ("words", "vocabulary", ",.0f", 0),
    ("learn s", "learn", ".2f", -1),
    ("MB", "memory", ",.0f", -1),
    ("unseen", "NPMI, unseen half", ".3f", 1),
    ("unseen, likely", "NPMI, unseen half, by probability", ".3f", 1),
    ("diversity", "diversity, unseen half", ".2f", 1),
    ("accuracy", "accuracy", ".3f", 1),
    ("in sample", "NPMI", ".3f", 1),
    ("likely", "NPMI, by probability", ".3f", 1),
    ("plain", "NPMI, plain", ".3f", 1),
    ("infer /s", "infer", ",.0f", 1),
    ("add /s", "add", ",.0f", 1),
    ("forget /s", "forget", ",.0f", 1),
    ("forget one s", "forget one document", ".3f", -1),
)
"""Head, figure, format, and whether more (1), less (-1) or neither is better."""

NOTES = """\
s, /s: processor seconds, and documents a processor second; add, forget: a tenth of the documents at once.
*: the best of a column, as printed. r: the library cannot do it, so this is what a new fit costs.
unseen: NPMI of ten words, learned on one half of the documents and scored on the other, and their diversity; in sample:
on the documents that were learned. The ten of all models are the coherent ten of the first twenty by coefficients, as
ours shows them; likely: by probability, p(w|t) sqrt(df/(m p)) log(m/df); plain: the first ten by p(w|t)."""


def spread(scores: Sequence[Score]) -> Iterator[Figure]:
    """Yield the mean NPMI over samples of nine tenths, and greatest less least, which is the effect of chance."""
    unit = f"of {len(scores)} samples of nine tenths"
    measured = {
        "NPMI": [score.npmi for score in scores],
        "NPMI, by probability": [score.likely_npmi for score in scores],
    }
    for name, values in measured.items():
        yield Figure(f"{name}, mean", sum(values) / len(values), unit)
        yield Figure(f"{name}, spread", max(values) - min(values), unit)


def text(result: Result) -> str:
    """Return one row a model, the best of each column marked, and the ratios below."""
    from streamtopic.console import table

    measured = [case for case in result.cases if not _missing(case)]
    columns = [_column(measured, *column[1:]) for column in COLUMNS]
    kept = [k for k, column in enumerate(columns) if any(cell.strip("- ") for cell in column)]
    rows = [[case.case, *(columns[k][row] for k in kept)] for row, case in enumerate(measured)]
    head = ["model", *(COLUMNS[k][0].rjust(max(map(len, columns[k]))) for k in kept)]
    about = f"{_corpus(result.options)}, {result.options['topics']} topics, vocabulary rule {result.options['rule']}"
    lines = [result.machine, about, "", table(head, rows)]
    lines += [f"{case.case}: not measured, {figure.unit}" for case in result.cases for figure in _missing(case)]
    ratios = [[f.name, f"{f.value:,.3g} {f.unit}".strip(), f.target] for f in result.ratios]
    below = ["", table(["ratio", "value", "target"], ratios)] if ratios else []
    return "\n".join([*lines, "", NOTES, *below])


def _missing(case: CaseResult) -> list[Figure]:
    return [figure for figure in case.figures if figure.name == "not measured"]


def _column(cases: list[CaseResult], name: str, spec: str, better: int) -> list[str]:
    """Return a column's cells, all as wide; a dash if a model has no such figure."""
    found = [next((figure for figure in case.figures if figure.name == name), None) for case in cases]
    shown = ["-" if figure is None else format(figure.value, spec) for figure in found]
    # Figures that are printed alike are equally good: further digits are noise.
    sizes = [float(cell.replace(",", "")) * better for cell in shown if cell != "-"]
    best = max(sizes, default=0.0) if better else None
    cells = []
    for cell, figure in zip(shown, found, strict=True):
        marks = "r" if figure is not None and figure.unit.endswith("refit") else " "
        marks += "*" if best is not None and cell != "-" and float(cell.replace(",", "")) * better == best else " "
        cells.append(f"{cell} {marks}")
    width = max(map(len, cells), default=0)
    return [cell.rjust(width) for cell in cells]


def _corpus(options: Mapping[str, Option]) -> str:
    if posts := options.get("posts"):
        return f"{posts:,} made-up posts"
    return Path(str(options["documents"])).name or "installed docstrings"
