"""The judge of our own codec: it finds each way in which the two codecs could be wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mqproto.base.errors import WireFormatError
from mqproto.simulator.fuzz.mutations import mutants
from mqproto.simulator.fuzz.parser import codec
from mqproto.simulator.fuzz.parser.codec import FIRST, ONE_IN, OwnCodec, everything
from mqproto.simulator.fuzz.parser.judges import Broken
from mqproto.simulator.fuzz.parser.seeds import examples
from mqproto.testing import nearly_valid_packets, packets
from mqproto.wire import Packet, PacketBuffer, UserMessage, encode_packet, inspect_packet, reference
from mqproto.wire.codec import decode_or_refuse
from mqproto.wire.schema.refused import Refused
from tests.examples import EVERY_PACKET, a_user_message

MESSAGE = encode_packet(a_user_message(label="", body=b"12"))
BROKEN = MESSAGE[:-1]


@given(packets().map(encode_packet) | nearly_valid_packets() | st.binary(max_size=100))
def test_whatever_the_bytes_are_our_codec_does_well(data: bytes) -> None:
    OwnCodec().judge_again(data)


def changed(packet: Packet, **changes: Any) -> Packet:
    assert isinstance(packet, UserMessage)
    return dataclasses.replace(packet, properties=dataclasses.replace(packet.properties, **changes))


def refuse(data: bytes) -> Packet:
    raise Refused


def read_padding_wrong(data: bytes) -> Packet:
    return changed(decode_or_refuse(data), padding=b"??")


def read_anything(data: bytes) -> Packet:
    return decode_or_refuse(MESSAGE)


def crash(data: bytes) -> Packet:
    raise ZeroDivisionError


def read_greedily(data: bytes) -> Packet:
    bytes(10_000_000)
    return reference.read(data)


def see_nothing(data: bytes) -> Any:
    return dataclasses.replace(inspect_packet(data), fields=[])


def find_nothing(data: bytes) -> Any:
    return dataclasses.replace(inspect_packet(data), findings=[])


def find_something_else(data: bytes) -> Any:
    other = WireFormatError("label", 1, 2, "3", "4")
    return dataclasses.replace(inspect_packet(data), findings=[other])


@pytest.mark.parametrize(
    ("name", "wrong", "data", "oracle"),
    [
        ("decode_or_refuse", refuse, MESSAGE, "agreement"),
        ("decode_or_refuse", read_anything, BROKEN, "round trip"),
        ("check_or_refuse", refuse, MESSAGE, "verdict"),
        ("check_or_refuse", lambda data: None, BROKEN, "verdict"),
        ("decode_or_refuse", read_padding_wrong, MESSAGE, "round trip"),
        ("encode_packet", lambda packet: b"", MESSAGE, "round trip"),
        ("decode_packet", read_greedily, MESSAGE, "memory"),
        ("inspect_packet", see_nothing, MESSAGE, "inspection"),
        ("inspect_packet", find_nothing, BROKEN, "inspection"),
        ("inspect_packet", find_something_else, MESSAGE, "inspection"),
        ("inspect_packet", find_something_else, BROKEN, "inspection"),
    ],
)
def test_each_kind_of_mistake_is_found(
    name: str, wrong: Callable[..., Any], data: bytes, oracle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, name, wrong)
    with pytest.raises(Broken) as broken:
        OwnCodec().judge_again(data)
    assert broken.value.oracle == oracle


def test_a_difference_in_padding_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "decode_or_refuse", read_padding_wrong)
    monkeypatch.setattr(codec, "encode_packet", lambda packet: MESSAGE)
    with pytest.raises(Broken, match="by construct"):
        OwnCodec().judge_again(MESSAGE)


def test_a_packet_that_construct_alone_refuses_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "decode_or_refuse", read_anything)
    monkeypatch.setattr(codec, "encode_packet", lambda packet: BROKEN)
    monkeypatch.setattr(PacketBuffer, "feed", lambda self, data: [data])
    with pytest.raises(Broken, match="construct alone refuses"):
        OwnCodec().judge_again(BROKEN)


def test_a_crash_of_the_codec_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "decode_or_refuse", crash)
    with pytest.raises(ZeroDivisionError):
        OwnCodec().judge(MESSAGE)


def test_a_packet_that_the_buffer_cuts_elsewhere_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PacketBuffer, "feed", lambda self, data: [data[:16]])
    with pytest.raises(Broken, match="PacketBuffer"):
        OwnCodec().judge(MESSAGE)


def test_the_way_of_a_packet_tells_what_it_has_and_where_it_was_refused() -> None:
    judge = OwnCodec()
    ways = [judge.judge(packet) for packet in examples()]
    assert len({*ways}) > 6
    mutated = {judge.judge(mutant.data) for mutant in mutants(EVERY_PACKET[1])}
    assert len(mutated - {*ways}) > 20


def test_a_way_that_is_often_taken_is_asked_everything_only_now_and_then() -> None:
    judge = OwnCodec()
    for _ in range(FIRST + 2 * ONE_IN):
        judge.judge(MESSAGE)
    assert judge.counts["decodes or is refused"] == FIRST + 2 * ONE_IN
    assert FIRST <= judge.counts["construct agrees"] <= FIRST + 2
    assert 0 < judge.counts["decodes in little memory"] <= FIRST // 4 + 1


def test_packets_with_lists_of_queues_which_construct_reads_are_mutated_less_often() -> None:
    bursts = {has_lists(packet): OwnCodec().burst(packet) for packet in [*examples(), b"", bytes(40)]}
    assert bursts[True] < bursts[False]


def has_lists(packet: bytes) -> bool:
    return any(field.name.startswith("multi_queue_format") for field in inspect_packet(packet).fields)


@given(packets())
def test_everything_of_a_packet_holds_its_padding(packet: Packet) -> None:
    assert everything(packet) == everything(dataclasses.replace(packet))
    if isinstance(packet, UserMessage):
        other = changed(packet, padding=packet.properties.padding + b"?")
        assert other == packet
        assert everything(other) != everything(packet)
