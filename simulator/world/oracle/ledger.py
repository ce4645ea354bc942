"""Records promises and events, as an observer of every disk and every wire would see them.

The ledger never asks a core. It learns about a message when an application sends it; about its acceptance, arrival and
end when these are flushed; and about acknowledgments when they leave. The oracle reports all this to the ledger, and
makes the comparisons.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final, TypeAlias

from mqproto.simulator.storage import Store
from mqproto.simulator.world.network.glimpse import Glimpse, identity, identity_of, place_in_sequence
from mqproto.simulator.world.network.links import End
from mqproto.simulator.world.oracle.watched import WatchedNode
from mqproto.simulator.world.scenarios.scenario import Burst
from mqproto.simulator.world.scenarios.traffic import KINDS, VISITING, Kind, Message, Promise, Stream
from mqproto.turn.effects import LAST_POSITION, POSITION_BITS, Note, QueueKind, ReadBy, ReadPage
from mqproto.wire import MessageClass, decode_message

SET_ASIDE: Final = frozenset({MessageClass.NACK_DELETED, MessageClass.NACK_HOP_COUNT_EXCEEDED})
"""The classes with which a message ends, at its source or on its way, if the next hop has refused it."""
NOT_THERE: Final = frozenset({MessageClass.NACK_Q_DELETED, MessageClass.NACK_BAD_DST_Q})
"""The classes with which a message ends if its queue was deleted, before or after the message arrived."""

SequenceName: TypeAlias = tuple[bytes, int, int]
"""The name of a sequence: the source's GUID, and the time stamp and ordinal of the TxSequenceID."""


@dataclass(slots=True)
class SequenceOnDisk:
    """The messages of one outgoing sequence that its source has on disk, in the order of their numbers."""

    numbers: list[int] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    through: int = 0
    """The number of messages, from the first one on, that are known to have arrived or ended."""


