"""Segments: the immutable, signed counts of one flush, as bytes for Redis.

A segment is a head and any number of row chunks, each a Redis string with a version, a checksum and streams of small
bytes. Those of a flush are stored as they are, since packing them would take longer than counting; a large merge packs
its own with zlib, since they stay (docs/decisions/0013). The head alone tells word frequencies, so that a
reader who wants no pairs reads no pairs. The last string of a small flush holds its passages, which say the same as the
pairs in fewer numbers; to whoever reads pairs it is a chunk without any.
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopic.counts import Cooccurrence, SignedPassages
from streamtopic.errors import StateCorrupt
from streamtopic.state import packing

__all__ = ["CHUNK_PAIRS", "MOST_PASSAGES", "PairChunk", "Segment", "SegmentHead", "decode", "decode_chunk",
           "decode_head", "decode_passages", "encode", "encode_chunk", "encode_head", "encode_passages"]  # fmt: skip

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

CHUNK_PAIRS = 1 << 19
"""Pairs of a row chunk: below 16 MiB even where every gap and value needs its longest form, by far."""

MOST_PASSAGES = 256
"""Passages of a segment that keeps them, and documents: what adds or removes more at once is a bulk load, for which
whoever follows the counts takes the pairs, or begins anew."""

_HEAD = b"STH2"
_CHUNK = b"STC2"
_PASSAGES = b"STP1"
_LEVEL = 1
_HEAD_PACKED, _CHUNK_PACKED = 0b1111, 0b000111111
_SAMPLE = 8


@dataclass(frozen=True, slots=True, eq=False)
class SegmentHead:
    """What a segment says about words and documents.

    ids: (k,) int64 partition word ids, ascending, of every word with a count or a pair in the segment;
    frequency, tokens: (k,) int64 signed; added, removed: documents.
    """

    ids: Int64
    frequency: Int64
    tokens: Int64
    added: int
    removed: int

    @property
    def documents(self) -> int:
        """Documents added less those removed."""
        return self.added - self.removed


@dataclass(frozen=True, slots=True, eq=False)
class PairChunk:
    """Pairs of some rows: rows (k,) int32 and sizes (k,) int64, columns and values (pairs,).

    Rows and columns are positions among the ids of the segment's head. A long row may go on in the next chunk.
    """

    rows: Int32
    sizes: Int64
    columns: Int32
    values: Int64


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Signed counts of the documents of one epoch that one flush added and removed.

    ids: as in the head; counts: over positions among these ids, with documents = added - removed.
    """

    ids: Int64
    counts: Cooccurrence
    added: int
    removed: int

    @property
    def head(self) -> SegmentHead:
        """The part that needs no pairs."""
        return SegmentHead(self.ids, self.counts.frequency, self.counts.tokens, self.added, self.removed)


def encode(segment: Segment) -> list[bytes]:
    """Return the head's bytes, then those of the row chunks, packed."""
    counts = segment.counts
    chunks = [encode_head(segment.head, packed=True)]
    for start in range(0, counts.pairs, CHUNK_PAIRS):
        stop = min(start + CHUNK_PAIRS, counts.pairs)
        sizes = np.diff(np.clip(counts.indptr, start, stop)).astype(np.int64)
        chunks.append(encode_chunk(0, sizes, counts.columns[start:stop], counts.values[start:stop], packed=True))
    return chunks


def encode_head(head: SegmentHead, *, packed: bool) -> bytes:
    """Return the bytes of a head."""
    return _seal(
        _HEAD,
        [
            packing.pack_integers(np.array([head.added, head.removed, len(head.ids)], np.int64)),
            packing.pack_integers(_gaps(head.ids)),
            packing.pack_integers(head.frequency),
            packing.pack_integers(head.tokens),
        ],
        _HEAD_PACKED if packed else 0,
    )


