"""The rules that must hold in every world. Each rule is a function that returns what is wrong, or None.

Each rule is checked at the moments at which it could be broken. atrest.py has the rules for a world at rest, intime.py
has those about time, and answers.py has those about answers to operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Final

from mqproto.manager.queuemanager import QueueManager
from mqproto.messages.drafts import path_name_in
from mqproto.neighbours.door import unfinished
from mqproto.neighbours.trial import ROUNDS
from mqproto.queues.localqueue import JOURNAL_SUFFIX, SystemQueue
from mqproto.session.data import ahead
from mqproto.simulator.storage import Store
from mqproto.simulator.world.network.glimpse import Glimpse, SessionGlimpse
from mqproto.simulator.world.network.links import STRANGER, End
from mqproto.simulator.world.oracle.doubts import is_in_doubt
from mqproto.simulator.world.oracle.ledger import SET_ASIDE, Ledger
from mqproto.simulator.world.oracle.watched import REFUSED, WatchedNode
from mqproto.simulator.world.scenarios.scenario import Consumer, guid_of
from mqproto.simulator.world.scenarios.traffic import (
    CHOSEN,
    LATE,
    REPLIES,
    SECRET,
    Message,
    Promise,
    destination,
)
from mqproto.turn.effects import (
    LIFE,
    POSITION_BITS,
    UNKNOWN_COUNT,
    Note,
    QueueKind,
    ReadBy,
    ReadExpired,
    ReadPage,
    SendBytes,
    StoredState,
    Writes,
)
from mqproto.turn.guard import SIGNED_20, SIGNED_30
from mqproto.wire import Guid, MessageClass, OrderAckBody, decode_message, guid_text, simple_blob
from mqproto.wire.glance import acknowledges, receive_deadline_s

ALL: Final = 2**40
SYSTEM_QUEUES: Final = frozenset(SystemQueue) | {queue.name for queue in CHOSEN.values()}
SEQUENCE_KINDS: Final = frozenset({QueueKind.SEQUENCE, QueueKind.FINAL, QueueKind.HELD, QueueKind.ORDER})
HELD_BACK: Final = ROUNDS + 1
"""The maximum number of messages that wait outside their queues while a neighbour refuses one of them."""
BROKEN_RULES: Final = ("3.1.5.1", "3.1.5.3", "3.1.5.4", "3.1.5.5", "3.1.5.8")
"""The sections of the specification under which a session is closed because the peer broke a rule. This never happens
to peers that obey the rules."""
UNORDERED: Final = frozenset({"outgoing", "incoming", "outcomes"})
"""The fields of a StoredState whose elements are in no particular order."""
SESSION_KEY_BYTES: Final = 128
"""An upper limit, in bytes, for the size of a session key. An encrypted message in its queue still has its
session key.
"""
BAD_DST_Q: Final = MessageClass.NACK_BAD_DST_Q
DELETED: Final = MessageClass.NACK_DELETED
"""The class of a message that an operator deleted on its way, whether or not it had arrived."""
NO_ROOM: Final = "3.1.5.8.8"
"""The section that is an exception to BROKEN_RULES, because a full store is not the peer's fault."""


def disks_have_what_was_committed(node: WatchedNode, store: Store, state: StoredState) -> str | None:
    """When a store is opened, it has what was committed to it: each transaction once, and nothing else."""
    disk = node.disk
    if store.record_count != disk.commit_count:
        return f"the store of {node.name} has {store.record_count} transactions, not {disk.commit_count}"
    if state.life is not None and LIFE in disk.counters and not node.was_put_back:
        return f"{node.name} takes its store for one that was put back: {store.notices}"
    if state.life is not None and state.life.is_restored != bool(disk.commit_count):
        belief = "was" if state.life.is_restored else "was not"
        return f"{node.name} begins a life, and believes that its store {belief} put back"
    pages: list[ReadPage | ReadExpired] = [
        ReadPage(queue, 0, ALL, ALL, ReadBy.WINDOW) for queue in disk.queues
    ]
    for page in (*pages, ReadExpired(ALL, ALL)):
        if store.read(page) != disk.read(page):
            return f"the store of {node.name} answers {page} otherwise"
    expected = disk.load()
    for each in fields(StoredState):
        if not each.compare:
            continue
        found, wanted = getattr(state, each.name), getattr(expected, each.name)
        if each.name == "queues":
            # Which positions are free again depends on what the log has and the tables lack.
            found = [queue._replace(last_used=min(queue.last, queue.last_used)) for queue in found]
            # A start that died may have set damaged messages aside, which then no longer ask for a FinalAck.
            hurt = (row for key in disk.hurt if (row := disk.row(key)) is not None and row.final_ack)
            asked = Counter(row.key >> POSITION_BITS for row in hurt)
            counts = {(queue.queue, queue.final_ack_count - asked[queue.queue]): queue for queue in wanted}
            found = [
                queue._replace(final_ack_count=counts[at].final_ack_count)
                if (at := (queue.queue, queue.final_ack_count)) in counts
                else queue
                for queue in found
            ]
        if each.name in UNORDERED:
            found, wanted = sorted(found), sorted(wanted)
        if found != wanted:
            return (
                f"the store of {node.name} has other {each.name} than were committed: {found}, not {wanted}"
            )
    return None


