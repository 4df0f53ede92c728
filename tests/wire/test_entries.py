"""Entries of the ledger: one line of canonical JSON each, which names nobody."""

import dataclasses
import json
import math

import pytest

from ledger_maker import SALT, envelope_of, receipt_of
from streamtopic.errors import InvalidRelease
from streamtopic.signed import (
    Alive,
    End,
    Erased,
    Keys,
    RequestReceipt,
    Runs,
    document_digest,
    line_of,
    link_digest,
    parse_line,
    request_digest,
    service_document_salt,
    service_salt,
)

MONTH_KEY = b"k" * 32
RECEIPT = receipt_of(7, "r-1", link=link_digest(MONTH_KEY, "r-1"))
SUBJECT = RequestReceipt(
    "news/request/1", "news", request_digest("r-1", SALT), link_digest(MONTH_KEY, "r-1"), "2026-11", 1000, 4, 3
)
ENTRIES = {
    "version": envelope_of(3, release="d" * 64, withdrawn=(1, 2), ratio=0.25, covered=False, commitment="c" * 64),
    "receipt": RECEIPT,
    "request": SUBJECT,
    "erased": Erased(5000, {0: 9, 10: 3, 2: 7}, {0: {"log": 4000, "state": 4500}, 10: {}}, ("backups",)),
    "alive": Alive(1_700_000_000_000, 600_000, 9, Runs((1, 3, 5, 5))),
    "keys": Keys("a note\n\n— with lines\n"),
    "end": End(1_700_000_000_000, 20, 3, 1, ledger_kept=True),
}


@pytest.mark.parametrize("kind", ENTRIES)
def test_each_kind_reads_back(kind):
    """Every field comes back, and an equal entry has the same line."""
    entry = ENTRIES[kind]
    line = line_of(entry)
    assert parse_line(line) == entry
    assert json.loads(line)["kind"] == kind
    assert line_of(dataclasses.replace(entry)) == line
    assert "\n" not in line


def test_numbers_without_a_bound_read_back():
    """JSON has no infinity: a certificate and a spent epsilon without a bound are null."""
    entry = envelope_of(certificate=math.inf, cumulative_epsilon=math.inf)
    assert parse_line(line_of(entry)) == entry
    assert json.loads(line_of(entry))["certificate"] is None


@pytest.mark.parametrize("kind", ENTRIES)
def test_another_spelling_of_an_entry_is_refused(kind):
    """Order, spaces, escapes and repeated names: an entry has one line, so one hash."""
    line = line_of(ENTRIES[kind])
    fields = json.loads(line)
    turned = dict(reversed(fields.items()))
    for other in (
        json.dumps(fields),
        json.dumps(turned, separators=(",", ":")),
        f" {line}",
        f"{line}\n",
        line.replace('"kind"', '"\\u006bind"'),
        line.replace("{", '{"kind":"receipt",', 1),
    ):
        assert other != line
        with pytest.raises(InvalidRelease):
            parse_line(other)


@pytest.mark.parametrize("kind", ENTRIES)
def test_every_field_of_an_entry_is_there(kind):
    """A missing field is refused; so is one too many."""
    fields = json.loads(line_of(ENTRIES[kind]))
    for name in fields:
        rest = {other: value for other, value in fields.items() if other != name}
        with pytest.raises(InvalidRelease):
            parse_line(json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False))
    with pytest.raises(InvalidRelease, match="other fields"):
        parse_line(json.dumps(fields | {"more": 1}, sort_keys=True, separators=(",", ":"), ensure_ascii=False))


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("version", {"cut": {"00": 1}}),
        ("version", {"cut": {"-1": 1}}),
        ("version", {"cut": {"0": "1"}}),
        ("version", {"cut": [1]}),
        ("version", {"version": 0}),
        ("version", {"version": True}),
        ("version", {"version": 1 << 62}),
        ("version", {"version": 1.0}),
        ("version", {"withdrawn": [3]}),
        ("version", {"withdrawn": [0]}),
        ("version", {"release": "D" * 64}),
        ("version", {"commitment": "d" * 63}),
        ("version", {"excluded": "the"}),
        ("version", {"created": -1}),
        ("version", {"created": 253_402_300_800_000}),
        ("version", {"made_by": "magic"}),
        ("version", {"epsilon": math.nan}),
        ("version", {"sigma": math.inf}),
        ("version", {"guarantee": "none"}),
        ("receipt", {"found": 1}),
        ("receipt", {"offset": "7"}),
        ("receipt", {"model": None}),
        ("erased", {"reached": {"0": {"log": "4000"}}}),
        ("erased", {"ends": {" 0": 9}}),
        ("alive", {"withdrawn": [1]}),
        ("alive", {"withdrawn": [3, 1]}),
        ("alive", {"withdrawn": [0, 1]}),
        ("alive", {"withdrawn": [1, 10]}),
        ("end", {"ledger_kept": "yes"}),
    ],
    ids=str,
)
def test_facts_of_a_wrong_type_or_against_each_other_are_refused(kind, change):
    """A key says who wrote them, and not that they make sense."""
    fields = json.loads(line_of(ENTRIES[kind])) | change
    with pytest.raises(InvalidRelease):
        parse_line(json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False))


def test_a_receipt_names_nobody():
    """Neither document id nor request id is in the line; only who knows the salt can tell them."""
    line = line_of(RECEIPT)
    assert "d-7" not in line
    assert "r-1" not in line
    assert RECEIPT.is_about("d-7", SALT)
    assert RECEIPT.is_about(b"d-7", SALT.encode())
    assert request_digest("r-1", SALT.encode()) == RECEIPT.request
    for salt in (b"", b"0123456789abcdeg", request_digest("r-1", b"")):
        assert not RECEIPT.is_about("d-7", salt)
        assert request_digest("r-1", salt) != RECEIPT.request
    assert not RECEIPT.is_about("d-8", SALT)
    assert request_digest("", SALT) == ""


def test_digests_are_bound_to_what_they_are_about():
    """One salt gives other digests for another model, kind or receipt, so no list of them serves twice."""
    salt = SALT.encode()
    digests = [
        request_digest("x", salt),
        link_digest(salt, "x"),
        document_digest(salt, "news", b"x"),
        document_digest(salt, "mail", b"x"),
        service_salt(salt, "news/0/1").hex(),
        service_salt(salt, "news/0/2").hex(),
        service_document_salt(salt, salt).hex(),
    ]
    assert len(set(digests)) == len(digests)
    assert {len(digest) for digest in digests} == {64}
