"""A second world: other traffic that also follows the protocol, and that leaves the same capture behind.

The bytes that a damaged capture lacks may have been anything that fits between those that it has. So "not known" is the
right answer if some packets could have been others. With these others, the remaining capture would be the same, no rule
would be broken, and the unknown fact would not be true. The functions here write such packets, byte by byte, and all
rules are applied to the whole capture of that world.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import Any, Final

from mqproto.base.errors import MqprotoError
from mqproto.captures import spoil
from mqproto.captures.decode import Sight
from mqproto.captures.decode.facts import MessageKey, NodeKey
from mqproto.captures.decode.journeys import message_key
from mqproto.captures.decode.ways import SECOND_NS
from mqproto.captures.files.frame import Frame
from mqproto.captures.net.tcp import FIN, PSH, RST
from mqproto.wire import (
    BaseHeader,
    EstablishConnection,
    FinalAckBody,
    Guid,
    MessageClass,
    TxSequenceId,
    UserMessage,
    decode_packet,
    encode_packet,
)
from mqproto.wire.layouts.acknowledgment import final_ack_body
from tests.captures.truth.claims import NAMED_BYTES
from tests.captures.truth.knowing import Known, Truth, messages_in
from tests.captures.truth.saying import Decoded, decoded
from tests.captures.truth.whole import Coverage, Whole

FRESH: Final = 0xF0000000
HARMLESS: Final = frozenset(
    {"resend", "resend-without-need", "late", "gap", "gap-filled", "odd-field", "refused", "missing-bytes"}
)
"""The codes of findings that may arise although nobody has broken a rule."""
HOPS_LIMIT: Final = 4
"""The maximum number of hops over which a message that has not arrived yet is carried."""
WAYS_LIMIT: Final = 8
"""The maximum number of paths that are tried."""
STRANGER: Final = Guid(b"somebody else...")


def fits(truth: Truth, coverage: Coverage, packets: Iterable[int]) -> bool:
    """Return whether a second world is possible in which each of these packets is a different one of the same size.

    Each packet may be a different message of the same sender. If the bytes that are left of a message show its source,
    all copies of the message are replaced by a different message of that source, on the same path. If they show
    everything but the source, the copies are replaced by a message with the same number from a different source. The
    rest of that message's path is not in the capture.
    """
    copies: dict[MessageKey | None, list[int]] = {}
    for number in packets:
        message = truth.sights[number].message
        copies.setdefault(None if message is None else message_key(message), []).append(number)
    others: dict[int, bytes] = {}
    for numbers in copies.values():
        found = (
            _in_place_of(truth, coverage, numbers, another)
            or _in_place_of(truth, coverage, numbers, partial(another, message_id=min(numbers)))
            or _in_place_of(truth, coverage, numbers, of_a_stranger)
        )
        if not found:
            return False
        others |= found
    return by_the_book(truth, others)


def _in_place_of(
    truth: Truth, coverage: Coverage, numbers: list[int], instead: Callable[[Sight], bytes | None]
) -> dict[int, bytes]:
    """Return packets that could replace the copies of a message.

    The result is empty if the remaining bytes of a copy do not allow another packet in its place.
    """
    others: dict[int, bytes] = {}
    for number in numbers:
        other = instead(truth.sights[number])
        if other is None or not unseen(truth, coverage, number, other):
            return {}
        others[number] = other
    return others


def fits_elsewhere(truth: Truth, coverage: Coverage, manager: Guid) -> bool:
    """Return whether a second world is possible in which another node was the one that presented this GUID in
    handshakes.

    A message that left the node without an earlier hop also shows the node's identity. So in that world, the other node
    sent a different message instead.
    """
    others = {}
    for number, sight in truth.sights.items():
        packet = sight.seen.packet
        if isinstance(packet, UserMessage) and sight.hop[0] == manager and not packet.user.hop_count:
            message = another(sight, sender=STRANGER)
            if message is None or not unseen(truth, coverage, number, message):
                return False
            others[number] = message
        if not isinstance(packet, EstablishConnection):
            continue
        ends = [name for name in ("client_guid", "server_guid") if getattr(packet, name) == manager]
        if not ends:
            continue
        strange: dict[str, Any] = dict.fromkeys(ends, STRANGER)
        other = encode_packet(replace(packet, **strange))
        if not unseen(truth, coverage, number, other):
            return False
        others[number] = other
    return by_the_book(truth, others)


def fits_beyond(truth: Truth, known: Known) -> bool:
    """Return whether a second world is possible in which further frames brought a message to its destination.

    These frames come after all others, and use open connections. They start at the last node that had the message, and
    go to the destination directly or through other nodes.
    """
    message = truth.sights[max(known.crossings)].message
    assert message is not None
    holder = truth.sights[max(known.crossings)].hop[1]
    for way in islice(ways_to(truth, holder, message.user.queue_manager_address), WAYS_LIMIT):
        frames = list(truth.whole.frames)
        for hops, last in enumerate(way, 1):
            place = spoil.placed(last)
            assert place is not None
            user = replace(message.user, flags=message.user.flags + hops)
            base = replace(message.base, flags=message.base.flags & ~BaseHeader.session_header.mask)
            onward = encode_packet(replace(message, base=base, session=None, user=user))
            sequence = place.sequence + place.end - place.payload
            more = spoil.written(last, place, sequence, place.flags | PSH, onward)
            frames.append(more._replace(number=frames[-1].number + 1, time_ns=frames[-1].time_ns + 1))
        second = decoded([frames])
        if len(second.sights) == len(truth.decoded.sights) + len(way) and _keeps_rules(truth, second):
            return True
    return False


def fits_passed_over(truth: Truth, coverage: Coverage, known: Known) -> bool:
    """Return whether a second world is possible in which a later message, in lost frames, passed over this message.

    It did so before the first acknowledgment that would cover this message. So no remaining acknowledgment is about
    this message.

    There are two possibilities. The later message was sent again, unchanged except for the number of its predecessor,
    on another session or at least a second after all remaining copies of both messages. Or it was new, and a FinalAck
    in lost frames had ended this message.  [MS-MQQB] 3.1.5.7, 3.1.6.5, 3.1.7.1.3
    """
    if known.sequence is None:
        return False
    origin, identifier, own = known.sequence
    sights = truth.sights

    def left(packets: Iterable[int]) -> list[int]:
        return [each for each in packets if coverage.has(truth.whole.spans[each], NAMED_BYTES)]

    tellers = {each: sights[each] for each in left((*known.order_acks, *known.covering))}
    bodies = [each.acknowledgment for each in tellers.values()]
    highest = min((body.tx_sequence_number for body in bodies if body is not None), default=0)
    crossed = [each for each in left(known.crossings) if sights[each].hop[0] == origin]
    if highest <= own or not crossed:
        return False
    every = [
        each
        for each in range(max(crossed) + 1, min(tellers))
        if each in sights and sights[each].message and coverage.lacks(truth.whole.spans[each])
    ]
    lost = [each for each in every if _is_recoverable(sights[each])]
    ack = next(each.message for each in tellers.values() if each.message is not None)
    ways = list(islice(_chains(truth, lost, ack.user.source_queue_manager, origin), 256 * WAYS_LIMIT))

    def instead(number: int, way: list[int]) -> dict[int, bytes]:
        """Return packets that replace lost ones, and that carry a later message along this path.

        The result is empty if the later message does not fit.
        """
        later = truth.numbered.get((origin, identifier, number))
        copies = {} if later is None else later.crossings
        is_new = not left(copies)
        before = [each for each in (*crossed, *left(copies)) if sights[each].hop[0] == origin]
        others: dict[int, bytes] = {}
        if not all(_is_sent_again(sights[way[0]], sights[each]) for each in before if each < way[0]):
            others = _ended(truth, coverage, known, ack, every, way[0]) if is_new else {}
            if not others:
                return {}
        message = sights[max(crossed) if is_new else min(copies)].message
        assert message is not None
        header = message.transaction
        assert header is not None
        message = replace(
            message,
            user=replace(message.user, message_id=FRESH) if is_new else message.user,
            transaction=replace(
                header, tx_sequence_number=number, previous_tx_sequence_number=max(0, own - 1)
            ),
        )
        for hops, each in enumerate(way):
            if (found := _instead(truth, lost, each, message, hops, is_sized=is_new)) is None:
                return {}
            others |= found
        for each in copies if is_new else ():
            if each not in others:
                if (other := another(sights[each])) is None:
                    return {}
                others[each] = other
        return others if all(unseen(truth, coverage, *each) for each in others.items()) else {}

    by_number = (filter(None, map(partial(instead, number), ways)) for number in range(own + 1, highest + 1))
    worlds = chain.from_iterable(islice(others, 4 * WAYS_LIMIT) for others in by_number)
    for others in islice(worlds, 4 * WAYS_LIMIT**2):
        world = decoded([rewritten(truth.whole, others)])
        seen = {sight.seen.number: sight for sight in world.sights if sight.seen.framed}
        again = messages_in(seen).get(known.name)
        told = set() if again is None else {*again.order_acks, *again.covering}
        if len(seen) == len(sights) and _keeps_rules(truth, world) and told.isdisjoint(tellers):
            return True
    return False


def _ended(
    truth: Truth, coverage: Coverage, known: Known, ack: UserMessage, lost: list[int], before: int
) -> dict[int, bytes]:
    """Return packets that replace lost ones, and that carry a FinalAck for the message to its source.

    They may have come before the packet with the number `before`, so that the message had ended by then. The result is
    empty if no FinalAck fits.
    """
    assert known.sequence is not None
    origin, identifier, own = known.sequence
    body = final_ack_body.encode(FinalAckBody(identifier, own, own - 1, origin, known.key[1]))
    properties = replace(ack.properties, message_class=MessageClass.NACK_DELETED, message_body=body)
    answer = replace(ack, user=replace(ack.user, message_id=FRESH + 1), properties=properties)
    spans = truth.whole.spans

    def may_be_before(number: int) -> bool:
        since = (spans[each] for each in range(before, number) if each in spans)
        return all(each.stream != spans[number].stream or coverage.lacks(each) for each in since)

    back = list(filter(may_be_before, lost))
    for way in islice(_chains(truth, back, origin, ack.user.source_queue_manager), WAYS_LIMIT):
        found = [_instead(truth, lost, each, answer, hops, is_sized=False) for hops, each in enumerate(way)]
        if all(found):
            return {number: data for each in found if each for number, data in each.items()}
    return {}


def _is_sent_again(one: Sight, other: Sight) -> bool:
    return one.seen.connection != other.seen.connection or one.seen.time_ns - other.seen.time_ns >= SECOND_NS


def _is_recoverable(sight: Sight) -> bool:
    return sight.message is not None and sight.message.user.delivery_mode == 1


def _instead(
    truth: Truth, lost: list[int], number: int, message: UserMessage, hops: int, *, is_sized: bool
) -> dict[int, bytes] | None:
    """Return a message that takes the place of a lost packet, or of that one and the next; None if it is too large.

    Args:
        is_sized: whether the message's body may be resized to fit.
    """
    sight, span = truth.sights[number], truth.whole.spans[number]
    user = replace(message.user, flags=message.user.flags & ~0x1F | hops)
    copy = _with_session(replace(message, user=user), sight)
    size_bytes = span.end - span.start
    if is_sized and (found := _sized(copy, size_bytes)) is not None:
        return {number: found}
    data = encode_packet(copy)
    if len(data) == size_bytes:
        return {number: data}
    behind = next((each for each in lost if truth.whole.spans[each][:2] == (span.stream, span.end)), None)
    other = None if behind is None else another(truth.sights[behind])
    if behind is None or other is None:
        return None
    rest = decode_packet(other)
    assert isinstance(rest, UserMessage)
    filler = _sized(rest, truth.whole.spans[behind].end - span.start - len(data))
    if filler is None:
        return None
    both = data + filler
    return {number: both[:size_bytes], behind: both[size_bytes:]}


def _with_session(message: UserMessage, sight: Sight) -> UserMessage:
    """Return a packet with the SessionHeader of another one."""
    session = sight.message.session if sight.message is not None else None
    flags = message.base.flags & ~BaseHeader.session_header.mask
    if session is not None:
        flags |= BaseHeader.session_header.mask
    return replace(message, session=session, base=replace(message.base, flags=flags))


def _sized(message: UserMessage, size_bytes: int) -> bytes | None:
    """Return a message that has this size thanks to a suitable body; None if even an empty body is too large."""
    bare = replace(message, properties=replace(message.properties, message_body=b""))
    room_bytes = size_bytes - len(encode_packet(bare))
    if room_bytes < 0:
        return None
    data = encode_packet(replace(bare, properties=replace(bare.properties, message_body=bytes(room_bytes))))
    return data if len(data) == size_bytes else None


def _chains(truth: Truth, packets: list[int], to: NodeKey, *been: NodeKey) -> Iterator[list[int]]:
    """Yield paths through these packets, in order, from the last of the given queue managers to another.

    No path visits a queue manager twice.
    """
    for place, number in enumerate(packets):
        one, other = truth.sights[number].hop
        if one == been[-1] and other == to:
            yield [number]
        elif one == been[-1] and other not in been:
            yield from ([number, *rest] for rest in _chains(truth, packets[place + 1 :], to, *been, other))


def ways_to(truth: Truth, holder: NodeKey, destination: NodeKey) -> Iterator[list[Frame]]:
    """Yield the paths over open connections, shortest first: for each hop, the last frame that was sent there."""
    ended = {_connection(truth, frame) for frame in truth.whole.frames if _ends(frame)}
    last = {
        span.stream: frame
        for frame in truth.whole.frames
        if (span := truth.whole.of_frame.get(frame.number)) is not None and span.stream[0] not in ended
    }
    ends: dict[NodeKey, list[tuple[NodeKey, Frame]]] = defaultdict(list)
    for stream, (one, other) in {
        truth.whole.spans[number].stream: each.hop for number, each in truth.sights.items()
    }.items():
        if stream in last:
            ends[one].append((other, last[stream]))
    begun: deque[tuple[list[NodeKey], list[Frame]]] = deque([([holder], [])])
    while begun:
        nodes, way = begun.popleft()
        for receiver, frame in ends[nodes[-1]]:
            if receiver in nodes:
                continue
            if receiver == destination:
                yield [*way, frame]
            elif len(nodes) < HOPS_LIMIT:
                begun.append(([*nodes, receiver], [*way, frame]))


def _ends(frame: Frame) -> bool:
    place = spoil.placed(frame)
    return place is not None and bool(place.flags & (FIN | RST))


def _connection(truth: Truth, frame: Frame) -> int | None:
    span = truth.whole.of_frame.get(frame.number)
    return None if span is None else span.stream[0]


def another(sight: Sight, message_id: int | None = None, sender: NodeKey | None = None) -> bytes | None:
    """Return another message of the same sender; None if there is none.

    It has the same size, is recoverable if the original is, and does not report the outcome of a message.

    Args:
        message_id: set to make another message of the same source, on the same path; all copies must be given the same
            one.
        sender: set if the sender is not the one in the handshake.
    """
    message, sender = sight.seen.packet, sender or sight.hop[0]
    if not isinstance(message, UserMessage) or not isinstance(sender, bytes):
        return None
    number = sight.seen.number
    if message_id is None:
        source, flags = Guid(sender), message.user.flags & ~0x1F
    else:
        number, source, flags = message_id, message.user.source_queue_manager, message.user.flags
    user = replace(message.user, source_queue_manager=source, message_id=FRESH + number, flags=flags)
    transaction = message.transaction
    if transaction is not None:
        transaction = replace(
            transaction,
            tx_sequence_id=TxSequenceId(time_stamp=FRESH, ordinal=number),
            tx_sequence_number=1,
            previous_tx_sequence_number=0,
        )
    properties = replace(message.properties, message_class=MessageClass.NORMAL)
    try:
        other = encode_packet(replace(message, user=user, transaction=transaction, properties=properties))
    except MqprotoError:
        return None
    return other if len(other) == len(sight.seen.data) else None


def of_a_stranger(sight: Sight) -> bytes | None:
    """Return a message as another sender would have sent it; None if it is not a message, or reports the outcome of
    others.
    """
    message = sight.message
    if message is None or message.properties.message_class != MessageClass.NORMAL:
        return None
    return encode_packet(replace(message, user=replace(message.user, source_queue_manager=STRANGER)))


def unseen(truth: Truth, coverage: Coverage, number: int, other: bytes) -> bool:
    """Return whether a packet may have been another one, judging by those of its bytes that are there."""
    span, data = truth.whole.spans[number], truth.whole.packets[number].data
    return all(
        data[start - span.start : end - span.start] == other[start - span.start : end - span.start]
        for start, end in coverage.seen_of(span)
    )


def by_the_book(truth: Truth, others: Mapping[int, bytes]) -> bool:
    """Return whether a world with other packets breaks no rule more often than the first world does."""
    second = decoded([rewritten(truth.whole, others)])
    return len(second.sights) == len(truth.decoded.sights) and _keeps_rules(truth, second)


def _keeps_rules(truth: Truth, second: Decoded) -> bool:
    return _breaches(second) <= _breaches(truth.decoded)


def rewritten(whole: Whole, others: Mapping[int, bytes]) -> list[Frame]:
    """Return the frames of a whole capture in which some packets are replaced by others of the same sizes."""
    frames = {frame.number: frame for frame in whole.frames}
    changed: set[int] = set()
    for number, other in others.items():
        span = whole.spans[number]
        seen = whole.packets[number]
        for place in range(seen.first_frame, seen.frame + 1):
            at = whole.of_frame.get(place)
            if at is None or at.stream != span.stream:
                continue
            start, end = max(at.start, span.start), min(at.end, span.end)
            placed = spoil.placed(frames[place])
            if start < end and placed is not None:
                data = frames[place].data
                begin = placed.payload + start - at.start
                piece = other[start - span.start : end - span.start]
                changed.add(place)
                frames[place] = frames[place]._replace(
                    data=data[:begin] + piece + data[begin + end - start :]
                )
    return [spoil.summed(frame) if frame.number in changed else frame for frame in frames.values()]


def _breaches(said: Decoded) -> Counter[str]:
    found = Counter(finding.code for finding in said.findings if finding.code not in HARMLESS)
    for sight in said.sights:
        # Who sends what nobody has passed on is its source.  [MS-MQMQ] 2.2.19.2
        user = None if sight.message is None else sight.message.user
        if user is not None and not user.hop_count and isinstance(sight.hop[0], bytes):
            found["passed on with hop count 0"] += user.source_queue_manager != sight.hop[0]
    return found
