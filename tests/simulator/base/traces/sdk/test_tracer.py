"""Spans are children of the spans that messages name, their rate is limited, and they name their service."""

from __future__ import annotations

from typing import Final

import pytest
import trio
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind

from mqproto.simulator.base.log import node_log
from mqproto.simulator.base.traces.asked import SpanDestination
from mqproto.simulator.base.traces.context import is_sampled
from mqproto.simulator.base.traces.sdk.tracer import provider_of, remote, started, trace_after
from mqproto.turn.effects import Trace
from tests.simulator.running import Log
from tests.simulator.traced import Traced

TRACE: Final = Trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "shop=1,desk=2")


def test_a_span_is_the_child_of_what_the_message_says() -> None:
    traced = Traced()
    span = traced.tracer.begin("x", SpanKind.PRODUCER, TRACE, {"a": 1}, at_ns=5)
    assert span is not None
    span.end(9)
    [done] = traced.spans
    assert done.parent is not None
    assert (f"{done.parent.trace_id:032x}", f"{done.parent.span_id:016x}") == tuple(
        TRACE.parent.split("-")[1:3]
    )
    assert done.parent.is_remote
    assert (done.start_time, done.end_time, done.kind) == (5, 9, SpanKind.PRODUCER)
    assert dict(done.attributes or {}) == {"messaging.system": "msmq", "a": 1}
    assert not done.links
    after = trace_after(span)
    assert after.state == TRACE.state
    assert after.parent.startswith(TRACE.parent[:36])
    assert after.parent != TRACE.parent


def test_without_one_it_begins_a_trace_whatever_is_current_here() -> None:
    traced = Traced()
    span = traced.tracer.begin("x", SpanKind.CONSUMER, None, {}, is_linked=True)
    assert span is not None
    span.end()
    assert traced.spans[0].parent is None
    assert not traced.spans[0].links


def test_a_state_whose_members_are_none_is_left_out() -> None:
    """[Trace Context] 3.3.1.3"""
    for state in ("nothing", "a=1,a=2", ",".join(f"k{number}=1" for number in range(60))):
        assert not remote(TRACE._replace(state=state)).trace_state
    assert remote(Trace("cc" + TRACE.parent[2:] + "-more")).trace_flags.sampled


def test_so_many_begin_in_a_second_and_the_rest_is_counted_in_one_line() -> None:
    traced = Traced(per_s=10)

    def begun(count: int) -> int:
        spans = [traced.tracer.begin("x", SpanKind.INTERNAL, TRACE, {}) for _ in range(count)]
        return sum(span is not None for span in spans)

    assert begun(1_000) == 10
    traced.now_s += 0.5
    assert begun(1_000) == 5
    assert [(event, facts["left_out"]) for event, facts in traced.lines] == [("traces-limited", 1)]
    traced.now_s += 60
    assert begun(1_000) == 10
    assert [facts["left_out"] for _, facts in traced.lines] == [1, 990 + 995 + 1]


def test_what_a_sampler_leaves_out_takes_nobodys_place() -> None:
    traced = Traced(sampler=ALWAYS_OFF, per_s=1)
    spans = [traced.tracer.begin("x", SpanKind.PRODUCER, None, {}) for _ in range(3)]
    assert [is_sampled(trace_after(span)) for span in spans if span is not None] == [False] * 3


def test_each_process_is_a_service_of_its_own_unless_the_variables_say_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def resource() -> dict[str, object]:
        provider = provider_of(InMemorySpanExporter(), "sender gateway")
        provider.shutdown()
        return dict(provider.resource.attributes)

    found = resource()
    assert (found["service.name"], found["service.namespace"]) == ("sender gateway", "mqproto")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "orders")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.namespace=shop")
    found = resource()
    assert (found["service.name"], found["service.instance.id"]) == ("orders", "sender gateway")
    assert (found["service.namespace"], found["deployment.environment.name"]) == ("shop", "test")


async def test_a_collector_that_is_down_is_one_line_and_the_end_does_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.1")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    log = Log()
    tracer = started(
        SpanDestination("http://127.0.0.1:9/v1/traces", "http://127.0.0.1:9"), "shop", node_log(log, "shop")
    )
    for _ in range(3):
        span = tracer.begin("x", SpanKind.INTERNAL, TRACE, {})
        assert span is not None
        span.end()
        await trio.sleep(0.1)
    line = await log.line("traces-not-exported")
    assert line["endpoint"] == "http://127.0.0.1:9"
    assert 0 < len(line["reason"]) <= 300
    await trio.to_thread.run_sync(tracer.close)
    assert len(log.getvalue().splitlines()) == 1