# When something is put on disk


def delivered_once_and_in_order(node: WatchedNode, messages: Iterable[Message]) -> str | None:
    """A message is put into its destination's queue only once, and transactional messages are put there in order."""
    for message in messages:
        kind = message.kind
        if node.name != message.burst.target or kind.undeliverable:
            return f"{message} was delivered at {node.name}"
        if kind.promise is Promise.NOTHING or message.is_unsure:
            continue
        if message.arrivals > 1 and not message.was_forgotten:
            return f"{message} was delivered {message.arrivals} times at {node.name}"
        if kind.promise is Promise.ONCE_IN_ORDER:
            if message.order <= message.stream.arrived:
                return f"{message} was delivered after one that was sent later"
            message.stream.arrived = message.order
    return None


def accepted_is_on_disk(node: WatchedNode, messages: Iterable[Message]) -> str | None:
    """A message is on disk before its application is told that it was accepted. Express messages are exempt."""
    for message in messages:
        if message.identity not in node.stored and message.kind.promise is not Promise.NOTHING:
            return f"{message} was accepted by {node.name} and is not on its disk"
    return None


def handed_out_is_on_disk(node: WatchedNode, consumer: Consumer, messages: Iterable[Message]) -> str | None:
    """A message is on disk before a consumer gets it. Without a transaction, its removal is on disk as well."""
    for message in messages:
        if message.kind.promise is Promise.NOTHING or message.is_unsure:
            continue
        if message.identity not in node.stored:
            return f"{node.name} hands out {message}, which is not on its disk"
        if not consumer.transactional and not message.receipts:
            return f"{node.name} hands out {message} for good, which is still in its queue on disk"
    return None


def received_once(ledger: Ledger, node: WatchedNode, messages: Iterable[Message]) -> str | None:
    """A message is received for good only once, by one consumer, and only if it had not already ended."""
    for message in messages:
        if message.kind.promise is Promise.NOTHING or message.is_unsure:
            continue
        if message.receipts > (message.arrivals if message.was_forgotten else 1):
            return f"{message} was received {message.receipts} times at {node.name}"
        # A copy of a message refused while its queue was deleted may come when the queue is there again.
        classes = {message_class for _, message_class in message.letters} - {DELETED, BAD_DST_Q}
        if message.in_doubt:
            classes -= {MessageClass.NACK_REACH_QUEUE_TIMEOUT, MessageClass.NACK_BAD_ENCRYPTION}
        # A copy of a message that was set aside was on its way, and found its neighbour mended.
        if message.body in ledger.refused:
            classes -= SET_ASIDE
        if (classes or message.gone) and message.kind.transactional:
            return f"{message} was received at {node.name}, and had ended before"
    return None


