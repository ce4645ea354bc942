"""Hostile packets: every reader refuses each of them, and none harms a server."""

from __future__ import annotations

import pytest

from mqproto.base.errors import WireFormatError
from mqproto.simulator.fuzz.tactics.malformed import hostile_packets, hostile_pings
from mqproto.simulator.world import Fault, simulate
from mqproto.simulator.world.scenarios.scenario import guid_of
from mqproto.wire import decode_packet, inspect_packet
from tests.simulator.world.worlds import a_burst, a_chain

PACKETS = hostile_packets(guid_of("stranger"), guid_of("b"))
PINGS = hostile_pings(guid_of("stranger"))


@pytest.mark.parametrize("name", PACKETS)
def test_a_hostile_packet_is_refused_by_name_and_offset(name: str) -> None:
    with pytest.raises(WireFormatError, match=r"at byte \d+ is .*, must be .*  \[MS-MQ"):
        decode_packet(PACKETS[name])
    assert not inspect_packet(PACKETS[name]).is_valid


@pytest.mark.long
def test_no_hostile_packet_and_no_hostile_ping_harms_a_node() -> None:
    faults = [
        Fault(at_ms=100 + 20 * value, kind="hostile", where="b", value=value) for value in range(len(PACKETS))
    ]
    faults += [
        Fault(at_ms=50 + 20 * value, kind="hostile ping", where="b", value=value)
        for value in range(len(PINGS))
    ]
    result = simulate(a_chain(a_burst(count=20), faults=tuple(faults)))
    assert result.breach is None
    assert result.tally["received"] == 20
    assert result.tally["fault hostile"] == len(PACKETS)
    assert result.tally["fault hostile ping"] == len(PINGS)
