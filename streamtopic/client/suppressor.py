"""Suppresses and lifts ids and subjects from Python, for whoever holds the key of suppressions."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopic.documents.events import encode_suppressions, new_suppressions
from streamtopic.documents.suppression import SuppressionKey
from streamtopic.errors import UsageError
from streamtopic.signed import load_secret
from streamtopic.streams import TopicNames, open_log
from streamtopic.streams.event_log import Closing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from streamtopic.streams import EventLog, KafkaOptions

__all__ = ["Suppressor"]

# Ids and subjects of one append. Each makes a record in every partition.
_AT_ONCE = 500


class Suppressor(Closing):
    """Suppresses ids and subjects, and lifts that. A call returns once the log has confirmed.

    log: as of DocumentProducer.
    model: name of the model.
    key: file of the key of suppressions, or the secret in it. The service has the same (setting `suppression_key`).
    clock: seconds since 1970. Of two records about the same id or subject the one that was made later holds, so clocks
        of several operators must not be far apart.

    An add under a suppressed id, or about a suppressed subject, is refused from then on, and its text leaves the log.
    Documents that are there stay: delete them behind the suppression. Every method raises InvalidEvent for a text that
    is no id or no subject, UsageError where the topics are missing, ComponentUnreachable where the log does not answer.
    Then send all again.
    """

    def __init__(
        self,
        log: str | Path | KafkaOptions | EventLog,
        *,
        model: str,
        key: Path | str | bytes,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._topic = TopicNames(model).documents
        # First: a key that cannot be read must not leave a connection open.
        secret = key if isinstance(key, bytes) else load_secret(Path(key))
        self._key = SuppressionKey(secret, model)
        self._log, self._owned = open_log(log)
        self._clock = clock
        self._made_ms = 0

    def suppress(self, documents: Iterable[str] = (), subjects: Iterable[str] = ()) -> int:
        """Refuse adds of these ids, and adds about these subjects, from now on; return how many were named."""
        return self._say(documents, subjects, suppressed=True)

    def lift(self, documents: Iterable[str] = (), subjects: Iterable[str] = ()) -> int:
        """Take adds of these ids, and adds about these subjects, again; return how many were named."""
        return self._say(documents, subjects, suppressed=False)

    def close(self) -> None:
        """Close the log if this object opened it."""
        if self._owned:
            self._log.close()

    def _say(self, documents: Iterable[str], subjects: Iterable[str], *, suppressed: bool) -> int:
        """Write the records of both to every partition."""
        partitions = self._log.partitions(self._topic)
        if not partitions:
            raise UsageError(f"there is no topic {self._topic}: run `streamtopic init`, or correct the model's name")
        # What is said later must hold, also within one millisecond.
        self._made_ms = max(int(self._clock() * 1000), self._made_ms + 1)
        found = new_suppressions(self._key, documents, subjects, self._made_ms, suppressed=suppressed)
        for start in range(0, len(found), _AT_ONCE):
            messages = encode_suppressions(found[start : start + _AT_ONCE], self._key, partitions)
            self._log.append_many(self._topic, messages)
        return len(found)