def endings_have_reasons(
    ledger: Ledger, node: WatchedNode, message: Message, message_class: int | None
) -> str | None:
    """A message that is not received ends once, for a reason that its kind or its world allows.

    It does not end before its time.

    message_class: its class in a dead-letter queue; None if it left its destination's queue.
    """
    if message.is_unsure or message.was_hurt:
        return None
    allowed = ledger.endings_of(message)
    if message_class is None:
        if not allowed:
            return f"{message} left its queue at {node.name} and nobody received it"
        return None
    if message_class == MessageClass.NACK_BAD_ENCRYPTION and ledger.may_not_be_encrypted(node, message):
        if not message.kind.dead_lettered:
            return f"{message} could not be encrypted, and is a dead letter unasked"
    elif message_class not in allowed:
        return f"{message} is a dead letter of class {message_class:#06x}, for which there is no reason"
    if message.kind.transactional and [name for name, _ in message.letters].count(message.burst.source) > 1:
        return f"{message} is a dead letter twice where it was sent"
    if message.kind.transactional and message.body not in ledger.refused:
        # While the source is told that there was no queue, a copy may come to one made meanwhile.
        could_arrive = message_class in (DELETED, BAD_DST_Q) or is_in_doubt(node, message, message_class)
        if (message.receipts and not could_arrive) or len(message.letters) > 1:
            return f"{message} is a dead letter at {node.name}, and was received or is one already"
        if node.name != message.burst.source:
            return f"{message} is a dead letter at {node.name}, and not where it was sent"
    return _over_too_soon(ledger, node, message, message_class)


def letters_lie_where_they_were_chosen(node: WatchedNode, message: Message, queue: str) -> str | None:
    """A dead letter is in the queue that its source chose, if the message ended at its source.

    Otherwise, it is in the system's queue. There are two exceptions. A message without a transaction may have left its
    source, come back in a circle, and ended there like a message in transit. The chosen queue is then unknown, because
    it does not travel with the message. The dead letter of a message that the source's disk has lost is in the system's
    queue.
    """
    kind, burst = message.kind, message.burst
    systems = SystemQueue.DEADXACT if kind.transactional else SystemQueue.DEADLETTER
    expected = {str(systems)}
    if burst.chooses and node.name == burst.source:
        came_back = not kind.transactional and message.identity in node.left
        expected = (
            {CHOSEN[kind.transactional].name, *expected} if came_back else {CHOSEN[kind.transactional].name}
        )
    if message.was_hurt:
        expected |= {str(SystemQueue.DEADXACT), str(SystemQueue.DEADLETTER)}
    if queue in expected:
        return None
    return f"{message} is a dead letter in {queue} of {node.name}, and is to be in {' or '.join(sorted(expected))}"


def what_is_sent_names_no_queue(node: WatchedNode, message: Message, packet: bytes) -> str | None:
    """The name of the queue for a message's dead letter stays at the source, and does not leave with the message."""
    name = path_name_in(decode_message(packet).trailing)
    return f"{node.name} sends {message} with {name} behind it" if name else None


def _over_too_soon(ledger: Ledger, node: WatchedNode, message: Message, message_class: int) -> str | None:
    deadline_s = ledger.reach_deadline_s(message)
    if message_class in LATE and (deadline_s is None or ledger.latest_utc_s(node) <= deadline_s):
        return f"{message} is over by class {message_class:#06x}, and no clock says so"
    return None


def intermediates_keep_no_sequences(node: WatchedNode, writes: Writes) -> str | None:
    """A node that is neither source nor destination of transactional messages stores nothing about their sequences."""
    if node.has_sequences:
        return None
    kinds = {queue.kind for queue in writes.queues} & SEQUENCE_KINDS
    if kinds or writes.outgoing or writes.incoming:
        return f"{node.name} passes messages on, and keeps {', '.join(sorted(kinds)) or 'a sequence'} of them"
    return None


def final_acks_tell_the_truth(
    ledger: Ledger, node: WatchedNode, message: Message, message_class: int
) -> str | None:
    """A FinalAck says that an application has received a message for good, or why no application ever will.  [MS-MQQB]
    3.1.7.2.2

    A FinalAck from a node on the way says that a copy ended there. The node cannot know about other copies, which may
    have arrived. The source's decision is checked when the message becomes a dead letter, and when all is at rest.
    """
    if message.is_unsure:
        return None
    if message_class == MessageClass.ACK_RECEIVE:
        is_true = message.receipts or message.was_hurt
        return None if is_true else f"{node.name} says that {message} was received, and it was not"
    ended = {MessageClass.NACK_HOP_COUNT_EXCEEDED}
    if node.settings.follows_figures:
        ended.add(MessageClass.NACK_REACH_QUEUE_TIMEOUT)
    is_a_copys = node.name != message.burst.target and message_class in ended
    (message.lost_copies if is_a_copys else message.refusals).append(message_class)
    if message.was_hurt:  # A copy that had left before may be refused, and its place counts as taken.
        return None
    if message.receipts and not is_a_copys:
        return f"{node.name} says that {message} ended with {message_class:#06x}, and it was received"
    if message_class not in ledger.endings_of(message):
        return f"{node.name} refuses {message} with class {message_class:#06x}, for which there is no reason"
    return _over_too_soon(ledger, node, message, message_class)


