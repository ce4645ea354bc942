"""Explains why a message waits: what is stuck, since when, why, what happens next, and what to do.

Nodes answer with values (`mqproto.manager.status`, `mqproto.manager.whereabouts`). This module puts them into words,
for the person who is called at night.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from mqproto.base.foreign import quoted
from mqproto.base.words import counted, duration
from mqproto.manager.status import IncomingStatus, LocalStatus, NodeStatus, OutgoingStatus
from mqproto.manager.whereabouts import MessageStatus, Spot
from mqproto.neighbours.peerstatus import FloodStatus
from mqproto.queues.localqueue import JOURNAL_SUFFIX, SystemQueue
from mqproto.simulator.node.control import Explanation, QueueReceiver
from mqproto.simulator.topology import Topology
from mqproto.simulator.topology.directory import known_as
from mqproto.wire import MessageClass
from mqproto.wire.classes import REFUSALS

if TYPE_CHECKING:
    from mqproto.simulator.client.live import Away

NEARLY_FULL: Final = 0.75
"""A queue that uses at least this share of its quota is reported as nearly full."""
SOON_S: Final = 86_400
"""A store is reported if it will run out of room within this many seconds."""
RESENDS_BEFORE_DOUBT: Final = 2
"""The number of resends without an OrderAck after which the possible reasons are explained."""
RECEIVERS_SHOWN: Final = 5
"""The maximum number of a queue's receivers that are named."""


