"""One published version of a model.

Payload     what the guarantee covers: words, A, R, shares, top words, quality, heads
Head        a task's classifier
Envelope    facts about the service: versions, guarantee, capacity, what was forgotten
Release     both, verified
seal_release, open_release    to signed bytes and back
to_messages, tombstones       to records of the releases topic
Assembler                     records back to signed bytes
"""

from streamtopic.release.chunks import Assembled, Assembler, Removed, to_messages, tombstones
from streamtopic.release.codec import open_release, pack_envelope, seal_release, unpack_envelope
from streamtopic.release.fields import Envelope, Head, Kind, Payload
from streamtopic.release.matching import match_topics
from streamtopic.release.release import Guarantee, Release, Topic

__all__ = [
    "Assembled",
    "Assembler",
    "Envelope",
    "Guarantee",
    "Head",
    "Kind",
    "Payload",
    "Release",
    "Removed",
    "Topic",
    "match_topics",
    "open_release",
    "pack_envelope",
    "seal_release",
    "to_messages",
    "tombstones",
    "unpack_envelope",
]
