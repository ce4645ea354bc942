"""The ways in which a message can end, or go on. Each way has its events, the holder of the message afterwards, and the
audit's name for this outcome.

Most ways have their own queue at the destination, under the name of the way. Ways with a trigger share queues: `orders`
has a complete trigger, `shop` a trigger without a document history, and `till` a trigger without an error queue.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from mqproto.edge.custody import End
from mqproto.edge.exactlyonce import Attempt
from mqproto.simulator.client import Client, Reject
from mqproto.simulator.rig.load.validator import Cue
from mqproto.simulator.rig.rig import DESTINATION
from mqproto.simulator.rig.validation.ends.lists import Holder
from mqproto.simulator.rig.validation.ends.system import LETTERS, LIMIT, System
from mqproto.simulator.topology.directory import known_as

ORDERS, ERRORS, DOUBTS, SHOP, TILL, TOLD = "orders", "errors", "doubts", "shop", "till", "told"
PLAIN_LETTERS: Final = "deadletter"
FULL_KB: Final = 64
LARGE_BYTES: Final = 30_000
Go = Callable[[System, str], Awaitable[None]]

# A program receives it


async def received(system: System, way: str) -> None:
    await system.post(way, way, way)
    await system.receive(way)


async def received_in_a_transaction(system: System, way: str) -> None:
    await system.post(way, way, way)
    await system.arrived(way)
    async with system.destination.transaction(way) as taken:
        for message in taken:  # A node that has lost it is the verdict's to find.
            system.has(Holder.PROGRAM, message.body)


async def received_without_an_id(system: System, way: str) -> None:
    await system.post(way, way)
    await system.receive(way)


async def received_from_a_plain_queue(system: System, way: str) -> None:
    await system.post(way, way, way)
    await system.receive(way)


async def told_elsewhere(system: System, way: str) -> None:
    """The producer's own administration queue gets the acknowledgment."""
    message = await system.post(way, way, way, headers={"MQ-Admin-Queue": f"destination%5C{TOLD}"})
    await system.receive(way)

    async def is_told() -> bool:
        told = await system.destination.peek(TOLD, LIMIT)
        return "ACK_RECEIVE" in [one.message_class for one in told if str(one.correlation) == message]

    await system.until("the producer's queue is told", is_told)
    await system.destination.receive(TOLD, LIMIT)
    system.has(Holder.PRODUCER, way.encode())


# It waits


async def waits(system: System, way: str) -> None:
    await system.post(way, way, way)
    await system.arrived(way)


async def waits_without_an_id(system: System, way: str) -> None:
    await system.post(way, way)
    await system.arrived(way)


class _GivenBackError(Exception):
    pass


async def rolled_back(system: System, way: str) -> None:
    await system.post(way, way, way)
    await system.arrived(way)
    try:
        async with system.destination.transaction(way):
            raise _GivenBackError
    except _GivenBackError:
        await system.arrived(way)


async def on_its_way(system: System, way: str) -> None:
    await _paused(system, way)
    await system.post(way, way, way)


async def _paused(system: System, way: str) -> None:
    """Pause the outgoing queue for a way. A message is sent and acknowledged first, because that creates the queue."""

    queue = f"{DESTINATION}\\{way}"
    await system.post(f"before {way}", way, f"before-{way}")
    await system.receive(way)

    async def is_acknowledged() -> bool:
        outgoing = (await system.sender.queues()).outgoing
        return not any(one.waiting for one in outgoing if known_as(system.place.topology, one.name) == queue)

    await system.until(f"what came before {way} is acknowledged", is_acknowledged)
    await system.sender.pause(queue)


# It is deleted, or late, or there is no room: a dead letter


async def rejected(system: System, way: str) -> None:
    await system.post(way, way, way)
    async with system.destination.transaction(way):
        raise Reject
    await _is_letter(system.sender, LETTERS, system, way)


async def _is_letter(client: Client, queue: str, system: System, text: str) -> None:
    """Wait until a message is in this queue of dead letters or of failed messages."""

    async def is_there() -> bool:
        return text in [one.body.decode().rstrip() for one in await client.peek(queue, LIMIT)]

    await system.until(f"{text} is a dead letter", is_there)


async def purged(system: System, way: str) -> None:
    await system.post(way, way, way)
    await system.arrived(way)
    await system.destination.purge(way)