class Explainer:
    """Puts the answers of nodes about a subject into words.

    Args:
        topology: resolves GUIDs and format names.
        start: returns the command that starts the node of a given name.
        options: the options that a suggested command needs to find the nodes, such as ` --directory stores`; or empty.
        in_full: whether to mention all messages of a queue; otherwise only those in the nodes' answers.
    """

    def __init__(
        self, topology: Topology, start: Callable[[str], str], options: str = "", *, in_full: bool = True
    ) -> None:
        self._topology = topology
        self._start = start
        self._options = options
        self._in_full = in_full

    def lines(self, found: Mapping[str, Explanation | Away]) -> Iterator[str]:
        """Yield the lines for all answers, which are keyed by the name of their node."""
        from mqproto.simulator.client.live import Away

        for name, explanation in found.items():
            if isinstance(explanation, Away):
                advice = "" if explanation.is_running is None else f"; start it with {self._start(name)}"
                yield f"{name} is {explanation}{advice}"
            else:
                yield from self._node(name, explanation)

    def _node(self, name: str, explanation: Explanation) -> Iterator[str]:
        yield from self._queues(name, explanation)
        yield from self._peers(name, explanation.status)
        yield from self._disk(name, explanation.status)

    def _queues(self, name: str, explanation: Explanation) -> Iterator[str]:
        """Describe each queue in which messages wait, and each queue of the node itself."""
        status = explanation.status
        for outgoing in status.outgoing:
            if outgoing.waiting or outgoing.unread or outgoing.state == "on hold":
                messages = [one for one in explanation.messages if one.queue == outgoing.name]
                yield f"{name} to {self._called(outgoing)}: {_outgoing_summary(outgoing, messages, status)}"
                yield from (f"  {line}" for line in self._way(name, outgoing, messages, status))
                yield from self._messages(messages, outgoing.waiting + outgoing.unread, status)
        for local in status.local:
            messages = [one for one in explanation.messages if one.queue == local.name]
            yield f"{name}\\{local.name}: {_local_summary(local)}"
            yield from (f"  {line}" for line in self._queue(name, local, messages, status))
            yield from (f"  {line}" for line in _receivers(local, explanation))
            yield from self._messages(messages, local.waiting + local.held, status)

    def _peers(self, name: str, status: NodeStatus) -> Iterator[str]:
        """Report anything unusual about the peers that send to the node."""
        for one in status.duplicates_of:
            if one.lately:
                sender = self._manager(one.source)
                yield (
                    f"{name} has dropped {one.lately:,} of the last {one.of:,} messages of {sender}, as others with"
                    f" their identifiers came before: was the store of {sender} put back, or does another send in its"
                    " name?"
                )
        for met in status.elsewhere:
            yield (
                f"queue manager {met.manager}{f' ({met.name})' * bool(met.name)} was met at {met.address}, and by"
                f" {name} at {met.other} as well: {met.verdict or 'the address before is being asked'}"
            )
        yield from (self._flood(name, flood) for flood in status.floods)
        if status.unfinished_bytes:
            yield (
                f"{name} has {status.unfinished_bytes:,} bytes of packets that strangers have begun: it waits for the "
                f"rest, and ends them in time; `mqproto peers {name}{self._options}` says who is there"
            )
        if status.unlisted:
            yield (
                f"{name} has {status.unlisted:,} more outgoing queues, with {_messages(status.unlisted_waiting)}; "
                f"`mqproto peers {name}{self._options}` says who sends much"
            )

    def _disk(self, name: str, status: NodeStatus) -> Iterator[str]:
        """Report what is wrong with the node's store, and when the store will run out of room."""
        for file in status.in_doubt:
            yield (
                f"{name} began a life on a store that was put back, and what waited then may have been delivered"
                f" before: {file} lists it; remove that file when you have looked"
            )
        if status.damaged:
            yield (
                f"the store of {name} had {_messages(status.damaged)} not as written, since it started: their rows are"
                f" in its table quarantine, `message-damaged` in the log says what became of each, and the dead-letter"
                " queues have word of what is lost: see to the disk"
            )
        if status.disk_is_full:
            yield (
                f"the disk of {name} is full: it takes no message that has to be on disk, and delivers and sends what "
                "it has; make room there, or receive or purge"
            )
        elif status.room_lasts_s is not None and status.room_lasts_s < SOON_S:
            yield (
                f"{name} has room for another {duration(status.room_lasts_s)} if it goes on to grow as it does: see to "
                "what waits there, or make room"
            )
        if _part(status.stored_bytes, status.quota_bytes) >= NEARLY_FULL:
            yield (
                f"{name} is nearly full: {status.stored_bytes:,} of {status.quota_bytes:,} bytes (quota_bytes); beyond "
                "that it takes no message from anybody"
            )

    def _flood(self, name: str, flood: FloodStatus) -> str:
        """Name the peer that does far more than the others, and say how to stop it."""
        command = f"`mqproto peers block {flood.host} {name}"
        nodes = " and ".join(map(self._manager, flood.managers))
        then = f"{command}{self._options}` has it answered no more"
        if nodes:
            then = f"{nodes} may come from there too: {command} --force{self._options}` has none of them answered"
        return (
            f"{flood.host} floods {name}: in the last minute it opened {flood.opened:,} connections, sent "
            f"{_messages(flood.messages)} and {flood.size_bytes:,} bytes, and was refused {flood.refused:,} times; "
            f"{then}"
        )

    # Outgoing queues

    def _called(self, queue: OutgoingStatus) -> str:
        r"""Return the name that people use for an outgoing queue: `destination\orders`."""
        return known_as(self._topology, queue.name)

    def _way(
        self, name: str, queue: OutgoingStatus, messages: list[MessageStatus], status: NodeStatus
    ) -> Iterator[str]:
        """Say why the messages of an outgoing queue have not arrived, and what will happen next."""
        hop = self._next_hop(queue)
        match queue.state:
            case "on hold":
                command = self._command("resume", self._called(queue), f" --node {name}")
                yield f"paused by an operator: go on with {command}"
            case "no route":
                yield (
                    "no way leads there from here: add a link or a route to the topology, or say where it is: mqproto"
                    " peers add"
                )
            case "connected":
                later = queue.next_hop in queue.next_hops[1:]
                yield f"connected to {hop}" + (
                    f", as {_tried(queue, queue.next_hops[0], status)}" if later else ""
                )
            case "connecting":
                began_s = next((one.time_s for one in queue.history if not one.reason), status.utc_s)
                yield (
                    f"connecting to {hop}"
                    + f" for {duration(status.utc_s - began_s)}" * (began_s < status.utc_s)
                    + f", after: {queue.last_failure}" * bool(queue.last_failure)
                )
            case _ if queue.is_waited_for:
                yield (
                    f"waits until {hop} calls: it was met when it called, and is not called from here; [strangers] call"
                    " says who may be"
                )
            case _:
                reason = f": {queue.last_failure}" * bool(queue.last_failure)
                then = f"; next try {_in(queue.retry_at_ms, status)}" if queue.retry_at_ms is not None else ""
                since_s = queue.failing_since_s
                since = f" for {duration(status.utc_s - since_s)}" if since_s is not None else ""
                yield f"not connected to {hop}{since}{reason}{then}"
                yield from (
                    _tried(queue, other, status) for other in queue.next_hops if other != queue.next_hop
                )
        if queue.suspected:
            yield (
                f"{hop} may refuse {', '.join(queue.suspected)}: its sessions end before it has acknowledged "
                f"{_it(len(queue.suspected))}; what comes behind goes on meanwhile"
            )
        if queue.in_flight:
            yield f"{_messages(queue.in_flight)} sent to {hop}, which has not acknowledged {_it(queue.in_flight)}"
        if queue.unsent and queue.state == "connected":
            yield f"{_messages(queue.unsent)} to be sent when {hop} has acknowledged those before"
        if queue.unacked:
            yield self._order_ack(queue, messages, status)
        if queue.unread:
            yield f"{_messages(queue.unread)} arrived and not received yet: the FinalAck is awaited"

    def _order_ack(self, queue: OutgoingStatus, messages: list[MessageStatus], status: NodeStatus) -> str:
        """Say which acknowledgment a sequence waits for.  [MS-MQDMPR] 3.1.1.4"""
        destination = self._called(queue).partition("\\")[0]
        first, last = queue.first_unacked, queue.last_unacked
        numbers = f"number {first:,}" if first == last else f"numbers {first:,} to {last:,}"
        text = f"{numbers}: no OrderAck from {destination}"
        sent = [one.sent_s for one in messages if one.spot is not Spot.AWAITING_FINAL_ACK]
        if sent:
            text += f" for {duration(status.utc_s - max(min(sent), queue.last_ack_s or 0))}"
        if queue.state == "on hold":
            return f"{text}; nothing is sent again while the queue is paused"
        if queue.resend_at_ms is None:
            return f"{text}; sent again if none comes once the connection is back"
        interval = duration(queue.resend_interval_ms / 1_000)
        return (
            f"{text}; sent again {_in(queue.resend_at_ms, status)} "
            f"(resend {queue.resend_attempt + 1}, interval {interval})"
            + "; its queue may be missing, not transactional, full, or closed to strangers"
            * (queue.resend_attempt >= RESENDS_BEFORE_DOUBT)
        )

    def _next_hop(self, queue: OutgoingStatus) -> str:
        """Return the next hop: its address, and the name of its node if it is known."""
        name = self._manager(queue.next_manager)
        return f"{name} ({queue.next_hop})" if name else queue.next_hop

    def _manager(self, guid: str) -> str:
        """Return the name of a queue manager's node, or its GUID; empty if unknown."""
        return self._topology.manager_name(guid) or guid

    # Queues of a node

    def _queue(
        self, name: str, queue: LocalStatus, messages: list[MessageStatus], status: NodeStatus
    ) -> Iterator[str]:
        """Say why messages in a local queue have not been received, and what keeps further messages out."""
        place = f"{name}\\{queue.name}"
        if queue.purging:
            yield "it is being emptied"
        if queue.passed_over:
            yield (
                f"{_messages(queue.passed_over)} in the store of {name} that the queue has passed over, which is a "
                f"fault of mqproto, so please report it: they come when {name} is started again"
            )
        if queue.unsettled:
            yield f"{_messages(queue.unsettled)} given to an application that has not settled {_it(queue.unsettled)}"
        elif queue.waiting and not queue.consumers and not is_kept(queue.name):
            yield "no application receives from it"
        if queue.quota_bytes is not None and _part(queue.size_bytes, queue.quota_bytes) >= NEARLY_FULL:
            then = "dropped" if is_kept(queue.name) else "refused"
            yield (
                f"{queue.size_bytes:,} of its quota of {queue.quota_bytes:,} bytes are taken, and what does not fit is "
                f"{then}: receive from it, or {self._command('purge', place)}"
            )
        if queue.waiting and is_kept(queue.name):
            yield f"to send them once more: {self._command('return', place)}"
        elif any(message.is_letter for message in messages):
            yield f"to send its dead letters once more: {self._command('return', place)}"
        for sequence in status.incoming:
            if sequence.queue == queue.name and sequence.held:
                yield self._held(sequence, status)

    def _held(self, sequence: IncomingStatus, status: NodeStatus) -> str:
        """Say why messages are held, and which sender has the missing ones.  [MS-MQDMPR] 3.1.1.5"""
        source = self._manager(sequence.source)
        assert sequence.missing is not None, "something is held"
        first, last = sequence.missing
        missing = f"number {first:,} is" if first == last else f"numbers {first:,} to {last:,} are"
        return (
            f"held: {sequence.held:,} came from {source}, {missing} missing; the last came "
            f"{duration(status.utc_s - sequence.last_access_s)} ago, and {source} sends again what has no OrderAck"
        )

    def _command(self, command: str, queue: str, options: str = "") -> str:
        return f"`mqproto {command} {shlex.quote(queue)}{options}{self._options}`"

    # Messages

    def _messages(self, messages: list[MessageStatus], count: int, status: NodeStatus) -> Iterator[str]:
        """Describe the given messages of a queue and, if wanted, say how many more the queue has.

        count: how many messages the queue has.
        """
        yield from (f"  {self._message(one, status)}" for one in messages)
        rest = count - sum(one.copies for one in messages)
        if self._in_full and messages and rest > 0:
            yield f"  and {rest:,} more"

    def _message(self, message: MessageStatus, status: NodeStatus) -> str:
        if not message.is_readable:
            return f"{identifier(message)}, cannot be read by this node: {self._spot(message, status)}"
        label = f" {quoted(message.label)}" if message.label else ""
        size = counted(message.body_bytes, "byte")
        age = duration(status.utc_s - message.sent_s)
        copies = f", {message.copies:,} copies" * (message.copies > 1)
        return f"{identifier(message)}{label}, {size}, {age} old{copies}: {self._spot(message, status)}"

    def _spot(self, message: MessageStatus, status: NodeStatus) -> str:
        """Return where a message is, and what will end its wait there."""
        destination = known_as(self._topology, message.destination)
        in_queue = message.spot in (Spot.IN_QUEUE, Spot.UNSETTLED)
        if in_queue and (is_kept(message.queue) or message.is_letter):
            return _kept_because(message, destination)
        text = {
            Spot.UNSENT: "to be sent",
            Spot.IN_FLIGHT: "sent, not acknowledged by the next hop",
            Spot.AWAITING_ORDER_ACK: "the next hop has it, awaits its OrderAck",
            Spot.AWAITING_FINAL_ACK: "its destination has it, awaits its FinalAck",
            Spot.HELD: "held behind a gap",
            Spot.IN_QUEUE: "to be received",
            Spot.UNSETTLED: "given to an application, not settled",
        }[message.spot]
        deadline_s = message.receive_by_s if in_queue else message.reach_by_s
        if message.spot is Spot.AWAITING_FINAL_ACK:
            deadline_s = None  # It reached its queue.
        if message.number and not in_queue:
            text = f"number {message.number:,}, {text}"
        if deadline_s is not None:
            left_s = deadline_s - status.utc_s
            text += f"; expires in {duration(left_s)}" if left_s >= 0 else "; its time is over"
        if message.dead_letter_queue:
            text += f"; if it fails, a dead letter in {letter_queue(message)}"
        return text


