"""One codec for the values in Redis: a dataclass is a msgpack map of its fields, whose types are checked on reading."""

from dataclasses import fields, is_dataclass
from typing import Any, Generic, TypeVar

import msgpack
from pydantic import TypeAdapter

from streamtopic.errors import StateCorrupt

__all__ = ["Codec"]

T = TypeVar("T")


class Codec(Generic[T]):
    """Packs and unpacks values of one class.

    kind: a dataclass; its fields may be dataclasses, mappings, sequences and enums of texts as well.
    told: the error text for bytes that are no such value, with the remedy.
    use_list: whether sequences of values of any type are lists; a key of a mapping may be a tuple only if not.
    """

    def __init__(self, kind: type[T], told: str, *, use_list: bool = True) -> None:
        self._types = TypeAdapter(kind)
        self._told = told
        self._use_list = use_list

    def pack(self, value: T) -> bytes:
        """Return the bytes that Redis keeps."""
        return bytes(msgpack.packb(value, default=_plain))

    def unpack(self, data: bytes) -> T:
        """Undo `pack`. Raises StateCorrupt."""
        try:
            found = msgpack.unpackb(data, use_list=self._use_list, strict_map_key=False)
            return self._types.validate_python(found)
        except (ValueError, TypeError, msgpack.UnpackException):
            # What pydantic says of it may quote what documents said.
            raise StateCorrupt(self._told) from None


def _plain(value: object) -> dict[Any, Any]:
    """Return what msgpack writes for a dataclass, or for a mapping of another class than dict."""
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    return dict(value)  # type: ignore[call-overload, no-any-return]
