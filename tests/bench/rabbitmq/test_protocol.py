from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import body, commands, frame, header, heartbeat

from tests.bench.figures import BenchError
from tests.bench.rabbitmq.protocol import (
    CHANNEL,
    FRAMING_BYTES,
    Confirmed,
    Delivered,
    Incoming,
    Publisher,
    request,
)


def delivery(tag: int, *parts: bytes) -> bytes:
    """What a broker says to a consumer, as pamqp has it."""
    properties = commands.Basic.Properties(delivery_mode=2)
    size = sum(map(len, parts))
    return (
        request(commands.Basic.Deliver("amq.ctag-1", tag, False, "", "classic"))
        + frame.marshal(header.ContentHeader(0, size, properties), CHANNEL)
        + b"".join(frame.marshal(body.ContentBody(part), CHANNEL) for part in parts)
    )


SAID = (
    request(commands.Basic.ConsumeOk("amq.ctag-1"))
    + delivery(1, b"hello \xce")
    + request(commands.Basic.Ack(7, True))
    + frame.marshal(heartbeat.Heartbeat(), 0)
    + delivery(2, b"in two", b" parts")
    + request(commands.Basic.Ack(8, False))
    + delivery(3)
)


@given(cuts=st.sets(st.integers(0, len(SAID))))
def test_events_are_found_however_tcp_cuts_what_a_broker_says(cuts: set[int]) -> None:
    incoming, ends = Incoming(), [*sorted(cuts), len(SAID)]
    found = []
    for start, end in zip([0, *ends], ends, strict=False):
        found += incoming.feed(SAID[start:end])
    answer, *others = found
    assert isinstance(answer, commands.Basic.ConsumeOk)
    assert answer.consumer_tag == "amq.ctag-1"
    assert others == [
        Delivered(1, b"hello \xce"),
        Confirmed(7, True),
        Delivered(2, b"in two parts"),
        Confirmed(8, False),
        Delivered(3, b""),
    ]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "not of its protocol"),
        (b"\1\0\1\0\0\0\4\0\x0a\0\x0aX", "not of its protocol"),
        (b"\1\0\1\0\0\0\4\0\x0a\0\xfa\xce", "not of its protocol"),
        (b"\1\0\1\0\0\0\2\0\x0a\xce", "not of its protocol"),
    ],
    ids=["another protocol", "no end", "no such method", "half a method"],
)
def test_what_is_not_of_the_protocol_is_told(said: bytes, reason: str) -> None:
    with pytest.raises(BenchError, match=reason):
        Incoming().feed(said)


@pytest.mark.parametrize(("size", "frames"), [(0, 2), (8, 3), (100, 3), (101, 4), (1_000, 12)])
def test_a_message_is_a_method_a_header_and_as_many_frames_as_its_body_needs(size: int, frames: int) -> None:
    message = bytes(range(256)) * 4
    data = Publisher("quorum", size, 100 + FRAMING_BYTES).published(message[:size])
    found = []
    while data:
        used, channel, value = frame.unmarshal(data)
        assert channel == CHANNEL
        found.append(value)
        data = data[used:]
    method, head, *parts = found
    assert len(found) == frames
    assert isinstance(method, commands.Basic.Publish)
    assert (method.exchange, method.routing_key) == ("", "quorum")
    assert isinstance(head, header.ContentHeader)
    assert head.properties.delivery_mode == 2, "it is persistent"
    assert head.body_size == size
    assert b"".join(part.value for part in parts if isinstance(part, body.ContentBody)) == message[:size]
