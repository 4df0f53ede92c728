"""Real corpora, where they lie next to the repository; they are not shipped with it."""

from pathlib import Path

import pytest

from streamtopic.documents.corpus import Corpus, load_jsonl

DATA = Path(__file__).parents[3] / "shared" / "data"
FILES = {"bbc": "bbc_news.jsonl.gz", "ag": "ag_news_test.jsonl.gz", "reuters": "reuters21578.jsonl.gz"}


@pytest.fixture(scope="session")
def corpus_of():
    """Return a function that loads a corpus by name, thinned to every `step`-th document."""

    def load(name, step=1):
        path = DATA / FILES[name]
        if not path.exists():
            pytest.skip(f"corpora: needs {path.name} in {DATA}")
        whole = load_jsonl(path)
        return Corpus(whole.name, whole.documents[::step])

    return load
