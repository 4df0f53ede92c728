"""The estimator and the service see the same text the same way."""

import numpy as np
from sklearn.pipeline import make_pipeline

from streamtopic import AnchorTopics, TextCounts
from streamtopic.documents.corpus import Document
from streamtopic.service.app import Service
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
    """Words, anchors and every bit of A before noise are those of a service that was sent the same texts."""
    texts = list(_texts(150))
    with Service(Settings(dir=tmp_path, topics=3, max_df=1.0)) as service:
        service.add([Document(f"d{k}", text) for k, text in enumerate(texts)])
        service.settle()
        expected = service.model_before_noise()
        options = expected.options
    topics = AnchorTopics(
        options.n_topics,
        learner=options.learner,
        min_df=options.min_df,
        max_df=options.max_df,
        anchor_min_df=options.anchor_min_df,
        max_words=options.max_words,
    )
    fitted = make_pipeline(TextCounts(), topics).fit(texts)[-1]
    columns, _ = fitted.word_places()
    assert tuple(fitted.feature_names_in_[columns]) == expected.words
    assert tuple(fitted.feature_names_in_[fitted.anchors_]) == expected.anchors
    assert np.array_equal(fitted.components_[:, columns].T, expected.A)
    assert expected.documents == len(texts)
