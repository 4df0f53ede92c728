"""Receipts in a file, to be checked without the service: one JSON object a line, with the signed bytes."""

import base64
import binascii
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from streamtopic.errors import InvalidRelease
from streamtopic.receipts.chain import Chain, digest_of
from streamtopic.receipts.receipt import Receipt, open_receipt
from streamtopic.signing import PublicKey

__all__ = ["Audit", "audit", "export_line"]


@dataclass(frozen=True, slots=True)
class Audit:
    """What a file of receipts proves.

    receipts: how many belong to the chain. first, last: their numbers; head: digest of the last one, which proves
    all of them to whoever knows it. problems: (line, what is wrong), line 0 for what concerns the whole file.
    """

    receipts: int
    first: int
    last: int
    head: str
    problems: tuple[tuple[int, str], ...]

    @property
    def passed(self) -> bool:
        """Whether every line is signed and the chain is whole from its first receipt."""
        return not self.problems


def export_line(receipt: Receipt, data: bytes) -> str:
    """Return the line of a receipt; only `signed` counts, the rest is for finding it."""
    signed = base64.b64encode(data).decode()
    return json.dumps({"sequence": receipt.sequence, "id": receipt.id, "request": receipt.request, "signed": signed})


def audit(lines: Iterable[str], key: PublicKey) -> Audit:
    """Check signatures and chain of exported lines, in any order and with repetitions, offline."""
    chain, problems, first = Chain(), list[tuple[int, str]](), 0
    accepted = 0
    models = set[str]()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            data = _signed(line)
            receipt = open_receipt(data, key)
        except InvalidRelease as error:
            problems.append((number, str(error)))
            continue
        models.add(receipt.model)
        accepted += len(chain.take(receipt, digest_of(data))[1])
    accepted += len(chain.settle())
    problems += [(0, problem) for problem in _whole(chain, models)]
    if accepted:
        first = next((gap.stop for gap in chain.lost if gap.start == 1), 1)
    return Audit(accepted, first, chain.head.sequence, chain.head.digest, tuple(problems))


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
