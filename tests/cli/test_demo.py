"""The demo: the whole flow, what it prints and what it promises."""

import json

import numpy as np
import pytest

from streamtopic.commands.demo import _passed

DEMO = ("demo", "--topics", 4, "--set", "max_df=1", "--documents")
ONE = '{"id": 1, "text": "one two"}\n'
VERSION = {"version", "kind", "documents", "forgotten", "epsilon", "delta", "sigma", "certificate", "seconds"}
STAGES = {"read_documents", "start_redis", "add_documents", "delete_documents", "twin"}
STAGES |= {"counting", "learning", "publishing"}


def test_the_demo_forgets_and_its_twin_agrees(program, sample_file):
    """Two versions, the second without the deleted documents and equal to a model that never saw them."""
    status, out, err = program(*DEMO, sample_file, "--delete", 5, "--json")
    assert status == 0, err
    found = json.loads(out)
    assert (found["documents"], found["skipped_lines"]) == (600, 1)
    assert [step["kind"] for step in found["steps"]] == ["unlearn", "retrain"]
    assert found["deleted"] == found["versions"][0]["capacity"] + 1
    assert found["twin"]["max_abs_difference"] <= 1e-12
    assert found["twin"]["words_equal"] is True
    documents = [version["documents"] for version in found["versions"]]
    assert documents == [600, 595, 600 - found["deleted"]]
    assert all(set(version) >= VERSION for version in found["versions"])
    assert found["subscriber"] == {"received": 3, "verified": 3}
    assert found["receipts"]["count"] == found["deleted"]
    assert found["receipts"]["example"]["found"] is True
    assert found["vocabulary"] > 100
    assert found["quality"].keys() == {"npmi", "diversity"}
    assert len(found["topics"]) == 4
    assert all(set(topic) == {"topic", "share", "words"} for topic in found["topics"])
    assert 0.9 < sum(topic["share"] for topic in found["topics"]) < 1.1
    assert "line 301" in err
    seconds = found["seconds"]
    total = seconds.pop("total")
    assert set(seconds) >= STAGES
    # No stage is told twice. Each figure is rounded to a tenth of a millisecond.
    assert sum(seconds.values()) <= total + 1e-4 * (len(seconds) + 1)


@pytest.mark.parametrize(
    ("content", "arguments", "named"),
    [
        ("", [], "no usable document"),
        ("not json\n", [], "line 1"),
        (ONE, ["--delete", "0"], "no version could be made"),
        (ONE, ["--delete", "1"], "cannot delete 1 of 1"),
        (
            '{"id": 1, "text": ""}\n{"id": 2, "text": "x \\u0000 \\u4e2d"}\n',
            ["--delete", "0"],
            "no version could be made",
        ),
    ],
    ids=range(5),
)
def test_input_that_cannot_work_ends_with_status_2(program, tmp_path, content, arguments, named):
    """One clear line, after any about single lines, and nothing left behind."""
    path = tmp_path / "input.jsonl"
    path.write_text(content, encoding="utf-8")
    status, _, err = program("demo", "--documents", path, "--json", *arguments)
    assert status == 2
    assert named in err.splitlines()[-1]
    assert "Traceback" not in err


RIGHT = {
    "subscriber": {"received": 3, "verified": 3},
    "receipts": {"count": 5},
    "deleted": 5,
    "twin": {"words_equal": True, "max_abs_difference": 1e-15},
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"subscriber": {"received": 3, "verified": 2}},
        {"subscriber": {"received": 0, "verified": 0}},
        {"receipts": {"count": 4}},
        {"twin": {"words_equal": False, "max_abs_difference": 0.0}},
        {"twin": {"words_equal": True, "max_abs_difference": 1e-11}},
        {"twin": None, "verify": {"failed": 1}},
    ],
)
def test_a_demo_in_which_anything_disagrees_has_not_passed(wrong):
    """A version that nobody verified, a deletion without a receipt, another twin and a failed check count alike."""
    assert _passed(RIGHT) is True
    assert _passed(RIGHT | wrong) is False


@pytest.mark.slow
def test_the_demo_runs_through_a_real_broker(program, sample_file):
    """`--kafka` shows the same with a broker of its own, and leaves none behind; it cannot be kept."""
    status, out, err = program(*DEMO, sample_file, "--delete", 5, "--kafka", "--json")
    if status == 3 and "Java" in err:
        pytest.skip(f"Kafka: needs a broker; {err}")
    assert status == 0, err
    found = json.loads(out)
    assert found["twin"] == {"max_abs_difference": pytest.approx(0, abs=1e-12), "words_equal": True}
    assert found["subscriber"]["received"] == found["subscriber"]["verified"] == 3
    assert found["receipts"]["count"] == found["deleted"]
    assert found["seconds"]["start_kafka"] > 0
    status, _, err = program(*DEMO, sample_file, "--kafka", "--keep", sample_file.parent / "kept")
    assert status == 2
    assert "--keep" in err


def test_the_private_demo_fits_on_one_screen(program, tmp_path):
    """Two versions, an attack by subtraction that finds nothing, and a verification that passes."""
    rng = np.random.default_rng(5)
    file = tmp_path / "texts.jsonl"
    with file.open("w") as lines:
        for number in range(1_500):
            words = rng.integers(20, size=12) + 20 * rng.integers(3)
            lines.write(json.dumps({"id": number, "text": " ".join(f"word{n}" for n in words)}) + "\n")
    status, out, err = program(
        *("demo", "--private", "--topics", 3, "--documents", file, "--set", "max_df=1"),
        *("--set", "private.epsilon=20", "--set", "private.versions=2", "--keep", tmp_path / "kept"),
    )
    assert status == 0, err
    after = out[out.index("Topics\n") :]
    assert len(after.splitlines()) <= 24
    for said in (
        "private: all versions of a period together",
        "candidates 300",
        "failed 0",
        "deleted 1",
        "receipts 1",
    ):
        assert said in " ".join(after.split())
