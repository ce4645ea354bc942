"""The ways in which a message can end, each played through in a system of whole queue managers.

`a` sends to `c` through `b`; `d` is another neighbour of `b`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import pytest

from mqproto.base.configuration import Settings
from mqproto.formatname import PublicName
from mqproto.messages.destinations import Destination
from mqproto.queues.localqueue import QueueDeclaration
from mqproto.wire import MessageClass, guid_text
from mqproto.wire.layouts.properties import MessagePropertiesHeader
from tests.pair import Net, at, guid_of, queue

ADMIN, ORDERS, NOTES = (
    queue("admin", 5, transactional=False),
    queue("orders"),
    queue("notes", 17, transactional=False),
)
PUBLIC_NOTES = Destination(str(PublicName(guid_of("public notes"))), guid_of("c"), guid_of("public notes"))
FULL = [
    QueueDeclaration("full orders", 18, transactional=True, quota_bytes=1),
    QueueDeclaration("full notes", 19, quota_bytes=1),
]
TALKATIVE = Settings(
    send_insecure_nacks=True,
    try_connect_interval_ms=200,
    resend_timeouts_short_s=5,
    resend_timeouts_medium_s=5,
    resend_timeouts_long_s=5,
    resend_timeouts_final_s=5,
)

# The four bits of MessagePropertiesHeader.Flags, and which ends each of them asks about.
PA: Final = MessagePropertiesHeader.acknowledge_arrival.mask
PR: Final = MessagePropertiesHeader.acknowledge_receipt.mask
NA: Final = MessagePropertiesHeader.report_no_arrival.mask
NR: Final = MessagePropertiesHeader.report_no_receipt.mask
ASKED_BY: Final = {
    MessageClass.ACK_REACH_QUEUE: PA,
    MessageClass.ACK_RECEIVE: PR,
    MessageClass.NACK_BAD_DST_Q: NA,
    MessageClass.NACK_DELETED: NA,
    MessageClass.NACK_REACH_QUEUE_TIMEOUT: NA,
    MessageClass.NACK_Q_EXCEED_QUOTA: NA,
    MessageClass.NACK_HOP_COUNT_EXCEEDED: NA,
    MessageClass.NACK_NOT_TRANSACTIONAL_Q: NA,
    MessageClass.NACK_NOT_TRANSACTIONAL_MSG: NA,
    MessageClass.NACK_Q_DELETED: NR,
    MessageClass.NACK_Q_PURGED: NR,
    MessageClass.NACK_RECEIVE_TIMEOUT: NR,
    MessageClass.NACK_RECEIVE_REJECTED: NR,
}


def a_system(settings: Settings = TALKATIVE) -> Net:
    """Return four queue managers around `b`, all started."""
    net = Net()
    net.add("a", ADMIN, settings=settings)
    net.add("b", ADMIN, settings=settings)
    net.add("c", ORDERS, NOTES, *FULL, ADMIN, settings=settings)
    net.add("d", settings=settings)
    for here, there in product("abcd", "abcd"):
        if here != there:
            net.route(here, there, there if here == "b" else "b")
    net.start()
    return net


# The ways of a message


@dataclass(frozen=True)
class Way:
    """One way in which messages end.

    act: sends messages with the function that it gets, and makes them end in this way.
    of: the kinds of message that can end in this way.
    reached: whether the messages have reached their queue before they end.
    where: the node at which the messages end.
    """

    name: str
    message_class: MessageClass
    act: Callable[[Net, Callable[[int], None], bool], None]
    of: str = "express, transactional"
    reached: bool = False
    where: str = "c"

    @property
    def history(self) -> list[MessageClass]:
        """Return the classes of everything that happens to a message."""
        return [MessageClass.ACK_REACH_QUEUE] * self.reached + [self.message_class]


def queue_of(transactional: bool) -> tuple[int, str]:
    return (16, "orders") if transactional else (17, "notes")


def let_be_received(net: Net, send: Callable[[int], None], transactional: bool) -> None:
    number, name = queue_of(transactional)
    send(number)
    net.run()
    net.receive("c", name)


def commit(net: Net, send: Callable[[int], None], transactional: bool) -> None:
    take_in_a_transaction(net, send, transactional)
    net.nodes["c"].up.settle(3, queue_of(transactional)[1], net.now, commit=True)


def reject(net: Net, send: Callable[[int], None], transactional: bool) -> None:
    take_in_a_transaction(net, send, transactional)
    net.nodes["c"].up.reject(3, queue_of(transactional)[1])


def take_in_a_transaction(net: Net, send: Callable[[int], None], transactional: bool) -> None:
    number, name = queue_of(transactional)
    send(number)
    net.run()
    net.nodes["c"].up.consume(3, name, 1_000, transactional=True)
    net.run()


def wait_too_long(net: Net, send: Callable[[int], None], transactional: bool) -> None:
    send(queue_of(transactional)[0])
    net.pass_ms(62_000)


def purge(net: Net, send: Callable[[int], None], transactional: bool) -> None:
    number, name = queue_of(transactional)
    send(number)
    net.run()
    net.nodes["c"].up.purge(name)


def delete(net: Net, send: Callable[[int], None], transactional: bool) -> None:
    number, name = queue_of(transactional)
    send(number)
    net.run()
    net.nodes["c"].up.delete(name)


def send_to(number: int) -> Callable[[Net, Callable[[int], None], bool], None]:
    return lambda net, send, transactional: send(number)


def send_to_a_full_queue(net: Net, send: Callable[[int], None], transactional: bool) -> None:
    send(18 if transactional else 19)


def block(*pair: str) -> Callable[[Net, Callable[[int], None], bool], None]:
    """Let the time to reach the queue, 60 seconds, pass while two neighbours do not hear each other."""

    def act(net: Net, send: Callable[[int], None], transactional: bool) -> None:
        net.blocked.add(frozenset(pair))
        send(queue_of(transactional)[0])
        net.pass_ms(62_000)
        net.blocked.clear()

    return act


def purge_on_the_way(where: str) -> Callable[[Net, Callable[[int], None], bool], None]:
    def act(net: Net, send: Callable[[int], None], transactional: bool) -> None:
        net.blocked |= {frozenset("ab")} if where == "a" else {frozenset("bc")}
        number, _ = queue_of(transactional)
        send(number)
        net.pass_ms(1_000)
        name = at("c", number).name if transactional and where == "a" else guid_text(guid_of("c"))
        assert net.nodes[where].up.purge(name)
        net.run()
        net.blocked.clear()

    return act


def go_in_circles(net: Net, send: Callable[[int], None], transactional: bool) -> None:
    net.route("b", "c", "d")
    net.start("b")
    send(queue_of(transactional)[0])


WAYS: Final = [
    Way("received", MessageClass.ACK_RECEIVE, let_be_received, reached=True),
    Way("committed", MessageClass.ACK_RECEIVE, commit, reached=True),
    Way("rejected", MessageClass.NACK_RECEIVE_REJECTED, reject, reached=True),
    Way("purged", MessageClass.NACK_Q_PURGED, purge, reached=True),
    Way("deleted with its queue", MessageClass.NACK_Q_DELETED, delete, reached=True),
    Way("not received in time", MessageClass.NACK_RECEIVE_TIMEOUT, wait_too_long, reached=True),
    Way("no such queue", MessageClass.NACK_BAD_DST_Q, send_to(99)),
    Way("queue for others", MessageClass.NACK_NOT_TRANSACTIONAL_Q, send_to(17), of="transactional"),
    Way("transactional queue", MessageClass.NACK_NOT_TRANSACTIONAL_MSG, send_to(16), of="express"),
    Way("full queue", MessageClass.NACK_Q_EXCEED_QUOTA, send_to_a_full_queue),
    Way("late at the sender", MessageClass.NACK_REACH_QUEUE_TIMEOUT, block("a", "b"), where="a"),
    Way("late between", MessageClass.NACK_REACH_QUEUE_TIMEOUT, block("b", "c"), of="express", where="b"),
    Way(
        "late at its destination", MessageClass.NACK_REACH_QUEUE_TIMEOUT, block("b", "c"), of="transactional"
    ),
    Way("deleted at the sender", MessageClass.NACK_DELETED, purge_on_the_way("a"), where="a"),
    Way("deleted between", MessageClass.NACK_DELETED, purge_on_the_way("b"), of="express", where="b"),
    Way("in circles", MessageClass.NACK_HOP_COUNT_EXCEEDED, go_in_circles, of="transactional", where="d"),
]
CASES: Final = [
    pytest.param(way, kind == "transactional", id=f"{way.name}-{kind}")
    for way in WAYS
    for kind in way.of.split(", ")
]


def walk(net: Net, way: Way, transactional: bool, drafts: list[dict[str, Any]]) -> None:
    """Let messages end this way, and let all nodes hear of it; the body of each is its number."""
    timing = {}
    if way.message_class == MessageClass.NACK_RECEIVE_TIMEOUT:
        timing = {"time_to_be_received_s": 60}
    elif way.message_class == MessageClass.NACK_REACH_QUEUE_TIMEOUT:
        timing = {"time_to_reach_queue_s": 60}

    def send(number: int) -> None:
        for body, draft in enumerate(drafts):
            net.send("a", at("c", number), str(body), transactional=transactional, **draft, **timing)

    way.act(net, send, transactional)
    net.pass_ms(8_000)
