"""Makes a seeded stream of records: documents that come, change, go and come again, and requests to forget people.

Hostile and misrouted records are among them. Texts are ASCII and drawn from a few planted topics, so a model of them is
learned in well under a second.
"""

import json
from itertools import accumulate

import msgpack

from campaign.reading import home
from streamtopic.streams import Message

TOPICS = 4
_WORDS = 60  # of each topic, and as many that all topics share
_TOKENS = 30
# A topic's first word is its own alone and in many of its documents: an anchor that few deletions can move.
_STEPS = list(accumulate([1.5, *(1 / (word + 5) for word in range(1, _WORDS))]))

SHARES = {
    "new": 0.15,
    "again": 0.05,
    "replaced": 0.1,
    "identical": 0.05,
    "deleted": 0.25,
    "unknown": 0.03,
    "hostile": 0.06,
    "misrouted": 0.05,
    "odd": 0.03,
    "renamed": 0.03,
    "forgotten": 0.02,
}
"""Kinds of records with their shares.

again: under an id that was deleted before.
odd: valid, in a form that few producers use.
renamed: the same words about other people, perhaps with another label.
forgotten: a document about a person whom a request forgets at the same time.
"""
# As long as fewer documents live than should.
_GROWING = {**SHARES, "new": 0.6, "deleted": 0.05}
_PEOPLE = 60
# Shares of the documents that are about somebody, and of those about the person who was asked for last. Shares
# of requests for such a person, of those for nobody, of those that are sent again, and of those that come with a
# tombstone or a record of somebody who means harm.
_NAMED, _RECENT = 0.4, 0.15
_RELABELLED = 0.3  # of the documents that are renamed
_ASKED_TWICE, _NOBODY, _REPEATED, _HARMED = 0.25, 0.1, 0.3, 0.2
_LATEST = 12


