"""Files that only their owner may read, or that must survive a power failure: keys, proofs."""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO

__all__ = ["new_file", "open_to_others"]


def open_to_others(path: Path) -> bool:
    """Return whether others than its owner can read or write a file."""
    about = path.stat()
    # Kubernetes and systemd mount a secret that root owns, and let its reader in by the group: nobody else is in it.
    mounted = about.st_uid == 0 and os.geteuid() != 0
    return bool(about.st_mode & (0o037 if mounted else 0o077))


@contextlib.contextmanager
def new_file(path: Path, mode: int = 0o600) -> Iterator[IO[bytes]]:
    """Open a new file; it gets its name at the end of the block, once it is on the disk, and survives a power failure.

    Several programs may write a file of the same name at once. The first one that ends gives it the name.
    mode: rights of the file; by default only its owner can read it.

    Raises FileExistsError if the name is taken, at the begin or at the end, and OSError. The file of that name
    stays as it is then.
    """
    if path.exists():
        raise _taken(path)
    # Under a name that no other program uses.
    beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as output:
            yield output
            output.flush()
            os.fsync(output.fileno())
        _give_name(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    _names_to_disk(path.parent)


def _give_name(beside: Path, path: Path) -> None:
    try:
        # A link fails if the name exists, and a rename would replace the file of another program.
        path.hardlink_to(beside)
    except FileExistsError:
        raise _taken(path) from None
    except OSError:
        # A file system without links, such as FAT. Two programs that end at the same moment are not told apart here.
        if path.exists():
            raise _taken(path) from None
        beside.rename(path)


def _taken(path: Path) -> FileExistsError:
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))


def _names_to_disk(folder: Path) -> None:
    """Write the names in a folder to the disk: a file survives a power failure only if its name does."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot do it, and answer so.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
