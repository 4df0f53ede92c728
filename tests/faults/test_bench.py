"""The campaign as a benchmark."""

import pytest

from streamtopic.cli import main
from streamtopic.errors import UsageError
from streamtopic.lab.bench import run


def test_only_benchmarks_with_options_take_them(capsys):
    """A number that a benchmark does not know is refused before anything runs."""
    with pytest.raises(UsageError, match="counting has no option faults"):
        run("counting", options={"faults": 3})
    assert main(["bench", "counting", "--seed", "3"]) == 2
    assert "counting has no option seed" in capsys.readouterr().err
