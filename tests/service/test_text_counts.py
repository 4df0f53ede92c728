"""The estimator and the service see the same text the same way."""

from collections import Counter
from hashlib import sha256

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from embedded_service import Service
from streamtopic import AnchorTopics, TextCounts, TextTopics
from streamtopic.documents.corpus import Document
from streamtopic.errors import UsageError
from streamtopic.settings import Settings

GROUPS = (
    ["rose", "tulip", "soil", "seed", "bloom", "compost", "spade", "2004"],
    ["oven", "flour", "butter", "knead", "simmer", "roast", "mp3", "機械学習"],
    ["mast", "tide", "crew", "cargo", "rope", "gull", "vessel", "Größe"],
)


def _texts(number):
    """Texts of three topics in several scripts; some are empty, or long, or hold words that are too long."""
    rng = np.random.default_rng(3)
    for k in range(number):
        shares = rng.dirichlet([0.2] * 3)
        length = 17_000 if k == 11 else 9_000 if k % 50 == 7 else 30
        words = [str(rng.choice(GROUPS[rng.choice(3, p=shares)])) for _ in range(length)]
        yield "..." if k == 5 else " ".join([*words, *["z" * 65] * (k % 3), f"Once{k}"])


def test_the_pipeline_learns_the_service_s_own_model(tmp_path):
    """Words, anchors and every bit of A before noise are those of a service that was sent the same texts.

    Both leave out the same words: the service reads them from a file. Its version names their digest.
    """
    excluded = ["mast", "größe", "nowhere"]
    file = tmp_path / "words.txt"
    file.write_text("\n".join([*excluded, ""]), "utf-8")
    texts = list(_texts(150))
    with Service(Settings(dir=tmp_path, topics=3, max_df=1.0, exclude_words=str(file))) as service:
        service.add([Document(f"d{k}", text) for k, text in enumerate(texts)])
        service.settle()
        expected = service.scheduler.modeller.last
        options = expected.options
        envelope = service.release(None).envelope
    topics = AnchorTopics(
        options.n_topics,
        learner=options.learner,
        min_df=options.min_df,
        max_df=options.max_df,
        anchor_min_df=options.anchor_min_df,
        max_words=options.max_words,
        exclude_words=excluded,
    )
    fitted = make_pipeline(TextCounts(), topics).fit(texts)[-1]
    columns, _ = fitted.word_places()
    assert tuple(fitted.feature_names_in_[columns]) == expected.words
    assert tuple(fitted.feature_names_in_[fitted.anchors_]) == expected.anchors
    assert np.array_equal(fitted.components_[:, columns].T, expected.A)
    assert expected.documents == len(texts)
    assert {"crew", "mast", "größe"} & {*expected.words} == {"crew"}
    lines = "".join(f"{word}\n" for word in sorted(excluded))
    assert (envelope.tokeniser, envelope.excluded) == ("streamtopic", sha256(lines.encode()).hexdigest())


def test_words_of_another_tokeniser_are_the_same_in_library_and_service(tmp_path):
    """Lists of words in the library, and counts in records, are one model; its release takes words, and no text."""
    documents = [[word.upper() for word in text.split()[:25]] for text in _texts(120) if text != "..."]
    chosen = {"topics": 3, "max_df": 1.0, "exclude_words": ["MAST"], "tokeniser": "capitals 1"}
    with Service(Settings(dir=tmp_path, **chosen)) as service:
        service.add([Document(f"d{k}", Counter(words)) for k, words in enumerate(documents)])
        service.settle()
        expected = service.scheduler.modeller.last
        release = service.release(None)
    fitted = TextTopics(3, max_df=1.0, exclude_words=["MAST"]).fit(documents)
    columns, _ = fitted.word_places()
    assert tuple(fitted.feature_names_in_[columns]) == expected.words
    assert np.array_equal(fitted.components_[:, columns].T, expected.A)
    found = release.transform([*documents[:3], Counter(documents[0])])
    assert np.array_equal(found[0], found[3])
    assert np.allclose(found[:3], fitted.transform(documents[:3]), atol=1e-3)
    assert release.envelope.tokeniser == "capitals 1"
    with pytest.raises(UsageError, match="capitals 1: give the words"):
        release.transform(["ROSE TULIP"])
