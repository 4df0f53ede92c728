"""The deletion capacity of a service: by each rule, at 0, after a restart, and independent of history."""

import json
import shutil

import numpy as np
import pytest
from embedded_service import embedded
from three_topics import leaning

from streamtopic.cli import main
from streamtopic.documents.corpus import Document
from streamtopic.paper.capacity_formulas import base_capacity, head_capacity_terms
from streamtopic.service.assembly import capacity_limit
from streamtopic.settings import Settings
from streamtopic.topics.learner import learn
from streamtopic.topics.learner_options import LearnerOptions

OPTIONS = LearnerOptions(n_topics=3, max_df=1.0)


def corpus(number=160, seed=0):
    """Texts that lean to one of three topics each."""
    return leaning(number, seed, prefix=f"doc-{seed}")


def limit(fit, tasks=(), epsilon=1.0, **capacity):
    """Return the capacity of a model under these settings, with tasks in the place of topics if there are any."""
    named = {f"task{k}": task for k, task in enumerate(tasks)}
    alone = {"publish": "tasks", "tasks": named} if named else {}
    return capacity_limit(Settings(epsilon=epsilon, capacity=capacity, **alone), fit)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder with an instance, and its base model."""
    folder = tmp_path_factory.mktemp("kept") / "instance"
    with embedded(folder, capacity={"rule": "fixed", "documents": 9}) as instance:
        instance.add(corpus())
        instance.settle()
        return folder, instance.situation.base()


@pytest.fixture
def copied(kept, tmp_path):
    """A copy of that instance to change."""
    shutil.copytree(kept[0], tmp_path / "copy")
    return tmp_path / "copy"


def test_a_restart_keeps_the_capacity(kept, copied):
    """It is read from Redis, whatever the settings are by then; new ones count from the next retrain on."""
    with embedded(copied, capacity={"rule": "fixed", "documents": 7}) as again:
        assert again.situation.base() == kept[1]
        assert (again.status()["capacity"], again.status()["capacity_rule"]) == (9, "fixed")
        again.settle(requested="retrain")
        assert again.situation.base().capacity == 7


class Fitted:
    """A model learned from an instance's counts."""

    def __init__(self, folder):
        self.instance = embedded(folder)

    def __enter__(self):
        self.instance.__enter__()
        self.counts = self.instance.reader.counts()
        self.fit = learn(self.counts, OPTIONS)
        return self

    def __exit__(self, *error):
        self.instance.__exit__(*error)


def test_each_rule_gives_its_number(copied):
    """Share, number, formula with c, and formula of the task that bears least, each as documented."""
    with Fitted(copied) as made:
        fit, (n, r) = made.fit, made.fit.A.shape
        assert limit(fit, rule="share", share=0.1) == 16
        assert limit(fit, rule="share", share=1e-6) == 1
        assert limit(fit, rule="fixed", documents=0) == 0
        formula = base_capacity(1.0, 160, n, r, 1, 1e-6)
        assert limit(fit, rule="theorem") == int(formula) == 0
        assert limit(fit, rule="theorem", constant=1000.0) == int(1000 * formula) > 0
        assert limit(fit, rule="theorem", constant=1e308) == 160
        order = np.argsort(fit.topic_masses)
        rare, common = ({"topics": (fit.anchors[order[k]],)} for k in (0, -1))
        # At this epsilon the first term is the least, which knows the task.
        asked = ([common], [common, rare], [rare], [{}], [{"topics": ("gone",)}])
        limits = [limit(fit, tasks, epsilon=1e-4, rule="theorem", constant=1e6) for tasks in asked]
        assert limits[0] > limits[1] == limits[2] == limits[3] == limits[4] > 0


def test_heads_in_place_of_topics_have_a_capacity_of_their_own(tmp_path):
    """Where tasks are published, the formula is that of the task which bears least, and it goes with the base."""
    more = {"publish": "tasks", "tasks": {"section": {"ridge": 1e-4}}}
    more["capacity"] = {"rule": "theorem", "constant": 1e4}
    more["epsilon"] = 0.01
    labelled = [Document(d.id, d.text, {"section": f"s{k % 2}"}) for k, d in enumerate(corpus())]
    with embedded(tmp_path, **more) as instance:
        instance.add(labelled)
        done = instance.settle()
        base = instance.situation.base()
        fit = learn(instance.reader.counts(), OPTIONS)
        n, r = fit.A.shape
        head = head_capacity_terms(1.0, 160, n, 0.01, 1e-6, fit.topic_masses)
    assert [version["kind"] for version in done.versions] == ["retrain"], done.decision
    assert base.capacity == int(1e4 * head.formula) > 0
    assert head.binds == "noise"
    assert head.formula != pytest.approx(base_capacity(1.0, 160, n, r, 0.01, 1e-6))


def test_the_command_shows_it_all(copied, capsys):
    """Base, heads with their topics and what is left, for the documents that are left, as text and as JSON."""
    with embedded(copied, max_forget_lag=3600.0) as instance:
        instance.delete(["doc-0-001", "doc-0-002"])
        instance.settle()
        fit = learn(instance.reader.counts(), OPTIONS)
    anchor = fit.anchors[0]
    tasks = json.dumps({"one": {"topics": [anchor]}, "lost": {"topics": ["nowhere"]}})
    plain = ["topics=3", "max_df=1", f"tasks={tasks}", "capacity.rule=share"]
    command = ["capacity", "--dir", str(copied), *(part for one in plain for part in ("--set", one))]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["capacity"], found["rule"], found["rule_set"]) == (9, "fixed", "share")
    assert (found["used"], found["left"], found["documents"], found["base_documents"]) == (2, 7, 158, 160)
    assert found["formula"]["limit"] == min(found["formula"]["noise"], found["formula"]["utility"])
    head = found["heads"]["one"]
    assert head["q"] == fit.topic_masses[0]
    assert head["ratio"] == pytest.approx(head["q"] * found["constants"]["a"] * 3)
    assert head["general"]["limit"] == min(head["general"]["terms"].values())
    assert "nowhere" in found["heads"]["lost"]["reason"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    for part in ("by the rule `fixed`", "the setting is `share` now", "head one (theorem 3)", found["rarest_anchor"]):
        assert part in shown
