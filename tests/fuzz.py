"""Damaged and invented input for every decoder, which must answer or refuse with an error of this package.

`DECODERS` is the list; a new decoder is one line in it. Signed content is damaged first and signed then, with the key
that the reader trusts: a signature says who wrote something, not that it makes sense.
"""

import base64
import json
import math
import traceback
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random

import msgpack
import numpy as np
from hypothesis import strategies as st

from ledger_maker import SALT, LedgerMaker, envelope_of, payload_of, receipt_of
from memory_log import MemoryLog
from streamtopic.console import printable
from streamtopic.documents.deletion_record import Misplaced, Wanted, decode_request, encode_request
from streamtopic.documents.events import decode_record
from streamtopic.documents.suppression import Suppression, SuppressionKey
from streamtopic.errors import InvalidEvent, InvalidRelease, StreamtopicError
from streamtopic.signed import (
    COSIGNATURE,
    Alive,
    Checkpoint,
    End,
    Envelope,
    Erased,
    Frontier,
    Head,
    KeyList,
    KeyRing,
    Keys,
    Ledger,
    LedgerProof,
    PublicKey,
    Receipt,
    ReleaseReader,
    RequestReceipt,
    Revoked,
    Runs,
    SigningKey,
    cosigned,
    leaf_hash,
    line_of,
    open_keys,
    open_release,
    pack_payload,
    parse_line,
    proof_message,
    seal_keys,
    sign_note,
    to_messages,
)
from streamtopic.signed.canonical import plain, written
from streamtopic.signed.checkpoints import text_of
from streamtopic.streams import Record
from streamtopic.tensors import parts, unpacked

_KEY = SigningKey.from_seed(bytes(range(32)), "test/news")
_OPERATOR = SuppressionKey(bytes(range(32)), "default")
_SUPPRESSION = Suppression(_OPERATOR.of_subject("somebody"), suppressed=True, made_ms=1_700_000_000_000)
_EXTREMES = [
    None, True, False, 0, 1, -1, 2**31, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), 2**64 - 1, 0.0, -0.0, 5e-324, 1e308, 1.5,
    math.nan, math.inf, -math.inf, "", "a", "\x00", "\ud800", "\u202e", "\x1b[2J", "a" * 300, "NaN", "1e999",
    "9" * 5000,
    b"", b"\xff", [], [[]], [None], {}, {"": None}, {"data": b"", "dtype": "<f4", "shape": []},
    {"data": b"\0" * 8, "dtype": "<f8", "shape": [1, -1]}, {"data": b"\0" * 8, "dtype": "<i8", "shape": [2**40, 2**40]},
    {"data": b"\0" * 4, "dtype": "<f4", "shape": ["1"]}, {"data": b"\0" * 4, "dtype": [], "shape": 1},
    np.zeros(0), np.zeros(()), np.zeros(2, np.float32), np.zeros((2, 2), np.int64),
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Decoder:
    """A decoder of bytes that others write.

    form: how input is damaged, as a tree of values and as bytes: `msgpack`; `tensors`; `json`,
    and `line` in the canonical form of entries; `text`, as words of lines. sample: sound input, in bytes. read: decodes
    it, and uses all of what it decoded.
    """

    name: str
    form: str
    sample: object
    read: object


def every_place(decoder):
    """Yield a sample with every extreme value, and with nothing, in every place of it.

    Chance needs many inputs until it meets one place with one value.
    """
    parse, write = _FORMS[decoder.form]
    yield from map(write, _replacements(parse(_sample(decoder))))


def _replacements(value):
    yield from _EXTREMES
    for place in _places(value):
        copy = value.copy()
        del copy[place]
        yield copy
        for replacement in _replacements(value[place]):
            copy = value.copy()
            copy[place] = replacement
            yield copy


@cache
def _sample(decoder):
    return decoder.sample()


def _places(value):
    return list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()


def outcome(decoder, data):
    """Give bytes to a decoder; return an exception of another package, with the place where it was raised."""
    try:
        decoder.read(data)
    except StreamtopicError:
        return None
    except Exception as error:  # noqa: BLE001 - any exception is the finding
        place = traceback.extract_tb(error.__traceback__)[-1]
        return printable(f"{type(error).__name__}: {str(error)[:80]} ({Path(place.filename).name}:{place.lineno})")
    return None


