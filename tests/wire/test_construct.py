"""The definitions as construct's users use them: in any stream, inside definitions of their own, and with the codec's
verdict.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import construct as c
import pytest

from mqproto import wire
from mqproto.base.errors import UsageError, WireFormatError
from mqproto.wire import (
    BaseHeader,
    FinalAck,
    MisuseError,
    OrderAck,
    ParseError,
    TransactionHeader,
    base_header,
    decode_packet,
    encode_packet,
    final_ack_packet,
    format_name_list,
    message_properties_header,
    order_ack_packet,
    packet,
    session_header,
    transaction_header,
    user_message_packet,
)
from mqproto.wire.schema.record import Record
from tests.examples import (
    EVERY_PACKET,
    a_final_ack,
    a_full_message,
    a_ping,
    a_session_header,
    a_transaction_header,
    a_user_message,
    an_order_ack,
)
from tests.frames import SESSION_FRAMES
from tests.wire.accidents import accidents

ROUNDS: Final = int(os.environ.get("MQPROTO_FUZZ_ROUNDS", "1000"))
"""How many rounds there are: the long form has 20,000, which take about two minutes."""
PREFIX: Final = b"xyz"
HEADER: Final = TransactionHeader(
    flags=4,
    tx_sequence_id=wire.TxSequenceId(time_stamp=3, ordinal=9),
    tx_sequence_number=2,
    previous_tx_sequence_number=1,
)
FULL: Final = encode_packet(a_full_message())


def readings(part: Any, data: bytes, folder: Path) -> Iterator[Callable[[], tuple[Any, int]]]:
    """Yield the ways to read the start of some bytes; each returns the fields, and how many bytes they took."""

    def whole() -> tuple[Any, int]:
        stream = io.BytesIO(data)
        return part.parse_stream(stream), stream.tell()

    def behind_others() -> tuple[Any, int]:
        stream = io.BytesIO(PREFIX + data)
        found = c.Struct("n" / c.Bytes(3), "it" / part).parse_stream(stream)
        return found.it, stream.tell() - len(PREFIX)

    def from_a_pipe() -> tuple[Any, int]:
        """Read from a stream that gives a few bytes at a time, and has no position."""

        class Pipe:
            def read(self, size: int) -> bytes:
                return stream.read(min(size, 7))

        stream = io.BytesIO(data)
        return part.parse_stream(Pipe()), stream.tell()

    def from_a_file() -> tuple[Any, int]:
        path = folder / "it"
        path.write_bytes(data)
        return part.parse_file(str(path)), whole()[1]

    def in_its_copy() -> tuple[Any, int]:
        found = c.RawCopy(part).parse(memoryview(data))
        return found.value, found.length

    def compiled() -> tuple[Any, int]:
        found = c.Struct("it" / part, "rest" / c.GreedyBytes).compile().parse(data)
        return found.it, len(data) - len(found.rest)

    return iter((whole, behind_others, from_a_pipe, from_a_file, in_its_copy, compiled))


def same_verdict(part: Any, decode: Callable[[bytes], Any], data: bytes, tail: bytes, folder: Path) -> bool:
    """Read in each way and with the codec, and check that all agree; return whether the bytes are good.

    tail: bytes that follow in the stream. The codec gets only the one packet.
    """
    verdicts = []
    for read in readings(part, data + tail, folder):
        try:
            fields, size = read()
        except ParseError as refusal:
            verdicts.append(f"{refusal}" if refusal.path else "no path")
        else:
            record = part.typed(fields) if isinstance(part, Record) else decode_packet(part.build(fields))
            assert decode((data + tail)[:size]) == record
            assert part.build(fields) == (data + tail)[:size]
            verdicts.append("good")
    assert len({*verdicts}) == 1, verdicts
    if verdicts[0] != "good":
        with pytest.raises(WireFormatError) as by_codec:
            decode(data)
        # What follows a packet in its stream is none of construct's business.
        others = tail or by_codec.value.field in ("base.packet_size", "after the last field")
        assert others or str(by_codec.value) == verdicts[0]
    return verdicts[0] == "good"


@pytest.mark.timeout(900)
def test_packets_have_the_verdict_of_the_codec_wherever_they_stand(tmp_path: Path) -> None:
    """Set MQPROTO_FUZZ_ROUNDS=20000 for the long form."""
    dice = random.Random(45)
    seeds = [*EVERY_PACKET, *SESSION_FRAMES]
    good = 0
    for number in range(ROUNDS):
        data = dice.choice(seeds) if number % 10 == 9 else accidents(dice, dice.choice(seeds))
        good += same_verdict(packet, decode_packet, data, dice.randbytes(dice.choice((0, 0, 5))), tmp_path)
    assert 0.1 * ROUNDS < good < 0.9 * ROUNDS, "the accidents are too mild or too harsh to test anything"


LIST: Final[Any] = a_full_message().multi_queue_format
EXAMPLES: Final[list[tuple[Record[Any], list[Any]]]] = [
    (wire.user_header, [a_full_message().user, a_user_message().user]),
    (transaction_header, [HEADER, a_transaction_header(flags=1, connector_qm_guid=bytes(range(16)))]),
    (wire.security_header, [a_full_message().security]),
    (message_properties_header, [a_full_message().properties, a_user_message().properties]),
    (wire.debug_header, [a_full_message().debug]),
    (wire.soap_header, [a_full_message().soap]),
    (wire.multi_queue_format_header, [LIST]),
    (wire.destination_mqf_address_header, [LIST.destination]),
    (session_header, [a_session_header()]),
    (wire.tx_sequence_id, [HEADER.tx_sequence_id]),
    (wire.order_ack_body, [wire.OrderAckBody(tx_sequence_number=8)]),
    (wire.ping_packet, [a_ping()]),
    (wire.provider_info, [wire.ProviderInfo(1, "a provider")]),
    (wire.simple_blob, [wire.SimpleBlob(encrypted_key=bytes(range(64)))]),
    (wire.public_key_blob, [wire.PublicKeyBlob(modulus=bytes(range(64)))]),
    (wire.sid, [wire.Sid(sub_authorities=[21, 3])]),
    (wire.session_ack_packet, [wire.SessionAck()]),
    (user_message_packet, [a_full_message(), a_user_message()]),
]


@pytest.mark.parametrize(
    ("record", "values"), EXAMPLES, ids=lambda value: getattr(value, "kind", str).__name__
)
def test_a_header_alone_has_one_verdict_wherever_it_stands(
    record: Record[Any], values: list[Any], tmp_path: Path
) -> None:
    seeds = [record.encode(value) for value in values]
    dice = random.Random(len(seeds[0]))
    # These take all that is left of their stream, as they say.
    tails = (b"",) if record is wire.simple_blob else (b"", b"behind")
    good = 0
    for number in range(max(30, ROUNDS // 20)):
        data = dice.choice(seeds) if number % 5 == 4 else accidents(dice, dice.choice(seeds))
        good += same_verdict(record, record.decode, data, dice.choice(tails), tmp_path)
    assert good


FIELDS: Final = transaction_header.parse(transaction_header.build(HEADER))


def test_a_container_has_the_fields_and_nothing_else() -> None:
    assert json.loads(json.dumps(dict(FIELDS))) == {
        "flags": 4,
        "tx_sequence_id": {"ordinal": 9, "time_stamp": 3},
        "tx_sequence_number": 2,
        "previous_tx_sequence_number": 1,
        "connector_qm_guid": None,
    }
    assert str(FIELDS).splitlines()[:4] == [
        "Container: ",
        "    flags = 4",
        "    tx_sequence_id = Container: ",
        "        ordinal = 9",
    ]
    found = packet.parse(FULL)
    assert set(found) == {field.name for field in dataclasses.fields(a_full_message())}


def test_a_record_a_dict_and_a_container_build_the_same() -> None:
    data = transaction_header.build(HEADER)
    assert data == transaction_header.build(FIELDS) == transaction_header.build(dict(FIELDS))
    assert data == transaction_header.build(dict(FIELDS, tx_sequence_id=HEADER.tx_sequence_id))
    assert FULL == packet.build(a_full_message()) == packet.build(packet.parse(FULL))
    assert user_message_packet.build(dict(user_message_packet.parse(FULL))) == FULL
    assert base_header.build(base_header.parse(FULL)) == FULL[:16]
    assert base_header.build(BaseHeader(flags=0x30), packet_size=601) == FULL[:16]


def without(fields: c.Container[Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


T, P = transaction_header, message_properties_header
PROPERTIES: Final = P.parse(P.build(a_full_message().properties))


def test_what_follows_from_the_rest_need_not_be_given() -> None:
    derived = ("label_length", "message_size", "extension_size", "padding")
    assert P.build(without(PROPERTIES, *derived)) == P.build(PROPERTIES)


MISTAKES: Final[list[tuple[Any, Any, str, str]]] = [
    (T, dict(FIELDS, tx_sequence_number=0), "is 0, must be at least 1", "tx_sequence_number"),
    (T, dict(FIELDS, connector_qm_guid=bytes(16)), "None, as the flags", "connector_qm_guid"),
    (T, dict(FIELDS, tx_sequence_id=1), "tx_sequence_id is 1, which is no", "tx_sequence_id"),
    (T, without(FIELDS, "flags"), "flags is missing", "flags"),
    (T, 7, "the record is 7, which is not a record", ""),
    (P, dict(PROPERTIES, message_body=b"x"), "13, must be 1, as it follows", "message_size"),
    (P, without(PROPERTIES, "label"), "label is missing", "label"),
    (base_header, dict(base_header.parse(FULL), version_number=17), "is 17, must be 16 ", "version_number"),
    (base_header, BaseHeader(), "build that, or pass packet_size=", "packet_size"),
    (packet, {"base": BaseHeader()}, "user is missing", "user"),
    (packet, dict(packet.parse(FULL), session=None), "base.flags and session disagree", ""),
    (packet, 5, "the record is 5", ""),
]


@pytest.mark.parametrize(("part", "value", "says", "path"), MISTAKES)
def test_the_callers_mistakes_are_named(part: Any, value: Any, says: str, path: str) -> None:
    with pytest.raises(MisuseError, match=re.escape(says)) as caught:
        part.build(value)
    assert isinstance(caught.value, UsageError)
    assert isinstance(caught.value, c.ConstructError)
    assert str(caught.value.path).endswith(path)


ODD: Final[list[Any]] = [None, 0, -1, 2**40, "x", "a\0b", b"abc", bytes(16), [1], {}, {"a": 1}, HEADER]


def places(fields: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the place of each value in some fields: its container, and its name or number there."""
    for name, value in fields.items() if isinstance(fields, dict) else enumerate(fields):
        yield fields, name
        if isinstance(value, dict | list):
            yield from places(value)


