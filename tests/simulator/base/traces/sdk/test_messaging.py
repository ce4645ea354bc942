"""The spans of gateways and triggers follow OpenTelemetry's conventions for messaging."""

from __future__ import annotations

from typing import Final

import pytest
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from mqproto.simulator.base.traces.edges import UNTOLD
from mqproto.simulator.base.traces.sdk.messaging import Spans
from tests.simulator.traced import Traced

PARENT: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
QUEUE: Final = r"destination\orders"
HEADERS: Final = {"traceparent": PARENT, "tracestate": "a=1", "ce-id": "7"}


def test_a_message_goes_on_with_the_span_that_sends_it() -> None:
    traced = Traced()
    with Spans(traced.tracer).sending(QUEUE, HEADERS) as sending:
        carried = sending.carried(HEADERS)
        sending.accepted("GUID\\7", is_duplicate=False)
    [span] = traced.spans
    assert (span.name, span.kind) == (rf"send {QUEUE}", SpanKind.PRODUCER)
    assert dict(span.attributes or {}) == {
        "messaging.system": "msmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": QUEUE,
        "messaging.message.id": "GUID\\7",
    }
    assert (span.status.status_code, len(span.links)) == (StatusCode.UNSET, 0)
    assert span.context is not None
    assert carried == {
        "ce-id": "7",
        "traceparent": f"{PARENT[:36]}{span.context.span_id:016x}-01",
        "tracestate": "a=1",
    }


def test_a_duplicate_says_so() -> None:
    traced = Traced()
    with Spans(traced.tracer).sending(QUEUE, {}) as sending:
        sending.accepted("GUID\\7", is_duplicate=True)
    assert (traced.spans[0].attributes or {})["mqproto.duplicate"] is True
    assert traced.spans[0].parent is None


def test_a_call_is_the_child_of_the_message_and_linked_to_it() -> None:
    traced = Traced()
    with Spans(traced.tracer).processing(QUEUE, HEADERS, "GUID\\7", 2) as processing:
        carried = processing.carried(HEADERS)
        current = get_current_span().get_span_context()
    [span] = traced.spans
    assert (span.name, span.kind) == (f"process {QUEUE}", SpanKind.CONSUMER)
    attributes = dict(span.attributes or {})
    assert (attributes["messaging.operation.type"], attributes["mqproto.attempt"]) == ("process", 2)
    assert [link.context for link in span.links] == [span.parent]
    assert span.context is not None
    assert current.span_id == span.context.span_id
    assert carried["traceparent"] == f"{PARENT[:36]}{span.context.span_id:016x}-01"
    assert not get_current_span().get_span_context().is_valid


def test_a_failure_says_of_what_kind_it_is_and_an_error_by_its_name() -> None:
    traced = Traced()
    spans = Spans(traced.tracer)
    with spans.processing(QUEUE, HEADERS, "GUID\\7", 1) as processing:
        processing.failed("business error", "no-such-order\n" + "x" * 1_000)
    with pytest.raises(KeyError), spans.sending(QUEUE, {}):
        raise KeyError("secret")
    first, second = traced.spans
    assert (first.attributes or {})["error.type"] == "business error"
    assert (first.status.status_code, len(first.status.description or "")) == (StatusCode.ERROR, 300)
    assert (second.attributes or {})["error.type"] == "KeyError"
    assert second.status.description is None


def test_a_failure_that_was_said_is_not_said_otherwise() -> None:
    traced = Traced()
    sending = Spans(traced.tracer).sending(QUEUE, {})
    sending.failed("queue-full")
    with pytest.raises(KeyError), sending:
        raise KeyError
    assert (traced.spans[0].attributes or {})["error.type"] == "queue-full"


def test_a_trace_that_is_none_is_begun_anew_and_beyond_the_limit_the_headers_stay() -> None:
    traced = Traced(per_s=1)
    spans = Spans(traced.tracer)
    with spans.sending(QUEUE, {"traceparent": PARENT + "-01"}):
        pass
    assert traced.spans[0].parent is None
    assert spans.sending(QUEUE, HEADERS) is UNTOLD
