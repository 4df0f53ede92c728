"""The commands of the program, in the order in which help lists them.

Each module has `register(subparsers)`, which adds the arguments of its command or of a few commands that belong
together. It sets `run`, a function from the parsed arguments to the exit status.
"""

# Modules of commands import the service, numpy and the kernels inside their functions: each call of the program
# imports all modules of commands, and `streamtopic --help` must answer in .4 s.

from streamtopic.commands import (
    add_delete,
    audit,
    bench,
    capacity,
    demo,
    doctor,
    export,
    init,
    keys,
    rebuild,
    receipts,
    rejected,
    report,
    requests,
    residue,
    run,
    status,
    suggest,
    topics,
    verify,
    versions,
)

__all__ = ["ALL"]

ALL = (
    demo,
    init,
    run,
    add_delete,
    status,
    versions,
    topics,
    capacity,
    receipts,
    residue,
    verify,
    audit,
    report,
    export,
    suggest,
    requests,
    rejected,
    rebuild,
    doctor,
    keys,
    bench,
)
