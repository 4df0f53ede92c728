"""Dataclasses as canonical JSON, and back: equal values have one text, and so one hash.

    number      int, float
    text        str, a choice of a Literal, PublicKey; bytes in base64
    list        tuple, Runs (its edges)
    object      dataclass, all of whose fields are there; Mapping, whose keys are texts or whole numbers
    array       the name under which the array is kept beside the text

A signature says who wrote a text, and not that it makes sense: a value has its annotated type, or is refused. Runs are
sets of whole numbers that lie close together, such as the withdrawn versions of years.
"""

import base64
import contextlib
import dataclasses
import json
import re
import types
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from streamtopic.errors import InvalidRelease, UsageError
from streamtopic.signed.signing_keys import PublicKey, from_base64

__all__ = ["Arrays", "Runs", "load", "parse", "plain", "read", "reading", "save", "write", "written"]

T = TypeVar("T")
Arrays = dict[str, npt.NDArray[Any]]

# One spelling for each number: int() would also take "01" or "+1", and two names would be one partition.
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
_LARGEST = (1 << 62) - 1
_PLAIN = frozenset({str, int, bool, types.NoneType})


class Runs(AbstractSet[int]):
    """A set of whole numbers, kept as its runs of neighbours: millions of numbers may be a single one.

    edges: first and last of each run, ascending: (first, last, first, ...).
    """

    __slots__ = ("edges",)

    def __init__(self, edges: tuple[int, ...] = ()) -> None:
        """Raise ValueError for edges that do not ascend, or of which one is missing."""
        if len(edges) % 2 or any(later < earlier for earlier, later in pairwise(edges)):
            raise ValueError("runs of numbers do not ascend")
        self.edges = edges

    @staticmethod
    def of(numbers: Iterable[int]) -> "Runs":
        """Return the set of these numbers, in any order."""
        return _joined((number, number) for number in sorted(numbers))

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> "Runs":  # type: ignore[override]
        return cls.of(it)

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int):
            return False
        place = bisect_left(self.edges, number)
        return place % 2 == 1 or (place < len(self.edges) and self.edges[place] == number)

    def __iter__(self) -> Iterator[int]:
        for first, last in self.pairs():
            yield from range(first, last + 1)

    def __len__(self) -> int:
        return sum(last + 1 - first for first, last in self.pairs())

    def __repr__(self) -> str:
        return f"Runs({self.edges})"

    def __or__(self, other: Iterable[int]) -> "Runs":  # type: ignore[override]
        """Return the union; of two such sets without going through their numbers."""
        more = other if isinstance(other, Runs) else Runs.of(other)
        return _joined(sorted((*self.pairs(), *more.pairs())))

    __ror__ = __or__

    def gaps(self, last: int) -> "Runs":
        """Return the numbers from 1 to `last` that are not in the set."""
        ends = [edge + (-1 if place % 2 == 0 else 1) for place, edge in enumerate(self.edges)]
        spans = zip([1, *ends[1::2]], [*ends[::2], last], strict=True)
        return _joined((first, min(end, last)) for first, end in spans if first <= min(end, last))

    def newest(self, count: int) -> list[int]:
        """Return the largest `count` numbers of the set, ascending."""
        descending = chain.from_iterable(range(last, first - 1, -1) for first, last in reversed(list(self.pairs())))
        return sorted(islice(descending, count))

    def pairs(self) -> Iterable[tuple[int, int]]:
        """Return first and last of each run."""
        return zip(self.edges[::2], self.edges[1::2], strict=True)


def _joined(pairs: Iterable[tuple[int, int]]) -> Runs:
    """Return the set of runs of numbers, which ascend and may meet or overlap."""
    edges = list[int]()
    for first, last in pairs:
        if edges and first <= edges[-1] + 1:
            edges[-1] = max(edges[-1], last)
        else:
            edges += [first, last]
    return Runs(tuple(edges))


def write(value: object) -> str:
    """Return the text of a dataclass."""
    return written(plain(value))


def parse(kind: type[T], text: str, what: str) -> T:
    """Return the dataclass in a text. Raises InvalidRelease for a text that `write` never makes. what: for errors."""
    with reading(what):
        found: T = read(kind, json.loads(text))
        if write(found) != text:
            raise ValueError("it is not in canonical form")
    return found


def load(kind: type[T], path: Path, what: str) -> T:
    """Return the dataclass in a file of `save`. Raises UsageError for any other file."""
    try:
        return parse(kind, path.read_text("utf-8"), what)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, InvalidRelease) as error:
        raise UsageError(f"{path} is not a {what} ({error}): remove it to start over, or name another file") from error


