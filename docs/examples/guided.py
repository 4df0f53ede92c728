"""Guided topics over a file of documents, before and after some of them are forgotten.

python docs/examples/guided.py documents.jsonl.gz 20 space=orbit,nasa cars=car,engine

Each line of the file is a JSON object with a "text".
"""

import gzip
import json
import sys
from pathlib import Path

import numpy as np

from streamtopic import AnchorTopics, TextCounts

FORGOTTEN = 10


def read(path: Path) -> list[str]:
    """Texts of a file of JSON lines, compressed or not."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


def show(model: AnchorTopics, words: tuple[str, ...]) -> None:
    """Print the name and the first words of each topic."""
    for topic in model.topic_info(words, top=8):
        print(f"{topic.name}:", *topic.words)


def main() -> None:
    """Learn, show, forget, and compare with a model that never saw the forgotten documents."""
    path, topics, *guides = sys.argv[1:]
    seeds = dict(guide.split("=", 1) for guide in guides)
    guided = {name: words.split(",") for name, words in seeds.items()}
    counts = TextCounts()
    X = counts.fit_transform(read(Path(path)))
    model = AnchorTopics(int(topics), guided=guided, max_df=0.4).fit(X)
    show(model, counts.words_)

    model.unlearn(X[:FORGOTTEN])
    print(f"{FORGOTTEN} documents forgotten; cold start: {model.retrain_reason_}")
    for note in model.guided_notes_:
        print(note)
    never = AnchorTopics(int(topics), guided=guided, max_df=0.4).fit(X[FORGOTTEN:])
    difference = np.linalg.norm(model.components_ - never.components_)
    print(f"difference from a model that never saw them: {difference:.1e}")
    print(f"proven bound: {model.certificate_ + never.certificate_:.1e}")


if __name__ == "__main__":
    main()
