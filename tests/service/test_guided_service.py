"""Guided topics in a service: named in settings, published by name, and ended by deletions without a retrain."""

import numpy as np
from test_twin import DOCUMENTS, newest
from three_topics import TOPICS

from embedded_service import embedded
from shared_noise import with_noise
from streamtopic.documents.corpus import Document
from streamtopic.service.verify import passed

GUIDED = {"cooking": ("oven", "flour"), "sea": ("gull", "tide")}


def test_a_guided_topic_stands_in_the_version_by_its_name(tmp_path):
    """Names come behind anchor words, seeds are said, and the topic's words are those of its seeds."""
    with embedded(tmp_path, topics=3, guided=GUIDED) as instance:
        instance.add(DOCUMENTS)
        _, release = newest(instance)
        assert release.envelope.r == 3
        assert release.anchors[1:] == ("cooking", "sea")
        assert release.payload.guided == {name: tuple(sorted(seeds)) for name, seeds in GUIDED.items()}
        cooking, sea = release.payload.top_words[1:]
        assert set(TOPICS["kitchen"]) == set(cooking[:8])
        assert set(TOPICS["harbour"]) == set(sea[:8])
        assert passed(instance.verify())


def test_a_guided_topic_goes_on_and_ends_as_its_seeds_leave(tmp_path):
    """Deletions that take a seed leave the topic with the others; without any it ends, in an update."""
    # The second seed stands in the later half of these documents only.
    rare = ("lighthouse", "pelican")
    extra = []
    for k, document in enumerate(DOCUMENTS[:24]):
        text = f"{document.text} {rare[0]} {rare[k >= 12]}"
        extra.append(Document(f"bird-{k}", text, {}))
    own = {"topics": 4, "guided": {"birds": rare}}
    with embedded(with_noise(tmp_path / "saw"), **own) as saw, embedded(with_noise(tmp_path / "never"), **own) as never:
        saw.add(DOCUMENTS)
        saw.add(extra)
        _, release = newest(saw)
        assert release.payload.guided == {"birds": rare}
        saw.delete([document.id for document in extra[12:]])
        _, release = newest(saw)
        assert release.envelope.kind == "unlearn"
        assert release.payload.guided == {"birds": rare[:1]}
        assert release.envelope.r == 4
        saw.delete([document.id for document in extra[:12]])
        fit, release = newest(saw)
        never.add(DOCUMENTS)
        twin, untouched = newest(never)
        assert release.envelope.kind == "unlearn"
        assert release.payload.guided == untouched.payload.guided == {"birds": ()}
        assert release.anchors == untouched.anchors
        assert release.envelope.r == untouched.envelope.r == 3
        assert np.abs(fit.A - twin.A).max() <= 1e-12
        (remark,) = [remark for remark in saw.status()["remarks"] if "guided" in remark]
        assert "birds" in remark


# Without the last document no word is a mixture with a share of the topic of "aa", "bb" and "dd".
FEW = ["aa bb dd ee", "ee ee", "cc", "dd ee", "dd ee", "cc cc cc ee ee", "aa bb", "bb", "bb bb cc dd dd dd"]


def test_a_deletion_that_leaves_a_guided_topic_without_mass_gives_a_version_and_a_receipt(tmp_path):
    """The topic ends in an update, as one without seeds does, and the deletion has its receipt."""
    documents = [Document(f"few-{k}", text, {}) for k, text in enumerate(FEW)]
    guided = {"ends": ("aa", "bb", "dd"), "stays": ("dd", "ee")}
    with embedded(tmp_path, topics=3, min_df=1, min_share=0.0, guided=guided) as instance:
        instance.add(documents)
        _, release = newest(instance)
        assert release.anchors[1:] == ("ends", "stays")
        instance.delete([documents[-1].id])
        fit, release = newest(instance)
        assert release.envelope.kind == "unlearn"
        assert release.payload.guided == {"ends": (), "stays": ("dd", "ee")}
        assert release.anchors[1:] == ("stays",)
        assert np.isfinite(fit.A).all()
        assert len(instance.receipts()) == 1
        assert passed(instance.verify())
