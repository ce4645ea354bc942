"""The SDK's own tracer, for tests, with spans that stay in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

from mqproto.simulator.base.traces.sdk.tracer import Tracer


@dataclass
class Traced:
    """The spans of a tracer, whose clock is set by the test."""

    sampler: Sampler | None = None
    per_s: int = 200
    now_s: float = 0.0
    lines: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)

    def __post_init__(self) -> None:
        provider = TracerProvider(sampler=self.sampler, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = Tracer(provider, self.say, lambda: self.now_s, per_s=self.per_s)

    def say(self, event: str, facts: dict[str, str | int]) -> None:
        self.lines.append((event, facts))

    @property
    def spans(self) -> list[ReadableSpan]:
        """Return the spans that have ended."""
        return [*self.exporter.get_finished_spans()]


def events_of(span: ReadableSpan) -> list[str]:
    return [event.name for event in span.events]
