"""The deletion capacity of a service: by each rule, at 0, after a restart, and independent of history."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from three_topics import leaning

from streamtopic.cli import main
from streamtopic.documents.corpus import Document
from streamtopic.errors import UsageError
from streamtopic.paper.calibration import CalibrationPlan
from streamtopic.paper.capacity_formulas import base_capacity, head_capacity_terms
from streamtopic.service.app import Service
from streamtopic.service.inspection import capacity_facts
from streamtopic.service.paper_mode import deletion_capacity
from streamtopic.service.paper_mode.deletion_capacity import CapacityRule, measure_capacity
from streamtopic.service.schedule.situation import Base
from streamtopic.service.schedule.version import kept_fields
from streamtopic.settings import Settings
from streamtopic.state import ModelState
from streamtopic.topics.heads import HeadTask
from streamtopic.topics.learner import learn
from streamtopic.topics.learner_options import LearnerOptions

OPTIONS = LearnerOptions(n_topics=3, max_df=1.0)


def corpus(number=160, seed=0):
    """Texts that lean to one of three topics each."""
    return leaning(number, seed, prefix=f"doc-{seed}")


def service(folder, **more):
    """An embedded instance that serves deletions at once."""
    plain = {"dir": folder, "topics": 3, "max_forget_lag": 0.0, "max_df": 1.0}
    return Service(Settings(**{**plain, **more}))


def kinds(instance):
    """How each version was made, and the capacity it had."""
    return [(version["kind"], version["capacity"]) for version in instance.versions()]


def whole_base(instance):
    """Return the base model of an instance with all that is kept of how its capacity was found."""
    stored = instance.state.base()
    return dataclasses.replace(Base.parse(stored), calibration=kept_fields(stored)["calibration"])


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder with an instance under the rule `calibrated`, and what its base says."""
    folder = tmp_path_factory.mktemp("calibrated") / "instance"
    with service(folder, capacity={"rule": "calibrated"}) as instance:
        instance.add(corpus())
        instance.settle()
        return folder, whole_base(instance)


@pytest.fixture
def copied(kept, tmp_path):
    """A copy of that instance to change."""
    shutil.copytree(kept[0], tmp_path / "copy")
    return tmp_path / "copy"


def test_trials_decide_and_are_kept_with_the_base(kept):
    """The capacity is what the trials bore; what they showed is stored, within the bound on updates."""
    base = kept[1]
    facts, tried = base.calibration, base.calibration["tried"]
    assert base.capacity == facts["limit"] == tried["limit"]
    assert base.capacity == min(tried["random_limit"], tried["aimed_limit"], tried["hard_limit"])
    assert 0 < tried["updates"] <= 100
    assert tried["sampled"] == facts["documents"] == 160
    assert facts["rule"] == "calibrated"
    assert sum(facts["shares"].values()) == pytest.approx(1)
    assert set(facts["shares"]) == set(facts["anchor_documents"]) == set(base.anchors)
    assert facts["hard_limit"] == min(facts["anchor_documents"].values()) - 1
    assert json.dumps(dict(facts), allow_nan=False)


def test_the_capacity_does_not_depend_on_history(kept, tmp_path):
    """Another order, another partitioning and deleted neighbours give the same trials and the same limit."""
    with service(tmp_path / "twin", capacity={"rule": "calibrated"}, partitions=3) as twin:
        twin.add([*corpus(40, seed=9), *corpus()[::-1]])
        twin.delete([document.id for document in corpus(40, seed=9)])
        seconds = twin.settle().seconds
        base = whole_base(twin)
    assert base.documents == 160
    assert seconds["try deletions"] == base.calibration["tried"]["seconds"]
    one, other = ({**b.calibration["tried"], "seconds": 0} for b in (kept[1], base))
    assert one == other
    assert {**kept[1].calibration, "tried": 0} == {**base.calibration, "tried": 0}


def test_a_restart_keeps_capacity_and_calibration(kept, copied):
    """They are read from Redis, whatever the settings are by then; new ones count from the next retrain on."""
    with service(copied, capacity={"rule": "fixed", "documents": 7}) as again:
        assert whole_base(again) == kept[1]
        assert again.status()["capacity_rule"] == "calibrated"
        assert "try deletions" not in again.settle(requested="retrain").seconds
        base = again.situation.base()
        assert (base.capacity, base.calibration["rule"], "tried" in base.calibration) == (7, "fixed", False)


