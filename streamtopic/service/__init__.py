"""Ingest, scheduler and publisher, and the processes that run them.

opened            the log, Redis, state and ledger that settings name, each opened when it is needed
assembly          each part by a function, made from settings and from what is open
instance          the folder of a kept instance, its lock and keys, and the topics of a model
sending           what commands write to the log
leading           what one process at a time does, and all of it in one process until nothing more is due
log_history       whether topics are as they must be: partitions, the records that were counted, those that are hidden
processes         the parts as processes of their own
theorem_mode      Algorithm 1 of the paper: a mode of the scheduler
private_mode      versions that cannot be subtracted: a mode of the scheduler
watching          what the parts report, as metrics and health, and where they are read

Each leg of the flow has its folder (`ingest`, `schedule`, `publish`), and so has the check of its results (`verify`).
Modes are handed in from outside. `requests`, `inspection` and `upkeep` are for the people who run a service.
"""
