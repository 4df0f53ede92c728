"""The benchmark of twins: it measures every kind of forget set, and it fails where a model remembers."""

import json
import math

import numpy as np
import pytest

from streamtopic.bench import run, twins
from streamtopic.bench.cases import twin
from streamtopic.cli import main
from streamtopic.documents.corpus import load_corpus
from streamtopic.errors import CheckFailed, UsageError
from streamtopic.topics.learner_options import LearnerOptions
from streamtopic.topics.update import NeedsRetrain, Updated

SMALL = {"topics": 3, "draws": 2, "seed": 1}


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """A file of labelled texts that lean to one of three topics each."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("twin") / "documents.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for k in range(240):
            own = [f"topic{k % 3}word{j}" for j in rng.zipf(1.3, 40) % 200]
            shared = [f"common{j}" for j in rng.integers(0, 150, 6)]
            file.write(json.dumps({"id": k, "text": " ".join([*own, *shared]), "label": f"class {k % 3}"}) + "\n")
    return str(path)


@pytest.mark.parametrize("learner", ["default", "paper"])
def test_every_kind_is_measured(learner, documents):
    """Each kind of forget set has its size, its retrains and its difference to the twin, below 1e-12."""
    found = {figure.name: figure for figure in twin.CASES[learner](documents=documents, **SMALL)}
    assert found["documents"].value == 240
    for kind in twins.KINDS:
        assert found[f"{kind}: documents forgotten"].value >= 1
        assert found[f"{kind}: retrains"].unit == "of 2"
        assert found[f"{kind}: other anchors"].unit == "of 2"
        assert found[f"{kind}: difference"].value <= 1e-12
    assert found["all documents of an anchor: other anchors"].value == 2
    assert found["10 % of documents: documents forgotten"].value == 24
    assert found["one class: documents forgotten"].value == 80
    assert found["one after another: retrains"].unit == "of 20"
    assert found["one after another: difference at the end"].value <= 1e-12
    assert all(math.isfinite(figure.value) for figure in found.values())


def test_a_chain_counts_retrains_and_fails_where_a_model_remembers(documents, monkeypatch):
    """Each refused update is one retrain, by its reason; a model that stays as it was is found out at the end."""
    made = twins.Twins(load_corpus(documents), LearnerOptions(n_topics=3))
    monkeypatch.setattr(twins, "update", lambda *_: NeedsRetrain("no reason: at all"))
    chain = made.chain(4)
    assert chain.retrains == {"no reason": 4}
    assert (chain.same_words, chain.difference) == (True, 0.0)
    monkeypatch.setattr(twins, "update", lambda fit, *_: Updated(fit))
    with pytest.raises(CheckFailed, match="differs from its twin"):
        twin._chained(made.chain(4))


@pytest.mark.parametrize("broken", ["counts", "update"])
def test_a_model_that_remembers_fails(broken, documents, monkeypatch):
    """If a document stays in the counts, or the update leaves the model as it was, the benchmark ends with status 1."""
    if broken == "update":
        monkeypatch.setattr(twins, "update", lambda fit, *_: Updated(fit))
    else:
        plain = twins.count

        def forgetful(batch, n, weighting):
            kept = batch.documents - (batch.documents < 120)
            return plain(batch.take(np.arange(kept)), n, weighting)

        monkeypatch.setattr(twins, "count", forgetful)
    with pytest.raises(CheckFailed, match="differs from its twin"):
        twin.CASES["paper"](documents=documents, **SMALL)


def test_it_runs_from_the_command_line(documents, capsys):
    """File, topics and draws are taken from the command line; a file that is not there is refused in one line."""
    given = ["--documents", documents, "--topics", "3", "--draws", "1"]
    assert main(["bench", "twin", "--case", "paper", *given, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)["cases"][0]["figures"]
    assert {"name": "1 document: documents forgotten", "value": 1, "unit": "documents", "target": ""} in figures
    assert main(["bench", "twin", "--documents", documents + "x"]) == 2
    assert "cannot read" in capsys.readouterr().err
    with pytest.raises(UsageError, match="noise has no option documents"):
        run("noise", options={"documents": documents})
