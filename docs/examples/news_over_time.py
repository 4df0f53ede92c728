"""The topics of dated documents from month to month, before and after some of them are forgotten.

python docs/examples/news_over_time.py reuters.jsonl.gz 20

Each line of the file is a JSON object with a "text" and a "date" such as 26-FEB-1987 or 1987-02-26.
"""

import gzip
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from streamtopic import AnchorTopics, TextCounts
from streamtopic.topics.over_time import TopicSlices

FORGOTTEN = 10


def day(text: str) -> str:
    """The day of a date in ISO 8601."""
    first = text.split(maxsplit=1)[0]
    if first[:4].isdigit():
        return first[:10]
    return datetime.strptime(first.title(), "%d-%b-%Y").replace(tzinfo=UTC).date().isoformat()


def read(path: Path) -> tuple[list[str], list[str]]:
    """Texts and days of a file of JSON lines, compressed or not."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    return [one["text"] for one in documents], [day(one["date"]) for one in documents]


def show(found: TopicSlices, model: AnchorTopics, words: tuple[str, ...]) -> None:
    """Print the first words of each topic and its share in each month."""
    for topic in model.topic_info(words, top=3):
        shares = [f"{share:.1%}" for share in found.shares[:, topic.id]]
        print(f"{' '.join(topic.words)}: {' '.join(shares)}")


def main() -> None:
    """Learn, show, forget, show again, and compare with a model that never saw the forgotten documents."""
    texts, days = read(Path(sys.argv[1]))
    counts = TextCounts()
    X = counts.fit_transform(texts)
    model = AnchorTopics(int(sys.argv[2]), max_df=0.9).fit(X)
    found = model.topics_over(X, times=days)
    print("months:", *found.times)
    show(found, model, counts.words_)

    model.unlearn(X[:FORGOTTEN])
    after = model.topics_over(X[FORGOTTEN:], times=days[FORGOTTEN:])
    print(f"{FORGOTTEN} documents forgotten; cold start: {model.retrain_reason_}")
    show(after, model, counts.words_)
    never = AnchorTopics(int(sys.argv[2]), max_df=0.9).fit(X[FORGOTTEN:])
    twin = never.topics_over(X[FORGOTTEN:], times=days[FORGOTTEN:])
    difference = np.abs(after.shares - twin.shares).max()
    print(f"largest difference of a share from a model that never saw them: {difference:.0e}")


if __name__ == "__main__":
    main()
