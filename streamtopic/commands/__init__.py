"""The commands of the program, in the order in which help lists them.

Each module has `register(subparsers)`, which adds the arguments of its command or of a few commands that belong
together. It sets `run`, a function from the parsed arguments to the exit status.
"""

# Modules of commands import the service, numpy and the kernels inside their functions: each call of the program
# imports all modules of commands, and `streamtopic --help` must answer in .15 s.

from streamtopic.commands import (
    bench,
    changes,
    checking,
    deleting,
    demo,
    export,
    keys,
    looking,
    receipts,
    run,
    serve,
    topics_shown,
    waiting_deletions,
)

__all__ = ["ALL"]

ALL = (
    demo,
    run,
    changes,
    waiting_deletions,
    looking,
    topics_shown,
    receipts,
    checking,
    export,
    serve,
    keys,
    deleting,
    bench,
)
