"""The same model on every machine: other kernels of BLAS, compilers and numbers of threads decide nothing."""

import json
import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from streamtopic.documents.corpus import load_docstrings

KERNELS = ("Haswell", "Sandybridge", "Nehalem")
DECIDED = ("words", "anchors", "sets", "certificates", "coefficients")
EVERY = 12
"""Every so many docstrings: about 1,500 documents."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="kernels are chosen by x86 names"),
    pytest.mark.skipif(
        not any(info["internal_api"] == "openblas" for info in threadpool_info()),
        reason="this BLAS is not OpenBLAS, whose kernels can be chosen",
    ),
]


@cache
def _usable():
    """Kernels that this processor can run: OpenBLAS takes those that it is told, whether or not they run here."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    needed = {"Haswell": "avx2", "Sandybridge": "avx", "Nehalem": "sse4_2"}
    return [kernel for kernel in KERNELS if needed[kernel] in flags.split()]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A file with some docstrings."""
    path = tmp_path_factory.mktemp("machines") / "texts.json"
    documents = load_docstrings(("numpy", "scipy")).documents[::EVERY]
    path.write_text(json.dumps([document.text for document in documents]), encoding="utf-8")
    return path


@pytest.mark.parametrize("corpus", ["mirrored", "docstrings"])
def test_kernels_and_threads_decide_nothing(corpus, texts, tmp_path):
    """Kernels of BLAS, 1 or 2 threads, a plain compiler: equal words, anchors, sets, certificates, coefficients.

    A scheduler that takes over on other hardware draws the same noise, so it must draw it on the same A. And its
    certificate, which decides whether there is a version, must have the same bits.
    """
    if len(_usable()) < 2:
        pytest.skip("this processor runs one kernel only")
    first, *kernels = _usable()
    runs = [(first, 1), (first, 2), *((kernel, 2 - place % 2) for place, kernel in enumerate(kernels))]
    runs = [(kernel, threads, "host") for kernel, threads in runs]
    if corpus == "mirrored":
        # Code for any processor of this family, which knows no fused or wide instructions.
        runs.append((first, 1, "generic"))
    runs = {run: tmp_path / f"{'-'.join(map(str, run))}.npz" for run in runs}
    program = [sys.executable, str(Path(__file__).with_name("machines_child.py")), corpus]
    for (kernel, threads, compiled_for), target in runs.items():
        chosen = {"OPENBLAS_CORETYPE": kernel, "OPENBLAS_NUM_THREADS": str(threads), "NUMBA_NUM_THREADS": str(threads)}
        if compiled_for == "generic":
            chosen |= {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
        given = [str(texts)] if corpus == "docstrings" else []
        subprocess.run([*program, str(target), *given], check=True, env={**os.environ, **chosen})
    loaded = {}
    for run, target in runs.items():
        with np.load(target) as arrays:
            loaded[run] = dict(arrays)
    assert {str(run["blas"]) for run in loaded.values()} == {str(np.array([kernel])) for kernel in _usable()}
    differing = []
    first, *others = loaded.values()
    for run, other in zip([*loaded][1:], others, strict=True):
        decided, expected = (json.loads(str(one["decided"])) for one in (other, first))
        for fit, same in expected.items():
            if decided[fit] != same:
                kind = next(name for name, a, b in zip(DECIDED, same, decided[fit], strict=True) if a != b)
                differing.append((*run, fit, kind))
            elif np.abs(first[fit] - other[fit]).max() > 1e-12:
                differing.append((*run, fit, f"A by {np.abs(first[fit] - other[fit]).max():.2g}"))
    assert not differing
