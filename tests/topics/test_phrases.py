"""Phrases of topics: pairs of top words that stand side by side, chosen by whole numbers."""

from collections import Counter

import pytest

from streamtopic import TextTopics
from streamtopic.topics.phrases import Phrase, PhraseFinder, choose_phrases

TOPICS = [["neural", "network", "layer"], ["interest", "rates", "network"]]
CARS = ["fast car engine wheel road", "wheel road fast car brake", "engine brake of a fast car"] * 30
PETS = ["cat dog fur paw", "dog paw cat tail", "fur tail cat"] * 30


def test_pairs_are_neighbours_that_share_a_topic():
    """A pair counts once a document, in its order; words of two topics, and a word said twice, are not phrases."""
    finder = PhraseFinder(TOPICS)
    words = ["neural", "network", "and", "neural", "network", "neural", "rates", "network", "network", "layer"]
    assert finder.pairs(words) == {
        ("neural", "network"),
        ("network", "neural"),
        ("rates", "network"),
        ("network", "layer"),
    }
    assert finder.pairs(["neural", "rates", "layer", "interest"]) == set()
    assert finder.pairs([]) == finder.pairs(["neural"]) == set()
    assert finder.words == {"neural", "network", "layer", "interest", "rates"}


def test_rare_and_chance_pairs_are_left_out():
    """A phrase needs as many documents as the floor, and a tenth of those with its rarer word."""
    pairs = {("neural", "network"): 20, ("network", "layer"): 19, ("interest", "rates"): 40, ("rates", "network"): 40}
    frequency = {"neural": 100, "network": 5_000, "layer": 30, "interest": 401, "rates": 400}
    chosen = choose_phrases(TOPICS, pairs, frequency)
    assert [[str(phrase) for phrase in own] for own in chosen] == [
        ["neural network"],
        ["interest rates", "rates network"],
    ]
    frequency["rates"] = 401
    assert choose_phrases(TOPICS, pairs, frequency)[1] == ()
    assert choose_phrases(TOPICS, pairs, frequency, floor=19)[0][1] == Phrase(("network", "layer"), 19)
    assert choose_phrases(TOPICS, Counter(), frequency) == ((), ())


def test_the_order_is_that_of_the_numbers_then_of_the_words():
    """However the pairs are held, the same numbers give the same phrases in the same order."""
    pairs = [(("neural", "layer"), 30), (("neural", "network"), 30), (("network", "layer"), 31)]
    frequency = dict.fromkeys(["neural", "network", "layer"], 40)
    one = choose_phrases(TOPICS, dict(pairs), frequency, top=2)
    assert one == choose_phrases(TOPICS, dict(reversed(pairs)), frequency, top=2)
    assert [str(phrase) for phrase in one[0]] == ["network layer", "neural layer"]


def test_texts_name_their_topics():
    """The library counts phrases in the texts that it is given: without forgotten ones it never saw them."""
    gone = CARS[:6]
    model = TextTopics(2, min_df=1, min_share=0, max_df=1.0).fit(CARS + PETS)
    driving = [words[0] in "fast car engine wheel road brake" for words in model.topics()].index(True)
    assert Phrase(("fast", "car"), 90) in model.phrases(CARS + PETS)[driving]
    rest = CARS[6:] + PETS
    after = model.unlearn(gone).phrases(rest)
    never = TextTopics(2, min_df=1, min_share=0, max_df=1.0).fit(rest)
    assert after == never.phrases(rest)
    assert Phrase(("fast", "car"), 84) in [phrase for own in after for phrase in own]
    assert not any(model.phrases(rest, floor=85))
    with pytest.raises(ValueError, match="text 0 is a int"):
        model.phrases([7])


def test_words_without_spaces_make_no_phrases():
    """Overlapping pairs of characters are neighbours in every text, so they are not phrases."""
    texts = ["機械学習と言語", "機械学習の応用 applied learning"] * 30 + ["猫と犬の生活", "犬の散歩 long walk"] * 30
    model = TextTopics(2, min_df=1, min_share=0, max_df=1.0).fit(texts)
    found = [phrase for own in model.phrases(texts) for phrase in own]
    assert found
    assert all(word.isascii() for phrase in found for word in phrase.words)