def queues_stay_as_they_were_left(node: WatchedNode, there: Collection[str]) -> str | None:
    """When a node starts, it has all its queues except those that, as far as the operators know, are deleted.

    A deleted queue that an operator made again is not among these exceptions.
    """
    for queue in node.queues:
        if (queue.name in there) != node.queues_left.get(queue.name, True):
            return (
                f"{node.name} was left {'without' if queue.name in there else 'with'} its queue {queue.name}"
            )
    return None


def turned_away_only_when_full(node: WatchedNode, message: Message, fresh: Mapping[str, int]) -> str | None:
    """A message is refused because of a queue's quota only if the queue was full enough at some time in this batch.

    fresh: the number of bytes that the batch puts into each queue. The messages that it removes are still on the disk.
    """
    for queue in node.queues:
        if queue.identifier == message.kind.queue and queue.quota_bytes is not None:
            most_bytes = node.disk.size_of(QueueKind.LOCAL, queue.name) + fresh.get(queue.name, 0)
            size_bytes = message.size_bytes + SESSION_KEY_BYTES * message.burst.encrypted
            if most_bytes + size_bytes <= queue.quota_bytes:
                return (
                    f"{node.name} has no room for {message}, {size_bytes:,} bytes, and at most "
                    f"{most_bytes:,} of {queue.quota_bytes:,} bytes were taken in {queue.name}"
                )
    return None


def replies_tell_the_truth(node: WatchedNode, message: Message | None, message_class: int) -> str | None:
    """An administration acknowledgment reports the true outcome of a message.  [MS-MQQB] 3.1.7.15

    The source hears of each outcome only once. Reports about copies, or about messages for which nothing is promised,
    may be repeated.
    """
    if message is None:
        return f"{node.name} hears of a message that nobody sent"
    if message.is_unsure:
        return None
    is_a_copys = message.passed_again and message_class in SET_ASIDE
    if message_class in message.replies and message.kind.promise is not Promise.NOTHING and not is_a_copys:
        return f"{node.name} hears twice that {message} ended with {message_class:#06x}"
    if message_class == MessageClass.ACK_REACH_QUEUE and not message.arrivals:
        return f"{node.name} hears that {message} arrived, and it has not"
    if message_class == MessageClass.ACK_RECEIVE and not message.receipts:
        return f"{node.name} hears that {message} was received, and it was not"
    return None


# When a node starts


def ways_are_the_cheapest(name: str, goal: str, hops: Sequence[str], steps: Sequence[str]) -> str | None:
    """The next hops of a site gate are those on all the cheapest routes.  [MS-MQBR] 3.1.5.3

    steps: the neighbours on these routes.
    """
    if set(hops) != set(steps):
        return f"from {name} to {goal} a router goes by {' or '.join(hops)}, and it is cheapest by {' or '.join(steps)}"
    return None


# When a packet leaves


def closed_after_what_was_sent(node: WatchedNode, send: SendBytes) -> str | None:
    """A node sends only on connections that it has not closed yet.

    Before it closes a connection, it can tell the peer why.
    """
    if send.session not in node.ends:
        return (
            f"{node.name} sends {len(send.chunks)} packets on connection {send.session}, which it has closed"
        )
    return None


def acknowledged_is_on_disk(
    ledger: Ledger, node: WatchedNode, end: End, header: SessionGlimpse
) -> str | None:
    """A session acknowledgment reports messages as saved only if they were on disk or have ended.  [MS-MQQB] 3.1.5.8.7

    A transactional message that arrived too early to be held is acknowledged and dropped. Its sender keeps it until the
    OrderAck, which another invariant checks.
    """
    flags = header.saved_flags
    if not flags:
        return None
    saved = header.saved_from + flags.bit_length() - 1
    last = end.saved_through = end.saved_through + ahead(saved, end.saved_through)
    first = last - flags.bit_length() + 1
    unsaid = []
    while end.expected and end.expected[0][0] <= last:
        number, name = end.expected.popleft()
        if number >= first and not flags >> number - first & 1:
            unsaid.append((number, name))
            continue
        message = ledger.messages.get(name)
        if message is None or message.is_unsure or name in node.stored:
            continue
        here = message.burst.target == node.name
        if (here and message.kind.transactional) or ledger.endings_of(message):
            continue
        return f"{node.name} tells {end.peer.host.name} that it has saved {message}, which it has not"
    end.expected.extendleft(reversed(unsaid))
    if last > end.recoverable_arrived:
        return f"{node.name} tells {end.peer.host.name} that it has saved message {last}, which never came"
    return None


