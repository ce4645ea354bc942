"""Finds the place and the outcome of a message, for `explain`, `history` and the console.

It reads stores, the document history and logs. It also asks running nodes, because only they know the contents of their
memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from mqproto.base.errors import FormatNameError, MqprotoError, UsageError
from mqproto.edge.custody import NOT_OVER, End, Evidence, end_of
from mqproto.manager.whereabouts import Spot
from mqproto.queues.localqueue import DEAD_LETTERS
from mqproto.simulator.client.explain import Explainer, identifier
from mqproto.simulator.client.live import Away
from mqproto.simulator.client.oversee import explanations
from mqproto.simulator.client.story import MessageStory, story_of
from mqproto.simulator.edges.operators.reading import Audit, audited
from mqproto.simulator.edges.operators.report import known_as_json, known_told
from mqproto.simulator.node.control import Explanation
from mqproto.simulator.node.received import MessageId
from mqproto.simulator.topology import Topology
from mqproto.simulator.topology.directory import known_as
from mqproto.simulator.topology.places import Place
from mqproto.turn.effects import QueueKind

LOOKED_AFTER: Final = 16
"""For at most this many messages, the nodes are asked where each message is."""
KINDS: Final = {
    Spot.IN_QUEUE: QueueKind.LOCAL,
    Spot.UNSETTLED: QueueKind.LOCAL,
    Spot.AWAITING_FINAL_ACK: QueueKind.FINAL,
}
"""The kind of the stored queue that has a message, keyed by the message's spot.

A message at any other spot is on its way.
"""


@dataclass
class Account:
    """Everything that is known about the messages with one name.

    now: for each of the first LOOKED_AFTER messages, the reports of the nodes that were asked, keyed by node; `Away`
        for a node that has not answered.
    """

    subject: str
    audit: Audit
    now: list[dict[str, Explanation | Away]]

    @property
    def known(self) -> list[Evidence]:
        """Return the evidence about each message."""
        return list(self.audit.answered.values())

    @property
    def is_known(self) -> bool:
        """Whether the place or the outcome of at least one message is known."""
        return any(end_of(one) is not End.UNACCOUNTED for one in self.known)

    def story(self, logs: Iterable[Path], topology: Topology) -> MessageStory:
        """Return the past steps of the messages in these logs."""
        names = [name for one in self.known for name in one.names]
        return story_of(self.subject, logs, topology, names)

    def told(self, explainer: Explainer) -> Iterator[str]:
        """Yield the lines of the account. They begin with who has the message."""
        for message, one in self.audit.answered.items():
            yield from known_told(message, one)
        for one, found in zip(self.known, self.now, strict=False):
            running = {name: said for name, said in found.items() if said}
            if end_of(one) in NOT_OVER:
                yield from explainer.lines(found)
            elif any(said.messages for said in running.values()):
                yield from explainer.lines(running)
        if not self.is_known:
            yield from self.audit.unknown.told()

    def as_json(self) -> dict[str, Any]:
        """Return the account as values for programs."""
        return {"whereabouts": [known_as_json(message, one) for message, one in self.audit.answered.items()]}


async def account_of(
    place: Place, subject: str, history: str = "", logs: Iterable[Path] = (), node: str | None = None
) -> Account:
    """Return everything that is known about the messages with an identifier, or with a producer's id.

    Args:
        history: the URL of the document history; empty for the file in the folder of the stores.
        logs: further logs, in addition to those in the folder of the stores.
        node: the only node to ask; None to ask all.

    Raises:
        StoreError, OSError: a file cannot be read.
        NodeUnreachable: the named node is not running.
    """
    read = partial(audited, place, history, list(logs), subject, strictly=False)
    account = Account(subject, await trio.to_thread.run_sync(read), [])
    for one in account.known[:LOOKED_AFTER]:
        found = await explanations(place, node, one.names[-1], 1)
        account.now.append(found)
        _look(place, one, found)
    return account


async def asked_after(
    place: Place, subject: str, limit: int, history: str = "", node: str | None = None
) -> tuple[Account | None, dict[str, Explanation | Away]]:
    """Return a message's account, and the nodes' explanations of the subject.

    The account is None if the subject is not a message.

    Args:
        limit: the maximum number of messages of each queue to report.
        history, node: as for `account_of`.

    Raises:
        UsageError, FormatNameError: the subject is not a message, a queue or a node.
        Other errors: as for `account_of`.
    """
    refusal: MqprotoError | None = None
    if MessageId.parse(subject) is None:
        try:
            return None, await explanations(place, node, subject, limit)
        except (UsageError, FormatNameError) as error:
            refusal = error
    account = await account_of(place, subject, history, (), node)
    if refusal is not None and not (account.is_known or any(one.promised for one in account.known)):
        raise refusal
    return account, account.now[0]


def _look(place: Place, one: Evidence, found: Mapping[str, Explanation | Away]) -> None:
    """Add what running nodes report about the place of a message."""
    running = {name for name, said in found.items() if said}
    # If all of them run, no store knows better: one has for a while what has left.
    if not one.copied and running == set(place.topology.nodes):
        one.has_letter = one.waits = one.on_its_way = one.retained = False
        one.where = ""
    for name, said in found.items():
        for message in said.messages if said else ():
            one.queue = one.queue or known_as(place.topology, message.destination)
            is_letter = message.is_letter or message.queue in DEAD_LETTERS
            if identifier(message) in one.names:
                one.found(
                    KINDS.get(message.spot, QueueKind.OUTGOING), name, message.queue, is_letter=is_letter
                )
