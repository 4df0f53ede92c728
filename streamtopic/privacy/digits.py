"""Box and Muller's method to 100 digits, for the few draws whose rounding a float cannot decide."""

from decimal import Context, Decimal, localcontext

__all__ = ["box_muller", "nearest_step"]

_CONTEXT = Context(prec=100)
_GUARD = 10


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
