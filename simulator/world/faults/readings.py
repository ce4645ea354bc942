"""Queue managers that read the specification differently, in ways that its text allows.

An OrderAck names the acknowledged message by TxSequenceID and TxSequenceNumber (2.2.4.1). But in the table of 3.1.7.17,
TxSequenceID is that of the sequence in which the acknowledging queue manager itself sends. In 3.1.1.6.2, TxSequenceID
contains the message's number. A node that reads the text in one of these ways does so in all its lives, and
occasionally repeats an OrderAck late.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from mqproto.manager.queuemanager import QueueManager
from mqproto.simulator.base.randomness import chance
from mqproto.simulator.world.network.glimpse import Glimpse
from mqproto.simulator.world.node.linked import LinkedNode
from mqproto.simulator.world.scenarios.scenario import Fault
from mqproto.simulator.world.world import World
from mqproto.turn.endings import ReplyTo
from mqproto.wire import OrderAck, OrderAckBody, TxSequenceId, UserMessage, acknowledgment_in, encode_packet

LATE_MS: Final = (0, 300, 2_000, 12_000)
"""The delays, in milliseconds, after which an OrderAck is repeated; 0 means that it is not repeated."""
INSTALLED_S: Final = 1_400_000_000
"""The TimeStamp of a node that uses the time at which it was installed.  Note <35>"""


def own_sequence(body: OrderAckBody) -> OrderAckBody:
    """Return the body according to the table of 3.1.7.17."""
    own = TxSequenceId(time_stamp=INSTALLED_S, ordinal=1)
    return OrderAckBody(own, body.tx_sequence_number, body.tx_previous_sequence_number)


def number_alone(body: OrderAckBody) -> OrderAckBody:
    """Return the body according to the example of 3.1.1.6.2, with zero in TxSequenceNumber."""
    return OrderAckBody(TxSequenceId(time_stamp=0, ordinal=body.tx_sequence_number), 0, 0)


def number_twice(body: OrderAckBody) -> OrderAckBody:
    """Return the body according to the example of 3.1.1.6.2, but with the TxSequenceNumber of 2.2.4.1."""
    identifier = TxSequenceId(time_stamp=0, ordinal=body.tx_sequence_number)
    return OrderAckBody(identifier, body.tx_sequence_number, body.tx_previous_sequence_number)


READINGS: Final = (own_sequence, number_alone, number_twice)


def order_acks_otherwise(world: World, fault: Fault) -> bool:
    """From now on, in all its lives, the node sends OrderAcks according to one of READINGS.

    `value` selects the reading.
    """
    node = world.nodes[fault.where]
    dice = chance(world.scenario.seed, "order acks said again", node.name)
    node.misread = partial(_misread, node, READINGS[fault.value % len(READINGS)], dice)
    if node.core is not None:
        node.misread(node.core)
    return True


def _misread(
    node: LinkedNode,
    reading: Callable[[OrderAckBody], OrderAckBody],
    dice: random.Random,
    core: QueueManager,
) -> None:
    outbound = core.inspect().outbound
    sound = outbound.acknowledge

    def acknowledge(message: UserMessage, reply_to: ReplyTo) -> None:
        body = acknowledgment_in(message)
        # A forged one, told otherwise, would be the node's own word about a sequence that it receives.
        if not isinstance(body, OrderAckBody) or node.ledger.is_forged(Glimpse(encode_packet(message))):
            sound(message, reply_to)
            return
        say(message.user.message_id, message, reading(body), reply_to)
        node.ledger.tally["order ack otherwise"] += 1
        if delay_ms := dice.choice(LATE_MS):
            node.later(delay_ms, again, message, reading(body), reply_to)

    def again(message: UserMessage, body: OrderAckBody, reply_to: ReplyTo) -> None:
        say(outbound.numbers.next_message_id(), message, body, reply_to)

    def say(message_id: int, message: UserMessage, body: OrderAckBody, reply_to: ReplyTo) -> None:
        destination = message.user.destination_queue
        assert isinstance(destination, (int, str))
        said = OrderAck(
            source=node.guid,
            destination_manager=message.user.queue_manager_address,
            destination=destination,
            message_id=message_id,
            sent_time_s=message.user.sent_time_s,
            body=body,
        ).message()
        sound(said, reply_to)

    outbound.acknowledge = acknowledge


def draw_readings(dice: random.Random, nodes: tuple[str, ...]) -> Iterable[Fault]:
    """In one world out of eight, make some nodes read the specification differently."""
    if dice.randrange(8):
        return
    for name in nodes:
        if dice.randrange(4):
            yield Fault(at_ms=0, kind="order acks otherwise", where=name, value=dice.randrange(len(READINGS)))
