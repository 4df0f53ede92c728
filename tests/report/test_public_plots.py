import subprocess
import sys

import streamtopic
from streamtopic.report import plots


def test_figures_are_had_by_name():
    """`from streamtopic import plots` is the public way, and stands in the package's list of names."""
    from streamtopic import plots as public

    assert public is plots
    assert "plots" in streamtopic.__all__
    assert "plots" in dir(streamtopic)


def test_the_package_alone_loads_no_page():
    """Whoever imports the package has neither figures nor templates in memory until the first use of them."""
    program = "import sys, streamtopic; print(*(set(sys.modules) & {'jinja2', 'numpy', 'streamtopic.report.plots'}))"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_figures_need_no_templates():
    """Figures for notebooks are drawn by matplotlib alone, so they load quickly."""
    program = "import sys, streamtopic.report.plots; print('jinja2' in sys.modules)"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