def strangers_get_no_mail(end: End, mail_for: str | None, glimpses: Iterable[Glimpse]) -> str | None:
    """No message for a node is sent on a stranger's session, except acknowledgments of the stranger's own messages.

    Args:
        end: the stranger's end of the connection.
        mail_for: the node whose GUID the stranger presents; None if the stranger also has that node's address, and so
            passes for the node.
    """
    if mail_for is None:
        return None
    own = guid_of(STRANGER) if mail_for == STRANGER else None
    mail = [one for one in glimpses if one.is_user and not (one.manager == own and acknowledges(one.packet))]
    if mail:
        return f"{end.peer.host.name} sends {len(mail)} messages for {mail_for} to a stranger"
    return None


def order_acks_leave_no_gap(
    ledger: Ledger, node: WatchedNode, source: bytes, body: OrderAckBody
) -> str | None:
    """An OrderAck covers only messages that are in their queue on disk or have ended.  [MS-MQQB] 3.1.1.6.2"""
    identifier, number = body.tx_sequence_id, body.tx_sequence_number
    found = list(ledger.sequences_named(source, identifier.time_stamp, identifier.ordinal))
    if not found:
        return f"{node.name} acknowledges {identifier}, which nobody has"
    if len(found) > 1:
        return None
    [sequence] = found
    if number > sequence.numbers[-1]:
        return f"{node.name} acknowledges number {number} of {identifier}, which was never sent"
    while sequence.through < len(sequence.numbers) and sequence.numbers[sequence.through] <= number:
        message = sequence.messages[sequence.through]
        if not ledger.has_ended(node, message):
            return f"{node.name} acknowledges all up to number {number}, and {message} has not arrived"
        sequence.through += 1
    return None


def paused_queues_send_nothing(ledger: Ledger, node: WatchedNode, glimpses: Iterable[Glimpse]) -> str | None:
    """While an operator has paused a queue, no message leaves it, whether for the first time or again.  3.1.7.13"""
    for glimpse in glimpses:
        if not glimpse.is_user or acknowledges(glimpse.packet):
            continue
        name = guid_text(Guid(glimpse.manager))
        message = ledger.messages.get(glimpse.identity)
        is_own = glimpse.identity.startswith(node.guid) and not glimpse.hop_count
        if message is not None and is_own and message.kind.transactional:
            name = destination(message.burst.target, message.kind).name
        if name in node.paused:
            return f"{node.name} has paused {name}, and sends {message or 'a message'} from there"
    return None


def secrets_stay_secret(node: WatchedNode, glimpses: Iterable[Glimpse]) -> str | None:
    """If a body has to be encrypted, no part of it is sent in the clear in any packet.  3.1.7.1.5"""
    for glimpse in glimpses:
        if SECRET in glimpse.packet:
            return f"{node.name} sends in clear what is to be encrypted: message {glimpse.identity.hex()}"
    return None


def encrypted_with_the_latest_key(
    ledger: Ledger, node: WatchedNode, message: Message, packet: bytes
) -> str | None:
    """When a message leaves its source, its session key is encrypted with the latest public key.

    This is the latest key of the destination that the source knows.
    """
    security = decode_message(packet).security
    assert security is not None, "it is to be encrypted"
    target, known = message.burst.target, ledger.keys_known[node.name]
    blob = simple_blob.decode(security.encryption_key)
    found = ledger.session_keys.get(blob.encrypted_key[::-1])
    if found is None or found != (target, known.get(target)):
        return f"{node.name} sends {message} with a key for {found}, and knows key {known.get(target)} of {target}"
    return None


def given_up_for_a_reason(ledger: Ledger, node: WatchedNode, message: Message | None) -> str | None:
    """A node gives up encrypting a message only for a reason.

    The message has to be encrypted, and the key for it was withdrawn.  3.1.7.1.5.1
    """
    if message is None or ledger.may_not_be_encrypted(node, message):
        return None
    return f"{node.name} cannot encrypt {message}, and has the key for it"


