"""Code of others on our models: gensim's coherence, and topicwizard in an environment of its own."""

import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest

from streamtopic import TextTopics

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "deploy" / "outsiders.lock"
SUBJECTS = ("car engine wheel road driver", "cat dog fur paw vet", "rain wind cloud storm snow")
# What topicwizard's app asks of a model before it shows anything.
WIZARD = """
import sys
import numpy as np
from sklearn.pipeline import make_pipeline
from topicwizard.pipeline import make_topic_pipeline
from streamtopic import AnchorTopics, TextCounts

texts = sys.stdin.read().splitlines()
pipeline = make_topic_pipeline(TextCounts(), AnchorTopics(3, max_df=1.0))
data = pipeline.prepare_topic_data(texts)
print(data["document_topic_matrix"].shape, data["topic_term_matrix"].shape, len(data["vocab"]), data["topic_names"])
"""


def texts(documents=300):
    """Texts of some words of one of three subjects."""
    rng = np.random.default_rng(5)
    subjects = [subject.split() for subject in SUBJECTS]
    return [" ".join(rng.choice(subjects[rng.integers(3)], 4)) for _ in range(documents)]


def test_pyldavis_saves_what_it_is_given(tmp_path):
    """A page with every topic, of texts as well as of counts."""
    pyldavis = pytest.importorskip("pyLDAvis")
    written = texts()
    model = TextTopics(3, max_df=1.0).fit(written)
    data = model.pyldavis_data(written, terms=4)
    assert sorted(data.topic_order) == [1, 2, 3]
    assert data.topic_coordinates["Freq"].sum() == pytest.approx(100)
    with (tmp_path / "map.html").open("w") as page:
        pyldavis.save_html(data, page)
    assert "engine" in (tmp_path / "map.html").read_text()


@pytest.mark.slow
def test_topicwizard_prepares_a_pipeline(tmp_path):
    """It opens on a pipeline of ours: documents, topics and words are those of the model."""
    venv.create(tmp_path, with_pip=True)
    python = tmp_path / "bin" / "python"
    options = ["-q", "--no-compile", "--require-hashes", "--only-binary=:all:"]
    subprocess.run([python, "-m", "pip", "install", *options, "-r", LOCK], check=True, stdout=sys.stderr)
    done = subprocess.run(
        [python, "-W", "ignore", "-c", WIZARD],
        input="\n".join(texts()), capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "\n(300, 3) (3, 15) 15 [" in done.stdout
