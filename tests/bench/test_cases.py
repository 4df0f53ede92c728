"""Benchmarks that users start run on small input, and every figure is a number."""

import math

import pytest

from streamtopic import bench
from streamtopic.bench import forgetting
from streamtopic.bench.cases import capacity, hostile, ingest_million, over_time, paper, people, quality, updates

SMALL = {
    updates: {
        "SIZES": (400, 1_200), "IN_REDIS": 1_200, "OUT_OF": 1_200, "FORGET_SIZES": (1, 4, 8), "FORGOTTEN": 2,
        "WORDS": 200, "TOPICS": 4, "TOKENS": 40,
    },
    forgetting: {"RETRAINS": 1},
    ingest_million: {"STEPS": 2},
    paper: {"DOCUMENTS": (300, 900), "DELETION_DOCUMENTS": (4_000, 8_000), "DRAWS": 1, "DELETION_DRAWS": 2},
}  # fmt: skip
GIVEN = {"documents": None, "topics": 3, "seed": 1}
STARTED = [
    (capacity.CASES["default"], GIVEN),
    (hostile.CASES["default"], GIVEN),
    (ingest_million.million, {"largest": 1_000}),
    (over_time.CASES["few-topics-a-document"], {"slices": 40, "topics": 4, "words": 100, "size": 1, "seed": 1}),
    (paper.CASES["recovery-logistic-normal"], {}),
    (paper.CASES["deletions"], {}),
    (people.forget, {"documents": 120}),
    (quality.CASES["default"], GIVEN | {"draws": 2, "halves": 1, "samples": 2}),
    (updates.CASES["redis"], {"draws": 2, "seed": 3, "largest": 1_200, "folder": None}),
]


@pytest.mark.parametrize(("case", "given"), STARTED, ids=lambda one: getattr(one, "__qualname__", ""))
def test_every_figure_is_a_number(case, given, documents, tmp_path, monkeypatch):
    """A case runs to its end, and measures something under each of its names."""
    for module, values in SMALL.items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)
    places = {"documents": documents, "folder": str(tmp_path)}
    figures = case(**{name: places[name] if value is None else value for name, value in given.items()})
    assert len({figure.name for figure in figures}) == len(figures) > 1
    assert all(math.isfinite(figure.value) for figure in figures)


def test_a_case_runs_in_a_process_of_its_own():
    """Stages sum to the whole, and the memory is that of the process."""
    (done,) = bench.run("fit", ["matrix"], options={"posts": 400, "words": 150, "topics": 4}).cases
    found = {figure.name: figure.value for figure in done.figures}
    stages = list(found)[: list(found).index("documents to model")]
    assert sum(found[name] for name in stages) == pytest.approx(found["documents to model"])