@st.composite
def damaged(draw, decoder):
    """Draw a sample with one to three places changed, in its tree of values or in its bytes."""
    parse, write = _FORMS[decoder.form]
    sample = _sample(decoder)
    if draw(st.integers(0, 9)) == 0:
        return draw(_spoiled(sample) | st.binary(max_size=64))
    value = parse(sample)
    for _ in range(draw(st.integers(1, 3))):
        value = draw(_changed(value))
    return write(value)


@st.composite
def _spoiled(draw, data):
    spoiled = bytearray(data[: draw(st.integers(1, len(data)))])
    places = st.dictionaries(st.integers(0, len(spoiled) - 1), st.integers(0, 255), max_size=3)
    for place, value in draw(places).items():
        spoiled[place] = value
    return bytes(spoiled)


@st.composite
def _changed(draw, value):
    """Take one place out, have it twice, or put another value in, of its type as often as of another."""
    places = _places(value)
    if not places or draw(st.integers(0, 9)) == 0:
        near = st.from_type(type(value)) if isinstance(value, bool | int | float | str) else st.nothing()
        return draw(near | st.sampled_from(_EXTREMES))
    copy, place = value.copy(), draw(st.sampled_from(places))
    how = draw(st.integers(0, 19))
    if how == 0:
        del copy[place]
    elif how == 1 and isinstance(copy, dict):
        copy[draw(st.sampled_from(["", "unknown", "\x00", "1" * 40, *map(str, copy)]))] = copy[place]
    elif how == 1:
        copy.insert(place, copy[place])
    else:
        copy[place] = draw(_changed(copy[place]))
    return copy


def _as_json(value):
    return json.dumps(value, default=str).encode(errors="surrogatepass")


def _as_msgpack(value):
    try:
        return bytes(msgpack.packb(value, unicode_errors="surrogatepass", default=str))
    except (ValueError, OverflowError):
        return b"\xc1"


_TYPES = {"<f4": np.float32, "<f8": np.float64}


def _tensors(data):
    arrays, texts = unpacked(data)
    held = {name: [array.dtype.str, list(array.shape), array.tobytes()] for name, array in arrays.items()}
    return {"arrays": held, "texts": {name: json.loads(text) for name, text in texts.items()}}


def _as_tensors(value):
    # Content without a form is signed all the same: the reader must refuse it by itself.
    try:
        arrays = {
            name: np.frombuffer(held[2], _TYPES[held[0]]).reshape(held[1]) for name, held in value["arrays"].items()
        }
        texts = {name: _as_line(text).decode() for name, text in value["texts"].items()}
        return b"".join(parts(arrays, texts))
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
        return _as_msgpack(value)


