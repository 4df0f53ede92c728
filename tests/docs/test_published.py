"""The table of published numbers has every field that leaves the service."""

import dataclasses
import re
from pathlib import Path

from streamtopic.signed import Envelope, Head, Payload, Receipt

PAGE = (Path(__file__).parents[2] / "docs" / "guarantees.md").read_text(encoding="utf-8")


def test_each_published_field_is_in_the_table():
    """Fields of payload, heads, envelope and receipt stand in it, each once, and no other: a new one is thought of."""
    _, _, after = PAGE.partition("### What each published number is made of\n")
    rows = re.findall(r"^\| (`.*?) \|", after.partition("\n### ")[0], re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    fields = {field.name for kind in (Payload, Head, Envelope, Receipt) for field in dataclasses.fields(kind)}
    assert sorted(named) == sorted(fields)
