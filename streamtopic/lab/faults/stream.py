"""Makes a seeded stream of records for the documents topic: documents that come, change, go and come again.

Hostile and misrouted records are among them. Texts are ASCII and drawn from a few planted topics, so a model of them is
learned in well under a second.
"""

from __future__ import annotations

import json
from itertools import accumulate
from typing import TYPE_CHECKING

import msgpack

from streamtopic.lab.faults.reading import home
from streamtopic.streams import Message

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

__all__ = ["KINDS", "TOPICS", "EventStream"]

TOPICS = 4
_WORDS = 60  # of each topic, and as many that all topics share
_TOKENS = 30
# A topic's first word is its own alone and in many of its documents: an anchor that few deletions can move.
_STEPS = list(accumulate([1.5, *(1 / (word + 5) for word in range(1, _WORDS))]))

KINDS = ("new", "again", "replaced", "identical", "deleted", "unknown", "hostile", "misrouted", "odd")
"""Kinds of records. again: under an id that was deleted before; odd: valid, in a form that few producers use."""


class EventStream:
    """Makes records; the same generator and arguments make the same records.

    partitions: of the documents topic.
    live: about how many documents live once the stream has run for a while.
    """

    def __init__(self, rng: Random, partitions: int, live: int = 500) -> None:
        self._rng = rng
        self._partitions = partitions
        self._target = live
        # The stream's own belief, for the choice of the next record only: the oracle knows which documents live.
        self._live: dict[str, Message] = {}
        self._gone: list[str] = []
        self._made = 0
        self._requests = 0

    @property
    def known(self) -> list[str]:
        """Ids of documents that the stream takes for live."""
        # A copy in one step, since faults ask from other threads while the stream makes records.
        return list(self._live)

    def batch(self, size: int) -> list[Message]:
        """Return the next `size` records."""
        return [self._next() for _ in range(size)]

    def _next(self) -> Message:
        # New documents until there are enough; from then on more deletions than additions.
        full = len(self._live) / self._target
        weights = (
            0.6 if full < 1 else 0.15,  # new
            0.05,
            0.1,
            0.05,
            0.05 if full < 0.8 else 0.3,  # deleted
            0.03,
            0.06,
            0.05,
            0.03,
        )
        kind = self._rng.choices(KINDS, weights)[0]
        make: Callable[[], Message] = getattr(self, f"_{kind}")
        return make()

    def _new(self) -> Message:
        self._made += 1
        return self._put(f"doc-{self._made}")

    def _again(self) -> Message:
        return self._put(self._gone.pop(self._rng.randrange(len(self._gone)))) if self._gone else self._new()

    def _replaced(self) -> Message:
        return self._put(self._rng.choice(list(self._live))) if self._live else self._new()

    def _identical(self) -> Message:
        return self._rng.choice(list(self._live.values())) if self._live else self._new()

    def _deleted(self) -> Message:
        if not self._live:
            return self._new()
        document = self._rng.choice(list(self._live))
        del self._live[document]
        self._gone.append(document)
        return self._delete(document)

    def _unknown(self) -> Message:
        return self._delete(f"nobody-{self._rng.randrange(10**6)}")

    def _misrouted(self) -> Message:
        sent = self._rng.choice((self._new, self._replaced, self._deleted))()
        key = sent.key or b""
        elsewhere = (home(key, self._partitions) + self._rng.randrange(1, self._partitions)) % self._partitions
        return Message(key, sent.value, sent.headers, elsewhere if self._partitions > 1 else 0)

    def _odd(self) -> Message:
        """Return a valid record in a form that few producers use."""
        self._made += 1
        fields = self._rng.choice(
            [
                {"op": "add", "text": ""},
                {"op": "add", "text": "x 7 !"},
                {"op": "add", "text": "lonely"},
                {"op": "add", "counts": {}},
                {"op": "add", "counts": {"t0w1": 3, "t0w2": 1, "t1w1": 2}},
                {"op": "add", "text": " ".join(self._words(9_000))},
                {"op": "add", "text": "T0W1 " + "y" * 70 + " T0W2", "meta": {"any": [1, 2]}, "unknown": None},
                {"op": "add", "text": " ".join(self._words(20)), "labels": {"desk": "sport"}, "ts": 1_700_000_000_000},
            ]
        )
        packed = json.dumps(fields).encode() if self._rng.random() < 0.5 else msgpack.packb(fields)
        return self._store(f"odd-{self._made}", Message(f"odd-{self._made}".encode(), packed))

    def _hostile(self) -> Message:
        """Return a record that must be refused or is a delete in another dialect, often under the id of a live one."""
        known = list(self._live)
        document = self._rng.choice(known) if known and self._rng.random() < 0.5 else f"hostile-{self._rng.random()}"
        key, value = self._rng.choice(_hostile(document.encode(), self._rng))
        headers = (("request", f"request-{self._requests}".encode()),) if self._rng.random() < 0.3 else ()
        self._requests += bool(headers)
        # Refused or deleted, nothing is left under the id.
        if key == document.encode() and self._live.pop(document, None) is not None:
            self._gone.append(document)
        return Message(key, value, headers)

    def _put(self, document: str) -> Message:
        labels = {"labels": {"desk": self._rng.choice(("sport", "news"))}} if self._rng.random() < 0.2 else {}
        fields = {"op": "add", "text": " ".join(self._words(_TOKENS)), **labels}
        return self._store(document, Message(document.encode(), msgpack.packb(fields)))

    def _store(self, document: str, message: Message) -> Message:
        self._live[document] = message
        return message

    def _delete(self, document: str) -> Message:
        self._requests += 1
        request = f"request-{self._requests}"
        key = document.encode()
        if self._rng.random() < 0.2:
            return Message(key, msgpack.packb({"op": "delete", "request": request}))
        salt = (("salt", b"salt-of-" + request.encode()),) if self._requests % 2 else ()
        return Message(key, None, (("request", request.encode()), *salt))

    def _words(self, tokens: int) -> list[str]:
        """Return words, most of one topic, some of a second, and some that all topics share."""
        first, second = self._rng.randrange(TOPICS), self._rng.randrange(TOPICS)
        sources = self._rng.choices((f"t{first}", f"t{second}", "all"), cum_weights=(7, 9, 10), k=tokens)
        words = self._rng.choices(range(_WORDS), cum_weights=_STEPS, k=tokens)
        return [f"{source}w{word}" for source, word in zip(sources, words, strict=True)]


