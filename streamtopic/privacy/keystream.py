"""Random numbers from a secret: the same key, version and digest give the same numbers, any other independent ones."""

import hashlib
import hmac
import secrets
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from streamtopic.errors import UsageError

__all__ = ["NoiseKey", "NoiseSeed", "standard_normals"]

Float64 = npt.NDArray[np.float64]

KEY_BYTES = 32


@dataclass(frozen=True, slots=True, repr=False)
class NoiseKey:
    """The secret that all noise of a service comes from: made once, kept as long as its releases matter."""

    secret: bytes

    def __post_init__(self) -> None:
        if len(self.secret) < KEY_BYTES:
            raise UsageError(f"a noise key has at least {KEY_BYTES} bytes: make one with `streamtopic keys new`")

    @classmethod
    def generate(cls) -> "NoiseKey":
        """A new key from the operating system's randomness."""
        return cls(secrets.token_bytes(KEY_BYTES))

    def seed(self, model: str, version: int, digest: str, purpose: str = "A") -> "NoiseSeed":
        """The seed of one matrix of one version; `digest` is that of the retained counts and settings."""
        parts = [b"streamtopic noise 1", model.encode(), str(version).encode(), digest.encode(), purpose.encode()]
        message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        return NoiseSeed(hmac.new(self.secret, message, hashlib.sha256).digest())


@dataclass(frozen=True, slots=True, repr=False)
class NoiseSeed:
    """Seed of one draw (32 bytes). Whoever holds it can take the noise off."""

    secret: bytes


def standard_normals(seed: NoiseSeed, count: int) -> Float64:
    """`count` independent N(0, 1) draws, (count,) float64, from ChaCha20 under `seed` by Box and Muller's method.

    64 bits a uniform: converting them rounds relative to their size, so the tail reaches 9.4 and the mean absolute
    error against exact arithmetic stays below 4 u, u = 2^-53 (tests measure about 1 u).
    """
    pairs = -(-count // 2)
    cipher = Cipher(algorithms.ChaCha20(seed.secret, bytes(16)), mode=None).encryptor()
    bits = np.frombuffer(cipher.update(bytes(16 * pairs)), "<u8")
    radius = np.sqrt(-2 * np.log((bits[:pairs].astype(np.float64) + 0.5) * 2.0**-64))
    angle = bits[pairs:].view("<i8").astype(np.float64) * (np.pi * 2.0**-63)
    draws = np.empty(2 * pairs)
    np.multiply(radius, np.cos(angle), out=draws[:pairs])
    np.multiply(radius, np.sin(angle), out=draws[pairs:])
    return draws[:count]
