"""A collector of OpenTelemetry's spans, for tests: OTLP over HTTP, decoded with the protocol's own package."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import trio
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.simulator.consumers import OK, HttpConsumer, Reply, Seen, listening

INTERNAL: Final = Span.SPAN_KIND_INTERNAL
PRODUCER: Final = Span.SPAN_KIND_PRODUCER
CONSUMER: Final = Span.SPAN_KIND_CONSUMER


class Collected(NamedTuple):
    """A span, and the service that sent it."""

    service: str
    span: Span

    @property
    def attributes(self) -> dict[str, Any]:
        return values(self.span.attributes)

    @property
    def events(self) -> list[str]:
        return [event.name for event in self.span.events]


def values(attributes: Any) -> dict[str, Any]:
    """Convert attributes from OTLP's form to a dictionary."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


class Collector:
    """A collector, with the spans that have arrived."""

    def __init__(self) -> None:
        self.http = HttpConsumer()
        self.http.answering = self._take
        self.spans: list[Collected] = []
        self.resources: dict[str, dict[str, Any]] = {}
        self.bodies_bytes = 0
        self._more = trio.Event()

    async def _take(self, seen: Seen) -> Reply:
        self.bodies_bytes += len(seen.body)
        for group in ExportTraceServiceRequest.FromString(seen.body).resource_spans:
            resource = values(group.resource.attributes)
            service = str(resource["service.name"])
            self.resources[service] = resource
            self.spans += [Collected(service, span) for scope in group.scope_spans for span in scope.spans]
        self._more.set()
        return OK

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until the spans that have arrived satisfy a condition."""
        while not holds():
            self._more = trio.Event()
            await self._more.wait()

    @property
    def url(self) -> str:
        return self.http.url.removesuffix("/orders")


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """Run a collector on a free port of this machine."""
    collector = Collector()
    async with listening(collector.http):
        yield collector
