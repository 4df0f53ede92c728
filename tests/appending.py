"""Appends one record to a log."""

from streamtopic.streams import Message


def append(log, topic, key, value, headers=(), partition=None):
    """Append a record; return its partition and its offset."""
    return log.append_many(topic, [Message(key, value, headers, partition)])[0]