async def purged_from_a_plain_queue(system: System, way: str) -> None:
    await purged(system, way)


async def its_queue_deleted(system: System, way: str) -> None:
    await system.post(way, way, way)
    await system.arrived(way)
    await system.destination.delete(way)


async def its_queue_deleted_before_it_came(system: System, way: str) -> None:
    await _paused(system, way)
    await system.post(way, way, way)
    await system.destination.delete(way)
    await system.sender.resume(f"destination\\{way}")


async def deleted_on_its_way(system: System, way: str) -> None:
    await _paused(system, way)
    await system.post(way, way, way)
    await system.sender.purge(f"destination\\{way}")


async def deleted_at_the_intermediate(system: System, way: str) -> None:
    """A message without a transaction belongs to the intermediate when it is deleted there."""
    await _deleted_there(system, way)


async def deleted_at_the_intermediate_and_sent_again(system: System, way: str) -> None:
    """A message with a transaction belongs to its sender until the destination has it."""
    await _deleted_there(system, way)
    await system.receive(way)


async def _deleted_there(system: System, way: str) -> None:
    await system.intermediate.pause("destination")
    await system.post(way, way, way)

    async def is_there() -> bool:
        return any(queue.waiting for queue in (await system.intermediate.queues()).outgoing)

    await system.until(f"{way} waits at the intermediate", is_there)
    await system.intermediate.purge("destination")
    await system.intermediate.resume("destination")


