"""Private mode from end to end: periods, their budget, what is published, and what is checked."""

from dataclasses import asdict

import numpy as np
import pytest
from three_topics import SHARED, TOPICS, leaning

from embedded_service import Service
from shared_noise import with_noise
from streamtopic.errors import SettingsError
from streamtopic.privacy.accounting import Composition
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.privacy.private_noise import noised_matrix
from streamtopic.service import private_mode
from streamtopic.service.verify import passed
from streamtopic.settings import load

DOCUMENTS = leaning(240, seed=3)
BUDGET = {"epsilon": 100.0, "delta": 1e-3, "versions": 2}
"""A budget under which 240 documents show through the noise."""
VOCABULARY = sorted([*SHARED, *(word for words in TOPICS.values() for word in words)])


@pytest.fixture
def opened(tmp_path):
    """Return a function that opens services that share settings, noise key and a public vocabulary."""
    words = tmp_path / "words.txt"
    words.write_text("\n".join(VOCABULARY) + "\n")
    plain = {"topics": 3, "max_df": 1.0, "max_forget_lag": 0.0, "guarantee": "private"}

    def service(name="one", **budget):
        private = {**BUDGET, "words": words, **budget}
        return Service(load({"dir": with_noise(tmp_path / name), **plain, "private": private}))

    return service


def test_it_learns_forgets_and_shows_no_exact_number(opened):
    """Two versions, a receipt, a proof that passes; numbers of documents are noised or absent."""
    with opened() as instance:
        instance.add(DOCUMENTS)
        first = instance.settle()
        instance.delete([DOCUMENTS[3].id])
        second = instance.settle()
        assert [version["kind"] for version in first.versions + second.versions] == ["retrain", "unlearn"]
        release = instance.release(None)
        facts = release.envelope
        assert (facts.forgotten, facts.counted, facts.capacity, facts.base) == (0, 0, 0, 1)
        assert abs(facts.m - 239) < 30
        assert release.words == tuple(VOCABULARY)
        assert set(release.quality) == {"diversity"}
        assert facts.cumulative_epsilon == pytest.approx(100, rel=1e-6)
        assert "any one document's content" in str(release.guarantee)
        assert "subtract" not in release.guarantee
        assert [receipt.version for receipt in instance.receipts()] == [2]
        found = instance.verify()
        assert passed(found), [one for one in found if one.passed is False]
        assert any("as published, noise included: all its numbers are those" in one.detail for one in found)


def test_a_period_ends_and_only_an_operator_begins_another(opened):
    """Once the budget is spent nothing is published, though a deletion waits; the next period adds its budget."""
    with opened() as instance:
        instance.add(DOCUMENTS)
        instance.settle()
        instance.delete([DOCUMENTS[1].id])
        instance.settle()
        instance.delete([DOCUMENTS[2].id])
        spent = instance.settle()
        assert not spent.versions
        assert "the budget is spent: all 2 versions" in spent.decision
        assert "unlearn --retrain` begins a period" in spent.decision
        instance.state.request("retrain")
        (begun,) = instance.settle().versions
        rule = instance.scheduler.modeller.rule
        both = Composition.of([(rule.scale, rule.slack)] * 2).epsilon(rule.delta)
        assert (begun["kind"], begun["base"]) == ("retrain", 3)
        assert begun["cumulative_epsilon"] == pytest.approx(both)
        assert both > 130
        assert passed(instance.verify())
        instance.delete([DOCUMENTS[4].id])
        (next_one,) = instance.settle().versions
        assert next_one["cumulative_epsilon"] == pytest.approx(both)
        assert len(instance.receipts()) == 3


def test_changed_settings_wait_for_an_operator(opened):
    """A larger budget within a period would break what its versions have promised."""
    with opened() as instance:
        instance.add(DOCUMENTS)
        instance.settle()
    with opened(epsilon=99.0) as instance:
        instance.delete([DOCUMENTS[1].id])
        waits = instance.settle()
        assert not waits.versions
        assert "private.epsilon was 100.0, is 99.0" in waits.decision


