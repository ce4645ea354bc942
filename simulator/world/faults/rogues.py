"""Queue managers that misbehave within the protocol. Other nodes must keep their promises nevertheless."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from mqproto.base.moment import Moment
from mqproto.session import Remote, Session
from mqproto.session.acknowledgment import FLAG_COUNT
from mqproto.session.data import ahead
from mqproto.simulator.base.randomness import chance
from mqproto.simulator.fuzz.tactics.packets import acknowledgment
from mqproto.simulator.world.faults.impostors import sent_as
from mqproto.simulator.world.network.glimpse import Glimpse, identity_of
from mqproto.simulator.world.node.linked import LinkedNode
from mqproto.simulator.world.scenarios.scenario import Fault
from mqproto.simulator.world.scenarios.traffic import Message, body_of
from mqproto.simulator.world.world import World
from mqproto.transfer.sequence import OutgoingSequence
from mqproto.turn.endings import ReplyTo
from mqproto.wire import (
    Guid,
    MessageClass,
    SessionAck,
    SessionHeader,
    UserMessage,
    encode_packet,
)
from mqproto.wire.glance import TRANSACTIONAL, Head, is_recoverable
from mqproto.wire.shapes import Run

LATE_MS: Final = 200
Receive = Callable[[Session, bytes | bytearray | memoryview, Moment], list[Run]]


def impatient(world: World, fault: Fault) -> bool:
    """The node resends all messages that await an OrderAck, long before a resend is due."""
    node = world.nodes[fault.where]
    return node.do(_resend, node)


def _resend(node: LinkedNode) -> None:
    outbound = node.running.inspect().outbound
    for queue in outbound:
        if isinstance(queue, OutgoingSequence) and queue.count:
            queue.resends.ack_wait_expired(node.moment())
            outbound.wake(queue)


def deaf(world: World, fault: Fault) -> bool:
    """The node sends no OrderAck for a while, or until it restarts."""
    node = world.nodes[fault.where]
    if node.core is None:
        return False
    outbound = node.core.inspect().outbound
    sound = outbound.acknowledge
    end_ms = min(fault.at_ms + fault.for_ms, world.scenario.storm_ms)

    def acknowledge(message: UserMessage, reply_to: ReplyTo) -> None:
        if message.user.recoverable or world.events.now_ms >= end_ms:
            sound(message, reply_to)

    outbound.acknowledge = acknowledge
    return True


def picky(world: World, fault: Fault) -> bool:
    """The node closes each session on which the first message of burst `value` arrives.

    It does so for `for_ms`, or forever if that is 0.
    """
    body = body_of(world.scenario.bursts[fault.value], fault.value, 0)
    node = world.nodes[fault.where]
    node.refuses.add(body)
    world.ledger.refused.add(body)
    if fault.for_ms:
        world.events.at(fault.at_ms + fault.for_ms, node.refuses.discard, body)
    return True


def lossy(world: World, fault: Fault) -> bool:
    """For a while, or until it restarts, the node falsely claims to have saved messages that it should pass on.

    Only transactional messages are lost in this way, because their source still has them, and sends them again.
    """
    node = world.nodes[fault.where]
    if node.core is None:
        return False
    arrivals = node.core.inspect().arrivals
    sound = arrivals.forward
    end_ms = min(fault.at_ms + fault.for_ms, world.scenario.storm_ms)

    def forward(run: Run, head: Head, remote: Remote, now: Moment) -> None:
        if not run.shape.flags & TRANSACTIONAL or world.events.now_ms >= end_ms:
            sound(run, head, remote, now)
        else:
            node.stored.update(map(identity_of, run.packets))
            world.ledger.tally["lost on purpose"] += len(run.packets)

    arrivals.forward = forward
    return True


def forged_ack(world: World, fault: Fault) -> bool:
    """The node acknowledges a message that was sent to another node.

    It sends an OrderAck or, if `value` is odd, a FinalAck.
    """
    node = world.nodes[fault.where]
    last = (sequence.messages[-1] for sequence in world.ledger.sequences.values())
    claims = [sent for sent in last if node.name not in (sent.burst.source, sent.burst.target)]
    if node.core is None or not claims:
        return False
    node.do(_forge, node, claims[-1], bool(fault.value & 1))
    return True


def _forge(node: LinkedNode, message: Message, is_final: bool) -> None:
    outbound = node.running.inspect().outbound
    source, ended = Guid(message.identity[:16]), MessageClass.ACK_RECEIVE if is_final else None
    message_id, sent_s = outbound.numbers.next_message_id(), node.moment().utc_s
    ack = acknowledgment(sent_as(message), node.guid, source, sent_s, message_id, ended)
    glimpse = Glimpse(encode_packet(ack))
    node.ledger.forgeries.add(node.guid + glimpse.body)
    outbound.acknowledge(ack, ReplyTo(source, None))


def sparse(world: World, fault: Fault) -> bool:
    """For a while, the node acknowledges as another implementation may: late, with gaps, and with OrderAcks sent twice.

    It does not save some recoverable messages, and leaves their flags unset. At the end, its connections break, so that
    its neighbours resend the messages that it has not saved.
    """
    node = world.nodes[fault.where]
    if node.core is None:
        return False
    if node.spare_until is None:
        node.spare_until = Sparing(world, node, fault).spare_until
    node.spare_until(min(fault.at_ms + fault.for_ms, world.scenario.storm_ms))
    return True


class Sparing:
    """Makes the sessions of a node acknowledge sparsely for a while, within one life of the node."""

    def __init__(self, world: World, node: LinkedNode, fault: Fault) -> None:
        self.life = node.life
        self._world, self._node, self._end_ms = world, node, 0
        self._missing: dict[int, list[int]] = {}
        """The numbers of the messages that were not saved, keyed by session."""
        self._dice = chance(world.scenario.seed, "sparse", node.name, str(fault.at_ms))
        self._transports, self._outbound = node.running.inspect().transports, node.running.inspect().outbound
        self._outbound.acknowledge = partial(self._acknowledge_twice, self._outbound.acknowledge)
        self._transports.new_session = partial(self._new_session, self._transports.new_session)
        self._transports.receive = partial(self._receive, self._transports.receive)
        self._transports.acknowledge = partial(self._acknowledge, self._transports.acknowledge)

    def spare_until(self, end_ms: int) -> None:
        """Acknowledge sparsely until this time, at least."""
        self._end_ms = max(self._end_ms, end_ms)
        for session in self._transports.sessions:
            self._missing.setdefault(session, [])
        self._world.events.at(end_ms, self._break)

    @property
    def _is_over(self) -> bool:
        return self._world.events.now_ms >= self._end_ms

    def _break(self) -> None:
        if self.life == self._node.life and self._is_over:
            for line in self._node.lines.values():
                line.reset_all()

    def _new_session(self, sound: Callable[..., Session], **options: Any) -> Session:
        session = sound(**options)
        if not self._is_over:
            self._missing[session.key] = []
        return session

    def _receive(
        self, sound: Receive, session: Session, chunk: bytes | bytearray | memoryview, now: Moment
    ) -> list[Run]:
        """Drop some of the recoverable messages that have arrived, and keep their numbers."""
        number = session.data.recoverable_message_received_count
        came = sound(session, chunk, now)
        if (missing := self._missing.get(session.key)) is None:
            return came
        saved: list[Run] = []
        for run in came:
            packets = run.packets
            if is_recoverable(packets[0]):
                packets = []
                for packet in run.packets:
                    number = (number + 1) & 0xFFFF
                    if not self._is_over and self._dice.randrange(4) == 0:
                        missing.append(number)
                        self._world.ledger.tally["not saved, and not said to be"] += 1
                    else:
                        packets.append(packet)
            if packets:
                saved.append(Run(run.shape, packets))
        return saved

    def _acknowledge(self, sound: Callable[..., None], session: Session, now: Moment | None = None) -> None:
        if (missing := self._missing.get(session.key)) is None:
            sound(session, now)
            return
        data = session.data
        if not session.is_open or not data.unacked_received_msg_count:
            return
        if not missing and (self._is_over or self._dice.randrange(2)):
            sound(session)
        elif not missing:
            self._node.later(LATE_MS, self._remind, session)
        else:
            self._say_what_is_saved(session, missing)

    def _remind(self, session: Session) -> None:
        if session.key in self._transports.sessions:
            self._transports.touch(session)

    def _say_what_is_saved(self, session: Session, missing: list[int]) -> None:
        """Send an acknowledgment for a range of at most 32 recoverable messages.

        The range begins with the first message that is missing or has not been acknowledged yet.
        """
        data = session.data
        first = data.last_acked_recoverable_msg_seq_number + 1 & 0xFFFF
        count = min(ahead(data.recoverable_message_received_count + 1, first), FLAG_COUNT)
        flags = sum(1 << bit for bit in range(count) if first + bit & 0xFFFF not in missing)
        data.received_is_answered()
        while flags >> ahead(data.last_acked_recoverable_msg_seq_number + 1, first) & 1:
            data.last_acked_recoverable_msg_seq_number = (
                data.last_acked_recoverable_msg_seq_number + 1 & 0xFFFF
            )
        header = SessionHeader(
            ack_sequence_number=data.message_received_count,
            recoverable_msg_ack_seq_number=first if flags else 0,
            recoverable_msg_ack_flags=flags,
            user_msg_sequence_number=data.message_sent_count,
            recoverable_msg_seq_number=data.recoverable_message_sent_count,
            window_size=data.settings.window_size,
        )
        if flags & flags + 1:
            self._world.ledger.tally["sparse acknowledgment"] += 1
        data.send(SessionAck(session=header))
        data.last_message_index = -1

    def _acknowledge_twice(
        self, sound: Callable[[UserMessage, ReplyTo], None], message: UserMessage, reply_to: ReplyTo
    ) -> None:
        """Send an OrderAck, and repeat it later, when other OrderAcks may have followed it."""
        sound(message, reply_to)
        if not (message.user.recoverable or self._is_over):
            self._node.later(LATE_MS * self._dice.choice((1, 5)), self._again, sound, message, reply_to)

    def _again(
        self, sound: Callable[[UserMessage, ReplyTo], None], message: UserMessage, reply_to: ReplyTo
    ) -> None:
        user = replace(message.user, message_id=self._outbound.numbers.next_message_id())
        sound(replace(message, user=user), reply_to)
