"""The benchmark of forgetting a person shows what it claims, on few documents."""

from streamtopic.bench.cases import people


def test_one_version_and_one_receipt_whatever_the_number():
    """All documents of the subject leave in one version, each has its receipt, and one receipt covers them."""
    found = {figure.name: figure for figure in people.forget(120)}
    assert found["versions"].value == 1
    assert found["receipts"].value == found["covered by one receipt"].value == 120
    assert found["from the request to its receipt"].value >= found["deleted and counted out"].value > 0
