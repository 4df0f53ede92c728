"""Keys: there, readable by their owner only, and belonging together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtopic.errors import SettingsError
from streamtopic.service.doctor.finding import Finding, fail, ok, warn
from streamtopic.signing import PublicKey, SigningKey, load_secret

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamtopic.service.parts import Parts

__all__ = ["examine_keys"]

_USERS = {"signing_key": "schedule and publish", "noise_key": "schedule", "receipt_key": "publish"}


def examine_keys(parts: Parts) -> Iterator[Finding]:
    """Look at the three secrets and at the public key that subscribers verify with."""
    signing: SigningKey | None = None
    for name, users in _USERS.items():
        path = _place(parts, name)
        if path is None:
            yield warn(name, "not set", f"fine here unless {users} runs on this machine; else name the file")
            continue
        try:
            loaded = SigningKey.load(path) if name == "signing_key" else load_secret(path)
        except SettingsError as error:
            detail, _, remedy = str(error).rpartition("; ") if "; " in str(error) else str(error).rpartition(": ")
            yield fail(name, detail, remedy)
            continue
        if isinstance(loaded, SigningKey):
            signing = loaded
        yield ok(name, f"{path}, readable by its owner only")
    yield from _public(parts, signing)


def _public(parts: Parts, signing: SigningKey | None) -> Iterator[Finding]:
    path = _place(parts, "public_key")
    if path is None:
        if signing is not None:
            yield ok("public_key", f"key {signing.public.key_id}, from the signing key")
        return
    public = PublicKey.load(path)
    if signing is not None and signing.public != public:
        yield fail(
            "public_key",
            f"{path} holds key {public.key_id}, but key {signing.public.key_id} signs",
            "give the signing.pub that was made with the signing key; subscribers refuse everything else",
        )
    else:
        yield ok("public_key", f"{path}, key {public.key_id}" + (", belongs to the signing key" if signing else ""))


def _place(parts: Parts, name: str) -> Path | None:
    named: Path | None = getattr(parts.settings, name)
    if named is not None or parts.layout is None:
        return named
    own: Path = getattr(parts.layout, name)
    return own
