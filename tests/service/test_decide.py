"""The scheduler's one decision, as a table."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtopic.service.schedule.decide import Retrain, Situation, Unlearn, Wait, capacity_of, decide
from streamtopic.settings import Settings

NOW = 10_000_000
MODEL = {"documents": 1000, "base_documents": 1000, "model_documents": 1000, "capacity": 100}
LONG_AGO = NOW - 3_600_000
WAITING = {"unserved": 900, "forget_set": 900, "oldest_unserved_ms": LONG_AGO}
PERIOD = {**MODEL, **WAITING, "capacity": math.inf, "periods": True}
"""A mode whose base models begin periods: no capacity, and no base model after the first unless an operator asks."""


@pytest.mark.parametrize(
    ("situation", "expected", "words"),
    [
        ({"documents": 0}, Wait, "no documents"),
        ({"documents": 5}, Retrain, "no base model"),
        ({"documents": 5, "failed": "too few words"}, Wait, "too few words"),
        ({"documents": 5, "failed": "too few words", "requested": "retrain"}, Retrain, "by hand"),
        (MODEL, Wait, "exactly the live documents"),
        ({**MODEL, "requested": "unlearn"}, Unlearn, "by hand"),
        ({**MODEL, "requested": "retrain"}, Retrain, "by hand"),
        ({**MODEL, "unserved": 3, "oldest_unserved_ms": NOW, "forget_set": 3}, Wait, "3 deletions wait"),
        ({**MODEL, "unserved": 3, "oldest_unserved_ms": LONG_AGO, "forget_set": 3}, Unlearn, "waited"),
        ({**MODEL, "unserved": 3, "oldest_unserved_ms": LONG_AGO + 1, "forget_set": 3}, Wait, "wait"),
        ({**MODEL, "unserved": 80, "forget_set": 80}, Unlearn, "reached 80%"),
        ({**MODEL, "unserved": 1, "forget_set": 81, "published_forget_set": 80}, Wait, "1 deletions wait"),
        ({**MODEL, "unserved": 9, "forget_set": 89, "published_forget_set": 80}, Wait, "9 deletions wait"),
        ({**MODEL, "unserved": 10, "forget_set": 90, "published_forget_set": 80}, Unlearn, "10 more"),
        ({**MODEL, "unserved": 1, "forget_set": 101, "published_forget_set": 100}, Retrain, "exceeds"),
        ({**MODEL, "unserved": 1, "forget_set": 1, "capacity": 0}, Retrain, "exceeds"),
        ({**MODEL, "unserved": 1, "oldest_unserved_ms": 0, "next_epsilon": 8.1}, Retrain, "epsilon 8.10 of 8"),
        ({**MODEL, "unserved": 1, "oldest_unserved_ms": 0, "next_epsilon": 8.0}, Unlearn, "waited"),
        ({**MODEL, "model_documents": 0}, Wait, "exactly the live documents"),
        ({**MODEL, "new_documents": 49}, Wait, "49 new documents"),
        ({**MODEL, "new_documents": 50}, Unlearn, "50 new documents"),
        ({**MODEL, "base_only": True, "new_documents": 49}, Wait, "49 new documents"),
        ({**MODEL, "base_only": True, "new_documents": 50}, Retrain, "base model's documents only"),
        ({**MODEL, "base_only": True, "requested": "unlearn", "new_documents": 49}, Unlearn, "by hand"),
        ({**MODEL, "base_only": True, "unserved": 3, "oldest_unserved_ms": 0, "forget_set": 3}, Unlearn, "waited"),
        ({**MODEL, "new_documents": 50, "forgetting_ms": 1}, Wait, "request"),
        ({**MODEL, "new_documents": 50, "forgetting_ms": 300_000}, Unlearn, "50 new documents"),
        ({**MODEL, "forgetting_ms": 1, "requested": "unlearn"}, Unlearn, "by hand"),
        ({**MODEL, "unserved": 3, "oldest_unserved_ms": 0, "forget_set": 3, "forgetting_ms": 1}, Wait, "request"),
        (
            {**MODEL, "unserved": 3, "oldest_unserved_ms": 0, "forget_set": 3, "forgetting_ms": 1, "holding_ms": NOW},
            Unlearn,
            "wai",
        ),
        ({"documents": 5, "forgetting_ms": 1}, Wait, "request"),
        ({**MODEL, "documents": 0, "unserved": 1000, "forget_set": 1000, "failed": "no document"}, Wait, "no document"),
        (PERIOD, Unlearn, "waited"),
        ({**PERIOD, "oldest_unserved_ms": NOW}, Wait, "900 deletions wait, none longer than 60 min"),
        ({**PERIOD, "lost": "settings have changed"}, Wait, "begins a period"),
        ({**PERIOD, "lost": "settings have changed", "requested": "retrain"}, Retrain, "by hand"),
        ({"documents": 5, "periods": True}, Retrain, "no base model"),
    ],
)
def test_decisions(situation, expected, words):
    """Each situation leads to its decision, and the reason says why."""
    decision = decide(Situation(**situation), Settings(), NOW)
    assert isinstance(decision, expected), decision
    assert words in decision.reason


@pytest.mark.parametrize(
    ("rule", "limit"),
    [({"share": 0.1}, 16), ({"share": 1e-6}, 1), ({"rule": "fixed", "documents": 0}, 0)],
)
def test_each_rule_gives_its_capacity(rule, limit):
    """A share of the documents, but at least one of them; or a number, 0 too."""
    assert capacity_of(Settings(capacity=rule), 160) == limit


def test_deletions_near_capacity_cause_few_updates():
    """A stream of single deletions up to capacity causes a handful of updates, not one each."""
    chosen, published, updates = Settings(), 0, 0
    for forgotten in range(1, 101):
        situation = Situation(
            **MODEL, forget_set=forgotten, published_forget_set=published, unserved=forgotten - published,
            oldest_unserved_ms=NOW,
        )  # fmt: skip
        if isinstance(decide(situation, chosen, NOW), Unlearn):
            published, updates = forgotten, updates + 1
    assert updates == 3


@given(
    lag=st.integers(0, 7_200_000),
    beyond=st.integers(0, 10**6),
    documents=st.integers(1, 10**6),
    forgotten=st.integers(1, 10**5),
    published=st.integers(0, 10**5),
    capacity=st.integers(0, 10**5),
    new=st.integers(0, 10**5),
    epsilon=st.floats(0, 100),
    base_only=st.booleans(),
    asked_before=st.none() | st.integers(0, 10**6),
)
def test_a_deletion_that_has_waited_long_enough_is_served(
    lag, beyond, documents, forgotten, published, capacity, new, epsilon, base_only, asked_before
):
    """After `max_forget_lag`, and five minutes at least, an update or a retrain begins, whatever else holds."""
    waited = max(lag, 300_000) + beyond
    situation = Situation(
        documents=documents, base_documents=documents, model_documents=documents, capacity=capacity,
        forget_set=forgotten, published_forget_set=min(published, forgotten - 1), unserved=1,
        oldest_unserved_ms=NOW - waited, new_documents=new, next_epsilon=epsilon, base_only=base_only,
        forgetting_ms=asked_before, holding_ms=waited,
    )  # fmt: skip
    assert not isinstance(decide(situation, Settings(max_forget_lag=lag / 1000), NOW), Wait)


@pytest.mark.parametrize("wrong_ms", [-400 * 86_400_000, 0, 400 * 86_400_000])
def test_a_request_holds_a_version_back_for_five_minutes_at_most_whatever_the_time_of_day(wrong_ms):
    """With a lag of 0 the deletions of one person still leave together, and requests without an end hold nothing."""
    urgent = Settings(max_forget_lag=0)
    since = {**MODEL, "unserved": 3, "forget_set": 3, "oldest_unserved_ms": NOW - 1}
    cases = ((0, 0, True), (299_999, 299_999, True), (300_000, 0, False), (1, 300_000, False))
    for forgetting, holding, waits in cases:
        decision = decide(Situation(**since, forgetting_ms=forgetting, holding_ms=holding), urgent, NOW + wrong_ms)
        assert ("request" in decision.reason) is waits
