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
