"""Packets as columns: every row has the decoder's values for its packet, whatever is next to it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings, strategies as st

from mqproto.base.errors import WireFormatError
from mqproto.bodies import Tree, write_body
from mqproto.captures.packets import read_packets
from mqproto.captures.pipeline.reading.packets.columns import (
    PACKET_SCHEMA,
    packet_columns,
    ping_columns,
    table,
)
from mqproto.captures.pipeline.reading.packets.columns.walk import LONGEST_LIST
from mqproto.testing import nearly_valid_packets, packets, pings
from mqproto.wire import Packet, decode_packet, encode_packet, ping_packet
from tests.captures.pipeline.reading.packets.columns.places import decoded, laid_out
from tests.examples import EVERY_PACKET, a_user_message
from tests.frames import SESSION_FRAMES
from tests.wire.accidents import accidents

SAMPLES: Final = Path("captures/samples")


def with_body(body: bytes, body_type: int) -> bytes:
    message = a_user_message(body=body)
    message.properties.body_type = body_type
    return encode_packet(message)


BODIES: Final = [with_body(*write_body("drei Stück", kind)) for kind in ("xml", "VT_BSTR")] + [
    with_body(*write_body(Tree("Order", (("Id", "5"),)), "xml")),
    with_body(b"plain", 0),
    with_body(b"\xff", 0),
    with_body(b"<a>", 0),
    with_body(b"\x11\0\0\0", 3),
    with_body(b"", 8),
]
"""Messages with bodies of all kinds: text, XML, numbers, bytes that are not text, and bodies that do not fit their
type.
"""


def rows_of(data: list[bytes], gap: bytes = b"") -> list[dict[str, Any]]:
    """Return the rows of these packets, all read together."""
    rows: list[dict[str, Any]] = packet_columns(*laid_out(data, gap), texts=True).to_pylist()
    return rows


def assert_as_decoded(data: list[bytes], gap: bytes = b"") -> None:
    for packet, row in zip(data, rows_of(data, gap), strict=True):
        assert row == decoded(packet), packet.hex()


@pytest.mark.long
@given(
    st.lists(packets().map(encode_packet) | nearly_valid_packets() | st.binary(max_size=200), max_size=6),
    st.binary(max_size=3),
)
def test_every_row_is_what_the_decoder_says_of_the_packet(data: list[bytes], gap: bytes) -> None:
    assert_as_decoded(data, gap)


def test_every_row_of_the_samples_is_what_the_decoder_says() -> None:
    seen = [packet for path in sorted(SAMPLES.glob("*.pcapng")) for packet in read_packets(path)]
    assert_as_decoded([packet.data for packet in seen if not packet.is_ping])
    data = [packet.data for packet in seen if packet.is_ping]
    rows = ping_columns(*laid_out(data)).to_pylist()
    assert rows == [decoded(ping, connection=-1) for ping in data]
    assert {row["valid"] for row in rows} == {True, False}


def test_packets_after_accidents_are_as_the_decoder_has_them() -> None:
    rng = random.Random(1801)
    assert_as_decoded([accidents(rng, rng.choice([*EVERY_PACKET, *SESSION_FRAMES])) for _ in range(600)])


def test_a_table_of_nothing_but_spoilt_packets_says_what_is_wrong_with_each() -> None:
    spoilt = [*(packet[:-1] for packet in EVERY_PACKET), b"", b"LIOR", bytes(16)]
    assert_as_decoded(spoilt)
    assert not any(row["valid"] or row["fault"] is None for row in rows_of(spoilt))


def test_a_few_packets_are_read_one_by_one_and_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    few = list(EVERY_PACKET)
    all_at_once = rows_of(few)
    monkeypatch.setattr(table, "FEW", len(few))
    monkeypatch.setattr(table, "Walk", None)
    assert rows_of(few) == all_at_once


def test_no_packets_are_a_table_without_rows() -> None:
    for columns in (packet_columns, ping_columns):
        batch = columns(*laid_out([]))
        assert (batch.num_rows, batch.schema) == (0, PACKET_SCHEMA)


@settings(max_examples=20)
@given(st.lists(packets().map(encode_packet), min_size=1, max_size=4), st.randoms())
def test_rows_come_in_the_order_in_which_packets_are_given(data: list[bytes], rng: random.Random) -> None:
    order = [
        rng.randrange(len(data)) for _ in range(8)
    ]  # Some twice, as no two captures of one packet have to be.
    where, starts, sizes = laid_out(data)
    rows = packet_columns(where, starts[order], sizes[order], texts=True).to_pylist()
    assert rows == [decoded(data[place]) for place in order]


@given(st.lists(pings().map(ping_packet.encode) | st.binary(max_size=30), max_size=5))
def test_a_ping_is_what_the_decoder_says(data: list[bytes]) -> None:
    rows = ping_columns(*laid_out(data)).to_pylist()
    assert rows == [decoded(ping, connection=-1) for ping in data]


@settings(max_examples=25)
@given(st.lists(packets() | nearly_valid_packets(), max_size=4))
def test_only_what_is_refused_or_a_long_list_goes_through_the_codec(given: list[Packet | bytes]) -> None:
    data = [each if isinstance(each, bytes) else encode_packet(each) for each in given]
    with pytest.MonkeyPatch.context() as patch:
        one_by_one: list[int] = []
        patch.setattr(table, "add_one_by_one", lambda *args, **_: one_by_one.extend(args[2]))
        packet_columns(*laid_out(data))
    assert one_by_one == [row for row, packet in enumerate(data) if is_refused_or_has_a_long_list(packet)]


def is_refused_or_has_a_long_list(data: bytes) -> bool:
    try:
        header = getattr(decode_packet(data), "multi_queue_format", None)
    except WireFormatError:
        return True
    lists = (header.destination, header.administration, header.response) if header else ()
    return any(len(each.format_name_list.elements) > LONGEST_LIST for each in lists)


def test_what_bodies_say_is_read_where_it_is_asked_for() -> None:
    data = laid_out([*EVERY_PACKET, *EVERY_PACKET, *BODIES, *BODIES, *BODIES])
    assert data[1].size > table.FEW
    for laid in (data, laid_out(BODIES)):
        read, unread = packet_columns(*laid, texts=True), packet_columns(*laid)
        assert unread["body_text"].null_count == len(unread)
        assert read["body_text"].null_count < len(read)
        assert read.drop_columns(["body_text"]) == unread.drop_columns(["body_text"])


def test_the_columns_can_be_read_from_bytes_that_nobody_may_change() -> None:
    data, starts, sizes = laid_out(list(EVERY_PACKET))
    assert not data.flags.writeable
    changeable = data.copy()
    assert packet_columns(data, starts, sizes) == packet_columns(changeable, starts, sizes)
    assert (changeable == data).all()


def test_places_beyond_the_data_are_our_own_mistake() -> None:
    data, starts, sizes = laid_out([EVERY_PACKET[0]])
    for beyond in ((starts, sizes + 1), (starts - 1, sizes), (starts, -sizes)):
        with pytest.raises(AssertionError, match="within the data"):
            packet_columns(data, *beyond)
