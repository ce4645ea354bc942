"""W3C's trace context in headers and in packets; only valid ones are accepted."""

from __future__ import annotations

import os
from typing import Final

import pytest
from hypothesis import given, strategies as st

from mqproto.simulator.base.traces import context
from mqproto.simulator.base.traces.context import is_sampled, sampled_in, trace_of, with_trace
from mqproto.simulator.client.envelope import ENVELOPE_LIMIT_BYTES, VERSION, Envelope
from mqproto.turn.effects import Trace
from mqproto.wire import encode_packet
from tests.examples import a_transactional_message

PARENT: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
UNSAMPLED: Final = PARENT[:-2] + "00"


def packet_with(extension: bytes, body: bytes = b"body") -> bytes:
    message = a_transactional_message()
    message.properties.extension_data = extension
    message.properties.message_body = body
    message.properties.allocation_body_size = len(body)
    return encode_packet(message)


def carrying(**headers: str) -> bytes:
    return packet_with(Envelope(content_type="text/plain", headers=headers).as_extension())


@pytest.mark.parametrize(
    "parent",
    [
        *("", "x", PARENT + "-", PARENT + " ", " " + PARENT, PARENT.upper(), PARENT[:-1], PARENT + "0"),
        *("ff" + PARENT[2:], PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32)),
        *(PARENT.replace("00f067aa0ba902b7", "0" * 16), f"{PARENT}, {PARENT}", "00-" + "a" * 100_000),
        *(PARENT.replace("-", "_"), PARENT.replace("b", "g", 1), "01" + PARENT[2:] + "-" + "x" * 201),
    ],
)
def test_a_parent_that_is_none_is_none(parent: str) -> None:
    """[Trace Context] 3.2.2.2 to 3.2.2.5, 4: an invalid parent counts as missing, and then its state is ignored."""
    assert trace_of({"traceparent": parent, "tracestate": "shop=1"}) is None


@pytest.mark.parametrize("state", ["a=" + "x" * 511, "a=\xe4", "a=\n"])
def test_a_state_that_is_none_leaves_its_parent(state: str) -> None:
    """[Trace Context] 3.3.1"""
    assert trace_of({"traceparent": PARENT, "tracestate": state}) == Trace(PARENT)
    assert trace_of({"traceparent": PARENT, "tracestate": "a=1"}) == Trace(PARENT, "a=1")


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    """[Trace Context] 4"""
    later = "cc" + PARENT[2:]
    assert trace_of({"traceparent": later + "-what-comes-then"}) == Trace(later + "-what-comes-then")
    assert is_sampled(Trace(later + "-00"))
    assert [is_sampled(Trace(PARENT[:-2] + flags)) for flags in ("00", "01", "02", "03", "ff")] == [
        *(False, True, False, True, True)
    ]


def test_one_trace_takes_the_place_of_another() -> None:
    headers = {"ce-id": "1", "traceparent": UNSAMPLED, "tracestate": "a=1"}
    assert with_trace(headers, Trace(PARENT)) == {"ce-id": "1", "traceparent": PARENT}
    assert with_trace({}, Trace(PARENT, "b=2")) == {"traceparent": PARENT, "tracestate": "b=2"}
    assert with_trace(headers, None) == {"ce-id": "1"}


def test_a_message_is_followed_if_its_envelope_has_a_sampled_parent() -> None:
    assert sampled_in(carrying(traceparent=PARENT, tracestate="a=1")) == Trace(PARENT, "a=1")
    assert sampled_in(carrying(traceparent=UNSAMPLED)) is None
    assert sampled_in(carrying(tracestate="a=1")) is None
    assert sampled_in(packet_with(b"")) is None


@pytest.mark.parametrize(
    "extension",
    [
        b'{"headers":{"traceparent":"%s"}}' % PARENT.encode(),
        b'{"envelope":2,"headers":{"traceparent":"%s"}}' % PARENT.encode(),
        b'{"envelope":1,"headers":{"traceparent":"%s"}' % PARENT.encode(),
        b'{"envelope":1,"headers":{"traceparent":["%s"]}}' % PARENT.encode(),
        b'{"envelope":1,"headers":{"traceparent":"%s","x":"\xff"}}' % PARENT.encode(),
        b'{"envelope":1,"x":{"traceparent":"%s"}}' % PARENT.encode(),
        b'{"envelope":1,"x":' + b"[" * 5_000 + b'"traceparent":',
        b'{"envelope":1,"headers":{"traceparent":"%s"},"x":"%s"}' % (PARENT.encode(), b"y" * 10_240),
        b'"traceparent":"%s"' % PARENT.encode(),
    ],
)
def test_what_only_looks_like_an_envelope_is_not_followed(extension: bytes) -> None:
    assert sampled_in(packet_with(extension)) is None


def test_what_stands_in_a_body_is_nobodys_trace() -> None:
    body = Envelope(headers={"traceparent": PARENT}).as_extension()
    assert sampled_in(packet_with(b"", body)) is None
    assert sampled_in(packet_with(b"{}", body)) is None


def test_of_a_large_message_the_beginning_is_searched() -> None:
    extension = Envelope(headers={"traceparent": PARENT}).as_extension()
    assert sampled_in(packet_with(extension, bytes(1_000_000))) == Trace(PARENT)


ANY: Final = st.sampled_from([PARENT, UNSAMPLED, "", PARENT + "-x", "00-1-1-01"]) | st.text(
    st.characters(codec="ascii", categories=("L", "N", "P", "Zs")), max_size=60
)


@given(
    st.dictionaries(st.sampled_from(["traceparent", "tracestate", "ce-id"]), ANY),
    st.sampled_from(["", '"traceparent":"' + PARENT + '"', "text/plain"]),
)
def test_a_queue_manager_and_a_gateway_read_the_same_of_an_envelope(
    headers: dict[str, str], content_type: str
) -> None:
    extension = Envelope(content_type=content_type, headers=headers).as_extension()
    trace = trace_of(Envelope.of(extension).headers)
    assert sampled_in(packet_with(extension)) == (trace if trace and is_sampled(trace) else None)


@given(st.binary(max_size=300), st.integers(0, 200))
def test_whatever_is_in_an_extension_is_read_or_left(noise: bytes, cut: int) -> None:
    whole = Envelope(headers={"traceparent": PARENT}).as_extension()
    for extension in (noise, whole[:cut] + noise + whole[cut:]):
        found = sampled_in(packet_with(extension))
        assert found is None or trace_of({"traceparent": found.parent}) is not None


def test_its_limits_are_those_of_an_envelope() -> None:
    assert (context._EXTENSION_LIMIT_BYTES, context._VERSION) == (ENVELOPE_LIMIT_BYTES, VERSION)


def test_what_is_remembered_of_extensions_is_bounded() -> None:
    for _ in range(1_000):
        sampled_in(packet_with(b'"traceparent":' + os.urandom(8)))
    assert context._sampled.cache_info().currsize <= 512
