"""A small corpus with plain topics, and instances that the demo made of it, with commands on them."""

import json
import random
import shutil

import pytest

from streamtopic.cli import main

TOPICS = 4


def _word(rng):
    return "".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(3))


@pytest.fixture(scope="session")
def sample():
    """Lines of a corpus: 700 documents, each about one of four subjects of 60 made-up words, some words shared.

    A subject's first word is in its own documents only: the anchor, whichever few documents go.
    """
    rng = random.Random(5)
    words = sorted({_word(rng) for _ in range(400)})
    rng.shuffle(words)
    subjects, shared = [words[60 * k : 60 * k + 60] for k in range(TOPICS)], words[240:300]
    weights = [1 / (3 + k) for k in range(60)]
    lines = []
    for number in range(700):
        subject = number % TOPICS
        text = rng.choices(subjects[subject], weights, k=30) + rng.choices(shared, k=20)
        if rng.random() < 0.3:
            text += rng.choices(subjects[rng.randrange(TOPICS)][1:], weights[1:], k=15)
        lines.append(json.dumps({"id": f"doc-{number}", "text": " ".join(text), "label": str(subject)}))
    return lines


@pytest.fixture(scope="session")
def sample_file(sample, tmp_path_factory):
    """The first 600 documents in a file, with a bad line among them."""
    path = tmp_path_factory.mktemp("corpus") / "sample.jsonl"
    path.write_text("\n".join([*sample[:300], '{"id": "bad"', *sample[300:600]]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def program(capsys):
    """Run the program in this process: (status, standard output, standard error)."""

    def run(*arguments):
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return run


@pytest.fixture(scope="session")
def demo(sample_file, tmp_path_factory):
    """Return a function that makes an instance by a demo. deleted: how many documents the demo forgets."""

    def make(deleted):
        folder = tmp_path_factory.mktemp("made") / "instance"
        keep = ["--keep", str(folder), "--set", "max_df=1", "--set", "capacity.share=0.05", "--delete", str(deleted)]
        assert main(["demo", "--documents", str(sample_file), "--topics", "4", "--json", *keep]) == 0
        return folder

    return make


@pytest.fixture(scope="session")
def made(demo):
    """An instance with two versions and three receipts, to be copied."""
    return demo(3)


@pytest.fixture(scope="module")
def kept(made, tmp_path_factory):
    """A copy of it, for the story of one module."""
    return shutil.copytree(made, tmp_path_factory.mktemp("kept") / "instance")


@pytest.fixture
def instance(made, tmp_path):
    """A copy of it, for one test."""
    return shutil.copytree(made, tmp_path / "instance")


@pytest.fixture
def commands(program):
    """Return a function that runs commands on a folder: it returns JSON, or the error if a status is expected."""

    def of(folder):
        def run(command, *arguments, status=0):
            found, out, err = program(command, *arguments, "--dir", folder, "--json")
            assert found == status, out + err
            return json.loads(out) if out else err

        return run

    return of


@pytest.fixture
def on(commands, instance):
    """Run a command on the copy of this test."""
    return commands(instance)
