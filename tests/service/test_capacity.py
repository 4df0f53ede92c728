"""The deletion capacity of a service: by each rule, and after a restart."""

import shutil
from types import SimpleNamespace

import pytest
from three_topics import leaning

from embedded_service import embedded
from streamtopic.service.assembly import capacity_limit
from streamtopic.settings import Settings


def corpus(number=160, seed=0):
    """Texts that lean to one of three topics each."""
    return leaning(number, seed, prefix=f"doc-{seed}")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder with an instance, and its base model."""
    folder = tmp_path_factory.mktemp("kept") / "instance"
    with embedded(folder, capacity={"rule": "fixed", "documents": 9}) as instance:
        instance.add(corpus())
        instance.settle()
        return folder, instance.facts().base


@pytest.fixture
def copied(kept, tmp_path):
    """A copy of that instance to change."""
    shutil.copytree(kept[0], tmp_path / "copy")
    return tmp_path / "copy"


def test_a_restart_keeps_the_capacity(kept, copied):
    """It is read from Redis, whatever the settings are by then; new ones count from the next retrain on."""
    with embedded(copied, capacity={"rule": "fixed", "documents": 7}) as again:
        assert again.facts().base == kept[1]
        assert (again.status()["capacity"], again.status()["capacity_rule"]) == (9, "fixed")
        again.state.request("retrain")
        again.settle()
        assert again.facts().base.capacity == 7


def test_each_rule_gives_its_number():
    """A share of the documents, but at least one of them; or a number, 0 too."""
    fit = SimpleNamespace(documents=160)
    for given, limit in (({"share": 0.1}, 16), ({"share": 1e-6}, 1), ({"rule": "fixed", "documents": 0}, 0)):
        assert capacity_limit(Settings(capacity=given), fit) == limit