def test_odd_values_are_built_or_refused_and_what_is_built_is_read() -> None:
    dice = random.Random(45)
    definitions: list[Any] = [(part, [part.encode(each) for each in values]) for part, values in EXAMPLES]
    definitions += [(packet, EVERY_PACKET), (order_ack_packet, [encode_packet(an_order_ack())])]
    built = 0
    for _ in range(ROUNDS):
        definition, seeds = dice.choice(definitions)
        holder, name = dice.choice([*places(fields := definition.parse(dice.choice(seeds)))])
        holder[name] = dice.choice(ODD)
        try:
            data = definition.build(fields)
        except MisuseError:
            continue
        definition.parse(data)
        built += 1
    assert 0.02 * ROUNDS < built < 0.5 * ROUNDS


def test_what_needs_its_packet_says_so_and_may_be_told() -> None:
    names = LIST.destination.format_name_list
    data = format_name_list.build(names)
    with pytest.raises(
        MisuseError, match="needs element_count of what stands around it: parse that, or pass"
    ):
        format_name_list.parse(data)
    assert format_name_list.typed(format_name_list.parse(data, element_count=len(names.elements))) == names


def test_they_stand_in_constructs_of_others() -> None:
    mine = c.Struct(
        "count" / c.Int8ul,
        "headers" / c.Array(2, transaction_header),
        "packet" / c.Prefixed(c.Int32ul, packet),
        "end" / c.Int8ul,
    )
    data = b"\2" + 2 * transaction_header.build(HEADER) + len(FULL).to_bytes(4, "little") + FULL + b"\7"
    found = mine.parse(data)
    assert found.headers == [FIELDS, FIELDS]
    assert found.packet == packet.parse(FULL)
    assert mine.build(found) == data == mine.compile().build(found)
    with pytest.raises(ParseError) as caught:
        mine.parse(data.replace(b"LIOR", b"LIAR"))
    assert caught.value.path == "(parsing) -> packet -> base -> signature"
    assert (caught.value.field, caught.value.offset) == ("base.signature", 4)


