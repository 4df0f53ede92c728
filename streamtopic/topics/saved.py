"""A fitted AnchorTopics as a file: arrays in the safetensors format, without code that a reader would run.

A pickle runs what it holds when it is opened. A file of this module holds arrays and one text of JSON, and every index
in it is checked before compiled loops use it. Documents are in it as word counts, as they are in the model, and
documents that were unlearned are not.

    write_model   a model to a file
    read_model    a file to the parameters of an estimator and its model, bit for bit
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopic.counts import DocumentBatch, KeptCounts, SymmetricCounts, Weighting
from streamtopic.counts.arrays import entry_rows
from streamtopic.counts.compact import MARK, Compact
from streamtopic.counts.matrices import TextColumns
from streamtopic.errors import UsageError
from streamtopic.tensors import parts, unpacked
from streamtopic.topics.fit import TopicFit, Words
from streamtopic.topics.fitted import Fitted
from streamtopic.topics.learner_options import GuidedTopic, LearnerOptions
from streamtopic.topics.mixtures import Mixtures

__all__ = ["read_model", "write_model"]

_FORMAT = "streamtopic AnchorTopics 3"
_Arrays = dict[str, npt.NDArray[Any]]

_BATCH = ("indptr", "words", "counts", "lengths", "limited", "owners")
_FIT = ("mass", "squares", "candidates", "group")
_MIXTURES = ("anchor_counts", "thin", "product", "relative", "error", "G", "C")


def write_model(path: Path, params: Mapping[str, Any], model: Fitted) -> None:
    """Write a fitted model. The file appears at once, when it is whole.

    params: the parameters of its estimator.
    Raises OSError if it cannot be written, and UsageError for a parameter that is no number, text or list.
    """
    counts = model.counts
    batch = DocumentBatch.stacked(counts.blocks)
    arrays = _fields(batch, _BATCH, "batch.")
    arrays["order"] = model.columns.order
    arrays |= _fit_arrays(model.fit)
    feature_names = None if model.names is None else [str(name) for name in model.names]
    state = {
        "params": params,
        "documents": batch.documents,
        "cap": counts.weighting.cap,
        "words": list(counts.words),
        "names": list(model.columns.names),
        "feature_names": feature_names,
        "retrain_reason": model.retrain_reason,
        "fit": _fit_state(model.fit),
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


def _fields(holder: Any, names: Iterable[str], prefix: str = "") -> dict[str, Any]:
    """Return some attributes by their names, with a prefix."""
    return {prefix + name: getattr(holder, name) for name in names}


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


def _fit_state(fit: TopicFit) -> dict[str, Any]:
    """Return the values of a fit that are not arrays."""
    options = _fields(fit.options, LearnerOptions.__slots__)
    declared = _topics(options.pop("guided"))
    guided = _topics(fit.guided)
    sigma = fit.mixtures.sigma_min.hex()
    return {
        "options": options,
        "declared": declared,
        "guided": guided,
        "notes": dict(fit.notes),
        "names": list(fit.names),
        "documents": fit.documents,
        "sigma": sigma,
    }


def _topics(topics: tuple[GuidedTopic, ...]) -> list[tuple[str, tuple[str, ...]]]:
    return [(topic.name, topic.seeds) for topic in topics]


def _fit_arrays(fit: TopicFit) -> _Arrays:
    """Return the arrays of a fit."""
    arrays = _fields(fit.q.rows, Compact._fields, "q.")
    arrays |= _fields(fit, _FIT, "fit.")
    arrays |= _fields(fit.mixtures, _MIXTURES, "mixtures.")
    arrays["choice"] = fit.choice
    return arrays


def read_model(path: Path) -> tuple[dict[str, Any], Fitted]:
    """Return the parameters of the estimator and the model that `write_model` wrote.

    Raises UsageError if the file does not hold a whole model.
    """
    try:
        # In an array, since updates change the numbers of a model in place.
        arrays, named = unpacked(np.fromfile(path, np.uint8).data)
        kind = named.get("format")
        if kind != _FORMAT:
            raise UsageError(f"{path} has the format {kind!r}, not {_FORMAT!r}: save the model with this version")
        _check_digest(arrays, named.get("sha256"))
        return _model(arrays)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise UsageError(f"{path} does not hold a whole model ({error}): save the model again") from error


def _model(arrays: _Arrays) -> tuple[dict[str, Any], Fitted]:
    """Return parameters and model. Raises KeyError, TypeError or ValueError if something is wrong."""
    state = json.loads(arrays["state"].tobytes())
    n = len(state["words"])
    order = _integers(arrays["order"], (n,), 0, n - 1)
    columns = TextColumns(tuple(state["names"]), state["words"], order)
    names = None if state["feature_names"] is None else np.array(state["feature_names"], object)
    batch = _batch(arrays, n, state["documents"])
    counts = KeptCounts.counted(state["words"], batch, Weighting(state["cap"]))
    fit = _fit(arrays, state["fit"])
    return state["params"], Fitted.of(counts, columns, names, n, fit, reason=state["retrain_reason"])


def _batch(arrays: _Arrays, n: int, documents: int) -> DocumentBatch:
    """Return the documents of a model."""
    found = {name: arrays[f"batch.{name}"] for name in _BATCH}
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


def _fit(arrays: _Arrays, state: Mapping[str, Any]) -> TopicFit:
    """Return the fit of a model."""
    names = Words(state["names"])
    n = len(names)
    declared = _guided(state["declared"])
    guided = _guided(state["guided"])
    options = LearnerOptions(**state["options"], guided=declared)
    rows = _positions(arrays["choice"], n)
    found = len(rows)
    sigma = float.fromhex(state["sigma"])
    mixtures = _mixtures(arrays, n, found + len(guided), sigma)
    counts = SymmetricCounts(n, _compact(arrays, n))
    mass = _integers(arrays["fit.mass"], (n,), 0)
    squares = _numbers(arrays["fit.squares"], (n,))
    group = _integers(arrays["fit.group"], (n,), -1, found - 1)
    candidates = _positions(arrays["fit.candidates"], n)
    notes = dict(state["notes"])
    return TopicFit(
        options=options,
        names=names,
        documents=state["documents"],
        q=counts,
        mass=mass,
        squares=squares,
        candidates=candidates,
        choice=rows,
        group=group,
        mixtures=mixtures,
        guided=guided,
        notes=notes,
    )


def _mixtures(arrays: _Arrays, n: int, r: int, sigma: float) -> Mixtures:
    """Return the mixtures of a fit of r topics."""
    shapes = {"relative": (n,), "error": (n,), "G": (r, r)}
    floats = {}
    for name in _MIXTURES[1:]:
        shape = shapes.get(name, (n, r))
        floats[name] = _numbers(arrays[f"mixtures.{name}"], shape)
    anchor_counts = _integers(arrays["mixtures.anchor_counts"], (r, n), 0)
    return Mixtures(anchor_counts, anchor_counts.sum(axis=1), **floats, sigma_min=sigma)


def _guided(topics: list[tuple[str, list[str]]]) -> tuple[GuidedTopic, ...]:
    return tuple(GuidedTopic(name, tuple(seeds)) for name, seeds in topics)


def _compact(arrays: _Arrays, n: int) -> Compact:
    """Return the rows of Q."""
    found = [arrays[f"q.{name}"] for name in Compact._fields]
    rows = Compact(*found)
    entries = (len(rows.low),)
    wide = (len(rows.wide),)
    _pointers(rows.indptr, n, *entries)
    _pointers(rows.wide_indptr, n, *wide)
    _integers(rows.columns, entries, 0, n - 1)
    _integers(rows.wide_columns, wide, 0, n - 1)
    _integers(rows.low, entries, 0)
    _integers(rows.wide, wide, 0)
    # A loop takes a wide value for each mark, so there must be as many of them in each row.
    marks = entry_rows(rows.indptr)[rows.low == MARK]
    marks_each = np.bincount(marks, minlength=n)
    wide_each = np.diff(rows.wide_indptr)
    if not np.array_equal(marks_each, wide_each):
        raise ValueError("wide counts are not those that the rows name")
    return rows


def _pointers(array: npt.NDArray[Any], rows: int, entries: int) -> None:
    """Check row pointers: from 0 to the number of entries, never falling."""
    _integers(array, (rows + 1,), 0, entries)
    whole = array[0] == 0 and array[-1] == entries
    falls = np.diff(array) < 0
    if not whole or falls.any():
        raise ValueError("row pointers are out of order")


def _positions(array: npt.NDArray[Any], n: int) -> Any:
    """Return positions among n."""
    return _integers(array, (array.size,), 0, n - 1)


def _integers(array: npt.NDArray[Any], shape: tuple[int, ...], least: int, most: int | None = None) -> Any:
    """Return integers of a shape from `least` to `most`. Raises ValueError for others."""
    _shaped(array, shape, "iu")
    if array.size and (array.min() < least or (most is not None and array.max() > most)):
        raise ValueError(f"an integer is not from {least} to {most}")
    return array


def _numbers(array: npt.NDArray[Any], shape: tuple[int, ...]) -> Any:
    """Return finite numbers of a shape. Raises ValueError for others."""
    _shaped(array, shape, "f")
    if not np.isfinite(array).all():
        raise ValueError("a number is not finite")
    return array


def _shaped(array: npt.NDArray[Any], shape: tuple[int, ...], kinds: str) -> None:
    """Raise ValueError for an array of another shape or kind."""
    if array.shape != shape or array.dtype.kind not in kinds:
        raise ValueError(f"an array of {array.dtype} {array.shape} is not of {shape}")
