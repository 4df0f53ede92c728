"""Random numbers from a secret: the same key, version and digest give the same numbers, any other independent ones."""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from streamtopic.errors import UsageError
from streamtopic.privacy.digits import box_muller

__all__ = ["Draws", "NoiseKey", "NoiseSeed", "draw_normals", "exact_normal", "standard_normals"]

Float64 = npt.NDArray[np.float64]

KEY_BYTES = 32
_UNIT = 2.0**-53
_LIBRARY = 32
_MORE_BYTES = 24


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


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """values: (count,) draws in float64; errors: (count,) how far each may lie from the real number that it is of."""

    values: Float64
    errors: Float64


def standard_normals(seed: NoiseSeed, count: int) -> Float64:
    """`count` independent N(0, 1) draws, (count,) float64: the values of `draw_normals`."""
    return draw_normals(seed, count).values


def draw_normals(seed: NoiseSeed, count: int) -> Draws:
    """`count` independent N(0, 1) draws from ChaCha20 under `seed` by Box and Muller's method, with error bounds.

    A draw is a real number: 64 bits of its uniforms are taken from the stream, the digits that follow are those of
    `exact_normal`. The bound counts 4 units in the last place for each of log, cos and sin (tests measure less than 1),
    the conversion of 64 bits to 53, which weighs as 1/r where the radius r is small, and the digits left out.
    """
    pairs = -(-count // 2)
    bits = np.frombuffer(_stream(seed, pairs), "<u8")
    upper = bits[:pairs].astype(np.float64)
    radius = np.sqrt(-2 * np.log((upper + 0.5) * 2.0**-64))
    angle = bits[pairs:].view("<i8").astype(np.float64) * (np.pi * 2.0**-63)
    draws, errors = np.empty(2 * pairs), np.empty(2 * pairs)
    np.multiply(radius, np.cos(angle), out=draws[:pairs])
    np.multiply(radius, np.sin(angle), out=draws[pairs:])
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = _LIBRARY * _UNIT * radius + (_LIBRARY * _UNIT + 1 / upper) / radius
    errors[:pairs] = errors[pairs:] = bound
    return Draws(draws[:count], errors[:count])


def exact_normal(seed: NoiseSeed, count: int, k: int) -> Decimal:
    """Draw k of `count` to 70 digits, from 256 bits of each of its uniforms: the 64 of the stream and 192 more."""
    pairs = -(-count // 2)
    pair = k % pairs
    bits = np.frombuffer(_stream(seed, pairs), "<u8")
    message = b"streamtopic digits 1" + pair.to_bytes(8, "big")
    more = hmac.new(seed.secret, message, hashlib.sha512).digest()
    width = 8 * _MORE_BYTES
    uniform = (int(bits[pair]) << width) + int.from_bytes(more[:_MORE_BYTES], "big")
    turn = (int(bits[pairs + pair].view("<i8")) << width) + int.from_bytes(more[_MORE_BYTES : 2 * _MORE_BYTES], "big")
    return box_muller(uniform, turn, 64 + width)[k // pairs]


def _stream(seed: NoiseSeed, pairs: int) -> bytes:
    cipher = Cipher(algorithms.ChaCha20(seed.secret, bytes(16)), mode=None).encryptor()
    return bytes(cipher.update(bytes(16 * pairs)))
