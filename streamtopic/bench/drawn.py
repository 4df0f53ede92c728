"""Posts of planted topics, drawn in a process of their own and left in a folder for the process that is measured.

    python -m streamtopic.bench.drawn FOLDER documents words topics tokens

It leaves word counts (posts.npz), and the same as text (posts.txt, a line a document), with lengths as posts have them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.bench.figures import peak_bytes
from streamtopic.bench.synthetic import planted
from streamtopic.errors import CheckFailed

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["drawn", "peak_megabytes", "post_lengths"]

# Standard deviation of the logarithm of a post's length.
_SPREAD = 1.0
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def drawn(folder: Path, *sizes: int) -> None:
    """Draw posts into a folder, in a process that is gone afterwards. Raises CheckFailed if it fails."""
    program = [sys.executable, "-P", "-m", "streamtopic.bench.drawn", str(folder), *map(str, sizes)]
    if subprocess.run(program, check=False).returncode:  # noqa: S603  this very program
        raise CheckFailed("the documents could not be drawn: see the output above")


def peak_megabytes() -> float:
    """Return the peak memory of this program in MB (2**20 bytes), without the memory that its parent had."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM"))) / 1024
    return peak_bytes() / (1 << 20)


def post_lengths(documents: int, tokens: int, seed: int) -> npt.NDArray[np.int64]:
    """Draw lengths of posts: log-normal with mean `tokens`; half are below 0.6 of it, one in a hundred above 6."""
    draws = np.random.default_rng(seed).lognormal(np.log(tokens) - _SPREAD**2 / 2, _SPREAD, documents)
    return np.asarray(np.rint(draws).clip(2, 8_192), np.int64)


def _posts(folder: Path, documents: int, words: int, topics: int, tokens: int) -> None:
    batch = planted(documents, words, topics, tokens, lengths=post_lengths(documents, tokens, 1))
    arrays = {name: getattr(batch, name) for name in ("indptr", "words", "counts", "lengths")}
    np.savez(folder / "posts.npz", **arrays)
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


if __name__ == "__main__":
    _posts(Path(sys.argv[1]), *map(int, sys.argv[2:]))
