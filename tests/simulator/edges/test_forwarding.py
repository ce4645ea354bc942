"""Headers that travel from a producer's request through a gateway and a queue manager to a consumer's request."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError
from mqproto.simulator.client import connect
from mqproto.simulator.client.envelope import Envelope
from mqproto.simulator.edges.forwarding import RESERVED, Forwarding
from mqproto.simulator.edges.gateway.front import LIMIT_BYTES
from mqproto.simulator.edges.trigger.access import Access
from mqproto.simulator.edges.trigger.callee import HttpCallee, endpoint
from mqproto.simulator.edges.trigger.errorcopy import copy_for, original_of
from mqproto.simulator.edges.trigger.judgment import call_for
from mqproto.simulator.topology import Topology
from tests.simulator.consumers import HttpConsumer, listening
from tests.simulator.edges.trigger.test_errorcopy import NOTE, message
from tests.simulator.gateways import gateway
from tests.simulator.running import running

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
ORDERS = "/queues/orders/messages"


def taken(headers: dict[str, list[str]], *declared: str) -> dict[str, str]:
    return Forwarding(declared).taken(list(headers), lambda name: headers[name])


@pytest.mark.parametrize(
    ("traces", "states", "found"),
    [
        ([TRACE], [], {"traceparent": TRACE}),
        ([TRACE], ["a=1", "b=2"], {"traceparent": TRACE, "tracestate": "a=1, b=2"}),
        ([TRACE.replace("00-", "cc-", 1) + "-more"], ["a=1"], None),
        ([TRACE], ["a=" + "x" * 511], {"traceparent": TRACE}),
        ([TRACE], ["a=\xe4"], {"traceparent": TRACE}),
        ([], ["a=1"], {}),
        ([TRACE, TRACE], ["a=1"], {}),
        ([TRACE + "-more"], ["a=1"], {}),
        ([TRACE.upper()], [], {}),
        ([TRACE.replace("00-", "ff-", 1)], [], {}),
        (["00-" + "0" * 32 + TRACE[35:]], [], {}),
        ([TRACE[:36] + "0" * 16 + "-01"], [], {}),
        (["cc" + TRACE[2:] + "-" + "x" * 201], [], {}),
    ],
)
def test_a_trace_that_is_none_is_left_out_with_its_state(
    traces: list[str], states: list[str], found: dict[str, str] | None
) -> None:
    """[Trace Context] 3.2.2, 3.3.1, 4.3: an invalid trace is not a reason to refuse a message."""
    headers = {name: said for name, said in (("traceparent", traces), ("tracestate", states)) if said}
    assert taken(headers) == (
        {name: ", ".join(said) for name, said in headers.items()} if found is None else found
    )


def test_attributes_of_events_travel_and_each_is_there_once() -> None:
    event = {"ce-id": ["1"], "ce-type": ["order"], "ce-subject": [""], "cex": ["x"], "x-tenant": ["a", "b"]}
    assert taken(event) == {"ce-id": "1", "ce-type": "order"}
    assert taken(event, "X-Tenant") == {"ce-id": "1", "ce-type": "order", "x-tenant": "a, b"}
    with pytest.raises(UsageError, match="ce-id is there 2 times: send it once"):
        taken({"ce-id": ["1", "2"]})


@pytest.mark.parametrize(
    "name", [*sorted(RESERVED), "MQ-Label", "Webhook-Id", "Authorization", "", "a b", "ä", "x" * 81]
)
def test_what_is_of_one_request_alone_cannot_be_declared(name: str) -> None:
    with pytest.raises(UsageError, match="--forward-header"):
        Forwarding([name])


NAMES = st.sampled_from(
    ["host", "authorization", "x-admin", "x-tenant", "ce-id", "traceparent", "content-length"]
)


@given(st.dictionaries(NAMES, st.text("ab", min_size=1, max_size=5)))
def test_whoever_writes_an_envelope_says_no_more_than_what_was_declared(headers: dict[str, str]) -> None:
    envelope = Envelope.of(Envelope(headers=headers).as_extension())
    assert envelope.headers == headers
    given_headers = Forwarding(["x-tenant"]).given(envelope.headers)
    assert given_headers.keys() == headers.keys() & {"x-tenant", "ce-id"}


def test_a_trace_that_a_stranger_wrote_is_given_if_it_is_one() -> None:
    """[Trace Context] 3.2.2: not every message came through a gateway that checked its trace."""
    forwarding = Forwarding()
    assert forwarding.given({"traceparent": TRACE, "tracestate": "a=1"}) == {
        "traceparent": TRACE,
        "tracestate": "a=1",
    }
    assert forwarding.given({"traceparent": TRACE + "-01", "tracestate": "a=1", "ce-id": "1"}) == {
        "ce-id": "1"
    }


def test_a_copy_in_an_error_queue_keeps_them_and_so_does_the_message_that_is_sent_again() -> None:
    envelope = Envelope(producer_key="1", headers={"ce-type": "order", "traceparent": TRACE})
    copy = copy_for(message(extension=envelope.as_extension()), NOTE)
    assert Envelope.of(copy.extension) == envelope
    assert Envelope.of(original_of(message(extension=copy.extension)).extension) == envelope


# From one request to the other


@pytest.mark.parametrize("as_json", [False, True])
async def test_they_reach_the_consumer_and_nothing_else_does(
    topology: Topology, tmp_path: Path, as_json: bool
) -> None:
    travelling = {
        "Traceparent": TRACE,
        "tracestate": "a=1",
        "CE-Id": "17",
        "ce-source": "/shop?q=%22",
        "X-Tenant": "blue",
    }
    others = {"X-Other": "x", "Cookie": "x", "Authorization": "x", "Content-Encoding": "gzip"}
    consumer = HttpConsumer()
    async with (
        running(topology, "destination", tmp_path),
        connect(topology, "destination", tmp_path) as client,
        gateway(topology, tmp_path, forward_headers=("x-tenant", "x-other")) as producer,
        listening(consumer),
        endpoint(consumer.url, Access(forwarding=Forwarding(["X-Tenant"])), as_json=as_json) as called,
    ):
        answer = await producer.post(ORDERS, content=gzip.compress(b"{}"), headers=travelling | others)
        assert answer.status_code == 200
        [received] = await client.receive("orders")
        await HttpCallee(called).call(call_for(received))
    [seen] = consumer.seen
    assert {name: seen.headers[name.lower()] for name in travelling} == travelling
    assert seen.headers.get("content-encoding") == (None if as_json else "gzip")
    assert as_json or gzip.decompress(seen.body) == b"{}"
    assert not seen.headers.keys() & {"x-other", "cookie", "authorization"}


async def test_an_id_belongs_to_a_message_whatever_its_trace_is(topology: Topology, tmp_path: Path) -> None:
    """Content-Encoding describes the body, so messages with the same id must have the same value of it."""
    async with running(topology, "destination", tmp_path), gateway(topology, tmp_path) as producer:

        async def told(body: bytes, **headers: str) -> Any:
            spelt = {name.replace("_", "-"): value for name, value in headers.items()}
            return (await producer.post(ORDERS, content=body, headers=spelt)).json()

        for number, kind in enumerate(("", "8")):
            key = {"Idempotency-Key": str(number), "MQ-Body-Type": kind}
            assert not (await told(b"x", **key, traceparent=TRACE))["duplicate"]
            assert (await told(b"x", **key, traceparent=TRACE.replace("4b", "5b")))["duplicate"]
            assert (await told(b"x", **key, ce_id="1"))["duplicate"]
            assert (await told(b"x", **key))["duplicate"]
            assert (await told(b"x", **key, content_encoding="br"))["code"] == "key-reused"


async def test_what_does_not_fit_is_refused_with_the_reason(topology: Topology, tmp_path: Path) -> None:
    async with (
        running(topology, "destination", tmp_path),
        connect(topology, "destination", tmp_path) as client,
        gateway(topology, tmp_path) as producer,
    ):

        async def told(body: bytes, headers: dict[str, Any]) -> tuple[int, str]:
            answer = await producer.post(ORDERS, content=body, headers=headers)
            return answer.status_code, answer.json().get("message", "")

        many = {f"ce-{number}": "1" for number in range(33)}
        assert await told(b"", many) == (400, "33 headers are to travel with the message; at most 32 can")
        assert "have 4,098 characters" in (await told(b"", {"ce-a": "x" * 4_094}))[1]
        assert "printable ASCII" in (await told(b"", {"ce-a": b"\xe4"}))[1]
        largest = {"ce-a": '"' * 4_092, "Idempotency-Key": "\\" * 200, "Content-Type": '"' * 255}
        status, text = await told(bytes(LIMIT_BYTES), largest)
        assert (status, text.endswith("bytes beside these headers")) == (413, True)
        most_bytes = int(text.split("at most ")[1].split(" ")[0].replace(",", ""))
        assert (await told(bytes(most_bytes + 1), largest))[0] == 413
        assert (await told(bytes(most_bytes), largest))[0] == 200
        [received] = await client.receive("orders")
        assert Envelope.of(received.extension).headers == {"ce-a": '"' * 4_092}
