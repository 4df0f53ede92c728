"""The benchmark of topics over time: what it measures, on a small case."""

from streamtopic.bench.cases import over_time


def test_coverage_is_measured_for_each_size():
    """Each size of slices has its coverage and its mean error, and larger slices err less."""
    case = over_time.CASES["few-topics-a-document"]
    found = {figure.name: figure.value for figure in case(slices=40, topics=4, words=100, size=1, seed=1)}
    assert len(found) == 2 * len(over_time.SIZES)
    errors = [found[f"mean error, {size} documents a slice"] for size in over_time.SIZES]
    assert errors == sorted(errors, reverse=True)
    assert all(80 < found[f"covered, {size} documents a slice"] <= 100 for size in over_time.SIZES)


def test_the_documents_of_a_service_are_sliced():
    """Every document that was stored is in a slice of the large case."""
    found = {figure.name: figure.value for figure in over_time.CASES["stored"](1, 3, 200, 2000, 1)}
    assert found["documents"] == 2000
    assert 100 < found["slices"] <= 125
