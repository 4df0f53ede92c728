r"""The file of a backup: one line that says what it is, then frames that only the passphrase opens.

    streamtopic backup 1\n
    salt, 16 bytes
    frames: length (4 bytes, big-endian), then AES-256-GCM of at most 4 MiB

The key is scrypt of passphrase and salt. A frame's nonce is its number, and the last frame is authenticated as the last
one. So a frame that was changed, moved, taken out or cut off is refused. The frames hold a stream of msgpack values.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import msgpack
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from streamtopic.errors import StateCorrupt, StateMismatch
from streamtopic.formats import BACKUP, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

__all__ = ["ArchiveWriter", "read_archive"]

_WORDS = b"streamtopic backup "
_VERSION = BACKUP.written
_SALT = 16
_FRAME = 4 << 20
_TAG = 16
# Redis takes strings of 512 MB at most, and a value may be a whole hash of documents.
_LARGEST = 1 << 31


class ArchiveWriter:
    """Writes values into a new archive. Without `finish` it is not complete, and nobody reads it."""

    def __init__(self, file: IO[bytes], passphrase: bytes) -> None:
        salt = secrets.token_bytes(_SALT)
        self._file = file
        self._cipher = _cipher(passphrase, salt)
        self._waiting = bytearray()
        self._frames = 0
        file.write(_WORDS + b"%d\n" % _VERSION + salt)

    def write(self, value: Any) -> None:  # noqa: ANN401 - whatever msgpack can write
        """Append one value."""
        self._waiting += msgpack.packb(value)
        while len(self._waiting) > _FRAME:
            self._seal(bytes(self._waiting[:_FRAME]), last=False)
            del self._waiting[:_FRAME]

    def finish(self) -> None:
        """Write the rest, as the last frame."""
        self._seal(bytes(self._waiting), last=True)

    def _seal(self, data: bytes, *, last: bool) -> None:
        sealed = self._cipher.encrypt(_nonce(self._frames), data, _place(last=last))
        self._file.write(len(sealed).to_bytes(4, "big") + sealed)
        self._frames += 1


def read_archive(file: IO[bytes], passphrase: bytes) -> Iterator[Any]:
    """Yield the values of an archive. Only after the last one it is known that the archive is whole.

    Raises StateMismatch for another kind of file or a newer form, StateCorrupt for a wrong passphrase or any change.
    """
    values = msgpack.Unpacker(max_buffer_size=_LARGEST, strict_map_key=False)
    for data in _frames(file, passphrase):
        values.feed(data)
        yield from values


def _frames(file: IO[bytes], passphrase: bytes) -> Iterator[bytes]:
    """Yield the content of each frame."""
    cipher = _cipher(passphrase, _begin(file))
    length = _length(file)
    number = 0
    while length is not None:
        sealed = file.read(length)
        following = _length(file)
        try:
            yield cipher.decrypt(_nonce(number), sealed, _place(last=following is None))
        except InvalidTag:
            about = "the passphrase is wrong, or the file was changed" if number == 0 else "the file was changed or cut"
            raise StateCorrupt(f"frame {number} of the backup cannot be opened: {about}; use another copy") from None
        length = following
        number += 1
    if number == 0:
        raise StateCorrupt("the backup ends before its first frame: use another copy")


def _begin(file: IO[bytes]) -> bytes:
    """Return the salt behind the first line."""
    line = file.readline(len(_WORDS) + 20)
    words, version = line[: len(_WORDS)], line[len(_WORDS) :].strip()
    if words != _WORDS or not version.isdigit():
        raise StateMismatch("this file is not a backup: give one that `streamtopic backup` wrote")
    if int(version) != _VERSION:
        raise StateMismatch(refusal(BACKUP, int(version)))
    return file.read(_SALT)


def _length(file: IO[bytes]) -> int | None:
    """Return the length of the next frame, None at the end of the file."""
    found = file.read(4)
    length = int.from_bytes(found, "big")
    if not found:
        return None
    if len(found) < 4 or not _TAG <= length <= _FRAME + _TAG:
        raise StateCorrupt("the backup is damaged or was cut off: use another copy")
    return length


def _cipher(passphrase: bytes, salt: bytes) -> AESGCM:
    return AESGCM(Scrypt(salt=salt.ljust(_SALT, b"\0"), length=32, n=1 << 16, r=8, p=1).derive(passphrase))


def _nonce(number: int) -> bytes:
    # Each archive has a salt and so a key of its own: a number is never used twice under one key.
    return number.to_bytes(12, "big")


def _place(*, last: bool) -> bytes:
    return _WORDS + b"%d last" % _VERSION if last else _WORDS + b"%d" % _VERSION
