"""The commands of the program, one module each, in the order in which help lists them.

A module registers its arguments with `register(subparsers)` and sets `run`, a function from the parsed arguments to
the exit status. It imports what is heavy inside its functions, so that `streamtopic --help` stays quick.
"""

from streamtopic.commands import (
    add,
    audit,
    bench,
    capacity,
    delete,
    demo,
    doctor,
    export,
    init,
    keys,
    rebuild,
    receipt,
    receipts,
    rejected,
    report,
    requests,
    residue,
    roles,
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
    roles,
    add,
    delete,
    status,
    versions,
    topics,
    capacity,
    receipt,
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
