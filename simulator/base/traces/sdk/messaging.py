"""The spans of gateways and triggers, according to OpenTelemetry's conventions for messaging.

    send QUEUE       PRODUCER    a child of the span in the producer's request; the message carries
                                 it to the consumer
    process QUEUE    CONSUMER    a child of the first span, and linked to it; the request to the
                                 consumer carries it

https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import Token
from types import TracebackType
from typing import Final

from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context

from mqproto.base.foreign import shown
from mqproto.simulator.base.traces.context import trace_of, with_trace
from mqproto.simulator.base.traces.edges import UNTOLD, EdgeTraces, Step
from mqproto.simulator.base.traces.sdk.tracer import Tracer, trace_after

MESSAGE_ID: Final = "messaging.message.id"
ERROR_TYPE: Final = "error.type"
REASON_LIMIT: Final = 300


class Spans(EdgeTraces):
    """Makes a span for each message at an edge."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def sending(self, queue: str, headers: Mapping[str, str]) -> Step:
        return self._step("send", SpanKind.PRODUCER, queue, headers, {})

    def processing(self, queue: str, headers: Mapping[str, str], message: str, attempt: int) -> Step:
        own: dict[str, str | int] = {MESSAGE_ID: message, "mqproto.attempt": attempt}
        return self._step("process", SpanKind.CONSUMER, queue, headers, own)

    def _step(
        self,
        operation: str,
        kind: SpanKind,
        queue: str,
        headers: Mapping[str, str],
        attributes: dict[str, str | int],
    ) -> Step:
        named: dict[str, str | int] = {
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            "messaging.destination.name": queue,
        }
        span = self._tracer.begin(
            f"{operation} {queue}",
            kind,
            trace_of(headers),
            {**named, **attributes},
            is_linked=kind is SpanKind.CONSUMER,
        )
        return UNTOLD if span is None else SpanStep(span)


class SpanStep(Step):
    """A step that is a span.

    It is the current span while it lasts, so a function's own spans are its children.
    """

    def __init__(self, span: Span) -> None:
        self._span = span
        self._token: Token[Context] | None = None
        self._has_failed = False

    def __enter__(self) -> SpanStep:
        self._token = attach(set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if self._token is not None:
            detach(self._token)
        if kind is not None and not self._has_failed:
            self.failed(kind.__name__)
        self._span.end()

    def carried(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        return with_trace(headers, trace_after(self._span))

    def accepted(self, message: str, *, is_duplicate: bool) -> None:
        self._span.set_attribute(MESSAGE_ID, message)
        if is_duplicate:
            self._span.set_attribute("mqproto.duplicate", True)

    def failed(self, error_type: str, reason: str = "") -> None:
        self._has_failed = True
        self._span.set_attribute(ERROR_TYPE, error_type)
        self._span.set_status(StatusCode.ERROR, shown(reason, REASON_LIMIT) or None)
