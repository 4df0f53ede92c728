"""Commands on an instance with downstream tasks: what people see of heads, and what is exported."""

import json
import re
from pathlib import Path

import pytest

from streamtopic.cli import main
from streamtopic.tensors import unpacked

PAGE = Path(__file__).parents[2] / "docs" / "tasks.md"
TASKS = '{"label": {"ridge": 1e-7}, "mood of the day": {}}'


@pytest.fixture(scope="module", params=["topics", "tasks"])
def kept(request, sample_file, tmp_path_factory):
    """An instance with two versions, and what the demo said of it; topics are published in one, withheld in one."""
    folder = tmp_path_factory.mktemp("kept") / "instance"
    how = ["max_df=1", "capacity.share=0.05", f"tasks={TASKS}", f"publish={request.param}", "tolerance=1e-9"]
    given = [argument for setting in how for argument in ("--set", setting)]
    assert (
        main(
            ["demo", "--documents", str(sample_file), "--topics", "4", "--delete", "18", "--keep", str(folder), *given]
        )
        == 0
    )
    return folder, request.param


@pytest.fixture
def on(program, kept):
    """Run a command on the instance; returns what it prints."""

    def run(command, *arguments, status=0):
        found, out, err = program(command, *arguments, "--dir", kept[0])
        assert found == status, err
        return out

    return run


def test_exports_hold_heads(kept, on, tmp_path):
    """With w beside the topics if these are published, else with B alone."""
    version = json.loads(on("status", "--json"))["version"]
    told = json.loads(on("export", version, "--to", tmp_path / "m", "--json"))
    assert (told["topics"], told["heads"]) == (4 if kept[1] == "topics" else 0, ["label"])
    assert "heads of label" in on("export", version, "--to", tmp_path / "m")
    arrays, texts = unpacked((tmp_path / "m" / "model.safetensors").read_bytes())
    head = json.loads(texts["release"])["heads"]["label"]
    assert head["classes"] == ["0", "1", "2", "3"]
    card = (tmp_path / "m" / "README.md").read_text()
    if kept[1] == "tasks":
        assert {name: array.shape[1] for name, array in arrays.items()} == {"heads/label/B": 4}
        assert "They are withheld." in card
    else:
        assert set(arrays) == {"A", "R", "shares", "heads/label/w"}
        assert arrays["heads/label/w"].shape == (len(head["topics"]), 4)


def test_the_page_s_subscriber_classifies(kept, tmp_path, monkeypatch, capsys):
    """The Python of docs/tasks.md, beside the folder that the demo has kept; no word of its text is known here."""
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    Path("news").symlink_to(kept[0])
    capsys.readouterr()
    exec(compile(block, "tasks.md", "exec"), {})  # noqa: S102  executing it is the point
    assert capsys.readouterr().out.startswith("('label',) ('0', '1', '2', '3')\n[None]\n(1, 4)\n")
