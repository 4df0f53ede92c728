"""Words as numbers: a hash table that compiled loops can read and fill without a Python string.

An entry is a word's number in this table, given when the word first occurs. It has no meaning in a state or a matrix:
the owner of a table keeps the ids or columns of words, and which words live documents hold.
"""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from threading import Lock

import numpy as np
import numpy.typing as npt

from streamtopic.compiled import Whole, fetch_early, inner, kernel, once
from streamtopic.counts import DocumentBatch
from streamtopic.counts.batch import row_ends
from streamtopic.words.text import MAX_PASSAGE, MAX_WORD, MAX_WORDS, AnyText, passages

__all__ = ["Lexicon", "Table", "Whole", "count_texts", "find", "word_bytes", "word_text"]

Bytes = npt.NDArray[np.uint8]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt64 = npt.NDArray[np.uint64]


Table = tuple[UInt64, UInt64, Int64, Bytes, Int64]
"""The arrays of a Lexicon, as compiled code takes them.

    secret   (2,) the key of the hash
    slots    (2**k, 2) the number that represents a word in comparisons, and its entry + 1 and size; zeros if empty
    starts   (room + 1,) beginnings of the bytes of entries
    text     bytes of all entries
    state    (2,) number of entries, and 1 after a word found no room, else 0
"""

# Unsigned, because numba makes a float of a signed and an unsigned number.
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
# Entries of a new table.
_SMALLEST = 1 << 12
# The lower case of bytes that words consist of; 0 for other bytes.
_LETTERS = [chr(k) for k in range(128) if chr(k).isalnum()]
_CODES = [ord(letter) for letter in _LETTERS]
_LOWER = np.zeros(256, np.uint8)
_LOWER[_CODES] = [ord(letter.lower()) for letter in _LETTERS]
# Words of a text that are looked up one after the other. Their slots are fetched while the text is read: in a table of
# many words each comes from another place of the memory.
_AT_ONCE = 16
# The bytes of texts by which a table grows at a time, at most.
_GROWTH = 1 << 16
# More than words of texts have on average; the table grows if they are longer.
_BYTES_A_WORD = 12


def word_bytes(word: str) -> bytes:
    """Return a word as lexicons and Redis hold it."""
    # Half a surrogate pair, which JSON allows in a text, is not UTF-8; it must come back as it came.
    return word.encode("utf-8", "surrogatepass")


def word_text(stored: bytes) -> str:
    """Undo `word_bytes`."""
    return stored.decode("utf-8", "surrogatepass")


