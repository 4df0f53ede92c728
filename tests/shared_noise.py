"""Instances with one noise key: what one of them draws, the other draws too."""

import hashlib


def with_noise(folder, name="shared"):
    """Give an instance that is still to be made the noise key of this name; return its folder."""
    keys = folder / "keys"
    keys.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Of the name alone, so that chance decides nothing.
    (keys / "noise.key").write_text(hashlib.sha256(name.encode()).hexdigest())
    (keys / "noise.key").chmod(0o600)
    return folder
