"""Word counts of texts as a matrix that still knows the lengths and the passages of the texts."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from streamtopic.counts.arrays import Int64, Positions
from streamtopic.counts.batch import DocumentBatch

__all__ = ["CountedTexts", "TextMatrix"]


@dataclass(frozen=True, slots=True, eq=False)
class CountedTexts:
    """Texts as documents over a vocabulary.

    words: (n,) the word of each column, distinct.
    batch: their passages over these columns; lengths count every token, also one whose word has no column.
    unknown: (documents,) tokens whose word has no column and might get one: words of up to 64 characters.
    """

    words: tuple[str, ...]
    batch: DocumentBatch
    unknown: Int64

    def take(self, documents: Positions) -> "CountedTexts":
        """Return the documents at these positions, in this order. A position may stand several times."""
        return CountedTexts(self.words, _taken(self.batch, documents), self.unknown[documents])


class TextMatrix(csr_array):  # type: ignore[misc]  # scipy has no types
    """Word counts X (documents, words) of texts, with `texts`: their passages, lengths and words.

    To everyone else it is a csr_array whose numbers cannot be changed in place. Selected rows and copies keep their
    texts. Every other result of scipy is a plain csr_array, since sums and products of texts are not texts.
    """

    texts: CountedTexts

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  as scipy's constructor
        """Return a plain csr_array: scipy makes results by the class of its operands, from arrays without texts."""
        return csr_array(*args, **kwargs)

    @classmethod
    def of(cls, texts: CountedTexts) -> "TextMatrix":
        """Lay the passages of each text together as one row."""
        batch = texts.batch
        rows = np.searchsorted(batch.owners, np.arange(batch.documents + 1))
        shape = (batch.documents, len(texts.words))
        made: TextMatrix = csr_array.__new__(cls)
        indptr = batch.indptr[rows]
        # With row pointers of the type that columns have, scipy keeps columns as they are.
        if indptr[-1] < 1 << 31:
            indptr = indptr.astype(np.int32)
        csr_array.__init__(made, (batch.counts, batch.words, indptr), shape=shape, copy=True)
        made.sum_duplicates()
        # The texts would not follow a change of the numbers.
        made.data.flags.writeable = False
        made.texts = texts
        return made

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401  as scipy's own
        """Return rows with their texts. For any other key return the same as scipy."""
        rows = _rows_only(key)
        if rows is None:
            return csr_array(self)[key]
        positions = np.arange(self.shape[0])[rows]
        return TextMatrix.of(self.texts.take(np.atleast_1d(positions)))

    def copy(self) -> "TextMatrix":
        """Return the same matrix with arrays of its own."""
        return TextMatrix.of(self.texts)

    def __reduce__(self) -> tuple[Any, ...]:
        # By default pickle makes an object by `__new__`, which gives a plain csr_array here.
        return TextMatrix.of, (self.texts,)


def _rows_only(key: Any) -> Any:  # noqa: ANN401  an index as numpy takes it
    """Return the part of an index that selects rows; None where the index does not select whole rows."""
    if isinstance(key, tuple):
        if len(key) != 2 or not _is_everything(key[1]):
            return None
        key = key[0]
    if isinstance(key, slice):
        return key
    selected = np.asarray(key)
    # A single number gives a vector, which is not a matrix of texts.
    if selected.ndim == 1 and selected.dtype.kind in "biu":
        return selected
    return None


def _is_everything(key: Any) -> bool:  # noqa: ANN401  an index as numpy takes it
    return key is Ellipsis or (isinstance(key, slice) and key == slice(None))


def _taken(batch: DocumentBatch, documents: Positions) -> DocumentBatch:
    """Return the documents at these positions, in any order."""
    firsts = np.searchsorted(batch.owners, documents)
    lasts = np.searchsorted(batch.owners, documents + 1)
    rows = _ranges(firsts, lasts)
    sizes = np.diff(batch.indptr)[rows]
    held = _ranges(batch.indptr[rows], batch.indptr[rows + 1])
    owners = np.repeat(np.arange(len(documents), dtype=np.int32), lasts - firsts)
    return DocumentBatch(
        indptr=np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]),
        words=batch.words[held],
        counts=batch.counts[held],
        lengths=batch.lengths[rows],
        owners=owners,
        documents=len(documents),
    )


def _ranges(firsts: npt.NDArray[np.integer[Any]], lasts: npt.NDArray[np.integer[Any]]) -> Positions:
    """Return first, first + 1, ... last - 1 of each pair, one range behind the other."""
    sizes = lasts - firsts
    ends = np.cumsum(sizes)
    # Counting goes on through all ranges; each begins at its own number in place of the one that is reached.
    shifts = firsts - (ends - sizes)
    positions = np.arange(int(sizes.sum())) + np.repeat(shifts, sizes)
    return np.asarray(positions, np.intp)
