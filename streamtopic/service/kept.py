"""What is kept of a base model, told apart by who may read it: its head anyone who sees the service, its bytes few."""

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
    """Return of how a capacity was found what a report shows, with three digits.

    Counts of words and shares before noise stay behind: with them, two of these could be subtracted.
    """
    known = found or {}
    tried = known.get("tried") or {}
    shown: dict[str, Any] = {name: known[name] for name in ("rule", "limit") if name in known}
    shown |= {name: rounded(known[name]) for name in ("formula",) if name in known}
    return shown | ({"tried": rounded({name: tried[name] for name in TRIED if name in tried})} if tried else {})


def kept_fields(stored: StoredBase) -> Mapping[str, Any]:
    """Return what is kept with a base model's bytes: calibration and, in theorem mode, what its noise rests on.

    A base of an earlier program has them in its head. Where the bytes are gone there is only what the head shows.
    """
    if stored.blob:
        with np.load(io.BytesIO(stored.blob)) as arrays:
            if "kept" in arrays:
                found: dict[str, Any] = msgpack.unpackb(arrays["kept"].tobytes())
                return found
    return stored.fields


def rounded(value: object) -> Any:  # noqa: ANN401 -- whatever was given
    """Return values with three digits each: enough to judge, and no more of the model before noise than that."""
    if isinstance(value, Mapping):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return float(f"{value:.3g}") if isinstance(value, float) else value