def encode_chunk(first: int, sizes: Int64, columns: Int32, values: Int64, *, packed: bool) -> bytes:
    """Return the bytes of a row chunk: rows first, first + 1, ... with so many pairs each, at most CHUNK_PAIRS in all.

    packed: smaller, but four times as slow.
    """
    rows = np.flatnonzero(sizes).astype(np.int32)
    sizes, rows = sizes[rows], rows + np.int32(first)
    distinct, times = packing.frequent_values(values, 1 if packed or len(values) < CHUNK_PAIRS // 8 else _SAMPLE)
    repeated = times > 1
    distinct, times = distinct[repeated], times[repeated]
    table = distinct[np.lexsort((distinct, -times))][: packing.TABLE]
    return _seal(
        _CHUNK,
        [
            packing.pack_integers(np.array([len(rows), len(table)], np.int64)),
            packing.pack_integers(_gaps(rows)),
            packing.pack_integers(sizes),
            *packing.pack_columns(rows, sizes, columns),
            packing.pack_integers(table),
            *packing.pack_values(values, table),
        ],
        _CHUNK_PACKED if packed else 0,
    )


def encode_passages(passages: SignedPassages) -> bytes:
    """Return the bytes of passages whose words are positions among the ids of the segment's head."""
    sizes = np.diff(passages.indptr)
    gaps = passages.words.copy()
    gaps[1:] -= passages.words[:-1]
    first = passages.indptr[:-1][sizes > 0]
    gaps[first] = passages.words[first] + 1
    return _seal(
        _PASSAGES,
        [
            packing.pack_integers(np.array([passages.passages], np.int64)),
            packing.pack_integers(sizes),
            packing.pack_integers(gaps),
            packing.pack_integers(passages.counts),
            packing.pack_integers(passages.weights),
        ],
        0,
    )


def decode_head(data: bytes) -> SegmentHead:
    """Read a head. Raises StateCorrupt where its checksum or form is wrong."""
    numbers, ids, frequency, tokens = _open(_HEAD, data, 4)
    added, removed, size = _integers(numbers, 3).tolist()
    return SegmentHead(
        ids=np.cumsum(_integers(ids, size)) - 1,
        frequency=_integers(frequency, size),
        tokens=_integers(tokens, size),
        added=added,
        removed=removed,
    )


def decode_chunk(data: bytes, n_words: int) -> PairChunk:
    """Read a row chunk of a segment of n_words ids; a string of passages is one without pairs.

    Raises StateCorrupt where its checksum or form is wrong.
    """
    if data[:4] == _PASSAGES:
        _open(_PASSAGES, data, 5)
        nothing = np.zeros(0, np.int64)
        return PairChunk(nothing.astype(np.int32), nothing, nothing.astype(np.int32), nothing)
    numbers, rows, sizes, small, large, table, first, second, literal = _open(_CHUNK, data, 9)
    n_rows, n_table = _integers(numbers, 2).tolist()
    row = (np.cumsum(_integers(rows, n_rows)) - 1).astype(np.int32)
    size = _integers(sizes, n_rows)
    if size.min(initial=0) < 0 or size.sum() != len(first):
        raise _corrupt()
    columns, sound = packing.unpack_columns(row, size, small, large, n_words)
    values, readable = packing.unpack_values(first, second, literal, _integers(table, n_table))
    if not (sound and readable):
        raise _corrupt()
    return PairChunk(row, size, columns, values)


def decode_passages(data: bytes, n_words: int) -> SignedPassages | None:
    """Read the passages of a segment of n_words ids from its last string; None for a row chunk: there are none.

    Raises StateCorrupt where its checksum or form is wrong.
    """
    if data[:4] == _CHUNK:
        return None
    number, *streams = _open(_PASSAGES, data, 5)
    rows = int(_integers(number, 1)[0])
    sizes = _integers(streams[0], rows)
    if sizes.min(initial=0) < 0:
        raise _corrupt()
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    gaps, counts = (_integers(stream, int(indptr[-1])) for stream in streams[1:3])
    # Each passage's gaps begin anew before its first word.
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(gaps)])
    words = ends[1:] - np.repeat(ends[indptr[:-1]], sizes) - 1
    if gaps.min(initial=1) < 1 or words.max(initial=-1) >= n_words:
        raise _corrupt()
    return SignedPassages(indptr, words, counts, _integers(streams[3], rows))


def decode(parts: Sequence[bytes]) -> Segment:
    """Undo `encode`. Raises StateCorrupt."""
    head = decode_head(parts[0])
    chunks = [decode_chunk(part, len(head.ids)) for part in parts[1:]]
    sizes = np.zeros(len(head.ids) + 1, np.int64)
    for chunk in chunks:
        sizes[1:][chunk.rows] += chunk.sizes
    counts = Cooccurrence(
        n_words=len(head.ids),
        indptr=np.cumsum(sizes),
        columns=np.concatenate([np.empty(0, np.int32), *(chunk.columns for chunk in chunks)]),
        values=np.concatenate([np.empty(0, np.int64), *(chunk.values for chunk in chunks)]),
        frequency=head.frequency,
        tokens=head.tokens,
        documents=head.documents,
    )
    return Segment(head.ids, counts, head.added, head.removed)


def _gaps(ascending: Int32 | Int64) -> Int64:
    wide = ascending.astype(np.int64)
    wide[1:] -= ascending[:-1]
    wide[:1] += 1
    return wide


def _seal(kind: bytes, streams: Sequence[npt.NDArray[np.uint8]], packed: int) -> bytes:
    """Put streams behind a checksum of them all, those whose bit in `packed` is set compressed, each by itself."""
    parts = [_compress(stream) if packed >> k & 1 else stream.data for k, stream in enumerate(streams)]
    head = struct.pack(f"<H{len(parts)}I", packed, *map(len, parts))
    checksum = zlib.crc32(head)
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return b"".join([kind, struct.pack("<I", checksum), head, *parts])


def _compress(stream: npt.NDArray[np.uint8]) -> bytes:
    # Runs and unequal frequencies are all that such streams have: a search for repetitions takes twice as long and
    # makes gaps and ranks larger, since its matches are short.
    packer = zlib.compressobj(_LEVEL, strategy=zlib.Z_RLE)
    return packer.compress(stream.data) + packer.flush()


def _open(kind: bytes, data: bytes, count: int) -> list[npt.NDArray[np.uint8]]:
    body = memoryview(data)[8:]
    if data[:4] != kind or len(data) < 10 + 4 * count or struct.unpack("<I", data[4:8])[0] != zlib.crc32(body):
        raise _corrupt()
    packed, *sizes = struct.unpack(f"<H{count}I", body[: 2 + 4 * count])
    if 2 + 4 * count + sum(sizes) != len(body):
        raise _corrupt()
    streams, at = [], 2 + 4 * count
    for k, size in enumerate(sizes):
        part = body[at : at + size]
        streams.append(np.frombuffer(zlib.decompress(part) if packed >> k & 1 else part, np.uint8))
        at += size
    return streams


def _integers(data: npt.NDArray[np.uint8], count: int) -> Int64:
    values: Int64
    values, sound = packing.unpack_integers(data, count)
    if not sound:
        raise _corrupt()
    return values


def _corrupt() -> StateCorrupt:
    return StateCorrupt("a count segment fails its checksum: rebuild the state from the log (`streamtopic rebuild`)")
