"""Folders that hold what documents said: nobody but their owner may look into them."""

import contextlib
import os
import stat
from pathlib import Path

__all__ = ["private_folder", "tighten"]

_OTHERS = 0o077


def private_folder(folder: Path) -> int:
    """Make a folder that only its owner enters, and take away what others may do in one that is there.

    How many files and folders in it were open to others.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return tighten(folder)


def tighten(folder: Path) -> int:
    """Take from everybody but the owner every right to a folder and what is in it; how many were open before.

    Links are left alone, and so is what belongs to somebody else or goes away meanwhile.
    """
    found = int(_close(folder))
    for parent, folders, files in os.walk(folder):
        # A secret key that was open is refused where it is used, not closed: somebody may have read it.
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
