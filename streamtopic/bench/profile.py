"""Where processor time goes: named functions of the learner are clocked while a profile is open, and only then.

The learner has no hooks. Every function that is clocked is in one table (bench.stages). A name in the table
that the program no longer has is an error.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections import Counter
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self
from unittest.mock import patch

from streamtopic.bench.rates import Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Profile", "Stage", "clocked_stages", "found"]


@dataclass(frozen=True, slots=True)
class Stage:
    """A function and the stage that it is.

    module: inside `streamtopic`, where the name is looked up when it is called; attribute: the name, or Class.method.
    work: the least it has to do, from its arguments and its result. numbered: its calls are stages 1, 2, ...; whole:
    what it calls belongs to it, though it may be clocked elsewhere.
    """

    name: str
    module: str
    attribute: str
    work: Callable[..., Work] | None = None
    numbered: bool = False
    whole: bool = False


@dataclass(slots=True)
class Profile:
    """Processor seconds and work by stage, in the order they were first entered; `total`: of all that was clocked."""

    seconds: dict[str, float] = field(default_factory=dict)
    work: dict[str, Work] = field(default_factory=dict)
    total: float = 0.0
    _open: list[tuple[str, bool]] = field(default_factory=list)
    _calls: Counter[str] = field(default_factory=Counter)
    _last: float = 0.0

    def start(self) -> None:
        """Start the clock; time outside all stages is `rest`."""
        self._last = time.process_time()

    def stop(self) -> None:
        """Add the time since the last stage, and stop the clock."""
        self._spend()

    def call(self, stage: Stage, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401  whatever the function returns
        """Call a stage's function, on the clock."""
        if self._open and self._open[-1][1]:
            return function(*args, **kwargs)
        self._spend()
        self._calls[stage.name] += 1
        name = f"{stage.name} {self._calls[stage.name]}" if stage.numbered else stage.name
        self._open.append((name, stage.whole))
        self.seconds.setdefault(name, 0.0)
        try:
            result = function(*args, **kwargs)
        finally:
            self._spend()
            self._open.pop()
        if stage.work is not None:
            self.work[name] = self.work.get(name, Work()) + stage.work(args, result)
        # The time that it takes to work out the bound belongs to no stage.
        self._last = time.process_time()
        return result

    def _spend(self) -> None:
        now = time.process_time()
        name = self._open[-1][0] if self._open else "rest"
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self.total += now - self._last
        self._last = now


def found(stage: Stage) -> tuple[Any, str]:
    """Return the object that holds a stage's function, and its name. Raises AttributeError if it is missing."""
    *path, name = stage.attribute.split(".")
    holder = import_module(f"streamtopic.{stage.module}")
    for part in path:
        holder = getattr(holder, part)
    inspect.getattr_static(holder, name)
    return holder, name


@contextmanager
def clocked_stages(stages: Sequence[Stage]) -> Iterator[Profile]:
    """Clock these functions on one thread: work that is parallel elsewhere is done one piece after the other here."""
    profile = Profile()
    with ExitStack() as stack:
        for stage in stages:
            holder, name = found(stage)
            have = inspect.getattr_static(holder, name)
            stack.enter_context(patch.object(holder, name, _wrapped(profile, stage, have)))
        for module in [module for name, module in sys.modules.items() if name.startswith("streamtopic.topics.")]:
            if hasattr(module, "ThreadPoolExecutor"):
                stack.enter_context(patch.object(module, "ThreadPoolExecutor", _OneByOne))
        profile.start()
        try:
            yield profile
        finally:
            profile.stop()


def _wrapped(profile: Profile, stage: Stage, have: Any) -> Any:  # noqa: ANN401  a function of any kind
    function = have.__func__ if isinstance(have, classmethod) else have

    @wraps(function)
    def clocked(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  as the function's own
        return profile.call(stage, function, args, kwargs)

    return classmethod(clocked) if isinstance(have, classmethod) else clocked


class _OneByOne:
    """An executor that runs each task at once, on the caller's thread."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:  # noqa: ANN401  as an executor's own
        result: Future[Any] = Future()
        try:
            result.set_result(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001  a future hands any exception to the caller of `result`
            result.set_exception(error)
        return result
