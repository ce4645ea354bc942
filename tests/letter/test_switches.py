"""Each switch changes bytes on the wire: a run with the switch off is compared with one with it on."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio
import trio.testing

from tests import conformance

from .peer.codec import BASE, Codec
from .peer.packets import (
    MD4,
    NR,
    SIGNED_20,
    SIGNED_30,
    Class,
    ConnectionParameters,
    EstablishConnection,
    OrderBody,
    Packet,
    Ping,
    Security,
    SessionAck,
    Transaction,
    UserMessage,
)
from .peer.protection import Protection
from .peer.switches import QUESTIONS, Question, Switches
from .scenarios import (
    NOTES,
    ORDERS,
    SEALED,
    TOLD,
    Scenario,
    alone,
    brought,
    claimed,
    cut,
    deleted,
    full_queue,
    full_sender,
    half_confirmed,
    keyed,
    note,
    order,
    out_of_order,
    paused,
    protected,
    received,
    restarted,
    same_ordinal,
    sends,
    small_window,
    twice,
    two_addresses,
    two_pings,
    unconfirmed,
    unknown_host,
)
from .sealed.keys import keys_of, owner
from .wire import AT_A, AT_B, A, B, C, Wire, pair, private

SID = bytes(range(28))
LIST = [NOTES, ORDERS]


class Sight(NamedTuple):
    """A scenario, the peer that has the switch, the function that looks at the wire, and the results that this function
    should return with the switch off and on.
    """

    who: str
    scenario: Scenario
    look: Callable[[Wire], object]
    off: object
    on: object
    besides: tuple[str, ...] = ()
    """Further switches that both peers have on, whether the examined switch is on or off."""


# -- what to look at --------------------------------------------------------------------------------------------------


def every(wire: Wire, own: str, kind: type[Packet]) -> list[Any]:
    return [packet for packet in wire.of(own) if isinstance(packet, kind)]


def messages(wire: Wire, own: str = AT_B) -> list[UserMessage]:
    """Return all messages of one peer, without OrderAcks and FinalAcks."""
    return [message for message in every(wire, own, UserMessage) if not message.orders]


def acks(wire: Wire, own: str = AT_B) -> list[SessionAck]:
    return every(wire, own, SessionAck)


def flags(wire: Wire) -> tuple[int, int]:
    header = acks(wire)[0].header
    return header.recoverable_ack_number, header.recoverable_ack_flags


def orders(wire: Wire, final: bool = False) -> list[UserMessage]:
    """Return the OrderAcks of B, or with `final` its FinalAcks."""
    found = [message for message in every(wire, AT_B, UserMessage) if message.orders]
    return [message for message in found if (message.message_class != Class.ORDER_ACK) == final]


def confirmed(wire: Wire) -> OrderBody:
    return Codec().read_order(orders(wire)[-1].body, final=False)


def numbered(wire: Wire) -> list[Transaction]:
    return [message.transaction for message in messages(wire, AT_A) if message.transaction]


def in_identifier(wire: Wire) -> bool:
    """Return whether the OrderAck's TxSequenceID contains the message's number."""
    return confirmed(wire).sequence == (0, 2)


def own_stamp(wire: Wire) -> bool:
    """Whether the OrderAck names the sequence of the message."""
    return confirmed(wire).sequence == numbered(wire)[0].sequence


def seconds(wire: Wire, own: str, kind: type[Packet]) -> list[float]:
    """Return the times, in seconds since the start of the run, at which a peer sent packets of this kind."""
    times = [at for at, (who, _) in zip(wire.times, wire.packets, strict=True) if who == own]
    return [round(at, 1) for at, packet in zip(times, wire.of(own), strict=True) if isinstance(packet, kind)]


def size_beside_length(wire: Wire, kind: type[Packet]) -> int:
    """Find B's first packet of this kind with a SessionHeader; return how many of its bytes are not counted in its
    PacketSize.
    """
    for own, data in wire.packets:
        head = BASE.unpack(data[: BASE.size])
        if own == AT_B and head[2] & 0x10 and bool(head[2] & 8) == (kind is SessionAck):
            return len(data) - int(head[4])
    raise AssertionError("there was none")


def first(wire: Wire, own: str = AT_A) -> bytes:
    return next(data for address, data in wire.packets if address == own)


def message_bytes(wire: Wire) -> bytes:
    """Return A's first message."""
    return next(data for own, data in wire.packets if own == AT_A and not BASE.unpack(data[:16])[2] & 8)


