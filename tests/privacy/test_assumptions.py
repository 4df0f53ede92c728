"""The numbers of the proof, against values computed by hand, and the checks made of them."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopic.errors import UsageError
from streamtopic.paper.capacity_formulas import ModelConstants
from streamtopic.paper.theorem import Condition, ProofSetting, assumption_checks, guaranteed_error, sample_size

CONSTANTS = ModelConstants(a=2.0, p_sep=0.1, gamma=0.5, eps0=0.01)
SITUATION = ProofSetting(
    m=10**6,
    n=1_000,
    r=10,
    length=50,
    deletions=5,
    epsilon=0.5,
    delta=1e-6,
    c=1.0,
    constants=CONSTANTS,
    rarest=2e-4,
    sigma_min=0.03,
)
# A corpus so large, a model so well conditioned and so few words and topics that the whole proof applies.
COVERED = ProofSetting(
    m=10**13,
    n=12,
    r=2,
    length=50,
    deletions=10**7,
    epsilon=0.9,
    delta=1e-6,
    c=1.0,
    constants=ModelConstants(a=1.0, p_sep=0.6, gamma=0.8, eps0=0.2),
    rarest=0.03,
    sigma_min=0.5,
)


def failing(situation):
    """Names of the checks that fail."""
    return {check.name for check in assumption_checks(situation) if not check.holds}


def test_the_learning_guarantee_is_the_largest_of_its_terms():
    """Sample sizes worked out by hand, once for each of the three terms that may be the largest."""
    assert sample_size(1_000, 10, 50, CONSTANTS) == pytest.approx(1.768385e14, rel=1e-6)
    assert sample_size(1_000, 10, 50, replace(CONSTANTS, eps0=0.5)) == pytest.approx(3.536771e10, rel=1e-6)
    easy = ModelConstants(a=1.0, p_sep=1.0, gamma=1.0, eps0=0.5)
    assert sample_size(2, 1_000_000, 50, replace(easy, gamma=1e3)) == pytest.approx(1.105241e12, rel=1e-6)


@given(
    st.integers(2, 10**5),
    st.integers(2, 100),
    st.floats(2, 1_000),
    st.floats(1, 50),
    st.floats(0.01, 1),
    st.floats(0.01, 1),
    st.floats(1e-4, 1),
)
@settings(max_examples=100)
def test_sample_size_and_guaranteed_error_are_inverses(n, r, length, a, p, gamma, eps0):
    """As many documents as eps0 asks for guarantee eps0, and half of them guarantee less."""
    constants = ModelConstants(a, p, gamma, eps0)
    m = math.ceil(sample_size(n, r, length, constants))
    assert guaranteed_error(m, n, r, length, constants) <= eps0 * (1 + 1e-9)
    if m > 2:
        assert guaranteed_error(m // 2, n, r, length, constants) > eps0
    with pytest.raises(UsageError, match="0 documents cannot guarantee"):
        guaranteed_error(0, n, r, length, constants)


def test_the_numbers_of_the_proof_are_those_of_the_paper():
    """Every quantity of a situation has the value that its formula gives by hand."""
    assert SITUATION.delta_2 == pytest.approx(0.0894427, rel=1e-6)
    assert SITUATION.moved == pytest.approx(0.04)
    assert SITUATION.robustness == pytest.approx(0.05)
    assert SITUATION.entry_error == pytest.approx(4.0)
    numbers = {check.name: (check.value, check.bound) for check in assumption_checks(SITUATION)}
    expected = {
        "accuracy eps0": (0.01, 0.01),
        "rarest word's probability": (2e-4, 1.25e-4),
        "20 r delta_2 / (gamma p)^2": (7155.418, 0.05),
        "10 sqrt(r) delta_2": (2.828427, 0.05),
        "20 r delta_2' / (gamma p)^2": (10355.418, 0.05),
        "20 r (4 a r m_U / m eps0) / (gamma p / 2)^2": (12800.0, 0.025),
        "sigma_min of Qbar_P^F": (0.03, 0.025),
        "m_U within the utility proof": (5, 3.125e-6),
        "m_U enough for delta_2' = O(a r m_U / m eps0)": (5, 11.18034),
        "m_U within the deletion capacity at c = 1": (5, 10.0),
        "bound on E max |Atilde - A*|": (9028.34, 0.01),
    }
    for name, pair in expected.items():
        assert numbers[name] == pytest.approx(pair, rel=1e-5), name


def test_there_is_a_corpus_that_the_proof_covers():
    """With ten trillion documents, two topics and twelve words every check holds."""
    assert failing(COVERED) == set()


@pytest.mark.parametrize(
    ("spoilt", "name"),
    [
        ({"epsilon": 1.0}, "epsilon below 1"),
        ({"constants": replace(COVERED.constants, p_sep=-0.1)}, "p-separable"),
        ({"m": 500}, "documents of the learner"),
        ({"constants": replace(COVERED.constants, eps0=0.3)}, "accuracy eps0"),
        ({"rarest": 0.02}, "rarest word's probability"),
        ({"m": 10**5}, "20 r delta_2 / (gamma p)^2"),
        ({"m": 1_000}, "10 sqrt(r) delta_2"),
        ({"deletions": 10**11}, "20 r delta_2' / (gamma p)^2"),
        ({"deletions": 10**11}, "20 r (4 a r m_U / m eps0) / (gamma p / 2)^2"),
        ({"sigma_min": 0.1}, "sigma_min of Qbar_P^F"),
        ({"deletions": 10**11}, "m_U within the utility proof"),
        ({"deletions": 10}, "m_U enough for delta_2' = O(a r m_U / m eps0)"),
        ({"deletions": 10**11}, "m_U within the deletion capacity at c = 1"),
        ({"c": 10**5}, "bound on E max |Atilde - A*|"),
        ({"sigma_min": math.nan}, "sigma_min of Qbar_P^F"),
    ],
)
def test_each_condition_can_fail(spoilt, name):
    """Spoiling what a condition speaks of makes that condition fail; a missing number never passes."""
    assert name in failing(replace(COVERED, **spoilt))


@pytest.mark.parametrize(
    ("relation", "outcomes"),
    [
        ("<", (True, False, False)),
        ("<=", (True, True, False)),
        (">", (False, False, True)),
        (">=", (False, True, True)),
    ],
)
def test_a_check_compares_as_it_reads(relation, outcomes):
    """Below, at and above the limit."""
    checks = [Condition("this", value, relation, 2.0, "lemma 1") for value in (1.0, 2.0, 3.0)]
    assert tuple(check.holds for check in checks) == outcomes
