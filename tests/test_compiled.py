"""Compiled functions: what Python may call, and who frees their arrays."""

import os
import subprocess
import sys

import numpy as np
import pytest

from streamtopic.words.lexicon import Lexicon, find


def test_python_cannot_call_a_function_that_has_no_code_for_it():
    """A function that kernels alone call refuses a call from Python, which would end the interpreter."""
    with pytest.raises(TypeError, match="find has no code for a call from Python"):
        find(np.zeros(1, np.uint8), 0, 1, 0, 0, Lexicon("secret").table)


def test_a_function_without_counted_references_gets_and_returns_no_new_array(tmp_path):
    """A kernel counts no references: an array that it returned, or got from a callee, would not be freed in time."""
    program = """
import inspect, pkgutil, typing
from importlib import import_module
import numpy as np
import streamtopic
from numba.core.dispatcher import Dispatcher
for module in pkgutil.walk_packages(streamtopic.__path__, "streamtopic."):
    if module.name.startswith("streamtopic.bench") or module.name.endswith("__main__"):
        continue
    for kernel in vars(import_module(module.name)).values():
        if isinstance(kernel, Dispatcher) and not kernel.targetoptions.get("_nrt", True):
            callees = inspect.getclosurevars(kernel.py_func).globals.values()
            functions = [kernel.py_func, *(callee.py_func for callee in callees if isinstance(callee, Dispatcher))]
            print(kernel.__qualname__, *(typing.get_type_hints(function)["return"] for function in functions))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    kernels = done.stdout.splitlines()
    assert len(kernels) > 50
    assert [kernel for kernel in kernels if "ndarray" in kernel] == []
