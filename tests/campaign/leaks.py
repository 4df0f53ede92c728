"""Looks through everything that a campaign logged for what must never be in a log: ids, words and secrets."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

__all__ = ["found_in", "leaks", "secrets"]

# Words, ids and requests as `stream` and `intruder` make them: nothing else in a log looks like one of these.
_SHAPES: Mapping[str, re.Pattern[str]] = {
    "a word": re.compile(r"\b(t[0-3]|all)w\d+\b|\blonely\b|\by{20}"),
    "an id": re.compile(r"\b(doc|odd|nobody|hostile|stranger|late)-\d|\bk{100}"),
    "a person": re.compile(r"\bperson-\d"),
    "a request": re.compile(r"\b(request|poison)-\d|\bforged-request\b|salt-of-"),
}
_SHOWN = 5
_LEAST = 16


def secrets(folder: Path) -> list[str]:
    """Return the contents of key files in every form in which a log could show them."""
    found: list[str] = []
    for path in sorted(folder.iterdir()):
        if path.suffix == ".pub":
            continue
        raw = path.read_bytes()
        lines = raw.decode("ascii", "replace").splitlines()
        found += [line for line in lines if len(line) >= _LEAST]
        # A signing key has its name in front, which is no secret.
        named = [line.split("+", 4)[-1] for line in lines if line.startswith("PRIVATE+KEY+")]
        seeds = [base64.b64decode(encoded)[1:] for encoded in named]
        found += named
        for secret in (raw, *seeds):
            found += [secret.hex(), base64.b64encode(secret).decode()]
    return found


def found_in(text: str, secret: Iterable[str]) -> list[str]:
    """Return the findings about one text. secret: texts that must not be in it."""
    findings = [f"a log line quotes a secret: {line[:60]}..." for line in text.splitlines() if _any(secret, line)]
    for what, shape in _SHAPES.items():
        findings += [f"a log line quotes {what}: {line}" for line in text.splitlines() if shape.search(line)]
    return findings[:_SHOWN]


def leaks(logs: Iterable[Path], keys: Path) -> list[str]:
    """Return the findings about log files.

    logs: files that processes wrote.
    keys: folder of the keys that they used.
    """
    secret = secrets(keys)
    return [
        f"{path.name}: {finding}"
        for path in logs
        if path.exists()
        for finding in found_in(path.read_text("utf-8", "replace"), secret)
    ]


def _any(secret: Iterable[str], line: str) -> bool:
    return any(one in line for one in secret)