def test_capacity_0_makes_every_deletion_a_retrain_and_says_so(tmp_path, capsys):
    """Nothing is borne: no update leaves out a document of the base, but new documents are still taken up by one."""
    with service(tmp_path, capacity={"rule": "fixed", "documents": 0}) as instance:
        instance.add(corpus())
        instance.settle()
        instance.add(corpus(20, seed=4))
        instance.settle()
        instance.delete(["doc-0-003"])
        done = instance.settle()
        assert kinds(instance) == [("retrain", 0), ("unlearn", 0), ("retrain", 0)]
        assert "exceeds the deletion capacity of 0" in done.versions[0]["reason"]
        assert done.receipts == 1
        status = instance.status()
        assert (status["capacity"], status["capacity_left"], status["capacity_rule"]) == (0, 0, "fixed")
    assert main(["capacity", "--dir", str(tmp_path)]) == 0
    assert "every deletion of a document of the base is a retrain" in capsys.readouterr().out


def test_what_is_used_up_ends_in_a_retrain(tmp_path):
    """Deletions up to the capacity are updates, the next one begins a new base with a new capacity."""
    with service(tmp_path, capacity={"rule": "fixed", "documents": 2}) as instance:
        instance.add(corpus())
        instance.settle()
        for number in (1, 5, 9):
            instance.delete([f"doc-0-{number:03d}"])
            instance.settle()
        assert [kind for kind, _ in kinds(instance)][-1] == "retrain"
        assert instance.status()["capacity_left"] == 2


class Fitted:
    """A model learned from an instance's counts."""

    def __init__(self, folder):
        self.instance = service(folder)

    def __enter__(self):
        self.instance.__enter__()
        self.counts = self.instance.reader.counts()
        self.fit = learn(self.counts, OPTIONS)
        return self

    def __exit__(self, *error):
        self.instance.__exit__(*error)


def test_each_rule_gives_its_number(copied):
    """Share, number, formula with c, formula of the task that bears least, and trials, each as documented."""
    with Fitted(copied) as made:
        fit, (n, r) = made.fit, made.fit.A.shape
        assert CapacityRule("share", share=0.1).limit(fit, 1, 1e-6) == 16
        assert CapacityRule("share", share=1e-6).limit(fit, 1, 1e-6) == 1
        assert CapacityRule("fixed", number=0).limit(fit, 1, 1e-6) == 0
        formula = base_capacity(1.0, 160, n, r, 1, 1e-6)
        rule = CapacityRule("theorem", constant=1000.0)
        assert CapacityRule("theorem").limit(fit, 1, 1e-6) == int(formula) == 0
        assert rule.limit(fit, 1, 1e-6) == int(1000 * formula) > 0
        assert CapacityRule("theorem", constant=1e308).limit(fit, 1, 1e-6) == 160
        order = np.argsort(fit.topic_masses)
        rare, common = (HeadTask((fit.anchors[order[k]],)) for k in (0, -1))
        # At this epsilon the first term is the least, which knows the task.
        asked = ([common], [common, rare], [rare], [HeadTask()], [HeadTask(("gone",))])
        limits = [CapacityRule("theorem", constant=1e6).limit(fit, 1e-4, 1e-6, tasks) for tasks in asked]
        assert limits[0] > limits[1] == limits[2] == limits[3] == limits[4] > 0
        with pytest.raises(UsageError, match="calibrate first"):
            CapacityRule("calibrated").limit(fit, 1, 1e-6)


def test_heads_in_place_of_topics_have_a_capacity_of_their_own(tmp_path):
    """Where tasks are published, the formula is that of the task which bears least, and it goes with the base."""
    more = {"publish": "tasks", "tasks": {"section": {"ridge": 1e-4}}}
    more["capacity"] = {"rule": "theorem", "constant": 1e4}
    more["epsilon"] = 0.01
    labelled = [Document(d.id, d.text, {"section": f"s{k % 2}"}) for k, d in enumerate(corpus())]
    with service(tmp_path, **more) as instance:
        instance.add(labelled)
        done = instance.settle()
        base = instance.situation.base()
        fit = learn(instance.reader.counts(), OPTIONS)
        n, r = fit.A.shape
        head = head_capacity_terms(1.0, 160, n, 0.01, 1e-6, fit.topic_masses)
    assert [version["kind"] for version in done.versions] == ["retrain"], done.decision
    assert base.calibration["formula"] == pytest.approx(head.formula, rel=5e-3)
    assert base.capacity == int(1e4 * head.formula) > 0
    assert head.binds == "noise"
    assert head.formula != pytest.approx(base_capacity(1.0, 160, n, r, 0.01, 1e-6))


