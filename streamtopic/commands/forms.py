"""Ids that look the same: they are bytes and are never normalised, so é typed in two ways is two ids."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from streamtopic.console import warn
from streamtopic.streams.partitioner import partition_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamtopic.service.app import Service

__all__ = ["other_forms", "warn_of_other_forms"]


def other_forms(name: str) -> list[str]:
    """Return the normal forms NFC and NFD of a name, as far as they are other bytes."""
    forms = dict.fromkeys(unicodedata.normalize(form, name) for form in ("NFC", "NFD"))
    return [form for form in forms if form != name]


def warn_of_other_forms(service: Service, ids: Sequence[str]) -> None:
    """Warn of ids that no live document has while one has the same in another normal form."""
    for name in ids:
        forms = other_forms(name)
        if not forms or _is_live(service, name):
            continue
        for form in forms:
            if _is_live(service, form):
                warn(
                    f"no live document with the id {name}; one exists whose id differs only in Unicode normal form "
                    f"({_codes(form)}, not {_codes(name)}): ids are bytes, delete it under its own"
                )


def _is_live(service: Service, name: str) -> bool:
    from streamtopic.state.redis_keys import ModelKeys

    document = name.encode(errors="surrogatepass")
    settings = service.settings
    home = partition_of(document, settings.partitions, settings.partitioner)
    keys = ModelKeys(settings.model).partition(home)
    return bool(service.connection.call("HEXISTS", keys.documents(keys.bucket(document)), document))


def _codes(name: str) -> str:
    """Write a name so that its forms can be told apart."""
    return ascii(name)
