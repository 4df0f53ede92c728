"""What must never be in a log, and how a campaign would find it there."""

import json
import logging
import random

import pytest

from campaign.intruder import forged, poison
from campaign.leaks import found_in, leaks, secrets
from campaign.stream import EventStream
from streamtopic.monitoring.logs import EVENTS, JsonLines
from streamtopic.signed import new_secret, new_signing_key


@pytest.fixture
def keys(tmp_path):
    """The keys of a service."""
    folder = tmp_path / "keys"
    folder.mkdir()
    new_signing_key(folder / "signing.key", folder / "signing.pub", "faults")
    new_secret(folder / "noise.key")
    return folder


def test_lines_of_a_service_are_clean(keys, tmp_path):
    """Numbers, names of events and what they mean are no finding."""
    log = tmp_path / "ingest-0.log"
    line = logging.makeLogRecord({"msg": "took ownership of partition 3", "event": "partition_taken", "partition": 3})
    written = [JsonLines({"role": "ingest", "model": "faults"}).format(line)]
    written += [json.dumps({"event": name, "message": event.meaning}) for name, event in EVENTS.items()]
    log.write_text("\n".join(written))
    assert leaks([log, tmp_path / "missing.log"], keys) == []


@pytest.mark.parametrize("seed", range(3))
def test_whatever_the_stream_sends_would_be_found(seed):
    """A line that quotes the id of a document, its words or a request is a finding, whichever document it is."""
    stream = EventStream(random.Random(seed), 4, live=50)
    stream.batch(200)
    known = stream.known
    assert all(found_in(f"removed {document}", []) for document in known)
    words = [b"t0w11", b"allw3", b"t3w59"]
    assert all(found_in(f"anchor {word.decode()} is missing", []) for word in words)
    made = forged(random.Random(seed), known, 4) + poison(random.Random(seed), known, 4)
    requests = [value.decode() for m in made for name, value in m.headers if name == "request" and b"-" in value]
    assert requests
    assert all(found_in(f"receipt of {request}", []) for request in requests)


def test_a_secret_is_found_in_every_form(keys, tmp_path):
    """Keys in hexadecimal, in base64 and as they stand in their files are findings, and the file is named."""
    log = tmp_path / "schedule-0.log"
    found = secrets(keys)
    assert len(found) >= 9
    for secret in found:
        log.write_text(f"all is well\nsigned with {secret}\n")
        (finding,) = leaks([log], keys)
        assert finding.startswith("schedule-0.log: a log line quotes a secret")
