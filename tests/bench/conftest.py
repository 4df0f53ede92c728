import json

import numpy as np
import pytest


@pytest.fixture(scope="session")
def documents(tmp_path_factory):
    """A file of labelled texts that lean to one of three topics each."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("twin") / "documents.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for k in range(240):
            own = [f"topic{k % 3}word{j}" for j in rng.zipf(1.3, 40) % 200]
            shared = [f"common{j}" for j in rng.integers(0, 150, 6)]
            file.write(json.dumps({"id": k, "text": " ".join([*own, *shared]), "label": f"class {k % 3}"}) + "\n")
    return str(path)
