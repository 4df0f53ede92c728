"""The benchmark of ingest at size: its documents grow words by Heaps' law, and it reports what it promises."""

import numpy as np
import pytest

from streamtopic.bench.cases import ingest_million
from streamtopic.bench.heaps import BETA, append, draw
from streamtopic.streams import FileLog, TopicNames
from streamtopic.words.text import tokenize


def test_words_grow_by_heaps_law_without_an_end():
    """Ten times as many tokens have 10^beta times as many distinct words, and hapaxes are beta of them."""
    tokens = draw(20_000, [1], 50).ravel()
    few, many = len(np.unique(tokens[:100_000])), len(np.unique(tokens))
    assert np.log10(many / few) == pytest.approx(BETA, abs=0.03)
    _, times = np.unique(tokens, return_counts=True)
    assert (times == 1).mean() == pytest.approx(BETA, abs=0.03)


def test_a_step_is_appended_as_texts_of_so_many_words(tmp_path):
    """Every token is a word to the tokenizer, ids are distinct over steps, and a step can be drawn again."""
    topic = TopicNames("bench").documents
    values = []
    for folder in ("a", "b"):
        log = FileLog(tmp_path / folder)
        log.create(topic, 1)
        append(tmp_path / folder, 0, 30, 21)
        append(tmp_path / folder, 1, 30, 21)
        values.append([(record.key, record.value) for record in log.read(topic, 0, 0)])
    assert values[0] == values[1]
    assert len({key for key, _ in values[0]}) == 60
    assert {len(tokenize(value.partition(b"text")[2][2:].decode())) for _, value in values[0]} == {21}


def test_it_measures_every_step_deletions_and_learning(monkeypatch):
    """A small run has every figure of each of its steps, and its picture every curve."""
    monkeypatch.setattr(ingest_million, "STEPS", 2)
    figures = {figure.name: figure.value for figure in ingest_million.million(4_000)}
    for step in ("2,000", "4,000"):
        assert figures[f"{step}: words"] > 0
        assert figures[f"{step}: Redis, documents"] > 0
    assert figures["a deletion"] > 0
    for kind in ("documents", "changes", "words"):
        assert figures[f"4,000: Redis, {kind}"] > 0
    assert figures["reading: peak memory"] > 0
    drawn = ingest_million.picture({"million": figures}, {"largest": 4_000})
    assert drawn.count("<circle") == 4
    assert "ingest process" in drawn