# A record without a key is not among them, since a compacted topic refuses it.
def _hostile(key: bytes, rng: Random) -> list[tuple[bytes, bytes]]:
    add = msgpack.packb({"op": "add", "text": "some text"})
    return [
        (b"", add),
        (b"k" * 513, add),
        (b"\xff\xfe", add),
        (b"st:heartbeat", add),
        (key, b""),
        (key, b"null"),
        (key, b"\xc0"),
        (key, b'{"schema": null, "payload": null}'),
        (key, b'{"before": {"text": "gone"}, "after": null, "op": "d"}'),
        (key, b'{"text": "gone", "__deleted": "true"}'),
        (key, b'{"specversion": "1.0", "type": "document.deleted"}'),
        (key, b'{"op": "delete", "x": NaN}'),
        (key, b"{"),
        (key, b'{"op": "add", "text": NaN}'),
        (key, b"[" * 100_000),
        (key, b"\x91" * 5_000),
        (key, b'{"op": "add", "text": 7}'),
        (key, b'{"op": "add", "text": "a", "counts": {"b": 1}}'),
        (key, b'{"op": "burn"}'),
        (key, b'{"op": "add", "counts": {"word": 0}}'),
        (key, b'{"op": "add", "counts": {"word": 8193}}'),
        (key, b'{"op": "add", "counts": {"one": 8000, "two": 8000}}'),
        (key, b'{"op": "add", "counts": {"\\ud800": 1}}'),
        (key, b'{"op": "add", "text": "fine", "labels": ["no", "map"]}'),
        (key, b'{"op": "add", "text": "fine", "ts": 1e999}'),
        (key, b'{"op": "delete", "request": {"not": "a text"}, "text": 7}'),
        (key, msgpack.packb({"op": "add", "text": "x" * 1_000_001}) if rng.random() < 0.05 else b"\xc1"),
        (key, msgpack.packb([1, 2, 3])),
        (key, msgpack.packb({"op": "add", "counts": {"word": True}})),
        (key, rng.randbytes(40)),
    ]
