"""Random numbers from a secret: the same key, version and digest give the same numbers.

Another key, version or digest gives numbers that are independent of these.

    NoiseKey              the secret of a service
    VersionNoise          the part of it that one version draws from
    NoiseSeed             the seed of one matrix
    draw_normals          draws as floats, each with a bound on its error
    exact_normal          one of these draws to 70 digits, for a rounding that floats cannot decide
    nearest_step          the rounding of a number with such a draw
"""

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from streamtopic.errors import UsageError

__all__ = [
    "NoiseKey",
    "NoiseSeed",
    "VersionNoise",
    "box_muller",
    "draw_normals",
    "exact_normal",
    "nearest_step",
]

Float64 = npt.NDArray[np.float64]

_KEY_BYTES = 32
_UNIT = 2.0**-53
# Units in the last place by which log, cos, sin and the products may be off together: see `draw_normals`.
_LIBRARY = 32
# Digits beyond the 64 bits of the stream, for the few roundings that these cannot decide.
_MORE_BYTES = 24

# Far more digits than a rounding needs, so that errors of the decimal arithmetic itself do not matter.
_CONTEXT = Context(prec=100)
_GUARD = 10
_PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798214808651"
)


@dataclass(frozen=True, slots=True, repr=False)
class NoiseKey:
    """The secret that all noise of a service comes from: made once, kept as long as its releases matter.

    secret: 32 bytes or more. Raises UsageError for fewer.
    """

    secret: bytes

    def __post_init__(self) -> None:
        if len(self.secret) < _KEY_BYTES:
            raise UsageError(f"a noise key must have at least {_KEY_BYTES} bytes: make one with `streamtopic keys new`")

    def of(self, model: str, version: int) -> "VersionNoise":
        """The noise of a version. model, version: its name and number."""
        return VersionNoise(self, model, version)


@dataclass(frozen=True, slots=True)
class VersionNoise:
    """All noise of one version.

    key: of the service.
    model, version: name and number of the version.
    """

    key: NoiseKey
    model: str
    version: int

    @property
    def counts_key(self) -> bytes:
        """The key of digests of counts, 32 bytes, the same for all versions. Its holder cannot draw noise with it."""
        return _keyed(self.key.secret, "streamtopic counts key 1")

    def seed(self, digest: str, purpose: str = "A") -> "NoiseSeed":
        """The seed of one matrix of this version.

        digest: of the retained counts and settings, in hex.
        purpose: the matrix, "A" or "R" or the name of a head.
        """
        material = self.model, str(self.version), digest, purpose
        return NoiseSeed(_keyed(self.key.secret, "streamtopic noise 1", *material))

    def commitment(self, digest: str) -> str:
        """Return the version's public statement on its counts, in hex. Only holders of the key can make or test it.

        digest: as of `seed`.
        """
        # Another key than `counts_key`, whose holder could else make statements and test them.
        key = _keyed(self.key.secret, "streamtopic commitment key 1")
        return _keyed(key, "streamtopic commitment 1", self.model, str(self.version), digest).hex()


@dataclass(frozen=True, slots=True, repr=False)
class NoiseSeed:
    """Seed of one draw (32 bytes). Each holder can take the noise off."""

    secret: bytes


