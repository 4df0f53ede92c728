"""A campaign of faults against the whole service, and an oracle that shares no code with it.

stream      makes documents that come, change and go, with hostile and misrouted records among them
reading     reads records a second time, by the rules of docs/messages.md
oracle      derives the truth from documents and requests in the log alone, in plain dictionaries
tail        reads topics with kafka-python itself
ledger_book reads ledger and releases a second time, by the rules of docs/messages.md
witness     keeps everything that was ever published
observer    looks at all of this, and at Redis
checks      compare the service with the oracle; people_checks: what requests must have done, and what receipts count
server      a Redis or a Redis Cluster that can be killed, set back, paused and cut short
proxy       a TCP proxy that loses replies and holds commands back
processes   programs that are killed, stopped and started again
cluster     one service: Kafka, Redis, two ingests, two schedulers, of which one leads and publishes
inject      draws faults, does each, and undoes it
rounds      runs rounds of events and faults, each followed by all checks

`python tests/campaign` runs it, and so do tests/faults.
"""
