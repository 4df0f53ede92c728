"""The state of receipts in Redis: the end of their chain, and the keys that tie them to request ids."""

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

from streamtopic.state.connection import Connection
from streamtopic.state.model_state import OutboxRecord, pack_record
from streamtopic.state.redis_keys import ModelKeys
from streamtopic.state.scripts import APPEND_RECEIPTS, UPLOAD_SECONDS, Outcome, outcome

__all__ = ["LinkKeys", "ReceiptChain", "month_of", "months_before"]

_KEY_BYTES = 32


class ReceiptChain:
    """The end of a model's chain of staged receipts, as (sequence, digest); (0, "") before the first."""

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection = connection
        self._keys = ModelKeys(model)

    def end(self) -> tuple[int, str]:
        """Return sequence and digest of the newest staged receipt.

        After Redis was set back the topic has newer receipts; the publisher reads it and moves the end.
        """
        sequence, digest = self._connection.call("HMGET", self._keys.named("chain"), "sequence", "digest")
        return int(sequence or 0), (digest or b"").decode()

    def append(
        self, expected: tuple[int, str], end: tuple[int, str], records: Sequence[tuple[str, OutboxRecord]] = ()
    ) -> Outcome:
        """Move the end of the chain, and put the receipts between into the outbox, all or nothing.

        expected: the end that the receipts continue.
        end: the end afterwards.
        records: (digest, record) of each receipt.

        Stale where the chain does not end as expected: read the topic again.
        """
        uploads, strings = [], []
        for digest, record in records:
            key = self._keys.named(f"out:receipt:{digest}")
            strings.append(key)
            # NX: a repetition must not give an end to a string that is in the outbox already.
            uploads.append(("SET", key, pack_record(record), "NX", "EX", UPLOAD_SECONDS))
        self._connection.batch(uploads)
        keys = [self._keys.named("chain"), self._keys.named("outbox"), *strings]
        return outcome(self._connection.script(APPEND_RECEIPTS, keys, [*expected, *end]))


def month_of(seconds: float) -> str:
    """Return the month of a time, as "2026-11"; such names sort by time. seconds: since 1970."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m")


def months_before(month: str, count: int) -> str:
    """Return the month that lies `count` months before another one."""
    year, number = (int(part) for part in month.split("-"))
    months = year * 12 + number - 1 - count
    years, rest = divmod(months, 12)
    return f"{years:04d}-{rest + 1:02d}"


class LinkKeys:
    """A model's keys by month, which tie receipts to request ids."""

    # Random, and only in Redis: a key that is destroyed there cannot be derived again from anything.

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection = connection
        self._key = ModelKeys(model).named("links")

    def all(self) -> dict[str, bytes]:
        """Return all keys: month to key."""
        fields = self._connection.call("HGETALL", self._key)
        return {month.decode(): key for month, key in fields.items()}

    def of(self, month: str) -> bytes:
        """Return the key of a month, made on first use."""
        # Of two processes that make one, one decides: both read the same key afterwards.
        self._connection.call("HSETNX", self._key, month, secrets.token_bytes(_KEY_BYTES))
        return bytes(self._connection.call("HGET", self._key, month))

    def destroy(self, before: str) -> int:
        """Destroy the keys of the months before this one; return their number."""
        names = self._connection.call("HKEYS", self._key)
        months = [name for name in names if name.decode() < before]
        if months:
            self._connection.call("HDEL", self._key, *months)
        return len(months)