def gaps_are_bridged(
    ledger: Ledger, node: WatchedNode, glimpse: Glimpse, passed: Iterable[Message], named: Message | None
) -> str | None:
    """A message names as its predecessor the last earlier message that its destination gets.  3.1.7.1.3

    It skips no message that may still arrive.

    passed: the messages of its sequence that are between the named predecessor and itself.
    named: the named predecessor; None if the message is the first of its sequence.
    """
    message = ledger.messages[glimpse.identity]
    for other in passed:
        if not ledger.has_ended(node, other):
            return f"{node.name} sends {message} as if {other} were not before it, which has not ended"
    is_letter = named is not None and (
        named.was_not_encrypted or any(name == node.name for name, _ in named.letters)
    )
    if named is not None and is_letter and not (named.arrivals or named.refusals or named.is_unsure):
        return f"{node.name} sends {message} behind {named}, which is a dead letter and never comes"
    return None


def windows_are_respected(node: WatchedNode, end: End) -> str | None:
    """The number of unacknowledged UserMessages never exceeds the smaller of the two windows.  [MS-MQQB] 3.1.7.1"""
    window = min(end.window, node.settings.window_size)
    if end.sent - end.acked > window:
        return (
            f"{node.name} has {end.sent - end.acked} messages out to {end.peer.host.name}, "
            f"the window is {window}"
        )
    return None


def windows_are_told_as_they_are(node: WatchedNode, end: End, header: SessionGlimpse) -> str | None:
    """A node announces its true window, or 1 while it has paused something.  [MS-MQQB] 3.1.7.13"""
    window = header.window_size
    if window != node.settings.window_size and not (window == 1 and node.may_say_one):
        return f"{node.name} tells {end.peer.host.name} of a window of {window}, and it is {node.settings.window_size}"
    return None


def higher_priorities_leave_first(node: WatchedNode, message: Message) -> str | None:
    """A message without a transaction leaves a node only if none with a higher priority waits there.

    Only messages for the same queue count. While a node finds out which message a neighbour refuses, each message
    leaves when it is its turn to be tried.
    """
    for other in message.stream.unsent:
        if other.burst.priority > message.burst.priority and not (other.deleted or other.is_unsure):
            if node.running.inspect().neighbours.has_suspects:
                return None
            return (
                f"{message}, priority {message.burst.priority}, leaves {node.name} before {other}, "
                f"{other.burst.priority}"
            )
    return None


def forwarded_as_it_came(node: WatchedNode, glimpses: Iterable[Glimpse]) -> str | None:
    """An intermediate node passes a packet on unchanged, except for the hop count, which grows by one.  [MS-MQQB]
    3.1.1.6.2, 3.1.5.8.2
    """
    for glimpse in glimpses:
        before = node.came.get((glimpse.identity, glimpse.body))
        if before is None:
            return (
                f"{node.name} passes on message {glimpse.identity.hex()}, which did not come to it like this"
            )
        if glimpse.hop_count - 1 not in before:
            counts = " or ".join(map(str, sorted(before)))
            return f"{node.name} raises the hop count from {counts} to {glimpse.hop_count}"
    return None


def passed_on_once(node: WatchedNode, name: bytes, hop_count: int) -> str | None:
    """In one life, a node passes a message on only once, unless it arrives again with a higher hop count.

    A message that arrives again with the same hop count is a duplicate, even if it is not for this node.  [MS-MQQB]
    3.1.5.8.1
    """
    life, highest = node.passed.get(name, (-1, 0))
    if life == node.committed_in and hop_count <= highest and not node.may_have_forgotten(name):
        return (
            f"{node.name} takes message {name.hex()} to pass it on with hop count {hop_count}, and has passed "
            f"it on with {highest}"
        )
    return None


# When an application receives, and when a node writes its log


def handed_out_as_it_was_sent(
    node: WatchedNode, handed: Iterable[tuple[Message | None, bytes]]
) -> str | None:
    """A consumer gets only packets that were sent, byte for byte, and gets them before they expire.

    handed: the packets, each with the application's message that it carries.
    """
    now_s = node.moment().utc_s
    for message, packet in handed:
        if message is None:
            if REPLIES in node.queues:
                continue
            return f"{node.name} hands out a message that nobody sent"
        if message.body not in packet:
            return f"{node.name} hands out {message} with another body"
        deadline_s = receive_deadline_s(packet)
        if deadline_s is not None and now_s > deadline_s:
            return f"{node.name} hands out {message}, whose time is over"
    return None