def test_a_deletion_under_the_trials_changes_nothing(copied, monkeypatch):
    """A document that goes after the counts were taken is tried like all others that they count."""
    with Fitted(copied) as made:
        made.instance.delete(["doc-0-007"])
        for ingest in made.instance.ingests:
            assert [progress.outcomes for progress in ingest.drain()] == [{"deleted": 1}]
        monkeypatch.setattr(deletion_capacity, "TRIALS", CalibrationPlan(most_updates=4))
        measured = measure_capacity(CapacityRule("calibrated"), made.counts, made.fit, 1, 1e-6)
    tried = measured.facts["tried"]
    assert (measured.facts["documents"], tried["sampled"]) == (160, 160)
    assert (tried["updates"], tried["complete"]) == (4, False)


def test_the_command_shows_it_all(kept, capsys):
    """Base, heads with their topics, precondition, trials and what is left, for a person and as JSON."""
    anchor = kept[1].anchors[0]
    tasks = json.dumps({"one": {"topics": [anchor]}, "lost": {"topics": ["nowhere"]}})
    command = ["capacity", "--dir", str(kept[0]), "--set", f"tasks={tasks}", "--set", "capacity.rule=share"]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["capacity"], found["rule"], found["rule_set"]) == (kept[1].capacity, "calibrated", "share")
    assert found["left"] == found["capacity"] - found["used"]
    assert found["formula"]["limit"] == min(found["formula"]["noise"], found["formula"]["utility"])
    head = found["heads"]["one"]
    assert head["q"] == kept[1].calibration["shares"][anchor]
    assert head["ratio"] == pytest.approx(head["q"] * found["constants"]["a"] * 3)
    assert head["general"]["limit"] == min(head["general"]["terms"].values())
    assert "nowhere" in found["heads"]["lost"]["reason"]
    assert found["tried"]["random"] == kept[1].calibration["tried"]["random"]
    implied = found["tried"]["implied_constant"]
    assert implied == pytest.approx(found["capacity"] / found["formula"]["limit"])
    assert main(command) == 0
    shown = capsys.readouterr().out
    for part in ("by the rule `calibrated`", "the setting is `share` now", "head one (theorem 3)", "Implied c", anchor):
        assert part in shown


def test_trying_now_changes_nothing(copied, capsys, monkeypatch):
    """`--calibrate` tries the documents that are left, of which those deleted since are none, and keeps nothing."""
    with service(copied, capacity={"rule": "fixed"}, max_forget_lag=3600.0) as instance:
        instance.settle(requested="retrain")
        instance.delete(["doc-0-001", "doc-0-002"])
        instance.settle()
        before = instance.situation.base()
    monkeypatch.setattr(capacity_facts, "TRIALS", CalibrationPlan(most_updates=6))
    quick = ["--set", "topics=3", "--set", "max_df=1", "--json"]
    assert main(["capacity", "--dir", str(copied), "--calibrate", "--trials", "4", *quick]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["documents"] == found["tried"]["sampled"] == 158
    assert (found["tried"]["updates"], found["used"]) == (6, 2)
    assert all(probe["asked"] == 4 for probe in found["tried"]["random"])
    with service(copied) as instance:
        assert instance.situation.base() == before


def test_a_base_whose_bytes_are_gone_is_measured_when_asked(copied, capsys, monkeypatch):
    """Its head says the rule, and the figures are measured on the documents that are left."""
    whole = ModelState.base_head
    monkeypatch.setattr(ModelState, "base", whole)
    settings = ["--set", "topics=3", "--set", "max_df=1", "--json"]
    assert main(["capacity", "--dir", str(copied), *settings]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rule"], found["documents"]) == ("calibrated", 160)
    assert found["formula"]["limit"] > 0
    assert main(["capacity", "--dir", str(copied), *settings[:-1]]) == 0
    assert "By trial: " in capsys.readouterr().out


def test_wrong_use_is_named(tmp_path, capsys, kept):
    """No model yet, trials out of range and settings out of range each say what to do."""
    with service(tmp_path / "empty") as instance:
        instance.settle()
    assert main(["capacity", "--dir", str(tmp_path / "empty")]) == 2
    assert "no base model yet" in capsys.readouterr().err
    for wrong in ("0", "-1", "x", "99999", "1.5"):
        assert main(["capacity", "--dir", str(kept[0]), f"--trials={wrong}"]) == 2
        assert "1 to 10000" in capsys.readouterr().err
    ranges = ["documents=-1", f"documents={10**13}", "constant=inf", "constant=nan", "constant=0", "rule=guess"]
    for wrong in (f"capacity.{one}" for one in ranges):
        assert main(["capacity", "--dir", str(kept[0]), "--set", wrong]) == 2
        assert wrong.partition("=")[0] in capsys.readouterr().err
