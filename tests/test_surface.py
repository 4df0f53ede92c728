"""What the library offers by name, package by package."""

import importlib
import pkgutil
import subprocess
import sys

import pytest

PACKAGES = ("counts", "audit", "signed")


def _package(name):
    return importlib.import_module(f"streamtopic.{name}")


@pytest.mark.parametrize("name", PACKAGES)
def test_names_are_there_and_described(name):
    """Every public name can be had, is listed by dir(), and stands in the package's table of contents."""
    package = _package(name)
    assert sorted(package.__all__) == sorted(set(package.__all__))
    words = set(package.__doc__.replace(",", " ").replace(";", " ").replace(":", " ").replace(")", " ").split())
    for public in package.__all__:
        assert getattr(package, public) is not None
        assert public in dir(package)
        if name != "counts":
            assert {public, f"({public}"} & words, f"{public} is missing in the docstring of streamtopic.{name}"


@pytest.mark.parametrize("name", PACKAGES)
def test_no_name_is_that_of_a_module(name):
    """Importing a module sets its name on the package, so a function of that name would be hidden by it."""
    package = _package(name)
    modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    assert not modules & set(package.__all__)


@pytest.mark.parametrize(
    "statement",
    [
        "from streamtopic.topics.inference import fold_in",
        "from streamtopic.privacy.noise import release_matrix",
    ],
)
def test_light_names_stay_light(statement):
    """Whoever infers, or asks for noise, loads neither the compiler nor scikit-learn."""
    program = f"import sys; {statement}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"numba", "sklearn", "scipy.sparse.linalg"}
