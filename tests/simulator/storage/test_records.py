"""Transactions as bytes: they come back unchanged, and other bytes are refused."""

from __future__ import annotations

from contextlib import suppress
from itertools import count

import pytest
from hypothesis import assume, given, strategies as st

from mqproto.simulator.storage.records import Decoded, decoded, encoded
from mqproto.turn.effects import LAST_POSITION, IdentifierRow, MessageRow, Writes, message_key
from tests.simulator.storage.batches import LOCAL, batches, guids

uint32 = st.integers(0, 2**32 - 1)
rows = st.builds(
    MessageRow,
    st.builds(message_key, st.integers(1, 2**22), st.integers(0, LAST_POSITION)),
    st.binary(max_size=100),
    uint32,
    st.booleans(),
    st.none() | st.integers(0, 2**40),
    st.just(True),
    st.just(1),
)


def in_pieces(head: bytes, packets: list[bytes]) -> Decoded:
    return decoded(memoryview(head), memoryview(b"".join(packets)))


@given(data=st.data(), messages=st.lists(rows, max_size=5))
def test_a_record_comes_back_as_it_was(data: st.DataObject, messages: list[MessageRow]) -> None:
    writes = data.draw(batches({message_key(LOCAL, 1)}, count(2)))
    writes.finals, writes.moves = [], []
    writes.messages += messages
    writes.identifiers = data.draw(st.lists(st.builds(IdentifierRow, guids, uint32, uint32), max_size=3))
    writes.forgotten_identifiers = data.draw(st.lists(st.tuples(guids, uint32, uint32), max_size=3))
    found, hurt = in_pieces(*encoded(writes))
    assert found == writes
    assert hurt == []
    assert [type(row.final_ack) for row in found.messages] == [bool] * len(writes.messages)


@given(data=st.data())
def test_a_record_that_was_cut_or_has_more_behind_it_is_none(data: st.DataObject) -> None:
    head, packets = encoded(data.draw(batches({message_key(LOCAL, 1)}, count(2))))
    cut = data.draw(st.integers(0, len(head) - 1))
    for wrong, behind in ((head[:cut], b""), (head + b"\0", b""), (head, b"\0")):
        with pytest.raises(ValueError, match=r"no record|packets end|columns end"):
            in_pieces(wrong, [*packets, behind])


@given(messages=st.lists(rows, min_size=1, max_size=5), data=st.data())
def test_of_a_hurt_packet_it_is_said_whose_it_is(messages: list[MessageRow], data: st.DataObject) -> None:
    head, packets = encoded(Writes(messages=messages))
    assume(any(packets))
    chosen = data.draw(st.sampled_from([i for i, packet in enumerate(packets) if packet]))
    packet = bytearray(packets[chosen])
    packet[data.draw(st.integers(0, len(packet) - 1))] ^= data.draw(st.integers(1, 255))
    packets[chosen] = bytes(packet)
    assert in_pieces(head, packets).hurt == [messages[chosen]._replace(packet=bytes(packet))]


@given(head=st.binary(max_size=200), packets=st.binary(max_size=50))
def test_any_bytes_are_a_record_or_refused(head: bytes, packets: bytes) -> None:
    with suppress(ValueError):
        assert isinstance(in_pieces(head, [packets]).writes, Writes)
