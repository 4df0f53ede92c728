"""Segments: the immutable, signed counts of one flush, as bytes for Redis.

A segment is a head, and the rows of its documents or any number of row chunks with their pairs. Each is a Redis string:
a name of its kind, a checksum, and streams of bytes. The segment of a flush holds rows, which take a tenth of the bytes
and are counted once, by the first merge (docs/decisions/0044). A merge writes pairs. A large one packs its streams with
zlib, since they stay for long. The head has the counts of words, so a reader who needs no pairs reads only heads.

Integers are varints of seven bits a byte, the lowest first (LEB128). Columns become gaps of half a byte, with 15 as the
escape. Values become ranks in a table of the frequent ones: one byte for the first 192, two bytes for the next 16,128,
and the value itself for the rest. Most pairs of a flush lie in one document and are w_L h_i h_j, so few values differ.
"""

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopic.compiled import Whole, allocating, kernel, short
from streamtopic.counts import DocumentBatch, PairBlock, SignedPassages, Weighting, count_weighted
from streamtopic.counts.arrays import row_ends
from streamtopic.errors import StateCorrupt
from streamtopic.state.meta import ManifestEntry

__all__ = [
    "CHUNK_PAIRS",
    "MOST_PASSAGES",
    "FlushRows",
    "PairChunk",
    "SegmentHead",
    "decode_chunk",
    "decode_head",
    "decode_passages",
    "decode_rows",
    "encode_chunk",
    "encode_head",
    "encode_rows",
    "get_varint",
    "pair_chunks",
    "put_varint",
]

Bytes = npt.NDArray[np.uint8]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

CHUNK_PAIRS = 1 << 19
"""Pairs of a row chunk. Its string is far below 16 MiB even if every gap and value needs its longest form."""

MOST_PASSAGES = 256
"""Documents of a small flush. A larger one is a bulk load, which no update follows. Segments of older programs hold
pairs, and the passages beside them where there were no more than so many documents and passages."""

_HEAD = b"STH3"
_CHUNK = b"STC2"
_ROWS = b"STR1"
# The passages that older programs stored beside the pairs of a small flush: a reader of pairs passes over them.
_PASSAGES = b"STP1"
_LEVEL = 1
# One bit for each stream, the first one lowest: ranks and literals of a chunk, its last three, stay as they are.
_HEAD_PACKED, _CHUNK_PACKED = 0b111111, 0b000111111
# Values that are looked at to find the frequent ones, where they need not be packed well: one in so many.
_SAMPLE = 8

LONGEST_VARINT = 10
"""Bytes of the longest integer."""

ONE_BYTE = 192
TABLE = ONE_BYTE + (255 - ONE_BYTE) * 256
_ESCAPE = 255
_LARGE_GAP = np.int64(15)
_MOST_COUNT = np.int64((1 << 31) - 1)
_SLOTS = 1 << 16
# Below the number of slots by so much that a search among them stays short.
_MOST_DISTINCT = 40_000


@dataclass(frozen=True, slots=True, eq=False)
class SegmentHead:
    """The counts of words and documents in a segment.

    ids: (k,) int64, word ids of the partition, ascending: every word with a count or a pair in the segment.
    frequency, tokens, heavy: (k,) int64, signed documents, occurrences and heavy documents of each word.
    added, removed: numbers of documents.
    """

    ids: Int64
    frequency: Int64
    tokens: Int64
    heavy: Int64
    added: int
    removed: int

    @property
    def documents(self) -> int:
        """Documents added less those removed."""
        return self.added - self.removed


@dataclass(frozen=True, slots=True, eq=False)
class PairChunk:
    """The pairs of some rows. A long row may go on in the next chunk.

    rows: (k,) int32, positions among the ids of the segment's head, ascending.
    sizes: (k,) int64, number of pairs of each row.
    columns: (pairs,) int32, positions as well.
    values: (pairs,) int64, signed.
    """

    rows: Int32
    sizes: Int64
    columns: Int32
    values: Int64

    @classmethod
    def of(cls, block: PairBlock) -> "PairChunk":
        """Take the pairs of a block, which shares its arrays."""
        rows = np.flatnonzero(block.sizes)
        sizes = block.sizes[rows]
        rows = rows + block.first
        return cls(rows.astype(np.int32), sizes, block.columns, block.values)


