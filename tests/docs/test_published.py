"""The table of published numbers has every field that leaves the service."""

import dataclasses
import re
from pathlib import Path

from streamtopic.signed import Alive, End, Envelope, Erased, Head, Keys, Payload, Receipt, RequestReceipt

PUBLISHED = (Payload, Head, Envelope, Receipt, RequestReceipt, Erased, Alive, Keys, End)
PAGE = (Path(__file__).parents[2] / "docs" / "guarantees.md").read_text(encoding="utf-8")


def test_each_published_field_is_in_the_table():
    """Fields of a release and of every entry are in it, each once, and no other: a new one is thought of."""
    _, _, after = PAGE.partition("### What each published number is made of\n")
    rows = re.findall(r"^\| (`.*?) \|", after.partition("\n### ")[0], re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    fields = {field.name for kind in PUBLISHED for field in dataclasses.fields(kind)}
    assert sorted(named) == sorted(fields)
