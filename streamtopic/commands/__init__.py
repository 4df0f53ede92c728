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
    demo,
    export,
    keys,
    looking,
    receipts,
    run,
    serve,
    topics_shown,
)

__all__ = ["ALL"]

ALL = (
    demo,
    run,
    changes,
    receipts,
    looking,
    topics_shown,
    checking,
    export,
    serve,
    keys,
    bench,
)
