"""A receipt as a person reads it."""

import dataclasses

from streamtopic.commands.receipts import readable
from streamtopic.signed import Receipt, request_digest


def test_figures_of_a_receipt_have_four_digits():
    """An epsilon of 1 that was computed is said as 1, and no figure shows how it was rounded."""
    receipt = Receipt(
        model="news", partition=0, offset=0, request=request_digest("r-0", "0123456789abcdef"), document="d", link="",
        month="2026-11", received=1, applied=2, found=True, version=1,
    )  # fmt: skip
    guarantee = {"guarantee": "certified", "sigma": 8.449357778653679e-07, "epsilon": 1.0000000000000047, "delta": 1e-6}
    residue = {"state": 1_700_000_000_000, "log": None}
    fields = dataclasses.asdict(receipt) | {"guarantee": guarantee, "residue": residue, "erased": None}
    shown = readable(fields)
    assert (shown["guarantee"], shown["epsilon"], shown["sigma"]) == ("certified", "1", "8.449e-07")
    assert (shown["delta"], shown["offset"], shown["link"]) == ("1e-06", 0, "-")
    assert (shown["residue state"], shown["residue log"]) == ("2023-11-14T22:13:20+00:00", "not yet")
    assert readable(fields | {"guarantee": None})["version"] == 1