async def queue_full(system: System, way: str) -> None:
    for number in range(FULL_KB * 1_024 // LARGE_BYTES):
        await system.post(f"before {way}", way, f"{way}-{number}", size_bytes=LARGE_BYTES)
    await system.post(way, way, way, size_bytes=LARGE_BYTES)


async def too_late_for_its_queue(system: System, way: str) -> None:
    await _paused(system, way)
    await system.post(way, way, way, headers={"MQ-Time-To-Reach-Queue": "1"})


async def too_late_to_be_received(system: System, way: str) -> None:
    await system.post(way, way, way, headers={"MQ-Time-To-Be-Received": "1"})


async def purged_after_a_call_without_an_answer(system: System, way: str) -> None:
    scope = f"trigger/destination\\{way}"
    await system.history.begin(scope, way, "a trigger")
    await system.history.finish(scope, way, Attempt.FAILED_FOR_NOW, b"no answer within 30 s")
    await purged(system, way)
    await system.until_state("in-doubt", way, way)


# What becomes of a dead letter


async def letter_taken(system: System, way: str) -> None:
    await rejected(system, way)
    await system.take(system.sender, LETTERS, way)


async def letter_purged(system: System, way: str) -> None:
    """A message without a transaction belongs to the destination when its dead letter is purged."""
    await purged(system, way)
    await _is_letter(system.destination, PLAIN_LETTERS, system, way)
    await system.destination.purge(PLAIN_LETTERS)
    system.has(Holder.OPERATOR, way.encode())


async def letter_resolved(system: System, way: str) -> None:
    await rejected(system, way)
    await system.until_state("dead-letter", way, way)  # The history knows that before it is settled.
    await system.resolve(way)


async def letter_erased(system: System, way: str) -> None:
    await rejected(system, way)
    await system.until_state("dead-letter", way, way)  # Until then its sender retains it.
    await system.erase(way)


async def letter_returned(system: System, way: str) -> None:
    await rejected(system, way)
    await system.send_back(way)
    await system.arrived(way)
    await system.receive(way)


async def letter_returned_and_waits(system: System, way: str) -> None:
    await rejected(system, way)
    await system.retry(way)
    await system.arrived(way)


# A trigger has its consumer called


async def processed(system: System, way: str) -> None:
    await system.post(way, ORDERS, way)
    await system.until_state("processed", ORDERS, way)


async def processed_with_an_extension(system: System, way: str) -> None:
    """This message does not contain the producer's id."""
    await system.post(way, ORDERS, way, headers={"MQ-Extension": "ZXh0ZW5zaW9u"})
    await system.until_state("processed", ORDERS, way)


async def processed_without_a_history(system: System, way: str) -> None:
    await system.post(way, SHOP, way)
    await system.until_state("received", SHOP, way)


async def being_processed(system: System, way: str) -> None:
    """The consumer never answers."""
    await system.post(way, ORDERS, way)
    await system.until_state("being-processed", ORDERS, way)


# It fails


async def refused_by_its_consumer(system: System, way: str) -> None:
    await _failed(system, way, ORDERS, ERRORS)


async def attempted_too_often(system: System, way: str) -> None:
    await _failed(system, way, ORDERS, ERRORS)


async def refused_without_an_error_queue(system: System, way: str) -> None:
    await system.post(way, TILL, way)
    await _is_letter(system.sender, LETTERS, system, way)


async def in_doubt(system: System, way: str) -> None:
    """A trigger was killed after it had begun to process the message."""
    await system.history.begin(f"trigger/destination\\{ORDERS}", way, "one that was killed")
    await _failed(system, way, ORDERS, DOUBTS)


async def _failed(system: System, way: str, queue: str, errors: str) -> None:
    await system.post(way, queue, way)
    await _is_letter(system.destination, errors, system, way)


# What becomes of a message that failed


async def copy_taken(system: System, way: str) -> None:
    await _failed(system, way, ORDERS, ERRORS)
    await system.take(system.destination, ERRORS, way)


async def copy_resolved(system: System, way: str) -> None:
    await _failed(system, way, ORDERS, ERRORS)
    await system.resolve(way)


async def copy_erased(system: System, way: str) -> None:
    await _failed(system, way, ORDERS, ERRORS)
    await system.erase(way)


async def retried_and_processed(system: System, way: str) -> None:
    await _failed(system, way, ORDERS, ERRORS)
    await system.retry(way)
    await system.until_state("processed", ORDERS, way)


async def copy_purged(system: System, way: str) -> None:
    await _fails_in_the_shop(system, way)
    await system.destination.purge(f"{SHOP}-errors")
    system.has(Holder.OPERATOR, way.encode())


async def _fails_in_the_shop(system: System, way: str) -> None:
    await _failed(system, way, SHOP, f"{SHOP}-errors")


async def retried_and_received(system: System, way: str) -> None:
    """The trigger is no longer running."""
    await system.programs.stop(SHOP)
    await system.retry(way)
    await system.receive(SHOP)


async def retried_and_waits(system: System, way: str) -> None:
    await system.programs.stop(SHOP)
    await system.retry(way)
    await system.arrived(SHOP)


async def copy_deleted_with_its_queue(system: System, way: str) -> None:
    await system.programs.stop(SHOP)
    await system.destination.delete(f"{SHOP}-errors")
    system.has(Holder.OPERATOR, way.encode())


class EndWay(NamedTuple):
    """A way in which a message ends, or goes on.

    owner: the message's holder afterwards, described for people.
    end, reason: the audit's words for this outcome.
    first: the events of this way that must happen before any way stops the trigger; None if there are none.
    """

    go: Go
    owner: str
    end: End
    reason: str = ""
    first: Go | None = None

    @property
    def name(self) -> str:
        """The name of the way, of its own queue, and of its message."""
        return self.go.__name__.replace("_", "-")


PROGRAM: Final = "the program that received it"
CONSUMER: Final = "its consumer, who has said so"
QUEUE: Final = "its queue"
SENDERS: Final = "the sender's dead-letter queue"
PERSON: Final = "whoever took it, as its node has written down"
DESK: Final = "the operator who said so"

WAYS: Final = (
    EndWay(received, PROGRAM, End.RECEIVED),
    EndWay(received_in_a_transaction, PROGRAM, End.RECEIVED),
    EndWay(received_without_an_id, PROGRAM, End.RECEIVED),
    EndWay(received_from_a_plain_queue, PROGRAM, End.RECEIVED),
    EndWay(told_elsewhere, "the program; its producer's own queue was told", End.HEARD_ELSEWHERE),
    EndWay(waits, QUEUE, End.IN_ITS_QUEUE),
    EndWay(waits_without_an_id, QUEUE, End.IN_ITS_QUEUE),
    EndWay(rolled_back, QUEUE, End.IN_ITS_QUEUE),
    EndWay(on_its_way, "the sender", End.ON_ITS_WAY),
    EndWay(rejected, SENDERS, End.DEAD_LETTER, "NACK_RECEIVE_REJECTED"),
    EndWay(purged, SENDERS, End.DEAD_LETTER, "NACK_Q_PURGED"),
    EndWay(letter_purged, PERSON, End.LETTER_TAKEN, "NACK_Q_PURGED"),
    EndWay(
        purged_from_a_plain_queue, "the destination's dead-letter queue", End.DEAD_LETTER, "NACK_Q_PURGED"
    ),
    EndWay(its_queue_deleted, SENDERS, End.DEAD_LETTER, "NACK_Q_DELETED"),
    EndWay(its_queue_deleted_before_it_came, SENDERS, End.DEAD_LETTER, "NACK_BAD_DST_Q"),
    EndWay(deleted_on_its_way, SENDERS, End.DEAD_LETTER, "NACK_DELETED"),
    EndWay(
        deleted_at_the_intermediate,
        "the intermediate's dead-letter queue",
        End.DEAD_LETTER,
        "NACK_DELETED",
    ),
    EndWay(deleted_at_the_intermediate_and_sent_again, PROGRAM, End.RECEIVED),
    EndWay(queue_full, SENDERS, End.DEAD_LETTER, "NACK_Q_EXCEED_QUOTA"),
    EndWay(too_late_for_its_queue, SENDERS, End.DEAD_LETTER, "NACK_REACH_QUEUE_TIMEOUT"),
    EndWay(too_late_to_be_received, SENDERS, End.DEAD_LETTER, "NACK_RECEIVE_TIMEOUT"),
    EndWay(purged_after_a_call_without_an_answer, SENDERS, End.LETTER_IN_DOUBT, "NACK_Q_PURGED"),
    EndWay(letter_taken, PERSON, End.LETTER_TAKEN, "NACK_RECEIVE_REJECTED"),
    EndWay(letter_resolved, DESK, End.RESOLVED),
    EndWay(letter_erased, DESK, End.ERASED),
    EndWay(letter_returned, PROGRAM, End.RECEIVED),
    EndWay(letter_returned_and_waits, QUEUE, End.IN_ITS_QUEUE),
    EndWay(processed, CONSUMER, End.PROCESSED),
    EndWay(processed_with_an_extension, CONSUMER, End.PROCESSED),
    EndWay(processed_without_a_history, CONSUMER, End.PROCESSED),
    EndWay(refused_by_its_consumer, "the error queue", End.IN_ERROR_QUEUE, "business error"),
    EndWay(attempted_too_often, "the error queue", End.IN_ERROR_QUEUE, "retrieval failure"),
    EndWay(refused_without_an_error_queue, SENDERS, End.DEAD_LETTER, "NACK_RECEIVE_REJECTED"),
    EndWay(in_doubt, "the in-doubt queue", End.IN_IN_DOUBT_QUEUE),
    EndWay(copy_taken, PERSON, End.COPY_TAKEN, "ACK_RECEIVE"),
    EndWay(copy_resolved, DESK, End.RESOLVED),
    EndWay(copy_erased, DESK, End.ERASED),
    EndWay(copy_purged, PERSON, End.COPY_TAKEN, "NACK_Q_PURGED"),
    EndWay(retried_and_processed, CONSUMER, End.PROCESSED),
    EndWay(retried_and_received, PROGRAM, End.RECEIVED, "", _fails_in_the_shop),
    EndWay(retried_and_waits, QUEUE, End.IN_ITS_QUEUE, "", _fails_in_the_shop),
    EndWay(copy_deleted_with_its_queue, PERSON, End.COPY_TAKEN, "NACK_Q_DELETED", _fails_in_the_shop),
    EndWay(being_processed, "the trigger, whose call lasts", End.BEING_PROCESSED),
)

LATE: Final = ("too-late-for-its-queue", "too-late-to-be-received")
"""The ways whose messages expire, which takes some time."""
PLAIN: Final = (
    "received-from-a-plain-queue",
    "purged-from-a-plain-queue",
    "letter-purged",
    "deleted-at-the-intermediate",
    TOLD,
)
"""The queues without transactions."""
CUES: Final = {
    **{
        way.name: [Cue.BUSINESS_ERROR]
        for way in WAYS
        if way.first is not None or way.end in (End.IN_ERROR_QUEUE, End.COPY_TAKEN, End.RESOLVED, End.ERASED)
    },
    "attempted-too-often": [Cue.FAIL],
    "refused-without-an-error-queue": [Cue.BUSINESS_ERROR],
    "retried-and-processed": [Cue.BUSINESS_ERROR, Cue.ACCEPT],
    "being-processed": [Cue.TIME_OUT],
}
"""The consumer's actions at a message's first call, its second call, and so on, keyed by the name of the
message's way.
"""