def _receivers(queue: LocalStatus, explanation: Explanation) -> Iterator[str]:
    """Name the receivers of a queue, first those that have unsettled messages."""
    found = [one for one in explanation.receivers if one.queue == queue.name]
    for one in found[:RECEIVERS_SHOWN]:
        yield _receiver(one, explanation.status.utc_s)
    if len(found) > RECEIVERS_SHOWN:
        yield f"and {len(found) - RECEIVERS_SHOWN:,} more who receive from it"


def _receiver(one: QueueReceiver, now_s: int) -> str:
    user = one.user or ("an application" if one.uid is None else f"user {one.uid}")
    user = f"{one.program} of {user}" if one.program else user
    who = user + (f" (process {one.pid})" if one.pid is not None else "")
    since = f"has received from it for {duration(max(0, now_s - one.since_s))}"
    if one.given_s is None:
        return f"{who} waits for messages, and {since}"
    held = duration(max(0, now_s - one.given_s))
    return f"{who} {since}, and has not settled {_messages(one.messages)} for {held}"


def identifier(message: MessageStatus) -> str:
    """Return a message's identifier, as `mqproto send` prints it."""
    return f"{message.source}\\{message.ordinal}"


def letter_queue(message: MessageStatus) -> str:
    """Return the name of the sender's queue that gets the message if it fails."""
    return message.dead_letter_queue.rpartition("\\")[2]


