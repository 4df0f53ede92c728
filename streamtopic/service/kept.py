"""Tell the kept facts of a base model apart by their readers: a dashboard may read its head, but not its bytes."""

import io
from collections.abc import Mapping
from typing import Any

import msgpack
import numpy as np

from streamtopic.state import StoredBase

__all__ = ["TRIED", "kept_fields", "rounded", "shown_calibration"]

TRIED = (
    "limit",
    "random_limit",
    "aimed_limit",
    "updates",
    "complete",
    "sampled",
    "whole",
    "utility",
    "probability",
    "random",
    "aimed",
)


def shown_calibration(found: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the facts of a capacity that a report shows, with three digits.

    found: all facts of the capacity, None where there are none.
    """
    known = found or {}
    # Counts of words and shares before noise are left out: with them, two base models could be subtracted.
    shown: dict[str, Any] = {name: known[name] for name in ("rule", "limit") if name in known}
    if "formula" in known:
        shown["formula"] = rounded(known["formula"])
    if tried := known.get("tried"):
        shown["tried"] = rounded({name: tried[name] for name in TRIED if name in tried})
    return shown


def kept_fields(stored: StoredBase) -> Mapping[str, Any]:
    """Return the facts in a base model's bytes: its calibration and, in theorem mode, the figures of its noise.

    Where the bytes are gone, return the facts of its head.
    """
    if stored.blob:
        with np.load(io.BytesIO(stored.blob)) as arrays:
            if "kept" in arrays:
                found: dict[str, Any] = msgpack.unpackb(arrays["kept"].tobytes())
                return found
    # An earlier program kept all of them in the head.
    return stored.fields


def rounded(value: object) -> Any:  # noqa: ANN401 -- whatever was given
    """Return the numbers of a value with three digits each."""
    # Three are enough to judge a capacity, and more would show more of the model before noise.
    if isinstance(value, Mapping):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.3g}")
    return value
