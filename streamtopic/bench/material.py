"""Documents of planted topics and their counts at growing sizes, kept in a folder: built once, read by every case."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.bench.synthetic import planted
from streamtopic.counts import Cooccurrence, Counts, DocumentBatch, Weighting, count
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy.typing as npt

__all__ = ["Material"]

_AT_ONCE = 50_000


@dataclass(frozen=True)
class Material:
    """Documents of about `tokens` tokens over `words` words and `topics` planted topics; sizes: ascending.

    The documents of a size are the first of those of the next. A million of 66 tokens take 0.5 GB in `folder`, their
    counts over 5,000 words 0.1 GB for each size and each document mass. Raises UsageError if the folder is missing.
    """

    folder: Path
    sizes: tuple[int, ...]
    words: int = 5_000
    topics: int = 50
    tokens: int = 66
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.folder.is_dir():
            raise UsageError(f"there is no folder {self.folder}: make it, or leave out --folder")

    @cached_property
    def names(self) -> list[str]:
        """Names of the words, ascending like their ids."""
        return [f"w{k:06d}" for k in range(self.words)]

    @cached_property
    def batch(self) -> DocumentBatch:
        """All documents, drawn on first use."""
        path = self._path("documents")
        if not path.exists():
            made = planted(self.sizes[-1], self.words, self.topics, self.tokens, self.seed)
            _save(path, {name: getattr(made, name) for name in ("indptr", "words", "counts", "lengths")})
        with np.load(path) as found:
            arrays = dict(found)
        owners = np.arange(self.sizes[-1], dtype=np.int32)
        return DocumentBatch.whole(**arrays, owners=owners, documents=self.sizes[-1])

    def counts(self, size: int, weighting: Weighting) -> Counts:
        """Return the counts of the first `size` documents, one of `sizes`; counted on first use, from those before."""
        # Files of an older version, which hold fewer arrays, have another name.
        path = self._path(f"counts3-{weighting.cap}-{size}")
        if not path.exists():
            before = self.sizes.index(size) - 1
            start = 0 if before < 0 else self.sizes[before]
            total = self.counts(start, weighting).cooccurrence if start else Cooccurrence.zero(self.words)
            for first in range(start, size, _AT_ONCE):
                total = total + count(
                    self.batch.take(np.arange(first, min(first + _AT_ONCE, size))), self.words, weighting
                )
            _save(path, _arrays(total))
            return Counts(self.names, total)
        with np.load(path) as found:
            arrays = dict(found)
        arrays["columns"] = arrays["columns"].astype(np.int32)
        return Counts(self.names, Cooccurrence(n_words=self.words, documents=size, **arrays))

    def taken(self, documents: npt.NDArray[np.intp]) -> DocumentBatch:
        """Return some documents."""
        return self.batch.take(documents)

    def _path(self, kind: str) -> Path:
        shape = f"{self.sizes[-1]}-{self.words}-{self.topics}-{self.tokens}-{self.seed}"
        return self.folder / f"updates-{shape}-{kind}.npz"


def _arrays(counts: Cooccurrence) -> dict[str, npt.NDArray[np.generic]]:
    narrow = np.uint16 if counts.n_words <= 1 << 16 else np.int32
    names = ("indptr", "values", "frequency", "tokens", "heavy")
    return {"columns": counts.columns.astype(narrow), **{name: getattr(counts, name) for name in names}}


def _save(path: Path, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
    """Write arrays under another name first, so that a file that exists is complete."""
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # its stubs take no mapping of arrays
    part.replace(path)
