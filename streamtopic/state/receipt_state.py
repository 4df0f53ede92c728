"""What receipts need of Redis: the end of their chain, and the keys that tie them to request ids."""

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

from streamtopic.state.connection import Connection
from streamtopic.state.model_state import OutboxRecord, pack_record
from streamtopic.state.redis_keys import ModelKeys
from streamtopic.state.scripts import APPEND_RECEIPTS, Outcome, outcome

__all__ = ["LinkKeys", "ReceiptChain", "month_of", "months_before"]


_UPLOAD_SECONDS = 600


KEY_BYTES = 32


class ReceiptChain:
    """The end of a model's chain of receipts, as far as they were staged: (sequence, digest), (0, "") at first."""

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection = connection
        self._keys = ModelKeys(model)

    def end(self) -> tuple[int, str]:
        """Return sequence and digest of the newest staged receipt. Behind the log's after a restored Redis."""
        sequence, digest = self._connection.call("HMGET", self._keys.named("chain"), "sequence", "digest")
        return int(sequence or 0), (digest or b"").decode()

    def append(
        self, expected: tuple[int, str], end: tuple[int, str], records: Sequence[tuple[str, OutboxRecord]] = ()
    ) -> Outcome:
        """Move the end, and put the records between into the outbox, all or nothing.

        records: (digest, record) of each receipt. Stale where the chain does not end as expected: read again.
        """
        keys = [self._keys.named(f"out:receipt:{digest}") for digest, _ in records]
        self._connection.batch(
            ("SET", key, pack_record(record), "NX", "EX", _UPLOAD_SECONDS)
            for key, (_, record) in zip(keys, records, strict=True)
        )
        keys = [self._keys.named("chain"), self._keys.named("outbox"), *keys]
        return outcome(self._connection.script(APPEND_RECEIPTS, keys, [*expected, *end]))


def month_of(seconds: float) -> str:
    """Return the month of a time in seconds since 1970, as "2026-11": such names sort by time."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m")


def months_before(month: str, count: int) -> str:
    """Return the month that lies so many before."""
    year, number = (int(part) for part in month.split("-"))
    years, rest = divmod(year * 12 + number - 1 - count, 12)
    return f"{years:04d}-{rest + 1:02d}"


class LinkKeys:
    """A model's keys by month. They are random and only in Redis, so that destroying one there destroys it."""

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection = connection
        self._key = ModelKeys(model).named("links")

    def all(self) -> dict[str, bytes]:
        """Return the keys that there are: month to key."""
        fields = self._connection.call("HGETALL", self._key)
        pairs = fields.items() if isinstance(fields, dict) else zip(fields[::2], fields[1::2], strict=True)
        return {month.decode(): key for month, key in pairs}

    def of(self, month: str) -> bytes:
        """Return the key of a month, made on first use; of two processes that make one, one decides."""
        self._connection.call("HSETNX", self._key, month, secrets.token_bytes(KEY_BYTES))
        return bytes(self._connection.call("HGET", self._key, month))

    def destroy(self, before: str) -> int:
        """Destroy the keys of the months before this one; how many."""
        months = [name for name in self._connection.call("HKEYS", self._key) if name.decode() < before]
        if months:
            self._connection.call("HDEL", self._key, *months)
        return len(months)
