"""What a version says in public tells no candidate for a deleted document from another."""

import dataclasses
import json
from collections import Counter
from typing import ClassVar

import numpy as np
import pytest
from three_topics import leaning

from embedded_service import embedded, silent
from shared_noise import with_noise
from streamtopic.bench.chain_corpora import KINDS
from streamtopic.counts import Counts
from streamtopic.documents.corpus import Document
from streamtopic.errors import CannotLearn
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.privacy.noise import CalibratedGuarantee
from streamtopic.service.schedule.modeller import CertifiedModeller, NotVerified
from streamtopic.service.schedule.payload import Ingredients
from streamtopic.service.schedule.scheduler import describe
from streamtopic.signed import Envelope, Payload
from streamtopic.state import Base, RemainingBase

TASK = {"tasks": {"place": {"ridge": 1e-3, "tolerance": 1e-7}}}
MODES = {
    "default": {},
    "paper": {"learner": "paper"},
    "heads alone": {**TASK, "publish": "tasks", "epsilon": 5.0},
    # Constants that are estimated may lie on both sides of a step, and then another base is due: here they are set.
    "theorem": {
        "learner": "paper",
        "guarantee": "theorem",
        "epsilon": 0.5,
        "theorem": {"topic_imbalance": 4.0, "topic_condition": 0.05, "separability": 0.05},
    },
}
CANDIDATES = [
    ("rose tulip tulip soil morning",),
    ("oven oven oven flour people river", "oven salt"),
    ("anchor tide rose butter great small",),
    ("gull gull gull gull gull gull quiet", "rose gull", "gull tide tide"),
]
OUTSIDE = {
    "kind": "which step this was",
    "version": "how many versions there were",
    "parent": "how many versions there were",
    "base": "which versions were retrainings",
    "capacity": "of the base model, which held the forgotten documents",
    "cumulative_epsilon": "how many versions there were since the base",
    "forgotten": "how many documents were deleted",
    "withdrawn": "which versions hold deleted documents",
    "cut": "offsets in the log, where deletions are records",
    "counted": "how many documents came, the forgotten ones among them",
    "created": "a time",
    "release": "digest of the payload, which is compared itself",
}
"""Fields of an envelope that are about the deletion by nature, and outside the claim, each with the reason."""

ABOUT_THE_LOG = {"ledger", "receipts", "missing receipts", "release", "composition", "withdrawal", "deletions"}
"""Checks that say how many entries, deletions and versions there were, and the digest of the release."""

BY_SETTINGS = {"guarantee", "capacity_rule", "covered", "tokeniser", "excluded"}
"""Fields of an envelope that are copied from settings, or are constants of this mode."""


def corpus(number=150, seed=0):
    """Texts that lean to one of three topics each, two in three of them labelled."""
    return leaning(number, seed, label=lambda topic, k: {"place": topic} if k % 3 else {})


@pytest.fixture
def opened(tmp_path):
    """Return a function that opens an instance by name; instances share the noise key unless one is named."""

    def service(name, noise="shared", **more):
        own = {"capacity": {"rule": "fixed", "documents": 50}} | more
        return embedded(with_noise(tmp_path / name, noise), clock=lambda: 1_700_000_000.0, **own)

    return service


def updated_without(instance, candidates):
    """Publish a base with some candidates and an update without them; what is public of the update."""
    gone = [Document(f"gone-{k}", text, {}) for k, text in enumerate(candidates)]
    instance.add([*corpus(), *gone])
    instance.settle()
    instance.delete([document.id for document in gone])
    (version,) = instance.settle().versions
    assert (version["version"], version["kind"]) == (2, "unlearn")
    release = instance.release(2)
    evidence = instance.evidence(2, silent)
    return release, version, evidence


@pytest.mark.parametrize("mode", MODES)
def test_whichever_documents_were_forgotten_a_version_says_the_same(opened, mode):
    """Of four candidates, one to three documents each, an update shows none, to subscribers or in reports."""
    said, told, reported = [], [], []
    # An update under the theorem keeps the anchors of its base, which odd documents may change.
    ordinary = [(document.text,) for document in corpus(4, seed=3)]
    for k, candidates in enumerate(ordinary if mode == "theorem" else CANDIDATES):
        with opened(f"saw-{k}", **MODES[mode]) as instance:
            release, version, evidence = updated_without(instance, candidates)
        said.append(_inside(plain(release.envelope)))
        # Heads that are released are found to their tolerance only, which their noise covers.
        if mode != "heads alone":
            said[-1] |= plain(release.payload)
        told.append(_inside({name: value for name, value in version.items() if name != "seconds"}))
        reported.append(json.dumps([one for one in evidence["findings"] if one["name"] not in ABOUT_THE_LOG]))
    for seen in (said, told, reported):
        assert all(one == seen[0] for one in seen[1:])


def _inside(fields):
    return {name: value for name, value in fields.items() if name not in OUTSIDE}


@pytest.mark.parametrize("mode", ["default", "theorem"])
def test_digests_of_counts_are_keyed(opened, mode):
    """Whoever has the very documents, and not the noise key, cannot compute what the ledger says of the counts."""
    counts = []
    for name, noise in (("one", "shared"), ("two", "shared"), ("three", "other")):
        with opened(name, noise, **MODES[mode]) as instance:
            instance.add(corpus())
            instance.settle()
            counts.append(instance.release(1).envelope.commitment)
    assert counts[0] == counts[1] != counts[2]


