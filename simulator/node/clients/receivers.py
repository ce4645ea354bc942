"""Lists the processes that receive from a node's queues, as the kernel identifies them."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from typing import Final, NamedTuple

from mqproto.simulator.node.clients.deeds import Credentials, program_of
from mqproto.simulator.node.control import QueueReceiver

LISTED: Final = 100
"""The maximum number of receivers that are listed. The receivers with the most unsettled messages come first, and then
the earliest ones.
"""


class OpenReceive(NamedTuple):
    """One receive that has not ended.

    client: a number that distinguishes connections.
    since_s: the time, in UTC, at which this connection first received from the queue.
    messages: how many messages the receive was given; 0 while it is waiting.
    given_s: the time, in UTC, at which it was given them; meaningless while it is waiting.
    """

    client: int
    who: Credentials | None
    queue: str
    since_s: int
    messages: int
    given_s: int


def receivers(receives: Iterable[OpenReceive]) -> tuple[list[QueueReceiver], int]:
    """Return the receivers to list, one for each connection and queue, and the number of receivers that are not
    listed.
    """
    found: dict[tuple[int, str], QueueReceiver] = {}
    for client, who, queue, since_s, messages, given_s in receives:
        one = found.get((client, queue))
        if one is None:
            if who is None:
                one = QueueReceiver(queue, None, None, "", since_s)
            else:
                one = QueueReceiver(queue, who.pid or None, who.uid, who.user, since_s)
            found[client, queue] = one
        one.messages += messages
        if messages:
            one.given_s = given_s if one.given_s is None else min(one.given_s, given_s)
    listed = nlargest(LISTED, found.values(), key=lambda one: (one.messages, -one.since_s))
    for one in listed:
        one.program = program_of(one.pid) if one.pid else ""
    return listed, len(found) - len(listed)
