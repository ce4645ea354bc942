"""Begins spans, up to a limit per second.

Without the limit, the senders would determine how many spans there are, because they decide how many messages are
sampled.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import trio
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace.span import TraceState
from structlog.typing import FilteringBoundLogger

from mqproto.simulator.base.program.extras import build
from mqproto.simulator.base.traces.asked import SpanDestination
from mqproto.simulator.base.traces.sdk.exporting import CLOSE_S, Say, Watched, ended_within, otlp
from mqproto.turn.effects import Trace

SPANS_PER_S: Final = 200
"""How many spans a process may begin per second. It may begin all of them at once."""
SAID_AGAIN_S: Final = 60.0
SYSTEM: Final = "msmq"
SERVICE: Final = "service.name"


class Tracer:
    """The spans of one process.

    Args:
        provider: makes the spans and has an exporter for them.
        say: takes a line for the log.
        now_s: a clock.
    """

    def __init__(
        self,
        provider: TracerProvider,
        say: Say,
        now_s: Callable[[], float] = time.monotonic,
        *,
        per_s: int = SPANS_PER_S,
    ) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("mqproto", build())
        self._say = say
        self._now_s = now_s
        self._per_s = per_s
        self._left = float(per_s)
        self._filled_s = now_s()
        self._left_out = 0
        self._said_s: float | None = None

    def begin(
        self,
        name: str,
        kind: SpanKind,
        trace: Trace | None,
        attributes: dict[str, str | int],
        *,
        is_linked: bool = False,
        at_ns: int | None = None,
    ) -> Span | None:
        """Begin a span as a child of the message's previous step. Return None if there were too many lately.

        Args:
            trace: the message's trace; None if a trace begins here.
            is_linked: whether the span also has a link to its parent, as spans for the processing of a message have.
        """
        if not self._has_room():
            return None
        parent = remote(trace) if trace is not None else None
        span = self._tracer.start_span(
            name,
            Context() if parent is None else set_span_in_context(NonRecordingSpan(parent), Context()),
            kind,
            {"messaging.system": SYSTEM, **attributes},
            [Link(parent)] if is_linked and parent is not None else [],
            at_ns,
        )
        if span.is_recording():
            self._left -= 1
        return span

    def _has_room(self) -> bool:
        now_s = self._now_s()
        self._left = min(float(self._per_s), self._left + (now_s - self._filled_s) * self._per_s)
        self._filled_s = now_s
        if self._left >= 1:
            return True
        self._left_out += 1
        if self._said_s is None or now_s - self._said_s >= SAID_AGAIN_S:
            self._said_s = now_s
            advice = "have fewer messages sampled where they are handed in: OTEL_TRACES_SAMPLER"
            self._say("traces-limited", {"per_s": self._per_s, "left_out": self._left_out, "advice": advice})
        return False

    def close(self, patience_s: float = CLOSE_S) -> None:
        """Send the remaining spans, provided that the collector takes them in time."""
        if not ended_within(self._provider.shutdown, patience_s):
            self._say("traces-not-exported", {"reason": f"no end within {patience_s:g} s"})


def started(wish: SpanDestination, who: str, log: FilteringBoundLogger) -> Tracer:
    """Return a tracer whose spans are sent to a collector.

    Args:
        who: the name of the process in the log.
    """
    token = trio.lowlevel.current_trio_token()

    def say(event: str, facts: dict[str, str | int]) -> None:
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(partial(log.warning, event, endpoint=wish.shown, **facts))

    return Tracer(provider_of(Watched(otlp(wish.endpoint), say), who), say)


def provider_of(exporter: SpanExporter, who: str) -> TracerProvider:
    """Return a provider that keeps at most 2,048 spans in memory until the SDK's thread has sent them.

    The service has the same name as in the log, because each queue manager is a service of its own. OTEL_SERVICE_NAME
    and OTEL_RESOURCE_ATTRIBUTES take precedence over that.
    """
    mine = Resource({SERVICE: who, "service.namespace": "mqproto", "service.version": build()})
    said = Resource.create({"service.instance.id": who})
    said = Resource({name: value for name, value in said.attributes.items() if not _is_default(name, value)})
    provider = TracerProvider(resource=mine.merge(said), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _is_default(name: str, value: object) -> bool:
    return name == SERVICE and str(value).startswith("unknown_service")


def remote(trace: Trace) -> SpanContext:
    """Return the context of the span that a message's trace names.

    The headers are valid; a state that is not valid is left out.
    """
    _, trace_id, span_id, flags = trace.parent.split("-")[:4]
    return SpanContext(
        int(trace_id, 16),
        int(span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(flags, 16)),
        trace_state=TraceState.from_header([trace.state]) if trace.state else None,
    )


def trace_after(span: Span) -> Trace:
    """Return the trace for the steps that follow a span.  [Trace Context] 3.2, 3.3"""
    context = span.get_span_context()
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    return Trace(parent, context.trace_state.to_header())