@dataclass(frozen=True, slots=True, eq=False)
class FlushRows:
    """The passages of one flush or of several that make pairs, as a merge counts them.

    indptr: (k + 1,) where passages begin.
    words: (nnz,) int32, positions among the ids of a head, ascending in each passage.
    counts: (nnz,) int32, how often each word stands there.
    weights: (k,) signed weight of the pairs of each passage, never 0.
    """

    # Half the bytes of SignedPassages: a merge holds the rows of many flushes at once.

    indptr: Int64
    words: Int32
    counts: Int32
    weights: Int64

    @classmethod
    def of(cls, batch: DocumentBatch, weighting: Weighting, signs: Int64) -> "FlushRows":
        """Take the passages of documents. signs: (documents,) 1 for one that came, -1 for one that went."""
        weights = weighting.weights(batch.lengths, batch.totals) * signs[batch.owners]
        sizes = np.diff(batch.indptr)
        kept = (weights != 0) & (sizes > 0)
        # Most documents are long enough for a pair, and then nothing need be copied.
        if kept.all():
            return cls(batch.indptr, batch.words, batch.counts, weights)
        entries = np.repeat(kept, sizes)
        return cls(row_ends(sizes[kept]), batch.words[entries], batch.counts[entries], weights[kept])

    @classmethod
    def joined(cls, parts: Sequence["FlushRows"]) -> "FlushRows":
        """Lay passages over the same words one below the other. parts: at least one."""
        sizes = [np.diff(part.indptr) for part in parts]
        words = [part.words for part in parts]
        counts = [part.counts for part in parts]
        weights = [part.weights for part in parts]
        indptr = row_ends(np.concatenate(sizes))
        return cls(indptr, np.concatenate(words), np.concatenate(counts), np.concatenate(weights))

    @property
    def passages(self) -> int:
        """How many passages there are."""
        return len(self.weights)

    @property
    def most_pairs(self) -> int:
        """The most pairs that the passages can make."""
        sizes = np.diff(self.indptr)
        between_words = (sizes * (sizes - 1) // 2).sum()
        # A word that stands in a passage more than once has pairs with itself.
        repeated = np.count_nonzero(self.counts > 1)
        return int(between_words + repeated)

    def renamed(self, places: Int32) -> "FlushRows":
        """Rename the words of all passages. places: the new position of each word, in the same order."""
        return FlushRows(self.indptr, places[self.words], self.counts, self.weights)

    def blocks(self, n_words: int) -> Iterator[PairBlock]:
        """Yield the pairs that the passages make, in blocks of rows. n_words: number of words."""
        return count_weighted(self.indptr, self.words, self.counts, self.weights, n_words, CHUNK_PAIRS)

    def signed(self) -> SignedPassages:
        """Return the passages as a difference of counts has them."""
        words = self.words.astype(np.int64)
        counts = self.counts.astype(np.int64)
        return SignedPassages(self.indptr, words, counts, self.weights)


def pair_chunks(entry: ManifestEntry, n_words: int, string: Callable[[int], bytes]) -> Iterator[PairChunk]:
    """Yield the pairs of a segment, which are counted here where it holds rows.

    n_words: number of ids of its head.
    string: reads the k-th string of the segment.

    A chunk is valid until the next one but one. Raises StateCorrupt, and as `string` does.
    """
    if entry.rows:
        rows = decode_rows(string(1), n_words)
        yield from map(PairChunk.of, rows.blocks(n_words))
        return
    for k in range(1, entry.keys):
        chunk = decode_chunk(string(k), n_words)
        # The last string of an older program may hold passages beside the pairs.
        if len(chunk.rows):
            yield chunk


def encode_head(head: SegmentHead, *, packed: bool) -> bytes:
    """Return the bytes of a head. packed: whether its streams are compressed."""
    # Few words are heavy in any document, so zeros are left out.
    some = np.flatnonzero(head.heavy)
    sizes = [head.added, head.removed, len(head.ids), len(some)]
    numbers = np.array(sizes, np.int64)
    heavy = head.heavy[some]
    columns = [numbers, _gaps(head.ids), head.frequency, head.tokens, _gaps(some), heavy]
    streams = [pack_integers(column) for column in columns]
    return _seal(_HEAD, streams, _HEAD_PACKED if packed else 0)


def encode_chunk(first: int, sizes: Int64, columns: Int32, values: Int64, *, packed: bool) -> bytes:
    """Return the bytes of a row chunk.

    first: position of the first row.
    sizes: (rows,) number of pairs of each row, at most CHUNK_PAIRS together.
    columns, values: (pairs,).
    packed: whether streams are compressed: smaller, but four times as slow.
    """
    rows = np.flatnonzero(sizes).astype(np.int32)
    sizes = sizes[rows]
    rows = rows + np.int32(first)
    few = len(values) < CHUNK_PAIRS // 8
    distinct, times = frequent_values(values, 1 if packed or few else _SAMPLE)
    # A value that occurs once takes as many bytes in the table as by itself.
    repeated = times > 1
    distinct = distinct[repeated]
    times = times[repeated]
    # Ties by value: the bytes must not depend on the order of slots.
    table = distinct[np.lexsort((distinct, -times))][:TABLE]
    numbers = np.array([len(rows), len(table)], np.int64)
    streams = [pack_integers(column) for column in (numbers, _gaps(rows), sizes)]
    streams += pack_columns(rows, sizes, columns)
    streams.append(pack_integers(table))
    streams += pack_values(values, table)
    return _seal(_CHUNK, streams, _CHUNK_PACKED if packed else 0)


def encode_rows(rows: FlushRows) -> bytes:
    """Return the bytes of the rows of a segment."""
    sizes = np.diff(rows.indptr)
    repeated = np.count_nonzero(rows.counts > 1)
    gaps = np.empty(LONGEST_VARINT * len(rows.words) + 1, np.uint8)
    repeats = np.empty(LONGEST_VARINT * repeated + 1, np.uint8)
    of_gaps, of_repeats = _pack_words(rows.indptr, rows.words, rows.counts, gaps, repeats)
    number = np.array([len(sizes)], np.int64)
    words = [gaps[:of_gaps], repeats[:of_repeats]]
    return _seal(_ROWS, [pack_integers(number), pack_integers(sizes), *words, pack_integers(rows.weights)], 0)


def decode_head(data: bytes) -> SegmentHead:
    """Read a head. Raises StateCorrupt where its checksum or form is wrong."""
    numbers, ids, frequency, tokens, gaps, amounts = _open(_HEAD, data, 6)
    added, removed, size, some = _integers(numbers, 4).tolist()
    gaps_of_ids = _integers(ids, size)
    heavy_places = _integers(gaps, some)
    heavy = _scattered(heavy_places, _integers(amounts, some), size)
    return SegmentHead(
        ids=np.cumsum(gaps_of_ids) - 1,
        frequency=_integers(frequency, size),
        tokens=_integers(tokens, size),
        heavy=heavy,
        added=added,
        removed=removed,
    )


def decode_chunk(data: bytes, n_words: int) -> PairChunk:
    """Read a row chunk. A string of passages is a chunk without pairs.

    n_words: number of ids of the segment.

    Raises StateCorrupt where its checksum or form is wrong.
    """
    if data[:4] == _PASSAGES:
        # Opened all the same, so that damage is found.
        _open(_PASSAGES, data, 5)
        nothing = np.zeros(0, np.int64)
        return PairChunk(nothing.astype(np.int32), nothing, nothing.astype(np.int32), nothing)
    numbers, rows, sizes, small, large, table, first, second, literal = _open(_CHUNK, data, 9)
    n_rows, n_table = _integers(numbers, 2).tolist()
    row = (np.cumsum(_integers(rows, n_rows)) - 1).astype(np.int32)
    size = _integers(sizes, n_rows)
    if size.min(initial=0) < 0 or size.sum() != len(first):
        raise _corrupt()
    columns, sound = unpack_columns(row, size, small, large, n_words)
    values, readable = unpack_values(first, second, literal, _integers(table, n_table))
    if not (sound and readable):
        raise _corrupt()
    return PairChunk(row, size, columns, values)


def decode_passages(data: bytes, n_words: int) -> SignedPassages | None:
    """Read the passages in the last string of a segment, as `decode_rows`; None where that is a row chunk."""
    return None if data[:4] == _CHUNK else decode_rows(data, n_words).signed()


def decode_rows(data: bytes, n_words: int) -> FlushRows:
    """Read the rows of a segment, or the passages that an older program stored beside its pairs.

    n_words: number of ids of the segment.

    Raises StateCorrupt where its checksum or form is wrong.
    """
    older = data[:4] == _PASSAGES
    number, of_sizes, gaps, repeats, of_weights = _open(_PASSAGES if older else _ROWS, data, 5)
    passages = int(_integers(number, 1)[0])
    sizes = _integers(of_sizes, passages)
    # Each word takes a byte at least: a larger sum is damage, and must not size an array.
    if sizes.min(initial=0) < 0 or sizes.max(initial=0) > len(gaps) or sizes.sum() > len(gaps):
        raise _corrupt()
    indptr = row_ends(sizes)
    words = np.empty(indptr[-1], np.int32)
    counts = np.empty(indptr[-1], np.int32)
    if not _unpack_words(indptr, gaps, repeats, int(older), n_words, words, counts):
        raise _corrupt()
    return FlushRows(indptr, words, counts, _integers(of_weights, passages))


def _scattered(gaps: Int64, values: Int64, size: int) -> Int64:
    """Return values at the places that the gaps lead to, 0 elsewhere, (size,) int64."""
    places = np.cumsum(gaps) - 1
    if gaps.min(initial=1) < 1 or places.max(initial=-1) >= size:
        raise _corrupt()
    out = np.zeros(size, np.int64)
    out[places] = values
    return out


def _gaps(ascending: Int32 | Int64) -> Int64:
    wide = ascending.astype(np.int64)
    wide[1:] -= ascending[:-1]
    wide[:1] += 1
    return wide


def _seal(kind: bytes, streams: Sequence[npt.NDArray[np.uint8]], packed: int) -> bytes:
    """Return a string: its kind, a checksum, and the streams.

    packed: one bit for each stream, the first one lowest; a stream whose bit is set is compressed by itself.
    """
    parts = []
    for k, stream in enumerate(streams):
        parts.append(_compress(stream) if packed >> k & 1 else stream.data)
    head = struct.pack(f"<H{len(parts)}I", packed, *map(len, parts))
    checksum = zlib.crc32(head)
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return b"".join([kind, struct.pack("<I", checksum), head, *parts])


def _compress(stream: npt.NDArray[np.uint8]) -> bytes:
    # Such streams have runs and unequal frequencies only. A search for repetitions takes twice as long and makes gaps
    # and ranks larger, since its matches are short.
    packer = zlib.compressobj(_LEVEL, strategy=zlib.Z_RLE)
    return packer.compress(stream.data) + packer.flush()


def _open(kind: bytes, data: bytes, count: int) -> list[npt.NDArray[np.uint8]]:
    """Return the `count` streams of a string of this kind. Raises StateCorrupt."""
    body = memoryview(data)[8:]
    at = 2 + 4 * count
    if data[:4] != kind or len(body) < at:
        raise _corrupt()
    (checksum,) = struct.unpack("<I", data[4:8])
    if checksum != zlib.crc32(body):
        raise _corrupt()
    packed, *sizes = struct.unpack(f"<H{count}I", body[:at])
    if at + sum(sizes) != len(body):
        raise _corrupt()
    streams = []
    for k, size in enumerate(sizes):
        part = body[at : at + size]
        stream = zlib.decompress(part) if packed >> k & 1 else part
        streams.append(np.frombuffer(stream, np.uint8))
        at += size
    return streams


def _integers(data: npt.NDArray[np.uint8], count: int) -> Int64:
    """Return a stream of exactly `count` integers. Raises StateCorrupt."""
    values: Int64
    values, sound = unpack_integers(data, count)
    if not sound:
        raise _corrupt()
    return values


def _corrupt() -> StateCorrupt:
    return StateCorrupt("a count segment fails its checksum: rebuild the state from the log (`streamtopic rebuild`)")


@short
def put_varint(out: Bytes, at: Whole, value: np.uint64) -> Whole:
    """Write `value` at `at`; return the position behind it. The caller sees to LONGEST_VARINT free bytes.

    at: np.int64 in a kernel also at the beginning, since numba compiles the function again for a literal.
    """
    rest = np.uint64(value)
    while rest > np.uint64(127):
        out[at] = np.uint8(rest & np.uint64(127)) | np.uint8(128)
        rest >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(rest)
    return at + 1


@short
def get_varint(data: Bytes, at: Whole) -> tuple[np.uint64, Whole]:
    """Read an integer at `at`; return it and the position behind it, which is -1 for a malformed one.

    With a position of -1 it returns -1 again, so that a caller may read several integers and look once.
    """
    value = np.uint64(0)
    shift = np.uint64(0)
    if at < 0:
        return value, -1
    while at < len(data) and shift < np.uint64(70):
        byte = data[at]
        at += 1
        value |= np.uint64(byte & np.uint8(127)) << shift
        if byte < np.uint8(128):
            return value, at
        shift += np.uint64(7)
    return value, -1


@short
def zigzag(value: np.int64) -> np.uint64:
    """Map small numbers of either sign to small unsigned ones."""
    return np.uint64((np.int64(value) << np.int64(1)) ^ (np.int64(value) >> np.int64(63)))


@short
def unzigzag(value: np.uint64) -> np.int64:
    """Undo `zigzag`."""
    return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))


