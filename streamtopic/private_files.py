"""Files that only their owner may read: keys, passphrases, certificates' keys."""

import os
from pathlib import Path

__all__ = ["open_to_others", "write_whole"]


def open_to_others(path: Path) -> bool:
    """Return whether others than its owner can read or write a file."""
    about = path.stat()
    # Kubernetes and systemd mount a secret that root owns, and let its reader in by the group: nobody else is in it.
    mounted = about.st_uid == 0 and os.geteuid() != 0
    return bool(about.st_mode & (0o037 if mounted else 0o077))


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all. Raises OSError."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as output:
        output.write(content)
        output.flush()
        os.fsync(output.fileno())
    beside.replace(path)
