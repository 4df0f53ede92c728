"""The commands of the program, in the order in which help lists them: `COMMANDS` of each module."""

# Modules of commands import the service, numpy and the kernels inside their functions: each call of the program
# imports all modules of commands, and `streamtopic --help` must answer in .15 s.

from streamtopic.commands import (
    bench,
    changes,
    checking,
    demo,
    export,
    keys,
    looking,
    receipts,
    run,
)

__all__ = ["ALL"]

_MODULES = (demo, run, changes, receipts, looking, checking, export, keys, bench)
ALL = [command for module in _MODULES for command in module.COMMANDS]
