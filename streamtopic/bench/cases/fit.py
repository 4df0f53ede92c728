"""From documents to a model with the estimator: processor time, documents a second, peak memory; inference.

Made-up posts of planted topics: Zipf words, lengths log-normal with a mean of 66 tokens, which is as heavy-tailed as
newsgroups are. `matrix` starts from word counts as a vectoriser makes them, `text` from lines of text. They are drawn
in another process, so that memory is that of whoever fits.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.bench.figures import Figure, peak_bytes, printed_by

if TYPE_CHECKING:
    import numpy.typing as npt
    from scipy.sparse import csr_array

    from streamtopic.bench.runner import Option

__all__ = ["CASES", "OPTIONS"]

OPTIONS: dict[str, Option] = {"posts": 18_771, "words": 5_000, "topics": 50}
TOKENS = 66
# Standard deviation of the logarithm of a post's length.
_SPREAD = 1.0
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_MEMORY, _SECONDS, _RATE = "<= 350 (goal)", "<= 4", ">= 15,000"


def _case(kind: str, posts: int, words: int, topics: int) -> list[Figure]:
    from threadpoolctl import threadpool_limits

    from streamtopic.topics.estimator import AnchorTopics

    with TemporaryDirectory() as name, threadpool_limits(1):
        folder = Path(name)
        _drawn(folder, posts, words, topics, TOKENS)
        # Compiles, or loads what is compiled: part of the program's own memory, not of these seconds.
        AnchorTopics(2, min_df=1, min_share=0.0, max_df=1.0).fit(np.random.default_rng(0).poisson(0.5, (200, 60)))
        begin = _peak_megabytes()
        clock, used = time.perf_counter(), time.process_time()
        model = AnchorTopics(topics, min_df=1, min_share=0.0, max_df=1.0)
        # Without a name here, so that the estimator can give the matrix back.
        model.fit(_matrix(folder, words) if kind == "matrix" else _text(folder))
        used, wall = time.process_time() - used, time.perf_counter() - clock
        peak = _peak_megabytes()
        X = _matrix(folder, words) if kind == "matrix" else _text(folder)
        model.transform(X[:100])
        clock = time.process_time()
        model.transform(X)
        inferred = time.process_time() - clock
    return [
        Figure("documents to model", used, "CPU s", _SECONDS if kind == "matrix" else ""),
        Figure("documents a second", posts / wall, "documents/s"),
        Figure("entries of Q", model.fit_.q.entries, "entries"),
        Figure("memory of the program itself", begin, "MB"),
        Figure("peak memory", peak, "MB", _MEMORY),
        Figure("transform", posts / inferred, "documents/CPU s", _RATE if kind == "matrix" else ""),
    ]


def _matrix(folder: Path, words: int) -> csr_array:
    """Read word counts."""
    from scipy.sparse import csr_array

    with np.load(folder / "posts.npz") as found:
        return csr_array((found["counts"], found["words"], found["indptr"]), shape=(len(found["lengths"]), words))


def _text(folder: Path) -> csr_array:
    """Read lines and count their words."""
    from streamtopic.texts import TextCounts

    with (folder / "posts.txt").open(encoding="utf-8") as lines:
        return TextCounts().fit_transform(lines)


def _drawn(folder: Path, *sizes: int) -> None:
    """Draw posts into a folder, in a process that is gone afterwards. Raises CheckFailed if it fails.

    It leaves word counts (posts.npz), and the same as text (posts.txt, a line a document), with lengths as posts have.
    sizes: documents, words, topics, tokens.
    """
    printed_by(__name__, str(folder), *map(str, sizes))


def _peak_megabytes() -> float:
    """Return the peak memory of this program in MB (2**20 bytes), without the memory that its parent had."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM"))) / 1024
    return peak_bytes() / (1 << 20)


def _post_lengths(documents: int, tokens: int, seed: int) -> npt.NDArray[np.int64]:
    """Draw lengths of posts: log-normal with mean `tokens`; half are below 0.6 of it, one in a hundred above 6."""
    draws = np.random.default_rng(seed).lognormal(np.log(tokens) - _SPREAD**2 / 2, _SPREAD, documents)
    return np.asarray(np.rint(draws).clip(2, 8_192), np.int64)


def _posts(folder: Path, documents: int, words: int, topics: int, tokens: int) -> None:
    from streamtopic.bench.synthetic import planted

    batch = planted(documents, words, topics, tokens, lengths=_post_lengths(documents, tokens, 1))
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


CASES = {kind: partial(_case, kind) for kind in ("matrix", "text")}


if __name__ == "__main__":
    _posts(Path(sys.argv[1]), *map(int, sys.argv[2:]))
