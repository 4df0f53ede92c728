"""Names of a package that load their modules on first use (PEP 562)."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

__all__ = ["lazily"]


def lazily(package: str, homes: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return a package's `__getattr__` and `__dir__`. homes: the public names of each of its modules."""
    modules = {name: f"{package}.{module}" for module, names in homes.items() for name in names}

    def load(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    def listed() -> list[str]:
        return sorted({*vars(import_module(package)), *modules})

    return load, listed