class Lexicon:
    """Words by number and numbers by word. A thread may read known entries while another adds some under `lock`.

    secret: text that writers of documents do not know, so that they cannot choose words that all meet in one slot.
    """

    def __init__(self, secret: str) -> None:
        hashed = hashlib.sha256(secret.encode())
        digest = np.frombuffer(hashed.digest(), np.uint64)
        self.lock = Lock()
        # Odd and so never 0: a factor of 0 would send all words to one slot.
        self._secret = digest[:2] | np.uint64(1)
        self._state = np.zeros(2, np.int64)
        self._starts = np.zeros(_SMALLEST + 1, np.int64)
        self._text = np.empty(_SMALLEST * _BYTES_A_WORD, np.uint8)
        self._slots = np.zeros((2 * _SMALLEST, 2), np.uint64)
        # Where each entry occurred last, among all that were counted: a new table of marks for each call takes longer.
        self._marks = np.full(_SMALLEST, -1, np.int64)
        self._counted = 0

    def __len__(self) -> int:
        return int(self._state[0])

    @property
    def table(self) -> Table:
        """The arrays that `find` works on; `grow` replaces them."""
        return self._secret, self._slots, self._starts, self._text, self._state

    def grow(self, size: int) -> None:
        """Make room for more words, and for twice the entries. The caller holds `lock`.

        size: bytes of the words in all.
        """
        entries = len(self)
        used = int(self._starts[entries])
        # A word counted from a text has two bytes or more.
        needed = entries + size // 2 + 1
        room = max(2 * entries, _SMALLEST, needed)
        capacity = 2 * (used + size) + room
        text = np.empty(capacity, np.uint8)
        text[:used] = self._text[:used]
        starts = np.zeros(room + 1, np.int64)
        starts[: entries + 1] = self._starts[: entries + 1]
        # A power of two, so that a mask finds the slot, and twice the entries at least, so that searches stay short.
        slot_bits = (2 * room - 1).bit_length()
        slots = np.zeros((1 << slot_bits, 2), np.uint64)
        _place(slots, starts, text, entries, self._secret)
        marks = np.full(room, -1, np.int64)
        marks[: len(self._marks)] = self._marks
        self._marks = marks
        self._text = text
        self._starts = starts
        self._slots = slots
        self._state[1] = 0

    def number(self, words: Sequence[bytes]) -> Int32:
        """Return the entry of each word, new ones for words not seen before."""
        # A bytearray, because numba treats arrays over bytes as another, read-only type.
        joined = bytearray().join(words)
        data = np.frombuffer(joined, np.uint8)
        sizes = map(len, words)
        ends = np.fromiter(accumulate(sizes), np.int64, len(words))
        entries = np.empty(len(words), np.int32)
        with self.lock:
            done = int(_number(data, ends, 0, entries, self.table))
            while done < len(words):
                size = len(words[done])
                self.grow(size)
                done = int(_number(data, ends, done, entries, self.table))
        return entries

    def documents(self, texts: Sequence[AnyText]) -> DocumentBatch:
        """Return texts as documents; the words of a passage are entries, in any order.

        Passages are those of `text.passages`, which also says for what it raises ValueError.
        """
        # One byte beyond ASCII makes the loop leave a text, or a list of words, to `passages`.
        plain = [text.encode() if isinstance(text, str) and text.isascii() else b"\x80" for text in texts]
        # Another thread may give entries to words meanwhile: records are also decoded ahead of their commit.
        with self.lock:
            lengths, stops, entries, counts = self._count(plain)
        # A text without a token has no passage.
        rows = np.flatnonzero(lengths > 0)
        batch = DocumentBatch.whole(
            indptr=np.concatenate([[0], stops[rows]]),
            words=entries,
            counts=counts,
            lengths=lengths[rows],
            owners=rows.astype(np.int32),
            documents=len(texts),
        )
        left = np.flatnonzero(lengths < 0)
        if not len(left):
            return batch
        others = self.numbered([passages(texts[k]) for k in left.tolist()])
        order = np.arange(len(texts))
        order[left] = len(texts) + np.arange(len(left))
        return DocumentBatch.stacked([batch, others]).take(order)

    def numbered(self, documents: Sequence[Sequence[tuple[int, Mapping[str, int]]]]) -> DocumentBatch:
        """Return documents whose words are entries, in the order of their words.

        documents: the passages of each, as (tokens, counts of words).
        """
        rows = list(chain.from_iterable(documents))
        held = [words for _, words in rows]
        # All at once, because a call into compiled code costs more than a word.
        entries = self.number(list(map(word_bytes, chain.from_iterable(held))))
        counts = chain.from_iterable(words.values() for words in held)
        numbers = np.arange(len(documents), dtype=np.int32)
        return DocumentBatch.whole(
            indptr=row_ends(np.array([len(words) for words in held], np.int64)),
            words=entries,
            counts=np.fromiter(counts, np.int32, len(entries)),
            lengths=np.array([length for length, _ in rows], np.int64),
            owners=np.repeat(numbers, [len(document) for document in documents]),
            documents=len(documents),
        )

    def _count(self, texts: Sequence[bytes]) -> tuple[Int64, Int64, Int32, Int32]:
        """Count the words of ASCII texts of one passage, as `text.passages` does. The caller holds `lock`.

        Returns the tokens L of each text, -1 for a text that is left out; where its words end among the entries, which
        are in the order in which they first occur; the entries; and the count of each.
        """
        joined = bytearray().join(texts)
        data = np.frombuffer(joined, np.uint8)
        ends = np.fromiter(accumulate(map(len, texts)), np.int64, len(texts))
        lengths = np.zeros(len(texts), np.int64)
        stops = np.zeros(len(texts), np.int64)
        # A word takes at least two bytes of a text: its letter and a space.
        most = len(data) // 2 + len(texts)
        entries = np.empty(most, np.int32)
        counts = np.empty(most, np.int32)
        keys = np.empty((_AT_ONCE, 2), np.uint64)
        spans = np.empty((_AT_ONCE, 2), np.int64)
        done = 0
        while True:
            words = self.table, self._marks, self._counted
            counted = count_texts(data, ends, done, *words, lengths, stops, entries, counts, keys, spans)
            done = int(counted)
            if done == len(texts):
                break
            # By so many bytes at most: a large text may hold few different words.
            self.grow(min(len(texts[done]), _GROWTH))
        used = int(stops[-1]) if texts else 0
        self._counted += used
        # Copies: a slice would keep the whole of both arrays in memory as long as one of its documents.
        return lengths, stops, entries[:used].copy(), counts[:used].copy()

    def words_of(self, entries: Int32) -> list[bytes]:
        """Return the words of some entries, in their order."""
        text = self._text.data
        spans = zip(self._starts[entries].tolist(), self._starts[entries + 1].tolist(), strict=True)
        return [text[start:stop].tobytes() for start, stop in spans]

    def words(self, first: int = 0) -> list[bytes]:
        """Return the words of all entries from `first` on."""
        return self.words_of(np.arange(first, len(self), dtype=np.int32))

    def copy(self) -> "Lexicon":
        """Return a table with the same entries, which may add other words from here on."""
        other = Lexicon.__new__(Lexicon)
        own = vars(self).items()
        arrays = {name: value.copy() for name, value in own if isinstance(value, np.ndarray)}
        vars(other).update(arrays, lock=Lock(), _counted=self._counted)
        return other