def test_a_part_may_be_missing_looked_at_twice_or_read_later() -> None:
    data = transaction_header.build(HEADER)
    assert c.Optional(transaction_header).parse(data[:-1]) is None
    assert c.Select(transaction_header, c.Bytes(3)).parse(b"abcd") == b"abc"
    assert c.Struct("seen" / c.Peek(transaction_header), "it" / transaction_header).parse(data).seen == FIELDS
    later = c.Struct("packet" / c.Lazy(packet), "it" / transaction_header).parse(FULL + data)
    assert (later.it, later.packet()) == (FIELDS, packet.parse(FULL))
    lazy = c.LazyStruct("packet" / packet, "it" / transaction_header).parse(FULL + data)
    assert (lazy.it, lazy.packet) == (FIELDS, packet.parse(FULL))


def test_a_greedy_range_ends_at_the_first_bad_packet_without_a_word_and_terminated_has_one() -> None:
    packets = b"".join(EVERY_PACKET)
    assert len(c.GreedyRange(packet).parse(packets)) == len(EVERY_PACKET)
    every = c.Struct("packets" / c.GreedyRange(packet), c.Terminated)
    assert every.build(every.parse(packets)) == packets
    assert len(c.GreedyRange(packet).parse(packets + b"LIOR")) == len(EVERY_PACKET)
    with pytest.raises(c.TerminatedError):
        every.parse(packets + b"LIOR")


