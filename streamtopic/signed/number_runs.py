"""Sets of whole numbers that lie close together, such as the withdrawn versions of years."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from itertools import chain, pairwise
from typing import Any

__all__ = ["Runs", "runs"]


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

    @classmethod
    def of(cls, numbers: Iterable[int]) -> "Runs":
        """Return the set of these numbers, in any order."""
        return cls(runs(sorted(set(numbers))))

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
        edges = list[int]()
        for first, last in sorted((*self.pairs(), *more.pairs())):
            if edges and first <= edges[-1] + 1:
                edges[-1] = max(edges[-1], last)
            else:
                edges += [first, last]
        return Runs(tuple(edges))

    __ror__ = __or__

    def gaps(self, last: int) -> "Runs":
        """Return the numbers from 1 to `last` that are not in the set."""
        edges = [1]
        for first, end in self.pairs():
            if first > last:
                break
            edges += [first - 1, end + 1]
        edges.append(last)
        spans = zip(edges[::2], edges[1::2], strict=True)
        return Runs(tuple(chain.from_iterable(span for span in spans if span[0] <= span[1])))

    def newest(self, count: int) -> list[int]:
        """Return the largest `count` numbers of the set, ascending."""
        found = list[int]()
        for first, last in reversed(list(self.pairs())):
            found = [*range(max(first, last + 1 - count + len(found)), last + 1), *found]
            if len(found) == count:
                break
        return found

    def pairs(self) -> Iterable[tuple[int, int]]:
        """Return first and last of each run."""
        return zip(self.edges[::2], self.edges[1::2], strict=True)


def runs(numbers: Iterable[int]) -> tuple[int, ...]:
    """Return ascending numbers as the first and the last of each run of neighbours: (first, last, first, ...)."""
    found = list[int]()
    for number in numbers:
        if found and number == found[-1] + 1:
            found[-1] = number
        else:
            found += [number, number]
    return tuple(found)
