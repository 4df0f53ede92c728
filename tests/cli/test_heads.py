"""Commands on an instance with downstream tasks: what people see of heads, and what is exported."""

import json
import re
from pathlib import Path

import pytest

from streamtopic.cli import main
from streamtopic.tensors import unpacked

PAGE = Path(__file__).parents[2] / "docs" / "tasks.md"
TASKS = '{"label": {"ridge": 1e-7}, "mood of the day": {}}'


@pytest.fixture(scope="module")
def kept(sample_file, tmp_path_factory):
    """An instance with two versions of heads, which withholds its topics."""
    folder = tmp_path_factory.mktemp("kept") / "instance"
    how = ["max_df=1", "capacity.share=0.05", f"tasks={TASKS}", "publish=tasks", "tolerance=1e-9"]
    given = [f"--set={setting}" for setting in how]
    usual = f"demo --documents {sample_file} --topics 4 --delete 18 --keep {folder}"
    assert main([*usual.split(), *given]) == 0
    return folder


def test_exports_hold_heads(kept, program, commands, tmp_path):
    """B alone, where topics are withheld; the card says so."""
    version = commands(kept)("status")["version"]
    told = commands(kept)("export", version, "--to", tmp_path / "m")
    assert (told["topics"], told["heads"]) == (0, ["label"])
    assert "heads    label" in program("export", version, "--to", tmp_path / "m", "--dir", kept)[1]
    arrays, texts = unpacked((tmp_path / "m" / "model.safetensors").read_bytes())
    assert json.loads(texts["release"])["heads"]["label"]["classes"] == ["0", "1", "2", "3"]
    assert {name: array.shape[1] for name, array in arrays.items()} == {"heads/label/B": 4}
    assert "They are withheld." in (tmp_path / "m" / "README.md").read_text()


def test_the_page_s_subscriber_classifies(kept, tmp_path, monkeypatch, capsys):
    """The Python of docs/tasks.md, beside the folder that the demo has kept; no word of its text is known here."""
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    Path("news").symlink_to(kept)
    capsys.readouterr()
    exec(compile(block, "tasks.md", "exec"), {})  # noqa: S102  executing it is the point
    assert capsys.readouterr().out.startswith("('label',) ('0', '1', '2', '3')\n[None]\n(1, 4)\n")
