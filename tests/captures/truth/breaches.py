"""Breaches of each rule in otherwise correct traffic: bytes of some packets are changed, and nothing else.

A plant takes the contents of a whole capture and a random number generator. It returns the packets to replace, or none
if the capture has no place for the breach. It is registered under the code under which the breach has to be found.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, TypeAlias

from mqproto.base.errors import MqprotoError, WireFormatError
from mqproto.captures.decode import Kind, Sight
from mqproto.captures.decode.sight import MESSAGES
from mqproto.wire import (
    ConnectionParameters,
    FinalAckBody,
    Guid,
    OrderAckBody,
    TransactionHeader,
    TxSequenceId,
    UserMessage,
    decode_packet,
    encode_packet,
)
from mqproto.wire.layouts.acknowledgment import final_ack_body, order_ack_body
from tests.captures.truth.knowing import Truth

Others: TypeAlias = dict[int, bytes]
STRANGER: Final = Guid(b"nobody knows me.")
NOWHERE: Final = TxSequenceId(time_stamp=7, ordinal=7)
FAR: Final = 0x1000
"""The amount by which a count is wrong: so large that no window explains it."""
PLANTS: Final[dict[str, Callable[[Truth, random.Random], Others]]] = {}
"""The plants, keyed by their codes."""


def plant(
    code: str,
) -> Callable[[Callable[[Truth, random.Random], Others]], Callable[[Truth, random.Random], Others]]:
    """Register a function that plants the breach with this code."""

    def add(function: Callable[[Truth, random.Random], Others]) -> Callable[[Truth, random.Random], Others]:
        PLANTS[code] = function
        return function

    return add


def _some(chance: random.Random, sights: Iterator[Sight]) -> Sight | None:
    found = list(sights)
    return chance.choice(found) if found else None


def _of_kind(truth: Truth, *kinds: Kind) -> Iterator[Sight]:
    return (sight for sight in truth.sights.values() if sight.kind in kinds)


def _changed(sight: Sight, **changes: Any) -> bytes:
    """Return a packet with changed fields in its parts, given as in `user={"message_id": 3}`."""
    packet: Any = sight.seen.packet
    parts = {
        name: replace(getattr(packet, name), **value) if isinstance(value, dict) else value
        for name, value in changes.items()
    }
    return encode_packet(replace(packet, **parts))


def _flagged(sight: Sight, flags: int) -> bytes:
    packet: Any = sight.seen.packet
    return encode_packet(
        replace(packet, internal=replace(packet.internal, flags=packet.internal.flags | flags))
    )


@plant("malformed")
def _malformed(truth: Truth, chance: random.Random) -> Others:
    sight = _some(chance, _of_kind(truth, *MESSAGES))
    if sight is None:
        return {}
    for _ in range(1_000):
        data = bytearray(sight.seen.data)
        data[chance.randrange(16, min(len(data), 180))] ^= 1 << chance.randrange(8)
        try:
            decode_packet(bytes(data))
        except WireFormatError:
            return {sight.seen.number: bytes(data)}
    return {}


def _answers(truth: Truth, kind: Kind) -> Iterator[Sight]:
    return (sight for sight in _of_kind(truth, kind) if sight.answers)


@plant("refused")
@plant("out-of-turn")
def _refused(truth: Truth, chance: random.Random) -> Others:
    sight = _some(chance, _answers(truth, Kind.ESTABLISH_CONNECTION))
    return {} if sight is None else {sight.seen.number: _flagged(sight, 0x10)}


@plant("wrong-answer")
def _wrong_answer(truth: Truth, chance: random.Random) -> Others:
    sight = _some(chance, _answers(truth, Kind.ESTABLISH_CONNECTION))
    return {} if sight is None else {sight.seen.number: _changed(sight, client_guid=STRANGER)}


@plant("wrong-parameters")
def _wrong_parameters(truth: Truth, chance: random.Random) -> Others:
    sight = _some(chance, _answers(truth, Kind.CONNECTION_PARAMETERS))
    if sight is None or not isinstance(sight.seen.packet, ConnectionParameters):
        return {}
    return {sight.seen.number: _changed(sight, ack_timeout_ms=sight.seen.packet.ack_timeout_ms + 1)}


def _acknowledging(truth: Truth) -> Iterator[Sight]:
    """Yield packets that acknowledge something new; their sender has sent an acknowledgment before."""
    told = set()
    for sight in truth.sights.values():
        if sight.session is None or sight.received is None:
            continue
        way = sight.seen.connection, sight.seen.source
        if way in told:
            yield sight
        told.add(way)


def _counting(sight: Sight, **changes: int) -> Others:
    session = sight.session
    assert session is not None
    values = {name: (getattr(session, name) + by) & 0xFFFF for name, by in changes.items()}
    return {sight.seen.number: _changed(sight, session=values)}


@plant("ack-beyond-sent")
def _ack_beyond(truth: Truth, chance: random.Random) -> Others:
    sight = _some(chance, _acknowledging(truth))
    return {} if sight is None else _counting(sight, ack_sequence_number=FAR)


@plant("ack-backwards")
def _ack_backwards(truth: Truth, chance: random.Random) -> Others:
    sight = _some(chance, _acknowledging(truth))
    return {} if sight is None else _counting(sight, ack_sequence_number=-FAR)


@plant("saved-beyond-sent")
def _saved_beyond(truth: Truth, chance: random.Random) -> Others:
    sight = _some(chance, (each for each in truth.sights.values() if each.session and each.saved))
    return {} if sight is None else _counting(sight, recoverable_msg_ack_seq_number=FAR)


@plant("wrong-count")
def _wrong_count(truth: Truth, chance: random.Random) -> Others:
    sight = _some(chance, (each for each in truth.sights.values() if each.session is not None))
    return {} if sight is None else _counting(sight, user_msg_sequence_number=3)


@plant("window-exceeded")
def _window(truth: Truth, chance: random.Random) -> Others:
    """Make both ends of a connection announce a window of one, although more messages wait on it."""
    waiting: dict[tuple[int, str], int] = {}
    busy = set()
    for sight in truth.sights.values():
        way = sight.seen.connection, sight.source
        if sight.message is not None:
            waiting[way] = waiting.get(way, 0) + 1
            if waiting[way] > 2:
                busy.add(sight.seen.connection)
        if sight.received is not None:
            waiting[sight.seen.connection, sight.destination] = 0
    if not busy:
        return {}
    connection = chance.choice(sorted(busy))
    others = {}
    for number, sight in truth.sights.items():
        if sight.seen.connection != connection:
            continue
        if isinstance(sight.seen.packet, ConnectionParameters):
            others[number] = _changed(sight, window_size=1)
        elif sight.session is not None:
            others[number] = _changed(sight, session={"window_size": 1})
    return others


def _passed_on(truth: Truth) -> Iterator[Sight]:
    """Yield messages that leave an intermediate at which they have arrived once."""
    for known in truth.messages.values():
        if len(set(known.crossings.values())) == len(known.crossings) > 1:
            for number, hop in known.crossings.items():
                came = [each for each, to in known.crossings.items() if to[1] == hop[0] and each < number]
                if came and known.key[0] != hop[0]:
                    yield truth.sights[number]


@plant("altered")
def _altered(truth: Truth, chance: random.Random) -> Others:
    sight = _some(chance, _passed_on(truth))
    if sight is None or sight.message is None:
        return {}
    return {sight.seen.number: _changed(sight, user={"sent_time_s": sight.message.user.sent_time_s + 1})}


@plant("hop-count")
def _hop_count(truth: Truth, chance: random.Random) -> Others:
    sight = _some(chance, _passed_on(truth))
    if sight is None or sight.message is None:
        return {}
    return {sight.seen.number: _changed(sight, user={"flags": sight.message.user.flags + 1})}


def _pairs(truth: Truth) -> Iterator[tuple[Sight, Sight]]:
    """Yield pairs of transactional messages of one sequence, sent by their source one after the other on one
    connection.
    """
    last: dict[tuple[Any, ...], Sight] = {}
    for sight in _of_kind(truth, Kind.TRANSACTIONAL):
        message = sight.message
        if (
            message is None
            or message.transaction is None
            or message.user.source_queue_manager != sight.hop[0]
        ):
            continue
        key = (sight.seen.connection, sight.seen.source, message.transaction.tx_sequence_id)
        earlier = last.get(key)
        if earlier is not None and _number(earlier) < _number(sight):
            yield earlier, sight
        last[key] = sight


def _number(sight: Sight) -> int:
    transaction = None if sight.message is None else sight.message.transaction
    return 0 if transaction is None else transaction.tx_sequence_number


def _pair(truth: Truth, chance: random.Random) -> tuple[UserMessage, UserMessage, Sight, Sight] | None:
    found = list(_pairs(truth))
    if not found:
        return None
    earlier, later = chance.choice(found)
    assert earlier.message is not None
    assert later.message is not None
    return earlier.message, later.message, earlier, later


@plant("duplicate-identity")
def _duplicate(truth: Truth, chance: random.Random) -> Others:
    pair = _pair(truth, chance)
    if pair is None or pair[0].transaction is None:
        return {}
    earlier, _, _, sight = pair
    previous = {"previous_tx_sequence_number": pair[0].transaction.previous_tx_sequence_number}
    other = _changed(sight, user={"message_id": earlier.user.message_id}, transaction=previous)
    return {sight.seen.number: other}


@plant("number-reused")
def _reused(truth: Truth, chance: random.Random) -> Others:
    pair = _pair(truth, chance)
    if pair is None:
        return {}
    return {pair[3].seen.number: _changed(pair[3], transaction=pair[0].transaction)}


@plant("gap")
def _gap(truth: Truth, chance: random.Random) -> Others:
    pair = _pair(truth, chance)
    if pair is None or not isinstance(pair[1].transaction, TransactionHeader):
        return {}
    header = pair[1].transaction
    numbers = {
        "tx_sequence_number": header.tx_sequence_number + 5,
        "previous_tx_sequence_number": header.tx_sequence_number + 4,
    }
    return {pair[3].seen.number: _changed(pair[3], transaction=numbers)}


@plant("gap-filled")
def _filled(truth: Truth, chance: random.Random) -> Others:
    pair = _pair(truth, chance)
    if pair is None or pair[0].session is not None or pair[1].session is not None:
        return {}
    one, other = pair[2].seen, pair[3].seen
    return {one.number: other.data, other.number: one.data} if len(one.data) == len(other.data) else {}


@plant("resend")
def _resend(truth: Truth, chance: random.Random) -> Others:
    pair = _pair(truth, chance)
    if (
        pair is None
        or len(pair[2].seen.data) != len(pair[3].seen.data)
        or (pair[0].session or pair[1].session)
    ):
        return {}
    return {pair[3].seen.number: pair[2].seen.data}


@plant("resend-without-need")
def _needless(truth: Truth, chance: random.Random) -> Others:
    """Replace a message with an earlier one that is not transactional and was already acknowledged."""
    answered: dict[int, int] = {}
    for number, sight in truth.sights.items():
        for packet in sight.saved.packets if sight.saved is not None else ():
            answered[packet] = number
    found = []
    for number, sight in truth.sights.items():
        if sight.kind is not Kind.RECOVERABLE or sight.session is not None:
            continue
        for packet, by in answered.items():
            earlier = truth.sights[packet]
            if (
                by < number
                and earlier.kind is Kind.RECOVERABLE
                and earlier.session is None
                and earlier.seen.source == sight.seen.source
                and earlier.seen.connection == sight.seen.connection
                and len(earlier.seen.data) == len(sight.seen.data)
            ):
                found.append({number: earlier.seen.data})
    return chance.choice(found) if found else {}


@plant("late")
def _late(truth: Truth, chance: random.Random) -> Others:
    sight = _some(chance, _of_kind(truth, Kind.EXPRESS, Kind.RECOVERABLE))
    if sight is None or sight.message is None:
        return {}
    sent = {"sent_time_s": sight.message.user.sent_time_s - 1_000}
    return {sight.seen.number: _changed(sight, user=sent, base={"time_to_reach_queue_s": 1})}


@plant("odd-field")
def _odd(truth: Truth, chance: random.Random) -> Others:
    sight = _some(chance, _of_kind(truth, Kind.TRANSACTIONAL))
    if sight is None or sight.message is None:
        return {}
    return {sight.seen.number: _changed(sight, base={"flags": sight.message.base.flags | 3})}


def _an_ack(truth: Truth, chance: random.Random, kind: Kind) -> list[Sight]:
    """Return an acknowledgment of a kind as seen on each hop that it crossed; empty if there is none."""
    found = _acks(truth, kind)
    return chance.choice(found) if found else []


def _acks(truth: Truth, kind: Kind) -> list[list[Sight]]:
    """Return all acknowledgments of a kind, each as seen on every hop that it crossed."""
    found: dict[tuple[Guid, int], list[Sight]] = {}
    for sight in _of_kind(truth, kind):
        assert sight.message is not None
        key = sight.message.user.source_queue_manager, sight.message.user.message_id
        found.setdefault(key, []).append(sight)
    return list(found.values())


def _with_body(sight: Sight, **changes: Any) -> bytes:
    body = sight.acknowledgment
    record: Any = order_ack_body if isinstance(body, OrderAckBody) else final_ack_body
    assert body is not None
    return _changed(sight, properties={"message_body": record.encode(replace(body, **changes))})


def _everywhere(sights: list[Sight], **changes: Any) -> Others:
    return {sight.seen.number: _with_body(sight, **changes) for sight in sights}


@plant("foreign-ack")
def _foreign(truth: Truth, chance: random.Random) -> Others:
    return {
        sight.seen.number: _changed(sight, user={"source_queue_manager": STRANGER})
        for sight in _an_ack(truth, chance, Kind.ORDER_ACK)
    }


@plant("order-ack-beyond")
def _order_beyond(truth: Truth, chance: random.Random) -> Others:
    sights = _an_ack(truth, chance, Kind.ORDER_ACK)
    if not sights:
        return {}
    body = sights[0].acknowledgment
    assert isinstance(body, OrderAckBody)
    return _everywhere(sights, tx_sequence_number=body.tx_sequence_number + 1_000)


@plant("order-ack-backwards")
def _order_backwards(truth: Truth, chance: random.Random) -> Others:
    highest: dict[TxSequenceId, int] = {}
    found = []
    for sights in _acks(truth, Kind.ORDER_ACK):
        body = sights[0].acknowledgment
        assert isinstance(body, OrderAckBody)
        if highest.get(body.tx_sequence_id, 0) > 1:
            found.append(_everywhere(sights, tx_sequence_number=1, tx_previous_sequence_number=0))
        highest[body.tx_sequence_id] = body.tx_sequence_number
    return chance.choice(found) if found else {}


@plant("order-ack-unknown")
def _order_unknown(truth: Truth, chance: random.Random) -> Others:
    return _everywhere(_an_ack(truth, chance, Kind.ORDER_ACK), tx_sequence_id=NOWHERE)


@plant("final-ack-unknown")
def _final_unknown(truth: Truth, chance: random.Random) -> Others:
    return _everywhere(_an_ack(truth, chance, Kind.FINAL_ACK), tx_sequence_id=NOWHERE)


@plant("final-ack-mismatch")
def _final_mismatch(truth: Truth, chance: random.Random) -> Others:
    sights = _an_ack(truth, chance, Kind.FINAL_ACK)
    if not sights:
        return {}
    body = sights[0].acknowledgment
    assert isinstance(body, FinalAckBody)
    return _everywhere(sights, message_id=body.message_id + 50_000)


def planted(truth: Truth, code: str, chance: random.Random) -> Others:
    """Return the replacements for packets, each of the same size as the original; none if the breach fits nowhere."""
    try:
        others = PLANTS[code](truth, chance)
    except MqprotoError:
        return {}
    fits = all(len(data) == len(truth.sights[number].seen.data) for number, data in others.items())
    return others if fits else {}
