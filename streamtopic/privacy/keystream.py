"""Random numbers from a secret: the same key, version and digest give the same numbers.

Any other key, version or digest gives numbers that are independent of these.

    NoiseKey, NoiseSeed   the secret of a service, and the seed of one matrix that is made of it
    draw_normals          draws as floats, each with a bound on its error
    exact_normal          one of these draws to 70 digits, for a rounding that floats cannot decide
    nearest_step          the rounding of a number with such a draw
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from streamtopic.errors import UsageError

__all__ = [
    "Draws",
    "NoiseKey",
    "NoiseSeed",
    "box_muller",
    "draw_normals",
    "exact_normal",
    "nearest_step",
    "standard_normals",
]

Float64 = npt.NDArray[np.float64]

KEY_BYTES = 32
_UNIT = 2.0**-53
# Units in the last place that libraries for log, cos and sin may be off together, with the products: see
# `draw_normals`.
_LIBRARY = 32
# Digits beyond the 64 bits of the stream, for the few roundings that these cannot decide.
_MORE_BYTES = 24

# Far more digits than any rounding needs, so that their own errors do not matter.
_CONTEXT = Context(prec=100)
_GUARD = 10


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
        return NoiseSeed(_keyed(self.secret, "streamtopic noise 1", model, str(version), digest, purpose))

    @property
    def counts_key(self) -> bytes:
        """The key that counts are digested under (32 bytes). Who holds it alone can draw no noise."""
        return _keyed(self.secret, "streamtopic counts key 1")

    def commitment(self, model: str, version: int, digest: str) -> str:
        """Return a version's public statement on its counts: a hex digest that only a holder of the key makes or tests.

        digest: as in `seed`. The key that it is made under is another than `counts_key`.
        """
        key = _keyed(self.secret, "streamtopic commitment key 1")
        return _keyed(key, "streamtopic commitment 1", model, str(version), digest).hex()


@dataclass(frozen=True, slots=True, repr=False)
class NoiseSeed:
    """Seed of one draw (32 bytes). Everyone who holds it can take the noise off."""

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
    # A uniform of 0 makes the bound infinite, and its draw is decided with all digits.
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


def _keyed(key: bytes, *parts: str) -> bytes:
    """HMAC-SHA-256 of parts, each with its length, so that no two lists of them are one message."""
    data = [part.encode() for part in parts]
    message = b"".join(len(part).to_bytes(8, "big") + part for part in data)
    return hmac.new(key, message, hashlib.sha256).digest()


def _stream(seed: NoiseSeed, pairs: int) -> bytes:
    cipher = Cipher(algorithms.ChaCha20(seed.secret, bytes(16)), mode=None).encryptor()
    return bytes(cipher.update(bytes(16 * pairs)))


def box_muller(uniform: int, turn: int, width: int) -> tuple[Decimal, Decimal]:
    """Return r cos(t) and r sin(t), r = sqrt(-2 ln u), from integers of `width` bits taken at their middles.

    u = (uniform + 1/2) 2^-width, uniform from 0; t = pi (turn + 1/2) 2^(1 - width), turn signed.
    """
    with localcontext(_CONTEXT):
        scale = Decimal(2) ** (width + 1)
        radius = (-2 * (Decimal(2 * uniform + 1) / scale).ln()).sqrt()
        angle = _pi() * (2 * Decimal(2 * turn + 1) / scale)
        return radius * _series(angle, 0), radius * _series(angle, 1)


def nearest_step(value: float, draw: Decimal, sigma: float, grid: float) -> int:
    """Return the multiple of `grid` nearest to value + sigma draw, as a count of steps."""
    with localcontext(_CONTEXT):
        steps = (Decimal(value) + Decimal(sigma) * draw) / Decimal(grid)
        return int(steps.quantize(Decimal(1)))


def _series(angle: Decimal, first: int) -> Decimal:
    """Return cos (first 0) or sin (first 1) by Taylor's series; |angle| <= pi, so it loses one digit at most."""
    least = Decimal(1).scaleb(-(_CONTEXT.prec + _GUARD))
    term: Decimal = angle if first else Decimal(1)
    total, k = term, first
    while abs(term) > least:
        term = -term * angle * angle / ((k + 1) * (k + 2))
        total += term
        k += 2
    return total


def _pi() -> Decimal:
    """Machin's formula, pi = 16 arctan(1/5) - 4 arctan(1/239), in integers."""
    unit: int = 10 ** (_CONTEXT.prec + _GUARD)
    return Decimal(16 * _arctan_of_inverse(5, unit) - 4 * _arctan_of_inverse(239, unit)) / unit


def _arctan_of_inverse(x: int, unit: int) -> int:
    term, total, k = unit // x, 0, 1
    while term:
        total += term // k if k % 4 == 1 else -(term // k)
        term //= x * x
        k += 2
    return total
