"""`streamtopic deletions`, `delete` and `lift`: a person lists, approves and cancels requests, or keeps people out."""

import json
import re

import pytest

HELD = ["--set", "hold_seconds=600"]
BRAKED = ["--set", "brake_share=0.01"]


@pytest.fixture(scope="module")
def made(demo):
    """An instance with a version of 600 documents."""
    return demo(0)


def listed(on, *arguments):
    """Requests by their ids."""
    return {one["id"]: one for one in on("deletions", "list", *arguments)["requests"]}


def test_a_held_delete_can_be_cancelled(on):
    """`delete` asks in place of deleting; `cancel` ends it, and nothing was ever sent."""
    asked = on("delete", "doc-1", "doc-2", "doc-1", *HELD)
    assert (asked["sent"], len(asked["requests"]), asked["requests"][0]["documents"]) == (1, 1, ["doc-1", "doc-2"])
    assert asked["ingested"].get("deleted", 0) == 0
    name = asked["requests"][0]["id"]
    assert (listed(on)[name]["state"], listed(on)[name]["documents"]) == ("waiting", 2)
    assert on("deletions", "cancel", name)["requests"][0]["state"] == "cancelled"
    assert listed(on) == {}
    assert listed(on, "--all")[name]["state"] == "cancelled"
    assert on("status")["documents"] == 600
    assert "cannot be cancelled" in on("deletions", "cancel", name, status=2)


@pytest.mark.parametrize("settings", [[], HELD], ids=["sent", "held"])
def test_each_request_says_whose_it_is(program, on, instance, settings):
    """To people and to programs, for documents and for people, sent at once or held."""
    told = on("delete", "doc-1", "doc-2", "--subject", "ann", *settings)["requests"]
    of = {one["subject"] or tuple(one["documents"]): one["id"] for one in told}
    assert of.keys() == ({"ann", ("doc-1", "doc-2")} if settings else {"ann", ("doc-1",), ("doc-2",)})
    _, out, _ = program("delete", "doc-3", "doc-4", "--subject", "bob", "--dir", instance, *settings)
    said = re.findall(r"(\S+ \S+): request [0-9a-f]{24}, salt", out)
    assert sorted(said) == (
        ["2 documents", "subject bob"] if settings else ["document doc-3", "document doc-4", "subject bob"]
    )


def test_people_are_named_without_the_command_line(on, tmp_path):
    """After `--subject` the lines of a file, or of standard input, are subjects: no list of processes shows them."""
    path = tmp_path / "people"
    path.write_text("ann\nbob\n", "utf-8")
    told = on("delete", "doc-1", "--subject", "cal", "--subject", "--from", path)
    assert [one["subject"] or one["documents"] for one in told["requests"]] == [["doc-1"], "cal", "ann", "bob"]
    assert "--from FILE" in on("delete", "--subject", status=2)


def test_a_wave_waits_for_approval(on):
    """Over the share a delete is paused; `approve --all` lets it go, and its receipts are found by request and salt."""
    asked = on("delete", *[f"doc-{k}" for k in range(8)], *BRAKED)
    (name, salt) = (asked["requests"][0][field] for field in ("id", "salt"))
    assert listed(on)[name]["state"] == "paused"
    assert on("deletions", "approve", "--all", *BRAKED)["requests"][0]["approved"] is True
    assert listed(on, "--all")[name]["state"] == "completed"
    assert on("status")["documents"] == 592
    assert len(on("receipt", name, "--salt", salt)["receipts"]) == 8


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["approve"], "--all"),
        (["approve", "a", "--all"], "--all"),
        (["cancel"], "which requests"),
        (["cancel", "nobody"], "there is no request nobody"),
        (["list", "x"], "takes no ids"),
    ],
)
def test_wrong_arguments_are_refused_with_the_remedy(program, made, arguments, said):
    """Nothing is guessed."""
    status, _, err = program("deletions", *arguments, "--dir", made)
    assert status in {1, 2}
    assert said in err


def test_an_operator_attests_until_a_time_that_is_over(on):
    """What goes into the ledger is true by then: no time to come, and only of the files that are named."""
    assert "give --until TIME" in on("deletions", "attest", status=2)
    assert "still to come" in on("deletions", "attest", "--until", "2999-01-01T00:00Z", status=2)
    assert on("deletions", "residue")["attested"] == {}
    on("deletions", "attest", "--until", "2026-01-31T12:00Z")
    told = on("deletions", "attest", "--stage", "file", "--until", "now")
    assert told == on("deletions", "residue")
    assert told["attested"].keys() == {"file", "backups"}
    assert told["attested"]["backups"] == 1_769_860_800_000


def test_documents_of_a_label_go_once_their_number_is_confirmed(on, program, instance, tmp_path):
    """The number is shown first, nothing is deleted without a yes, and all receipts are those of one request."""
    lines = [json.dumps({"id": f"sport-{k}", "text": "goal match", "labels": {"section": "sport"}}) for k in range(5)]
    path = tmp_path / "labelled.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    on("add", path)
    for unknown, known in (("section=golf", "it has 'sport'"), ("part=golf", "no document has a label of this task")):
        assert on("delete", "--label", unknown, "--yes", status=2).strip().endswith(known)
    said = on("delete", "--label", "section=sport", status=2)
    assert "deletes 5 documents" in said
    assert "--yes" in said
    # Nobody can be asked at a pipe either.
    assert program("delete", "--label", "section=sport", "--dir", instance)[0] == 2
    assert on("status")["documents"] == 605
    done = on("delete", "--label", "section=sport", "--yes")
    assert (done["sent"], len(done["requests"]), done["ingested"]["deleted"]) == (1, 1, 5)
    found = on("receipt", done["requests"][0]["id"], "--salt", done["requests"][0]["salt"])
    assert len(found["receipts"]) == 5
    assert "no live document" in on("delete", "--label", "section=sport", "--yes", status=2)


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