def test_sizes_are_told_where_they_are_fixed() -> None:
    assert (base_header.sizeof(), session_header.sizeof(), wire.session_ack_packet.sizeof()) == (16, 16, 36)
    for part in (
        transaction_header,
        packet,
        user_message_packet,
        order_ack_packet,
        format_name_list,
        wire.sid,
    ):
        with pytest.raises(c.SizeofError):
            part.sizeof()


def test_what_construct_has_for_looking_works(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = transaction_header.build(HEADER)
    c.Struct("it" / transaction_header, c.Probe(lookahead=4)).parse(data + b"abcd")
    assert "tx_sequence_number = 2" in capsys.readouterr().out
    monkeypatch.setattr("pdb.post_mortem", lambda trace: None)
    with pytest.raises(ParseError):
        c.Debugger(transaction_header).parse(data[:-1])
    assert "previous_tx_sequence_number at byte 16 is 3 bytes" in capsys.readouterr().out
    shown = str(c.Hex(c.RawCopy(transaction_header)).parse(data))
    assert data.hex() in shown.replace("\n", "")


def test_a_broken_stream_and_one_of_text_are_told_by_construct() -> None:
    class Broken:
        def read(self, size: int) -> bytes:
            raise OSError("the cable is cut")

    streams: list[Any] = [Broken(), io.StringIO("a text that is long enough for it")]
    for stream in streams:
        with pytest.raises(c.StreamError, match=r"stream.read\(\) failed"):
            transaction_header.parse_stream(stream)


def test_an_order_ack_and_a_final_ack_are_whole_packets() -> None:
    for message, definition, kind in (
        (an_order_ack(), order_ack_packet, OrderAck),
        (a_final_ack(), final_ack_packet, FinalAck),
    ):
        data = encode_packet(message)
        ack = kind.parse(data)
        assert ack.message() == message
        assert ack.build() == data == definition.build(ack) == definition.build(definition.parse(data))
        fields = definition.parse(data)
        assert fields.properties.message_body.tx_sequence_number == 2
        assert definition.parse_stream(io.BytesIO(data + b"behind")) == fields
        fields.properties.message_body.tx_sequence_number = 3
        assert kind.parse(definition.build(fields)).body.tx_sequence_number == 3
