"""A live model whose rules are changed in the settings: its next version is a retrain by the new rules."""

import pytest
from three_topics import leaning

from embedded_service import SMALL, Service
from streamtopic.errors import StateMismatch
from streamtopic.local import LocalRedis
from streamtopic.service.assembly import learner_options
from streamtopic.service.schedule.decide import changed_rules
from streamtopic.service.verify import passed
from streamtopic.settings import load

GIVEN = SMALL | {"model": "rules"}


@pytest.fixture
def on(tmp_path):
    """Return a function: a service of one model with other settings than before."""
    path = tmp_path / "instance"
    path.mkdir()
    with LocalRedis() as server:

        def service(**changed):
            return Service(load(GIVEN | {"dir": path, "redis_url": server.url} | changed))

        with service() as first:
            first.add(leaning(60))
            first.settle()
        yield service


def newest(service):
    """Return the newest version, after all checks of it."""
    release = service.release(None)
    findings = service.verify()
    assert passed(findings), findings
    return release


def test_another_number_of_topics_is_a_retrain_that_says_so(on):
    """Deletions that wait are in it, the release names its number of topics, and the account begins anew."""
    with on() as service:
        service.delete(["doc-001"])
        assert service.settle().decision.startswith("wait")
    with on(topics=3) as service:
        done = service.settle()
        assert [version["kind"] for version in done.versions] == ["retrain"]
        assert "settings of the model have changed: topics was 2, is 3" in done.versions[0]["reason"]
        release = newest(service)
        envelope = release.envelope
        assert (envelope.kind, envelope.r, envelope.base, envelope.m) == ("retrain", 3, release.version, 59)
        assert done.receipts == 1
        assert service.settle().versions == []


@pytest.mark.parametrize(
    "rule",
    [
        {"min_df": 2},
        {"min_share": 0.1},
        {"max_df": 0.9},
        {"anchor_min_df": 0.02},
        {"max_words": 19_000},
        {"exclude_words": ["oak"]},
        {"learner": "paper"},
    ],
)
def test_another_rule_of_the_vocabulary_is_not_that_of_the_base(rule):
    """A version by other rules is never called an update of the base model; the reason names the setting."""
    before, now = (learner_options(load(GIVEN | changed)).rules for changed in ({}, rule))
    assert changed_rules(before, before) is None
    (name,) = rule
    assert f"settings of the model have changed: {name} was" in changed_rules(before, now)


def test_a_base_keeps_its_capacity(on):
    """It is read from Redis, whatever the settings are by then; new ones count from the next retrain on."""
    with on(capacity={"rule": "fixed", "documents": 7}) as service:
        assert (service.status()["capacity"], service.status()["capacity_rule"]) == (30, "share")
        service.state.request("retrain")
        service.settle()
        assert (service.status()["capacity"], service.status()["capacity_rule"]) == (7, "fixed")


@pytest.mark.parametrize(
    ("fixed", "says"),
    [
        ({"partitions": 2}, "set partitions = 1"),
        ({"learner": "paper"}, "set cap = 256.*rebuild"),
    ],
)
def test_what_is_fixed_with_the_counts_is_refused_with_a_remedy(on, fixed, says):
    """Partitions and the learner's mass are in every count."""
    with pytest.raises(StateMismatch, match=says), on(**fixed) as service:
        service.settle()
