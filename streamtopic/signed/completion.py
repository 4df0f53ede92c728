"""Completions: signed records that nothing is left of deleted documents, of many deletions at once."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from streamtopic.errors import InvalidRelease
from streamtopic.signed.canonical import pack, unpack
from streamtopic.signed.deletion_receipt import KIND as RECEIPT
from streamtopic.signed.deletion_receipt import Receipt, open_receipt
from streamtopic.signed.sealed import kind_of, open_sealed, seal
from streamtopic.signed.signing_keys import SigningKey, Verifier
from streamtopic.streams import Message

__all__ = ["COMPLETIONS", "Completion", "Link", "completion_message", "open_completion", "open_link", "seal_completion"]

COMPLETIONS = -1
"""Stands for a partition where completions have their place in the chain of receipts."""

FORMAT = 1
KIND = "completion"
_LARGEST = (1 << 63) - 1
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")


@dataclass(frozen=True, slots=True)
class Completion:
    """The end of deletions: of those before `ends` in their partition whose receipts stand earlier in the chain.

    sequence, previous: as of a receipt, in the same chain. number: of the completion, from 1. model: as of a receipt.
    created: milliseconds since 1970. ends: partition to the offset before which its deletions are complete. reached:
    partition to stage to when all these deletions had reached it. attested: stages that rest on the operator's word.
    """

    sequence: int
    previous: str
    model: str
    number: int
    created: int
    ends: Mapping[int, int]
    reached: Mapping[int, Mapping[str, int]]
    attested: tuple[str, ...] = ()
    format: int = field(default=FORMAT)

    @property
    def id(self) -> str:
        """Name of the completion, and its key in the receipts topic."""
        return f"{self.model}/completed/{self.number}"

    @property
    def partition(self) -> int:
        """Where completions have their place in the chain."""
        return COMPLETIONS

    @property
    def offset(self) -> int:
        """The place among completions."""
        return self.number

    def covers(self, receipt: Receipt) -> bool:
        """Whether the deletion of a receipt of the same chain is complete."""
        return receipt.sequence < self.sequence and receipt.offset < self.ends.get(receipt.partition, 0)


Link = Receipt | Completion
"""What a chain is made of."""


def seal_completion(completion: Completion, key: SigningKey) -> bytes:
    """Signed bytes of a completion: a function of its arguments."""
    fields: dict[str, Any] = asdict(completion)
    fields["ends"] = {str(partition): end for partition, end in completion.ends.items()}
    fields["reached"] = {str(partition): dict(stages) for partition, stages in completion.reached.items()}
    fields["attested"] = list(completion.attested)
    return seal(KIND, {KIND: pack(fields)}, key)


def open_link(data: bytes, key: Verifier) -> Link:
    """The receipt or completion in signed bytes. Raises InvalidRelease unless `key` signed exactly these bytes."""
    return open_completion(data, key) if kind_of(data) == KIND else open_receipt(data, key)


def open_completion(data: bytes, key: Verifier) -> Completion:
    """The completion in signed bytes. Raises as `open_link`."""
    sealed = open_sealed(KIND, data, key)
    completion = _opened(unpack(sealed.parts.get(KIND, b"")))
    # Of a revoked key the links of the chain up to a number count, receipts and completions alike.
    key.admit(sealed.key, RECEIPT, completion.sequence, sealed.digest)
    return completion


def completion_message(completion: Completion, data: bytes) -> Message:
    """Record of a sealed completion."""
    return Message(completion.id.encode(), data, partition=0)


def _opened(fields: object) -> Completion:
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise InvalidRelease(f"a signed completion is not of format {FORMAT}, which this program reads: update it")
    names = {"sequence", "previous", "model", "number", "created", "ends", "reached", "attested", "format"}
    numbers = [fields.get(name) for name in ("sequence", "number", "created")]
    texts = [fields.get("previous"), fields.get("model")]
    if set(fields) != names or not all(map(_is_number, numbers)) or not all(isinstance(text, str) for text in texts):
        raise InvalidRelease("a signed completion has missing, unknown or malformed fields: update this program")
    attested = fields["attested"]
    if not isinstance(attested, list) or not all(isinstance(stage, str) for stage in attested):
        raise InvalidRelease("a signed completion has a malformed field (attested): update this program")
    ends, reached = _by_partition(fields["ends"]), _by_partition(fields["reached"])
    if not all(map(_is_number, ends.values())) or not all(map(_is_dated, reached.values())):
        raise InvalidRelease("a signed completion has a malformed field (ends or reached): update this program")
    return Completion(**fields | {"ends": ends, "reached": reached, "attested": tuple(attested)})


def _by_partition(found: object) -> dict[int, Any]:
    if not isinstance(found, dict) or not all(map(_PARTITION.fullmatch, found)):
        raise InvalidRelease("a signed completion names no partitions: update this program")
    return {int(name): value for name, value in found.items()}


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST


def _is_dated(stages: object) -> bool:
    return isinstance(stages, dict) and all(map(_is_number, stages.values()))
