"""Records of suppressions: what the holder of the key wrote for this model counts, and nothing else."""

from dataclasses import replace

from streamtopic.documents.suppression import Suppression, SuppressionKey

KEY = SuppressionKey(bytes(range(32)), "news")
OTHERS = SuppressionKey(bytes(32), "news"), SuppressionKey(bytes(range(32)), "other")
SAID = Suppression(KEY.of_subject("somebody"), suppressed=True, made_ms=5)


def test_nobody_else_suppresses_or_lifts():
    """Another key, another model, another person, and another act under the code of this one are not read."""
    value = KEY.value(SAID)
    assert KEY.read(SAID.key, value) == SAID
    assert [other.read(SAID.key, value) for other in OTHERS] == [None, None]
    assert KEY.read(replace(SAID, digest=KEY.of_subject("another")).key, value) is None
    assert KEY.read(SAID.key, value.replace(b"suppress", b"lift")) is None
    assert KEY.of_subject("somebody") != KEY.of_document(b"somebody")


def test_the_newest_word_holds_and_at_one_time_the_suppression():
    """In whatever order they come; the same word again changes nothing."""
    said = [replace(SAID, suppressed=suppressed, made_ms=made) for made in (4, 5) for suppressed in (False, True)]
    for place, one in enumerate(said):
        assert [one.outranks(other) for other in said] == [at < place for at in range(len(said))]


def test_the_tombstone_of_a_refusal_names_its_add():
    """By its partition and its offset, under the key, and by nothing that has a value or more headers."""
    headers = KEY.refusal(1, 7)
    assert KEY.refused(1, None, headers) == 7
    assert KEY.refused(2, None, headers) is None
    assert KEY.refused(1, b"", headers) is None
    assert KEY.refused(1, None, (*headers, ("more", b""))) is None
    assert [other.refused(1, None, headers) for other in OTHERS] == [None, None]