class EventStream:
    """Makes records of both topics; the same generator and arguments make the same records.

    partitions: of the documents topic.
    live: about how many documents live once the stream has run for a while.
    """

    def __init__(self, rng, partitions, live=500):
        self._rng = rng
        self._partitions = partitions
        self._target = live
        # The stream's own belief, for the choice of the next record only: the oracle knows which documents live.
        self._live = {}
        self._gone = []
        self._made = 0
        self._requests = 0
        self._people = {}
        self._asked = []
        self._sent = []
        self._waiting = []

    def batch(self, size):
        """Return the next `size` records of the documents topic."""
        return [self._next() for _ in range(size)]

    def requests(self):
        """Return the records of the requests topic that belong to the batches since the last call."""
        made, self._waiting = self._waiting, []
        return made

    def _next(self):
        # New documents until there are enough; from then on more deletions than additions.
        shares = _GROWING if len(self._live) < self._target else SHARES
        kind = self._rng.choices(list(shares), list(shares.values()))[0]
        make = getattr(self, f"_{kind}")
        return make() if self._live else self._new()

    def _new(self):
        self._made += 1
        return self._put(f"doc-{self._made}")

    def _again(self):
        return self._put(self._gone.pop(self._rng.randrange(len(self._gone)))) if self._gone else self._new()

    def _replaced(self):
        return self._put(self._known())

    def _identical(self):
        return self._live[self._known()]

    def _deleted(self):
        document = self._known()
        self._leave([document])
        return self._delete(document)

    def _unknown(self):
        return self._delete(f"nobody-{self._rng.randrange(10**6)}")

    def _renamed(self):
        """Return a live document once more, about other people, perhaps with another label; one in JSON as it is."""
        document = self._known()
        have = self._live[document]
        if have.value.startswith(b"{"):
            return have
        fields = msgpack.unpackb(have.value)
        fields.pop("subjects", None)
        if self._rng.random() < _RELABELLED:
            fields["labels"] = {"desk": "culture"}
        return self._about(document, fields)

    def _misrouted(self):
        sent = self._rng.choice((self._new, self._replaced, self._deleted))()
        elsewhere = (home(sent.key, self._partitions) + self._rng.randrange(1, self._partitions)) % self._partitions
        return Message(sent.key, sent.value, sent.headers, elsewhere)

    def _forgotten(self):
        """Ask to forget a person, or ask once more as before; return a document about the person."""
        if self._sent and self._rng.random() < _REPEATED:
            # Under the same id with the same salt it is the same request, also when it is done.
            self._waiting.append(self._rng.choice(self._sent[-_LATEST:]))
            return self._new()
        subject = self._somebody()
        self._asked.append(subject)
        self._requests += 1
        request = f"request-{self._requests}".encode()
        asked = {"salt": f"salt-of-{request.decode()}", "subjects": [subject]}
        self._sent.append(Message(request, json.dumps(asked).encode(), partition=0))
        self._waiting.append(self._sent[-1])
        if self._rng.random() < _HARMED:
            self._waiting.append(self._rng.choice([Message(request, None, partition=0), *_NO_REQUESTS]))
        self._leave([document for document, about in list(self._people.items()) if subject in about])
        document = self._rng.choice([*self._gone[-20:], f"late-{self._requests}"])
        late = self._about(document, {"op": "add", "text": self._text(_TOKENS)}, subject)
        self._leave([document])
        return late

    def _odd(self):
        """Return a valid record in a form that few producers use."""
        self._made += 1
        fields = self._rng.choice(
            [
                {"op": "add", "text": ""},
                {"op": "add", "text": "x 7 !"},
                {"op": "add", "text": "lonely"},
                {"op": "add", "counts": {}},
                {"op": "add", "counts": {"t0w1": 3, "t0w2": 1, "t1w1": 2}},
                {"op": "add", "text": self._text(9_000)},
                {"op": "add", "text": "T0W1 " + "y" * 70 + " T0W2", "meta": {"any": [1, 2]}, "unknown": None},
                {"op": "add", "text": self._text(20), "labels": {"desk": "sport"}},
            ]
        )
        packed = json.dumps(fields).encode() if self._rng.random() < 0.5 else msgpack.packb(fields)
        return self._store(f"odd-{self._made}", packed)

    def _hostile(self):
        """Return a record that must be refused or is a delete in another form, often under the id of a live one."""
        document = self._known() if self._rng.random() < 0.5 else f"hostile-{self._rng.random()}"
        key, value = self._rng.choice(_hostile(document.encode(), self._rng))
        headers = (("request", f"request-{self._requests}".encode()),) if self._rng.random() < 0.3 else ()
        self._requests += bool(headers)
        # Refused or deleted, nothing is left under the id.
        if key == document.encode():
            self._leave([document])
        return Message(key, value, headers)

    def _known(self):
        return self._rng.choice(list(self._live))

    def _somebody(self):
        """Return the person of a request."""
        draw = self._rng.random()
        if draw < _NOBODY:
            return f"person-{_PEOPLE + self._rng.randrange(10**6)}"
        if draw < _NOBODY + _ASKED_TWICE and self._asked:
            return self._rng.choice(self._asked[-3:])
        return f"person-{self._rng.randrange(_PEOPLE)}"

    def _put(self, document):
        labels = {"labels": {"desk": self._rng.choice(("sport", "news"))}} if self._rng.random() < 0.2 else {}
        fields = {"op": "add", "text": self._text(_TOKENS), **labels}
        if self._rng.random() < _NAMED:
            return self._about(document, fields)
        self._people.pop(document, None)
        return self._store(document, msgpack.packb(fields))

    def _about(self, document, fields, *subjects):
        """Return an add about these people, or about some that are drawn."""
        drawn = [f"person-{self._rng.randrange(_PEOPLE)}" for _ in range(self._rng.choice((0, 1, 1, 1, 2, 3)))]
        if self._rng.random() < _RECENT:
            drawn += self._asked[-1:]
        about = list(dict.fromkeys(subjects or drawn))
        self._people[document] = frozenset(about)
        return self._store(document, msgpack.packb({**fields, "subjects": about} if about else fields))

    def _store(self, document, value):
        self._live[document] = Message(document.encode(), value)
        return self._live[document]

    def _leave(self, documents):
        """Take these documents for deleted."""
        for document in documents:
            if self._live.pop(document, None) is not None:
                self._gone.append(document)

    def _delete(self, document):
        self._requests += 1
        request = f"request-{self._requests}"
        key = document.encode()
        if self._rng.random() < 0.2:
            return Message(key, msgpack.packb({"op": "delete", "request": request}))
        salt = (("salt", b"salt-of-" + request.encode()),) if self._requests % 2 else ()
        return Message(key, None, (("request", request.encode()), *salt))

    def _text(self, tokens):
        """Return words, most of one topic, some of a second, and some that all topics share."""
        first, second = self._rng.randrange(TOPICS), self._rng.randrange(TOPICS)
        sources = self._rng.choices((f"t{first}", f"t{second}", "all"), cum_weights=(7, 9, 10), k=tokens)
        words = self._rng.choices(range(_WORDS), cum_weights=_STEPS, k=tokens)
        return " ".join([f"{source}w{word}" for source, word in zip(sources, words, strict=True)])


_NO_REQUESTS = [
    Message(b"no-request", value, partition=0)
    for value in (b"\xff\x00", b"[" * 50_000, b'{"salt": "0123456789abcdef", "subjects": [7]}')
]


# A record without a key is not among them, since a compacted topic refuses it.
def _hostile(key, rng):
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
        (key, b'{"op": "add", "counts": {"fine": 1e999}}'),
        (key, b'{"op": "add", "text": "fine", "subjects": []}'),
        (key, b'{"op": "add", "text": "fine", "subjects": ["person-1", 7]}'),
        (key, b'{"op": "delete", "request": {"not": "a text"}, "text": 7}'),
        (key, msgpack.packb({"op": "add", "text": "x" * 1_000_001}) if rng.random() < 0.05 else b"\xc1"),
        (key, msgpack.packb([1, 2, 3])),
        (key, msgpack.packb({"op": "add", "counts": {"word": True}})),
        (key, rng.randbytes(40)),
    ]
