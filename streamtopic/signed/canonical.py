"""Dataclasses as canonical JSON, and back: equal values have one text, and so one hash.

A signature says who wrote a text, and not that it makes sense: a value has its annotated type, or is refused (pydantic
reads them), and so is every text that `write` never makes. Runs are sets of whole numbers that lie close together, such
as the withdrawn versions of years.
"""

import base64
import contextlib
import json
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import cache
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from streamtopic.errors import InvalidRelease, UsageError

__all__ = [
    "Base64",
    "Place",
    "Runs",
    "RunsText",
    "Unbounded",
    "Whole",
    "from_base64",
    "load",
    "parse",
    "plain",
    "reading",
    "save",
    "typed",
    "write",
    "written",
]

T = TypeVar("T")

_MOST = 1 << 62
_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


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


def _runs(edges: object) -> Runs:
    if not isinstance(edges, list) or not all(type(edge) is int for edge in edges):
        raise ValueError("runs of numbers are not a list of them")
    return Runs(tuple(edges))


def from_base64(text: str) -> bytes:
    """Return the bytes of a text in base64, none for any other text.

    Bytes have one text: Python itself passes over bits after the last byte.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return b""
    return data if base64.b64encode(data).decode() == text else b""


# Larger numbers are not known to every reader.
Whole = Annotated[int, Field(gt=-_MOST, lt=_MOST)]
Place = Annotated[int, Field(ge=0, lt=_MOST)]
# A certificate that cannot be had, or a budget that is used up, is infinite; JSON holds no infinities.
Unbounded = Annotated[
    float,
    BeforeValidator(lambda value: math.inf if value is None else value),
    PlainSerializer(lambda value: None if value == math.inf else value),
]
Base64 = Annotated[bytes, PlainValidator(from_base64), PlainSerializer(lambda data: base64.b64encode(data).decode())]
RunsText = Annotated[Runs, PlainValidator(_runs), PlainSerializer(lambda runs: list(runs.edges))]


def write(value: object, kind: type | None = None) -> str:
    """Return the text of a dataclass. kind: the class whose fields it has, if that is not its own."""
    return written(plain(value, kind))


def plain(value: object, kind: type | None = None) -> dict[str, Any]:
    """Return the fields of a dataclass in the types of JSON."""
    adapter = _adapter(kind or type(value))
    fields: dict[str, Any] = adapter.dump_python(value, mode="json", warnings="error", by_alias=True)
    return fields


def written(fields: object) -> str:
    """Return the text of fields in the types of JSON."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def parse(kind: type[T], text: str | bytes, what: str, write: Callable[[T], str] = write) -> T:
    """Return the value in a text. Raises InvalidRelease for a text that `write` never makes.

    kind: a dataclass, or a type that names several.
    what: for errors.
    """
    with reading(what):
        found: T = typed(kind, text)
        if write(found) != (text if isinstance(text, str) else text.decode()):
            raise ValueError("it has other fields than it should, or is not in canonical form")
    return found


def typed(kind: Any, text: str | bytes) -> Any:  # noqa: ANN401 -- a type, or several
    """Return the value of a type, or of one of several, in JSON. Raises ValueError for another one."""
    try:
        return _adapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def load(kind: type[T], path: Path, what: str) -> T:
    """Return the dataclass in a file of `save`. Raises UsageError for any other file."""
    try:
        return parse(kind, path.read_bytes(), what)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except InvalidRelease as error:
        raise UsageError(f"{path} is not a {what} ({error}): remove it to start over, or name another file") from error


def save(value: object, path: Path) -> None:
    """Write a dataclass to a file, in the place of an older one. Raises UsageError if that fails."""
    # Written under another name and renamed, so that the file is whole at any moment.
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
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError, UsageError) as error:
        raise InvalidRelease(f"the {what} has malformed fields ({error}): update this program") from error
