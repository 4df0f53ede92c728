"""`streamtopic topics --over` and `--by`."""

import json

import pytest

from streamtopic.cli import main

WORDS = (["rose", "tulip", "soil", "seed", "bloom"], ["oven", "flour", "butter", "knead", "roast"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a file of documents: kitchens take over from gardens, from month to month."""
    path = tmp_path_factory.mktemp("slices")
    with (path / "documents.jsonl").open("w", encoding="utf-8") as file:
        for k in range(150):
            month = k % 3
            words = [WORDS[(j + k) % 4 <= month][(3 * j + k) % 5] for j in range(8)]
            time = f"2026-0{month + 1}-11T08:00:00Z"
            line = {"id": k, "text": " ".join(words), "label": f"class {k % 2}", "ts": time}
            file.write(json.dumps(line) + "\n")
    return path


@pytest.fixture(scope="module")
def instance(folder):
    """Arguments that name an instance which has counted the file."""
    config = folder / "streamtopic.toml"
    config.write_text('dir = "instance"\ntopics = 2\nkeep_days = true\nmax_df = 1.0\n', encoding="utf-8")
    where = ["--config", str(config)]
    assert main(["init", *where]) == 0
    assert main(["add", str(folder / "documents.jsonl"), *where]) == 0
    assert main(["unlearn", *where]) == 0
    return where


def test_topics_over_time_as_json_and_for_a_person(instance, capsys):
    """Both show each period with shares that sum to 1, within their intervals."""
    capsys.readouterr()
    assert main(["topics", "--over", "month", "--json", *instance]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["time"] for one in told["slices"]] == ["2026-01", "2026-02", "2026-03"]
    assert (told["unit"], told["by"], told["floor"]) == ("month", None, 20)
    for one in told["slices"]:
        assert one["documents"] == 50
        assert sum(one["shares"]) == pytest.approx(1, abs=1e-5)
        assert all(
            low <= share <= high for low, share, high in zip(one["low"], one["shares"], one["high"], strict=True)
        )
    assert main(["topics", "--over", "quarter", "--by", "label", *instance]) == 0
    shown = capsys.readouterr().out
    assert "2026-Q1 class 0" in shown
    assert main(["topics", "--over", "month", *instance]) == 0
    shown = capsys.readouterr().out
    assert "2026-01 to 2026-03" in shown
    assert "█" in shown
    assert "95 % intervals" in shown


def test_an_instance_without_days_names_the_remedy(instance, capsys):
    """`--over` needs the setting; the error says so before anything is read."""
    assert main(["topics", "--over", "month", *instance, "--set", "keep_days=false"]) == 2
    assert "set keep_days = true" in capsys.readouterr().err
