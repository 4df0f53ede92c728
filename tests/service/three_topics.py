"""Documents about three topics of eight words each, for tests that compare a service with its twin."""

import numpy as np

from streamtopic.documents.corpus import Document

TOPICS = {
    "garden": ["rose", "tulip", "soil", "seed", "bloom", "compost", "spade", "hedge"],
    "kitchen": ["oven", "flour", "butter", "knead", "simmer", "roast", "spoon", "salt"],
    "harbour": ["anchor", "vessel", "tide", "crew", "cargo", "mast", "rope", "gull"],
}
SHARED = ["morning", "people", "river", "light", "small", "great", "quiet", "stone"]


def leaning(number=160, seed=0, label=lambda *_: {}, prefix="doc"):
    """Return texts that lean to one topic each, with words that all topics share.

    label: given the name of the topic and the number of the document, returns the document's labels.
    prefix: of the ids.
    """
    rng = np.random.default_rng(seed)
    documents = []
    for k in range(number):
        shares = rng.dirichlet([0.2] * len(TOPICS))
        words = [str(rng.choice(TOPICS[str(rng.choice(list(TOPICS), p=shares))])) for _ in range(30)]
        words += [str(word) for word in rng.choice(SHARED, 6)]
        labels = label(list(TOPICS)[int(shares.argmax())], k)
        documents.append(Document(f"{prefix}-{k:03d}", " ".join(words), labels))
    return documents


def never_saw(instance, documents):
    """Let a service make its second version of documents, learned anew, as the twin of one that forgot others."""
    instance.add(documents)
    instance.settle()
    instance.state.request("retrain")
    instance.settle()