def pack_integers(values: Int64) -> Bytes:
    """Write signed integers one after the other."""
    out = np.empty(LONGEST_VARINT * len(values) + 1, np.uint8)
    return out[: _pack_integers(values, out)].copy()


@kernel
def _pack_integers(values: Int64, out: Bytes) -> Whole:
    """Write the integers to `out`. Return their end."""
    at: Whole = np.int64(0)
    for value in values:
        at = put_varint(out, at, zigzag(value))
    return at


def unpack_integers(data: Bytes, count: int) -> tuple[Int64, bool]:
    """Undo `pack_integers`; the flag says whether the bytes were exactly `count` integers."""
    # Each takes a byte at least: a larger number is damage, and must not size an array.
    if count < 0 or count > len(data):
        return np.empty(0, np.int64), False
    out = np.empty(count, np.int64)
    return out, bool(_unpack_integers(data, out) == len(data))


@kernel
def _unpack_integers(data: Bytes, out: Int64) -> Whole:
    """Fill `out`. Return where its bytes end, -1 if they are malformed."""
    at: Whole = np.int64(0)
    for k in range(len(out)):
        value, at = get_varint(data, at)
        if at < 0:
            return at
        out[k] = unzigzag(value)
    return at


@kernel
def _pack_words(indptr: Int64, words: Int32, counts: Int32, gaps: Bytes, repeats: Bytes) -> tuple[Whole, Whole]:
    """Write the words of passages to `gaps`, and counts above one to `repeats`. Return where both end."""
    at: Whole = np.int64(0)
    behind: Whole = np.int64(0)
    for row in range(len(indptr) - 1):
        # The gaps of each passage begin anew at its first word.
        previous = np.int64(-1)
        for k in range(indptr[row], indptr[row + 1]):
            word = np.int64(words[k])
            gap = word - previous
            previous = word
            # Most words of a document occur once: the sign tells them apart, and others take a byte for their count.
            if counts[k] > 1:
                gap = -gap
                behind = put_varint(repeats, behind, zigzag(np.int64(counts[k])))
            at = put_varint(gaps, at, zigzag(gap))
    return at, behind


