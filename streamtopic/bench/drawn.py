"""Documents of planted topics, drawn in a process of their own and left in a folder for the process that is measured.

    python -m streamtopic.bench.drawn posts FOLDER documents words topics tokens
    python -m streamtopic.bench.drawn counts FOLDER documents words topics tokens cap draws drawn

posts: word counts (posts.npz) and the same as text (posts.txt, a line a document), with lengths as posts have them;
counts: pair counts, and `draws` sets of `drawn` documents to forget.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.bench.figures import peak_bytes
from streamtopic.bench.synthetic import counted, planted, subset
from streamtopic.counts import Cooccurrence, DocumentBatch, SymmetricCounts, Weighting
from streamtopic.counts.compact import UpperRows, mirrored, pack, unpack
from streamtopic.errors import CheckFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Int32 = npt.NDArray[np.int32]
    Int64 = npt.NDArray[np.int64]

__all__ = ["SPREAD", "SavedCounts", "drawn", "forget_sets", "peak_megabytes", "post_lengths"]

SPREAD = 1.0
"""Standard deviation of the logarithm of a post's length."""
_PANEL = 1 << 20
_ARRAYS = ("indptr", "words", "counts", "lengths", "owners")
_STATISTICS = ("frequency", "tokens", "heavy")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def drawn(kind: str, folder: Path, *sizes: int) -> None:
    """Draw documents into a folder, in a process that is gone afterwards. Raises CheckFailed if it fails."""
    program = [sys.executable, "-P", "-m", "streamtopic.bench.drawn", kind, str(folder), *map(str, sizes)]
    if subprocess.run(program, check=False).returncode:  # noqa: S603  this very program
        raise CheckFailed("the documents could not be drawn: see the output above")


