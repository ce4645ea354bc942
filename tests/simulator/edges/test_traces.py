"""A request with a traceparent becomes one trace, which spans the gateway, the nodes, the trigger and the service, as a
collector sees it.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from mqproto.simulator.client.envelope import HEADERS_LIMIT, Envelope
from mqproto.simulator.edges.gateway.front import LIMIT_BYTES
from mqproto.simulator.topology import Topology
from mqproto.simulator.topology.ports import reserved_address
from mqproto.simulator.topology.views import as_toml
from tests.simulator.collectors import CONSUMER, INTERNAL, PRODUCER, Collected, Collector, collecting
from tests.simulator.consumers import HttpConsumer, listening
from tests.simulator.edges.trigger.test_run import ended, running_trigger
from tests.simulator.gateways import gateway, producer
from tests.simulator.running import Log, processes, running, running_with_client

TRACE_ID: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
PRODUCERS: Final = "00f067aa0ba902b7"
PARENT: Final = f"00-{TRACE_ID}-{PRODUCERS}-01"
ORDERS: Final = "/queues/destination%5Corders/messages"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the exporter send at once, and give up at once if it cannot send."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")


def of(collector: Collector, service: str, trace_id: str = TRACE_ID) -> list[Collected]:
    """Return the spans of one service in one trace."""
    return [one for one in collector.spans if (one.service, one.span.trace_id.hex()) == (service, trace_id)]


def events(spans: list[Collected]) -> list[str]:
    """Return the names of all events, in the order in which their spans began."""
    return [
        name for one in sorted(spans, key=lambda one: one.span.start_time_unix_nano) for name in one.events
    ]


async def test_one_request_is_one_trace_from_the_producer_to_the_service(
    topology: Topology, tmp_path: Path
) -> None:
    consumer = HttpConsumer()
    services = ("sender gateway", "sender", "intermediate", "destination", "destination trigger")
    last = {
        "sender": "order-acknowledged",
        "intermediate": "session-acknowledged",
        "destination": "committed",
    }
    async with collecting() as collector, listening(consumer):
        address = "{}:{}".format(*reserved_address())
        sender = replace(topology.nodes["sender"], gateway={"listen": address, "traces": collector.url})
        topology = topology.with_node(sender).with_traces(collector.url)
        file = tmp_path / "three.toml"
        file.write_text(as_toml(topology))
        to_service = ("--url", consumer.url, "--traces", collector.url)
        async with (
            processes(topology, tmp_path),
            running_trigger(file, *to_service) as trigger,
            producer(int(address.rpartition(":")[2])) as client,
        ):
            headers = {"traceparent": PARENT, "tracestate": "shop=1"}
            answer = await client.post(ORDERS, content=b"one", headers=headers)
            unsampled = {"traceparent": PARENT[:-2] + "00", "tracestate": "shop=2"}
            assert (await client.post(ORDERS, content=b"two", headers=unsampled)).status_code == 200
            await collector.until(
                lambda: (
                    all(step in events(of(collector, name)) for name, step in last.items())
                    and {one.service for one in collector.spans} == {*services}
                )
            )
            while len(consumer.seen) < 2:  # noqa: ASYNC110
                await trio.sleep(0.02)
            # What is left is sent at the end.
            assert await ended(trigger, signal.SIGTERM) == 0
    assert answer.status_code == 200, answer.text
    message = answer.json()["id"]
    assert {one.span.trace_id.hex() for one in collector.spans} == {TRACE_ID}
    [sent] = of(collector, "sender gateway")
    [processed] = of(collector, "destination trigger")
    assert (sent.span.name, sent.span.kind) == (r"send destination\orders", PRODUCER)
    assert (sent.span.parent_span_id.hex(), sent.span.trace_state) == (PRODUCERS, "shop=1")
    assert (processed.span.name, processed.span.kind) == (r"process destination\orders", CONSUMER)
    assert [link.span_id for link in processed.span.links] == [sent.span.span_id]
    others = [one for one in collector.spans if one is not sent]
    assert {one.span.parent_span_id for one in others} == {sent.span.span_id}
    assert {one.attributes["messaging.message.id"] for one in collector.spans} == {message}
    assert {one.attributes["messaging.system"] for one in collector.spans} == {"msmq"}
    for name in ("sender", "intermediate", "destination"):
        assert {one.span.kind for one in of(collector, name)} == {INTERNAL}
    assert {"accepted", "sent", "order-acknowledged"} <= {*events(of(collector, "sender"))}
    passed_on = ["arrived", "forwarded", "stored", "sent", "session-acknowledged"]
    assert events(of(collector, "intermediate")) == passed_on
    assert events(of(collector, "destination")) == ["arrived", "queued", "stored", "delivered", "committed"]
    assert {one.span.name.split()[0] for one in of(collector, "destination")} <= {"arrived", "delivered"}
    # The service goes on with the span of the call; what was not to be recorded reaches it as that.
    [first, second] = sorted((seen.headers for seen in consumer.seen), key=lambda seen: seen["tracestate"])
    assert first["traceparent"] == f"00-{TRACE_ID}-{processed.span.span_id.hex()}-01"
    assert first["tracestate"] == "shop=1"
    assert second["traceparent"].startswith(f"00-{TRACE_ID}-")
    assert second["traceparent"].endswith("-00")
    assert {*collector.resources} == {*services}


async def test_a_gateway_takes_what_it_takes_without_traces(topology: Topology, tmp_path: Path) -> None:
    """A message that has no room for a trace is accepted, and goes without one."""
    full = {f"ce-{number}": "1" for number in range(HEADERS_LIMIT)}
    async with (
        collecting() as collector,
        running_with_client(topology, "destination", tmp_path) as client,
        gateway(topology, tmp_path, traces=collector.url) as handing_in,
    ):
        requests: list[tuple[bytes, dict[str, Any]]] = [
            (b"x", {}),
            (b"x", full),
            (bytes(LIMIT_BYTES), {}),
            (b"x", {"MQ-Extension": "eA=="}),
            (b"x", {"traceparent": "00-" + "0" * 10_000, "Idempotency-Key": "1"}),
        ]
        for content, headers in requests:
            answer = await handing_in.post("/queues/orders/messages", content=content, headers=headers)
            assert answer.status_code == 200, answer.text
        key = {"Idempotency-Key": "1"}
        assert (await handing_in.post("/queues/orders/messages", content=b"x", headers=key)).json()[
            "duplicate"
        ]
        assert (
            await handing_in.post("/queues/orders/messages", content=b"y", headers=key)
        ).status_code == 422
        found = [Envelope.of(message.extension).headers for message in await client.receive("orders", 5)]
        await collector.until(lambda: len(collector.spans) == 7)
    assert [*found[0]] == ["traceparent"]
    assert found[1:4] == [full, {}, {}]
    assert [*found[4]] == ["traceparent"]
    attributes = [one.attributes for one in collector.spans]
    assert [each.get("mqproto.duplicate") for each in attributes] == [*[None] * 5, True, None]
    assert [each.get("error.type") for each in attributes] == [*[None] * 6, "key-reused"]


async def test_a_stranger_and_a_collector_that_is_down_cost_one_line_each(
    topology: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    log = Log()
    async with running(topology, "destination", tmp_path, log) as node:
        async with gateway(topology, tmp_path, node="destination", traces="http://127.0.0.1:9") as handing_in:
            for number in range(3):
                headers = {"traceparent": PARENT, "tracestate": f"not a state,{number}"}
                answer = await handing_in.post("/queues/orders/messages", content=b"x", headers=headers)
                assert answer.status_code == 200
            await log.line("traces-not-exported")
        node.stop()
        await log.line("stopped")
    # One of the node, one of its gateway, whose spans are those of another service.
    assert len(log.lines("traces-not-exported")) == 2
    assert not any("not a state" in line for line in log.getvalue().splitlines())
    accepted = [line for line in log.lines("accepted") if "key" not in line]
    assert accepted == [], "without --waypoints the steps are spans alone"