def _as_line(value):
    # A line that is not canonical is refused at once, and tests nothing behind that.
    try:
        line = json.dumps(value, default=str, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except TypeError:
        return _as_json(value)
    return line.encode(errors="surrogatepass")


def _words(data):
    return [line.split(" ") for line in data.decode().split("\n")]


def _as_text(value):
    lines = value if isinstance(value, list) else [value]
    texts = [" ".join(map(str, line)) if isinstance(line, list) else str(line) for line in lines]
    return "\n".join(texts).encode(errors="surrogatepass")


_FORMS = {
    "json": (json.loads, _as_json),
    "line": (json.loads, _as_line),
    "msgpack": (msgpack.unpackb, _as_msgpack),
    "tensors": (_tensors, _as_tensors),
    "text": (_words, _as_text),
}


def _text(data):
    """Return what was written as text: also halves of characters, which JSON may hold."""
    try:
        return data.decode(errors="surrogatepass")
    except UnicodeDecodeError:
        return data.decode(errors="replace")


def _record(value, key=b"doc", timestamp_ms=0):
    return Record("default.documents", 0, 5, key, value, (), timestamp_ms)


def _read_event(data):
    """Read a record; the exception that a guard made a refusal of is raised as it was."""
    try:
        decode_record(_record(data))
    except InvalidEvent as error:
        if error.reason == "reader" and error.__cause__ is not None:
            raise error.__cause__ from None
        raise


def _read_suppression(data):
    said = _OPERATOR.read(_SUPPRESSION.key, data)
    if said is not None and _OPERATOR.value(said) != data:
        raise AssertionError("one suppression has two forms")
    if _OPERATOR.refused(0, None, [("st-suppressed", data)]) is not None:
        raise AssertionError("somebody without the key refused an add")


def _map_of(data):
    """Return the map in bytes that only this file writes, None for anything else."""
    try:
        fields = msgpack.unpackb(data, strict_map_key=False, raw=False, unicode_errors="replace")
    except (ValueError, TypeError, msgpack.UnpackException):
        return None
    return fields if isinstance(fields, dict) else None


def _read_request(data):
    try:
        wanted = decode_request(_record(data, b"misplaced-1"))
    except InvalidEvent as error:
        if error.reason == "reader" and not isinstance(error.__cause__, ValueError | TypeError | RecursionError):
            raise error.__cause__ or error from None
        return
    for one in wanted.misplaced:
        decode_record(_record(None)._replace(key=one.tombstone.key, headers=one.tombstone.headers))


def _read_rejection(data):
    from streamtopic.commands.looking import _rejection_fields
    from streamtopic.service.ingest.rejections import parse_rejection

    # A producer chooses the time of its records as well.
    times = Random(len(data)).choice([0, -1, 2**63 - 1, -(2**63), 1_700_000_000_000])
    found = parse_rejection(_record(data, timestamp_ms=times))
    if found is not None:
        json.dumps(_rejection_fields(found), allow_nan=False)


def _read_release(data):
    from streamtopic.service.inspection.facts import heads_of, topics_of

    release = open_release(data, sample_envelope())
    facts = (str(release.guarantee), heads_of(release, 3), dict(release.quality), release.payload.guided)
    json.dumps(facts, allow_nan=False)
    if release.payload.A is not None:
        json.dumps(topics_of(release, 3), allow_nan=False)
        release.transform(["w00000 w00001"])
    release.data()


@cache
def _written():
    """Return a ledger of some entries, in memory."""
    maker = LedgerMaker(MemoryLog(), key=_KEY)
    maker.append(sample_envelope(), receipt_of(7), Alive(1_700_000_000_000, 60_000, 3, Runs((2, 2))))
    return maker


def _ledger():
    """Return that ledger as a reader has it."""
    return Ledger.restore(_dump().decode(), KeyRing.load(_KEY.public, "news"))


def _pages(lines, text=None):
    """Return the records of a page with these lines. text: signed in the place of what the draft should say."""
    ledger = _written().ledger
    frontier = Frontier(ledger.size, ledger.tree.hashes)
    grown = frontier.grown(leaf_hash(line.encode(errors="replace")) for line in lines)
    after = Checkpoint(_KEY.name, grown.size, grown.root)
    text = f"streamtopic draft\n{frontier.size}\n{after.text}" if text is None else text
    note = _signed(text)
    draft = {"draft": note, "entries": lines, "frontier": list(map(text_of, frontier.hashes)), "keys": ""}
    # Escaped, so that halves of characters come through.
    return [json.dumps(draft).encode(), _checkpoint(after.text)]


def _checkpoint(text):
    """Return a checkpoint that says this."""
    return json.dumps({"checkpoint": _signed(text)}).encode()


def _signed(text):
    """Return a note of a text; halves of characters are in it, and not in what is signed."""
    signature = sign_note(text.encode(errors="replace").decode(), _KEY).rpartition("\n\n")[2]
    return f"{text}\n{signature}"


def _take(values):
    """Return the ledger after further records, and use all that it knows. Raises InvalidRelease if none counts."""
    ledger = _ledger()
    before = ledger.size
    for value in values:
        ledger.take(value)
    ledger.stale(1_700_000_100, 60, lambda _: None)
    json.dumps([ledger.newest, list(ledger.withdrawn.edges), ledger.is_void(3)])
    again = Ledger.restore(ledger.dump(), KeyRing.load(_KEY.public, "news"))
    if (again.root, again.withdrawn.edges) != (ledger.root, ledger.withdrawn.edges):
        raise AssertionError("the dump is that of another ledger")
    if ledger.size == before:
        raise InvalidRelease("no page counts")
    return ledger


def _read_line(data):
    from streamtopic.commands.receipts import readable
    from streamtopic.service.inspection.facts import receipt_fields

    line = _text(data)
    _take(_pages([line]))
    entry = parse_line(line)
    if line_of(entry) != line:
        raise AssertionError("the entry has another line")
    match entry:
        case Receipt():
            fields = receipt_fields(entry)
            json.dumps(fields, allow_nan=False)
            readable(fields)
            entry.is_about("doc", SALT)
        case Envelope():
            json.dumps(json.loads(line_of(entry)), allow_nan=False)
        case Erased():
            json.dumps([list(entry.ends), entry.covers(receipt_of(7))])
        case _:
            written(plain(entry))


def _read_record(data):
    _take([data, _pages([_lines()["receipt"]])[1]])


def _read_draft(data):
    lines = [_lines()["receipt"]]
    draft, _ = _pages(lines, _text(data))
    _take([draft, _pages(lines)[1]])


def _read_checkpoint(data):
    _take([_pages([_lines()["receipt"]])[0], _checkpoint(_text(data))])


def _read_dump(data):
    ledger = Ledger.restore(_text(data), KeyRing.load(_KEY.public, "news"))
    json.dumps([ledger.size, ledger.newest, list(ledger.withdrawn.edges), list(ledger.gaps.edges)])
    ledger.dump()


def _read_proof(data):
    from streamtopic.client import verify_receipt

    verify_receipt(_text(data), _KEY.public, document="d-7", salt=SALT)


def _read_signed_proof(data):
    proof = LedgerProof.parse(_text(data))
    checkpoint = sign_note(Checkpoint(_KEY.name, 3, _written().ledger.root).text, _KEY)
    LedgerProof(proof.line, proof.index, proof.path, checkpoint).verify(KeyRing.load(_KEY.public, "news"))


def _read_keys(data):
    text = _text(data)
    keys = open_keys(_signed(text), _KEY.public)
    revoked = [(entry.key.key_id, entry.first, entry.size, entry.revoked) for entry in keys.revoked]
    json.dumps([keys.origin, keys.sequence, keys.created, keys.current.key_id, revoked], allow_nan=False)
    KeyRing.load(_KEY.public, "news").take(_signed(text))


def _read_witness(data):
    text = _text(data)
    witness = PublicKey.parse(text, COSIGNATURE)
    cosigned(_written().ledger.checkpoint, witness)


def _read_policy(data):
    from streamtopic.service.publish.witnesses import read_policy

    policy = read_policy(data, "a file")
    policy.quorum.met_by(policy.witnesses)


def _read_chunk(data):
    # The program does not read these bytes: they carry the parts of a record to the decoder.
    fields = _map_of(data)
    if fields is None:
        return
    given = {str(name): value for name, value in fields.items() if isinstance(value, bytes)}
    headers = tuple((name, value) for name, value in given.items() if name not in {"key", "value"})
    reader = ReleaseReader(Ledger(KeyRing.load(_KEY.public, "news")))
    list(reader.take(Record("t", 0, 0, given.get("key"), given.get("value"), headers, 0)))
    proof = proof_message(3, "a proof")
    list(reader.take(Record("t", 0, 1, proof.key, proof.value, (), 0)))


def sample_envelope():
    """Return a sound envelope."""
    return envelope_of(3, kind="unlearn", base=1, withdrawn=(2,), forgotten=1, release="d" * 64)


def _release():
    payload = payload_of()
    words = payload.words[:2]
    head = Head(words, ("no", "yes"), 10, w=np.ones((2, 2)))
    return pack_payload(replace(payload, heads={"task": head}, guided={"cars": words}), sample_envelope())


@cache
def _lines():
    """Return the line of a sound entry of each kind, by its kind."""
    note = _signed(_keys().decode())
    entries = (
        sample_envelope(),
        receipt_of(7, link="e" * 64),
        RequestReceipt("news/request/1", "news", "a" * 64, "b" * 64, "2026-11", 1_700_000_000_000, 4, 3),
        Erased(1_700_000_000_002, {0: 8}, {0: {"log": 1_700_000_000_001}}, ("backups",)),
        Alive(1_700_000_000_000, 60_000, 9, Runs((1, 3, 5, 5))),
        Keys(note),
        End(1_700_000_000_000, 40, 3, 1, ledger_kept=True),
    )
    lines = list(map(line_of, entries))
    return {json.loads(line)["kind"]: line for line in lines}


def _keys():
    """Return the text of a list of keys, without its signature."""
    old, stolen = (SigningKey.from_seed(bytes([number]) * 32, _KEY.name).public for number in (1, 2))
    keys = KeyList(_KEY.name, 3, 1_700_000_000_000, _KEY.public, (old,), (Revoked(stolen, 3, 5, 1_700_000_000_000),))
    return f"{seal_keys(keys, _KEY).rpartition(chr(10) * 2)[0]}\n".encode()


def _witness():
    from cosigning import witness

    known = witness()[1]
    return f"{known.name}+{known.hash.hex()}+{base64.b64encode(bytes([4]) + known.raw).decode()}".encode()


def _policy():
    key = _witness().decode()
    return f"# some\nlog {_KEY.public}\nwitness a {key} https://w\ngroup g any a\nquorum g\n".encode()


def _note_of(place, name):
    """Return the text of a note in a record of a page, without its signature."""
    return f"{json.loads(_pages([_lines()['receipt']])[place])[name].rpartition(chr(10) * 2)[0]}\n".encode()


@cache
def _dump():
    return _written().ledger.dump().encode()


def _proof():
    return _written().proof(1).encode()


def _event():
    labels = {"task": "class"}
    return bytes(msgpack.packb({"op": "add", "text": "one two three", "labels": labels, "meta": [1]}))


def _counts_event():
    return json.dumps({"op": "add", "counts": {"one": 1, "two": 3}, "labels": {"task": "class"}}).encode()


def _suppression():
    return _OPERATOR.value(_SUPPRESSION)


def _request():
    found = Misplaced("doc", 1_700_000_000_000, True, "mine", b"0123456789abcdef")
    return encode_request(Wanted("misplaced-1", "s" * 16, misplaced=(found,))).value or b""


def _rejection():
    return bytes(msgpack.packb({"offset": 4, "partition": 0, "reason": "format", "topic": "default.documents"}))


def _chunk():
    message = to_messages(3, _release())[0]
    return bytes(msgpack.packb({"key": message.key, "value": message.value, **dict(message.headers)}))


_KINDS = ("version", "receipt", "request", "erased", "alive", "keys", "end")


def _line(kind):
    return lambda: _lines()[kind].encode()  # noqa: PLW0108 -- samples are made when they are asked for


DECODERS = (
    Decoder("event, text", "msgpack", _event, _read_event),
    Decoder("event, counts", "json", _counts_event, _read_event),
    Decoder("suppression", "text", _suppression, _read_suppression),
    Decoder("request of ingest", "json", _request, _read_request),
    Decoder("rejection", "msgpack", _rejection, _read_rejection),
    Decoder("release", "tensors", _release, _read_release),
    Decoder("chunk of a release", "msgpack", _chunk, _read_chunk),
    *(Decoder(f"entry, {kind}", "line", _line(kind), _read_line) for kind in _KINDS),
    Decoder("record of the ledger", "json", lambda: _pages([_lines()["receipt"]])[0], _read_record),
    Decoder("draft", "text", lambda: _note_of(0, "draft"), _read_draft),
    Decoder("checkpoint", "text", lambda: _note_of(1, "checkpoint"), _read_checkpoint),
    Decoder("dump of a ledger", "line", _dump, _read_dump),
    Decoder("proof", "text", _proof, _read_proof),
    Decoder("proof, signed again", "text", _proof, _read_signed_proof),
    Decoder("key list", "text", _keys, _read_keys),
    Decoder("key of a witness", "text", _witness, _read_witness),
    Decoder("policy of witnesses", "text", _policy, _read_policy),
)
"""Every decoder of what others wrote: a new one belongs here."""
