"""Receipts in a file, to be checked without the service: one JSON object a line, with the signed bytes."""

import base64
import binascii
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from streamtopic.errors import InvalidRelease
from streamtopic.signed.completion import Completion, Link, open_link
from streamtopic.signed.receipt_chain import Chain, digest_of
from streamtopic.signed.signing_keys import Verifier

__all__ = ["Audit", "audit", "export_line"]


@dataclass(frozen=True, slots=True)
class Audit:
    """What a file of receipts proves.

    receipts: how many belong to the chain; completions: how many completions, and completed: how many of the receipts
    these say are complete. first, last: their numbers; head: digest of the last one, which proves
    all of them to whoever knows it. problems: (line, what is wrong), line 0 for what concerns the whole file.
    """

    receipts: int
    completions: int
    completed: int
    first: int
    last: int
    head: str
    problems: tuple[tuple[int, str], ...]

    @property
    def passed(self) -> bool:
        """Whether every line is signed and the chain is whole from its first receipt."""
        return not self.problems


def export_line(link: Link, data: bytes) -> str:
    """Return the line of a receipt or completion; only `signed` counts, the rest is for finding it."""
    signed = base64.b64encode(data).decode()
    request = "" if isinstance(link, Completion) else link.request
    return json.dumps({"sequence": link.sequence, "id": link.id, "request": request, "signed": signed})


def audit(lines: Iterable[str], key: Verifier) -> Audit:
    """Check signatures and chain of exported lines, in any order and with repetitions, offline."""
    chain, problems, first = Chain(), list[tuple[int, str]](), 0
    accepted = list[Link]()
    models = set[str]()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            data = _signed(line)
            link = open_link(data, key)
        except InvalidRelease as error:
            problems.append((number, str(error)))
            continue
        models.add(link.model)
        accepted += chain.take(link, digest_of(data))
    accepted += chain.settle()
    problems += [(0, problem) for problem in _whole(chain, models)]
    if accepted:
        first = next((gap.stop for gap in chain.lost if gap.start == 1), 1)
    completions = [link for link in accepted if isinstance(link, Completion)]
    return Audit(
        len(chain),
        len(completions),
        _completed(chain, completions),
        first,
        chain.head.sequence,
        chain.head.digest,
        tuple(problems),
    )


def _completed(chain: Chain, completions: Iterable[Completion]) -> int:
    """Return how many receipts are complete. A completion of deletions whose receipts come later covers fewer."""
    ends = dict[int, int]()
    for completion in completions:
        ends |= {p: max(end, ends.get(p, 0)) for p, end in completion.ends.items()}
    return sum(chain.between(partition, 0, end) for partition, end in ends.items())


def _whole(chain: Chain, models: set[str]) -> Iterator[str]:
    if len(models) > 1:
        yield f"receipts of several models: {', '.join(sorted(models))}; check each by itself"
    for gap in chain.lost:
        yield f"receipts {gap.start} to {gap.stop - 1} are missing"
    if chain.strays:
        yield f"{chain.strays} receipts compete with others of the chain; what they speak of must not count"


def _signed(line: str) -> bytes:
    try:
        return base64.b64decode(json.loads(line)["signed"], validate=True)
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error) as error:
        raise InvalidRelease(f"no exported receipt: {type(error).__name__}") from error