def proofs_are_true(node: WatchedNode, message: Message, packet: bytes) -> str | None:
    """In its queue, a message is not encrypted, and is marked as verified only if it was signed.  3.1.5.8.3"""
    security = decode_message(packet).security
    burst = message.burst
    kind = (SIGNED_30 if burst.also else SIGNED_20) if burst.signed else 0
    said = (False, False, 0)
    if security is not None:
        said = security.body_encrypted, security.authenticated, security.signature_type
    if said != (False, burst.signed, kind):
        return (
            f"{node.name} hands out {message} with EB, AU and AS {said}, and its signature is of kind {kind}"
        )
    return None


def delivery_counts_are_true(node: WatchedNode, message: Message) -> str | None:
    """The delivery count of a message is the true number of times that it was handed out.

    After a crash, the number is unknown and marked as such. A message without a recorded `life` was put into its queue
    in this batch, or is only in memory.
    """
    if message.kind.promise is Promise.NOTHING or message.is_unsure:
        return None
    if node.may_have_forgotten(message.identity):
        return None
    known = message.life is None or message.life == node.life
    true_count = message.given_back + 1 if known else UNKNOWN_COUNT
    if message.delivery_count != true_count:
        return f"{node.name} hands out {message} with count {message.delivery_count}, and it is {true_count}"
    return None


def handed_out_in_order(node: WatchedNode, messages: Sequence[Message]) -> str | None:
    """Within a priority, a message is handed out only if no earlier message is waiting in the queue.

    A message that a consumer gives back returns to its place, whatever the order of the consumers. A message that
    arrived again after it was forgotten is in the queue twice, and each copy has its own place.  [MS-MQDMPR] 3.1.1.2
    """
    last: dict[int, Message] = {}
    for message in messages:
        if message.was_forgotten or message.is_unsure:
            continue
        before = last.setdefault(_lane_of(message), message)
        if message.position > before.position:
            last[_lane_of(message)] = message
    for other in messages[0].stream.waiting if messages else ():
        message = last.get(_lane_of(other), other)
        if other.position < message.position:
            return f"{node.name} hands out {message}, and {other} waits before it"
    return None


def _lane_of(message: Message) -> int:
    return 0 if message.kind.transactional else message.burst.priority


def higher_priorities_go_first(message: Message, waiting: Iterable[Message]) -> str | None:
    """A message that is not transactional is handed out only if none with a higher priority waits in its queue.

    [MS-MQMQ] 2.2.19.1
    """
    for other in () if message.is_unsure else waiting:
        if other.burst.priority > message.burst.priority and not other.kind.transactional:
            return f"{message}, priority {message.burst.priority}, overtakes {other}, {other.burst.priority}"
    return None


def one_request_at_a_time(number: int, consumer: Consumer, *, is_refused: bool) -> str | None:
    """A consumer's request is refused if the consumer asks again before it has an answer, or before it has settled."""
    return (
        None if is_refused else f"consumer {number} of {consumer.node} may ask {consumer.queue} twice at once"
    )


def refusals_are_explained(node: WatchedNode, note: Note) -> str | None:
    """A session is closed only for reasons that a rule-abiding peer can cause.

    The note about a closed session gives the reason, as does the note about a refused message.
    """
    if note.name == "session-closed":
        section, reason = str(note.facts["section"]), note.facts["reason"]
        if not section or not reason:
            return f"{node.name} closed a session and does not say why"
        is_strange = note.facts["session"] in node.strange
        if (
            section.startswith(BROKEN_RULES)
            and section != NO_ROOM
            and reason != REFUSED
            and note.facts["peer"] in node.lines
            and not is_strange
        ):
            return f"{node.name} closed its session with {note.facts['peer']} by {section}: {reason}"
    elif note.name == "message-refused" and not note.facts.get("reason"):
        return f"{node.name} refused a message and does not say why"
    return None


def refused_for_a_reason(ledger: Ledger, node: WatchedNode, message: Message, name: str) -> str | None:
    """A message without a transaction is refused for a reason that its kind or world allows. Its source is not told.

    name: the name of the class in the note.
    """
    message_class = MessageClass[name].value
    message.refusals.append(message_class)
    if message_class in ledger.endings_of(message):
        return None
    return f"{node.name} refuses {message} with class {message_class:#06x}, for which there is no reason"