@inner
def _fold(a: np.uint64, b: np.uint64) -> np.uint64:
    """Return the upper half of the 128-bit product of a and b, xor the lower."""
    # By halves, since numpy has integers of 64 bits at most.
    a_low = a & _LOW
    a_high = a >> _HALF
    b_low = b & _LOW
    b_high = b >> _HALF
    low = a_low * b_low
    first = a_high * b_low
    second = a_low * b_high
    middle = (low >> _HALF) + (first & _LOW) + (second & _LOW)
    carried = (first >> _HALF) + (second >> _HALF) + (middle >> _HALF)
    upper = a_high * b_high + carried
    return upper ^ (a * b)


@inner
def _block(data: Bytes, start: Whole, stop: Whole) -> np.uint64:
    """Return up to eight bytes as a number."""
    block = np.uint64(0)
    for k in range(start, stop):
        block = (block << np.uint64(8)) | np.uint64(data[k])
    return block


@inner
def _key(data: Bytes, start: Whole, stop: Whole, secret: UInt64) -> tuple[np.uint64, np.uint64]:
    """Return the number that represents a word in comparisons, and its hash."""
    size = np.uint64(stop - start)
    # A word of up to eight bytes is its own number, so that an equal number and size need no look at its bytes.
    if stop - start <= 8:
        block = _block(data, start, stop)
        return block, _fold(block ^ secret[0], secret[1] ^ size)
    mixed = secret[0] ^ size
    for first in range(start, stop, 8):
        block = _block(data, first, min(first + 8, stop))
        mixed = _fold(mixed ^ secret[1], block ^ secret[0])
    return mixed, _fold(mixed, secret[1])


@inner
def find(data: Bytes, start: Whole, stop: Whole, key: np.uint64, mixed: np.uint64, table: Table) -> Whole:
    """Return the entry of the word in data[start:stop]; a new word gets one.

    key, mixed: as `_key` returns them.
    If the table has no room for a new word, the entry is -1, and the second number of the table's state becomes 1.
    """
    _, slots, starts, text, state = table
    size = stop - start
    mask = len(slots) - 1
    slot = np.int64(mixed >> np.uint64(20)) & mask
    # Tables are at most half full, so a search ends soon.
    while slots[slot, 1] != 0:
        held = slots[slot, 1]
        if slots[slot, 0] == key and np.int64(held & _LOW) == size:
            entry: Whole = np.int64(held >> _HALF) - 1
            same = True
            if size > 8:
                begin = starts[entry]
                for k in range(size):
                    same &= text[begin + k] == data[start + k]
            if same:
                return entry
        slot = (slot + 1) & mask
    entry = state[0]
    at = starts[entry]
    if entry == len(starts) - 1 or at + size > len(text):
        state[1] = 1
        return -1
    for k in range(size):
        text[at + k] = data[start + k]
    starts[entry + 1] = at + size
    slots[slot, 0] = key
    number = np.uint64(entry + 1)
    slots[slot, 1] = (number << _HALF) | np.uint64(size)
    state[0] = entry + 1
    return entry


@kernel
def _place(slots: UInt64, starts: Int64, text: Bytes, entries: int, secret: UInt64) -> None:
    """Put all entries into empty slots."""
    mask = len(slots) - 1
    for entry in range(entries):
        begin = starts[entry]
        end = starts[entry + 1]
        size = end - begin
        key, mixed = _key(text, begin, end, secret)
        slot = np.int64(mixed >> np.uint64(20)) & mask
        while slots[slot, 1] != 0:
            slot = (slot + 1) & mask
        slots[slot, 0] = key
        number = np.uint64(entry + 1)
        slots[slot, 1] = (number << _HALF) | np.uint64(size)


@kernel
def _number(data: Bytes, ends: Int64, first: Whole, entries: Int32, table: Table) -> Whole:
    """Fill entries from `first` on; return the number of filled ones, fewer than asked for if the table is full."""
    start = ends[first - 1] if first else 0
    for k in range(first, len(ends)):
        key, mixed = _key(data, start, ends[k], table[0])
        entry = find(data, start, ends[k], key, mixed, table)
        if entry < 0:
            return k
        entries[k] = entry
        start = ends[k]
    return len(ends)


