"""Forget a person: documents name whom they are about, one request deletes them all, and one receipt covers them.

pip install '.[demo]' && python docs/examples/forget_person.py
"""

import random
import tempfile
from pathlib import Path

from streamtopic.client import DocumentProducer, ModelSubscriber, Receipts
from streamtopic.service.leading import embedded
from streamtopic.service.opened import opened
from streamtopic.settings import Settings

WORDS = ("rose tulip soil seed garden", "oven flour butter dough bread", "mast tide crew rope harbour")


def letters(number: int) -> list[tuple[str, str, str]]:
    """Return (id, text, customer): letters of three subjects, by customers who wrote ten each."""
    rng = random.Random(6)
    made = []
    for k in range(number):
        text = " ".join(rng.choices(WORDS[k % 3].split(), k=12))
        made.append((f"letter-{k}", text, f"customer-{k // 10}"))
    return made


def main(folder: Path) -> None:
    """Learn from 300 letters, forget customer 7, and check the receipt."""
    settings = Settings(dir=folder, topics=3, min_df=1, max_df=1.0, max_forget_lag=0, partitions=3)
    with (
        opened(settings) as service,
        embedded(service) as work,
        DocumentProducer(service.log, model=settings.model) as producer,
    ):
        for name, text, customer in letters(300):
            producer.add(name, text=text, subjects=[customer])
        work.settle()

        request = producer.delete_subject("customer-7")
        producer.add("letter-late", text="a letter that came while the request ran", subjects=["customer-7"])
        work.settle()

        reader = {"model": settings.model, "public_key": service.keys}
        for release in ModelSubscriber(service.log, **reader, idle_seconds=0):
            print(f"version {release.version}: {release.envelope.m} documents")
        receipts = Receipts(service.log, **reader)
        covering = receipts.covering(request)
        print(f"receipt: {covering.documents} documents, none is in version {covering.version}")
        (first, *_) = own = receipts.find(request)
        print(f"checked: {len(own)} documents have a receipt of their own")
        about = [name for name, _, _ in letters(300) if first.is_about(name, request.salt)]
        print("the first of them is about", about[0] if about else "letter-late")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
