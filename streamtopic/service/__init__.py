"""Ingest, scheduler and publisher, and the processes that run them.

app               makes what one process of a model needs, and hands it on by name
assembly          the options of each part, from settings
instance          the folder of a kept instance, its lock and keys, and the topics of a model
log_history       whether the documents topic still is the one that was counted
partition_counts  how many partitions each topic must have
processes         the parts as processes of their own
private_mode      versions that cannot be subtracted: a mode of the scheduler, and its check
watching          what the parts report, as metrics and health
first_run         compiles ahead what the first run on a machine needs

Each leg of the flow has its folder (`ingest`, `schedule`, `publish`), and so has the check of its results (`verify`).
`paper_mode` is handed in from outside. `requests`, `inspection` and `upkeep` are for the people who run a service.
"""
