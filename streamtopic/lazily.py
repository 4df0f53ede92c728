"""Names of a package that load their modules on first use (PEP 562)."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

__all__ = ["lazily"]


def lazily(package: str, homes: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return a package's `__getattr__` and `__dir__`.

    package: its dotted name.
    homes: public names by the module that defines them.
    """
    modules: dict[str, str] = {}
    for module, names in homes.items():
        modules |= dict.fromkeys(names, f"{package}.{module}")

    def load(name: str) -> object:
        # Import machinery and tools ask for names that do not exist, and expect this error.
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(modules[name])
        return getattr(module, name)

    def listed() -> list[str]:
        present = vars(import_module(package))
        return sorted({*present, *modules})

    return load, listed
