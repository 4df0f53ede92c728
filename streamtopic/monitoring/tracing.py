"""Spans of OpenTelemetry that follow a deletion from its producer to its receipt, in a process that has OpenTelemetry.

A trace begins in `DocumentProducer.delete`, or in the span in which that is called. Its W3C `traceparent` travels in
the record's header, stays with the deletion in Redis, and ends with the receipt, which does not hold it.

OpenTelemetry is not imported before something else has imported it: such a process has no exporter, so nobody would see
a span. Spans have numbers of partitions and versions: never an id, a word or the text of an error.
"""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["HEADER", "producing", "span", "trace_of"]

HEADER = "traceparent"

# Version 00 of the W3C recommendation; ids of zeros are invalid there.
_FORM = re.compile(rb"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")


def trace_of(headers: Iterable[tuple[str, bytes]]) -> bytes:
    """Return the `traceparent` in a record's headers; b"" without one, with several, or with one of another form.

    Anybody may send a header, so nothing but these 55 bytes is kept.
    """
    found = [value for name, value in headers if name == HEADER]
    return found[0] if len(found) == 1 and _FORM.fullmatch(found[0]) else b""


@contextmanager
def producing(name: str) -> Iterator[bytes]:
    """Open a span of a producer, and give its `traceparent`: b"" without OpenTelemetry, or if it has no exporter."""
    api = _api()
    if api is None:
        yield b""
        return
    # The text of an error may quote a document's id, so the span keeps the error's class alone.
    quiet = {"record_exception": False, "set_status_on_exception": False}
    with api.get_tracer("streamtopic").start_as_current_span(name, kind=api.SpanKind.PRODUCER, **quiet) as opened:
        carried = dict[str, str]()
        _propagator().inject(carried)
        try:
            yield carried.get(HEADER, "").encode()
        except Exception as error:
            opened.set_attribute("error.type", type(error).__name__)
            opened.set_status(api.StatusCode.ERROR)
            raise


def span(name: str, times_ms: tuple[int, int], facts: Mapping[str, int], parent: bytes) -> None:
    """Report a span that has ended.

    times_ms: its begin and its end, milliseconds since 1970.
    facts: attributes, below `streamtopic.`.
    parent: the `traceparent` of the deletion that it belongs to.
    """
    api = _api()
    if api is None:
        return
    begin, end = times_ms
    attributes = {f"streamtopic.{fact}": number for fact, number in facts.items()}
    made = api.get_tracer("streamtopic").start_span(
        name,
        context=_propagator().extract({HEADER: parent.decode()}),
        kind=api.SpanKind.CONSUMER,
        attributes=attributes,
        start_time=begin * 1_000_000,
    )
    # A producer's clock may be ahead, and a span must not end before it begins.
    made.end(end_time=max(begin, end) * 1_000_000)


def _api() -> Any:  # noqa: ANN401 - a module that may be absent
    """Return OpenTelemetry's module of traces if something has imported it, else None."""
    return sys.modules.get("opentelemetry.trace")


def _propagator() -> Any:  # noqa: ANN401 - as `_api`
    """Return OpenTelemetry's reader and writer of `traceparent`."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()