def test_who_forgot_commits_to_what_who_never_saw_does(opened):
    """The twin: with equal documents the exact counts are equal bit for bit, and so is what has its noise."""
    with opened("forgot", versions=9) as one, opened("never", versions=9) as other:
        one.add(DOCUMENTS)
        one.settle()
        one.delete([DOCUMENTS[7].id])
        one.settle()
        other.add(DOCUMENTS[:7] + DOCUMENTS[8:])
        other.settle()
        other.state.request("unlearn")
        other.settle()
        assert one.release(None).envelope.commitment == other.release(None).envelope.commitment
        # A period that both begin now has the same noise as well.
        for instance in (one, other):
            instance.state.request("retrain")
            instance.settle()
        assert one.release(None).payload.A.tobytes() == other.release(None).payload.A.tobytes()


def test_all_that_is_published_follows_from_noised_counts(opened, monkeypatch):
    """Services of other documents whose noised counts are the same publish the same, but for their commitments."""
    fixed = noised_matrix(
        np.triu(np.random.default_rng(1).integers(1, 2**33, (len(VOCABULARY),) * 2)),
        private_mode.SeriesNoise(2, 1.0),
        [NoiseKey(bytes(32)).of("news", 1).seed("digest")],
    )
    monkeypatch.setattr(private_mode, "noised_matrix", lambda *_: fixed)
    shown = []
    for name, documents in (("one", DOCUMENTS), ("other", leaning(240, seed=8))):
        with opened(name) as instance:
            instance.add(documents)
            instance.settle()
            release = instance.release(None)
            facts = asdict(release.envelope)
            for own in ("release", "commitment", "created"):
                del facts[own]
            payload = {
                key: getattr(value, "tolist", lambda v=value: v)() for key, value in asdict(release.payload).items()
            }
            shown.append((facts, payload))
    assert shown[0] == shown[1]


def test_words_are_chosen_within_the_budget(opened):
    """Without a file the words are the heaviest of the documents, fixed for the period; the choice costs its share."""
    with opened(words=None, size=20) as instance:
        instance.add(DOCUMENTS)
        instance.settle()
        before = instance.release(None)
        assert set(before.words) <= set(VOCABULARY)
        assert len(before.words) == 20
        assert before.envelope.slack == pytest.approx(1e-5)
        instance.delete([DOCUMENTS[1].id])
        instance.settle()
        assert instance.release(None).words == before.words
        assert passed(instance.verify())


def test_too_few_documents_are_refused(opened):
    """Where noise hides the topics there is no version, and the reason names what helps."""
    with opened(epsilon=0.02, versions=64) as instance:
        instance.add(DOCUMENTS)
        refused = instance.settle()
        assert not refused.versions
        assert "noise hides the topics" in refused.decision


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tasks": {"place": {}}}, "no noise for heads"),
        ({"guided": {"cars": ["car"]}}, "finds its topics in noised counts"),
        ({"learner": "paper"}, "default learner"),
    ],
)
def test_settings_that_need_exact_counts_are_refused(tmp_path, settings, words):
    """Each with its reason and remedy."""
    with pytest.raises(SettingsError, match=words):
        load({"dir": tmp_path, "guarantee": "private", **settings})


@pytest.mark.parametrize(
    ("text", "size", "problem"),
    [("good\nnot one\n", 100, "'not one'"), ("", 100, "has 0 words"), ("\n".join(VOCABULARY), 20, "has 32 words")],
)
def test_a_file_of_words_is_checked(opened, tmp_path, text, size, problem):
    """A line that is no word, no words, and more words than there may be."""
    file = tmp_path / "own.txt"
    file.write_text(text)
    with opened(words=file, size=size) as instance, pytest.raises(SettingsError, match=problem):
        instance.settle()
