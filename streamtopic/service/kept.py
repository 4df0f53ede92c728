"""Write and read a base model as Redis keeps it.

stored_base        its head, which a dashboard may read, and its bytes, which it may not
kept_fields        the facts in its bytes
shown_calibration  the facts of its capacity that the head may show
"""

import io
from collections.abc import Mapping
from typing import Any

import msgpack
import numpy as np

from streamtopic.service.schedule.modeller import NewBase
from streamtopic.service.schedule.situation import Base
from streamtopic.state import StoredBase

__all__ = ["kept_fields", "rounded", "shown_calibration", "stored_base"]

_TRIED = (
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


def stored_base(base: Base, new: NewBase, salt: bytes) -> StoredBase:
    """Return a base model as Redis keeps it. It is before noise, so subscribers never get it.

    A dashboard may read its fields, but not its bytes. The bytes hold all numbers that follow from the documents to the
    last digit, also shares of topics, documents of each anchor and constants (`kept_fields`).

    salt: secret bytes that are stored among the others.
    """
    # Every field of a mode is named here, and its value stands in the bytes only: updates must know which mode it was.
    fields: dict[str, Any] = {name: {} for name in new.fields}
    fields["documents"] = base.documents
    fields["anchors"] = list(base.anchors)
    fields["capacity"] = base.capacity
    fields["calibration"] = shown_calibration(base.calibration)
    kept = {"calibration": dict(base.calibration), **new.fields}
    arrays: dict[str, Any] = dict(new.arrays)
    arrays["words"] = np.array(new.fit.words)
    arrays["A"] = new.fit.A
    arrays["kept"] = np.frombuffer(msgpack.packb(kept), np.uint8)
    # A dashboard reads the checksum of these bytes. Without a salt, who can guess the documents could learn the model
    # and compare.
    arrays["salt"] = np.frombuffer(salt, np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return StoredBase(base.epoch, base.version, fields, buffer.getvalue())


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
        shown["tried"] = rounded({name: tried[name] for name in _TRIED if name in tried})
    return shown


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
