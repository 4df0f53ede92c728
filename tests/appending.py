"""Appends one record to a log, and reads all of a partition."""

from itertools import chain

from streamtopic.streams import Message, pages


def append(log, topic, key, value, headers=(), partition=None):
    """Append a record; return its partition and its offset."""
    return log.append_many(topic, [Message(key, value, headers, partition)])[0]


def everything(log, topic, partition=0, offset=0):
    """Return the records of a partition from an offset on."""
    return list(chain.from_iterable(pages(log, topic, partition, offset)))