def list_size(wire: Wire) -> int:
    data = message_bytes(wire)
    at = data.index(struct.pack("<HHI", 0x64, 0, len(LIST)))
    return int.from_bytes(data[at - 4 : at], "little")


def before_any_ack(wire: Wire) -> int:
    """Return how many messages A sent before B acknowledged one."""
    count = 0
    for own, data in wire.packets:
        kind = BASE.unpack(data[:16])[2]
        if own == AT_B and kind & 0x10:
            break
        count += own == AT_A and not kind & 8
    return count


def refused(wire: Wire) -> list[int]:
    """Return the classes with which B refused messages from A, taken from its FinalAcks."""
    return [message.message_class for message in orders(wire, final=True)]


def signed_as(wire: Wire) -> int:
    """Return the kind of the signature of A's first message."""
    message = messages(wire, AT_A)[0]
    Protection(Codec(), keys_of(owner(1), B, owner(0), A), Switches()).judge(message)
    assert message.security
    return message.security.signed_as


async def ping_from_the_ping_port(wire: Wire, a: Any, b: Any) -> None:
    answer = b.answer_ping(Codec().pack_ping(Ping(1, A)), 3527)
    wire.pings += [(AT_B, answer)] if answer else []


four = sends(note(recoverable=True), times=4)
SIGHTS: dict[str, Sight] = {
    "session_ack_size_short": Sight(
        "both", sends(note()), lambda w: size_beside_length(w, SessionAck), 0, 16
    ),
    "message_size_long": Sight(
        "both", sends(note(**TOLD)), lambda w: size_beside_length(w, UserMessage), 16, 0
    ),
    "order_ack_number_in_id": Sight("b", sends(order(), order()), in_identifier, False, True),
    "order_ack_own_sequence": Sight("b", sends(order()), own_stamp, True, False),
    "order_ack_to_neighbour": Sight(
        "b", brought, lambda w: [m.address for m in orders(w)], [C], [A], ("take_from_anybody",)
    ),
    "order_ack_by_direct_name": Sight(
        "b",
        sends(order()),
        lambda w: orders(w)[0].destination,
        private(4, A),
        f"DIRECT=TCP:{AT_A}\\PRIVATE$\\order_queue$",
    ),
    "rejected_advances": Sight("b", out_of_order, lambda w: confirmed(w).number, 0, 6),
    "ping_not_on_retry": Sight(
        "a", alone(note(), seconds=30, then=0), lambda w: len(w.pings) > 1, True, False, ("ping_required",)
    ),
    "ping_latest_cookie": Sight(
        "a", two_pings, lambda w: len(every(w, AT_A, EstablishConnection)), 2, 1, ("ping_required",)
    ),
    "ping_any_port": Sight("b", ping_from_the_ping_port, lambda w: len(w.pings), 0, 1),
    "refuse_null_server": Sight(
        "b", sends(note()), lambda w: every(w, AT_B, EstablishConnection)[0].refused, False, True
    ),
    "duplicate_by_ordinal": Sight("b", same_ordinal, lambda w: len(messages(w)), 2, 1),
    "history_half_hour": Sight("b", twice(after=1860, **TOLD), lambda w: len(messages(w)), 1, 2),
    "message_ids_from_zero": Sight(
        "a", sends(note()), lambda w: messages(w, AT_A)[0].message_id == 0, False, True
    ),
    "duplicate_uncounted": Sight("b", twice(after=1), lambda w: acks(w)[-1].header.ack_sequence_number, 2, 1),
    "acks_at_33rd": Sight("b", sends(note()), lambda w: seconds(w, AT_B, SessionAck), [0.0], [0.5]),
    "own_window": Sight("a", small_window, lambda w: before_any_ack(w) > 8, False, True, ("acks_at_33rd",)),
    "interval_grows_with_ack": Sight(
        "a",
        unconfirmed(order(), seconds=8),
        lambda w: seconds(w, AT_A, UserMessage)[:4],
        [0, 1, 3, 7],
        [0, 1, 2, 3],
    ),
    "resend_all": Sight(
        "a", unconfirmed(order(), seconds=1.5, times=100), lambda w: len(numbered(w)), 164, 200
    ),
    "resend_at_open": Sight("a", cut, lambda w: len(numbered(w)), 3, 6),
    "order_ack_recoverable": Sight("b", sends(order()), lambda w: orders(w)[0].recoverable, False, True),
    "numbered_when_sent": Sight(
        "a",
        alone(order(time_to_reach_queue=5), order(), seconds=10, then=10),
        lambda w: [(it.number, it.previous) for it in numbered(w)],
        [(2, 0)],
        [(1, 0)],
    ),
    "sequence_per_neighbour": Sight(
        "a", sends(order(), order(private(10))), lambda w: [it.number for it in numbered(w)], [1, 1], [1, 2]
    ),
    "no_data_without_ai": Sight(
        "a", sends(note(security=Security(SID))), lambda w: SID in message_bytes(w), True, False
    ),
    "long_lists": Sight(
        "b", sends(note(destinations=[NOTES] * 5000), seconds=3), lambda w: bool(acks(w)), False, True
    ),
    "guids_reversed": Sight("both", sends(note()), lambda w: first(w)[20:36] == A.bytes_le, True, False),
    "timer_between_addresses": Sight("a", two_addresses, lambda w: w.times[0], 0.0, 5.0),
    "retry_without_hop": Sight("a", unknown_host, lambda w: bool(w.packets), False, True),
    "session_header_late": Sight(
        "b", sends(note(**TOLD)), lambda w: bool(messages(w)[0].session), True, False
    ),
    "pause_acknowledges": Sight(
        "b", paused, lambda w: acks(w)[0].header.ack_sequence_number, 0, 1, ("acks_at_33rd",)
    ),
    "sent_expires": Sight(
        "a", unconfirmed(order(time_to_reach_queue=5), seconds=20), lambda w: len(numbered(w)), 5, 3
    ),
    "life_counts_on_arrival": Sight(
        "a", alone(note(time_to_be_received=5), seconds=10, then=10), lambda w: len(messages(w, AT_A)), 0, 1
    ),
    "transactional_stays": Sight(
        "b",
        sends(order(time_to_be_received=5, **{**TOLD, "acknowledge": NR})),
        lambda w: [m.message_class for m in messages(w)],
        [Class.NACK_RECEIVE_TIMEOUT],
        [],
    ),
    "refused_holds": Sight("b", full_queue, lambda w: confirmed(w).number, 1, 0),
    "final_ack_few_classes": Sight(
        "b", received(Class.NACK_RECEIVE_REJECTED, journal=True), lambda w: len(orders(w, final=True)), 1, 0
    ),
    "nr_tells_unreached": Sight(
        "b", sends(order(NOTES, **{**TOLD, "acknowledge": NR})), lambda w: len(messages(w)), 0, 1
    ),
    "direct_arrival_untold": Sight("b", sends(note(**TOLD)), lambda w: len(messages(w)), 1, 0),
    "admin_ack_bare": Sight("b", sends(note(**TOLD)), lambda w: messages(w)[0].label, "label", ""),
    "full_refuses_acks": Sight(
        "a", full_sender, lambda w: len(every(w, AT_A, EstablishConnection)) > 1, False, True
    ),
    "priority_over_all": Sight(
        "a",
        sends(note(priority=1), note(private(11), priority=7), times=2),
        lambda w: [m.priority for m in messages(w, AT_A)],
        [1, 7, 1, 7],
        [7, 7, 1, 1],
    ),
    "deleted_is_purged": Sight(
        "a", deleted, lambda w: messages(w, AT_A)[0].message_class, Class.NACK_DELETED, Class.NACK_Q_PURGED
    ),
    "sequence_outlives_process": Sight(
        "a", restarted, lambda w: numbered(w)[-1].sequence.ordinal == 2, False, True
    ),
    "no_order_ack_of_none": Sight("b", out_of_order, lambda w: len(orders(w)), 1, 0),
    "believe_any_guid": Sight("a", claimed, lambda w: len(messages(w, AT_A)), 0, 1),
    "take_from_anybody": Sight("b", brought, lambda w: bool(acks(w)), False, True),
    "simple_blob_256": Sight("a", keyed(protected("AES-256")), refused, [], [Class.NACK_BAD_ENCRYPTION]),
    "rc2_ecb": Sight("a", keyed(protected("RC2-128")), lambda w: bool(refused(w)), False, True),
    "rc2_40_of_128": Sight("a", keyed(protected("RC2-128")), lambda w: bool(refused(w)), False, True),
    "salted_40_bit_keys": Sight("a", keyed(protected("RC4-40")), refused, [], [Class.NACK_BAD_SIGNATURE]),
    "rc4_goes_on": Sight("a", keyed(protected("RC4-128"), times=2), refused, [], [Class.NACK_BAD_SIGNATURE]),
    "key_in_block_reversed": Sight("a", keyed(protected("AES-128")), lambda w: bool(refused(w)), False, True),
    "bad_key_told": Sight(
        "b",
        keyed(protected("RC4-128", signed=False), deceived=True),
        refused,
        [],
        [Class.NACK_BAD_ENCRYPTION],
    ),
    "signature_big_endian": Sight("a", keyed(protected()), refused, [], [Class.NACK_BAD_SIGNATURE]),
    "signature_without_oid": Sight("a", keyed(protected()), refused, [], [Class.NACK_BAD_SIGNATURE]),
    "md2_and_md4_taken": Sight(
        "b", keyed(protected(hash_algorithm=MD4)), refused, [Class.NACK_BAD_SIGNATURE], []
    ),
    "label_without_nul": Sight("a", keyed(protected()), refused, [], [Class.NACK_BAD_SIGNATURE]),
    "names_with_padding": Sight(
        "a", keyed(protected(response=ORDERS + "x")), refused, [], [Class.NACK_BAD_SIGNATURE]
    ),
    "list_without_padding": Sight(
        "a", keyed(protected(destinations=SEALED)), refused, [], [Class.NACK_BAD_SIGNATURE]
    ),
    "signs_ciphertext": Sight("a", keyed(protected("RC4-128")), refused, [], [Class.NACK_BAD_SIGNATURE]),
    "sig30_in_security_header": Sight("a", keyed(protected()), signed_as, SIGNED_20, SIGNED_30),
    "sid_is_verified": Sight(
        "b", keyed(protected(signed=False, security=Security(SID))), refused, [], [Class.NACK_BAD_SIGNATURE]
    ),
    "ordinals_interleave": Sight(
        "a",
        sends(order(), order(private(10))),
        lambda w: [it.sequence.ordinal for it in numbered(w)],
        [1, 1],
        [1, 2],
    ),
    "previous_from_table": Sight("a", half_confirmed, lambda w: numbered(w)[-1].previous, 1, 0),
    "ping_required": Sight("a", sends(note()), lambda w: len(w.pings), 0, 2),
    "flags_late": Sight("b", sends(note(recoverable=True)), flags, (1, 1), (0, 0)),
    "flags_sparse": Sight("b", four, flags, (1, 0b1111), (1, 0b101), ("acks_at_33rd",)),
    "flags_absent": Sight("b", four, flags, (1, 0b1111), (4, 0), ("acks_at_33rd",)),
    "stale_acks": Sight("b", sends(note()), lambda w: len(acks(w)), 1, 2),
    "window_zero": Sight(
        "b", sends(note()), lambda w: every(w, AT_B, ConnectionParameters)[0].window_size, 64, 0
    ),
    "list_size_unpadded": Sight("a", sends(note(destinations=LIST)), list_size, 132, 130),
    "other_case": Sight(
        "a", sends(order(), times=4), lambda w: len({m.destination for m in messages(w, AT_A)}), 1, 2
    ),
    "reserved_bits": Sight("a", sends(note()), lambda w: BASE.unpack(first(w)[:16])[2] & 0xFEC0, 0, 0xFEC0),
    "junk": Sight("a", sends(note()), lambda w: first(w)[-512:] == bytes(512), True, False),
    "provider_info_always": Sight(
        "a",
        keyed(protected("RC2-128")),
        lambda w: "Provider".encode("utf-16-le") in message_bytes(w),
        False,
        True,
    ),
    "order_ack_priority": Sight("b", sends(order()), lambda w: orders(w)[0].priority, 0, 3),
}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
@pytest.mark.parametrize("on", [False, True], ids=["off", "on"])
def test_a_switch_is_seen_on_the_wire(question: Question, on: bool) -> None:
    sight = SIGHTS[question.name]
    besides = dict.fromkeys(sight.besides, True)
    turned = Switches(**{question.name: on}, **besides)
    still = Switches(**besides)
    wire = Wire()
    a, b = pair(wire, still if sight.who == "b" else turned, still if sight.who == "a" else turned)
    trio.run(sight.scenario, wire, a, b, clock=trio.testing.MockClock(autojump_threshold=0))
    assert sight.look(wire) == (sight.on if on else sight.off), (a.closings, b.closings)


def test_each_reading_is_a_switch_or_has_its_reason() -> None:
    readme = Path(__file__).with_name("README.md").read_text()
    rows = ",".join(re.findall(r"^\| (\d[\d, ]*) \|", readme, re.MULTILINE))
    told = [int(number) for number in rows.split(",")]
    switched = {question.reading for question in QUESTIONS} - {0}
    assert sorted([*told, *switched]) == list(range(1, len(conformance.load()["reading"]) + 1))
