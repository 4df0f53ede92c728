"""What the settings say of foreign records: their format, and the paths of the fields that make a document."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

from streamtopic.documents.events import MAX_TIMESTAMP
from streamtopic.errors import InvalidEvent

__all__ = [
    "ANY_FIELD",
    "OWN_FORMAT",
    "InputMapping",
    "at_path",
    "labels_of",
    "milliseconds",
    "plain_text",
]

OWN_FORMAT = "streamtopic"

ANY_FIELD = "*"
"""The `key` that takes a structured key's only field."""

# Milliseconds of one unit.
_UNITS = {"s": 1000.0, "ms": 1.0, "us": 0.001}


@dataclass(frozen=True, slots=True)
class InputMapping:
    """How a foreign record makes a document. A path is the names of fields within each other, with dots between.

    format: a value of the setting `input.format`.
    key: "" where the key is the id itself; else the path of the id in a structured key, or ANY_FIELD.
    text: paths of the text; several make one text of several lines; "" is the whole value.
    labels: (task, path of its class) pairs.
    time: path of the producer's time; None for the time that the format itself has, if any.
    time_unit: unit of a time that is a number: `s`, `ms` or `us`.
    operation: path of the field that says whether the record deletes; None for the format's own rules.
    subject: path of the person that a document is about; None without one.
    """

    format: str = OWN_FORMAT
    key: str = ""
    text: tuple[str, ...] = ("text",)
    labels: tuple[tuple[str, str], ...] = ()
    time: str | None = None
    time_unit: str = "ms"
    operation: str | None = None
    subject: str | None = None

    @property
    def is_own(self) -> bool:
        """Whether records are in the service's own dialect, so that nothing is translated."""
        return self.format == OWN_FORMAT

    @property
    def rules(self) -> str:
        """The mapping as the state in Redis keeps it beside the limits of records; "" for the own dialect.

        Counts that were made under another mapping are other counts, so a state is bound to its mapping.
        """
        if self.is_own:
            return ""
        named = {
            "format": self.format,
            "key": self.key,
            "text": " ".join(self.text),
            "time": self.time,
            "time_unit": self.time_unit,
            "operation": self.operation,
            "subject": self.subject,
        }
        labels = {f"labels.{task}": path for task, path in self.labels}
        return "".join(f",input.{name}={value or ''}" for name, value in (named | labels).items())


def at_path(fields: object, path: str) -> object:
    """Return the value at a path, None where there is none.

    fields: a value as JSON or Avro has it.
    path: names of fields with dots between. A field whose own name has the dots is found as well.
    """
    if not isinstance(fields, dict):
        return None
    if path in fields:
        return fields[path]
    # A name before the last may have dots as well. Each step goes into a field that is there, so the record's own size
    # bounds the search.
    for dot in re.finditer(r"\.", path):
        found = at_path(fields.get(path[: dot.start()]), path[dot.end() :])
        if found is not None:
            return found
    return None


def milliseconds(value: object, unit: str) -> int | None:
    """Return a producer's time as whole milliseconds since 1970; None for None.

    value: a number in `unit`, a text of ISO 8601, a datetime, or a date. A time without a zone is in UTC.
    Raises InvalidEvent for other values, and for times that the service does not take.
    """
    if value is None:
        return None
    if isinstance(value, str):
        value = _moment(value)
    elif isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    elif isinstance(value, Decimal) and value.is_finite():
        value = int(value)
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return _bounded(moment.timestamp() * 1000)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidEvent("ts", f"the time is a {type(value).__name__}: expected a number of {unit}, or ISO 8601")
    # A whole number may be too large for a double, and no such number is a time.
    if isinstance(value, int) and abs(value) > 1000 * MAX_TIMESTAMP:
        raise InvalidEvent("ts", f"the time is too large a number of {unit}")
    return _bounded(value * _UNITS[unit])


def _moment(text: str) -> datetime:
    """Return the time that a text of ISO 8601 names. Raises InvalidEvent for other texts."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidEvent("ts", "the time is a text that is not ISO 8601") from None


def _bounded(time_ms: float) -> int:
    """Return whole milliseconds. Raises InvalidEvent for a time that an add cannot have, and for NaN."""
    if not 0 <= time_ms <= MAX_TIMESTAMP:
        raise InvalidEvent("ts", "the time lies before 1970 or too far ahead: check `input.time_unit`")
    return int(time_ms)


def labels_of(row: object, mapping: InputMapping) -> dict[str, str]:
    """Return the classes that a row has, by task; a task whose field is missing or null has none.

    Raises InvalidEvent for a class that is not plain.
    """
    found = {}
    for task, path in mapping.labels:
        value = at_path(row, path)
        if value is None:
            continue
        name = plain_text(value)
        if name is None:
            raise InvalidEvent(
                "labels", f"the class at path `{path}` is a {type(value).__name__}, not text or a number"
            )
        found[task] = name
    return found


def plain_text(value: object) -> str | None:
    """Return a text, a number, a truth value, or a UUID or date of Avro as text, None for other values.

    Halves of surrogate pairs, which JSON can write and UTF-8 cannot, become question marks.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        # 7 and not 7E+0; a scale of the schema stays, as the database shows it.
        return format(value, "f")
    if not isinstance(value, str | int | float | UUID | date):
        return None
    return str(value).encode(errors="replace").decode()