KEY = NoiseKey(bytes(range(32)))


class Held(Counts):
    """Counts in memory, as a modeller takes them in the place of those of documents in Redis."""

    cuts, partial = (), False
    offsets: ClassVar = {}
    positions: ClassVar = {}

    def since(self, before):
        """Return these counts less others over the same words."""
        return Change(self.words, self.cooccurrence - before.cooccurrence)


class Change(Counts):
    """A difference whose passages are not known."""

    def passages(self):
        """Return none."""


def plain(value):
    """Return a value in a form in which equal bits are equal, and other bits are not."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return value.hex() if isinstance(value, float) else value


def published(made, base, kind, version):
    """Return all fields of a version that may not depend on forgotten documents, by name."""
    drawn = KEY.of("m", version)
    plan = made.draw(Ingredients(drawn, read=None))
    noise = {**plan.shown, "grid": plan.grid, "covariance_grid": plan.covariance_grid}
    places = {"kind": kind, "version": version, "parent": version - 1, "model": "m", "created": 0}
    facts = describe(made, base, base.documents - made.counts.documents)
    envelope = {**places, **facts, **noise, "commitment": drawn.commitment(plan.digest)}
    return {**_inside(plain(envelope)), **plain(plan.payload)}


def retrained(source, options):
    """Return a modeller, and what it made of counts, with the base model."""
    modeller = CertifiedModeller(options, CalibratedGuarantee(1.0, 1e-6, options.tolerance))
    made = modeller.retrain(source, 50)
    return modeller, made, Base(1, RemainingBase({}, {}, source.documents), made.anchors, 50)


def after_forgetting(modeller, base, retained, options):
    """Return what is published as version 2, once documents have left the base model; None if no model can be made."""
    try:
        made, kind = modeller.unlearn(retained, base), "unlearn"
        if isinstance(made, NotVerified):
            (_, made, base), kind = retrained(retained, options), "retrain"
    except CannotLearn:
        return None
    return published(made, base, kind, 2)


def differing(retained, candidates, options):
    """Return how many candidates had a base model, and the fields in which a version differs from a retraining's."""
    try:
        _, made, base = retrained(retained, options)
        twin = published(made, base, "retrain", 2)
    except CannotLearn:
        twin = None
    had, fields = 0, Counter()
    for gone in candidates:
        try:
            modeller, _, base = retrained(Held(retained.words, retained.cooccurrence + gone), options)
        # A service has no version to forget the candidate from.
        except CannotLearn:
            continue
        had += 1
        said = after_forgetting(modeller, base, retained, options)
        if said is None or twin is None:
            fields["whether there is a version"] += said is not twin
        else:
            fields.update(name for name in twin.keys() | said if said.get(name) != twin.get(name))
    return had, +fields


def test_every_field_is_compared_or_listed():
    """A new field of payload or envelope is thought of: it is compared here, or it is listed with a reason."""
    pool = KINDS["planted topics"](np.random.default_rng(0))
    options = dataclasses.replace(pool.options, learner="paper")
    _, made, base = retrained(Held(pool.names, pool.counts(np.ones(pool.size, bool))), options)
    compared = {*published(made, base, "retrain", 1)}
    fields = {field.name for kind in (Envelope, Payload) for field in dataclasses.fields(kind)}
    assert not compared & {*OUTSIDE, *BY_SETTINGS}
    assert fields == (compared & fields) | {*OUTSIDE, *BY_SETTINGS}
    # The only other numbers are the steps of the grids, which follow from sigma.
    assert compared - fields == {"grid", "covariance_grid"}


@pytest.mark.parametrize("kind", KINDS)
def test_random_forget_sets_leave_one_version(kind):
    """On ties, thresholds, near-singular anchors and other hard corpora too, by both learners."""
    total = 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        pool = KINDS[kind](rng)
        inside = rng.random(pool.size) < 0.8
        # The paper's learner has no guided topics.
        for learner in ("default",) if pool.options.guided else ("paper", "default"):
            options = dataclasses.replace(pool.options, learner=learner)
            own = dataclasses.replace(pool, options=options)
            retained = Held(pool.names, own.counts(inside))
            gone = []
            for _ in range(4):
                some = ~inside & (rng.random(pool.size) < 0.5)
                if some.any():
                    gone.append(own.counts(some))
            had, fields = differing(retained, gone, options)
            assert fields == {}, (seed, learner)
            total += had
    assert total >= 4


@pytest.mark.parametrize(("tolerance", "warm"), [(1e-6, True), (1e-8, False)])
def test_near_the_tolerance_a_model_learned_cold_decides_whether_there_is_a_version(tolerance, warm):
    """The certificate of a carried-over model depends on its path; here it is 5.2e-9, as is the one learned cold."""
    rng = np.random.default_rng(4)
    pool = KINDS["near-singular anchors"](rng)
    options = dataclasses.replace(pool.options, learner="paper", tolerance=tolerance)
    pool = dataclasses.replace(pool, options=options)
    inside = rng.random(pool.size) < 0.8
    retained, gone = pool.counts(inside), pool.counts(~inside)
    modeller, _, base = retrained(Held(pool.names, retained + gone), options)
    made = modeller.unlearn(Held(pool.names, retained), base)
    assert made.warm is warm
    assert made.certificate <= tolerance
