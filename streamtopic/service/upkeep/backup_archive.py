"""The file of a backup: a plain tar archive whose last member, SHA256SUMS, has the digest of each other member.

`tar x` and `sha256sum -c SHA256SUMS` read it too. It is not encrypted, and digests show damage, not forgery.
"""

from __future__ import annotations

import tarfile
from hashlib import sha256
from io import BytesIO
from typing import TYPE_CHECKING

from streamtopic.errors import StateCorrupt

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

__all__ = ["ArchiveWriter", "read_archive"]

_SUMS = "SHA256SUMS"


class ArchiveWriter:
    """Writes members into a new archive. Without `finish` it is not complete, and `read_archive` refuses it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._tar = tarfile.open(fileobj=file, mode="w")  # noqa: SIM115 - `finish` closes it
        self._sums: list[str] = []

    def add(self, name: str, content: bytes) -> None:
        """Append one member."""
        member = tarfile.TarInfo(name)
        member.size = len(content)
        member.mode = 0o600
        self._tar.addfile(member, BytesIO(content))
        self._sums.append(f"{sha256(content).hexdigest()}  {name}\n")

    def finish(self) -> None:
        """Write the digests, as the last member."""
        self.add(_SUMS, "".join(self._sums).encode())
        self._tar.close()


def read_archive(file: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each member. Only after the last one it is known that the archive is whole.

    file: it can seek, and is read from its begin.

    Raises StateCorrupt if it is another kind of file, or was changed or cut.
    """
    sums = ""
    whole = False
    file.seek(0)
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            for member in archive:
                opened = archive.extractfile(member)
                content = opened.read() if opened else b""
                # A member after the digests is in none of them.
                whole = member.name == _SUMS and content == sums.encode()
                if not whole:
                    sums += f"{sha256(content).hexdigest()}  {member.name}\n"
                    yield member.name, content
    except tarfile.TarError:
        whole = False
    if not whole:
        raise StateCorrupt("this file is not a backup, or it was changed or cut: use another copy")
