"""Folders with texts of documents: only their owner may read them."""

import contextlib
import os
import stat
from pathlib import Path

__all__ = ["private_folder", "tighten"]

_OTHERS = 0o077


def private_folder(folder: Path) -> int:
    """Make a folder that only its owner can open. In one that exists, take the rights of others away.

    Returns the number of files and folders in it that were open to others.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return tighten(folder)


def tighten(folder: Path) -> int:
    """Take all rights of others to a folder and its content away; return how many files and folders were open.

    Links stay as they are, and so do files that belong to somebody else or vanish meanwhile.
    """
    found = int(_close(folder))
    for parent, folders, files in os.walk(folder):
        # A secret key stays as it is: an open one is refused where it is used, since somebody may have read it.
        closed = [name for name in files if not name.endswith((".pem", ".key"))]
        found += sum(_close(Path(parent) / name) for name in (*folders, *closed))
    return found


def _close(path: Path) -> bool:
    with contextlib.suppress(OSError):
        about = path.lstat()
        mode = stat.S_IMODE(about.st_mode)
        if mode & _OTHERS and (stat.S_ISDIR(about.st_mode) or stat.S_ISREG(about.st_mode)):
            path.chmod(mode & ~_OTHERS)
            return True
    return False