def draw_normals(seed: NoiseSeed, count: int) -> tuple[Float64, Float64]:
    """Independent N(0, 1) draws from ChaCha20 under `seed` by Box and Muller's method, with error bounds.

    Return (count,) draws, and (count,) a bound on the distance of each from the real number that it represents.

    A draw is a real number. The stream gives 64 bits of each of its uniforms; `exact_normal` gives the digits that
    follow. The error bound is for log, cos and sin, for the conversion of 64 bits to 53, and for the digits left out.
    """
    pairs = -(-count // 2)
    bits = np.frombuffer(_stream(seed, pairs), "<u8")
    upper = bits[:pairs].astype(np.float64)
    # At the middle of its step, so that a uniform of 0 has a logarithm.
    uniforms = (upper + 0.5) * 2.0**-64
    radius = np.sqrt(-2 * np.log(uniforms))
    turns = bits[pairs:].view("<i8").astype(np.float64)
    angle = turns * (np.pi * 2.0**-63)
    draws = np.empty(2 * pairs)
    errors = np.empty(2 * pairs)
    np.multiply(radius, np.cos(angle), out=draws[:pairs])
    np.multiply(radius, np.sin(angle), out=draws[pairs:])
    # 4 units in the last place for each of log, cos and sin, of which tests measure less than 1. The conversion of 64
    # bits to 53 weighs as 1/r, since the logarithm is steep where the radius r is small.
    library = _LIBRARY * _UNIT
    # A uniform of 0 makes the bound infinite, and its draw is decided with all digits.
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = library * radius + (library + 1 / upper) / radius
    errors[:pairs] = bound
    errors[pairs:] = bound
    return draws[:count], errors[:count]


def exact_normal(seed: NoiseSeed, count: int, k: int) -> Decimal:
    """Draw k of `count` to 70 digits, from 256 bits of each of its uniforms: the 64 of the stream and 192 more.

    seed, count: those of `draw_normals`.
    k: position of the draw, from 0.
    """
    pairs = -(-count // 2)
    pair = k % pairs
    bits = np.frombuffer(_stream(seed, pairs), "<u8")
    message = b"streamtopic digits 1" + pair.to_bytes(8, "big")
    more = hmac.new(seed.secret, message, hashlib.sha512).digest()
    width = 8 * _MORE_BYTES
    below_uniform = int.from_bytes(more[:_MORE_BYTES], "big")
    below_turn = int.from_bytes(more[_MORE_BYTES : 2 * _MORE_BYTES], "big")
    uniform = (int(bits[pair]) << width) + below_uniform
    # Signed, as `draw_normals` reads it.
    signed = int(bits[pairs + pair].view("<i8"))
    turn = (signed << width) + below_turn
    cosine, sine = box_muller(uniform, turn, 64 + width)
    return sine if k // pairs else cosine


def _keyed(key: bytes, *parts: str) -> bytes:
    """Return the HMAC-SHA-256 of parts, 32 bytes."""
    message = bytearray()
    for part in parts:
        data = part.encode()
        # With its length in front, so that two different lists of parts never make one message.
        message += len(data).to_bytes(8, "big")
        message += data
    return hmac.new(key, message, hashlib.sha256).digest()


def _stream(seed: NoiseSeed, pairs: int) -> bytes:
    """Return 16 bytes a pair of ChaCha20's key stream."""
    # A nonce of zeros is safe here: a seed is used for one stream only.
    cipher = Cipher(algorithms.ChaCha20(seed.secret, bytes(16)), mode=None).encryptor()
    return bytes(cipher.update(bytes(16 * pairs)))


def box_muller(uniform: int, turn: int, width: int) -> tuple[Decimal, Decimal]:
    """Return r cos(t) and r sin(t), r = sqrt(-2 ln u), from integers taken at their middles (Box and Muller 1958).

    uniform: from 0; u = (uniform + 1/2) 2^-width.
    turn: signed; t = pi (turn + 1/2) 2^(1 - width).
    width: bits of each.
    """
    with localcontext(_CONTEXT):
        scale = Decimal(2) ** (width + 1)
        u = Decimal(2 * uniform + 1) / scale
        radius = (-2 * u.ln()).sqrt()
        half_turns = 2 * Decimal(2 * turn + 1) / scale
        angle = _PI * half_turns
        return radius * _series(angle, 0), radius * _series(angle, 1)


def nearest_step(value: float, draws: Iterable[tuple[float, Decimal]], sigma: float, grid: float) -> int:
    """Return the multiple of `grid` nearest to value + sigma times the sum of weighted draws, as a count of steps.

    draws: weight and draw of each.
    """
    with localcontext(_CONTEXT):
        draw = sum((Decimal(weight) * one for weight, one in draws), Decimal(0))
        steps = (Decimal(value) + Decimal(sigma) * draw) / Decimal(grid)
        return int(steps.quantize(Decimal(1)))


def _series(angle: Decimal, first: int) -> Decimal:
    """Return cos (first 0) or sin (first 1) by Taylor's series."""
    # Terms grow up to |angle| <= pi and then fall, so cancellation costs one digit at most.
    least = Decimal(1).scaleb(-(_CONTEXT.prec + _GUARD))
    term: Decimal = angle if first else Decimal(1)
    total = term
    k = first
    while abs(term) > least:
        term = -term * angle * angle / ((k + 1) * (k + 2))
        total += term
        k += 2
    return total