# Now and then


def memory_is_bounded(node: WatchedNode) -> str | None:
    """However many messages are waiting, a node has only a window of each queue in memory.

    Everything else that it keeps in memory, such as held messages and remembered identifiers, is limited as well.
    """
    core, settings = node.core, node.settings
    if core is None:
        return None
    inner = core.inspect()
    slack = settings.window_size + node.consumer_limit + HELD_BACK
    # Messages that a neighbour may refuse stay in memory while others are tried, and so do others that it refuses.
    longest = 2 + (HELD_BACK if node.suspected else 0)
    sent_bytes = settings.resident_bytes + settings.in_flight_bytes + longest * node.largest_bytes
    for outgoing in inner.outbound if node.has_sparse_neighbours else ():
        if sum(len(message.packet) for message in outgoing.window) > sent_bytes:
            return f"{node.name} has more of {outgoing.name} in memory than {sent_bytes:,} bytes"
    for name, count in residents(core):
        # A neighbour that saves less than it acknowledges gives back more than a window; then bytes are the limit.
        if node.has_sparse_neighbours and name in {outgoing.name for outgoing in inner.outbound}:
            continue
        if count > settings.resident_messages + slack:
            return (
                f"{node.name} has {count} messages of {name} in memory, {settings.resident_messages} may be"
            )
    for sequence in inner.incoming:
        if sequence.held_count > settings.held_messages_limit:
            return f"{node.name} holds {sequence.held_count} messages, {settings.held_messages_limit} may be"
    if (held_bytes := sum(one.held_bytes for one in inner.incoming)) > settings.quota_bytes // 2:
        return f"{node.name} holds {held_bytes:,} bytes behind gaps, half of {settings.quota_bytes:,} may be"
    if (senders := inner.arrivals.in_sequence.known_count) > settings.maximum_sequences:
        return f"{node.name} knows {senders} senders, {settings.maximum_sequences} may be"
    if (places := len(inner.arrivals.in_sequence.places)) > settings.strangers_sequences:
        return f"{node.name} has {places} places of strangers, {settings.strangers_sequences} may be"
    begun_bytes = unfinished(inner.transports.sessions.values()).total()
    if begun_bytes > settings.strangers_unfinished_bytes:
        return f"{node.name} keeps {begun_bytes:,} bytes that strangers have begun"
    known, strangers = map(len, inner.histories)
    if known > settings.remove_duplicate_size or strangers > settings.strangers_remembered:
        return f"{node.name} remembers {known} identifiers, and {strangers} of strangers"
    return None


def full_disks_end_no_node(node: WatchedNode, error: Exception) -> str:
    """A full disk does not keep a node from starting or continuing, unless its store must begin a new life."""
    return f"{node.name} ends: {error}"


def reserves_last(node: WatchedNode, error: Exception) -> str:
    """As long as disks are full in this world, the reserve is enough for everything that frees space."""
    return f"{node.name} waits for room: {error}"


def full_disks_take_nothing_new(node: WatchedNode, room_bytes: int | None, *, needs_disk: bool) -> str | None:
    """While the reserve is in use, messages that have to be on disk are not accepted from applications."""
    if room_bytes == 0 and needs_disk:
        return f"{node.name} takes messages though its store has no room for them"
    return None


def quotas_are_kept(node: WatchedNode) -> str | None:
    """No queue has more data on disk than its quota."""
    for queue in node.queues:
        if queue.quota_bytes is not None:
            size_bytes = node.disk.size_of(QueueKind.LOCAL, queue.name)
            if size_bytes > queue.quota_bytes:
                return f"{node.name} has {size_bytes:,} bytes in {queue.name}, {queue.quota_bytes:,} may be"
    return None


def residents(core: QueueManager) -> Iterator[tuple[str, int]]:
    """Yield each queue of a core with the number of its messages that are in memory."""
    inner = core.inspect()
    for outgoing in inner.outbound:
        yield outgoing.name, len(outgoing.window)
    for local in inner.queues:
        if not is_systems(local.name):
            for lane in local.lanes:
                yield local.name, len(lane.window)


def is_systems(name: str) -> bool:
    """Return whether a local queue is a journal or a dead-letter queue, either the system's or an application's."""
    return name in SYSTEM_QUEUES or name.endswith(JOURNAL_SUFFIX)
