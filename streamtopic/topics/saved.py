"""A fitted AnchorTopics as a file: its parameters and documents, from which the model follows.

A pickle runs what it holds when it is opened. A file of this module is in the safetensors format: it holds arrays and
one text of JSON, and every index in it is checked before compiled loops use it. Documents are in it as word counts, as
they are in the model, and documents that were unlearned are not.

    write_model   the parameters and documents of a model to a file
    saved_model   what such a file holds
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopic.counts import DocumentBatch
from streamtopic.counts.matrices import TextColumns
from streamtopic.errors import UsageError
from streamtopic.tensors import parts, unpacked
from streamtopic.topics.fitted import Fitted

__all__ = ["saved_model", "write_model"]

_FORMAT = "streamtopic AnchorTopics 4"
_Arrays = dict[str, npt.NDArray[Any]]
_Names = npt.NDArray[np.object_] | None

_BATCH = ("indptr", "words", "counts", "lengths", "limited", "owners")


def write_model(path: Path, params: Mapping[str, Any], model: Fitted) -> None:
    """Write the documents of a fitted model. The file appears at once, when it is whole.

    params: the parameters of its estimator.
    Raises OSError if it cannot be written, and UsageError for a parameter that is no number, text or list.
    """
    batch = DocumentBatch.stacked(model.counts.blocks)
    arrays: _Arrays = {name: getattr(batch, name) for name in _BATCH}
    arrays["order"] = model.columns.order
    feature_names = None if model.names is None else [str(name) for name in model.names]
    state = {
        "params": params,
        "documents": batch.documents,
        "words": list(model.columns.words),
        "names": list(model.columns.names),
        "feature_names": feature_names,
    }
    text = json.dumps(state, default=_plain).encode()
    arrays["state"] = np.frombuffer(text, np.uint8)
    written = path.with_name(path.name + ".part")
    # A folder that is missing is an error by itself.
    written.touch()
    try:
        with written.open("wb") as file:
            file.writelines(parts(arrays, {"format": _FORMAT, "sha256": _digest(arrays)}))
    except OSError as error:
        written.unlink()
        raise OSError(f"{path} cannot be written: {error}") from error
    written.replace(path)


def _digest(arrays: _Arrays) -> str:
    """Return the SHA-256 of arrays with their names, types and shapes: a number that was changed is still a number."""
    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def _check_digest(arrays: _Arrays, saved: str | None) -> None:
    """Raise ValueError for other arrays than those that were saved. saved: their digest, None for a file without."""
    if saved != _digest(arrays):
        raise ValueError("its bytes are not those that were saved")


def _plain(value: Any) -> Any:
    """Return a number of numpy as one of Python, a mapping as a dict, a path as text, and words in a set as a list."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, AbstractSet):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise UsageError(f"a parameter of the model is {value!r}: use numbers, texts and lists to save it")


@contextmanager
def saved_model(path: Path) -> Iterator[tuple[dict[str, Any], TextColumns, _Names, DocumentBatch]]:
    """Yield what `write_model` wrote: the parameters, the columns, their names and the documents.

    Raises UsageError if the file does not hold a whole model, also if that shows in the work of the block.
    """
    try:
        arrays, named = unpacked(path.read_bytes())
        kind = named.get("format")
        if kind != _FORMAT:
            raise UsageError(f"{path} has the format {kind!r}, not {_FORMAT!r}: save the model with this version")
        _check_digest(arrays, named.get("sha256"))
        state = json.loads(arrays["state"].tobytes())
        words = state["words"]
        order = _integers(arrays["order"], (len(words),), 0, len(words) - 1)
        columns = TextColumns(tuple(state["names"]), words, order)
        names = None if state["feature_names"] is None else np.array(state["feature_names"], object)
        yield state["params"], columns, names, _documents(arrays, len(words), state["documents"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise UsageError(f"{path} does not hold a whole model ({error}): save the model again") from error


def _documents(arrays: _Arrays, n: int, documents: int) -> DocumentBatch:
    """Return the documents of a model."""
    found = {name: arrays[name] for name in _BATCH}
    rows = len(found["lengths"])
    entries = len(found["words"])
    _pointers(found["indptr"], rows, entries)
    _integers(found["words"], (entries,), 0, n - 1)
    _integers(found["counts"], (entries,), 1)
    _integers(found["lengths"], (rows,), 0)
    _integers(found["limited"], (rows,), 0)
    owners = _integers(found["owners"], (rows,), 0, documents - 1)
    if (np.diff(owners) < 0).any():
        raise ValueError("the passages of documents are out of order")
    return DocumentBatch(**found, documents=documents)


def _pointers(array: npt.NDArray[Any], rows: int, entries: int) -> None:
    """Check row pointers: from 0 to the number of entries, never falling."""
    _integers(array, (rows + 1,), 0, entries)
    whole = array[0] == 0 and array[-1] == entries
    falls = np.diff(array) < 0
    if not whole or falls.any():
        raise ValueError("row pointers are out of order")


def _integers(array: npt.NDArray[Any], shape: tuple[int, ...], least: int, most: int | None = None) -> Any:
    """Return integers of a shape from `least` to `most`. Raises ValueError for others."""
    if array.shape != shape or array.dtype.kind not in "iu":
        raise ValueError(f"an array of {array.dtype} {array.shape} is not of {shape}")
    if array.size and (array.min() < least or (most is not None and array.max() > most)):
        raise ValueError(f"an integer is not from {least} to {most}")
    return array
