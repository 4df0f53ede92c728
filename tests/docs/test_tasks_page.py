"""The page on downstream tasks is executed."""

import json
import re
from pathlib import Path

import numpy as np

from streamtopic.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
SUBJECTS = {
    "sport": "goal match team player minute cup league coach score win",
    "money": "bank profit share market price rate growth debt trade fund",
    "film": "actor film scene director award star cinema script role cast",
}


def blocks(language):
    """Code of the page."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_example_of_a_subscriber_runs(tmp_path, monkeypatch, capsys):
    """From the folder that the page's demo keeps, its Python classifies a text."""
    rng = np.random.default_rng(0)
    lines = []
    for k in range(300):
        label = list(SUBJECTS)[k % 3]
        words = [str(word) for word in rng.choice(SUBJECTS[label].split(), 25)]
        words += [str(word) for word in rng.choice(" ".join(SUBJECTS.values()).split(), 5)]
        lines.append(json.dumps({"id": str(k), "text": " ".join(words), "label": label}))
    (tmp_path / "bbc.jsonl").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    task = ["--set", 'tasks={"label": {}}', "--set", "max_df=1"]
    assert main(["demo", "--documents", "bbc.jsonl", "--topics", "3", *task, "--keep", "./news"]) == 0
    capsys.readouterr()
    (block,) = blocks("python")
    exec(compile(block, "tasks.md", "exec"), {})  # noqa: S102  executing it is the point
    heads, classes, shape, weights = capsys.readouterr().out.splitlines()
    assert heads == "('label',) ('film', 'money', 'sport')"
    assert classes == "['sport']"
    assert shape == "(1, 3)"
    assert weights.startswith("(30, 3) {'film': (")
