"""Rows made one by one: every column has the codec's value, even for Pings and for bytes that form no packet."""

from __future__ import annotations

import numpy as np
import pytest

from mqproto.captures.pipeline.reading.packets.columns import codec
from mqproto.captures.pipeline.reading.packets.columns.codec import add_findings, add_one_by_one
from mqproto.captures.pipeline.reading.packets.columns.schema import Table
from mqproto.wire import encode_packet
from tests.captures.pipeline.reading.packets.columns.places import decoded, laid_out
from tests.examples import EVERY_PACKET, a_transactional_message


def test_the_codec_alone_gives_the_rows_of_the_decoder() -> None:
    packets = [*EVERY_PACKET, b"", b"LIOR", EVERY_PACKET[0][:-1]]
    data, starts, sizes = laid_out(packets)
    table = Table(len(packets))
    add_one_by_one(table, data, np.arange(len(packets)), starts, starts + sizes, texts=True)
    assert table.batch().to_pylist() == [decoded(packet) for packet in packets]


def test_only_the_rows_that_are_asked_for_are_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "AT_A_TIME", 3)
    data, starts, sizes = laid_out([EVERY_PACKET[0]] * 9)
    table = Table(len(starts))
    add_one_by_one(table, data, np.arange(1, len(starts)), starts, starts + sizes, texts=True)
    first, *rows = table.batch().to_pylist()
    assert {*first.values()} == {None}
    assert rows == [decoded(EVERY_PACKET[0])] * 8


def test_findings_of_one_are_those_of_all_with_the_same_signs() -> None:
    odd = a_transactional_message()
    odd.base.priority = 2
    data, starts, sizes = laid_out([encode_packet(each) for each in (odd, a_transactional_message(), odd)])
    table = Table(3)
    add_findings(table, data, np.arange(3), starts, starts + sizes, np.array([2, 0, 2]))
    first, none, last = table.batch()["own_findings"].to_pylist()
    assert none is None
    assert first == last
    assert [each["code"] for each in first] == ["odd-field"]
    assert first[0]["text"].startswith("base.priority")
