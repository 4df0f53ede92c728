"""A model that forgot documents of a real corpus is that of one that never saw them; `bench twin` runs whole ones."""

from pathlib import Path

import pytest

from streamtopic.bench.twins import KINDS, Twins
from streamtopic.documents.corpus import Corpus, load_jsonl
from streamtopic.topics.learner_options import LearnerOptions

# Real corpora, where they lie next to the repository; they are not shipped with it.
DATA = Path(__file__).parents[3] / "shared" / "data"
FILES = {"bbc": "bbc_news.jsonl.gz", "ag": "ag_news_test.jsonl.gz", "reuters": "reuters21578.jsonl.gz"}
# Every so many documents, so that all corpora and both learners take seconds; fewer candidates for the same reason.
STEPS = {"bbc": 4, "ag": 2, "reuters": 12}
CASES = [(name, learner) for name in STEPS for learner in ("default", "paper")]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def twins(request):
    """A model of one corpus."""
    name, learner = request.param
    path = DATA / FILES[name]
    if not path.exists():
        pytest.skip(f"corpora: needs {path.name} in {DATA}")
    whole = load_jsonl(path)
    corpus = Corpus(whole.name, whole.documents[:: STEPS[name]])
    return Twins(corpus, LearnerOptions(n_topics=8, learner=learner, max_candidates=400))


def test_forgetting_is_never_having_seen(twins):
    """Whatever is forgotten, an update serves it: counts bit for bit, words, anchors, A to 1e-12; certificate 1e-7."""
    outcomes = {forget.kind: twins.outcome(forget) for forget in twins.forget_sets(1, seed=3)}
    assert list(outcomes) == list(KINDS)
    for outcome in outcomes.values():
        assert outcome.forgotten > 0
        assert outcome.same_counts, outcome
        assert outcome.same_words, outcome
        assert outcome.difference <= 1e-12, outcome
        assert not outcome.retrain, outcome
        assert outcome.certificate <= 1e-7, outcome
    assert outcomes["all documents of an anchor"].new_anchors
