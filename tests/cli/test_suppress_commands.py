"""`streamtopic keys suppression`, `delete --suppress` and `lift`, as an operator uses them."""

import json


def test_an_operator_keeps_a_person_forgotten(demo, commands, tmp_path):
    """From a new key to a suppressed person and back, on an instance that was there before."""
    folder = demo(0)
    on = commands(folder)
    assert "keys suppression" in on("delete", "doc-1", "--suppress", status=2)
    made = on("keys", "suppression")["suppression"]
    assert made == str(folder / "keys" / "suppression.key")
    assert "is there already" in on("keys", "suppression", status=2)
    on("delete", "doc-1", "doc-2", "--suppress")
    assert on("status")["documents"] == 598
    again = tmp_path / "again.jsonl"
    lines = [{"id": name, "text": "bafo delu bafo"} for name in ("doc-1", "doc-2")]
    again.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert on("add", again)["ingested"]["rejected"] == 2
    assert on("rejected")["reasons"] == {"suppressed": 2}
    ids = tmp_path / "ids"
    # With the mark that Windows programs put in front.
    ids.write_text("doc-1\r\n", encoding="utf-8-sig")
    assert on("lift", "--from", ids)["sent"] == 1
    assert on("status")["suppressed"] == 1
    assert on("add", again)["ingested"] == {"added": 1, "rejected": 1, "unchanged": 1}
    on("delete", "--subject", "customer-7", "--suppress")
    assert on("status")["suppressed"] == 2
    assert "whom?" in on("lift", status=2)
    # The deletion waits, and the document is kept out already.
    on("delete", "doc-3", "--suppress", "--set", "hold_seconds=600")
    assert (on("status")["suppressed"], on("status")["documents"]) == (3, 599)