def save(value: object, path: Path) -> None:
    """Write a dataclass to a file, in the place of an older one. Raises UsageError if that fails."""
    # Written beside it and renamed, so that the file is whole at any moment.
    beside = path.with_name(f"{path.name}.new")
    try:
        beside.write_text(write(value), encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


@contextlib.contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn the errors of missing fields and wrong types within the block into InvalidRelease. what: names the text."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, UsageError) as error:
        raise InvalidRelease(f"the {what} has malformed fields ({error}): update this program") from error


def written(fields: object) -> str:
    """Return the text of fields in the types of JSON."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def plain(value: Any, arrays: Arrays | None = None, name: str = "") -> Any:  # noqa: ANN401 -- whatever JSON has
    """Return a value in the types of JSON. arrays: takes its arrays, each under the name that is in its place."""
    # First, since nearly all values are such, and a ledger has millions.
    if type(value) in _PLAIN:
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, PublicKey):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        # Sorted as numbers, keys would not be in the order that a reader finds.
        return {str(key): plain(item, arrays, f"{name}/{key}" if name else str(key)) for key, item in value.items()}
    if isinstance(value, tuple | Runs):
        items = value.edges if isinstance(value, Runs) else value
        return [plain(item, arrays, name) for item in items]
    if isinstance(value, np.ndarray) and arrays is not None:
        arrays[name] = value
        return name
    return _plain_scalar(value)


def _plain_scalar(value: Any) -> Any:  # noqa: ANN401 -- as above
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, PublicKey):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    return value


def read(hint: Any, value: Any, arrays: Arrays | None = None) -> Any:  # noqa: ANN401 -- an annotation, and JSON
    """Return a value of JSON as one of this type. Raises the errors of `reading` for any other value."""
    if hint in _PLAIN:
        return _scalar(hint, value)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return None if value is None else read(arguments[0], value, arrays)
    if origin is tuple:
        items = _of(list, value)
        # Without a call for each: a model has thousands of words.
        texts = arguments[0] is str and set(map(type, items)) <= {str}
        return tuple(items if texts else (read(arguments[0], item, arrays) for item in items))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        numbered, item_hint = arguments[0] is int, arguments[1]
        if numbered and not all(map(_NUMBER.fullmatch, value)):
            raise ValueError("a key of it is not a number")
        return {int(key) if numbered else key: read(item_hint, item, arrays) for key, item in value.items()}
    if hint is not PublicKey and dataclasses.is_dataclass(hint):
        kind: Any = hint
        hints = _hints(kind)
        if value.keys() != hints.keys():
            raise ValueError(f"missing or unknown: {', '.join(sorted(value.keys() ^ hints.keys()))[:200]}")
        return kind(**{name: read(hints[name], item, arrays) for name, item in value.items()})
    return _array(get_args(arguments[1])[0], value, arrays or {}) if origin is np.ndarray else _scalar(hint, value)


def _array(dtype: Any, name: object, arrays: Arrays) -> npt.NDArray[Any]:  # noqa: ANN401 -- as above
    array = arrays[_of(str, name)]
    if array.dtype != dtype:
        raise ValueError(f"{name} has numbers of type {array.dtype}")
    return array


@cache
def _hints(kind: Any) -> Mapping[str, Any]:  # noqa: ANN401 -- mypy takes a class for unhashable
    return get_type_hints(kind)


def _scalar(hint: Any, value: Any) -> Any:  # noqa: ANN401 -- as above
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        return choices[choices.index(_of(str, value))]
    if hint is float:
        return value if isinstance(value, float) else _scalar(int, value)
    if hint is int:
        # A bool is an int in Python, and a version or an offset of True would pass.
        if isinstance(value, bool) or not -_LARGEST <= _of(int, value) <= _LARGEST:
            raise ValueError(f"{str(value)[:40]!r} is not a whole number below 2**62")
        return value
    if hint is Runs:
        return Runs(read(tuple[int, ...], value))
    if hint in _OF_TEXT:
        return _OF_TEXT[hint](_of(str, value))
    return _of(hint, value)


_OF_TEXT: Mapping[Any, Callable[[str], Any]] = {bytes: from_base64, PublicKey: PublicKey.parse}


def _of(kind: type[T], value: object) -> T:
    if isinstance(value, kind):
        return value
    raise ValueError(f"it has a {type(value).__name__} in the place of a {kind.__name__}")