@inner
def _leave(marks: Int64, entries: Int32, begin: Whole, used: Whole) -> tuple[Whole, Whole]:
    """Forget the words that were taken since `begin`, and return the answer of `_ascii_tokens` for a text left out."""
    for k in range(begin, used):
        marks[entries[k]] = -1
    return -1, begin


@inner
def _ascii_tokens(
    data: Bytes, at: Whole, stop: Whole, table: Table, marks: Int64, before: Whole, entries: Int32, counts: Int32,
    used: Whole, keys: UInt64, spans: Int64,
) -> tuple[Whole, Whole]:  # fmt: skip
    """Count the words of ASCII text as `text.passages` does; the text becomes lower case in place.

    data, at, stop: the text is data[at:stop].
    table: of words; it gets new ones.
    marks: (room,), position of each entry in `entries`, and `before` more; a lower position is of an earlier text.
    before: number of words that were counted by earlier calls.
    entries, counts: words in the order in which they first occur, written from `used` on.
    keys, spans: memory for the words that are read at once.
    Returns L and the end of the text's words in `entries`. L is -1 for a text that is left out: it is not ASCII, it has
    too many tokens or words for one passage, or the table has no room.
    """
    begin = used
    length = np.int64(0)
    high = np.uint8(0)
    for k in range(at, stop):
        high |= data[k]
    if high > 0x7F:
        return -1, begin
    while at < stop:
        words, tokens, at = _read_words(data, at, stop, table, keys, spans)
        length += tokens
        for k in range(words):
            entry = find(data, spans[k, 0], spans[k, 1], keys[k, 0], keys[k, 1], table)
            if entry < 0:
                return _leave(marks, entries, begin, used)
            if marks[entry] >= before + begin:
                counts[marks[entry] - before] += 1
            else:
                if used - begin == MAX_WORDS:
                    return _leave(marks, entries, begin, used)
                marks[entry] = before + used
                entries[used], counts[used] = entry, 1
                used += 1
        if length > MAX_PASSAGE:
            return _leave(marks, entries, begin, used)
    return length, used


@once
def _read_words(
    data: Bytes, at: Whole, stop: Whole, table: Table, keys: UInt64, spans: Int64
) -> tuple[Whole, Whole, Whole]:
    """Read text from `at` on, until it ends or `keys` is full. Return the number of words and of tokens, and the rest.

    keys: filled with what `_key` returns for each word; spans: with where it begins and ends.
    """
    secret = table[0]
    slots = table[1]
    mask = len(slots) - 1
    words = np.int64(0)
    tokens = np.int64(0)
    while at < stop and words < len(keys):
        letter = _LOWER[data[at]]
        if letter == 0:
            at += 1
            continue
        word = at
        block = np.uint64(0)
        while letter and at < stop:
            data[at] = letter
            block = (block << np.uint64(8)) | np.uint64(letter)
            at += 1
            letter = _LOWER[data[at]] if at < stop else np.uint8(0)
        size = at - word
        if size < 2:
            continue
        # A word that is too long is a token of the passage, but is not counted.
        tokens += 1
        if size > MAX_WORD:
            continue
        key = block
        mixed = _fold(block ^ secret[0], secret[1] ^ np.uint64(size))
        if size > 8:
            key, mixed = _key(data, word, at, secret)
        fetch_early(slots, 2 * (np.int64(mixed >> np.uint64(20)) & mask))
        keys[words, 0], keys[words, 1] = key, mixed
        spans[words, 0], spans[words, 1] = word, at
        words += 1
    return words, tokens, at


@kernel
def count_texts(
    data: Bytes, ends: Int64, first: Whole, table: Table, marks: Int64, before: Whole,
    lengths: Int64, stops: Int64, entries: Int32, counts: Int32, keys: UInt64, spans: Int64,
) -> Whole:  # fmt: skip
    """Count texts, from `first` on until the table has no room; return the position of the text to go on with.

    data, ends: the texts one after the other, and their ends.
    lengths, stops: L of each text, -1 for a text left out, and the end of its words in `entries`.
    table, marks, before, entries, counts, keys, spans: as in `_ascii_tokens`.
    """
    used = stops[first - 1] if first else np.int64(0)
    start = ends[first - 1] if first else np.int64(0)
    for k in range(first, len(ends)):
        length, used = _ascii_tokens(data, start, ends[k], table, marks, before, entries, counts, used, keys, spans)
        # The caller makes the table grow and comes back: this text then counts from its beginning.
        if table[4][1]:
            return k
        lengths[k], stops[k] = length, used
        start = ends[k]
    return len(ends)