def peak_megabytes() -> float:
    """Return the peak memory of this program in MB (2**20 bytes), without the memory that its parent had."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM"))) / 1024
    return peak_bytes() / (1 << 20)


def post_lengths(documents: int, tokens: int, seed: int) -> Int64:
    """Draw lengths of posts: log-normal with mean `tokens`; half are below 0.6 of it, one in a hundred above 6."""
    draws = np.random.default_rng(seed).lognormal(np.log(tokens) - SPREAD**2 / 2, SPREAD, documents)
    return np.asarray(np.rint(draws).clip(2, 8_192), np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class SavedCounts:
    """Counts in a folder, read in panels of rows on demand, so that the source itself holds no pairs."""

    folder: Path
    words: Sequence[str]
    frequency: Int64
    tokens: Int64
    heavy: Int64
    documents: int

    @classmethod
    def opened(cls, folder: Path) -> SavedCounts:
        """Return the counts that the process `counts` has left in a folder."""
        with np.load(folder / "words.npz") as found:
            frequency, tokens, heavy = (found[name] for name in _STATISTICS)
            documents = int(found["documents"])
        return cls(folder, [f"w{k:06d}" for k in range(len(frequency))], frequency, tokens, heavy, documents)

    def save(self, counts: Cooccurrence) -> None:
        """Write the pairs, and the file of the words."""
        arrays = {name: getattr(self, name) for name in (*_STATISTICS, "documents")}
        np.savez(self.folder / "words.npz", **arrays)
        for name in ("indptr", "columns", "values"):
            getattr(counts, name).tofile(self.folder / name)

    def restrict(self, keep: npt.NDArray[np.intp]) -> Cooccurrence:
        """Return the pair counts of the words at these ascending positions, in their order."""
        return self.touching(keep, np.ones(len(keep), bool))

    def touching(self, keep: npt.NDArray[np.intp], chosen: npt.NDArray[np.bool_]) -> Cooccurrence:
        """See CountSource.touching."""
        triangle = _joined(self._panels(keep, chosen))
        frequency, tokens, heavy = self.frequency[keep], self.tokens[keep], self.heavy[keep]
        return Cooccurrence(len(keep), *triangle, frequency, tokens, heavy, self.documents)

    def symmetric(self, keep: npt.NDArray[np.intp]) -> SymmetricCounts:
        """Return the pair counts of these words as a working matrix."""
        return SymmetricCounts(len(keep), mirrored(len(keep), self._panels(keep, np.ones(len(keep), bool))))

    def _panels(self, keep: npt.NDArray[np.intp], chosen: npt.NDArray[np.bool_]) -> list[UpperRows]:
        indptr = np.fromfile(self.folder / "indptr", np.int64)
        ids, touched = np.full(len(self.words), -1, np.int64), np.zeros(len(self.words), bool)
        ids[keep], touched[keep] = np.arange(len(keep)), chosen
        panels, start = [], 0
        while start < len(self.words):
            stop = int(np.searchsorted(indptr, indptr[start] + _PANEL, side="right")) - 1
            stop = min(max(stop, start + 1), len(self.words))
            rows = np.repeat(np.arange(start, stop), np.diff(indptr[start : stop + 1]))
            columns = self._part("columns", np.int32, indptr[start], indptr[stop])
            values = self._part("values", np.int64, indptr[start], indptr[stop])
            kept = (ids[rows] >= 0) & (ids[columns] >= 0) & (touched[rows] | touched[columns])
            some = np.flatnonzero(ids[start:stop] >= 0)
            if len(some):
                sizes = np.bincount(rows[kept] - start, minlength=stop - start)[some]
                begin = np.concatenate([[0], np.cumsum(sizes)])
                part = pack(len(keep), begin, ids[columns[kept]].astype(np.int32), values[kept])
                panels.append(UpperRows(int(ids[start + some[0]]), part))
            start = stop
        return panels

    def _part(self, name: str, kind: type[np.generic], start: int, stop: int) -> npt.NDArray[np.generic]:
        return np.fromfile(self.folder / name, kind, int(stop - start), offset=int(start) * np.dtype(kind).itemsize)


def _joined(panels: list[UpperRows]) -> tuple[Int64, Int32, Int64]:
    """Return panels as one upper triangle, (indptr, columns, values) with eight bytes a value. Empties the list."""
    sizes = [np.diff(panel.rows.indptr) for panel in panels]
    start = np.zeros(1, np.int64)
    indptr = np.cumsum(np.concatenate([start, *sizes]))
    columns = np.empty(indptr[-1], np.int32)
    values = np.empty(indptr[-1], np.int64)
    # Each panel is freed as soon as it is copied: all of them with the result would double the peak.
    while panels:
        panel = panels.pop()
        held = slice(indptr[panel.first], indptr[panel.stop])
        columns[held] = panel.rows.columns
        unpack(panel.rows, values[held])
    return indptr, columns, values


def forget_sets(folder: Path) -> DocumentBatch:
    """Return the forget sets that the process `counts` has left in a folder."""
    with np.load(folder / "forgotten.npz") as found:
        arrays = {name: found[name] for name in _ARRAYS}
    return DocumentBatch.whole(**arrays, documents=int(arrays["owners"][-1]) + 1)


def _counts(
    folder: Path, documents: int, words: int, topics: int, tokens: int, cap: int, draws: int, size: int
) -> None:
    batch = planted(documents, words, topics, tokens)
    made = counted(batch, words, Weighting(cap))
    source = SavedCounts(folder, made.words, made.frequency, made.tokens, made.heavy, made.documents)
    source.save(made.cooccurrence)
    rng = np.random.default_rng(1)
    chosen = [np.sort(rng.choice(documents, size, replace=False)) for _ in range(draws)]
    _save(folder / "forgotten.npz", subset(batch, np.concatenate(chosen)))


def _posts(folder: Path, documents: int, words: int, topics: int, tokens: int) -> None:
    batch = planted(documents, words, topics, tokens, lengths=post_lengths(documents, tokens, 1))
    _save(folder / "posts.npz", batch)
    names = [_name(k) for k in range(words)]
    rng = np.random.default_rng(2)
    with (folder / "posts.txt").open("w", encoding="ascii") as lines:
        for row in range(documents):
            held = slice(batch.indptr[row], batch.indptr[row + 1])
            order = rng.permutation(np.repeat(batch.words[held], batch.counts[held]))
            lines.write(" ".join(names[k] for k in order) + ".\n")


def _name(word: int) -> str:
    """Return a word of three to six letters for each number."""
    letters = []
    for _ in range(3):
        word, letter = divmod(word, 26)
        letters.append(_LETTERS[letter])
    return "".join(letters) + (_LETTERS[word % 26] * 3 if word else "")


def _save(path: Path, batch: DocumentBatch) -> None:
    np.savez(path, **{name: getattr(batch, name) for name in _ARRAYS})


if __name__ == "__main__":
    if sys.argv[1] == "posts":
        _posts(Path(sys.argv[2]), *map(int, sys.argv[3:]))
    else:
        _counts(Path(sys.argv[2]), *map(int, sys.argv[3:]))
