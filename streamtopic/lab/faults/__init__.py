"""A campaign of faults against the whole service, and an oracle that shares no code with it.

stream      documents that come, change and go, hostile and misrouted records among them
oracle      what must be true, from the log alone, in plain dictionaries
checks      what the service holds and published, compared with the oracle
server      a Redis that can be killed, set back, paused and cut short
proxy       a TCP proxy that loses replies
processes   programs that are killed, stopped and started again
cluster     one service: Kafka, Redis, two ingests, two schedulers, a publisher
intruder    records that nobody should send
stranger    a producer that is not ours: compressed, with wrong timestamps, in transactions
skewed      a program whose clock is wrong
erosion     what the log loses: compaction, retention, and the state made anew from the rest
plan        which faults, when
inject      how each is done, and undone
campaign    rounds of events and faults, each followed by all checks

For `streamtopic bench faults` and the tests; nothing else imports it.
"""
