"""Compiling ahead of a first run."""

import json
import os
import random
import subprocess
import sys
from itertools import islice, product
from string import ascii_lowercase

import numpy as np
import pytest

from streamtopic.words.lexicon import INSERT, Lexicon, find

# Prints which kernels a piece of work has called, each with the types of its arguments.
_CALLED = """
import contextlib, gc, io
from numba.core.dispatcher import Dispatcher
from streamtopic.cli import main
from streamtopic.service.first_run import learn_model, run_service
with contextlib.redirect_stdout(io.StringIO()):
    {}
for kernel in gc.get_objects():
    if isinstance(kernel, Dispatcher) and kernel.__module__.startswith("streamtopic"):
        for types in kernel.signatures:
            print(kernel.__module__, kernel.__qualname__, types)
"""


def _python(program, cache):
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_python_cannot_call_a_function_that_has_no_code_for_it():
    """A function that kernels alone call refuses a call from Python, which would end the interpreter."""
    with pytest.raises(TypeError, match="find has no code for a call from Python"):
        find(np.zeros(1, np.uint8), 0, 1, Lexicon("secret").table, INSERT)


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
    kernels = _python(program, tmp_path)
    assert len(kernels) > 50
    assert [kernel for kernel in kernels if "ndarray" in kernel] == []


def _write_documents(path):
    """Write documents of twelve topics, with more words than a new table of words holds."""
    rng = random.Random(1)
    letters = ascii_lowercase[:20]
    names = map("".join, product(ascii_lowercase, repeat=4))
    lines = []
    for k in range(500):
        topic = ascii_lowercase[k % 12]
        own = [f"topic{topic}{letter}" for letter in rng.choices(letters, k=25)]
        others = [f"topic{rng.choice(letters[:12])}{letter}" for letter in rng.choices(letters, k=8)]
        text = " ".join([*own, *others, *islice(names, 9)])
        lines.append(json.dumps({"id": f"document-{k}", "text": text}))
    path.write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.slow
def test_a_first_demo_finds_all_kernels_compiled(tmp_path):
    """A demo calls no kernel, and none with other types, than those that both parts have called before it."""
    documents = tmp_path / "documents.jsonl"
    _write_documents(documents)
    cache = os.environ.get("NUMBA_CACHE_DIR", tmp_path / "cache")
    parts = _python(_CALLED.format("run_service(); learn_model()"), cache)
    demo = ["demo", "--json", "--documents", str(documents), "--topics", "12", "--delete", "3"]
    called = _python(_CALLED.format(f"assert main({demo}) == 0"), cache)
    assert len(called) > 20
    assert set(called) <= set(parts)
