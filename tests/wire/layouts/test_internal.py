"""The packets of the handshake, and pings."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import UsageError, WireFormatError
from mqproto.testing import pings
from mqproto.wire import (
    ConnectionParameters,
    Ping,
    encode_packet,
    establish_connection,
    ping_packet,
)
from tests.examples import (
    DESTINATION,
    SENDER,
    a_connection_parameters,
    a_ping,
    a_session_ack,
    an_establish_connection,
)


@pytest.mark.spec("[MS-MQQB] 2.2.3.1")
@pytest.mark.parametrize(("ping", "server_class", "word"), [(False, True, 0x0310), (True, False, 0x0010)])
def test_a_request_says_whether_a_ping_went_before_and_what_it_runs_on(
    ping: bool, server_class: bool, word: int
) -> None:
    packet = establish_connection(
        client=SENDER, server=DESTINATION, time_stamp_ms=1, ping=ping, server_class=server_class
    )
    assert packet.operating_system == word
    assert (packet.base.internal, packet.base.priority, packet.internal.packet_type) == (True, 3, 2)


@pytest.mark.spec("[MS-MQQB] 2.2.1")
@pytest.mark.parametrize("refused", [False, True])
def test_cs_refuses_the_connection(refused: bool) -> None:
    packet = establish_connection(client=SENDER, server=DESTINATION, time_stamp_ms=1, refused=refused)
    assert packet.refused is refused
    assert packet.internal.flags == (0x12 if refused else 0x02)
    assert not a_connection_parameters().refused


def test_internal_packets_have_the_sizes_of_the_specification() -> None:
    packets = (an_establish_connection(), a_connection_parameters(), a_session_ack())
    assert [len(encode_packet(packet)) for packet in packets] == [572, 32, 36]


@pytest.mark.spec("[MS-MQQB] 2.2.2.1")
def test_timeouts_outside_the_limits_are_not_proposed() -> None:
    packet = ConnectionParameters(recoverable_ack_timeout_ms=499, ack_timeout_ms=20_000, window_size=64)
    with pytest.raises(UsageError, match="500 to 120000 ms"):
        encode_packet(packet)


@given(pings())
def test_a_ping_survives_the_wire(ping: Ping) -> None:
    assert ping_packet.decode(ping_packet.encode(ping)) == ping


@pytest.mark.spec("[MS-MQQB] 2.2.7")
@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        ping_packet.encode(a_ping())[:-1],
        ping_packet.encode(a_ping()) + b"\0",
        b"\0\0HW" + ping_packet.encode(a_ping())[4:],
    ],
)
def test_a_datagram_that_is_no_ping_is_refused(datagram: bytes) -> None:
    with pytest.raises(WireFormatError):
        ping_packet.decode(datagram)


@given(st.binary(max_size=30))
def test_any_datagram_is_a_ping_or_is_refused(datagram: bytes) -> None:
    try:
        ping = ping_packet.decode(datagram)
    except WireFormatError:
        return
    assert ping_packet.encode(ping) == datagram
