"""The heart: a service that saw a document and forgot it publishes what one that never saw it would have."""

import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from three_topics import leaning

from embedded_service import embedded
from shared_noise import with_noise
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.privacy.noise import CalibratedGuarantee
from streamtopic.service.instance import secret
from streamtopic.service.schedule.payload import Ingredients, make_payload

DOCUMENTS = leaning()


def draw_again(instance, fit, counts, version):
    """Return the payload of a version of this number, made of a model with the instance's key and settings."""
    chosen = instance.settings
    guarded = CalibratedGuarantee(chosen.epsilon, chosen.delta, chosen.tolerance)
    key = NoiseKey(secret(chosen, "noise.key"))
    return make_payload(fit, counts, guarded, Ingredients(key.of(chosen.model, version), read=None))


def newest(instance):
    """Settle, and return the model before noise with its release."""
    instance.settle()
    release = instance.release(None)
    return instance.scheduler.modeller.last, release


@settings(max_examples=6)
@given(seed=st.integers(0, 10_000), forgotten=st.integers(1, 12), learner=st.sampled_from(["default", "paper"]))
def test_service_and_twin_publish_the_same_model(tmp_path_factory, seed, forgotten, learner):
    """Adds, replacements, deletes and unknown deletes in any order: the twin's words, and A before noise to 1e-12.

    Drawn for the same version with the same key, the twin's noised A is the published one, bit for bit.
    """
    rng = np.random.default_rng(seed)
    gone = {DOCUMENTS[k].id for k in rng.choice(len(DOCUMENTS), forgotten, replace=False)}
    folder = tmp_path_factory.mktemp("twin")
    own = {"learner": learner}
    with embedded(with_noise(folder / "saw"), **own) as saw, embedded(with_noise(folder / "never"), **own) as never:
        old = leaning(20, seed + 1)
        saw.add(old)
        saw.settle()
        saw.add(DOCUMENTS)
        saw.settle()
        saw.delete([*sorted(gone), "never-there", "doc-999"])
        fit, release = newest(saw)
        never.add([document for document in DOCUMENTS if document.id not in gone])
        twin, untouched = newest(never)
        assert fit.words == twin.words
        assert np.abs(fit.A - twin.A).max() <= 1e-12
        assert release.words == untouched.words
        assert release.anchors == untouched.anchors
        assert release.envelope.m == untouched.envelope.m == len(DOCUMENTS) - forgotten
        again = draw_again(never, twin, never.reader.counts(), release.version).payload
        assert np.array_equal(again.A, release.payload.A)
        assert np.array_equal(again.R, release.payload.R)
        # The twin's own version has another number, so other noise.
        assert 0 < np.abs(release.A - untouched.A).max() < 12 * release.envelope.sigma
        found = [receipt.found for receipt in saw.receipts()]
        assert sorted(found) == [False, False] + [True] * forgotten
    shutil.rmtree(folder)


def test_versions_that_hold_forgotten_documents_are_withdrawn(tmp_path):
    """A later version withdraws those with a forgotten document, and subscribers may not use them any more."""
    with embedded(tmp_path) as instance:
        instance.add(DOCUMENTS)
        instance.settle()
        first = instance.release(1)
        assert len(first.topics(3)) == 3
        instance.delete([DOCUMENTS[0].id])
        instance.settle()
        assert instance.release(None).envelope.withdrawn == (1,)
        with pytest.raises(Exception, match="withdrawn"):
            instance.release(1)
        with instance.subscriber() as subscriber:
            assert [release.version for release in iter(subscriber.poll, None)] == [2]


def test_budget_makes_a_retrain_and_capacity_too(tmp_path):
    """Past the epsilon budget, or past capacity, the next version is a new base, and the account starts again."""
    with embedded(tmp_path / "budget", epsilon_budget=1.6) as instance:
        instance.add(DOCUMENTS)
        instance.settle()
        kinds = []
        for document in DOCUMENTS[:4]:
            instance.delete([document.id])
            kinds += [(v["kind"], v["cumulative_epsilon"]) for v in instance.settle().versions]
        assert "retrain" in {kind for kind, _ in kinds}
        assert all(spent <= 1.6 for _, spent in kinds)
    with embedded(tmp_path / "capacity", capacity={"rule": "fixed", "documents": 1}) as instance:
        instance.add(DOCUMENTS)
        instance.settle()
        instance.delete([document.id for document in DOCUMENTS[:2]])
        (version,) = instance.settle().versions
        assert version["kind"] == "retrain"
        assert "exceeds the deletion capacity of 1" in version["reason"]


def test_a_version_that_stood_between_withdrawn_ones_is_found_later(tmp_path):
    """A version without the document of the first deletion stands; the deletion of an older document withdraws it."""
    late = leaning(1, seed=9, prefix="late")
    with embedded(tmp_path, update_after=1e-9) as instance:
        instance.add(DOCUMENTS)
        instance.settle()
        instance.add(late)
        instance.settle()
        instance.delete([late[0].id])
        instance.settle()
        assert [version["withdrawn"] for version in instance.versions()] == [False, True, False]
        instance.delete([DOCUMENTS[3].id])
        instance.settle()
        assert [version["withdrawn"] for version in instance.versions()] == [True, True, True, False]