class Ledger:
    """All facts about one world.

    Args:
        common_endings: the classes with which any message of this world may end without being received.
        strangers: whether strangers may send to its queues.
        unmet: whether each node is a stranger to all other nodes.
    """

    def __init__(
        self, common_endings: frozenset[int], *, strangers: bool = False, unmet: bool = False
    ) -> None:
        self.strangers = strangers
        self.unmet = unmet
        self.tally: Counter[str] = Counter()
        self.messages: dict[bytes, Message] = {}
        self.sequences: dict[SequenceName, SequenceOnDisk] = {}
        self.accepted: list[Message] = []
        self._streams: dict[tuple[str, str, int, bool], Stream] = {}
        self._waiting: dict[tuple[str, int], dict[Message, None]] = {}
        """The messages that can be handed out, grouped by target and queue."""
        self._positions = count(1)
        self.forgeries: set[bytes] = set()
        """The source and contents of each forged acknowledgment.

        MessageIDs are left out, because they may change, or belong to other packets.
        """
        self.waypoints: list[tuple[str, Note]] = []
        """The places where messages have been, in order, as pairs of node and note.

        They are taken from the nodes' own notes, so there are none if the setting is off.
        """
        self.latest_utc_offset_s = 0
        """The maximum number of seconds by which the clock of any node has ever been ahead."""
        self._common_endings = common_endings
        self.has_gone_back = False
        """Whether any store was ever restored to an earlier state, or moved away."""
        self._deleted: set[tuple[str, int]] = set()
        """The queues that operators have ever deleted, each as its node and identifier."""
        self.keys_known: dict[str, dict[str, int]] = {}
        """For each node, the number of the public key that it knows of each other node, keyed by that other node."""
        self.session_keys: dict[bytes, tuple[str, int]] = {}
        """The owner of each encrypted session key, and the number of the key pair for which it was encrypted."""
        self.keys_withdrawn: set[str] = set()
        """The nodes that for a time knew nobody else's public keys."""
        self.refused: set[bytes] = set()
        """The bodies of messages that a node refuses by closing each session on which they arrive."""

    def message_in(self, packet: bytes) -> Message | None:
        """Return the application's message in a packet.

        The result is None if the packet is a stranger's, whatever its identity is.
        """
        if self.strangers and VISITING in packet:
            return None
        return self.messages.get(identity_of(packet))

    def is_strangers(self, packet: bytes) -> bool:
        """Return whether a packet was sent by a stranger that may send."""
        return self.strangers and VISITING in packet

    def endings_of(self, message: Message) -> frozenset[int]:
        """Return the classes with which a message may end without being received."""
        endings = message.kind.endings | self._common_endings
        if (message.burst.target, message.kind.queue) in self._deleted:
            endings |= NOT_THERE
        return endings | SET_ASIDE if message.body in self.refused else endings

    def deleted(self, node: WatchedNode, queue: str) -> None:
        """Record that an operator deleted a node's queue.

        From now on, messages for that queue, and no others, may end because it is not there.
        """
        self._deleted |= {(node.name, each.identifier) for each in node.queues if each.name == queue}

    def latest_utc_s(self, node: WatchedNode) -> int:
        """Return the latest time, in seconds, that any node's clock can have shown by now."""
        return node.events.begins_utc_s + node.now_ms // 1_000 + self.latest_utc_offset_s

    def session_key_made(self, encrypted: bytes, owner: str, number: int) -> None:
        """Record that a session key was encrypted with the public key of `owner` that has this number."""
        self.tally["session key"] += 1
        self.session_keys[encrypted] = owner, number

    def may_not_be_encrypted(self, node: WatchedNode, message: Message) -> bool:
        """Return whether a node's own message may end at that node because the key for it was withdrawn."""
        burst = message.burst
        is_sent = node.name == burst.source != burst.target
        return is_sent and burst.encrypted and node.name in self.keys_withdrawn

    def has_ended(self, node: WatchedNode, message: Message) -> bool:
        """Return whether a sequence may continue after a message.

        It may if the message has arrived, was refused, or has expired, for example.
        """
        if message.arrivals or message.refusals or message.letters or message.deleted or message.is_unsure:
            return True
        if message.was_hurt:
            return True
        if message.was_not_encrypted:
            return True
        if message.lost_copies:
            return True
        deadline_s = self.reach_deadline_s(message)
        return deadline_s is not None and self.latest_utc_s(node) > deadline_s

    def reach_deadline_s(self, message: Message) -> int | None:
        """Return the last second at which a message may be on its way; None for no limit."""
        draft = message.kind.draft
        limits = [draft[name] for name in ("time_to_reach_queue_s", "time_to_be_received_s") if name in draft]
        return message.accepted_s + min(limits) if limits else None

    def sequences_named(self, source: bytes, time_stamp: int, ordinal: int) -> Iterator[SequenceOnDisk]:
        """Yield the sequences that an OrderAck may mean.

        The OrderAck for messages to a direct format name omits the source's GUID.
        """
        if (source, time_stamp, ordinal) in self.sequences:
            yield self.sequences[source, time_stamp, ordinal]
            return
        for (_, *key), sequence in self.sequences.items():
            if key == [time_stamp, ordinal]:
                yield sequence

    # An application sends

    def submitted(self, node: WatchedNode, burst: Burst, body: bytes, message_id: int) -> Message:
        """Record a message that was handed to a queue manager. It is accepted when the next batch is on disk."""
        kind = KINDS[burst.kind]
        message = Message(burst, kind, self.stream_of(burst, kind), identity(node.guid, message_id), body)
        message.accepted_s = node.moment().utc_s
        self.messages[message.identity] = message
        return message

    def sent_again(self, node: WatchedNode, letter: Message, message_id: int) -> Message:
        """Record that a dead letter was sent again, as a new message."""
        self.tally["sent again"] += 1
        letter.sent_again = True
        return self.submitted(node, letter.burst, letter.body, message_id)

    def stream_of(self, burst: Burst, kind: Kind) -> Stream:
        """Return the stream of a burst's messages."""
        key = burst.source, burst.target, kind.queue, kind.direct
        stream = self._streams.get(key)
        if stream is None:
            waiting = self._waiting.setdefault((burst.target, kind.queue), {})
            stream = self._streams[key] = Stream(waiting)
        return stream

    def forgotten(self, submitted: list[Message]) -> None:
        """Forget messages that a node had not accepted before it crashed; it may reuse their MessageIDs."""
        for message in submitted:
            self.messages.pop(message.identity, None)

    # A batch is on disk

    def accepts(self, node: WatchedNode, message: Message) -> None:
        """Record that a node has a message on disk or, if it is express, in memory."""
        stream = message.stream
        message.order = stream.accepted
        stream.accepted += 1
        message.accepted_ms = node.now_ms
        self.accepted.append(message)
        kind, burst = message.kind, message.burst
        if kind.promise is Promise.ONCE and not kind.endings and burst.source != burst.target:
            stream.unsent[message] = None
        self.tally[f"accepted {message.burst.kind}"] += 1

    def retains(self, name: bytes, packet: bytes) -> None:
        """Record the number under which a source keeps one of its own messages until its OrderAck arrives."""
        message = self.messages.get(name)
        place = place_in_sequence(packet)
        if message is None or place is None:
            return
        message.place = place
        message.size_bytes = len(packet)
        (time_stamp, ordinal), number = place
        key = name[:16], time_stamp, ordinal
        sequence = self.sequences.get(key)
        if sequence is None:
            sequence = self.sequences[key] = SequenceOnDisk()
        at = bisect_left(sequence.numbers, number)
        sequence.numbers.insert(at, number)
        sequence.messages.insert(at, message)

    def arrived(self, node: WatchedNode, message: Message) -> None:
        """Record that a message was put into its destination's queue."""
        node.has_met |= message.kind.promise is not Promise.NOTHING
        message.arrivals += 1
        if message.arrivals > 1 and message.was_forgotten:
            self.tally["came again when it was forgotten"] += 1
        message.life = node.committed_in
        message.position = next(self._positions)
        self.waits(message)

    def purged(self, packets: list[bytes]) -> None:
        """Record messages that leave an outgoing queue, possibly because an operator deleted them."""
        for packet in packets:
            message = self.messages.get(identity_of(packet))
            if message is not None and not message.deleted:
                message.deleted = True
                self.tally["left an outgoing queue that was purged"] += 1

    def reply_is_set_aside(self, packet: bytes) -> None:
        """Record a dead letter that is not an application's message, but an acknowledgment that a neighbour refuses."""
        message = self.messages.get(decode_message(packet).properties.correlation_id)
        if message is not None:
            message.replies_set_aside += 1
            self.tally["acknowledgment set aside"] += 1

    def told(self, node: WatchedNode, note: Note) -> None:
        """Record that a source was told why a message ended without being received."""
        message = self.messages.get(identity(node.guid, int(note.facts["message_id"])))
        if message is not None:
            message.told.append(int(note.facts.get("class", MessageClass.NACK_HOP_COUNT_EXCEEDED)))

    # Applications receive

    def received(self, messages: list[Message]) -> None:
        """Record messages that applications received for good."""
        for message in messages:
            message.receipts += 1
            self.tally["received"] += 1

    def given_back(self, messages: list[Message]) -> None:
        """Record that a consumer gave messages back by a rollback, or by going away."""
        waiting = messages[0].stream.waiting if messages else {}
        if any(other.position < messages[-1].position for other in waiting):
            self.tally["given back behind others"] += 1
        for message in messages:
            message.is_out = False
            message.given_back += 1
            self.waits(message)

    def look(self, node: WatchedNode) -> None:
        """Record a core's own counts. Once it is killed, it cannot be asked for them."""
        for name, figure in node.core.counts().items() if node.core is not None else ():
            self.tally[f"core {name}"] += figure

    def crashed(self, node: WatchedNode) -> None:
        """Record that a node no longer knows which messages it has handed out."""
        self.look(node)
        for message in self.messages.values():
            if message.is_out and message.burst.target == node.name:
                message.is_out = False
                self.waits(message)

    def waits(self, message: Message) -> None:
        """Record that a message can be handed out, if it is still in its queue. An express message may be lost."""
        if (
            message.arrivals
            and not (message.is_unsure or message.was_hurt)
            and not (message.receipts or message.gone or message.is_out)
            and message.kind.promise is not Promise.NOTHING
        ):
            message.stream.waiting[message] = None

    # A store is hurt, or goes back

    def hurt(self, node: WatchedNode, store: Store) -> None:
        """Record a restart with damaged messages.

        Each of them is lost, is sent again by its source, or is still whole in the log.
        """
        for key, hurt in list(node.disk.hurt.items()):
            queue, row = key >> POSITION_BITS, node.disk.row(key)
            assert row is not None, "what is hurt is there"
            [(_, packet, _)] = store.read(
                ReadPage(queue, (key & LAST_POSITION) - 1, 1, len(hurt), ReadBy.WINDOW)
            )
            message, kind = self.message_in(row.packet), node.disk.queues[queue].kind
            assert message is not None, "it is an application's"
            if packet == row.packet:
                del node.disk.hurt[key]
                self.tally["hurt message, whole in the log"] += 1
            elif kind is QueueKind.HELD or (kind is QueueKind.OUTGOING and message.kind.transactional):
                self.tally["hurt message, to be repeated"] += 1
            else:
                self.tally["hurt message, lost"] += 1
                message.was_hurt = True
                message.stream.waiting.pop(message, None)
                message.stream.unsent.pop(message, None)

    def goes_back(self) -> None:
        """Record that a store was restored to an earlier state. The promises for accepted messages are now void."""
        self.has_gone_back = True
        for message in self.accepted:
            message.is_unsure = True
            message.stream.waiting.pop(message, None)

    # Packets

    def arrives(self, node: WatchedNode, end: End, glimpses: list[Glimpse]) -> None:
        """Record packets that arrive at one end of a connection."""
        forgets_soon = node.forgets_soon
        for glimpse in glimpses:
            if glimpse.is_user:
                end.used_ms = node.now_ms
                if forgets_soon and place_in_sequence(glimpse.packet) is None:
                    kind = glimpse.identity[:16], glimpse.recoverable
                    count = node.came_counts[kind] = node.came_counts.get(kind, 0) + 1
                    node.came_at.setdefault(glimpse.identity, []).append(count)
                    message = self.messages.get(glimpse.identity)
                    if message is not None and node.name == message.burst.target:
                        message.was_forgotten |= node.may_have_forgotten(glimpse.identity)
                if glimpse.recoverable:
                    end.recoverable_arrived += 1
                    end.expected.append((end.recoverable_arrived, glimpse.identity))
                if glimpse.manager != node.guid:
                    node.came.setdefault((glimpse.identity, glimpse.body), set()).add(glimpse.hop_count)
            if glimpse.window:
                end.window = glimpse.window
            if glimpse.session is not None:
                if glimpse.session.ack_sequence_number != end.acked & 0xFFFF:
                    for suspicion in node.suspected.values():
                        suspicion.alone = 0
                end.acked += (glimpse.session.ack_sequence_number - end.acked) & 0xFFFF

    def those_with(self, bodies: Collection[bytes], glimpses: list[Glimpse]) -> list[Glimpse]:
        """Return the packets of applications' messages with one of these bodies."""
        found = [(one, self.messages.get(one.identity)) for one in glimpses]
        return [one for one, message in found if message is not None and message.body in bodies]

    def refuses(self, end: End, glimpses: list[Glimpse]) -> None:
        """Record that a node refuses these packets, which arrived at its end of the connection."""
        self.tally["refused by closing"] += 1
        sender = end.peer.host
        if not isinstance(sender, WatchedNode):
            return
        sender.refused_sessions.add(end.peer.session)
        sender.refused_ms = sender.now_ms
        for glimpse in glimpses:
            suspicion = sender.suspected.get(glimpse.identity)
            if suspicion is not None:
                # A sender whose connection was reset just before has counted this one already.
                suspicion.refused += end.peer.session in sender.ends
                suspicion.alone += end.peer.session in sender.ends
            elif sender.suspected:  # A full neighbour refuses like this, too.
                sender.tries_anew = True

    def is_forged(self, glimpse: Glimpse) -> bool:
        """Return whether a packet is an acknowledgment that was forged by the scenario."""
        return glimpse.identity[:16] + glimpse.body in self.forgeries