def is_kept(queue: str) -> bool:
    """Return whether a queue is a journal or a dead-letter queue, which keeps messages that have ended."""
    return queue.endswith(JOURNAL_SUFFIX) or queue in set(SystemQueue)


def _tried(queue: OutgoingStatus, address: str, status: NodeStatus) -> str:
    """Say how the last attempt to connect to the next hop at this address ended."""
    last = next((one for one in reversed(queue.history) if one.address == address), None)
    if last is None:
        return f"{address} was not tried yet"
    return f"{address} failed {duration(status.utc_s - last.time_s)} ago: {last.reason or last.status}"


def _kept_because(message: MessageStatus, destination: str) -> str:
    number = message.message_class
    if number == MessageClass.NORMAL:
        return f"a copy of a message to {destination}"
    if number not in REFUSALS:
        return f"a dead letter to {destination}, class {number:#06x}"
    why = f"{REFUSALS[MessageClass(number)]} ({MessageClass(number).name})"
    doubt = ""
    if message.in_doubt:
        doubt = (
            ", in doubt: it was sent and may have arrived, and leaves this queue if its destination says so"
        )
    elif message.transactional and number == MessageClass.NACK_HOP_COUNT_EXCEEDED:
        doubt = ", and another copy of it may have arrived: its sender was told"
    chosen = ""
    if message.is_letter and is_kept(message.queue):
        chosen = f", and is not in {letter_queue(message)}, as that could not have it"
    return f"a dead letter to {destination}: {why}{doubt}{chosen}"


def _outgoing_summary(queue: OutgoingStatus, messages: list[MessageStatus], status: NodeStatus) -> str:
    if not queue.waiting:
        return "nothing waits to get there"
    text = f"{_messages(queue.waiting)} wait" + "s" * (queue.waiting == 1)
    waiting = [one.sent_s for one in messages if one.spot is not Spot.AWAITING_FINAL_ACK]
    return text + (f", the oldest for {duration(status.utc_s - min(waiting))}" if waiting else "")


def _local_summary(queue: LocalStatus) -> str:
    return (_messages(queue.waiting) if queue.waiting else "empty") + f", {queue.held:,} held" * bool(
        queue.held
    )


def _in(deadline_ms: int, status: NodeStatus) -> str:
    left_s = (deadline_ms - status.uptime_ms) / 1_000
    return "now" if left_s < 0.05 else f"in {duration(left_s)}"


def _messages(count: int) -> str:
    return counted(count, "message")


def _it(count: int) -> str:
    return "it" if count == 1 else "them"


def _part(size: int, quota: int) -> float:
    return size / quota if quota else 0.0
