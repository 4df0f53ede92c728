"""Where a model's chain of receipts ends: appended to by compare-and-set, so that two publishers cannot fork it."""

from collections.abc import Sequence

from streamtopic.state.connection import Connection
from streamtopic.state.keys import ModelKeys
from streamtopic.state.outbox import OutboxRecord, pack_record
from streamtopic.state.outcomes import Outcome, outcome

__all__ = ["ReceiptChain"]

_UPLOAD_SECONDS = 600

APPEND = """
local chain, outbox = KEYS[1], KEYS[2]
local have = redis.call('HMGET', chain, 'sequence', 'digest')
local sequence, digest = have[1] or '0', have[2] or ''
if sequence == ARGV[3] and digest == ARGV[4] then return {'already'} end
if sequence ~= ARGV[1] or digest ~= ARGV[2] then return {'stale', 'the chain of receipts ends at ' .. sequence} end
for i = 3, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 0 then return {'stale', 'a receipt expired before it was staged'} end
end
for i = 3, #KEYS do
  redis.call('PERSIST', KEYS[i])
  redis.call('XADD', outbox, '*', 'key', KEYS[i])
end
redis.call('HSET', chain, 'sequence', ARGV[3], 'digest', ARGV[4])
return {'applied'}
"""
"""Stage receipts behind the end of the chain. KEYS: chain, outbox, uploaded records.

ARGV: sequence and digest of the end that they continue, then of the new end.
"""


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
        return outcome(self._connection.script(APPEND, keys, [*expected, *end]))
