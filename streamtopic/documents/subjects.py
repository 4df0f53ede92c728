"""Subjects of documents: the people that documents are about, their limits, and the digests that represent them.

A subject is a text that a producer chooses, such as the number of a customer. The state holds no subject: it holds a
digest under a secret of the partition. The documents topic holds subjects as long as it holds the documents.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from streamtopic.errors import InvalidEvent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "DIGEST_BYTES",
    "MAX_SUBJECT",
    "MAX_SUBJECTS",
    "check_subjects",
    "is_subject",
    "subject_digest",
    "subject_digests",
]

MAX_SUBJECTS = 8
"""The most subjects of one document."""

MAX_SUBJECT = 256
"""Characters of a subject, at most."""

DIGEST_BYTES = 16
"""Bytes of the digest of a subject: two subjects of one partition never share one."""

_DIGEST = b"st subject"


def is_subject(value: object) -> bool:
    """Return whether a value is a subject: a text of 1 to MAX_SUBJECT characters that UTF-8 can write."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_SUBJECT:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_subjects(fields: Mapping[str, object]) -> tuple[str, ...]:
    """Return the subjects of an add, each once, in their order; () without any.

    fields: of the add.

    Raises InvalidEvent for `subjects` that are not a list of subjects.
    """
    found = fields.get("subjects")
    if found is None:
        return ()
    if not isinstance(found, list) or not 0 < len(found) <= MAX_SUBJECTS:
        raise InvalidEvent("subjects", f"`subjects` must be a list of 1 to {MAX_SUBJECTS} texts")
    if not all(map(is_subject, found)):
        raise InvalidEvent("subjects", f"a subject must be a text of 1 to {MAX_SUBJECT} characters")
    return tuple(dict.fromkeys(found))


def subject_digest(subject: str, secret: bytes) -> bytes:
    """Return the digest of a subject in the state of a partition, DIGEST_BYTES long.

    secret: of the partition, at most 64 bytes.
    """
    return blake2b(subject.encode(), key=secret, digest_size=DIGEST_BYTES, person=_DIGEST).digest()


def subject_digests(subjects: Sequence[str], secret: bytes) -> tuple[bytes, ...]:
    """Return the digests of the subjects of a document, ascending: equal sets of subjects give equal digests."""
    found = {subject_digest(subject, secret) for subject in subjects}
    return tuple(sorted(found))