@kernel
def _unpack_words(
    indptr: Int64, gaps: Bytes, repeats: Bytes, older: int, n_words: int, words: Int32, counts: Int32
) -> bool:
    """Undo `_pack_words`. Return whether the words ascend below n_words and no byte was left over.

    older: 1 where every word has its count and no gap has a sign, else 0.
    """
    at: Whole = np.int64(0)
    behind: Whole = np.int64(0)
    for row in range(len(indptr) - 1):
        word = np.int64(-1)
        for k in range(indptr[row], indptr[row + 1]):
            coded, at = get_varint(gaps, at)
            gap = unzigzag(coded)
            count = np.int64(1)
            if older or gap < 0:
                coded, behind = get_varint(repeats, behind)
                count = unzigzag(coded)
            step = gap if older else abs(gap)
            # The first three bounds keep the fourth from overflowing.
            if at < 0 or behind < 0 or not 0 < step <= n_words or word + step >= n_words:
                return False
            if not 0 < count <= _MOST_COUNT:
                return False
            word += step
            words[k] = word
            counts[k] = count
    return at == len(gaps) and behind == len(repeats)


@allocating
def pack_columns(rows: Int32, sizes: Int64, columns: Int32) -> tuple[Bytes, Bytes]:
    """Return gaps, two in a byte, and the rest of the gaps that are too large for half a byte.

    rows, sizes, columns: as in `PairChunk`; columns ascend within a row and begin at the row or behind it.
    """
    small = np.empty((len(columns) + 1) // 2, np.uint8)
    # A gap between 32-bit columns takes five bytes at most.
    large = np.empty(5 * len(columns) + LONGEST_VARINT, np.uint8)
    start = 0
    at: Whole = np.int64(0)
    half = np.int64(0)
    for r in range(len(rows)):
        previous = np.int64(rows[r]) - 1
        for k in range(start, start + sizes[r]):
            column = np.int64(columns[k])
            gap = column - previous - 1
            previous = column
            # Written whether it counts or not: a branch for large gaps is often predicted wrong, which costs more.
            rest = gap - _LARGE_GAP
            large[at] = rest & 127
            at += int(rest >= 0)
            if rest > 127:
                at = put_varint(large, at - 1, np.uint64(rest))
            half |= min(gap, _LARGE_GAP) << ((k & 1) << 2)
            small[k >> 1] = half
            half *= 1 - (k & 1)
        start += sizes[r]
    return small, large[:at].copy()


@allocating
def unpack_columns(rows: Int32, sizes: Int64, small: Bytes, large: Bytes, n_words: int) -> tuple[Int32, bool]:
    """Undo `pack_columns`; the flag says whether all columns are below n_words and no byte was left over."""
    pairs = np.int64(0)
    for size in sizes:
        pairs += size
    if len(small) != (pairs + 1) // 2:
        return np.empty(0, np.int32), False
    columns = np.empty(pairs, np.int32)
    k = 0
    at: Whole = np.int64(0)
    for r in range(len(rows)):
        previous = np.int64(rows[r]) - 1
        for _ in range(sizes[r]):
            gap = np.int64((small[k >> 1] >> ((k & 1) << 2)) & 15)
            if gap == _LARGE_GAP:
                more, at = get_varint(large, at)
                if at < 0 or more > np.uint64(n_words):
                    return columns, False
                gap += np.int64(more)
            previous += 1 + gap
            if previous >= n_words:
                return columns, False
            columns[k] = previous
            k += 1
    return columns, at == len(large)


@short
def _home(value: np.int64, slots: int) -> np.int64:
    """Return the first of `slots` places, a power of two, to look for `value`."""
    mixed = np.uint64(value) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64(mixed >> np.uint64(40)) & np.int64(slots - 1)


@short
def _slot(keys: Int64, value: np.int64) -> np.int64:
    """Return the slot that holds `value`, or the empty one where it belongs. The number of slots is a power of two.

    0 marks an empty slot: no stored value is 0.
    """
    mask = len(keys) - 1
    slot = _home(value, len(keys))
    while keys[slot] != 0 and keys[slot] != value:
        slot = (slot + 1) & mask
    return np.int64(slot)


@allocating
def frequent_values(values: Int64, step: int = 1) -> tuple[Int64, Int64]:
    """Return distinct values and how often each occurs among every step-th value.

    After the first 40,000 distinct values, others are left out.
    """
    keys = np.zeros(_SLOTS, np.int64)
    times = np.zeros(_SLOTS, np.int64)
    distinct = 0
    for k in range(0, len(values), step):
        value = values[k]
        slot = _slot(keys, value)
        if keys[slot] == 0:
            if distinct == _MOST_DISTINCT:
                continue
            keys[slot] = value
            distinct += 1
        times[slot] += 1
    used = np.nonzero(keys)[0]
    return keys[used], times[used]


@allocating
def pack_values(values: Int64, table: Int64) -> tuple[Bytes, Bytes, Bytes]:
    """Return values as ranks in `table`: one first byte for each, second bytes, and literals."""
    slots = 64
    while slots < 8 * len(table):
        slots *= 2
    keys = np.zeros(slots, np.int64)
    codes = np.zeros(slots, np.uint16)
    for rank in range(len(table)):
        slot = _home(table[rank], slots)
        # One look at one slot makes this quick; a rarer value whose slot is taken is written as a literal.
        if keys[slot] == 0:
            keys[slot] = table[rank]
            codes[slot] = rank << 8 if rank < ONE_BYTE else (ONE_BYTE << 8) + rank - ONE_BYTE
    first = np.empty(len(values), np.uint8)
    # One more, since the loop writes a second byte for every value and counts only those that are needed.
    second = np.empty(len(values) + 1, np.uint8)
    literal = np.empty(LONGEST_VARINT * len(values) + 1, np.uint8)
    seconds = 0
    at: Whole = np.int64(0)
    for k in range(len(values)):
        slot = _home(values[k], slots)
        if keys[slot] == values[k]:
            code = codes[slot]
            first[k] = code >> 8
            second[seconds] = code & 255
            seconds += code >= ONE_BYTE << 8
        else:
            first[k] = _ESCAPE
            at = put_varint(literal, at, zigzag(values[k]))
    return first, second[:seconds].copy(), literal[:at].copy()


@allocating
def unpack_values(first: Bytes, second: Bytes, literal: Bytes, table: Int64) -> tuple[Int64, bool]:
    """Undo `pack_values`; the flag says whether the bytes were sound."""
    values = np.empty(len(first), np.int64)
    seconds = 0
    at: Whole = np.int64(0)
    for k in range(len(first)):
        rank = np.int64(first[k])
        if rank == _ESCAPE:
            coded, at = get_varint(literal, at)
            if at < 0:
                return values, False
            values[k] = unzigzag(coded)
            continue
        if rank >= ONE_BYTE:
            if seconds == len(second):
                return values, False
            rank = ONE_BYTE + ((rank - ONE_BYTE) << 8) + np.int64(second[seconds])
            seconds += 1
        if rank >= len(table):
            return values, False
        values[k] = table[rank]
    return values, seconds == len(second) and at == len(literal)
